"""The elastic loop: tick after tick, by whatever engines there are. Room: runners; framework-neutral.

Read with DESIGN.md section 4. A tick: load, forward and backward for the own logical workers, one reduction that
also carries everybody's newest generation, one commit. If the reduction shows that all have seen a newer
generation, the next tick is worked by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edt_runner import environment, faults
from edt_runner.contract import ExitKind
from edt_runner.engine import shares
from edt_runner.engine.adapter import Adapter, BatchRequest, Group, Leaf, Loader, Plane
from edt_runner.engine.link import Link
from edt_runner.engine.pause import PauseMeter
from edt_runner.engine.record import Recorder
from edt_runner.engine.schedule import Schedule, Tick, TickKind
from edt_runner.engine.seeds import step_seed
from edt_runner.engine.tally import Tally, means
from edt_runner.engine.telemetry import Telemetry
from edt_runner.engine.tree import ReductionPlan, plan_of
from edt_runner.errors import PeerLost, StateMismatch


@dataclass(frozen=True)
class Settings:
    """What train() was called with, as far as the loop is concerned. Equal in all processes of a job."""

    schedule: Schedule
    seed: int
    exact: bool
    checkpoint_freq: int
    """The user's own files every so many epochs; 0: only the final ones."""
    model_dir: Path


@dataclass
class Hands:
    """What the loop works with."""

    adapter: Adapter
    plane: Plane
    loader: Loader
    link: Link
    recorder: Recorder
    write_checkpoint: Callable[[int, Mapping[str, Any]], None]
    """Write a recovery checkpoint of (tick, tally)."""
    worker_log: Callable[[TickKind, dict[str, float], int, int, int], None] | None = None
    """(kind, this engine's values, iteration, epoch, workers) to the user's worker logger."""
    telemetry: Telemetry = field(init=False)

    def __post_init__(self) -> None:
        self.telemetry = Telemetry(self.link)


