"""Use cases of looking back: a job's events, resizes, slots and metrics, the timeline of all slots, and the changes
since a cursor.

Lists are ordered by number. ``after`` is the number of the last item that the caller has seen. ``limit`` is the most
items to return; None: all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row

from edt_scheduler.model import progress
from edt_scheduler.model.jobs import exec_id, folder_sent
from edt_scheduler.model.progress import Curve
from edt_scheduler.model.states import JobState
from edt_scheduler.model.step_times import JobStepTimes, of_job
from edt_scheduler.operations.execs import visible
from edt_scheduler.platform import Platform
from edt_scheduler.store import allocations as allocation_store
from edt_scheduler.store import attempts, failures, metrics, nodes, to_views, usage
from edt_scheduler.store import changes as change_store
from edt_scheduler.store import jobs as store
from edt_scheduler.store import resizes as resize_store
from edt_scheduler.views import (
    AllocationView,
    Changes,
    EngineView,
    EventView,
    JobView,
    ProcessesView,
    RemovedJob,
    ResizeView,
    SlotTime,
    SlotTimePage,
    SlotUse,
    Timeline,
    TimelineJob,
    UserView,
    view_of,
)

MOST_OF_A_KIND = 50_000
"""About the largest number of ended allocations, of resizes and of failures in one timeline.

Slots that are held now come on top. A timeline of years without this limit would take minutes and all memory.
"""


def events(
    platform: Platform, exec_id: str, *, viewer: UserView, after: int = 0, limit: int | None = None
) -> list[EventView]:
    """A job's events, all of them and in order. Raises NoSuchJob."""
    with platform.database.snapshot() as tx:
        number = visible(tx, exec_id, viewer).id
        return [to_views.event(row) for row in store.history(tx, number, after, limit)]


def resizes(
    platform: Platform, exec_id: str, *, viewer: UserView, after: int = 0, limit: int | None = None
) -> list[ResizeView]:
    """Each change of a job's size, in order. Raises NoSuchJob."""
    with platform.database.snapshot() as tx:
        number = visible(tx, exec_id, viewer).id
        return [to_views.resize(row) for row in resize_store.of_job(tx, number, after, limit)]


def allocations(
    platform: Platform, exec_id: str, *, viewer: UserView, after: int = 0, limit: int | None = None
) -> list[AllocationView]:
    """Each slot that a job has held, in order. Raises NoSuchJob."""
    with platform.database.snapshot() as tx:
        number = visible(tx, exec_id, viewer).id
        return [to_views.allocation(row) for row in allocation_store.of_job(tx, number, after, limit)]


def processes(platform: Platform, jobs: Iterable[JobView]) -> dict[str, ProcessesView]:
    """The processes that these jobs have or had, by exec id. The caller has checked that its viewer may see the
    jobs.
    """
    jobs = list(jobs)
    numbers = [job.number for job in jobs]
    gangs = {job.number for job in jobs if job.gang is not None}
    with platform.database.snapshot() as tx:
        rows = allocation_store.started_of(tx, [number for number in numbers if number not in gangs])
        rows += allocation_store.of_newest_attempt(tx, gangs) if gangs else []
        heads = attempts.heads(tx, numbers)
        used = usage.newest(tx, {row.node_id for row in rows if row.released_at is None}, platform.clock())
    held: dict[int, list[Row[Any]]] = {number: [] for number in numbers}
    for row in rows:
        held[row.job_id].append(row)
    found = {}
    for job in jobs:
        head, host = heads.get(job.number, (None, None))
        engines = _ranks(job, held[job.number], used) if job.gang is not None else _engines(held[job.number], used)
        found[job.exec_id] = ProcessesView(head, host, tuple(engines))
    return found


def _engines(rows: Iterable[Row[Any]], used: Mapping[tuple[int, str], SlotUse]) -> Iterator[EngineView]:
    for number, row in enumerate(rows, start=1):
        use = used.get((row.node_id, row.slot)) if row.released_at is None else None
        yield EngineView(number, to_views.allocation(row), row.host, use)


