// openapi.json sha256: a6e7f768ce00875c2e577bc951e0151e93e4b034d17c028c06502e51f8a44d05
export interface paths {
    "/api/v1/decisions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Listing
         * @description List the recorded decisions that changed something, newest first. They are kept for some time.
         */
        get: operations["queues_listing"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/decisions/{number}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Decision
         * @description Return one decision with what went into it and what came out, and whether the same comes out again now.
         */
        get: operations["queues_decision"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/dry-run": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Dry Run
         * @description Say what would become of a submission now, without its code: whether it starts, where and when, and whose slots
         *     it would take. Nothing is stored. The script itself is not looked at.
         */
        post: operations["answers_dry_run"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/frameworks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Listing
         * @description List the entries of the catalogue: the built-in ones, then those that admins have added.
         */
        get: operations["frameworks_listing"];
        put?: never;
        /**
         * Add
         * @description Add an entry, or replace the added entry of its name. Jobs that were submitted before keep what they have.
         *
         *     The body has the keys of an entry. ``name`` is needed, and ``command`` unless ``elastic`` is true.
         */
        post: operations["frameworks_add"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/frameworks/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Remove
         * @description Remove an added entry. Jobs that have it keep it.
         */
        delete: operations["frameworks_remove"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/images": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Listing
         * @description List the images that an admin has allowed or used, and the nodes on which each image is ready.
         */
        get: operations["images_listing"];
        put?: never;
        /**
         * Allow
         * @description Allow every user to name an image. Send it again to change whether nodes fetch the image in advance.
         */
        post: operations["images_allow"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/images/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Forbid
         * @description Allow only admins to name this image from now on. Jobs that use it keep it.
         *
         *     Every user may still name an image that matches a pattern of EDT_IMAGES.
         */
        delete: operations["images_forbid"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Listing
         * @description List the caller's jobs, newest first. Admins and viewers get those of all users.
         */
        get: operations["jobs_listing"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{exec_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get */
        get: operations["jobs_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        /**
         * Change
         * @description Change the fewest and the most slots of a job that waits or runs, or its priority. What is left out stays.
         *
         *     Only the job's owner and admins may do so. The owner may set at most the priority with which the job was submitted;
         *     an admin may set any.
         */
        patch: operations["queues_change"];
        trace?: never;
    };
    "/api/v1/jobs/{exec_id}/allocations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Allocations
         * @description List the slots that the job held, oldest first, each with the times of its steps.
         */
        get: operations["jobs_allocations"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{exec_id}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Events
         * @description List all events of the job's history, oldest first.
         */
        get: operations["jobs_events"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{exec_id}/explanation": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Explanation
         * @description Explain why a job waits, or why it has as many slots as it has, by the plan that the scheduler would make now.
         *
         *     For a job that waits: its rank, the rule, what blocks it, a verdict on each node, what would start it now, and when
         *     it is expected to start. Every change that the answer suggests was tried on the present state.
         */
        get: operations["answers_explanation"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{exec_id}/extend": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Extend
         * @description Give a job's training another number of epochs in all.
         *
         *     A running training leaves at its next step with a checkpoint and goes on with that number. For a job that is over,
         *     a new job with the same code and arguments is submitted, which begins from its checkpoint; the answer has that job.
         *     A request with an ``Idempotency-Key`` may be sent again.
         */
        post: operations["lives_extend"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{exec_id}/log": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Log
         * @description Return one file of the log from byte ``offset`` on.
         *
         *     To follow the file, send the value of the header ``Edt-Log-Offset`` as the next ``offset``. ``stream`` is
         *     ``training`` (the course of the training, for people), ``elog``, ``out``, ``err`` (of a gang those of rank 0), or a
         *     stream of an engine or a rank as ``logs`` lists it. An answer holds at most 1 MiB. An empty answer means that the
         *     file has no more bytes yet. The offset starts again at 0 when the file is rotated at its size limit.
         *
         *     With ``wait`` the server waits so many seconds for more bytes, at most five, before it answers with none. It does
         *     not wait for a job that is over.
         */
        get: operations["jobs_log"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{exec_id}/logs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Log Files
         * @description List the files of the job's log: first that of the training, those of the loggers and the driver, then those of
         *     each engine or rank.
         */
        get: operations["jobs_log_files"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{exec_id}/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Metrics
         * @description Return the metrics of the training in at most ``points`` points, which keep the shape of the loss, and those of
         *     its validations in as many.
         */
        get: operations["jobs_metrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{exec_id}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pause
         * @description Pause a job: its engines leave at the next step with a checkpoint, and it gets no slot until it is resumed.
         *
         *     The processes of a gang, or of a script that trains in a loop of its own, are asked to end, and start again from the
         *     beginning of their script.
         */
        post: operations["lives_pause"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{exec_id}/ranks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Ranks
         * @description List the processes of a gang's newest attempt that were started, by rank. An elastic job has none.
         *
         *     ``GET …/allocations`` lists its slots, and those of earlier attempts.
         */
        get: operations["jobs_ranks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{exec_id}/resizes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Resizes
         * @description List the changes of the job's size, oldest first, each with its cause, what woke the agent, and its pause.
         */
        get: operations["jobs_resizes"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{exec_id}/result": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Result
         * @description Return whether the job has a result to download, and its size. WMLA's call downloads it.
         *
         *     The status is 410 if the result was removed.
         */
        get: operations["jobs_result"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{exec_id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Resume
         * @description Let a paused job go on: it waits for slots as before, unless it has not begun to leave those that it holds.
         */
        post: operations["lives_resume"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{exec_id}/step-times": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Step Times
         * @description Return where the time of the job's training steps goes: of each engine the seconds a step in each phase, for
         *     which engine the others wait, and a sentence about each engine that has been slower than the others for some time.
         *
         *     Of more than 64 engines the slowest and the fastest are listed, and the mean of the others. Before the first report
         *     ``steps`` is 0, and no engine is listed.
         */
        get: operations["jobs_step_times"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/me": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Me
         * @description Return the user to whom the credential belongs, and the version of the server.
         */
        get: operations["session_me"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Listing
         * @description List the nodes with their slots, the jobs that hold the slots, and how busy the slots are.
         *
         *     Every user sees the ids of all these jobs: users share the cluster, and the id of a job is no secret.
         */
        get: operations["nodes_listing"];
        put?: never;
        /**
         * Register
         * @description Register a node whose agent has started.
         *
         *     The answer holds a new token. An older agent of a node of this name is refused from then on. The status is 409 if a
         *     pool's cluster manager was asked for the node and it is not wanted any more; its agent should end then.
         */
        post: operations["agents_register"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get */
        get: operations["nodes_get"];
        put?: never;
        post?: never;
        /**
         * Remove
         * @description Remove a lost node from the list. Its history stays, and a node of this name may join again.
         *
         *     The status is 409 if the node is not lost, or if a part of a running attempt is on it.
         */
        delete: operations["nodes_remove"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes/{name}/assignments": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Assignments
         * @description Return what the node should be running now. The request also counts as the node's heartbeat.
         */
        get: operations["agents_assignments"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes/{name}/cordon": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Cordon
         * @description Start nothing new on the node. Jobs that run there continue.
         */
        post: operations["nodes_cordon"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes/{name}/drain": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Drain
         * @description Empty the node: its engines leave at their next boundary, and nothing new starts on it.
         */
        post: operations["nodes_drain"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes/{name}/images": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pulled
         * @description Store whether the node has got an image that it was asked to fetch, or why it cannot get the image.
         */
        post: operations["agents_pulled"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes/{name}/leaving": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Leaving
         * @description Tell that a node of a pool wants to leave, or that nothing of a job is left on it.
         *
         *     The node is emptied from then on. With ``if_idle`` it is only if nothing of a job is on it and its pool keeps its
         *     least number of nodes.
         */
        post: operations["agents_leaving"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes/{name}/reports": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Reports
         * @description Accept reports. Each report number of an attempt is accepted once.
         *
         *     The answer holds the last accepted number of each attempt.
         */
        post: operations["agents_reports"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes/{name}/uncordon": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Uncordon
         * @description Use the node again, after a cordon or a drain.
         */
        post: operations["nodes_uncordon"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes/{name}/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Usage
         * @description Return how busy the node's slots were, in at most ``points`` intervals for each slot.
         *
         *     ``until`` is now and ``since`` is an hour before ``until`` if the request does not give them.
         */
        get: operations["nodes_usage"];
        put?: never;
        /**
         * Usage
         * @description Store a sample of how busy the node's slots are. Its time is the time of its arrival.
         */
        post: operations["agents_usage"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/pools": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Listing
         * @description Return all pools, with the nodes that their cluster managers were asked for and that are not there.
         *
         *     Every user sees the ids of all jobs that wait for nodes, as in the list of nodes.
         */
        get: operations["pools_listing"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/pools/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Register
         * @description Register a pool, or replace what is known of it but for what an admin has set.
         */
        put: operations["pools_register"];
        post?: never;
        /**
         * Remove
         * @description Remove a pool. The status is 409 while its provisioner or one of its nodes is heard from.
         */
        delete: operations["pools_remove"];
        options?: never;
        head?: never;
        /**
         * Change
         * @description Set the most or fewest nodes of a pool, or its patience. What is left out stays as it is.
         *
         *     What is set here is not changed by its provisioner any more.
         */
        patch: operations["pools_change"];
        trace?: never;
    };
    "/api/v1/pools/{name}/sync": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Sync
         * @description Take all that the cluster manager says of the pool's nodes, and return all nodes that are wanted or not gone.
         */
        post: operations["pools_sync"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/queues": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Tree
         * @description Return all queues with what they hold, are entitled to, and wait for.
         *
         *     Everybody sees the numbers of every queue. Of users and jobs, a user sees their own; admins and viewers see all.
         */
        get: operations["queues_tree"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/queues/{path}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Put
         * @description Make a queue or change one. What is left out stays as it is. An empty path is the root.
         *
         *     The queue above must be there. Jobs that named this queue before it was there belong to it from now on.
         */
        put: operations["queues_put"];
        post?: never;
        /**
         * Remove
         * @description Remove a queue: its jobs belong to the queue above. The root only gets its first settings back.
         *
         *     The status is 409 if there are queues below it.
         */
        delete: operations["queues_remove"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/session": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Begin
         * @description Sign in with a name and a password. The answer sets a cookie, which is the session.
         *
         *     An older session of this browser ends.
         */
        post: operations["session_begin"];
        /**
         * End
         * @description Sign out. The token ends on the server, not only in the browser.
         */
        delete: operations["session_end"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Stream
         * @description Send changes as they happen, at most four times a second.
         *
         *     A user gets the changes of their own jobs. An admin gets the changes of all jobs. A batch of changes may consist of
         *     several events. Only the last event of a batch has an id, so a connection that breaks between them loses no event.
         *
         *     ``hello``: the stream begins, and the client should fetch the lists. ``reset``: the client has missed too much, and
         *     should fetch the lists again. ``beat``: the stream is alive. It is sent when a stream is resumed, and when nothing
         *     else was sent for ten seconds. ``bye``: the credential has ended.
         */
        get: operations["stream_stream"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/timeline": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Timeline
         * @description Return which job held which slot, each resize and each failure between two times.
         *
         *     The times are in seconds since the epoch. Without ``until`` the timeline ends now. If the answer would be too large,
         *     it begins later, and its ``since`` holds that later time. Users who are no admins do not get the owner and the name
         *     of another user's job, nor the texts of its resizes and failures.
         */
        get: operations["timeline_timeline"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tokens": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Listing
         * @description List the caller's API tokens, oldest first. Expired ones are listed for another 30 days.
         */
        get: operations["tokens_listing"];
        put?: never;
        /**
         * Make
         * @description Make an API token for the caller. Only this answer holds its secret.
         *
         *     The token allows what its scopes and the role of its user both allow when it is used. A new password of the user,
         *     and the removal of the user, end it.
         */
        post: operations["tokens_make"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tokens/{number}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Revoke
         * @description Revoke an API token: it is refused from now on. An admin may revoke tokens of all users.
         */
        delete: operations["tokens_revoke"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/usage/slot-hours": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Slot Hours
         * @description List for how many hours the jobs of each user held slots on each day, newest day first.
         *
         *     Today is counted up to now. An admin sees all users. Other users see only themselves. Deleted jobs count, too.
         */
        get: operations["usage_slot_hours"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/users": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Listing
         * @description List the users, ordered by name.
         */
        get: operations["users_listing"];
        put?: never;
        /**
         * Add
         * @description Add a user. A new user may get the name of a removed user, but owns nothing of the removed user.
         *
         *     A request with an ``Idempotency-Key`` may be sent again. For a day the same name and role get the same answer. The
         *     password is not compared: only its argon2 hash is stored, and no other hash that would be faster to guess.
         */
        post: operations["users_add"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/users/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Remove
         * @description Remove a user and their tokens, and stop their jobs. The last admin cannot be removed.
         *
         *     Thousands of jobs take some seconds. If the request is interrupted, the platform stops the other jobs by itself.
         */
        delete: operations["users_remove"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/users/{name}/password": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Set Password
         * @description Set a user's password. All tokens of that user end, API tokens too. Only admins may set another user's password.
         *
         *     Users who set their own password, admins too, must also send their current password. So a person who finds an open
         *     page cannot take over the account. A wrong current password counts as a failed attempt to sign in.
         */
        put: operations["users_set_password"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/what-if": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * What If
         * @description Say what would be different with these changes, all of them together: who grows, shrinks, starts earlier or
         *     later. Nothing is changed.
         */
        post: operations["answers_what_if"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/v1/logoff": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Logoff
         * @description End the token of this request. A request with a password ends nothing, and one with an API token is refused.
         */
        post: operations["logon_logoff"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/auth/v1/logon": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Logon
         * @description Return a token for a name and a password.
         *
         *     The token is a JWT. A request with a token is refused: otherwise a client could renew its token for ever.
         */
        get: operations["logon_logon"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/dlim/v1/auth/token": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Inference Token
         * @description Return a token for a name and a password. A caller who sends a token gets the same one back.
         */
        post: operations["legacy_inference_token"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/livez": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Livez
         * @description Answer that the process runs.
         *
         *     Nothing else is checked: a restart of the process would not repair a database, for example.
         */
        get: operations["health_livez"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/conductor/v1/auth/logoff": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Logoff
         * @description End the token of this request. A request with a password, or with the session of a page, ends nothing.
         */
        get: operations["conductor_logoff"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/conductor/v1/auth/logon": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Logon
         * @description Say who the caller is. A caller who sends a name and a password also gets a new token; others keep theirs.
         */
        get: operations["conductor_logon"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/conductor/v1/instances": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Instances
         * @description List the instance groups: the platform is one.
         */
        get: operations["conductor_instances"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/conductor/v1/instances/{sig_id}/applications": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Listing
         * @description List the caller's jobs as applications, with how busy their slots are.
         *
         *     Admins and viewers get those of all users.
         */
        get: operations["conductor_listing"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/conductor/v1/instances/{sig_id}/applications/{exec_id}/{number}/logs/{log}/download": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Executor Log
         * @description Return a log of one engine as text. ``number`` is its ``id`` among the application's ``executors``.
         */
        get: operations["conductor_executor_log"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/conductor/v1/instances/{sig_id}/applications/{exec_id}/logs/{log}/download": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Driver Log
         * @description Return a log of the driver as text.
         */
        get: operations["conductor_driver_log"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/conf": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Conf
         * @description Return the settings that clients read. ``MSD_ENABLED`` is ``true``: jobs have records in the scheduler's list.
         */
        get: operations["configuration_conf"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/execs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Listing
         * @description List the caller's jobs. Admins and viewers get those of all users.
         *
         *     ``state`` takes several states, separated by commas or as repeated parameters. Without a ``limit`` or ``length``
         *     the answer holds all jobs. The server sends them while it reads them, so their number has no limit. A ``start``
         *     beyond the end is answered with 416.
         */
        get: operations["execs_listing"];
        put?: never;
        /**
         * Submit
         * @description Submit a job. After the answer 200 the job, its arguments and its code are stored durably.
         *
         *     A request with an ``Idempotency-Key`` may be sent again. For a day the same args and upload get the same job as
         *     their answer. The server receives only a few submissions of one user at a time, and the others wait. A submission
         *     that waits too long is refused with 429 and ``Retry-After``.
         */
        post: operations["execs_submit"];
        /**
         * Delete All
         * @description Remove all jobs that the caller owns. An admin, too, removes only their own jobs. Running jobs are stopped.
         *
         *     Thousands of jobs take some seconds. An interrupted request has removed some of the jobs, and may be sent again.
         */
        delete: operations["execs_delete_all"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/execs/{exec_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get
         * @description Return one job.
         */
        get: operations["execs_get"];
        put?: never;
        post?: never;
        /**
         * Delete
         * @description Remove a job with its logs and results. A running job is stopped first.
         */
        delete: operations["execs_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/execs/{exec_id}/deploy": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Deploy
         * @description Refuse to deploy a job's model: the platform trains models and does not serve them.
         */
        post: operations["execs_deploy"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/execs/{exec_id}/log": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Log
         * @description Return the log as text. If ``Accept`` names JSON before text, return it as one JSON string.
         *
         *     Without ``logType`` the log is the metric lines, or what the script printed, as the framework of the job says.
         *     ``outlog`` is what the script printed. The log of a gang is that of its rank 0.
         */
        get: operations["execs_log"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/execs/{exec_id}/result": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Result
         * @description Return the files that the job saved under RESULT_DIR/model, as a zip. For a running job: the files so far.
         */
        get: operations["execs_result"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/execs/{exec_id}/stop": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Stop
         * @description Ask a job to stop. A job that is over does not change.
         */
        post: operations["execs_stop"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/execs/frameworks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Frameworks
         * @description List the frameworks that ``--exec-start`` accepts.
         */
        get: operations["execs_frameworks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/frameworks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Frameworks
         * @description List the frameworks in the form of WMLA 1.2, with ``backend`` only those of that backend.
         */
        get: operations["configuration_frameworks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/frameworks/all": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Framework Names
         * @description List the names of all frameworks.
         */
        get: operations["configuration_framework_names"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/resplans/resplan/{plan}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Plan
         * @description Return a resource plan. It is named by its path, or by the last part of it if no other plan has the same.
         */
        get: operations["configuration_plan"];
        put?: never;
        post?: never;
        /**
         * Delete Plan
         * @description Remove a queue. Its jobs belong to the queue above. The plan above all stays: all jobs belong to it.
         */
        delete: operations["configuration_delete_plan"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/resplans/resplantree": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Tree
         * @description Return the tree of resource plans.
         */
        get: operations["configuration_tree"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/scheduler/applications": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Applications
         * @description List the caller's jobs as applications. Admins and viewers get those of all users.
         *
         *     The id of a driver is the id of its application. ``search`` looks in the id, the name, the main script, the folder
         *     that was sent, and the owner. The server sends the list while it reads it.
         */
        get: operations["applications_applications"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/scheduler/applications/{exec_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Application
         * @description Return one application.
         */
        get: operations["applications_application"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/scheduler/applications/{exec_id}/driver/logs/{log}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Driver Log
         * @description Return a log of the driver: what the script printed, or for ``launcherlog`` the job's history, as text.
         *
         *     The driver of a gang is its rank 0.
         */
        get: operations["applications_driver_log"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/scheduler/applications/{exec_id}/executor/{number}/logs/{log}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Executor Log
         * @description Return a log of one engine as text. The status is 404 if the job has had no engine of this number.
         */
        get: operations["applications_executor_log"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/scheduler/applications/{exec_id}/stop": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Stop
         * @description Ask a job to stop. A job that is over does not change.
         */
        put: operations["applications_stop"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/scheduler/engine/applications": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Records
         * @description List the caller's jobs as the scheduler's own records. Admins and viewers get those of all users.
         */
        get: operations["applications_records"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/scheduler/engine/applications/{exec_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Record
         * @description Return the record of one job, in a list of one.
         */
        get: operations["applications_record"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/scheduler/instances": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Instances
         * @description List the instance groups: the platform is one.
         */
        get: operations["applications_instances"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/scheduler/kubernetesobjects": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Kubernetes Objects
         * @description Return jobs (``type=paralleljob``) or their processes (``type=pod``) in the form of Kubernetes objects.
         *
         *     With a ``name`` the answer for ``paralleljob`` is that job. Otherwise it is ``{"items": […]}`` with the jobs that
         *     are not over. It has no items for every other type.
         */
        get: operations["applications_kubernetes_objects"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/platform/rest/deeplearning/v1/status": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Status
         * @description Return the state of the platform: its nodes by health, and how many of its slots are held.
         */
        get: operations["configuration_status"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Readyz
         * @description Return whether the server can serve requests; the status is 503 if it cannot.
         *
         *     A request from the server's own machine also gets the reason.
         */
        get: operations["health_readyz"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * Acked
         * @description The last accepted report number of each attempt, such as ``{"edt-7/2": 41}``.
         */
        Acked: {
            /** Acked */
            acked: {
                [key: string]: number;
            };
        };
        /**
         * Allocation
         * @description One job held one slot from one time to another.
         */
        Allocation: {
            /** Allocation */
            allocation: number;
            /** Counted At */
            counted_at: number | null;
            /** Decided At */
            decided_at: number;
            /** Exec Id */
            exec_id: string;
            /** Fence */
            fence: number;
            /** Joined At */
            joined_at: number | null;
            /** Kind */
            kind: string | null;
            /** Node */
            node: string;
            /** Release Asked At */
            release_asked_at: number | null;
            /** Released At */
            released_at: number | null;
            /** Slot */
            slot: string;
            /** Started At */
            started_at: number | null;
        };
        /**
         * AllocationPage
         * @description The slots that a job held, oldest first.
         */
        AllocationPage: {
            /** Items */
            items: components["schemas"]["Allocation"][];
            /** Next */
            next: string | null;
        };
        /**
         * ApiToken
         * @description An API token without its secret.
         */
        ApiToken: {
            /** Created At */
            created_at: number;
            /** Expires At */
            expires_at: number | null;
            /** Id */
            id: number;
            /** Last Used At */
            last_used_at: number | null;
            /** Name */
            name: string;
            /** Scopes */
            scopes: components["schemas"]["ScopeName"][];
            /** User */
            user: string;
        };
        /**
         * ApiTokenPage
         * @description API tokens of one user, oldest first.
         */
        ApiTokenPage: {
            /** Items */
            items: components["schemas"]["ApiToken"][];
            /** Next */
            next: string | null;
        };
        /**
         * Application
         * @description One job as an application: what clients of WMLA 1.2 and of 2.x read, in one shape.
         */
        Application: {
            /** Applicationid */
            applicationid: string;
            /** Applicationname */
            applicationname: string;
            /** Apprunduration */
            apprunduration: number;
            /** Coresused */
            coresused: number;
            /** Dataset */
            dataset: string;
            /** Demandslots */
            demandslots: number;
            /** Dltype */
            dltype: string;
            driver: components["schemas"]["Driver"];
            /** Driverexecutionuser */
            driverexecutionuser: string;
            /** Endtime */
            endtime: number;
            /** Executorexecutionuser */
            executorexecutionuser: string;
            /** Executors */
            executors: components["schemas"]["Executor"][];
            gpudevutil: components["schemas"]["Total"];
            gpumemused: components["schemas"]["Total"];
            /** Gpuslots */
            gpuslots: number;
            /** Historyserverurl */
            historyServerUrl: string;
            /** Hosts */
            hosts: number;
            /** Issharedapp */
            issharedapp: string;
            /** Masterseqno */
            masterSeqNo: number;
            /** Masterservice */
            masterService: string;
            /** Masterurl */
            masterUrl: string;
            /** Memused */
            memused: number;
            /** Model */
            model: string;
            /** Schedulename */
            scheduleName: string;
            /** Signame */
            sigName: string;
            /** Slots */
            slots: number;
            /** Sparkinstancegroupid */
            sparkinstancegroupid: string;
            /** State */
            state: string;
            /** Submittedtime */
            submittedtime: number;
            task0: components["schemas"]["Task"] | null;
            /** Task12N */
            task12n: components["schemas"]["Task"][];
            /** Timestamp */
            timestamp: number;
            /** Tunningname */
            tunningname: string;
            /** Type */
            type: string;
            /** Uiport */
            uiport: string;
            /** Username */
            username: string;
        };
        /**
         * AskedNode
         * @description A node that a pool's cluster manager was asked for and that is not gone.
         */
        AskedNode: {
            /** Asked At */
            asked_at: number;
            /** First */
            first: boolean;
            /** Give Up At */
            give_up_at: number | null;
            /** Give Up Why */
            give_up_why: string | null;
            /** Granted At */
            granted_at: number | null;
            /** Group Size */
            group_size: number;
            /** Job */
            job: string | null;
            /** Node */
            node: string;
            /** Reason */
            reason: string;
            /** State */
            state: string;
            /** Waits Seconds */
            waits_seconds: number;
        };
        /**
         * Assignments
         * @description What a node should be running: one object for each attempt, with its job, its fence and its slots.
         */
        Assignments: {
            /** Assignments */
            assignments: {
                [key: string]: unknown;
            }[];
            /** Images */
            images: string[];
            /** Version */
            version: number;
        };
        /**
         * Beat
         * @description ``event: hello``, ``reset``, ``beat`` or ``bye``.
         *
         *     ``hello``: the stream begins, and the client should fetch the lists. ``reset``: the client has missed too much, and
         *     should fetch the lists again. ``beat``: the stream is alive. It is sent when a stream is resumed, and when nothing
         *     else was sent for ten seconds. ``bye``: the credential has ended.
         */
        Beat: {
            /** Now */
            now: number;
        };
        /**
         * BestModel
         * @description The model that a job keeps because it is the best so far.
         */
        BestModel: {
            /**
             * Epoch
             * @default null
             */
            epoch: number | null;
            /**
             * File
             * @default null
             */
            file: string | null;
            /** Metric */
            metric: string;
            /**
             * Mode
             * @default null
             */
            mode: ("min" | "max") | null;
            /**
             * Step
             * @default null
             */
            step: number | null;
            /** Value */
            value: number;
        };
        /**
         * BestValue
         * @description The best value of a metric, over all validations of a job.
         */
        BestValue: {
            /**
             * Epoch
             * @default null
             */
            epoch: number | null;
            /** Step */
            step: number;
            /** Value */
            value: number;
        };
        /**
         * Catalogue
         * @description The whole catalogue: the built-in entries, then the added ones by name.
         */
        Catalogue: {
            /** Frameworks */
            frameworks: components["schemas"]["CatalogueEntry"][];
        };
        /**
         * CatalogueEntry
         * @description One entry of the catalogue. docs/frameworks.md describes its keys.
         */
        CatalogueEntry: {
            /** Added At */
            added_at: number | null;
            /** Added By */
            added_by: string | null;
            /** App Name */
            app_name: string;
            /** Backend */
            backend: string;
            /** Command */
            command: string[];
            default_log: components["schemas"]["DefaultLogOf"];
            /** Description */
            description: string;
            /** Elastic */
            elastic: boolean;
            /** Environ */
            environ: {
                [key: string]: string;
            };
            /** Image */
            image: string;
            /** Max Workers */
            max_workers: number;
            /** Model Folder */
            model_folder: boolean;
            /** Name */
            name: string;
            processes: components["schemas"]["ProcessesOf"];
            /** Python Home */
            python_home: string;
            /** Rendezvous */
            rendezvous: components["schemas"]["RendezvousBy"][];
            /** Worker Memory */
            worker_memory: string;
        };
        /**
         * Changed
         * @description A job after a change that its user asked for.
         */
        Changed: {
            job: components["schemas"]["Job"];
            /** Message */
            message: string;
        };
        /**
         * Decision
         * @description One decision that changed something. The slots of all its actions were decided together.
         */
        Decision: {
            /** Actions */
            actions: components["schemas"]["DecisionAction"][];
            /** At */
            at: number;
            /** Bytes */
            bytes: number;
            /** Id */
            id: number;
        };
        /**
         * DecisionAction
         * @description What one decision did to one job.
         */
        DecisionAction: {
            /** After */
            after: number;
            /** Before */
            before: number;
            /** Cause */
            cause: string;
            /** Job */
            job: string;
            /** Verb */
            verb: string;
        };
        /**
         * DecisionPage
         * @description Decisions, newest first.
         */
        DecisionPage: {
            /** Items */
            items: components["schemas"]["Decision"][];
            /** Next */
            next: string | null;
        };
        /**
         * DefaultLogOf
         * @description The log that a client gets who does not say which.
         * @enum {string}
         */
        DefaultLogOf: "steps" | "output";
        /**
         * Driver
         * @description The driver of an application.
         */
        Driver: {
            /** Containerid */
            containerid: string;
            /** Coresused */
            coresused: number;
            /** Driverstderr */
            driverstderr: string;
            /** Driverstdout */
            driverstdout: string;
            /** Host */
            host: string;
            /** Id */
            id: string;
            /** Memused */
            memused: number;
            /** State */
            state: string;
            /** Timestamp */
            timestamp: number;
        };
        /**
         * DryRun
         * @description What would become of a submission now. A submission that would be refused is refused here, too.
         */
        DryRun: {
            explained: components["schemas"]["Explained"];
            /** Hidden */
            hidden: {
                [key: string]: number;
            };
            /**
             * Kind
             * @enum {string}
             */
            kind: "elastic" | "gang";
            /** Max */
            max: number;
            /** Min */
            min: number;
            /** Nodes */
            nodes: {
                [key: string]: number;
            };
            /** Others */
            others: components["schemas"]["JobEffect"][];
            /** Remark */
            remark: string | null;
            /** Slots */
            slots: number;
            /** Starts */
            starts: boolean;
        };
        /**
         * DryRunRequest
         * @description A submission without its code.
         */
        DryRunRequest: {
            /** Args */
            args: string;
        };
        /**
         * Effect
         * @description What a change does to one job.
         * @enum {string}
         */
        Effect: "starts" | "waits" | "grows" | "shrinks" | "earlier" | "later";
        /**
         * EngineTimes
         * @description Means of one engine.
         */
        EngineTimes: {
            /** Allocation */
            allocation: number;
            /** Efficiency */
            efficiency: number;
            /** Micro Batches */
            micro_batches: number;
            /** Node */
            node: string | null;
            /** Rank */
            rank: number;
            seconds: components["schemas"]["PhaseSeconds"];
            /** Slot */
            slot: string | null;
            /** Slower */
            slower: number | null;
        };
        /**
         * Entitlement
         * @description What the job's user may have in its queue, and has.
         */
        Entitlement: {
            /** Entitled */
            entitled: number;
            /** Held */
            held: number;
            /** Jobs */
            jobs: number;
            /** Queue */
            queue: string;
            /** Queues */
            queues: components["schemas"]["QueueUse"][];
            /** User */
            user: string;
        };
        /**
         * Epochs
         * @description The epochs that a job's training shall have in all.
         */
        Epochs: {
            /**
             * Environ
             * @default {}
             */
            environ: {
                [key: string]: string;
            };
            /** Epochs */
            epochs: number;
        };
        /**
         * Event
         * @description One event of a job's history. ``seq`` numbers the events 1, 2, 3 … without a gap.
         */
        Event: {
            /** Data */
            data: {
                [key: string]: unknown;
            };
            /** Fence */
            fence: number;
            /** Kind */
            kind: string;
            /** Message */
            message: string;
            /** Seq */
            seq: number;
            /** Time */
            time: number;
        };
        /**
         * EventPage
         * @description A job's history, oldest first.
         */
        EventPage: {
            /** Items */
            items: components["schemas"]["Event"][];
            /** Next */
            next: string | null;
        };
        /**
         * Exactness
         * @description Whether a result has the bits of an undisturbed training on one engine, as far as that was checked.
         */
        Exactness: {
            /** Compared Step */
            compared_step: number | null;
            /** Comparisons */
            comparisons: number;
            /** Reason */
            reason: string;
            /**
             * Verdict
             * @enum {string}
             */
            verdict: "exact" | "not-compared" | "not-exact" | "not-applicable";
        };
        /**
         * Exec
         * @description One job as WMLA's clients read it.
         *
         *     It has the fields that three generations of these clients read. All of them are scalars.
         */
        Exec: {
            /** Appid */
            appId: string;
            /** Appname */
            appName: string;
            /** Args */
            args: string;
            /** Createtime */
            createTime: string;
            /** Creator */
            creator: string;
            /** Elastic */
            elastic: boolean;
            /** Executionusername */
            executionUserName: string;
            /** Framework */
            framework: string;
            /** Id */
            id: string;
            /** Masterurl */
            masterURL: string;
            /** Modelfileownername */
            modelFileOwnerName: string;
            /** Namespace */
            nameSpace: string;
            /** Numworker */
            numWorker: number;
            /** Schedulerurl */
            schedulerUrl: string;
            /** Sigid */
            sigId: string;
            /** Signame */
            sigName: string;
            state: components["schemas"]["ExecState"];
            /** Submissionid */
            submissionId: string;
            /** Username */
            userName: string;
            /** Workdir */
            workDir: string;
        };
        /**
         * ExecState
         * @description The six states that clients see. A notebook that polls a job continues in the first three.
         * @enum {string}
         */
        ExecState: "SUBMITTED" | "PENDING_CRD_SCHEDULER" | "RUNNING" | "FINISHED" | "KILLED" | "ERROR";
        /**
         * Executor
         * @description An engine of an application. Its ``id`` is its number in the order in which the engines started: 1, 2, …
         */
        Executor: {
            /** Containerid */
            containerid: string;
            /** Coresused */
            coresused: number;
            /** Executorstderr */
            executorstderr: string;
            /** Executorstdout */
            executorstdout: string;
            /** Host */
            host: string;
            /** Id */
            id: string;
            /** Memused */
            memused: number;
            state: components["schemas"]["ProcessState"];
            /** Timestamp */
            timestamp: number;
        };
        /**
         * Expected
         * @description When the job is expected to start, and to end.
         */
        Expected: {
            /** Coarse */
            coarse: boolean;
            /** End */
            end: number | null;
            error: components["schemas"]["PastError"] | null;
            /** First */
            first: number | null;
            /** Guessed */
            guessed: number;
            /** Sentence */
            sentence: string;
            /** Start */
            start: number | null;
            /** Until */
            until: number;
        };
        /**
         * Explained
         * @description Why one job waits, or has as many slots as it has, by the plan that the scheduler would make now.
         */
        Explained: {
            /** At */
            at: number;
            /** Changes */
            changes: components["schemas"]["Suggestion"][];
            entitlement: components["schemas"]["Entitlement"] | null;
            expected: components["schemas"]["Expected"] | null;
            holds: components["schemas"]["Holds"] | null;
            /** Job */
            job: string;
            nodes: components["schemas"]["Nodes"] | null;
            /**
             * Phase
             * @enum {string}
             */
            phase: "waiting" | "running" | "ending" | "over";
            /** Sentence */
            sentence: string;
            /** Untried */
            untried: number;
            waits: components["schemas"]["Waits"] | null;
        };
        /**
         * ForeignProcess
         * @description A process that computes on a GPU and belongs to no job of its node.
         */
        ForeignProcess: {
            /** Name */
            name: string;
            /** Pid */
            pid: number;
        };
        /**
         * ForeignProcessIn
         * @description A process that computes on a GPU and belongs to no job of its node.
         */
        ForeignProcessIn: {
            /**
             * Name
             * @default
             */
            name: string;
            /** Pid */
            pid: number;
        };
        /**
         * Framework
         * @description One entry of ``GET /execs/frameworks``, in the form of WMLA 2.x.
         */
        Framework: {
            /** Addedby */
            addedBy: string | null;
            /** Appname */
            appName: string;
            /** Backend */
            backend: string;
            /** Command */
            command: string[];
            /** Deploymode */
            deployMode: string;
            /** Desc */
            desc: string[];
            /** Description */
            description: string;
            /** Distributestrategy */
            distributeStrategy: string;
            /** Elastic */
            elastic: boolean;
            /** Execmode */
            execMode: string;
            /** Exports */
            exports: {
                [key: string]: string;
            };
            /** Frameworkcmdgenerator */
            frameworkCmdGenerator: string;
            /** Frameworkversion */
            frameworkVersion: string;
            /** Hastask0 */
            hasTask0: string;
            /** Maxworkers */
            maxWorkers: number;
            /** Name */
            name: string;
            /** Numps */
            numPs: number;
            /** Numworkers */
            numWorkers: number;
            /** Prebuiltmodeldir */
            prebuiltModelDir: string;
            /** Prebuiltmodelmain */
            prebuiltModelMain: string;
            /** Processes */
            processes: string;
            /** Workermemory */
            workerMemory: string;
        };
        /**
         * FrameworkDetail
         * @description A framework, in the form of WMLA 1.2.
         */
        FrameworkDetail: {
            /** Accelerator */
            accelerator: string;
            /** Backend */
            backend: string;
            /** Commipnetwork */
            commIPNetwork: string;
            /** Home */
            home: string;
            /** Name */
            name: string;
            /** Psnum */
            psNum: string;
        };
        /**
         * Hidden
         * @description What is not named, because the caller may not see it.
         */
        Hidden: {
            /** Jobs */
            jobs: number;
            /** Slots */
            slots: number;
        };
        /**
         * Holder
         * @description A job that stands in another one's way, or takes part of what it could have.
         */
        Holder: {
            /** Job */
            job: string;
            /** Nodes */
            nodes: string[];
            /** Priority */
            priority: number;
            /** Queue */
            queue: string;
            /** Sentence */
            sentence: string;
            /** Slots */
            slots: number;
            /** User */
            user: string;
        };
        /**
         * Holds
         * @description Why a job holds as many slots as it does.
         */
        Holds: {
            /** Gain */
            gain: number;
            hidden: components["schemas"]["Hidden"];
            /** Max */
            max: number;
            /** Min */
            min: number;
            next: components["schemas"]["NextSize"];
            /** Price */
            price: number;
            /** Share */
            share: number;
            /** Slots */
            slots: number;
            /** Takers */
            takers: components["schemas"]["Holder"][];
            /** Worth */
            worth: string;
        };
        /**
         * Image
         * @description An image that every job may name.
         */
        Image: {
            /** Allowed At */
            allowed_at: number;
            /** Allowed By */
            allowed_by: string;
            /** Everywhere */
            everywhere: boolean;
            /** Name */
            name: string;
            /** Nodes */
            nodes: components["schemas"]["ImageOnNode"][];
        };
        /**
         * ImageOnNode
         * @description Whether one node has fetched an image. Times are in seconds since the epoch.
         */
        ImageOnNode: {
            /** Asked At */
            asked_at: number;
            /** Done At */
            done_at: number | null;
            /** Error */
            error: string | null;
            /** Node */
            node: string;
        };
        /**
         * ImagePage
         * @description Images, oldest first.
         */
        ImagePage: {
            /** Items */
            items: components["schemas"]["Image"][];
            /** Next */
            next: string | null;
            /** Patterns */
            patterns: string[];
        };
        /**
         * InferenceToken
         * @description Answer of ``POST /dlim/v1/auth/token``. All three hold the same token, which every call here takes.
         */
        InferenceToken: {
            /** Access Token */
            access_token: string;
            /** Service Token */
            service_token: string;
            /** User Token */
            user_token: string;
        };
        /**
         * Instance
         * @description The one instance group: the whole platform.
         */
        Instance: {
            /** Executionuser */
            executionUser: string;
            /** Historyserverurl */
            historyServerUrl: string;
            /** Masterurl */
            masterUrl: string;
            /** Name */
            name: string;
            /** State */
            state: string;
            /** Uuid */
            uuid: string;
            /** Version */
            version: string;
        };
        /**
         * Job
         * @description One job with everything that the platform knows about it.
         */
        Job: {
            /**
             * After
             * @default []
             */
            after: string[];
            /** App Name */
            app_name: string;
            /** Args */
            args: string;
            /** Attempts */
            attempts: number;
            /**
             * Best
             * @default {}
             */
            best: {
                [key: string]: components["schemas"]["BestValue"];
            };
            /** @default null */
            best_model: components["schemas"]["BestModel"] | null;
            /** Checkpoint Step */
            checkpoint_step: number | null;
            /** Created At */
            created_at: number;
            /**
             * Deadline
             * @default null
             */
            deadline: number | null;
            /** Digest */
            digest: string | null;
            /**
             * Efficiency
             * @default null
             */
            efficiency: number | null;
            /**
             * Ended Early
             * @default null
             */
            ended_early: string | null;
            /** Engines */
            engines: number | null;
            /** Epochs */
            epochs: number | null;
            /**
             * Eta Seconds
             * @default null
             */
            eta_seconds: number | null;
            exactness: components["schemas"]["Exactness"];
            /** Finished At */
            finished_at: number | null;
            /** Framework */
            framework: string;
            /**
             * Gpu Models
             * @default []
             */
            gpu_models: string[];
            /** Id */
            id: string;
            /**
             * Image
             * @default null
             */
            image: string | null;
            /**
             * Kept
             * @default null
             */
            kept: string | null;
            /** @default elastic */
            kind: components["schemas"]["JobKind"];
            /** @default null */
            main_metric: components["schemas"]["MainMetric"] | null;
            /**
             * Max Restarts
             * @default 0
             */
            max_restarts: number;
            /** Max Workers */
            max_workers: number;
            /**
             * Mean Samples Per Second
             * @default null
             */
            mean_samples_per_second: number | null;
            /** Message */
            message: string | null;
            /**
             * Min Workers
             * @default 1
             */
            min_workers: number;
            /** Num Worker */
            num_worker: number;
            /**
             * Options
             * @default []
             */
            options: components["schemas"]["JobOption"][];
            /** Owner */
            owner: string;
            /**
             * Owner Removed
             * @default false
             */
            owner_removed: boolean;
            /**
             * Paused At
             * @default null
             */
            paused_at: number | null;
            /**
             * Paused By
             * @default null
             */
            paused_by: string | null;
            /**
             * Priority
             * @default 1
             */
            priority: number;
            /**
             * Processes
             * @default null
             */
            processes: number | null;
            progress: components["schemas"]["Progress"];
            /**
             * Queue
             * @default
             */
            queue: string;
            /**
             * Remark
             * @default null
             */
            remark: string | null;
            /**
             * Restarts
             * @default 0
             */
            restarts: number;
            /**
             * Results Days
             * @default null
             */
            results_days: number | null;
            /**
             * Results Removed
             * @default null
             */
            results_removed: string | null;
            /**
             * Results Removed At
             * @default null
             */
            results_removed_at: number | null;
            /**
             * Resumed From
             * @default null
             */
            resumed_from: string | null;
            /**
             * Resumed Step
             * @default null
             */
            resumed_step: number | null;
            /** Seed */
            seed: number;
            /**
             * Share Done
             * @default null
             */
            share_done: number | null;
            /**
             * Sizes
             * @default []
             */
            sizes: number[];
            /** Slots */
            slots: number;
            /** Started At */
            started_at: number | null;
            state: components["schemas"]["ExecState"];
            /**
             * Status
             * @enum {string}
             */
            status: "submitted" | "waiting" | "starting" | "running" | "pausing" | "paused" | "stopping" | "finished" | "stopped" | "failed";
            /** Steps Total */
            steps_total: number | null;
            /** Stop Requested At */
            stop_requested_at: number | null;
            /** Threads */
            threads: number;
            /**
             * Time Limit
             * @default null
             */
            time_limit: number | null;
            /** @default null */
            validation: components["schemas"]["Validation"] | null;
            waiting: components["schemas"]["Waiting"] | null;
            /**
             * Wanted Epochs
             * @default null
             */
            wanted_epochs: number | null;
            /** Work Dir */
            work_dir: string;
            /** Worker Device Num */
            worker_device_num: number;
            /** Workers */
            workers: number;
        };
        /**
         * JobChange
         * @description What a job that is not over shall be from now on. What is left out stays as it is.
         */
        JobChange: {
            /** Max Workers */
            max_workers?: number | null;
            /** Min Workers */
            min_workers?: number | null;
            /** Priority */
            priority?: number | null;
        };
        /**
         * JobEffect
         * @description One job to which a change does something.
         */
        JobEffect: {
            after: components["schemas"]["Outlook"];
            before: components["schemas"]["Outlook"];
            effect: components["schemas"]["Effect"];
            /** Job */
            job: string;
            /** Sentence */
            sentence: string;
            /** User */
            user: string;
        };
        /**
         * JobKind
         * @description Whether the number of a job's processes may change.
         * @enum {string}
         */
        JobKind: "elastic" | "gang";
        /**
         * JobOption
         * @description One of the platform's options that a job was submitted with.
         */
        JobOption: {
            /** Effect */
            effect: boolean;
            /** Name */
            name: string;
            /** Values */
            values: string[];
        };
        /**
         * JobPage
         * @description Jobs, newest first.
         */
        JobPage: {
            /** Items */
            items: components["schemas"]["Job"][];
            /** Next */
            next: string | null;
            /** Total */
            total: number;
        };
        /**
         * JobRecord
         * @description One job as the scheduler's own list of WMLA 2.x shows it.
         */
        JobRecord: {
            /** Consumer */
            consumer: string;
            /** End Time */
            end_time: number;
            /** Id */
            id: string;
            /** Is Packing */
            is_packing: boolean;
            /** Kernels */
            kernels: components["schemas"]["Kernel"][];
            /** Name */
            name: string;
            /** Pack Id */
            pack_id: string;
            /** Priority */
            priority: number;
            /** Start Time */
            start_time: number;
            /** State */
            state: string;
            /** Submit Time */
            submit_time: number;
            /** Submit User */
            submit_user: string;
            /** Tag */
            tag: string;
            /** Task0 Resreq */
            task0_resreq: string;
            /** Task12N */
            task12n: components["schemas"]["Task"][];
            /** Task12N Num */
            task12n_num: number;
            /** Task12N Resreq */
            task12n_resreq: string;
            /** Type */
            type: string;
            /** Used Cpu */
            used_cpu: number;
            /** Used Gpu */
            used_gpu: number;
            /** Used Mem */
            used_mem: number;
        };
        /**
         * JobResumed
         * @description A paused job goes on.
         */
        JobResumed: {
            /** Job */
            job: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            kind: "job-resumed";
        };
        /**
         * JobsChanged
         * @description ``event: jobs``: jobs that are new or have changed, and ids of jobs that were removed.
         */
        JobsChanged: {
            /** Items */
            items: components["schemas"]["Job"][];
            /** Removed */
            removed: string[];
        };
        /**
         * JobStopped
         * @description A job is over.
         */
        JobStopped: {
            /** Job */
            job: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            kind: "job-stopped";
        };
        /**
         * JobWith
         * @description A job asks for something else. What is None stays.
         */
        JobWith: {
            /** Device */
            device?: ("gpu" | "cpu" | "any") | null;
            /** Image */
            image?: boolean | null;
            /** Job */
            job: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            kind: "job";
            /** Max */
            max?: number | null;
            /** Min */
            min?: number | null;
            /** Models */
            models?: string[] | null;
            /** Priority */
            priority?: number | null;
        };
        /**
         * Kernel
         * @description A process that serves a model for inference.
         */
        Kernel: {
            /** Ip */
            ip: string;
        };
        /**
         * Leaving
         * @description Answer to a node that wants to leave.
         */
        Leaving: {
            /** Leave */
            leave: boolean;
        };
        /**
         * LeavingIn
         * @description A node of a pool that wants to leave, or has left.
         */
        LeavingIn: {
            /**
             * Gone
             * @default false
             */
            gone: boolean;
            /**
             * If Idle
             * @default false
             */
            if_idle: boolean;
            /** Why */
            why: string;
        };
        /**
         * LogFile
         * @description One file of a job's log.
         */
        LogFile: {
            /** Bytes */
            bytes: number;
            /** Stream */
            stream: string;
        };
        /**
         * LogFilePage
         * @description The files of a job's log: first the log of the training, the loggers' lines and the driver's output, then those
         *     of engines or ranks.
         */
        LogFilePage: {
            /** Items */
            items: components["schemas"]["LogFile"][];
            /** Next */
            next: string | null;
        };
        /**
         * LogName
         * @description The logs of a process.
         * @enum {string}
         */
        LogName: "stdout" | "stderr" | "launcherlog";
        /**
         * Logon
         * @description Answer of ``GET /auth/v1/logon``.
         */
        Logon: {
            /** Accesstoken */
            accessToken: string;
            /** Expiresin */
            expiresIn: number;
            /** Role */
            role: string;
            /** Username */
            username: string;
        };
        /**
         * MadeApiToken
         * @description A new API token, with its secret.
         */
        MadeApiToken: {
            /** Created At */
            created_at: number;
            /** Expires At */
            expires_at: number | null;
            /** Id */
            id: number;
            /** Last Used At */
            last_used_at: number | null;
            /** Name */
            name: string;
            /** Scopes */
            scopes: components["schemas"]["ScopeName"][];
            /** Token */
            token: string;
            /** User */
            user: string;
        };
        /**
         * MainMetric
         * @description The metric that a list of jobs shows.
         */
        MainMetric: {
            /** Name */
            name: string;
            /** Value */
            value: number | null;
        };
        /**
         * Me
         * @description The user who sent the request, and the version of the server.
         */
        Me: {
            /** Name */
            name: string;
            role: components["schemas"]["RoleName"];
            /** Version */
            version: string;
        };
        /**
         * MeanTimes
         * @description Means over several engines.
         */
        MeanTimes: {
            /** Efficiency */
            efficiency: number;
            /** Micro Batches */
            micro_batches: number;
            seconds: components["schemas"]["PhaseSeconds"];
        };
        /**
         * Message
         * @description An answer that is one sentence.
         */
        Message: {
            /** Message */
            message: string;
        };
        /**
         * Metrics
         * @description The metrics of a training: columns of equal length, oldest value first. ``step`` only grows.
         *
         *     If there are too many points, the answer holds those that keep the shape of the loss, with the first and the last
         *     point. An attempt repeats the steps that the previous attempt did after its last checkpoint. Such a step occurs
         *     once, with its newest values. None: the value was not reported.
         */
        Metrics: {
            /** Epoch */
            epoch: (number | null)[];
            /** Loss */
            loss: (number | null)[];
            /** Metrics */
            metrics: {
                [key: string]: (number | null)[];
            };
            /** Samples Per Second */
            samples_per_second: (number | null)[];
            /** Step */
            step: number[];
            /** Time */
            time: number[];
            /** Total */
            total: number;
            validation: components["schemas"]["ValidationMetrics"];
            /** Workers */
            workers: (number | null)[];
        };
        /**
         * MoreSlots
         * @description A further node.
         */
        MoreSlots: {
            /** Containers */
            containers?: boolean | null;
            /** Device */
            device?: ("gpu" | "cpu") | null;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            kind: "more-slots";
            /**
             * Model
             * @default
             */
            model: string;
            /** Slots */
            slots: number;
        };
        /**
         * NewApiToken
         * @description An API token to be made for the caller.
         */
        NewApiToken: {
            /**
             * Days
             * @default 30
             */
            days: number | null;
            /** Name */
            name: string;
            /** Scopes */
            scopes?: components["schemas"]["ScopeName"][];
        };
        /**
         * NewImage
         * @description An image that every job may name from now on.
         */
        NewImage: {
            /**
             * Everywhere
             * @default false
             */
            everywhere: boolean;
            /** Name */
            name: string;
        };
        /**
         * NewJob
         * @description One more job, of the caller, in its order behind all others.
         */
        NewJob: {
            /** Device */
            device?: ("gpu" | "cpu") | null;
            /**
             * Gang
             * @default false
             */
            gang: boolean;
            /**
             * Image
             * @default false
             */
            image: boolean;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            kind: "new-job";
            /** Max */
            max: number;
            /**
             * Min
             * @default 1
             */
            min: number;
            /** Models */
            models?: string[];
            /**
             * Priority
             * @default 1
             */
            priority: number;
            /**
             * Queue
             * @default
             */
            queue: string;
        };
        /**
         * NewPassword
         * @description A password to be set. The new password ends all tokens of its user, API tokens too.
         */
        NewPassword: {
            /** Current Password */
            current_password?: string | null;
            /** Password */
            password: string;
        };
        /**
         * NewSession
         * @description The name and the password of a user who signs in.
         *
         *     The password has no least length: one that is too short to be set is answered as a wrong password.
         */
        NewSession: {
            /** Name */
            name: string;
            /** Password */
            password: string;
        };
        /**
         * NewUser
         * @description A user to be added.
         */
        NewUser: {
            /** Name */
            name: string;
            /** Password */
            password: string;
            /** @default user */
            role: components["schemas"]["RoleName"];
        };
        /**
         * NextSize
         * @description What keeps a running job from more slots.
         */
        NextSize: {
            rule: components["schemas"]["WhyNotMore"];
            /** Sentence */
            sentence: string;
            /** Slots */
            slots: number | null;
        };
        /**
         * Node
         * @description One node.
         */
        Node: {
            /** Cores */
            cores: number;
            /** Health */
            health: string;
            /**
             * Health Since
             * @default null
             */
            health_since: number | null;
            /** Host */
            host: string;
            /**
             * Launcher
             * @default process
             */
            launcher: string;
            /**
             * Lease Age Seconds
             * @default 0
             */
            lease_age_seconds: number;
            /**
             * Leaving Why
             * @default null
             */
            leaving_why: string | null;
            /** Name */
            name: string;
            /**
             * Only For
             * @default null
             */
            only_for: string | null;
            /**
             * Pool
             * @default null
             */
            pool: string | null;
            /** Registered At */
            registered_at: number;
            /** Seen At */
            seen_at: number;
            /** Slots */
            slots: components["schemas"]["Slot"][];
        };
        /**
         * NodeLess
         * @description A node is taken away. Jobs on it move elsewhere or wait.
         */
        NodeLess: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            kind: "node-less";
            /** Node */
            node: string;
        };
        /**
         * NodeOffer
         * @description A node that registers. Its credential is the join token.
         */
        NodeOffer: {
            /**
             * Alone
             * @default false
             */
            alone: boolean;
            /** Boot Id */
            boot_id: string;
            /** Cores */
            cores: number;
            /** Host */
            host: string;
            /** Incarnation */
            incarnation: string;
            /**
             * Launcher
             * @default process
             */
            launcher: string;
            /** Name */
            name: string;
            /** Slots */
            slots: components["schemas"]["SlotOffer"][];
        };
        /**
         * NodeOpened
         * @description A cordoned or draining node takes work again.
         */
        NodeOpened: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            kind: "node-opened";
            /** Node */
            node: string;
        };
        /**
         * NodePage
         * @description Nodes, in the order in which they first registered.
         */
        NodePage: {
            /** Items */
            items: components["schemas"]["Node"][];
            /** Next */
            next: string | null;
        };
        /**
         * Nodes
         * @description The verdict on each node, those that are nearest to taking the job first.
         */
        Nodes: {
            /** Counts */
            counts: {
                [key: string]: number;
            };
            /** Items */
            items: components["schemas"]["NodeVerdict"][];
        };
        /**
         * NodesChanged
         * @description ``event: nodes``: nodes that are new or have changed, and names of nodes that were removed.
         */
        NodesChanged: {
            /** Items */
            items: components["schemas"]["Node"][];
            /** Removed */
            removed: string[];
        };
        /**
         * NodeStateIn
         * @description What a cluster manager says of one node.
         */
        NodeStateIn: {
            /** Node */
            node: string;
            /**
             * Oom
             * @default false
             */
            oom: boolean;
            /**
             * Reason
             * @default
             */
            reason: string;
            /** State */
            state: string;
        };
        /**
         * NodeUsage
         * @description How busy a node's slots were.
         */
        NodeUsage: {
            /** Now */
            now: number;
            /** Since */
            since: number;
            /** Slots */
            slots: {
                [key: string]: components["schemas"]["SlotUsage"];
            };
            /** Until */
            until: number;
        };
        /**
         * NodeVerdict
         * @description One node as the job sees it.
         */
        NodeVerdict: {
            /** Free */
            free: number;
            hidden: components["schemas"]["Hidden"];
            /** Jobs */
            jobs: string[];
            /** Node */
            node: string;
            /** Sentence */
            sentence: string;
            /** Slots */
            slots: number;
            verdict: components["schemas"]["Verdict"];
        };
        /**
         * Outlook
         * @description What one job has, and when it is expected to start and to end.
         */
        Outlook: {
            /** End */
            end: number | null;
            /** Slots */
            slots: number;
            /** Start */
            start: number | null;
        };
        /**
         * PastError
         * @description How far earlier estimates of a start were off, each made when its job began to wait.
         */
        PastError: {
            /** Jobs */
            jobs: number;
            /** Median Seconds */
            median_seconds: number;
            /** P90 Seconds */
            p90_seconds: number;
        };
        /**
         * PhaseSeconds
         * @description Seconds a step in each phase. An engine is in one phase at a time, so the sum is the duration of a step.
         */
        PhaseSeconds: {
            /** Apply */
            apply: number;
            /** Backward */
            backward: number;
            /** Copies */
            copies: number;
            /** Data */
            data: number;
            /** Forward */
            forward: number;
            /** Other */
            other: number;
            /** Reduce */
            reduce: number;
            /** Wait */
            wait: number;
        };
        /**
         * Plan
         * @description A resource plan: a queue. The fields after ``description`` are not WMLA's.
         */
        Plan: {
            /** Demand Slots */
            demand_slots: number;
            /** Description */
            description: string;
            /** Entitled Slots */
            entitled_slots: number;
            /** Id */
            id: string;
            /** Limit */
            limit: number | null;
            /** Name */
            name: string;
            /** Path */
            path: string;
            /** Pending Jobs */
            pending_jobs: number;
            /** Pid */
            pid: string;
            /** Policy */
            policy: string;
            /** Quota */
            quota: number;
            /** Running Jobs */
            running_jobs: number;
            /** Share Ratio */
            share_ratio: number;
            /** Slots */
            slots: number;
            /** Used Slots */
            used_slots: number;
        };
        /**
         * PlanNode
         * @description A node of the tree of resource plans.
         */
        PlanNode: {
            /** Childtreedto */
            childTreeDto: components["schemas"]["PlanNode"][];
            /** Id */
            id: string;
            /** Pid */
            pid: string;
        };
        /**
         * Pool
         * @description One pool, with the nodes that are waited for.
         */
        Pool: {
            /** Asked */
            asked: number;
            /** Containers */
            containers: boolean;
            /** Device */
            device: string;
            /** Idle Seconds */
            idle_seconds: number;
            /** Kind */
            kind: string;
            /** Max Nodes */
            max_nodes: number;
            /** Max Set */
            max_set: boolean;
            /** Min Nodes */
            min_nodes: number;
            /** Min Set */
            min_set: boolean;
            /** Model */
            model: string;
            /** More */
            more: number;
            /** Name */
            name: string;
            /** Note */
            note: string;
            /** Patience Seconds */
            patience_seconds: number;
            /** Patience Set */
            patience_set: boolean;
            /** Per Job */
            per_job: boolean;
            /** Registered At */
            registered_at: number;
            /** Seen At */
            seen_at: number;
            /** Silent Seconds */
            silent_seconds: number;
            /** Slots */
            slots: number;
            /** There */
            there: number;
            /** Trouble */
            trouble: string | null;
            /** Waiting */
            waiting: components["schemas"]["AskedNode"][];
        };
        /**
         * PoolChanged
         * @description A pool after a change.
         */
        PoolChanged: {
            /** Message */
            message: string;
            pool: components["schemas"]["PoolInfo"];
        };
        /**
         * PoolInfo
         * @description One pool, without its nodes.
         */
        PoolInfo: {
            /** Asked */
            asked: number;
            /** Containers */
            containers: boolean;
            /** Device */
            device: string;
            /** Idle Seconds */
            idle_seconds: number;
            /** Kind */
            kind: string;
            /** Max Nodes */
            max_nodes: number;
            /** Max Set */
            max_set: boolean;
            /** Min Nodes */
            min_nodes: number;
            /** Min Set */
            min_set: boolean;
            /** Model */
            model: string;
            /** Name */
            name: string;
            /** Note */
            note: string;
            /** Patience Seconds */
            patience_seconds: number;
            /** Patience Set */
            patience_set: boolean;
            /** Per Job */
            per_job: boolean;
            /** Registered At */
            registered_at: number;
            /** Seen At */
            seen_at: number;
            /** Silent Seconds */
            silent_seconds: number;
            /** Slots */
            slots: number;
            /** There */
            there: number;
            /** Trouble */
            trouble: string | null;
        };
        /**
         * PoolOfferIn
         * @description A pool that a provisioner registers.
         */
        PoolOfferIn: {
            /**
             * Containers
             * @default false
             */
            containers: boolean;
            /**
             * Device
             * @default cpu
             */
            device: string;
            /**
             * Idle Seconds
             * @default 60
             */
            idle_seconds: number;
            /** Kind */
            kind: string;
            /** Max Nodes */
            max_nodes: number;
            /**
             * Min Nodes
             * @default 0
             */
            min_nodes: number;
            /**
             * Model
             * @default
             */
            model: string;
            /**
             * Note
             * @default
             */
            note: string;
            /**
             * Patience Seconds
             * @default 120
             */
            patience_seconds: number;
            /**
             * Per Job
             * @default true
             */
            per_job: boolean;
            /** Slots */
            slots: number;
        };
        /**
         * Pools
         * @description All pools, by name.
         */
        Pools: {
            /** At */
            at: number;
            /** Pools */
            pools: components["schemas"]["Pool"][];
        };
        /**
         * PoolSettings
         * @description What an admin sets of a pool. What is left out stays as it is.
         */
        PoolSettings: {
            /** Max Nodes */
            max_nodes?: number | null;
            /** Min Nodes */
            min_nodes?: number | null;
            /** Patience Seconds */
            patience_seconds?: number | null;
        };
        /**
         * Problem
         * @description RFC 9457 ``application/problem+json``: every error under ``/api/v1``.
         */
        Problem: {
            /** Code */
            code: string;
            /** Detail */
            detail: string;
            /** Instance */
            instance: string;
            /** Status */
            status: number;
            /** Title */
            title: string;
            /** Type */
            type: string;
        };
        /**
         * ProcessesOf
         * @description For what each process of a job is started that is not elastic.
         * @enum {string}
         */
        ProcessesOf: "device" | "worker" | "job";
        /**
         * ProcessState
         * @description The state of an engine's process.
         * @enum {string}
         */
        ProcessState: "RUNNING" | "FINISHED" | "KILLED" | "ERROR";
        /**
         * Progress
         * @description How far a training is, by its newest report; empty before the first report. None stands for a value that is not
         *     finite, such as a loss that has diverged.
         */
        Progress: {
            /** Epoch */
            epoch: number | null;
            /** Epochs */
            epochs: number | null;
            /** Loss */
            loss: number | null;
            /** Metrics */
            metrics: {
                [key: string]: number | null;
            };
            /** Samples Per Second */
            samples_per_second: number | null;
            /** Step */
            step: number | null;
            /** Steps Total */
            steps_total: number | null;
            /** Time */
            time: number;
            /** Workers */
            workers: number | null;
        };
        /**
         * PulledIn
         * @description Whether a node has got an image that it was asked to fetch.
         */
        PulledIn: {
            /**
             * Error
             * @default
             */
            error: string;
            /** Image */
            image: string;
        };
        /**
         * Queue
         * @description One queue of the tree.
         */
        Queue: {
            /** Demand */
            demand: number;
            /** Depth */
            depth: number;
            /** Entitled */
            entitled: number;
            /** Limit */
            limit: number | null;
            /** Name */
            name: string;
            others: components["schemas"]["QueueOthers"];
            /** Parent */
            parent: string | null;
            /** Path */
            path: string;
            policy: components["schemas"]["QueuePolicy"];
            /** Quota */
            quota: number;
            /** Running */
            running: number;
            /** Usage */
            usage: number;
            /** Used */
            used: number;
            /** Users */
            users: components["schemas"]["QueueUser"][];
            /** Waiting */
            waiting: number;
            /** Waiting Jobs */
            waiting_jobs: components["schemas"]["QueueWaiting"][];
            /** Weight */
            weight: number;
        };
        /**
         * QueueChanged
         * @description A queue after a change.
         */
        QueueChanged: {
            /** Limit */
            limit: number | null;
            /** Message */
            message: string;
            /** Path */
            path: string;
            policy: components["schemas"]["QueuePolicy"];
            /** Quota */
            quota: number;
            /** Weight */
            weight: number;
        };
        /**
         * QueueOthers
         * @description The users of a queue that are not listed, together.
         */
        QueueOthers: {
            /** Entitled */
            entitled: number;
            /** Held */
            held: number;
            /** Running */
            running: number;
            /** Usage */
            usage: number;
            /** Users */
            users: number;
            /** Waiting */
            waiting: number;
        };
        /**
         * QueuePolicy
         * @description How the jobs of a queue share its slots. In each, jobs of a higher priority come first.
         * @enum {string}
         */
        QueuePolicy: "efficient" | "fairshare" | "priority" | "fifo";
        /**
         * Queues
         * @description The tree of queues: the root first, and each queue before those below it, which are in the order of names.
         */
        Queues: {
            /** At */
            at: number;
            /** Queues */
            queues: components["schemas"]["Queue"][];
            /** Slots */
            slots: number;
            /** Used */
            used: number;
        };
        /**
         * QueueSettings
         * @description What a queue gets. What is left out stays as it is; a new queue has no quota and no limit, the weight 1 and the
         *     policy ``efficient``.
         */
        QueueSettings: {
            /** Limit */
            limit?: number | null;
            policy?: components["schemas"]["QueuePolicy"] | null;
            /** Quota */
            quota?: number | null;
            /** Weight */
            weight?: number | null;
        };
        /**
         * QueueUse
         * @description One queue on the way from a job's own queue to the root.
         */
        QueueUse: {
            /** Held */
            held: number;
            /** Limit */
            limit: number | null;
            policy: components["schemas"]["QueuePolicy"];
            /** Queue */
            queue: string;
            /** Quota */
            quota: number;
            /** Waiting */
            waiting: number;
            /** Weight */
            weight: number;
        };
        /**
         * QueueUser
         * @description What one user has in one queue.
         */
        QueueUser: {
            /** Entitled */
            entitled: number;
            /** Held */
            held: number;
            /** Running */
            running: number;
            /** Usage */
            usage: number;
            /** User */
            user: string;
            /** Waiting */
            waiting: number;
        };
        /**
         * QueueWaiting
         * @description A job that waits in a queue.
         */
        QueueWaiting: {
            /** Blocking */
            blocking: string | null;
            /** Job */
            job: string;
            /** Max */
            max: number;
            /** Name */
            name: string;
            /** Need */
            need: number;
            /** Owner */
            owner: string;
            /** Priority */
            priority: number;
            /** Rank */
            rank: number;
            /** Reason */
            reason: string;
            /** Since */
            since: number;
        };
        /**
         * QueueWith
         * @description A queue has other numbers. What is None stays.
         */
        QueueWith: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            kind: "queue";
            /** Limit */
            limit?: number | null;
            policy?: components["schemas"]["QueuePolicy"] | null;
            /** Queue */
            queue: string;
            /** Quota */
            quota?: number | null;
            /**
             * Unlimited
             * @default false
             */
            unlimited: boolean;
            /** Weight */
            weight?: number | null;
        };
        /**
         * Rank
         * @description One process of a gang's newest attempt.
         */
        Rank: {
            /** Ended At */
            ended_at: number | null;
            /** Fence */
            fence: number;
            /** Kind */
            kind: string | null;
            /** Node */
            node: string;
            /** Rank */
            rank: number;
            /** Slots */
            slots: string[];
            /** Started At */
            started_at: number | null;
        };
        /**
         * RankPage
         * @description The processes of a gang that were started, by rank.
         */
        RankPage: {
            /** Items */
            items: components["schemas"]["Rank"][];
            /** Next */
            next: string | null;
        };
        /**
         * Ready
         * @description Answer of ``/readyz``. A request from the server's own machine also gets the state of each part: ``ok``, or a
         *     description of the fault.
         */
        Ready: {
            /** Broker */
            broker: string | null;
            /** Database */
            database: string | null;
            /** Migrations */
            migrations: string | null;
            /** Ready */
            ready: boolean;
        };
        /**
         * RecordedDecision
         * @description One decision with all that went into it, and whether it comes out the same again.
         */
        RecordedDecision: {
            /** Actions */
            actions: components["schemas"]["DecisionAction"][];
            /** At */
            at: number;
            /** Bytes */
            bytes: number;
            /** Differences */
            differences: string[];
            /** Id */
            id: number;
            /** Plan */
            plan: {
                [key: string]: unknown;
            };
            /** Same */
            same: boolean;
            /** Seconds */
            seconds: number;
            /** State */
            state: {
                [key: string]: unknown;
            };
        };
        /**
         * Registered
         * @description Answer to a node that registers.
         */
        Registered: {
            /** Broker Url */
            broker_url: string | null;
            /** Node */
            node: string;
            /** Queue */
            queue: string;
            /** Token */
            token: string;
        };
        /**
         * RendezvousBy
         * @description Variables by which the processes of a job find each other.
         * @enum {string}
         */
        RendezvousBy: "torch" | "tensorflow" | "mpi";
        /**
         * RequestedNode
         * @description One node that is wanted, or was wanted and is not gone.
         */
        RequestedNode: {
            /** Created */
            created: boolean;
            /** End */
            end: boolean;
            /** First */
            first: boolean;
            /** Framework */
            framework: string;
            /** Group Size */
            group_size: number;
            /** Idle Seconds */
            idle_seconds: number;
            /** Image */
            image: string | null;
            /** Job */
            job: string | null;
            /** Node */
            node: string;
            /** Priority */
            priority: number;
            /** Queue */
            queue: string;
            /** Slots */
            slots: number;
            /** User */
            user: string | null;
        };
        /**
         * Resize
         * @description One change of a job's size: the decision, what woke the agent, and the time of each step.
         */
        Resize: {
            /** Cause */
            cause: string;
            /** Decided At */
            decided_at: number;
            /** Detail */
            detail: string;
            /** Exec Id */
            exec_id: string;
            /** Fence */
            fence: number;
            /** First Step At */
            first_step_at: number | null;
            /** From Slots */
            from_slots: number;
            /** Generation */
            generation: number | null;
            /** Gone At */
            gone_at: number | null;
            /** Joined At */
            joined_at: number | null;
            /** Notified At */
            notified_at: number | null;
            /** Number */
            number: number;
            /** Pause Seconds */
            pause_seconds: number | null;
            /** Recomputed */
            recomputed: number | null;
            /** Started At */
            started_at: number | null;
            /** Step */
            step: number | null;
            /** To Slots */
            to_slots: number;
            /** Woken At */
            woken_at: number | null;
            /** Woken By */
            woken_by: string | null;
            /** Workers */
            workers: number | null;
        };
        /**
         * ResizePage
         * @description A job's resizes, oldest first.
         */
        ResizePage: {
            /** Items */
            items: components["schemas"]["Resize"][];
            /** Next */
            next: string | null;
        };
        /**
         * ResultState
         * @description Whether a job has a result to download, and its size.
         */
        ResultState: {
            /** Bytes */
            bytes: number | null;
            /** Missing */
            missing: string | null;
        };
        /**
         * RoleName
         * @description What a user may do.
         * @enum {string}
         */
        RoleName: "admin" | "user" | "viewer";
        /**
         * ScopeName
         * @description What an API token allows. Each scope includes those before it.
         * @enum {string}
         */
        ScopeName: "read" | "submit" | "admin";
        /**
         * Signed
         * @description Answer of ``GET /platform/rest/conductor/v1/auth/logon``.
         */
        Signed: {
            /** Accesstoken */
            accessToken: string;
            /** Role */
            role: string;
            /** Username */
            username: string;
        };
        /**
         * Slot
         * @description One slot of a node, and the job that holds it.
         */
        Slot: {
            /** Busy */
            busy: boolean;
            /**
             * Compute Capability
             * @default null
             */
            compute_capability: string | null;
            /** Device */
            device: string;
            /**
             * Ecc Errors
             * @default null
             */
            ecc_errors: number | null;
            /** Exec Id */
            exec_id: string | null;
            /** Foreign Processes */
            foreign_processes: components["schemas"]["ForeignProcess"][];
            /** @default null */
            kind: components["schemas"]["JobKind"] | null;
            /** Label */
            label: string;
            /** Leaving */
            leaving: boolean;
            /**
             * Memory Bytes
             * @default null
             */
            memory_bytes: number | null;
            /**
             * Memory Total Bytes
             * @default null
             */
            memory_total_bytes: number | null;
            /**
             * Mig Profile
             * @default null
             */
            mig_profile: string | null;
            /**
             * Model
             * @default null
             */
            model: string | null;
            /**
             * Owner
             * @default null
             */
            owner: string | null;
            /**
             * Power Watts
             * @default null
             */
            power_watts: number | null;
            /**
             * Problem
             * @default null
             */
            problem: string | null;
            /** Slot */
            slot: string;
            /**
             * Temperature C
             * @default null
             */
            temperature_c: number | null;
            /**
             * Utilisation
             * @default null
             */
            utilisation: number | null;
        };
        /**
         * SlotOffer
         * @description One slot that an agent registers.
         */
        SlotOffer: {
            /** Compute Capability */
            compute_capability?: string | null;
            /**
             * Device
             * @default cpu
             */
            device: string;
            /**
             * Label
             * @default
             */
            label: string;
            /** Memory Total Bytes */
            memory_total_bytes?: number | null;
            /** Mig Profile */
            mig_profile?: string | null;
            /** Model */
            model?: string | null;
            /** Slot */
            slot: string;
        };
        /**
         * SlotSample
         * @description How busy one slot was since its previous sample.
         */
        SlotSample: {
            /** Ecc Errors */
            ecc_errors?: number | null;
            /** Foreign Processes */
            foreign_processes?: components["schemas"]["ForeignProcessIn"][];
            /** Memory Bytes */
            memory_bytes?: number | null;
            /** Memory Total Bytes */
            memory_total_bytes?: number | null;
            /** Power Watts */
            power_watts?: number | null;
            /** Problem */
            problem?: string | null;
            /** Slot */
            slot: string;
            /** Temperature C */
            temperature_c?: number | null;
            /** Utilisation */
            utilisation?: number | null;
        };
        /**
         * SlotTime
         * @description For how many hours the jobs of a user have held slots on one day.
         */
        SlotTime: {
            /** Day */
            day: number;
            /** Slot Hours */
            slot_hours: number;
            /** User */
            user: string;
        };
        /**
         * SlotTimePage
         * @description Slot hours of users, newest day first.
         */
        SlotTimePage: {
            /** Items */
            items: components["schemas"]["SlotTime"][];
            /** Next */
            next: string | null;
        };
        /**
         * SlotUsage
         * @description How busy a slot was: columns of equal length, oldest value first.
         */
        SlotUsage: {
            /** Memory Bytes */
            memory_bytes: (number | null)[];
            /** Power Watts */
            power_watts: (number | null)[];
            /** Temperature C */
            temperature_c: (number | null)[];
            /** Time */
            time: number[];
            /** Utilisation */
            utilisation: (number | null)[];
        };
        /**
         * Status
         * @description How the platform is.
         */
        Status: {
            /** Nodes */
            nodes: {
                [key: string]: number;
            };
            /** Slots */
            slots: number;
            /** Status */
            status: string;
            /** Used Slots */
            used_slots: number;
            /** Version */
            version: string;
        };
        /**
         * StepTimes
         * @description Where the time of a job's training steps goes: means over some seconds, by the newest report.
         */
        StepTimes: {
            /** Efficiency */
            efficiency: number | null;
            /** Engines */
            engines: components["schemas"]["EngineTimes"][];
            mean_of_others: components["schemas"]["MeanTimes"] | null;
            /**
             * Others
             * @default 0
             */
            others: number;
            /** Remarks */
            remarks: string[];
            /** Step Seconds */
            step_seconds: number | null;
            /**
             * Steps
             * @default 0
             */
            steps: number;
            /** Time */
            time: number | null;
            /** Waited For */
            waited_for: number | null;
            /**
             * Waited Seconds
             * @default 0
             */
            waited_seconds: number;
        };
        /**
         * Suggestion
         * @description A change that was tried on the present state: with it, the job starts, or gets more slots.
         */
        Suggestion: {
            /** Change */
            change: components["schemas"]["MoreSlots"] | components["schemas"]["NodeLess"] | components["schemas"]["NodeOpened"] | components["schemas"]["JobWith"] | components["schemas"]["JobStopped"] | components["schemas"]["JobResumed"] | components["schemas"]["QueueWith"] | components["schemas"]["NewJob"];
            /** Command */
            command: string;
            /** Plans */
            plans: number;
            /** Resubmit */
            resubmit: boolean;
            /** Sentence */
            sentence: string;
            /** Slots */
            slots: number;
        };
        /**
         * Synced
         * @description Answer to a sync: the whole list.
         */
        Synced: {
            /** Requests */
            requests: components["schemas"]["RequestedNode"][];
        };
        /**
         * SyncIn
         * @description All that a cluster manager says of a pool's nodes.
         */
        SyncIn: {
            /** Nodes */
            nodes?: components["schemas"]["NodeStateIn"][] | null;
            /** Trouble */
            trouble?: string | null;
        };
        /**
         * Task
         * @description One process of a job: ``task0`` is the driver, each ``task12n`` an engine.
         */
        Task: {
            /** End Time */
            end_time: number;
            /** Host */
            host: string;
            /** Id */
            id: string;
            /** Name */
            name: string;
            /** Node */
            node: string;
            /** Start Time */
            start_time: number;
            /** State */
            state: string;
        };
        /**
         * Timeline
         * @description Everything that overlaps the time from ``since`` to ``until``.
         */
        Timeline: {
            /** Allocations */
            allocations: components["schemas"]["TimelineAllocation"][];
            /** Earliest */
            earliest: number | null;
            /** Failures */
            failures: components["schemas"]["TimelineFailure"][];
            /** Jobs */
            jobs: {
                [key: string]: components["schemas"]["TimelineJob"];
            };
            /** Nodes */
            nodes: components["schemas"]["Node"][];
            /** Now */
            now: number;
            /** Resizes */
            resizes: components["schemas"]["TimelineResize"][];
            /** Since */
            since: number;
            /** Until */
            until: number;
        };
        /**
         * TimelineAllocation
         * @description A bar of the timeline: one job held one slot from one time to another.
         */
        TimelineAllocation: {
            /** Allocation */
            allocation: number;
            /** Counted At */
            counted_at: number | null;
            /** Decided At */
            decided_at: number;
            /** Exec Id */
            exec_id: string;
            /** Kind */
            kind: string | null;
            /** Node */
            node: string;
            /** Released At */
            released_at: number | null;
            /** Slot */
            slot: string;
            /** Started At */
            started_at: number | null;
        };
        /**
         * TimelineChanged
         * @description ``event: timeline``: bars and marks that are new or have changed.
         */
        TimelineChanged: {
            /** Allocations */
            allocations: components["schemas"]["TimelineAllocation"][];
            /** Failures */
            failures: components["schemas"]["TimelineFailure"][];
            /** Resizes */
            resizes: components["schemas"]["TimelineResize"][];
        };
        /**
         * TimelineFailure
         * @description A mark of the timeline: one lost engine, all engines of a job on a lost node, or a failure of a whole attempt.
         *
         *     ``slot`` is None for a lost node. ``node`` is None for a whole attempt. The stream may send a failure again: job,
         *     time, node and slot identify it.
         */
        TimelineFailure: {
            /** Exec Id */
            exec_id: string;
            /** Kind */
            kind: string;
            /** Message */
            message: string | null;
            /** Node */
            node: string | null;
            /** Slot */
            slot: string | null;
            /** Time */
            time: number;
        };
        /**
         * TimelineJob
         * @description A job that occurs in the timeline.
         */
        TimelineJob: {
            /** App Name */
            app_name: string | null;
            /** @default elastic */
            kind: components["schemas"]["JobKind"];
            /** Owner */
            owner: string | null;
            /**
             * Removed
             * @default false
             */
            removed: boolean;
            state: components["schemas"]["ExecState"];
        };
        /**
         * TimelineResize
         * @description A mark of the timeline: one change of a job's size.
         */
        TimelineResize: {
            /** Cause */
            cause: string;
            /** Detail */
            detail: string | null;
            /** Exec Id */
            exec_id: string;
            /** From Slots */
            from_slots: number;
            /** Number */
            number: number;
            /** Pause Seconds */
            pause_seconds: number | null;
            /** Recomputed */
            recomputed: number | null;
            /** Time */
            time: number;
            /** To Slots */
            to_slots: number;
        };
        /**
         * Total
         * @description A sum over all slots that an application holds.
         */
        Total: {
            /** Total */
            total: number;
        };
        /**
         * Totals
         * @description The whole platform at once.
         */
        Totals: {
            /** Mean Start Seconds */
            mean_start_seconds: number | null;
            /** Price */
            price: number;
            /** Running */
            running: number;
            /** Slots */
            slots: number;
            /** Used */
            used: number;
            /** Waiting */
            waiting: number;
        };
        /**
         * UsageIn
         * @description How busy a node's slots were. The time of the sample is the time of its arrival.
         */
        UsageIn: {
            /** Slots */
            slots: components["schemas"]["SlotSample"][];
        };
        /**
         * User
         * @description One user.
         */
        User: {
            /** Created At */
            created_at: number;
            /** Name */
            name: string;
            role: components["schemas"]["RoleName"];
        };
        /**
         * UserPage
         * @description Users, by name.
         */
        UserPage: {
            /** Items */
            items: components["schemas"]["User"][];
            /** Next */
            next: string | null;
        };
        /**
         * Validation
         * @description The newest validation of a job.
         */
        Validation: {
            /**
             * Epoch
             * @default null
             */
            epoch: number | null;
            /** Metrics */
            metrics: {
                [key: string]: number | null;
            };
            /**
             * Samples
             * @default null
             */
            samples: number | null;
            /**
             * Seconds
             * @default null
             */
            seconds: number | null;
            /** Step */
            step: number;
            /** Time */
            time: number;
            /**
             * Workers
             * @default null
             */
            workers: number | null;
        };
        /**
         * ValidationMetrics
         * @description The validations of a training: columns of equal length, oldest value first. ``step`` only grows.
         */
        ValidationMetrics: {
            /** Epoch */
            epoch: (number | null)[];
            /** Metrics */
            metrics: {
                [key: string]: (number | null)[];
            };
            /** Step */
            step: number[];
            /** Time */
            time: number[];
            /** Total */
            total: number;
        };
        /**
         * Verdict
         * @description Whether a node could take the job, and what keeps it from that. The first that holds, in this order.
         * @enum {string}
         */
        Verdict: "lost" | "draining" | "cordoned" | "device" | "model" | "containers" | "others" | "small" | "alone" | "avoided" | "full" | "kept" | "free";
        /**
         * Waiting
         * @description Why a job holds no slot, with numbers.
         */
        Waiting: {
            /** Blocking */
            blocking: string;
            /** Free */
            free: number;
            /** Need */
            need: number;
            /** Rank */
            rank: number;
            /** Reason */
            reason: string;
        };
        /**
         * Waits
         * @description Why a job holds no slot.
         */
        Waits: {
            /** By */
            by: components["schemas"]["Holder"][];
            /** Free */
            free: number;
            hidden: components["schemas"]["Hidden"];
            /** Need */
            need: number;
            /** Not Before */
            not_before: number | null;
            /** Rank */
            rank: number;
            /** Rule */
            rule: string;
            /** Sentence */
            sentence: string;
            /** Waiting */
            waiting: number;
        };
        /**
         * WhatIf
         * @description What would be different, and for whom.
         */
        WhatIf: {
            after: components["schemas"]["Totals"];
            /** Assumed */
            assumed: string[];
            /** At */
            at: number;
            before: components["schemas"]["Totals"];
            /** Hidden */
            hidden: {
                [key: string]: number;
            };
            /** Jobs */
            jobs: components["schemas"]["JobEffect"][];
            /** Sentence */
            sentence: string;
            /** Until */
            until: number;
        };
        /**
         * WhatIfRequest
         * @description Changes that are all assumed together.
         */
        WhatIfRequest: {
            /** Changes */
            changes: (components["schemas"]["MoreSlots"] | components["schemas"]["NodeLess"] | components["schemas"]["NodeOpened"] | components["schemas"]["JobWith"] | components["schemas"]["JobStopped"] | components["schemas"]["JobResumed"] | components["schemas"]["QueueWith"] | components["schemas"]["NewJob"])[];
        };
        /**
         * WhyNotMore
         * @description What keeps a running job from more slots. The first that holds, in this order.
         * @enum {string}
         */
        WhyNotMore: "gang" | "coming" | "maximum" | "capped" | "engines" | "measured" | "back-off" | "quota" | "worth" | "cost" | "reach";
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    queues_listing: {
        parameters: {
            query?: {
                /** @description `next` of the page before this one. */
                cursor?: string | null;
                /** @description Only decisions about this job. */
                job?: string | null;
                /** @description The most items of this page. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DecisionPage"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    queues_decision: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                number: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RecordedDecision"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    answers_dry_run: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DryRunRequest"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DryRun"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    frameworks_listing: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Catalogue"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    frameworks_add: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    [key: string]: unknown;
                };
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CatalogueEntry"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    frameworks_remove: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    images_listing: {
        parameters: {
            query?: {
                /** @description `next` of the page before this one. */
                cursor?: string | null;
                /** @description The most items of this page. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImagePage"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    images_allow: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewImage"];
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Image"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    images_forbid: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    jobs_listing: {
        parameters: {
            query?: {
                /** @description `next` of the page before this one. */
                cursor?: string | null;
                framework?: string | null;
                /** @description The most items of this page. */
                limit?: number;
                /** @description Whether to list only the caller's own jobs. */
                mine?: boolean;
                owner?: string | null;
                /** @description Text to search for in the id, the name that the user gave, the main script, the folder that was sent, and the owner. Upper and lower case are the same. */
                q?: string | null;
                /** @description States, separated by commas. */
                state?: string | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobPage"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    jobs_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    queues_change: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["JobChange"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Changed"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    jobs_allocations: {
        parameters: {
            query?: {
                /** @description `next` of the page before this one. */
                cursor?: string | null;
                /** @description The most items of this page. */
                limit?: number;
            };
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AllocationPage"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    jobs_events: {
        parameters: {
            query?: {
                /** @description `next` of the page before this one. */
                cursor?: string | null;
                /** @description The most items of this page. */
                limit?: number;
            };
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventPage"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    answers_explanation: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Explained"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    lives_extend: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Epochs"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Changed"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    jobs_log: {
        parameters: {
            query?: {
                offset?: number;
                stream?: string;
                wait?: number;
            };
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    jobs_log_files: {
        parameters: {
            query?: {
                /** @description `next` of the page before this one. */
                cursor?: string | null;
                /** @description The most items of this page. */
                limit?: number;
            };
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LogFilePage"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    jobs_metrics: {
        parameters: {
            query?: {
                points?: number;
            };
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Metrics"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    lives_pause: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Changed"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    jobs_ranks: {
        parameters: {
            query?: {
                /** @description `next` of the page before this one. */
                cursor?: string | null;
                /** @description The most items of this page. */
                limit?: number;
            };
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RankPage"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    jobs_resizes: {
        parameters: {
            query?: {
                /** @description `next` of the page before this one. */
                cursor?: string | null;
                /** @description The most items of this page. */
                limit?: number;
            };
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ResizePage"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    jobs_result: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ResultState"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    lives_resume: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Changed"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    jobs_step_times: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StepTimes"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    session_me: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Me"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    nodes_listing: {
        parameters: {
            query?: {
                /** @description `next` of the page before this one. */
                cursor?: string | null;
                /** @description The most items of this page. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodePage"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    agents_register: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NodeOffer"];
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Registered"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    nodes_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Node"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    nodes_remove: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    agents_assignments: {
        parameters: {
            query?: {
                after?: number | null;
                wait?: number;
                woken_by?: string;
            };
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Assignments"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    nodes_cordon: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Node"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    nodes_drain: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Node"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    agents_pulled: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PulledIn"];
            };
        };
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    agents_leaving: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LeavingIn"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Leaving"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    agents_reports: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Acked"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    nodes_uncordon: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Node"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    nodes_usage: {
        parameters: {
            query?: {
                points?: number;
                since?: number | null;
                until?: number | null;
            };
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeUsage"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    agents_usage: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["UsageIn"];
            };
        };
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    pools_listing: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Pools"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    pools_register: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PoolOfferIn"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PoolInfo"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    pools_remove: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    pools_change: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PoolSettings"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PoolChanged"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    pools_sync: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SyncIn"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Synced"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    queues_tree: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Queues"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    queues_put: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                path: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["QueueSettings"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["QueueChanged"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    queues_remove: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                path: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    session_begin: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewSession"];
            };
        };
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    session_end: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    stream_stream: {
        parameters: {
            query?: {
                /** @description As Last-Event-ID, for clients that cannot send a header. */
                after?: string | null;
            };
            header?: {
                "last-event-id"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Events `hello`, `jobs`, `nodes`, `timeline`, `beat`, `reset`, `bye`; `data` is one of these. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string | components["schemas"]["JobsChanged"] | components["schemas"]["NodesChanged"] | components["schemas"]["TimelineChanged"] | components["schemas"]["Beat"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    timeline_timeline: {
        parameters: {
            query?: {
                since?: number;
                until?: number | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Timeline"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tokens_listing: {
        parameters: {
            query?: {
                /** @description `next` of the page before this one. */
                cursor?: string | null;
                /** @description The most items of this page. */
                limit?: number;
                /** @description Whose tokens. Only an admin names others. */
                user?: string | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApiTokenPage"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tokens_make: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewApiToken"];
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MadeApiToken"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tokens_revoke: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                number: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    usage_slot_hours: {
        parameters: {
            query?: {
                /** @description `next` of the page before this one. */
                cursor?: string | null;
                /** @description The most items of this page. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SlotTimePage"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    users_listing: {
        parameters: {
            query?: {
                /** @description `next` of the page before this one. */
                cursor?: string | null;
                /** @description The most items of this page. */
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UserPage"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    users_add: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewUser"];
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["User"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    users_remove: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    users_set_password: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewPassword"];
            };
        };
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    answers_what_if: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WhatIfRequest"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WhatIf"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    logon_logoff: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Message"];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    logon_logon: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Logon"];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    legacy_inference_token: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["InferenceToken"];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    health_livez: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Message"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    conductor_logoff: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Message"];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    conductor_logon: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Signed"];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    conductor_instances: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Instance"][];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    conductor_listing: {
        parameters: {
            query?: {
                /** @description The most items to return. */
                length?: number | null;
                /** @description `asc` or `desc`, for a `sort` without a `-`. */
                order?: string;
                search?: string;
                /** @description One of id, applicationid, driverid, name, applicationname, state, submit_user, username, submit_time, submittedtime, start_time, end_time, endtime; a `-` before it sorts in descending order. */
                sort?: string;
                /** @description How many items at the head of the list to leave out. 416: all. */
                start?: number;
                /** @description States, separated by commas or as repeated parameters. */
                state?: string[] | null;
            };
            header?: never;
            path: {
                /** @description Id of an instance group; any. */
                sig_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Application"][];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    conductor_executor_log: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
                log: components["schemas"]["LogName"];
                number: string;
                /** @description Id of an instance group; any. */
                sig_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    conductor_driver_log: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
                log: components["schemas"]["LogName"];
                /** @description Id of an instance group; any. */
                sig_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    configuration_conf: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: string;
                    };
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    execs_listing: {
        parameters: {
            query?: {
                /** @description The most items to return. */
                length?: number | null;
                /** @description The most items to return. */
                limit?: number | null;
                sort_by?: string;
                /** @description How many items at the head of the list to leave out. 416: all. */
                start?: number;
                state?: string[] | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Exec"][];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    execs_submit: {
        parameters: {
            query?: {
                args?: string;
            };
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/x-www-form-urlencoded": {
                    data?: string;
                };
                "multipart/form-data": {
                    /** @description JSON, as WMLA's clients send it beside the file */
                    data?: string;
                    /**
                     * Format: binary
                     * @description tar, gzip, zip or a script
                     */
                    file?: string;
                };
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Exec"];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    execs_delete_all: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    execs_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Exec"];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    execs_delete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    execs_deploy: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    execs_log: {
        parameters: {
            query?: {
                /** @description Only so many lines of each file's end. */
                lastlines?: number | null;
                logType?: string;
            };
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    execs_result: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": string;
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    execs_stop: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    execs_frameworks: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Framework"][];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    configuration_frameworks: {
        parameters: {
            query?: {
                backend?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FrameworkDetail"][];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    configuration_framework_names: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": string[];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    configuration_plan: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                plan: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Plan"];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    configuration_delete_plan: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                plan: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    configuration_tree: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PlanNode"];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    applications_applications: {
        parameters: {
            query?: {
                applicationid?: string;
                applicationname?: string;
                driverid?: string;
                /** @description The most items to return. */
                length?: number | null;
                /** @description `asc` or `desc`, for a `sort` without a `-`. */
                order?: string;
                search?: string;
                sigId?: string;
                /** @description One of id, applicationid, driverid, name, applicationname, state, submit_user, username, submit_time, submittedtime, start_time, end_time, endtime; a `-` before it sorts in descending order. */
                sort?: string;
                /** @description How many items at the head of the list to leave out. 416: all. */
                start?: number;
                /** @description States, separated by commas or as repeated parameters. */
                state?: string[] | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Application"][];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    applications_application: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Application"];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    applications_driver_log: {
        parameters: {
            query?: {
                /** @description Only so many lines of each file's end. */
                lastlines?: number | null;
            };
            header?: never;
            path: {
                exec_id: string;
                log: components["schemas"]["LogName"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    applications_executor_log: {
        parameters: {
            query?: {
                /** @description Only so many lines of each file's end. */
                lastlines?: number | null;
            };
            header?: never;
            path: {
                exec_id: string;
                log: components["schemas"]["LogName"];
                /** @description The executor's number, from 1 on. */
                number: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    applications_stop: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    applications_records: {
        parameters: {
            query?: {
                /** @description The most items to return. */
                length?: number | null;
                /** @description `asc` or `desc`, for a `sort` without a `-`. */
                order?: string;
                /** @description One of id, applicationid, driverid, name, applicationname, state, submit_user, username, submit_time, submittedtime, start_time, end_time, endtime; a `-` before it sorts in descending order. */
                sort?: string;
                /** @description How many items at the head of the list to leave out. 416: all. */
                start?: number;
                /** @description States, separated by commas or as repeated parameters. */
                state?: string[] | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobRecord"][];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    applications_record: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                exec_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobRecord"][];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    applications_instances: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Instance"][];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    applications_kubernetes_objects: {
        parameters: {
            query?: {
                name?: string;
                type?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    configuration_status: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Status"];
                };
            };
            /** @description Refused or failed: `Error <status>: <sentence>`, as WMLA writes it. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
        };
    };
    health_readyz: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Ready"];
                };
            };
            /** @description Refused or failed; `code` is for programs, `detail` for people. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
}
