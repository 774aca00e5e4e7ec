"""Turns database rows into the planner's state. Reads only. Next: reconcile.py, which applies the plan."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from edt_contract.reports import ExitKind
from edt_scheduler.decide.reading import Facts, Reader, Rows
from edt_scheduler.model.jobs import exec_id, paused_by
from edt_scheduler.model.nodes import Device
from edt_scheduler.model.queues import belongs_to
from edt_scheduler.model.speeds import OF_OTHERS, Measured, of_model
from edt_scheduler.model.states import Intent, JobState, health
from edt_scheduler.model.texts import parsed
from edt_scheduler.plan.asking import REFUSED_PATIENCES
from edt_scheduler.plan.curves import Point
from edt_scheduler.plan.queues import Queue, Sharing
from edt_scheduler.plan.state import Freed, Job, Node, Phase, Pool, Refusal, Requested, State
from edt_scheduler.platform import Platform
from edt_scheduler.store import attempts
from edt_scheduler.store.jobs import most_slots

USUAL_PAUSE_SECONDS = 0.5
"""What a resize costs a job as long as none was measured."""
POOL_SILENT_SECONDS = 30.0
"""A pool whose provisioner was not heard from for so long is asked for nothing new."""
_HOUR = 3600.0


@dataclass(frozen=True)
class Snapshot:
    """The planner's state, and the rows from which it was made."""

    state: State
    jobs: Mapping[str, Row[Any]]
    nodes: Mapping[str, Row[Any]]
    held: Mapping[str, Sequence[Row[Any]]]
    """Job to the open allocations of its live attempt that were not asked back, oldest first. A job that has none is
    left out."""

    @classmethod
    def of(cls, rows: Rows, facts: Facts, now: float, known: Known | None = None) -> Snapshot:
        """Make the snapshot of these rows at the time ``now``. Pure, apart from what ``known`` keeps."""
        return _Conversion(rows, facts, now, known if known is not None else Known()).snapshot()


class Known:
    """The jobs that were made of rows, kept for the next snapshot: most rows are the same then."""

    def __init__(self) -> None:
        self.common: tuple[Any, ...] = ()
        """What all jobs are made of."""
        self.jobs: dict[int, tuple[tuple[Any, ...], Job]] = {}


def present(platform: Platform) -> Snapshot:
    """The present state of the platform, as the scheduler sees it.

    Raises:
        Unavailable: if the database cannot be used now.
        SecretKeyUnusable: if the secret keys cannot be read and were never read before.
    """
    reader = reader_of(platform)
    keys, now = platform.secret_key.keys(), platform.clock()
    with platform.database.snapshot() as tx:
        rows = reader.rows(tx, keys)
        facts = reader.facts(tx, rows, now)
    return Snapshot.of(rows, facts, now)


def reader_of(platform: Platform) -> Reader:
    """A new reader for this platform."""
    settings = platform.settings
    return Reader(settings.usage_half_life_hours * _HOUR, with_speeds=settings.measured_speeds)


