"""The use cases: one function each, in modules by what they are about. The only part that the API calls.

Most are one transaction. Those that may concern thousands of rows write some of them in each of several, and go on
where they were broken off when they are called again.

The first argument is a ``Platform`` (``edt_scheduler.platform.open_platform(Settings())``; at the end
``platform.close()``).
A process that stays also calls ``platform.notifier.start()`` once: then its first notification is as quick as others.
Functions are synchronous: call them from a thread. They return frozen views (``edt_scheduler.views``) and
raise errors of ``edt_scheduler.errors``; both are safe to show. Nothing here waits for a broker.

``execs``: jobs (``viewer`` is a UserView; what it may not see does not exist for it: NoSuchJob)
    submit(platform, *, owner: UserView, spec: JobSpec, staged: Path, request=None) -> JobView
    submitted_before(platform, *, owner: UserView, request: IdempotentRequest) -> JobView | None
    job(platform, exec_id, *, viewer) -> JobView
    jobs(platform, *, viewer, states=None, order=JobOrder(), limit=None) -> Iterator[JobView]     however many
    jobs_page(platform, *, viewer, wanted: JobFilter, limit, before=None) -> JobPage      newest first
    stop(platform, exec_id, *, viewer) -> JobView          idempotent; terminal jobs stay as they are
    delete(platform, exec_id, *, viewer) -> None           stops it where it runs; the folder goes when it is over
    delete_all(platform, *, viewer) -> int                 the viewer's own jobs, never another user's; some of
                                                        them in each transaction
``history``: what happened to a job, and who held which slot
    events(platform, exec_id, *, viewer, after=0, limit=None) -> list[EventView]
    resizes(platform, exec_id, *, viewer, after=0, limit=None) -> list[ResizeView]
    allocations(platform, exec_id, *, viewer, after=0, limit=None) -> list[AllocationView]
    curve(platform, exec_id, *, viewer, points) -> Curve
    timeline(platform, *, viewer, since=0.0, until=inf) -> Timeline
    slot_time(platform, *, viewer, before=None, limit) -> SlotTimePage     by user and day
  and what has changed of everything: the caller leaves out what its viewer may not see
    newest_change(platform) -> str                         a cursor
    changes_since(platform, cursor, *, until=None) -> Changes      CursorTooOld, CursorInvalid
``accounts``: users and tokens
    add_user(platform, name, password_hash, role=Role.USER, *, by=None, request=None) -> UserView
    user(platform, name) -> UserView                       NoSuchUser
    users(platform, *, limit=None, after=0) -> list[UserView]      by name, behind the one of this id
    set_password(platform, user: UserView, password_hash) -> None  revokes the user's tokens; PasswordChanged where
                                                        it is not the one that ``user`` was seen with
    remove_user(platform, name) -> None                    their jobs are stopped, some at a time, and stay listed for
                                                        admins; whoever gets the name again owns none of them
    issue_token(platform, user: UserView, lifetime_seconds) -> str the secret; only its SHA-256 is stored;
                                                        PasswordChanged as above
    verify_token(platform, secret) -> UserView | None
    revoke_token(platform, secret) -> None
``fleet``: nodes
    serves(platform) -> bool                               whether the schema is the newest; DatabaseTooNew, Unavailable
    register_node(platform, *, name, host, cores, boot_id, incarnation, slots: Sequence[SlotSpec],
                  launcher="process", alone=False) -> Registration
    verify_node_token(platform, secret) -> str | None      the node's name
    node(platform, name) -> NodeView
    nodes(platform, *, limit=None, after=0) -> list[NodeView]
    beat(platform) -> None                                 by an API that serves, every few seconds
    usage(platform, name, *, since, until, points) -> dict[str, list[UseOverTime]]    by slot
    cordon(platform, name) / uncordon(platform, name) / drain(platform, name) -> NodeView
    remove_node(platform, name) -> None                    NodeInUse; a lost one, whose history stays
``images``: container images
    images(platform, *, limit, after=0) -> list[ImageView]
    allow_image(platform, name, *, by: UserView, everywhere: bool) -> ImageView
    forbid_image(platform, name) -> None                   NoSuchImage
    record_pull(platform, node, image, error) -> None
``agents``: what agents ask and report
    assignments(platform, node, *, woken_by="timer") -> NodeAssignments      also the heartbeat
    assignments_version(platform, node) -> int             one cheap read, writes nothing: for the long poll.
                                                        It is no heartbeat: hold a poll for 10 s at most (lease: 30 s)
    record_reports(platform, node, reports: Sequence[Report]) -> dict[str, int]   {"edt-7/2": 41}: taken up to there
    record_usage(platform, node, samples: Sequence[SlotUse]) -> None

What an agent may rely on, and what is relied on of it:

* An attempt stays in the list until its ATTEMPT_ENDED of this node is recorded. Reports are numbered by
  (job, fence, node); known numbers are taken again without effect; behind a gap nothing is taken.
* ``desired.slots`` empty: leave. ``desired.stop``: kill; a supervisor that was never started is answered by the agent's
  own ATTEMPT_ENDED (kind ``stopped``), so that the row goes away.
* ``desired.leaving`` names allocations that were asked back and are not yet reported gone. Each is answered by one
  ENGINE_GONE, also where no process was ever started for it (kind ``left``).
* A node's supervisor of an attempt that has ended gets no slots of the same attempt again.
* ``spec.environ`` holds the job's own variables and the platform's. Of those only the job's own can be a reason
  for a cold start; the platform's PYTHONUNBUFFERED=x is none (have the zygote started with it).
* ``Path(spec.socket).parent`` may not exist: make it, mode 0700.

Notifications: Celery task ``edt.assignments_changed`` on queue ``node.<name>``, arguments ``[node name, version]``; the
body only wakes. ``edt_contract.broker`` holds the names and the broker's settings that both sides must share.
"""
