"""Use cases of a job: submit, look, stop, delete."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row

from edt_scheduler.attempts import lifecycle
from edt_scheduler.errors import (
    IndexOutOfRange,
    NoSuchJob,
    NotTheOwner,
)
from edt_scheduler.model.idempotency import IdempotentRequest
from edt_scheduler.model.jobs import (
    JobFilter,
    JobOrder,
    JobSpec,
    job_number,
)
from edt_scheduler.model.states import JobState
from edt_scheduler.operations.submitting import StagedSubmission, submit_all
from edt_scheduler.platform import Platform
from edt_scheduler.store import idempotency, outbox, to_views
from edt_scheduler.store import jobs as store
from edt_scheduler.store import users as user_store
from edt_scheduler.store.database import in_batches, retried
from edt_scheduler.views import JobPage, JobView, UserView

READ_AT_ONCE = 1000
"""Number of jobs of a long list that are in memory at a time."""
DELETED_AT_ONCE, STOPPED_AT_ONCE = 500, 50
"""How many jobs one transaction deletes, and how many of these it stops. Each of the two takes about ten milliseconds
under the writer's lock.
"""


def submit(
    platform: Platform, *, owner: UserView, spec: JobSpec, staged: Path, request: IdempotentRequest | None = None
) -> JobView:
    """Take a job: ``submit_all`` for a single submission. Returns the job, or raises why there is none."""
    (found,) = submit_all(platform, [StagedSubmission(owner, spec, staged, request)])
    if isinstance(found, Exception):
        raise found
    return found


def submitted_before(platform: Platform, *, owner: UserView, request: IdempotentRequest) -> JobView | None:
    """The job that this request made when it came before; None: it comes for the first time.

    Raises:
        KeyReused: The Idempotency-Key came before with another request.
    """
    with platform.database.snapshot() as tx:
        user = user_store.get(tx, owner.id)
        made = idempotency.made(tx, user.id, request, platform.clock()) if user is not None else None
        return _made(tx, platform, made) if made is not None else None


def _made(tx: Connection, platform: Platform, made: str) -> JobView:
    (view,) = to_views.jobs(tx, platform.settings, [store.get(tx, job_number(made) or 0)])
    return view


def job(platform: Platform, exec_id: str, *, viewer: UserView) -> JobView:
    """One job. Raises NoSuchJob if the viewer may not see it."""
    with platform.database.snapshot() as tx:
        return to_views.jobs(tx, platform.settings, [visible(tx, exec_id, viewer)])[0]


def jobs(
    platform: Platform,
    *,
    viewer: UserView,
    states: Collection[JobState] | None = None,
    only: str | None = None,
    app_name: str | None = None,
    text: str | None = None,
    order: JobOrder = JobOrder(),  # noqa: B008 - frozen
    start: int = 0,
    limit: int | None = None,
) -> Iterator[JobView]:
    """The jobs that the viewer may see, read batch by batch.

    Args:
        platform: The open platform.
        viewer: The user who asks.
        states: The wanted states; None: all.
        only: The wanted job's exec id; None: all jobs. No job has an id that is no exec id.
        app_name: The wanted name, as WMLA's clients get it; None: all names.
        text: A text to search for, as in JobFilter; None: no search.
        order: How the list is sorted.
        start: Number of jobs at the head of the list to leave out.
        limit: The most jobs to return; None: all.

    Raises:
        IndexOutOfRange: ``start`` is not 0, and the list has no job there. Raised with the first job.

    The numbers of the jobs and their order are read once, at eight bytes per job. Then each batch is read in its own
    snapshot when the caller asks for it, so a slow reader holds no connection. Each job comes once, as it is when its
    batch is read. A job that is submitted meanwhile is left out. So is a job that was deleted, or left the wanted
    ``states``, before its batch is read.
    """
    wanted = JobFilter(
        number=None if only is None else job_number(only) or 0,
        owner_id=_seen_by(viewer),
        states=frozenset(states) if states is not None else None,
        app_name=app_name,
        text=text,
    )
    with platform.database.snapshot() as tx:
        numbers = store.sorted_numbers(tx, wanted, order, limit, start)
        if start and not numbers:
            raise IndexOutOfRange(start, store.count(tx, wanted))
    for begin in range(0, len(numbers), READ_AT_ONCE):
        with platform.database.snapshot() as tx:
            rows = store.still_listed(tx, numbers[begin : begin + READ_AT_ONCE], states)
            found = to_views.jobs(tx, platform.settings, rows)
        yield from found


def jobs_page(
    platform: Platform, *, viewer: UserView, wanted: JobFilter, limit: int, before: int | None = None
) -> JobPage:
    """At most ``limit`` of the viewer's jobs that match the filter, newest first, with numbers below ``before``.

    Whoever sees all jobs and filters by an owner's name gets the jobs of all users who have ever had this name. Any
    other user who filters by another user's name gets no jobs.
    """
    if not viewer.sees_all:
        if wanted.owner not in {None, viewer.name}:
            return JobPage((), None, 0)
        wanted = replace(wanted, owner=None, owner_id=viewer.id)
    with platform.database.snapshot() as tx:
        rows = store.page(tx, wanted, limit + 1, before)
        found = to_views.jobs(tx, platform.settings, rows[:limit])
        return JobPage(tuple(found), rows[limit - 1].id if len(rows) > limit else None, store.count(tx, wanted))


@retried(if_done=True)
def stop(platform: Platform, exec_id: str, *, viewer: UserView) -> JobView:
    """Ask a job to end. The job becomes KILLED at once if no process of it runs, otherwise when its last process is
    gone.

    Raises:
        NoSuchJob: The viewer may see no job of this id.
        NotTheOwner: The viewer may see the job, but not change it.
    """
    with platform.database.transaction() as tx:
        row = changeable(tx, exec_id, viewer)
        lifecycle.stop(tx, row, platform.clock())
        (view,) = to_views.jobs(tx, platform.settings, [store.get(tx, row.id)])
    platform.notifier.notify()
    return view


@retried(if_done=True)
def delete(platform: Platform, exec_id: str, *, viewer: UserView) -> None:
    """Take a job off the lists for good. A running job is stopped. Its folder is removed once the job is over.

    Raises:
        NoSuchJob: The viewer may see no job of this id.
        NotTheOwner: The viewer may see the job, but not change it.
    """
    with platform.database.transaction() as tx:
        _delete(tx, [changeable(tx, exec_id, viewer)], platform.clock())
    platform.notifier.notify()


def delete_all(platform: Platform, *, viewer: UserView) -> int:
    """Delete all jobs that the viewer owns at this moment. An admin, too, deletes only their own jobs.

    Each transaction deletes some of them, so that other writers need not wait for all. An interrupted call has deleted
    the oldest jobs, and the next call continues.

    Returns:
        The number of deleted jobs.
    """
    with platform.database.snapshot() as tx:
        newest = store.newest_number(tx)
    after = gone = 0
    while deleted := _delete_some(platform, viewer, after, newest):
        after, gone = deleted[-1], gone + len(deleted)
        platform.notifier.notify()
    return gone


def _delete_some(platform: Platform, viewer: UserView, after: int, until: int) -> list[int]:
    """Delete the next of the viewer's own jobs in one transaction. Returns their numbers; empty: no job is left."""
    with platform.database.snapshot() as tx:
        rows = _short(store.own(tx, viewer.id, after=after, until=until, limit=DELETED_AT_ONCE))
    numbers = [row.id for row in rows]
    if numbers:
        _delete_these(platform, viewer, numbers)
    return numbers


