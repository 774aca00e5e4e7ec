"""Use cases of looking back: a job's history, its resizes, slots over time. Room: scheduler, operations."""

from __future__ import annotations

from edt_scheduler.errors import NoSuchJob
from edt_scheduler.house import House
from edt_scheduler.jobs import job_number
from edt_scheduler.store import allocations, nodes, pictures
from edt_scheduler.store import jobs as store
from edt_scheduler.store import resizes as resize_store
from edt_scheduler.views import EventView, ResizeView, Timeline, UserView


def events(house: House, exec_id: str, *, viewer: UserView) -> list[EventView]:
    """A job's history, complete and in order."""
    with house.database.snapshot() as tx:
        number = job_number(exec_id)
        owner = None if viewer.is_admin else viewer.name
        if number is None or store.find(tx, number, owner) is None:
            raise NoSuchJob(exec_id)
        return [pictures.event(row) for row in store.history(tx, number)]


def resizes(house: House, exec_id: str, *, viewer: UserView) -> list[ResizeView]:
    """Each change of a job's size, in order."""
    with house.database.snapshot() as tx:
        number = job_number(exec_id)
        owner = None if viewer.is_admin else viewer.name
        if number is None or store.find(tx, number, owner) is None:
            raise NoSuchJob(exec_id)
        return [pictures.resize(row) for row in resize_store.of_job(tx, number)]


def timeline(house: House, *, viewer: UserView, since: float = 0.0) -> Timeline:
    """Who held which slot from ``since`` on. Everybody sees that a slot is held; by which of others' jobs, too:
    a cluster is shared, and an exec id is no secret."""
    del viewer  # any user may look; the argument keeps the API from asking without one
    with house.database.snapshot() as tx:
        return Timeline(
            now=house.clock(),
            nodes=tuple(pictures.nodes_of(tx, nodes.every(tx))),
            allocations=tuple(pictures.allocation(row) for row in allocations.since(tx, since)),
            resizes=tuple(pictures.resize(row) for row in resize_store.since(tx, since)),
        )