class _Conversion:
    """Rows and facts on their way to a snapshot."""

    def __init__(self, rows: Rows, facts: Facts, now: float, known: Known) -> None:
        self._rows = rows
        self._facts = facts
        self._now = now
        self._known = known
        self._nodes = {row.id: row for row in rows.nodes}
        self._names = {row.id: row.name for row in rows.nodes}
        self._paths = frozenset(row.path for row in rows.queues)
        self._live = {row.job_id: row for row in rows.attempts}
        self._open: dict[int, list[Row[Any]]] = defaultdict(list)
        self._taken: set[tuple[int, str]] = set()
        for row in rows.allocations.values():
            self._taken.add((row.node_id, row.slot))
            attempt = self._live.get(row.job_id)
            if attempt is not None and row.fence == attempt.fence:
                self._open[row.job_id].append(row)
        self._going: dict[int, set[int]] = defaultdict(set)
        for row in rows.supervisors:
            if attempts.can_open_again(row):
                continue
            if not any(a.node_id == row.node_id and a.release_asked_at is None for a in self._open[row.job_id]):
                self._going[row.job_id].add(row.node_id)
        self._there = {(node, slot.slot) for node, slots in rows.slots.items() for slot in slots}
        self._models = {node: _model(slots) for node, slots in rows.slots.items()}
        self._pause = facts.pause if facts.pause is not None else USUAL_PAUSE_SECONDS

    def snapshot(self) -> Snapshot:
        """The snapshot."""
        common = (self._pause, self._paths)
        known = self._known.jobs if self._known.common == common else {}
        jobs, made = [], {}
        for number, row in self._rows.jobs.items():
            key = self._key(number, row)
            before = known.get(number)
            if before is None or before[0] != key:
                before = (key, self._job(row))
            made[number] = before
            jobs.append(before[1])
        self._known.common, self._known.jobs = common, made
        state = State(
            now=self._now,
            nodes=tuple(self._node(row, self._rows.slots.get(row.id, ())) for row in self._nodes.values()),
            jobs=tuple(jobs),
            queues=tuple(
                Queue(row.path, row.quota, row.weight, row.limit, policy=Sharing(row.policy))
                for row in self._rows.queues
            ),
            usage=self._usage(),
            freed=self._freed(),
            pools=tuple(self._pool(row) for row in self._rows.pools),
        )
        return Snapshot(
            state=state,
            jobs={job.id: row for job, row in zip(jobs, self._rows.jobs.values(), strict=True)},
            nodes={row.name: row for row in self._nodes.values()},
            held={exec_id(job): _kept(rows) for job, rows in self._open.items()},
        )

    def _key(self, number: int, row: Row[Any]) -> tuple[Any, ...]:
        """All that one job that waits is made of. One that has an attempt is made anew each time: it trains."""
        return (
            row,
            self._now if number in self._live else None,
            self._facts.points.get(number),
            self._facts.priors.get(row.prior_key),
            self._rows.locked.get(number),
            () if row.after == "[]" else self._awaited(row),
        )

    def _awaited(self, row: Row[Any]) -> tuple[str, ...]:
        """The jobs that must be over before this one starts for the first time, and are not."""
        if row.after == "[]" or row.fence:
            return ()
        states = self._rows.others
        going = (n for n in parsed(row.after) if n in self._rows.jobs or (n in states and not states[n].terminal))
        return tuple(map(exec_id, going))

    def _node(self, row: Row[Any], slots: Sequence[Row[Any]]) -> Node:
        free = tuple(slot.slot for slot in slots if slot.problem is None and (row.id, slot.slot) not in self._taken)
        return Node(
            id=row.name,
            slots=len(free) + sum((row.id, slot.slot) in self._taken for slot in slots),
            free=len(free),
            health=health(Intent(row.intent), lost=row.lost_at is not None),
            containers=row.launcher.startswith("docker") or (row.only_for is not None and self._in_image(row.pool_id)),
            fixed=row.launcher == "docker-fixed",
            alone=row.alone,
            device=Device.of_slot(slots[0].device) if slots else Device.CPU,
            model=self._models.get(row.id, ""),
            free_slots=free,
            only_for=exec_id(row.only_for) if row.only_for is not None else None,
        )

    def _in_image(self, pool_id: int | None) -> bool:
        """Whether a node of this pool was started in the image that its job asks for."""
        return any(pool.id == pool_id and pool.containers for pool in self._rows.pools)

    def _pool(self, row: Row[Any]) -> Pool:
        wait = REFUSED_PATIENCES * row.patience_seconds
        return Pool(
            id=row.name,
            slots=row.slots,
            most=row.max_nodes,
            least=row.min_nodes,
            per_job=row.per_job,
            device=Device(row.device),
            model=row.model,
            containers=row.containers,
            patience=row.patience_seconds,
            requested=tuple(
                Requested(
                    node=each.node,
                    asked_at=each.asked_at,
                    job=exec_id(each.job_id) if each.job_id is not None else None,
                    granted=each.granted_at is not None,
                    ending=each.give_up_at is not None,
                    reason=each.reason or "",
                )
                for each in self._rows.requests
                if each.pool_id == row.id
            ),
            refused={
                exec_id(each.job_id) if each.job_id is not None else "": Refusal(
                    each.give_up_at + wait, each.reason or ""
                )
                for each in self._facts.refused
                if each.pool_id == row.id
            },
            away=row.trouble is not None or self._now - row.seen_at > POOL_SILENT_SECONDS,
        )

    def _job(self, row: Row[Any]) -> Job:
        attempt, open_rows = self._live.get(row.id), self._open.get(row.id, ())
        kept = _kept(open_rows)
        if attempt is None:
            phase = Phase.WAITING
        elif attempt.kind or (attempt.trained_at and not row.is_gang) or row.stop_requested_at or not kept:
            phase = Phase.ENDING
        else:
            phase = Phase.RUNNING
        # If no engine elsewhere is left, the job stays where it was.
        staying = [each for each in kept if not each.until_joined] or kept
        held = Counter(self._names[each.node_id] for each in staying)
        until_joined = Counter(self._names[each.node_id] for each in kept) - held
        model = self._models.get(kept[0].node_id) if kept else None
        most = most_slots(row)
        left, ends_by = self._limit(row, attempt)
        return Job(
            id=exec_id(row.id),
            submit=row.id,
            max=most,
            phase=phase,
            engines=row.engines,
            alloc=dict(held),
            leaving=dict(Counter(self._names[each.node_id] for each in open_rows if each.release_asked_at is not None)),
            head_node=self._names[attempt.head_node_id] if attempt is not None else None,
            avoid=frozenset(self._names[node] for node in self._going.get(row.id, ())),
            not_before=self._not_before(row),
            paused=paused_by(row.paused_by) if row.paused_at is not None else None,
            locked=self._rows.locked.get(row.id),
            cap=row.cap,
            cap_until=row.cap_until,
            image=row.image,
            device=Device(row.device) if row.device is not None else None,
            last_resize=row.resized_at if attempt is not None else None,
            gang=row.is_gang,
            unit=row.worker_device_num if row.is_gang else 1,
            allowed=tuple(sorted(parsed(row.sizes) or ())),
            points=self._points(row, model),
            steps_left=_steps_left(row),
            attained=row.slot_seconds + sum(max(0.0, self._now - each.decided_at) for each in open_rows),
            user=row.owner,
            queue=belongs_to(row.queue, self._paths),
            priority=row.priority,
            min=most if row.is_gang else min(row.min_slots, most),
            submitted=row.created_at,
            after=self._awaited(row),
            deadline=row.deadline,
            ends_by=ends_by,
            time_limit=left,
            models=tuple(name.lower() for name in parsed(row.gpu_models) or ()),
            slots=self._slots(kept),
            attempts=row.fence,
            engines_at=row.engines_at,
            pause=row.pause_seconds / row.pauses if row.pauses else self._pause,
            until_joined=dict(until_joined),
            joined=None if row.is_gang else self._joined(kept),
        )

    def _not_before(self, row: Row[Any]) -> float | None:
        never = row.fence_due is not None or row.id in self._rows.locked or row.paused_at is not None
        return math.inf if never else row.not_before

    def _limit(self, row: Row[Any], attempt: Row[Any] | None) -> tuple[float | None, float | None]:
        """For how many seconds a job may still run, and when it ends for it; None: there is no limit, or it waits."""
        if row.time_limit is None:
            return None, None
        left = max(0.0, row.time_limit - row.ran_seconds)
        if attempt is None:
            return left, None
        ends = (attempt.started_at if attempt.started_at is not None else self._now) + left
        return max(0.0, ends - self._now), ends

    def _points(self, row: Row[Any], model: str | None) -> tuple[Point, ...]:
        own = self._facts.points.get(row.id, ())
        others = self._facts.priors.get(row.prior_key, ())
        if not own and not others:
            return ()
        points = [_point(each, 1.0) for each in of_model(own, model)]
        known = {(each.workers, each.nodes) for each in points}
        points += [
            _point(each, OF_OTHERS) for each in of_model(others, model) if (each.workers, each.nodes) not in known
        ]
        return tuple(points)

    def _slots(self, kept: Sequence[Row[Any]]) -> dict[str, tuple[str, ...]]:
        """Node to the slots that a job holds, in the order in which they are given back."""
        found: dict[str, list[str]] = defaultdict(list)
        for row in sorted(kept, key=lambda each: ((each.node_id, each.slot) in self._there, -each.id)):
            found[self._names[row.node_id]].append(row.slot)
        return {node: tuple(slots) for node, slots in found.items()}

    def _joined(self, kept: Sequence[Row[Any]]) -> dict[str, int] | None:
        joined = [row for row in kept if row.joined_at is not None]
        return None if len(joined) == len(kept) else dict(Counter(self._names[row.node_id] for row in joined))

    def _usage(self) -> dict[tuple[str, str], float]:
        found: dict[tuple[str, str], float] = defaultdict(float)
        for (queue, user), used in self._facts.usage.items():
            found[belongs_to(queue, self._paths), user] += used
        return dict(found)

    def _freed(self) -> dict[tuple[str, str], Freed]:
        """Who has just left each slot that is free again. The rows come in order, so the newest one stays."""
        found = {}
        for row in self._facts.freed:
            if row.node_id in self._names and (row.node_id, row.slot) not in self._taken:
                state, ended = JobState(row.state), None
                if state.terminal:
                    ended = f"is {state}"
                elif row.kind == ExitKind.FINISHED:
                    ended = "has finished training"
                lost = row.kind in {ExitKind.LOST, ExitKind.SCRIPT_ERROR}
                freed = Freed(exec_id(row.job_id), row.released_at, ended, lost)
                found[self._names[row.node_id], row.slot] = freed
        return found


def _kept(rows: Sequence[Row[Any]]) -> Sequence[Row[Any]]:
    """Those open allocations that were not asked back."""
    return [row for row in rows if row.release_asked_at is None]


def _model(slots: Sequence[Row[Any]]) -> str:
    return next((slot.model.lower() for slot in slots if slot.model), "")


def _point(point: Measured, weight: float) -> Point:
    return Point(point.workers, point.nodes, point.step_seconds, weight)


def _steps_left(row: Row[Any]) -> float | None:
    if row.steps_total is None:
        return None
    try:
        done = int(row.step or 0)
    except (TypeError, ValueError):  # the step comes from a file that the job can write
        done = 0
    return float(max(0, row.steps_total - done))