@retried(if_done=True)
def _delete_these(platform: Platform, viewer: UserView, numbers: Sequence[int]) -> None:
    """Delete these of the viewer's own jobs, in order, except jobs that are deleted already.

    The jobs are named by number, so that a try after an unknown outcome deletes no other jobs.
    """
    first, last = numbers[0], numbers[-1]
    with platform.database.transaction() as tx:
        wanted = set(numbers)
        rows = store.own(tx, viewer.id, after=first - 1, until=last, limit=last - first + 1)
        _delete(tx, [row for row in rows if row.id in wanted], platform.clock())


def stop_jobs_of_removed_users(platform: Platform) -> int:
    """Stop the jobs of removed users, some in each transaction.

    Returns:
        The number of jobs that were asked to stop. If this takes too long, the next call stops the rest.
    """

    @retried(if_done=True)
    def stop_some() -> int:
        with platform.database.snapshot() as tx:
            if not store.of_removed_users(tx, 1):
                return 0
        with platform.database.transaction() as tx:
            rows, now = store.of_removed_users(tx, STOPPED_AT_ONCE), platform.clock()
            for row in rows:
                lifecycle.stop(tx, row, now)
            outbox.put_scheduler(tx, now)
        platform.notifier.notify()
        return len(rows)

    return in_batches(stop_some)


def end_never_started_jobs(platform: Platform) -> int:
    """End jobs that no slot was given to within their ``--msd-pending-timeout``, some in each transaction. They end as
    ERROR: WMLA's clients take that for a job that could not be started, and KILLED for one that a user has stopped.

    Returns:
        The number of jobs that were ended. If this takes too long, the next call ends the rest.
    """

    @retried(if_done=True)
    def end_some() -> int:
        with platform.database.snapshot() as tx:
            if not store.never_started_in_time(tx, platform.clock(), 1):
                return 0
        with platform.database.transaction() as tx:
            now = platform.clock()
            rows = store.never_started_in_time(tx, now, STOPPED_AT_ONCE)
            for row in rows:
                why = f"it has not started within the {row.pending_timeout} s of --msd-pending-timeout"
                lifecycle.conclude(tx, row, JobState.ERROR, why, why, now)
            outbox.put_scheduler(tx, now)
        platform.notifier.notify()
        return len(rows)

    return in_batches(end_some)


def _short(rows: Sequence[Row[Any]]) -> Sequence[Row[Any]]:
    """The first of these rows, only as many as one transaction can delete quickly.

    Stopping a job that is not over takes ten times as long as deleting a job that is over.
    """
    stopped = 0
    for index, row in enumerate(rows):
        stopped += not JobState(row.state).terminal
        if stopped == STOPPED_AT_ONCE:
            return rows[: index + 1]
    return rows


def _delete(tx: Connection, rows: Sequence[Row[Any]], now: float) -> None:
    for row in rows:
        lifecycle.stop(tx, row, now)
    if rows:
        store.take_off(tx, (row.id for row in rows), now)
        outbox.put_scheduler(tx, now)


def _seen_by(viewer: UserView) -> int | None:
    """The id of the user whose jobs the viewer may see, as the store expects it; None: all users' jobs."""
    return None if viewer.sees_all else viewer.id


def visible(tx: Connection, name: str, viewer: UserView) -> Row[Any]:
    """The row of a job that the viewer may see. Raises NoSuchJob."""
    number = job_number(name)
    row = store.find(tx, number, _seen_by(viewer)) if number is not None else None
    if row is None:
        raise NoSuchJob(name)
    return row


def changeable(tx: Connection, name: str, viewer: UserView) -> Row[Any]:
    """The row of a job that the viewer may stop and delete. Raises NoSuchJob, NotTheOwner."""
    row = visible(tx, name, viewer)
    if row.user_id != viewer.id and not viewer.is_admin:
        raise NotTheOwner(name)
    return row
