"""The use cases: one function each. Room: scheduler. The only door for the API.

Most are one transaction. Those that may concern thousands of rows write some of them in each of several, and go on
where they were broken off when they are called again.

The first argument is a ``House`` (``edt_scheduler.house.open_house(Settings())``; ``house.close()`` at the end).
A process that stays also calls ``house.doorbells.start()`` once: then its first ring is as quick as the others.
Functions are synchronous: call them from a thread. They return frozen pictures (``edt_scheduler.views``) and
raise errors of ``edt_scheduler.errors``; both are safe to show. Nothing here waits for a broker.

Jobs (``viewer`` is a UserView; what it may not see does not exist for it: NoSuchJob)
    submit(house, *, owner: UserView, spec: JobSpec, staged: Path, once: Once | None = None) -> JobView
    submitted_before(house, *, owner: UserView, once: Once) -> JobView | None
    job(house, exec_id, *, viewer) -> JobView
    jobs(house, *, viewer, states=None, order=JobOrder(), limit=None) -> Iterator[JobView]     however many
    jobs_page(house, *, viewer, wanted: JobFilter, limit, before=None) -> JobPage      newest first
    stop(house, exec_id, *, viewer) -> JobView          idempotent; terminal jobs stay as they are
    delete(house, exec_id, *, viewer) -> None           stops it where it runs; the folder goes when it is over
    delete_all(house, *, viewer) -> int                 the viewer's own jobs, never another user's; some of
                                                        them in each transaction
    events(house, exec_id, *, viewer, after=0, limit=None) -> list[EventView]
    resizes(house, exec_id, *, viewer, after=0, limit=None) -> list[ResizeView]
    allocations(house, exec_id, *, viewer, after=0, limit=None) -> list[AllocationView]
    course(house, exec_id, *, viewer, points) -> Course
    timeline(house, *, viewer, since=0.0, until=inf) -> Timeline
Changes (of everything: the caller leaves out what its viewer may not see)
    newest_change(house) -> str                         a cursor
    changes_since(house, cursor, *, until=None) -> Changes      CursorTooOld, CursorInvalid
Users and tokens
    add_user(house, name, password_hash, role=Role.USER, *, by=None, once=None) -> UserView
    user(house, name) -> UserView                       NoSuchUser
    users(house, *, limit=None, after=0) -> list[UserView]      by name, behind the one of this id
    set_password(house, user: UserView, password_hash) -> None  revokes the user's tokens; PasswordChanged where
                                                        it is not the one that ``user`` was seen with
    remove_user(house, name) -> None                    their jobs are stopped, some at a time, and stay listed for
                                                        admins; whoever gets the name again owns none of them
    issue_token(house, user: UserView, lifetime_seconds) -> str the secret; only its SHA-256 is stored;
                                                        PasswordChanged as above
    verify_token(house, secret) -> UserView | None
    revoke_token(house, secret) -> None
Nodes
    serves(house) -> bool                               whether the schema is the newest; DatabaseTooNew, Unavailable
    register_node(house, *, name, host, cores, boot_id, incarnation, slots: Sequence[SlotSpec],
                  launcher="process", alone=False) -> Registration
    verify_node_token(house, secret) -> str | None      the node's name
    node(house, name) -> NodeView
    nodes(house, *, limit=None, after=0) -> list[NodeView]
    beat(house) -> None                                 by an API that serves, every few seconds
    usage(house, name, *, since, until, points) -> dict[str, list[UseOverTime]]    by slot
    slot_time(house, *, viewer, before=None, limit) -> SlotTimePage     by user and day
    cordon(house, name) / uncordon(house, name) / drain(house, name) -> NodeView
    remove_node(house, name) -> None                    NodeInUse; a lost one, whose history stays
Images
    images(house, *, limit, after=0) -> list[ImageView]
    allow_image(house, name, *, by: UserView, everywhere: bool) -> ImageView
    forbid_image(house, name) -> None                   NoSuchImage
Agents
    assignments(house, node, *, woken_by="timer") -> NodeAssignments      also the heartbeat
    assignments_version(house, node) -> int             one cheap read, writes nothing: for the long poll.
                                                        It is no heartbeat: hold a poll for 10 s at most (lease: 30 s)
    record_reports(house, node, reports: Sequence[Report]) -> dict[str, int]   {"edt-7/2": 41}: taken up to there
    record_usage(house, node, samples: Sequence[SlotUse]) -> None
    record_pull(house, node, image, error) -> None

What an agent may rely on, and what is relied on of it:

* An attempt stays in the list until its ATTEMPT_ENDED of this node is recorded. Reports are numbered by
  (job, fence, node); known numbers are taken again without effect; behind a gap nothing is taken.
* ``wish.slots`` empty: leave. ``wish.stop``: kill; a supervisor that was never started is answered by the agent's
  own ATTEMPT_ENDED (kind ``stopped``), so that the row goes away.
* ``wish.leaving`` names allocations that were asked back and are not yet reported gone. Each is answered by one
  ENGINE_GONE, also where no process was ever started for it (kind ``left``).
* A node's supervisor of an attempt that has ended gets no slots of the same attempt again.
* ``letter.environ`` holds the job's own variables and the platform's. Of those only the job's own can be a reason
  for a cold start; the platform's PYTHONUNBUFFERED=x is none (have the zygote started with it).
* ``Path(letter.socket).parent`` may not exist: make it, mode 0700.

Doorbells: Celery task ``edt.look`` on queue ``node.<name>``, arguments ``[node name, version]``; the body only
wakes. ``edt_runner.contract`` holds the names and the broker's settings that both sides must share.
"""

from __future__ import annotations

from edt_scheduler.operations.accounts import (
    add_user,
    issue_token,
    remove_user,
    revoke_token,
    set_password,
    user,
    users,
    verify_token,
)
from edt_scheduler.operations.agents import assignments, assignments_version, record_reports
from edt_scheduler.operations.execs import delete, delete_all, job, jobs, jobs_page, stop, submit, submitted_before
from edt_scheduler.operations.feed import changes_since, newest_change
from edt_scheduler.operations.fleet import (
    beat,
    cordon,
    drain,
    node,
    nodes,
    register_node,
    remove_node,
    serves,
    uncordon,
    verify_node_token,
)
from edt_scheduler.operations.history import allocations, course, events, resizes, timeline
from edt_scheduler.operations.images import allow_image, forbid_image, images, record_pull
from edt_scheduler.operations.rollups import slot_time
from edt_scheduler.operations.usage import record_usage, usage

__all__ = [
    "add_user",
    "allocations",
    "allow_image",
    "assignments",
    "assignments_version",
    "beat",
    "changes_since",
    "cordon",
    "course",
    "delete",
    "delete_all",
    "drain",
    "events",
    "forbid_image",
    "images",
    "issue_token",
    "job",
    "jobs",
    "jobs_page",
    "newest_change",
    "node",
    "nodes",
    "record_pull",
    "record_reports",
    "record_usage",
    "register_node",
    "remove_node",
    "remove_user",
    "resizes",
    "revoke_token",
    "serves",
    "set_password",
    "slot_time",
    "stop",
    "submit",
    "submitted_before",
    "timeline",
    "uncordon",
    "usage",
    "user",
    "users",
    "verify_node_token",
    "verify_token",
]
