"""Reads what the next decision depends on. A ``Reader`` reads again only what has changed since it read last.

What a decision depends on is in ``Rows``: while these rows are equal, a plan made of them can be applied. ``Facts`` are
what plans are reckoned with and what changes all the time, such as measured speeds: a plan made of those of a moment
ago is as good.

Thousands of jobs may wait while few of them change. So a ``Reader`` keeps the rows of jobs, slots and allocations, and
reads those again that the feed of changes names. Triggers write that feed, whoever writes. If the feed does not go back
far enough, everything is read. What the reader keeps is no truth of its own: a new one reads the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from edt_scheduler.errors import CursorInvalid, CursorTooOld
from edt_scheduler.home.secret_key import Keys
from edt_scheduler.model.speeds import Measured, measured
from edt_scheduler.model.states import JobState
from edt_scheduler.model.texts import parsed
from edt_scheduler.plan.asking import REFUSED_PATIENCES
from edt_scheduler.store import allocations, attempts, changes, environs, jobs, nodes, pools, queues, resizes, speeds

FREED_SECONDS = 60.0
"""For how long it counts who has given a slot back."""
_AGAIN_SECONDS = 60.0
"""Points of other processes may bear a time that is so much behind this one's clock."""
_RESIZES = 200
"""So many of the newest resizes tell what a resize costs a job that has had none."""


@dataclass(frozen=True)
class Rows:
    """All database rows on which a decision depends. Equal rows give equal decisions, apart from the time and facts."""

    nodes: Sequence[Row[Any]]
    slots: Mapping[int, Sequence[Row[Any]]]
    """Node to its present slots, in the node's order."""
    jobs: Mapping[int, Row[Any]]
    """Number to the row of each job that waits or runs, in submit order."""
    attempts: Sequence[Row[Any]]
    """Live attempts."""
    supervisors: Sequence[Row[Any]]
    """Supervisors of live attempts."""
    allocations: Mapping[int, Row[Any]]
    """Number to the row of each open allocation, oldest first."""
    locked: Mapping[int, str]
    """Job number to why its environment cannot be opened."""
    queues: Sequence[Row[Any]]
    others: Mapping[int, JobState]
    """Number to the state of each job that others must come after and that neither waits nor runs."""
    pools: Sequence[Row[Any]] = ()
    requests: Sequence[Row[Any]] = ()
    """Nodes that the pools' cluster managers were asked for and that are not over, oldest first."""

    def same(self, other: Rows) -> bool:
        """Whether a plan made of these rows can be applied to the others."""
        return (
            self.nodes == other.nodes
            and self.attempts == other.attempts
            and self.supervisors == other.supervisors
            and self.locked == other.locked
            and self.queues == other.queues
            and self.others == other.others
            and self.requests == other.requests
            and [row[: pools.HARD] for row in self.pools] == [row[: pools.HARD] for row in other.pools]
            and self.slots == other.slots
            and _alike(self.allocations, other.allocations, allocations.HARD)
            and _alike(self.jobs, other.jobs, jobs.HARD)
        )


def _alike(some: Mapping[int, Row[Any]], others: Mapping[int, Row[Any]], columns: int) -> bool:
    """Whether the same rows are there, equal in their first columns. Rows that are one object are not compared."""
    return len(some) == len(others) and all(
        (other := others.get(number)) is row or (other is not None and row[:columns] == other[:columns])
        for number, row in some.items()
    )


@dataclass(frozen=True)
class Facts:
    """What decisions are reckoned with and what changes while jobs train."""

    points: Mapping[int, tuple[Measured, ...]]
    """Job number to what was measured of the job itself."""
    priors: Mapping[str, tuple[Measured, ...]]
    """``prior_key`` to what was measured of all jobs that have it."""
    usage: Mapping[tuple[str, str], float]
    """(queue, user's name) to decayed slot-seconds."""
    freed: Sequence[Row[Any]]
    """Allocations that were released in the last FREED_SECONDS, in order."""
    pause: float | None
    """Mean seconds that the newest resizes have cost their jobs; None: none was measured."""
    refused: Sequence[Row[Any]] = ()
    """Nodes that did not come within their pool's patience, for as long as that keeps their jobs from asking again."""