def _ranks(job: JobView, rows: Sequence[Row[Any]], used: Mapping[tuple[int, str], SlotUse]) -> Iterator[EngineView]:
    """The processes of a gang's attempt. ``rows`` are all its slots in the order of ranks.

    If there is one process, it has all of them, though only those of its own node are named.
    """
    ranks = job.ranks or 1
    each = len(rows) if ranks == 1 else max(1, job.num_worker * job.worker_device_num // ranks)
    for rank in range(ranks):
        own = rows[rank * each : (rank + 1) * each]
        if not own or own[0].started_at is None:
            continue
        first, *others = own
        uses = [use for row in (first, *others) if (use := used.get((row.node_id, row.slot)))]
        use = _together(first.slot, uses) if uses and first.released_at is None else None
        names = tuple(row.slot for row in others if row.node_id == first.node_id)
        yield EngineView(rank + 1, to_views.allocation(first), first.host, use, rank, names)


def _together(slot: str, uses: Sequence[SlotUse]) -> SlotUse:
    busy = [use.utilisation for use in uses if use.utilisation is not None]
    memory = [use.memory_bytes for use in uses if use.memory_bytes is not None]
    return SlotUse(slot, sum(busy) if busy else None, sum(memory) if memory else None)


def curve(platform: Platform, exec_id: str, *, viewer: UserView, points: int) -> Curve:
    """A job's metrics over its steps, in about ``points`` points at most, and its validations, in as many. Raises
    NoSuchJob.
    """
    with platform.database.snapshot() as tx:
        number = visible(tx, exec_id, viewer).id
        rows, validated = metrics.of_job(tx, number), metrics.validations_of(tx, number)
    final = progress.final_points([to_views.metric_point(row) for row in rows])
    final_validations = progress.final_points([to_views.validation_point(row) for row in validated])
    return Curve(
        tuple(progress.limit_metrics(progress.downsampled(final, points))),
        len(final),
        tuple(progress.limit_metrics(progress.downsampled(final_validations, points))),
        len(final_validations),
    )


def step_times(platform: Platform, exec_id: str, *, viewer: UserView) -> JobStepTimes | None:
    """Where the time of a job's steps goes; None: its engines have not reported it. Raises NoSuchJob."""
    with platform.database.snapshot() as tx:
        row = visible(tx, exec_id, viewer)
        if row.step_times is None:
            return None
        held = allocation_store.of_numbers(tx, row.step_times["engines"])
        places = {each.id: (each.name, each.slot) for each in held if each.job_id == row.id}
    return of_job(row.step_times, places, over=JobState(row.state).terminal)


def timeline(platform: Platform, *, viewer: UserView, since: float = 0.0, until: float = math.inf) -> Timeline:
    """Which job held which slot between ``since`` and ``until`` (seconds since the epoch), and what happened then.

    If this would be too much, the answer begins later, and its ``since`` names the new begin. Every user sees that a
    slot is held, and by which job: users share the cluster, and an exec id is no secret. The API removes all other
    facts about jobs that the viewer may not see.
    """
    del viewer  # any user may look; the argument makes sure that the API has a user
    with platform.database.snapshot() as tx:
        now = platform.clock()
        since = max(
            each.few_since(tx, since, until, MOST_OF_A_KIND) for each in (allocation_store, resize_store, failures)
        )
        held = allocation_store.between(tx, since, until)
        resized = resize_store.between(tx, since, until)
        failed = failures.between(tx, since, until)
        used = {row.name for row in held}
        shown = [row for row in nodes.every(tx) if row.removed_at is None or row.name in used]
        named = {row.job_id for rows in (held, resized, failed) for row in rows}
        return Timeline(
            now=now,
            since=since,
            until=min(now, until),
            earliest=allocation_store.earliest(tx),
            nodes=tuple(to_views.nodes_of(tx, shown, now)),
            jobs={
                exec_id(row.id): view_of(
                    TimelineJob,
                    row._mapping,
                    state=JobState(row.state),
                    script=row.model_main,
                    folder=folder_sent(row.work_dir),
                    command=to_views.users_command(row),
                    removed=row.deleted_at is not None,
                )
                for row in store.in_short(tx, named)
            },
            allocations=to_views.allocations_in_short(held),
            resizes=to_views.resizes_in_short(resized),
            failures=tuple(to_views.failure(row) for row in failed),
        )


def slot_time(
    platform: Platform, *, viewer: UserView, before: tuple[int, int] | None = None, limit: int
) -> SlotTimePage:
    """For how long users' jobs have held slots, by day, newest day first. Today is counted up to now.

    A user with the role user sees only their own time. ``before`` is the day and the user id of the last item that the
    caller has seen.
    """
    whose = None if viewer.sees_all else viewer.id
    with platform.database.snapshot() as tx:
        found = list(_newest_first(tx, platform.clock(), whose, before, limit + 1))
        names = usage.names(tx, {user for _, user, _ in found})
    items = tuple(SlotTime(day, user, names[user], seconds) for day, user, seconds in found[:limit])
    more = (items[-1].day, items[-1].user_id) if len(found) > limit else None
    return SlotTimePage(items, more)


def _newest_first(
    tx: Connection, now: float, user_id: int | None, before: tuple[int, int] | None, limit: int
) -> Iterator[tuple[int, int, float]]:
    """Days that are not rolled up yet, then days that are."""
    counted = usage.counted_until(tx) or 0
    left = limit
    if before is None or before[0] >= counted:
        live = usage.held(tx, counted, now, user_id)
        newest = sorted(((day, user) for day, users in live.items() for user in users), reverse=True)
        for day, user in newest:
            if (before is None or (day, user) < before) and left:
                left -= 1
                yield day, user, live[day][user]
    if left:
        for row in usage.days(tx, user_id, before, left):
            yield row.day, row.user_id, row.slot_seconds


def newest_change(platform: Platform) -> str:
    """A cursor. Everything that is committed from now on comes after it."""
    with platform.database.snapshot() as tx:
        return change_store.newest(tx)


def changes_since(platform: Platform, cursor: str, *, until: str | None = None) -> Changes:
    """What has changed after ``cursor``: each thing once, in its present state.

    If a slot changes hands, its node and its job have changed. If nothing has changed, this is one cheap read, and the
    answer has the same cursor.

    Args:
        platform: The open platform.
        cursor: A cursor of ``newest_change`` or of an earlier answer.
        until: If given, only what had changed up to this cursor, so that a late reader can catch up with other readers.

    Raises:
        CursorInvalid: The text is not a cursor.
        CursorTooOld: Not all changes after the cursor are known any more, or they are too many.
    """
    with platform.database.snapshot() as tx:
        found, newest = change_store.since(tx, cursor, until)
        if not found:
            return Changes(newest)
        held = allocation_store.of_numbers(tx, change_store.of(found, "allocation"))
        resized = resize_store.of_numbers(tx, change_store.of(found, "resize"))
        job_ids = sorted({*change_store.of(found, "job"), *(row.job_id for row in held)})
        node_ids = {*change_store.of(found, "node"), *(row.node_id for row in held)}
        rows = store.of_numbers(tx, job_ids)
        fleet = nodes.of_numbers(tx, node_ids)
        ended = change_store.of(found, "attempt")
        failed = failures.of_changed(tx, [row.id for row in held], [row.id for row in resized], ended)
        return Changes(
            cursor=newest,
            jobs=tuple(to_views.jobs(tx, platform.settings, [row for row in rows if row.deleted_at is None])),
            removed=tuple(RemovedJob(exec_id(row.id), row.owner_id) for row in rows if row.deleted_at is not None),
            nodes=tuple(to_views.nodes_of(tx, [row for row in fleet if row.removed_at is None], platform.clock())),
            removed_nodes=tuple(row.name for row in fleet if row.removed_at is not None),
            allocations=to_views.allocations_in_short(held),
            resizes=to_views.resizes_in_short(resized),
            failures=tuple(to_views.failure(row) for row in failed),
        )
