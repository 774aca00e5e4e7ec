// openapi.json sha256: 3aa7e68672ebf3b579fac0318b6b6f825033fbcc588999679308ac4f7920af33
export interface paths {
    "/api/v1/images": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Listing
         * @description The images that an admin has allowed or used, and on which nodes each is ready.
         */
        get: operations["images_listing"];
        put?: never;
        /**
         * Allow
         * @description Let everybody name an image; again to change whether nodes have it ready.
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
         * @description Nobody but an admin may name it any more. Jobs that have it keep it.
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
         * @description The caller's jobs, newest first; an admin's everybody's.
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
        patch?: never;
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
         * @description Each slot that the job held, in order, and when each step of that happened.
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
         * @description The job's history, complete and in order.
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
    "/api/v1/jobs/{exec_id}/log": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Log
         * @description One file of the log from a byte on, for followers: ask again with the offset of ``Edt-Log-Offset``.
         *
         *     ``stream``: ``elog``, ``out``, ``err``, or an engine's as ``logs`` lists them. At most 1 MiB an answer; an empty one
         *     means that nothing more is there yet. The offset is 0 again where the file was turned over at its size limit.
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
         * @description The files of the job's log: the loggers' and the driver's first, then each engine's.
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
         * @description How the training went, in at most so many points that keep the shape of the loss.
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
    "/api/v1/jobs/{exec_id}/resizes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Resizes
         * @description Each change of the job's size, in order: its cause, what woke the agent, its pause.
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
         * @description Whether there is something to download now, and how much. WMLA's call fetches it. 410 where it was removed.
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
    "/api/v1/me": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Me
         * @description Who the credential belongs to.
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
         * @description Nodes, their slots, who holds them, how busy they are. A cluster is shared, and an exec id is no secret.
         */
        get: operations["nodes_listing"];
        put?: never;
        /**
         * Register
         * @description A node's agent has started. Its new token shuts out an older agent of the same name.
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
         * @description Take a lost node from the list. 409 for one whose agent still asks, or holds slots of a job that goes on. Its
         *     history stays, and a node of this name may join again.
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
         * @description What the node should be running now. Being asked is its heartbeat.
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
         * @description Start nothing new there; what runs goes on.
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
         * @description Let everything leave it at the next boundary; nothing new starts.
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
         * @description The node has an image that it was asked for, or cannot get it.
         */
        post: operations["agents_pulled"];
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
         * @description Take reports, each number of an attempt once; the answer says how far each is taken.
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
         * @description How busy the node's slots were, in at most so many intervals a slot; the last hour where nothing else is said.
         */
        get: operations["nodes_usage"];
        put?: never;
        /**
         * Usage
         * @description Take a sample of how busy the node's slots are, as of now.
         */
        post: operations["agents_usage"];
        delete?: never;
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
         * @description Sign in with a name and a password; the answer's cookie is the session. An older one of this browser ends.
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
         * @description What changes, as it changes, at most four times a second. A user gets changes of their own jobs, an admin of all.
         *
         *     A batch may be several events; only its last carries an id, so that a cut between them loses none. ``hello``:
         *     fetch the lists. ``reset``: too much was missed, fetch them anew. ``beat``: nothing has happened for a while.
         *     ``bye``: the credential has ended.
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
         * @description Who held which slot, each resize and each failure, between two times (seconds since the epoch; until now where
         *     there is no ``until``). Where that would be too much it begins later, as the answer's ``since`` says. Of
         *     others' jobs a user sees no more than which slots they hold.
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
    "/api/v1/usage/slot-hours": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Slot Hours
         * @description For how many hours slots were held by the jobs of each user, by the day, newest first, today as far as it has
         *     come. An admin sees all users, others themselves. Jobs that were deleted count, too.
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
         * @description Users by name.
         */
        get: operations["users_listing"];
        put?: never;
        /**
         * Add
         * @description Add a user. The name of a removed one may be given again: to a new user, who owns nothing of the old one's.
         *
         *     With an ``Idempotency-Key`` it may be sent again: for a day the same name and role get the same answer. The
         *     password is no part of that: what is kept of it is argon2's hash and nothing quicker to guess by.
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
         * @description Remove a user and their tokens, and stop their jobs. The last admin stays.
         *
         *     With thousands of jobs that takes some seconds; where it is broken off, the platform goes on with it by itself.
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
         * @description Set a password; every token of that user ends. Others' passwords are set by admins only.
         *
         *     One's own needs the current one beside it, an admin's too: who finds a page left open does not get the account. A
         *     wrong one counts as any wrong password does.
         */
        put: operations["users_set_password"];
        post?: never;
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
         * @description End the token that this request shows. With a password there is nothing to end.
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
         * @description A token for a name and password. A token does not serve: it would never end.
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
    "/livez": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Livez
         * @description The process answers. Nothing else is looked at: a restart would not mend a database.
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
    "/platform/rest/deeplearning/v1/execs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Listing
         * @description The caller's jobs, an admin's everybody's. ``state`` may be several, by commas or repeated.
         *
         *     Without a ``limit`` these are all that there are: the answer is written while they are read, however many.
         */
        get: operations["execs_listing"];
        put?: never;
        /**
         * Submit
         * @description Take a job. When this answers 200, row, arguments and code survive the death of everything.
         *
         *     With an ``Idempotency-Key`` it may be sent again: for a day the same args and upload are answered with the same job.
         *     Of one user a few are taken in at a time; where one waits too long for its turn it is refused, by 429 with
         *     ``Retry-After``.
         */
        post: operations["execs_submit"];
        /**
         * Delete All
         * @description Remove the caller's own jobs, an admin's own too; those that run are stopped. Thousands take some seconds; a
         *     request that is broken off has removed some, and may be sent again.
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
         * @description One job.
         */
        get: operations["execs_get"];
        put?: never;
        post?: never;
        /**
         * Delete
         * @description Remove a job with its logs and results. One that runs is stopped first.
         */
        delete: operations["execs_delete"];
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
         * @description The log, as text or, where JSON is asked for first, as one JSON string.
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
         * @description What the job saved under RESULT_DIR/model, as a zip; while it runs, what there is so far.
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
         * @description Ask for a job's end; one that is over stays as it is.
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
         * @description What ``--exec-start`` may name.
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
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Readyz
         * @description Whether requests are served; 503 where they would fail. A request from the server's own machine is answered with
         *     the reason, too.
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
         * @description How far the reports of each attempt are taken: ``{"edt-7/2": 41}``.
         */
        Acked: {
            /** Acked */
            acked: {
                [key: string]: number;
            };
        };
        /**
         * Allocation
         * @description One slot held by one job for a while.
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
         * @description ``event: hello`` (the stream begins: fetch the lists now), ``reset`` (too much was missed: fetch them anew),
         *     ``beat`` (nothing has happened for a while) and ``bye`` (the credential has ended).
         */
        Beat: {
            /** Now */
            now: number;
        };
        /**
         * Event
         * @description One line of a job's history; ``seq`` runs 1, 2, 3 … without a gap.
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
            verdict: "exact" | "not-compared" | "not-exact";
        };
        /**
         * Exec
         * @description One job as WMLA's clients read it: what three generations of them look at, scalars only.
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
         * @description The six states that clients are shown; a notebook's poller goes on in the first three.
         * @enum {string}
         */
        ExecState: "SUBMITTED" | "PENDING_CRD_SCHEDULER" | "RUNNING" | "FINISHED" | "KILLED" | "ERROR";
        /**
         * Framework
         * @description One entry of ``GET /execs/frameworks``, as WMLA 2.x gives it.
         */
        Framework: {
            /** Appname */
            appName: string;
            /** Backend */
            backend: string;
            /** Deploymode */
            deployMode: string;
            /** Desc */
            desc: string[];
            /** Description */
            description: string;
            /** Distributestrategy */
            distributeStrategy: string;
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
            /** Workermemory */
            workerMemory: string;
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
         * @description What became of having an image ready on one node. Times in seconds since the epoch.
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
         * Job
         * @description One job with all that we know of it.
         */
        Job: {
            /** App Name */
            app_name: string;
            /** Args */
            args: string;
            /** Attempts */
            attempts: number;
            /** Checkpoint Step */
            checkpoint_step: number | null;
            /** Created At */
            created_at: number;
            /** Digest */
            digest: string | null;
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
            /** Id */
            id: string;
            /**
             * Image
             * @default null
             */
            image: string | null;
            /**
             * Max Restarts
             * @default 0
             */
            max_restarts: number;
            /** Max Workers */
            max_workers: number;
            /** Message */
            message: string | null;
            /**
             * Min Workers
             * @default 1
             */
            min_workers: number;
            /** Num Worker */
            num_worker: number;
            /** Owner */
            owner: string;
            /**
             * Owner Removed
             * @default false
             */
            owner_removed: boolean;
            progress: components["schemas"]["Progress"];
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
            /** Seed */
            seed: number;
            /**
             * Share Done
             * @default null
             */
            share_done: number | null;
            /** Slots */
            slots: number;
            /** Started At */
            started_at: number | null;
            state: components["schemas"]["ExecState"];
            /**
             * Status
             * @enum {string}
             */
            status: "submitted" | "waiting" | "starting" | "running" | "stopping" | "finished" | "stopped" | "failed";
            /** Steps Total */
            steps_total: number | null;
            /** Stop Requested At */
            stop_requested_at: number | null;
            /** Threads */
            threads: number;
            waiting: components["schemas"]["Waiting"] | null;
            /** Work Dir */
            work_dir: string;
            /** Worker Device Num */
            worker_device_num: number;
            /** Workers */
            workers: number;
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
         * JobsChanged
         * @description ``event: jobs``: jobs that are new or have changed, and ids of those that are on no list any more.
         */
        JobsChanged: {
            /** Items */
            items: components["schemas"]["Job"][];
            /** Removed */
            removed: string[];
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
         * @description The files of a job's log, the driver's first.
         */
        LogFilePage: {
            /** Items */
            items: components["schemas"]["LogFile"][];
            /** Next */
            next: string | null;
        };
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
         * Me
         * @description Who asks, and what answers.
         */
        Me: {
            /** Name */
            name: string;
            role: components["schemas"]["RoleName"];
            /** Version */
            version: string;
        };
        /**
         * Message
         * @description A sentence.
         */
        Message: {
            /** Message */
            message: string;
        };
        /**
         * Metrics
         * @description The metrics of a training in columns of one length, oldest first; ``step`` only grows.
         *
         *     Of many points these are the ones that keep the shape, the first and the last among them. What an attempt did
         *     beyond the checkpoint from which the next one went on was done again, and is shown once. None: not reported.
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
            /** Workers */
            workers: (number | null)[];
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
         * NewPassword
         * @description A password to be set; it ends every token of its user.
         */
        NewPassword: {
            /** Current Password */
            current_password?: string | null;
            /** Password */
            password: string;
        };
        /**
         * NewSession
         * @description Who signs in. Of any length: a password that is too short to be set is simply wrong.
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
            /** Name */
            name: string;
            /** Registered At */
            registered_at: number;
            /** Seen At */
            seen_at: number;
            /** Slots */
            slots: components["schemas"]["Slot"][];
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
         * NodePage
         * @description Nodes, in the order in which they first came.
         */
        NodePage: {
            /** Items */
            items: components["schemas"]["Node"][];
            /** Next */
            next: string | null;
        };
        /**
         * NodesChanged
         * @description ``event: nodes``: nodes that are new or have changed, and names of those that were removed.
         */
        NodesChanged: {
            /** Items */
            items: components["schemas"]["Node"][];
            /** Removed */
            removed: string[];
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
         * Progress
         * @description How far a training is, by its newest report; empty before the first. None: a number that is none, as of a loss
         *     that has diverged.
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
         * @description What became of an image that a node was asked for.
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
         * Ready
         * @description Answer of ``/readyz``. To a request from the server's own machine it also says what is wrong with each, ``ok``
         *     where nothing is.
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
         * Registered
         * @description What a node gets for registering.
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
         * Resize
         * @description One change of a job's size: what was decided, what woke the agent, when each thing happened.
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
         * @description What a job has saved so far, for who wants to download it.
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
        RoleName: "admin" | "user";
        /**
         * Slot
         * @description One slot of a node, and who holds it.
         */
        Slot: {
            /** Busy */
            busy: boolean;
            /** Device */
            device: string;
            /** Exec Id */
            exec_id: string | null;
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
             * Owner
             * @default null
             */
            owner: string | null;
            /**
             * Power Watts
             * @default null
             */
            power_watts: number | null;
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
         * @description One slot as its agent registers it.
         */
        SlotOffer: {
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
            /** Slot */
            slot: string;
        };
        /**
         * SlotSample
         * @description How busy one slot was since the sample before.
         */
        SlotSample: {
            /** Memory Bytes */
            memory_bytes?: number | null;
            /** Memory Total Bytes */
            memory_total_bytes?: number | null;
            /** Power Watts */
            power_watts?: number | null;
            /** Slot */
            slot: string;
            /** Temperature C */
            temperature_c?: number | null;
            /** Utilisation */
            utilisation: number;
        };
        /**
         * SlotTime
         * @description For how long the jobs of a user have held slots in one day.
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
         * @description Newest day first.
         */
        SlotTimePage: {
            /** Items */
            items: components["schemas"]["SlotTime"][];
            /** Next */
            next: string | null;
        };
        /**
         * SlotUsage
         * @description How busy a slot was, in columns of one length, oldest first.
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
            utilisation: number[];
        };
        /**
         * Timeline
         * @description What overlaps ``since`` to ``until``.
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
         * @description A bar: one slot held by one job for a while.
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
         * @description A mark: an engine that was lost, all of a job on a node that was (then without a slot), or a whole attempt (then
         *     without a node). The stream may send one again: job, time, node and slot identify it.
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
         * @description A mark: one change of a job's size.
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
         * UsageIn
         * @description How busy a node's slots were; its time is that of its arrival.
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
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
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
                /** @description The caller's own, an admin's too. */
                mine?: boolean;
                owner?: string | null;
                /** @description Part of the id, the name that its user gave, the main script, the folder that was sent or the owner, capital or small. */
                q?: string | null;
                /** @description States, commas between them. */
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
    jobs_log: {
        parameters: {
            query?: {
                offset?: number;
                stream?: string;
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
    execs_listing: {
        parameters: {
            query?: {
                limit?: number | null;
                sort_by?: string;
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
        requestBody: {
            content: {
                "multipart/form-data": {
                    /** @description JSON, as WMLA's clients send it beside the file */
                    data?: string;
                    /**
                     * Format: binary
                     * @description tar, gzip, zip or a script
                     */
                    file: string;
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
    execs_log: {
        parameters: {
            query?: {
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
