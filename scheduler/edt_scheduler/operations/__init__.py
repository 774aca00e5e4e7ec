"""The use cases: one function for each, in modules by subject. The API calls no other part of the scheduler.

Most use cases are one transaction. A use case that may concern thousands of rows writes them in several transactions.
If it is interrupted, the next call continues where it stopped.

The first argument is a ``Platform`` (``edt_scheduler.platform.open_platform(Settings())``). Call ``platform.close()``
at the end. A process that keeps running also calls ``platform.notifier.start()`` once, so that its first notification
is as fast as later ones. Functions are synchronous: call them from a thread. They return frozen views
(``edt_scheduler.views``) and raise errors of ``edt_scheduler.errors``. Both are safe to show. No function waits for a
broker.

``execs``: jobs (``viewer`` is a UserView; a job that the viewer may not see raises NoSuchJob)
    submit(platform, *, owner: UserView, spec: JobSpec, staged: Path, request=None) -> JobView
    submitted_before(platform, *, owner: UserView, request: IdempotentRequest) -> JobView | None
    job(platform, exec_id, *, viewer) -> JobView
    jobs(platform, *, viewer, states=None, only=None, app_name=None, text=None, order=JobOrder(), start=0,
         limit=None)
        -> Iterator[JobView]                               all, however many; IndexOutOfRange
    jobs_page(platform, *, viewer, wanted: JobFilter, limit, before=None) -> JobPage      newest first
    stop(platform, exec_id, *, viewer) -> JobView          idempotent; terminal jobs stay as they are
    delete(platform, exec_id, *, viewer) -> None           stops a running job; removes its folder after its end
    delete_all(platform, *, viewer) -> int                 the viewer's own jobs, never another user's; some of
                                                        them in each transaction
``lives``: a job's life beyond one run
    pause(platform, exec_id, *, viewer) -> JobView         JobOver, NotNow
    go_on(platform, exec_id, *, viewer) -> JobView         a paused job; JobOver, NotNow
    extend(platform, exec_id, *, epochs, viewer) -> JobView        JobOver, EpochsInvalid, NotNow
    stage_checkpoint(platform, name, *, backend, viewer, staged) -> Begin       for a new job; SubmissionInvalid
    as_new_job(platform, name, *, epochs, environ, viewer, staged) -> Resubmission      of a job that is over
``history``: what happened to a job, and which job held which slot
    events(platform, exec_id, *, viewer, after=0, limit=None) -> list[EventView]
    resizes(platform, exec_id, *, viewer, after=0, limit=None) -> list[ResizeView]
    allocations(platform, exec_id, *, viewer, after=0, limit=None) -> list[AllocationView]
    processes(platform, jobs) -> dict[str, ProcessesView]  by exec id; the viewer may see these jobs
    curve(platform, exec_id, *, viewer, points) -> Curve
    timeline(platform, *, viewer, since=0.0, until=inf) -> Timeline
    slot_time(platform, *, viewer, before=None, limit) -> SlotTimePage     by user and day
  and what has changed in all of these: the caller removes what its viewer may not see
    newest_change(platform) -> str                         a cursor
    changes_since(platform, cursor, *, until=None) -> Changes      CursorTooOld, CursorInvalid
``accounts``: users and tokens
    add_user(platform, name, password_hash, role=Role.USER, *, by=None, request=None) -> UserView
    user(platform, name) -> UserView                       NoSuchUser
    users(platform, *, limit=None, after=0) -> list[UserView]      by name, behind the user with the id ``after``
    set_password(platform, user: UserView, password_hash) -> None  ends all tokens of the user; PasswordChanged if
                                                        the password has changed since ``user`` was read
    remove_user(platform, name) -> None                    stops their jobs, some at a time; admins still see
                                                        these jobs; a new user of this name owns none of them
    add_token(platform, user: UserView, secret, expires_at) -> None    only its SHA-256 is stored; PasswordChanged
                                                        as above
    verify_token(platform, secret) -> UserView | None
    revoke_token(platform, secret) -> None
``api_tokens``: tokens that users make for their programs
    create(platform, user: UserView, *, name, scope: Scope, secret, expires_at) -> ApiTokenView
    tokens_of(platform, user: UserView, *, limit=None, after=0) -> list[ApiTokenView]
    revoke(platform, number, *, by: UserView) -> ApiTokenView      NoSuchToken
    verify(platform, secret) -> TokenUser | None           the user, with the token's scope
    record_uses(platform, times: Mapping[int, float]) -> None
``fleet``: nodes
    serves(platform) -> bool                               whether the schema is the newest; DatabaseTooNew, Unavailable
    register_node(platform, *, name, host, cores, boot_id, incarnation, slots: Sequence[SlotSpec],
                  launcher="process", alone=False) -> Registration
    verify_node_token(platform, secret) -> str | None      the node's name
    node(platform, name) -> NodeView
    nodes(platform, *, limit=None, after=0) -> list[NodeView]
    beat(platform) -> None                                 a serving API calls this every few seconds
    usage(platform, node, *, since, until, points) -> dict[str, list[UseOverTime]]    by slot
    cordon(platform, name) / uncordon(platform, name) / drain(platform, name) -> NodeView
    remove_node(platform, name) -> None                    a lost node, whose history stays; NodeInUse
``images``: container images
    images(platform, *, limit, after=0) -> list[ImageView]
    allow_image(platform, name, *, by: UserView, everywhere: bool) -> ImageView
    forbid_image(platform, name) -> None                   NoSuchImage
    record_pull(platform, node, image, error) -> None
``frameworks``: the framework catalogue
    find(platform, name) -> Framework | None               for a job that names it
    frameworks(platform) -> list[FrameworkView]            the built-in entries and the added ones
    add_framework(platform, entry: Mapping, *, by: UserView) -> FrameworkView      or replace; FrameworkInvalid
    remove_framework(platform, name) -> None               NoSuchFramework
``queues``: the tree of queues, and the bounds and priority of a job that waits or runs (views: ``queue_views``)
    queues(platform, *, viewer) -> QueueTree               made from the present plan: takes some tenths of a second
                                                        where thousands of jobs wait
    put_queue(platform, path, *, quota=None, weight=None, limit=None, unlimited=False, policy=None) -> QueueView
                                                        QueueInvalid
    remove_queue(platform, path) -> None                   its jobs belong to its parent; NoSuchQueue, QueueInUse
    resize(platform, exec_id, *, viewer, min_slots=None, max_slots=None) -> JobView    JobOver, SizeInvalid, NotNow
    set_priority(platform, exec_id, priority, *, viewer) -> JobView                    JobOver, PriorityInvalid
``decisions``: what was decided lately
    decisions(platform, *, limit, before=None, job=None) -> DecisionPage      newest first
    decision(platform, number) -> RecordedDecision         decided again, too; NoSuchDecision
``agents``: what agents ask and report
    assignments(platform, node, *, woken_by="timer") -> NodeAssignments      also the heartbeat
    assignments_version(platform, node) -> int             one cheap read for the long poll; writes nothing.
                                                        It is no heartbeat: hold a poll for 10 s at most (lease: 30 s)
    record_reports(platform, node, reports: Sequence[Report]) -> dict[str, int]   {"edt-7/2": 41}: taken up to there
    record_usage(platform, node, samples: Sequence[SlotUse]) -> None

What the platform guarantees to an agent, and what it expects of the agent:

* An attempt stays in the list until this node's ATTEMPT_ENDED for it is recorded. Reports are numbered by (job, fence,
  node). A known number is accepted again without effect. After a gap no report is taken.
* If ``desired.slots`` is empty, the supervisor leaves. If ``desired.stop`` is set, the agent kills it. For a supervisor
  that was never started the agent sends its own ATTEMPT_ENDED (kind ``stopped``), so that the row goes away.
* ``desired.leaving`` names allocations that were asked back and are not yet reported gone. The node answers each with
  one ENGINE_GONE, also if no process was ever started for it (kind ``left``).
* A node's supervisor of an attempt that has ended gets no slots of the same attempt again.
* ``spec.environ`` holds the job's own variables and the platform's. Only the job's own variables can be a reason for a
  cold start. The platform's PYTHONUNBUFFERED=x is no such reason: start the fork server with it.
* ``Path(spec.socket).parent`` may not exist: make it with mode 0700.

Notifications are Celery tasks ``edt.assignments_changed`` on the queue ``node.<name>`` with the arguments ``[node name,
version]``. The agent only wakes up and does not use the body. ``edt_contract.broker`` holds the names and the broker's
settings that both sides share.
"""
