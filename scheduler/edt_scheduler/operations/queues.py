"""Use cases of queues: their tree, what each gets and who waits there; and of a job's bounds and priority.

A job belongs to the queue that it asked for, or, if there is no such queue, to the nearest one above it. So nobody
gains by naming queues that there are not, and the jobs of a queue that is removed belong to its parent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row

from edt_scheduler.attempts import wishes
from edt_scheduler.decide.snapshot import Snapshot, present
from edt_scheduler.errors import NoSuchQueue, QueueInUse, QueueInvalid
from edt_scheduler.model.jobs import folder_sent, job_number
from edt_scheduler.model.queues import MOST_SLOTS, MOST_WEIGHT, canonical, fault
from edt_scheduler.model.states import Health
from edt_scheduler.operations.execs import changeable
from edt_scheduler.operations.queue_views import QueueOthers, QueueTree, QueueUser, QueueView, WaitingInQueue
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.queues import Queue, Sharing, above, parent
from edt_scheduler.plan.sizes import sizes_of
from edt_scheduler.plan.state import Job, Phase, Plan
from edt_scheduler.platform import Platform
from edt_scheduler.store import jobs as job_store
from edt_scheduler.store import outbox, to_views
from edt_scheduler.store import queues as store
from edt_scheduler.store.database import retried
from edt_scheduler.views import JobView, UserView

MOST_WAITING = 20
"""So many waiting jobs of a queue are named."""
_HOUR = 3600.0


def queues(platform: Platform, *, viewer: UserView) -> QueueTree:
    """All queues, as the scheduler sees them now. What belongs to users whom the viewer may not see is only counted."""
    snapshot = present(platform)
    decided = plan(snapshot.state)
    sees = (lambda _: True) if viewer.sees_all else (lambda user: bool(user == viewer.name))
    own = _Own(snapshot, decided, sees)
    with platform.database.snapshot() as tx:
        numbers = [job_number(name) or 0 for each in own.waiting.values() for name in each]
        shown = {row.id: row for row in job_store.in_short(tx, numbers)}
    paths = sorted({"", *(queue.id for queue in snapshot.state.queues)}, key=lambda path: path.split("/"))
    known = {queue.id: queue for queue in snapshot.state.queues}
    up = [node for node in snapshot.state.nodes if node.health is Health.UP]
    return QueueTree(
        at=snapshot.state.now,
        slots=sum(node.slots for node in up),
        used=sum(job.used.total() for job in snapshot.state.jobs),
        queues=tuple(own.view(known.get(path, Queue(path)), shown) for path in paths),
    )


def paths(platform: Platform) -> frozenset[str]:
    """The paths of all queues. The root, "", is always among them."""
    with platform.database.snapshot() as tx:
        return frozenset({"", *(row.path for row in store.every(tx))})


@retried(if_done=True)
def put_queue(
    platform: Platform,
    path: str,
    *,
    quota: int | None = None,
    weight: float | None = None,
    limit: int | None = None,
    unlimited: bool = False,
    policy: Sharing | None = None,
) -> QueueView:
    """Make a queue, or change one. What is None stays as it is; a new queue has no quota, no limit and the weight 1.

    Args:
        platform: The open platform.
        path: The queue's path; "" or ``/``: the root, which is always there.
        quota: Slots that it has before anything is divided by weight.
        weight: Its share beside its siblings, above 0.
        limit: The most slots that its jobs hold together.
        unlimited: Takes the limit away.
        policy: How its jobs share what it has.

    Returns:
        The queue with its settings. The fields about its jobs are 0 and empty: ``queues`` has them.

    Raises:
        QueueInvalid: There can be no such queue, its parent is not there, or a number is out of its bounds.
    """
    path = canonical(path)
    _check(path, quota, weight, limit, unlimited=unlimited)
    with platform.database.transaction() as tx:
        if path and parent(path) and store.find(tx, parent(path)) is None:
            raise QueueInvalid("path", f"there is no queue {parent(path)} above {path}: make it first")
        row = store.find(tx, path)
        before = _queue(row) if row is not None else Queue(path)
        after = replace(
            before,
            quota=before.quota if quota is None else quota,
            weight=before.weight if weight is None else weight,
            limit=None if unlimited else before.limit if limit is None else limit,
            policy=before.policy if policy is None else policy,
        )
        if after.limit is not None and after.quota > after.limit:
            raise QueueInvalid(
                "quota", f"got {after.quota}, takes at most the limit of {path or 'the root'}, {after.limit}"
            )
        now = platform.clock()
        values = {"quota": after.quota, "weight": after.weight, "limit": after.limit, "policy": after.policy}
        store.put(tx, path, now, **values)
        outbox.put_scheduler(tx, now)
    platform.notifier.notify()
    return QueueView(
        path, after.quota, after.weight, after.limit, after.policy, 0, 0, 0, 0, 0, 0.0, (), QueueOthers(), ()
    )


def _check(path: str, quota: int | None, weight: float | None, limit: int | None, *, unlimited: bool) -> None:
    if (wrong := fault(path)) is not None:
        raise QueueInvalid("path", wrong)
    for name, number in (("quota", quota), ("limit", limit)):
        if number is not None and not 0 <= number <= MOST_SLOTS:
            raise QueueInvalid(name, f"got {number}, takes a whole number of slots from 0 to {MOST_SLOTS}")
    if weight is not None and not 0 < weight <= MOST_WEIGHT:
        raise QueueInvalid("weight", f"got {weight:g}, takes a number above 0 and up to {MOST_WEIGHT:g}")
    if unlimited and limit is not None:
        raise QueueInvalid("limit", f"got {limit} and none at once, takes one of the two")


@retried(if_done=True)
def remove_queue(platform: Platform, path: str) -> None:
    """Remove a queue. Its jobs and what its users have used belong to its parent from then on. The root only gets its
    first settings back.

    Raises:
        NoSuchQueue: There is no queue of this path.
        QueueInUse: There are queues below it.
    """
    path = canonical(path)
    with platform.database.transaction() as tx:
        if path and store.find(tx, path) is None:
            raise NoSuchQueue(path)
        below = [row.path for row in store.every(tx) if path and path in above(row.path)[1:]]
        if below:
            raise QueueInUse(path, below[0])
        now = platform.clock()
        store.remove(tx, path, parent(path), platform.settings.usage_half_life_hours * _HOUR, now)
        outbox.put_scheduler(tx, now)
    platform.notifier.notify()


def resize(
    platform: Platform, exec_id: str, *, viewer: UserView, min_slots: int | None = None, max_slots: int | None = None
) -> JobView:
    """Change the fewest and the most slots of a job that waits or runs. None: it stays as it is.

    Raises:
        NoSuchJob, NotTheOwner: As for ``lives.pause``.
        JobOver: The job is over.
        SizeInvalid: ``field`` is ``min`` or ``max``, which the job cannot have.
        NotNow: The job is a gang, is being stopped, or has just ended its training.
    """

    def change(tx: Connection, row: Row[Any], now: float) -> None:
        wishes.resize(tx, row, min_slots, max_slots, viewer.name, now)

    return _changed(platform, exec_id, viewer, change)


def set_priority(platform: Platform, exec_id: str, priority: int, *, viewer: UserView) -> JobView:
    """Change the priority of a job that waits or runs. Its owner may set at most that with which it was submitted.

    Raises:
        NoSuchJob, NotTheOwner: As for ``lives.pause``.
        JobOver: The job is over.
        PriorityInvalid: It is no priority, or higher than this viewer may set.
    """

    def change(tx: Connection, row: Row[Any], now: float) -> None:
        wishes.set_priority(tx, row, priority, viewer.name, now, unlimited=viewer.is_admin)

    return _changed(platform, exec_id, viewer, change)


def change_job(
    platform: Platform,
    exec_id: str,
    *,
    viewer: UserView,
    min_slots: int | None = None,
    max_slots: int | None = None,
    priority: int | None = None,
) -> JobView:
    """``resize`` and ``set_priority`` at once: all of it is changed, or nothing. None: it stays as it is.

    Raises:
        NoSuchJob, NotTheOwner, JobOver, SizeInvalid, NotNow, PriorityInvalid: As these two do.
    """

    def change(tx: Connection, row: Row[Any], now: float) -> None:
        if min_slots is not None or max_slots is not None:
            wishes.resize(tx, row, min_slots, max_slots, viewer.name, now)
        if priority is not None:
            wishes.set_priority(tx, row, priority, viewer.name, now, unlimited=viewer.is_admin)

    return _changed(platform, exec_id, viewer, change)


@retried(if_done=True)
def _changed(
    platform: Platform, name: str, viewer: UserView, change: Callable[[Connection, Row[Any], float], None]
) -> JobView:
    with platform.database.transaction() as tx:
        row = changeable(tx, name, viewer)
        change(tx, row, platform.clock())
        (view,) = to_views.jobs(tx, platform.settings, [job_store.get(tx, row.id)])
    platform.notifier.notify()
    return view


def _queue(row: Row[Any]) -> Queue:
    return Queue(row.path, row.quota, row.weight, row.limit, policy=Sharing(row.policy))


class _Own:
    """What the jobs of each queue itself hold and wait for, and what its users have used."""

    def __init__(self, snapshot: Snapshot, decided: Plan, sees: Callable[[str], bool]) -> None:
        self._plan = decided
        self._sees = sees
        self._users: dict[str, dict[str, QueueUser]] = defaultdict(dict)
        self._demand: dict[str, int] = defaultdict(int)
        self._jobs = {job.id: job for job in snapshot.state.jobs}
        self.waiting: dict[str, list[str]] = defaultdict(list)
        """Queue to the jobs that wait there and that the viewer may see, the next first."""
        for (queue, user), used in snapshot.state.usage.items():
            self._count(queue, user, usage=used)
        for job in snapshot.state.jobs:
            held = job.used.total()
            ended = job.phase is Phase.ENDING
            self._count(
                job.queue,
                job.user,
                entitled=decided.explain[job.id].entitled,
                held=held,
                running=int(held > 0),
                waiting=int(not held and not ended),
            )
            self._demand[job.queue] += 0 if ended else sizes_of(job)[-1]
        self._wait()

    def _wait(self) -> None:
        waits = sorted(
            (explained.rank or len(self._jobs) + 1, self._jobs[name].submit, name)
            for name, explained in self._plan.explain.items()
            if self._jobs[name].phase is Phase.WAITING
            and self._sees(self._jobs[name].user)
            and not self._plan.alloc[name]
        )
        for _, _, name in waits:
            names = self.waiting[self._jobs[name].queue]
            if len(names) < MOST_WAITING:
                names.append(name)

    def _count(self, queue: str, user: str, entitled: int = 0, usage: float = 0.0, **more: int) -> None:
        known = self._users[queue].get(user) or QueueUser(user, 0, 0, 0, 0, 0.0)
        sums = {name: getattr(known, name) + number for name, number in more.items()}
        self._users[queue][user] = replace(
            known, entitled=max(known.entitled, entitled), usage=known.usage + usage, **sums
        )

    def view(self, queue: Queue, rows: Mapping[int, Row[Any]]) -> QueueView:
        """The view of a queue. ``rows``: number to the row of each job in ``waiting``."""
        inside = [path for path in self._users if path == queue.id or not queue.id or queue.id in above(path)]
        all_users = [user for path in inside for user in self._users[path].values()]
        here = sorted(self._users[queue.id].values(), key=lambda user: (-user.held, user.user))
        return QueueView(
            path=queue.id,
            quota=queue.quota,
            weight=queue.weight,
            limit=queue.limit,
            policy=queue.policy,
            used=sum(user.held for user in all_users),
            entitled=sum(user.entitled for user in all_users),
            demand=sum(self._demand[path] for path in inside),
            running=sum(user.running for user in all_users),
            waiting=sum(user.waiting for user in all_users),
            usage=sum(user.usage for user in all_users),
            users=tuple(user for user in here if self._sees(user.user)),
            others=_together([user for user in here if not self._sees(user.user)]),
            waiting_jobs=tuple(
                self._waiting(self._jobs[name], rows[job_number(name) or 0])
                for name in self.waiting[queue.id]
                if job_number(name) in rows
            ),
        )

    def _waiting(self, job: Job, row: Row[Any]) -> WaitingInQueue:
        explained = self._plan.explain[job.id]
        return WaitingInQueue(
            exec_id=job.id,
            owner=row.owner,
            app_name=row.app_name,
            framework=row.framework,
            script=row.model_main,
            folder=folder_sent(row.work_dir),
            command=to_views.users_command(row),
            priority=job.priority,
            need=explained.need,
            most=job.max,
            rank=explained.rank,
            blocking=explained.blocking,
            reason=explained.reason,
            since=job.submitted,
        )


def _together(users: Sequence[QueueUser]) -> QueueOthers:
    return QueueOthers(
        users=len(users),
        entitled=sum(user.entitled for user in users),
        held=sum(user.held for user in users),
        running=sum(user.running for user in users),
        waiting=sum(user.waiting for user in users),
        usage=sum(user.usage for user in users),
    )
