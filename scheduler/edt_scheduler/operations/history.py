"""Use cases of looking back: a job's history, resizes, slots and course; slots over time. Room: scheduler, operations.

Lists go by number: ``after`` is that of the last one already seen, ``limit`` how many more; None: all.
"""

from __future__ import annotations

import math

from sqlalchemy import Connection

from edt_scheduler import course as courses
from edt_scheduler.errors import NoSuchJob
from edt_scheduler.house import House
from edt_scheduler.jobs import JobState, exec_id, folder_sent, job_number
from edt_scheduler.store import allocations as allocation_store
from edt_scheduler.store import failures, metrics, nodes, pictures
from edt_scheduler.store import jobs as store
from edt_scheduler.store import resizes as resize_store
from edt_scheduler.views import AllocationView, Course, EventView, ResizeView, Timeline, TimelineJob, UserView

MOST_OF_A_KIND = 50_000
"""A timeline has about so many allocations, and those held now, so many resizes and so many failures. One of years
would take minutes, and all memory."""


def events(
    house: House, exec_id: str, *, viewer: UserView, after: int = 0, limit: int | None = None
) -> list[EventView]:
    """A job's history, complete and in order."""
    with house.database.snapshot() as tx:
        number = _visible(tx, exec_id, viewer)
        return [pictures.event(row) for row in store.history(tx, number, after, limit)]


def resizes(
    house: House, exec_id: str, *, viewer: UserView, after: int = 0, limit: int | None = None
) -> list[ResizeView]:
    """Each change of a job's size, in order."""
    with house.database.snapshot() as tx:
        number = _visible(tx, exec_id, viewer)
        return [pictures.resize(row) for row in resize_store.of_job(tx, number, after, limit)]


def allocations(
    house: House, exec_id: str, *, viewer: UserView, after: int = 0, limit: int | None = None
) -> list[AllocationView]:
    """Each slot that a job held, in order."""
    with house.database.snapshot() as tx:
        number = _visible(tx, exec_id, viewer)
        return [pictures.allocation(row) for row in allocation_store.of_job(tx, number, after, limit)]


def course(house: House, exec_id: str, *, viewer: UserView, points: int) -> Course:
    """How a job's training went, in at most about so many points."""
    with house.database.snapshot() as tx:
        rows = metrics.of_job(tx, _visible(tx, exec_id, viewer))
    standing = courses.standing([pictures.metric_point(row) for row in rows])
    return Course(tuple(courses.with_few_metrics(courses.thinned(standing, points))), len(standing))


def timeline(house: House, *, viewer: UserView, since: float = 0.0, until: float = math.inf) -> Timeline:
    """Who held which slot at some instant of a time, and what happened in it. Where that would be too much the picture
    begins later, as its ``since`` says. Everybody sees that a slot is held; by which of others' jobs, too: a cluster is
    shared, and an exec id is no secret. What else a viewer may know of others' jobs is the API's to leave out."""
    del viewer  # any user may look; the argument keeps the API from asking without one
    with house.database.snapshot() as tx:
        now = house.clock()
        since = max(
            each.few_since(tx, since, until, MOST_OF_A_KIND) for each in (allocation_store, resize_store, failures)
        )
        held = allocation_store.between(tx, since, until)
        resized = resize_store.between(tx, since, until)
        failed = failures.between(tx, since, until)
        used = {row.name for row in held}
        named = {row.job_id for rows in (held, resized, failed) for row in rows}
        return Timeline(
            now=now,
            since=since,
            until=min(now, until),
            earliest=allocation_store.earliest(tx),
            nodes=tuple(
                pictures.nodes_of(
                    tx, [row for row in nodes.every(tx) if row.removed_at is None or row.name in used], now
                )
            ),
            jobs={
                exec_id(row.id): TimelineJob(
                    owner_id=row.owner_id,
                    owner=row.owner,
                    state=JobState(row.state),
                    framework=row.framework,
                    app_name=row.app_name,
                    script=row.model_main,
                    folder=folder_sent(row.work_dir),
                    removed=row.deleted_at is not None,
                )
                for row in store.in_short(tx, named)
            },
            allocations=pictures.allocations_in_short(held),
            resizes=pictures.resizes_in_short(resized),
            failures=tuple(pictures.failure(row) for row in failed),
        )


def _visible(tx: Connection, name: str, viewer: UserView) -> int:
    """The number of a job that the viewer may see. Raises NoSuchJob."""
    number = job_number(name)
    if number is None or store.find(tx, number, None if viewer.is_admin else viewer.id) is None:
        raise NoSuchJob(name)
    return number