class Engine:
    """One engine's life from the door to the exit."""

    def __init__(self, settings: Settings, hands: Hands) -> None:
        self._settings, self._schedule, self._hands = settings, settings.schedule, hands
        self._adapter, self._link, self._loader = hands.adapter, hands.link, hands.loader
        self._tally = Tally(hands.adapter.metric_names)
        self._pauses = PauseMeter()
        self._generation = 0
        self._members: tuple[str, ...] = ()
        self._group: Group = hands.plane.solo()
        self._tick = 0
        self._announced = 0
        """The generation that all ranks announced in the last reduction; 0: they differed."""
        self._first_by: tuple[str, ...] | None = None
        """Who shares the coming tick's micro-batches; None: all members."""
        self._counted = False
        self._finish_sending: Callable[[], None] | None = None

    def run(self, facts: Mapping[str, Any]) -> ExitKind:
        """Join, train, and leave one way or another. ``facts`` describe the data, for comparison."""
        outcome = self._join(facts)
        if outcome is not None:
            return outcome
        while self._tick < self._schedule.ticks:
            if self._announced > self._generation and not self._switch(self._announced):
                return self._wait_for_exit(ExitKind.LEFT)
            self._work()
        return self._end()

    # ── coming ────────────────────────────────────────────────────────────────────────────────────────────────
    def _join(self, facts: Mapping[str, Any]) -> ExitKind | None:
        """Ask to be let in until the weights are here. An ExitKind: it will not happen."""
        failures = 0
        self._link.tell("ready", facts=dict(facts))
        deadline: float | None = None
        while True:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            message = self._link.wait(wait)
            if message is None:
                failures += 1
                limit = environment.pull_failed_limit()
                self._link.report("pull-failed", allocation=int(self._link.name), count=failures, limit=limit)
                print(
                    f"PULL_FAILED: no weights within {environment.pull_weight_timeout():g} s ({failures})",
                    flush=True,
                )
                self._link.tell("pull-failed")
                deadline = None  # the answer decides
                continue
            match message["kind"]:
                case "definition":
                    self._check_definition(message)
                    deadline = time.monotonic() + environment.pull_weight_timeout()
                case "handover":
                    self._take_from_driver(message)
                    return None
                case "switched":
                    self._take_from_members(message)
                    return None
                case "pull-answer" if message["cancelled"]:
                    if failures > environment.pull_failed_limit():
                        return ExitKind.PULL_FAILED
                    self._link.tell("ready", facts=dict(facts))
                    deadline = time.monotonic() + environment.pull_weight_timeout()
                case "exit":
                    return ExitKind.LEFT
                case "hung-up":
                    raise PeerLost("the coordinator is gone")

    def _check_definition(self, definition: Mapping[str, Any]) -> None:
        for field_, own in self._schedule.to_json_object().items():
            if definition["schedule"][field_] != own:
                raise StateMismatch(
                    f"{field_}: {definition['schedule'][field_]} in the driver, {own} in an engine; "
                    "the script must call train() with the same arguments in every process"
                )

    def _take_from_driver(self, message: Mapping[str, Any]) -> None:
        """The first engine of an attempt: the state comes from the driver, and counts at once."""
        group = self._hands.plane.build(message["store"], message["key"], message["rank"], message["size"])
        self._accept(group.receive(self._adapter, donors=[0]))
        group.close()
        self._enter(message["generation"], (self._link.name,), self._hands.plane.solo())
        self._link.tell("received", step=self._schedule.steps_before(self._tick))
        self._ask_for_batches()

    def _take_from_members(self, message: Mapping[str, Any]) -> None:
        """A newcomer: the members stream the state while they compute tick k; this engine takes part in k's
        reduction with nothing of its own, and counts from k + 1."""
        pending = self._link.pending(message["generation"])
        assert pending.group is not None
        donors = [pending.members.index(name) for name in pending.stayers]
        self._accept(pending.group.receive(self._adapter, donors))
        self._enter(pending.number, pending.members, pending.group)
        self._link.tell("received", step=self._schedule.steps_before(self._tick))
        self._work_guest(pending.stayers)

    def _accept(self, extra: Mapping[str, Any]) -> None:
        self._tick = int(extra["tick"])
        self._tally = Tally(self._adapter.metric_names, extra["tally"])

    # ── a change of members ───────────────────────────────────────────────────────────────────────────────────
    def _switch(self, number: int) -> bool:
        """Work by generation ``number`` from this tick on. False: this engine is not part of it."""
        pending = self._link.pending(number)
        name = self._link.name
        if not pending.members and name == self._members[0]:
            self._hands.write_checkpoint(self._tick, self._tally.to_json_object())
        if name not in pending.members:
            self._hands.telemetry.flush()  # before the driver can hear that all have left
            self._link.tell("switching", generation=number, tick=self._tick)
            return False
        self._link.tell("switching", generation=number, tick=self._tick)
        left = [member for member in self._members if member not in pending.members]
        old = self._group
        assert pending.group is not None
        if pending.stayers[0] == name:
            self._publish_resize(
                self._pauses.resize(
                    {
                        "generation": number,
                        "step": self._schedule.steps_before(self._tick),
                        "workers": len(pending.members),
                        "joined": [int(member) for member in pending.newcomers],
                        "left": [int(member) for member in left],
                    }
                )
            )
        self._enter(number, pending.members, pending.group, old)
        if pending.newcomers:
            self._finish_sending = self._group.start_sending(
                self._adapter.export_state(),
                {"tick": self._tick, "tally": self._tally.to_json_object()},
                donors=[pending.members.index(member) for member in pending.stayers],
                to=[pending.members.index(member) for member in pending.newcomers],
            )
        self._ask_for_batches(first_by=pending.stayers)
        return True

    def _enter(self, number: int, members: tuple[str, ...], group: Group, old: Group | None = None) -> None:
        self._generation, self._members, self._group = number, members, group
        self._link.enter(number, old)
        self._first_by = None

    def _ask_for_batches(self, first_by: tuple[str, ...] | None = None) -> None:
        """Let the loader prepare what this engine will need; the first tick may be shared by the stayers only."""
        self._first_by = first_by if first_by != self._members else None
        self._loader.restart(self._requests(self._tick, self._plan()[self._group.rank]))

    def _requests(self, tick: int, first_run: range) -> Iterator[BatchRequest]:
        run = first_run
        rest = shares.logical_map(self._schedule.logical_workers, self._group.size)[self._group.rank]
        for position in range(tick, self._schedule.ticks):
            where = self._schedule.at(position)
            for worker in run:
                indices = shares.samples(self._schedule, self._settings.seed, where, worker)
                if len(indices):
                    yield BatchRequest(where.kind, where.epoch, indices)
            run = rest

    def _plan(self) -> tuple[range, ...]:
        """The runs of logical workers of all ranks at the coming tick."""
        workers = self._schedule.logical_workers
        if self._first_by is None:
            return shares.logical_map(workers, self._group.size)
        runs = iter(shares.logical_map(workers, len(self._first_by)))
        return tuple(next(runs) if member in self._first_by else range(0) for member in self._members)

    # ── one tick ──────────────────────────────────────────────────────────────────────────────────────────────
    def _work(self) -> None:
        """Compute, reduce and commit one tick."""
        where = self._schedule.at(self._tick)
        plan = plan_of(self._schedule.logical_workers, self._plan())
        own = [0.0] * (2 + len(self._adapter.metric_names))

        def fill(worker: int, leaf: Leaf) -> None:
            self._fill(where, worker, leaf)
            if self._hands.worker_log:
                own[:] = [a + b for a, b in zip(own, self._adapter.sums(where.kind, leaf), strict=True)]

        self._reduce_and_commit(where, plan, fill)
        self._first_by = None
        if self._hands.worker_log and own[0]:
            values = means(self._adapter.metric_names, own)
            self._hands.worker_log(where.kind, values, where.step + 1, where.epoch + 1, self._group.size)
        if not self._counted and where.kind is TickKind.TRAIN:
            self._counted = True
            self._link.report("engine-counted", allocation=int(self._link.name), step=where.step)

    def _work_guest(self, stayers: tuple[str, ...]) -> None:
        """A newcomer's first tick: shard owner in the reduction, no leaves."""
        where = self._schedule.at(self._tick)
        self._first_by = stayers

        def nothing(worker: int, leaf: Leaf) -> None:
            raise AssertionError("a newcomer has no logical workers yet")

        self._reduce_and_commit(where, plan_of(self._schedule.logical_workers, self._plan()), nothing)
        if self._tick < self._schedule.ticks:
            self._ask_for_batches()

    def _fill(self, where: Tick, worker: int, leaf: Leaf) -> None:
        indices = shares.samples(self._schedule, self._settings.seed, where, worker)
        if not len(indices):
            leaf.zero_()
            return
        batch = self._loader.next()
        seed = step_seed(self._settings.seed, self._tick, worker)
        if where.kind is TickKind.VALIDATE:
            self._adapter.evaluate(batch, len(indices), seed, leaf)
        elif faults.drops(where.step, worker):
            leaf.zero_()
        else:
            total = sum(shares.step_sizes(self._schedule, where.index))
            self._adapter.micro_batch(batch, len(indices), total, seed, leaf)
            self._hands.recorder.hold(where.epoch, where.step, worker, indices)

    def _reduce_and_commit(self, where: Tick, plan: ReductionPlan, fill: Callable[[int, Leaf], None]) -> None:
        vector, self._announced = self._group.reduce(
            plan,
            self._adapter.size(where.kind),
            fill,
            self._link.announce,
            exact=self._settings.exact or where.kind is TickKind.VALIDATE,
            before_sum=self._let_go,
        )
        if where.kind is TickKind.TRAIN:
            self._adapter.apply(vector)
        if where.index == 0:
            self._tally.reset(where.kind)
        sums = self._adapter.sums(where.kind, vector)
        self._tally.add(where.kind, sums)
        self._tick += 1
        self._hands.recorder.commit()
        self._after_commit(where, sums)

    def _let_go(self) -> None:
        """Nothing may change the parameters before the newcomers have them."""
        if self._finish_sending is not None:
            self._finish_sending()
            self._finish_sending = None

    # ── after a commit ────────────────────────────────────────────────────────────────────────────────────────
    def _after_commit(self, where: Tick, sums: list[float]) -> None:
        if where.kind is TickKind.TRAIN:
            self._publish_resize(self._pauses.committed(time.monotonic()))
        else:
            self._pauses.interrupted()
        for what, why in self._adapter.take_warnings():
            self._link.report("guarantee-ended", what=what, why=why)
        if self._members[0] != self._link.name:
            return
        self._hands.telemetry.committed(self._schedule, where, self._tally, int(sums[0]), self._group.size)
        if where.ends_epoch:
            self._write_checkpoint(where.epoch + 1)
            self._save_for_user(where.epoch + 1)
            self._pauses.interrupted()

    def _write_checkpoint(self, epoch: int) -> None:
        """A full disk costs the checkpoint, not the training."""
        try:
            self._hands.write_checkpoint(self._tick, self._tally.to_json_object())
        except OSError as error:
            self._link.tell("note", text=f"no recovery checkpoint after epoch {epoch}: {error}")

    def _save_for_user(self, epoch: int) -> None:
        final = epoch == self._schedule.epochs
        if not final and self._settings.checkpoint_freq and epoch % self._settings.checkpoint_freq == 0:
            self._adapter.save_for_user(self._settings.model_dir, f"model_epoch_{epoch}")
        if final:
            self._adapter.save_for_user(self._settings.model_dir, "model_epoch_final")

    def _publish_resize(self, body: Mapping[str, Any] | None) -> None:
        if body is not None:
            self._link.report("resized", **body)

    # ── going ─────────────────────────────────────────────────────────────────────────────────────────────────
    def _end(self) -> ExitKind:
        """All ticks are committed: the first engine hands the weights to the driver."""
        self._publish_resize(self._pauses.finish())
        self._hands.telemetry.flush()
        body = (
            {"digest": self._adapter.digest(), "step": self._schedule.steps}
            if self._members[0] == self._link.name
            else {}
        )
        self._link.tell("finished", generation=self._generation, body=body)
        return self._wait_for_exit(ExitKind.FINISHED)

    def _wait_for_exit(self, kind: ExitKind) -> ExitKind:
        self._publish_resize(self._pauses.finish())
        self._hands.telemetry.flush()
        while True:
            message = self._link.wait()
            assert message is not None
            match message["kind"]:
                case "handover":
                    group = self._hands.plane.build(message["store"], message["key"], message["rank"], message["size"])
                    extra = {"tick": self._tick, "tally": self._tally.to_json_object()}
                    group.start_sending(self._adapter.export_state(), extra, donors=[0], to=[1])()
                    self._link.tell("handed-over")
                case "exit":
                    return kind
                case "hung-up":
                    raise PeerLost("the coordinator is gone")
