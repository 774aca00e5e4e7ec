"""Use cases of looking on: what has changed since the last look. Room: scheduler, operations."""

from __future__ import annotations

from edt_scheduler.house import House
from edt_scheduler.jobs import exec_id
from edt_scheduler.store import allocations, changes, failures, jobs, nodes, pictures, resizes
from edt_scheduler.views import Changes, RemovedJob


def newest_change(house: House) -> str:
    """A cursor: whatever is committed from now on comes after it."""
    with house.database.snapshot() as tx:
        return changes.newest(tx)


def changes_since(house: House, cursor: str, *, until: str | None = None) -> Changes:
    """What has changed after ``cursor``, each thing once and as it stands now; ``until``: only what had changed by that
    cursor, for somebody who catches up with others.

    A slot that changes hands changes its node and its job. Where nothing has changed this is one cheap read, and the
    cursor is the same. Raises CursorInvalid, CursorTooOld.
    """
    with house.database.snapshot() as tx:
        found, newest = changes.since(tx, cursor, until)
        if not found:
            return Changes(newest)
        held = allocations.of_numbers(tx, changes.of(found, "allocation"))
        resized = resizes.of_numbers(tx, changes.of(found, "resize"))
        job_ids = sorted({*changes.of(found, "job"), *(row.job_id for row in held)})
        node_ids = {*changes.of(found, "node"), *(row.node_id for row in held)}
        rows = jobs.of_numbers(tx, job_ids)
        fleet = nodes.of_numbers(tx, node_ids)
        ended = changes.of(found, "attempt")
        failed = failures.of_changed(tx, [row.id for row in held], [row.id for row in resized], ended)
        return Changes(
            cursor=newest,
            jobs=tuple(pictures.jobs(tx, house.settings, [row for row in rows if row.deleted_at is None])),
            removed=tuple(RemovedJob(exec_id(row.id), row.owner_id) for row in rows if row.deleted_at is not None),
            nodes=tuple(pictures.nodes_of(tx, [row for row in fleet if row.removed_at is None], house.clock())),
            removed_nodes=tuple(row.name for row in fleet if row.removed_at is not None),
            allocations=pictures.allocations_in_short(held),
            resizes=pictures.resizes_in_short(resized),
            failures=tuple(pictures.failure(row) for row in failed),
        )
