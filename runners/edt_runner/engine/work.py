"""The training as one engine holds it: its position, its state, the sums under way. Room: runners; framework-neutral.

A tick: load, forward and backward for the own logical workers, one reduction, one commit. A reduction may break off at
any instant; what is summed by then is kept for the next try, and the newest reduced vector is kept for whoever was
held up before he could apply it (DESIGN.md section 4, commit).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from edt_runner import faults
from edt_runner.crash_points import CrashPoint, crash_point
from edt_runner.engine import position, shares
from edt_runner.engine.adapter import BatchRequest, Group, Leaf, Sums, Vector
from edt_runner.engine.position import Doing
from edt_runner.engine.resizes import Resizes
from edt_runner.engine.schedule import Tick, TickKind
from edt_runner.engine.seat import Hands, Seat, Settings
from edt_runner.engine.seeds import step_seed
from edt_runner.engine.tally import Tally
from edt_runner.engine.tree import plan_of
from edt_runner.user_files import PLACE, UserFiles

Runs = tuple[Sequence[int], ...]
"""The logical workers of each rank, ascending; all of them together are the tick's."""


class Work:
    """Compute, reduce, commit. ``tick`` is the position of the coming tick."""

    def __init__(self, settings: Settings, hands: Hands) -> None:
        self._settings, self._schedule, self._hands = settings, settings.schedule, hands
        self._adapter, self._link, self._loader = hands.adapter, hands.link, hands.loader
        self.tick = 0
        self.vector: Vector | None = None
        """The reduced vector of tick - 1, as long as it is what was applied."""
        self.sums: Sums | None = None
        """What is summed of the coming tick."""
        self._width = 0
        """Micro-batches of the tick that they are of."""
        self.boundaries = 0
        """Ticks that this engine has committed, or been given."""
        self.resizes = Resizes(hands.link)
        self.finish_sending: Callable[[], None] | None = None
        """Waits until the newcomers have the weights."""
        self._files = UserFiles(
            settings.model_dir,
            hands.adapter.save_for_user,
            report=lambda error: hands.link.report("storage", place=PLACE, error=error, seconds=0.0),
            note=lambda text: hands.link.tell("note", text=text),
        )
        self._tally = Tally(hands.adapter.width)
        self._tried = 0
        """Generation in which the coming tick's reduction was tried last."""
        self._counted = False

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────
    @property
    def step(self) -> int:
        """Committed training steps."""
        return self._schedule.steps_before(self.tick)

    @property
    def done(self) -> bool:
        """No more ticks come."""
        return self.tick >= self._schedule.ticks or self._stopped

    @property
    def _stopped(self) -> bool:
        return self._hands.hooks is not None and self._hands.hooks.stopped

    def extra(self) -> dict[str, Any]:
        """What belongs to the state besides the adapter's."""
        return {"tick": self.tick, "tally": self._tally.to_json_object()}

    def accept(self, extra: Mapping[str, Any]) -> None:
        """The adapter has been filled with somebody's state, of which this is the rest."""
        self.tick = int(extra["tick"])
        self.boundaries += 1
        self._tally = Tally(self._adapter.width, extra["tally"])
        self.vector = self.sums = self.finish_sending = None
        self._hands.recorder.drop()
        if self._hands.hooks is not None:
            self._hands.hooks.begin()

    # ── batches ───────────────────────────────────────────────────────────────────────────────────────────────
    def shared(self, engines: int) -> tuple[range, ...]:
        """The coming tick's logical workers, shared alike by so many engines."""
        return shares.logical_map(self._coming(self.tick, engines).workers, engines)

    def _coming(self, tick: int, engines: int) -> Tick:
        return self._schedule.at(tick, self._settings.widths.at(tick, engines))

    def ask_for_batches(self, seat: Seat, runs: Runs, kept: Collection[int] = ()) -> None:
        """Let the loader prepare what this engine will need: at the coming tick, which is shared by ``runs``, all but
        what is ``kept``, later its part of what all share alike."""
        first = sorted(set(runs[seat.group.rank]) - set(kept))
        self._loader.restart(self._requests(self._schedule.at(self.tick, width_of(runs)), self.tick, first, seat.group))

    def _requests(self, where: Tick, tick: int, run: Sequence[int], group: Group) -> Iterator[BatchRequest]:
        while True:
            for worker in run:
                indices = shares.samples(self._schedule, self._settings.seed, where, worker)
                if len(indices):
                    yield BatchRequest(where.kind, where.epoch, indices)
            tick += where.positions
            if tick >= self._schedule.ticks:
                return
            where = self._coming(tick, group.size)
            run = shares.logical_map(where.workers, group.size)[group.rank]

    def keep(self, runs: Runs, rank: int) -> tuple[int, ...]:
        """Before another try of the coming tick: of what is summed keep what belongs to this engine's run; returns
        that."""
        self.finish_sending = None
        run = runs[rank]
        if width_of(runs) != self._width:  # another tick: nobody has gone on with the one that it was summed for
            self.sums = None
        if self.sums is not None:
            self.sums.restrict(run)
        kept = self.sums.workers() if self.sums is not None else ()
        self._hands.recorder.keep(kept)
        return kept

    # ── one tick ──────────────────────────────────────────────────────────────────────────────────────────────
    def do(self, seat: Seat, runs: Runs) -> int:
        """Compute, reduce and commit the coming tick; returns the generation that all announced alike, or 0."""
        where = self._schedule.at(self.tick, width_of(runs))
        plan = plan_of(where.workers, runs)
        self._width = where.workers
        exact = self._settings.exact or where.kind is TickKind.VALIDATE
        if self._hands.observe_step is not None and where.kind is TickKind.TRAIN:
            self._hands.observe_step(where, sum(map(bool, runs)), len(runs[seat.group.rank]), seat.leads)
        self._reach(CrashPoint.ENGINE_FORWARD if where.kind is TickKind.TRAIN else CrashPoint.ENGINE_VALIDATE)
        self.sums = seat.group.begin(self._adapter.size(where.kind), exact=exact, kept=self.sums)
        seat.group.gather(plan, self.sums, lambda worker, leaf: self._fill(where, worker, leaf))
        own = self._own_sums(where) if self._hands.worker_log else []
        if self.finish_sending is not None:  # nothing may change the parameters before the newcomers have them
            self.finish_sending()
            self.finish_sending = None
        if where.kind is TickKind.TRAIN:
            self._hands.recorder.trying(where.step, seat.generation)
        self._tried = seat.generation
        self._link.check()
        position.board.write(Doing.REDUCING, self.tick)
        self._reach(CrashPoint.ENGINE_BEFORE_REDUCE)
        vector, announced = seat.group.combine(plan, self.sums, self._link.announce)
        self._reach(CrashPoint.ENGINE_REDUCED)
        self.commit(vector, seat, where)
        self._tell_own(where, own, seat)
        if not self._counted and where.kind is TickKind.TRAIN and len(runs[seat.group.rank]):
            self._counted = True
            self._link.report("engine-counted", allocation=int(self._link.name), step=where.step)
        return announced

    def _fill(self, where: Tick, worker: int, leaf: Leaf) -> None:
        self._link.check()
        indices = shares.samples(self._schedule, self._settings.seed, where, worker)
        if not len(indices):
            leaf.zero_()
            return
        validates = where.kind is TickKind.VALIDATE
        position.board.write(Doing.LOADING, self.tick, worker)
        batch = self._loader.next()
        position.board.write(Doing.VALIDATING if validates else Doing.COMPUTING, self.tick, worker)
        seed = step_seed(self._settings.seed, *self._schedule.stream(self.tick, worker))
        if validates:
            self._adapter.evaluate(batch, len(indices), seed, leaf)
            return
        if faults.drops(where.step, worker):
            leaf.zero_()
        else:
            total = shares.tick_total(self._schedule, where)
            self._adapter.micro_batch(batch, len(indices), total, seed, leaf)
            self._hands.recorder.hold(where.epoch, where.step, worker, indices)
        position.board.write(Doing.APPLYING, self.tick)

    def commit_up_to(self, tick: int, vector: Vector, seat: Seat) -> None:
        """Commit the coming tick, after which others stand at ``tick``."""
        self.commit(vector, seat, self._schedule.at(self.tick, tick - self.tick))

    def commit(self, vector: Vector, seat: Seat, where: Tick) -> None:
        """Make the reduced vector of the coming tick ``where`` part of the state. Nothing in here waits for another
        engine."""
        begun = self.tick
        position.board.write(Doing.APPLYING, self.tick)
        self._hands.snapshots.copied()
        self._hands.comparing.wait()
        whole = self._adapter.apply(vector) if where.kind is TickKind.TRAIN else True
        self._reach(CrashPoint.ENGINE_APPLIED)
        if where.index == 0:
            self._tally.reset(where.kind)
        sums = self._adapter.sums(where.kind, vector)
        self._tally.add(where.kind, sums)
        self.tick += where.positions
        self.boundaries += 1
        self.vector, self.sums = vector if whole else None, None
        if where.kind is TickKind.TRAIN:
            self._hands.recorder.commit(
                where.step, self._tried, where.workers if self._schedule.follows_engines else None
            )
            self.resizes.committed(self.boundaries, leads=seat.leads)
        if where.kind is TickKind.VALIDATE or where.ends_epoch:
            self.resizes.interrupted()
        if where.ends_epoch and self._hands.hooks is not None:
            self._run_hooks(where)
        for what, why in self._adapter.take_warnings():
            self._link.report("guarantee-ended", what=what, why=why)
        telemetry = self._hands.telemetry
        telemetry.committed(
            self._schedule,
            where,
            self._tally,
            int(sums[0]),
            seat.group.size,
            leads=seat.leads,
            details=self._adapter.details(),
        )
        if seat.leads:
            if self._link.renewed:  # bundles of metrics may have died with the coordinator before this one
                self._link.renewed = False
                telemetry.lead()
            self._write_files(where)
        if not self.done:
            self._hands.comparing.committed(
                where, self.tick, generation=seat.generation, members=seat.members, name=self._link.name
            )
        crash_point(CrashPoint.ENGINE_COMMITTED, at=begun, who=self._link.name)

    def _run_hooks(self, where: Tick) -> None:
        values = self._adapter.values(self._tally.of(TickKind.TRAIN))
        if where.kind is TickKind.VALIDATE:
            validated = self._adapter.values(self._tally.of(TickKind.VALIDATE))
            values |= {f"val_{name}": value for name, value in validated.items()}
        last = where.epoch + 1 == self._schedule.epochs
        saves = last or self._saves_after(where.epoch + 1)
        assert self._hands.hooks is not None
        self._hands.hooks.end_epoch(where.epoch, values, last=last, saves=saves)

    # ── what the first engine does besides ────────────────────────────────────────────────────────────────────
    def lead(self) -> None:
        """This engine is the first from here on: whatever the one before it may have left undone is done again."""
        self._hands.telemetry.lead()
        self.resizes.lead(self.boundaries)
        if self.tick:  # also where the state has come from another engine, or from a checkpoint
            self._write_files(self._schedule.at(self.tick - 1))

    def _write_files(self, where: Tick) -> None:
        """Recovery checkpoints in the background, the user's files at the end of an epoch."""
        ended_anew, self._link.ended_anew = self._link.ended_anew, False
        force = where.ends_epoch or ended_anew
        self._hands.snapshots.begin(self.tick, self._tally.to_json_object(), force=force)
        if where.ends_epoch:
            position.board.write(Doing.EXPORTING, self.tick)
            self._save_for_user(where.epoch + 1)

    def _save_for_user(self, epoch: int) -> None:
        final = epoch == self._schedule.epochs or self._stopped
        if not final and self._saves_after(epoch):
            self._files.write(f"model_epoch_{epoch}")
        if final:
            self._files.write_final("model_epoch_final")

    def _saves_after(self, epoch: int) -> bool:
        return bool(self._settings.checkpoint_freq) and epoch % self._settings.checkpoint_freq == 0

    def write_checkpoint(self) -> None:
        """One of the state as it is now, on disk when this returns."""
        position.board.write(Doing.EXPORTING, self.tick)
        self._hands.snapshots.write_now(self.tick, self._tally.to_json_object())

    # ── this engine's own values ──────────────────────────────────────────────────────────────────────────────
    def _own_sums(self, where: Tick) -> list[float]:
        assert self.sums is not None
        found = [self._adapter.sums(where.kind, vector) for vector in self.sums.vectors()]
        return [sum(column) for column in zip(*found, strict=True)]

    def _tell_own(self, where: Tick, own: list[float], seat: Seat) -> None:
        if self._hands.worker_log and own and own[0]:
            values = self._adapter.values(own)
            self._hands.worker_log(where.kind, values, where.step + where.positions, where.epoch + 1, seat.group.size)

    def _reach(self, point: CrashPoint) -> None:
        crash_point(point, at=self.tick, who=self._link.name)


def width_of(runs: Runs) -> int:
    """Micro-batches of the tick that is shared so."""
    return sum(map(len, runs))