class Reader:
    """Reads rows and facts, and keeps what seldom changes until the feed of changes names it.

    Args:
        half_life: seconds in which usage of the past comes to count half as much.
    """

    def __init__(self, half_life: float, *, with_speeds: bool = True) -> None:
        self._half_life = half_life
        self._with_speeds = with_speeds
        self._cursor: str | None = None
        self._jobs: dict[int, Row[Any]] = {}
        self._slots: dict[int, Sequence[Row[Any]]] = {}
        self._allocations: dict[int, Row[Any]] = {}
        self._priors: dict[str, tuple[Measured, ...]] = {}
        self._priors_at = 0.0

    def rows(self, tx: Connection, keys: Keys) -> Rows:
        """Read the rows.

        Args:
            tx: one consistent read, or a write transaction that has not written anything.
            keys: the secret keys. If none of them opens a job's environment, the job does not start.
        """
        self._catch_up(tx)
        return read(tx, keys, dict(self._jobs), dict(self._slots), dict(self._allocations))

    def facts(self, tx: Connection, rows: Rows, now: float) -> Facts:
        """Read what these rows are reckoned with.

        Args:
            tx: a consistent read.
            rows: the rows.
            now: the current time, in seconds since the epoch.
        """
        self._catch_up_priors(tx, {row.prior_key for row in rows.jobs.values()} - {None}, now)
        return Facts(
            points=measured(
                speeds.of_jobs(tx, (row.id for row in rows.jobs.values() if row.fence and self._with_speeds))
            ),
            priors=dict(self._priors) if self._with_speeds else {},
            usage=queues.usage(tx, self._half_life, now),
            freed=allocations.freed_since(tx, now - FREED_SECONDS),
            pause=resizes.usual_pause(tx, _RESIZES),
            refused=pools.refused_since(tx, now - REFUSED_PATIENCES * max(pool.patience_seconds for pool in rows.pools))
            if rows.pools
            else (),
        )

    def _catch_up(self, tx: Connection) -> None:
        """Read again what has changed. After a failure half way everything is read next time."""
        cursor, self._cursor = self._cursor, None
        found: list[changes.Change] = []
        if cursor is not None:
            try:
                found, after = changes.since(tx, cursor)
            except (CursorTooOld, CursorInvalid):  # it is of another database, after a restore
                cursor = None
        if cursor is None:
            after = changes.newest(tx)
            self._jobs = {row.id: row for row in jobs.for_the_plan(tx)}
            self._allocations = {row.id: row for row in allocations.every_open(tx)}
            self._slots = _by_node(nodes.slots_for_the_plan(tx))
        elif found:
            numbers = changes.of(found, "job")
            self._jobs = _replaced(self._jobs, numbers, jobs.for_the_plan(tx, numbers))
            held = changes.of(found, "allocation")
            self._allocations = _replaced(self._allocations, held, allocations.open_among(tx, held))
            changed = changes.of(found, "node")
            read_again = _by_node(nodes.slots_for_the_plan(tx, changed))
            self._slots = {node: slots for node, slots in self._slots.items() if node not in set(changed)} | read_again
        self._cursor = after

    def _catch_up_priors(self, tx: Connection, wanted: set[str], now: float) -> None:
        stale = wanted - self._priors.keys()
        if self._priors:
            stale |= speeds.changed_keys(tx, self._priors_at - _AGAIN_SECONDS) & wanted
        self._priors = {key: points for key, points in self._priors.items() if key in wanted}
        if stale:
            self._priors |= dict.fromkeys(stale, ()) | measured(speeds.of_keys(tx, stale))
        self._priors_at = now


def read(
    tx: Connection,
    keys: Keys,
    job_rows: Mapping[int, Row[Any]] | None = None,
    slots: Mapping[int, Sequence[Row[Any]]] | None = None,
    held: Mapping[int, Row[Any]] | None = None,
) -> Rows:
    """Read the rows that the next decision depends on.

    Args:
        tx: one consistent read, or a write transaction.
        keys: the secret keys.
        job_rows: ``Rows.jobs``, if they are known; None: they are read, as the next two.
        slots: ``Rows.slots``.
        held: ``Rows.allocations``.
    """
    if job_rows is None:
        job_rows = {row.id: row for row in jobs.for_the_plan(tx)}
    awaited = {number for row in job_rows.values() if row.after != "[]" for number in parsed(row.after)}
    return Rows(
        nodes=nodes.for_the_plan(tx),
        slots=_by_node(nodes.slots_for_the_plan(tx)) if slots is None else slots,
        jobs=job_rows,
        attempts=attempts.every_live(tx),
        supervisors=attempts.every_live_supervisor(tx),
        allocations={row.id: row for row in allocations.every_open(tx)} if held is None else held,
        locked={job: keys.missing(key_id) for job, key_id in environs.locked(tx, keys.ids).items()},
        queues=queues.every(tx),
        others=jobs.states_of(tx, awaited - job_rows.keys()),
        pools=pools.for_the_plan(tx),
        requests=pools.open_requests(tx),
    )


def _by_node(rows: Iterable[Row[Any]]) -> dict[int, Sequence[Row[Any]]]:
    found: dict[int, list[Row[Any]]] = {}
    for row in rows:
        found.setdefault(row.node_id, []).append(row)
    return dict(found)


def _replaced(known: dict[int, Row[Any]], changed: Sequence[int], again: Sequence[Row[Any]]) -> dict[int, Row[Any]]:
    """``known`` in the order of numbers, with the rows that were read again in place of those that have changed."""
    left = {row.id: row for row in again}
    new = any(number not in known for number in left)
    for number in changed:
        row = left.get(number)
        if row is not None:
            known[number] = row
        else:
            known.pop(number, None)
    return dict(sorted(known.items())) if new else known
