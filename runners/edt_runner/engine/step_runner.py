"""Steps of the training as one engine runs them: compute, reduce, commit. Framework-neutral.

In each step, the engine loads batches, runs forward and backward passes on its micro-batches, reduces the local
gradients with the other engines, and commits the step. A reduction may fail at any instant. The sums of this engine's
own micro-batches are then kept for the next try. The newest reduced tensor is kept, too: some engines may not have
received all of it before the reduction failed.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edt_contract.crash_points import CrashPoint, crash_point
from edt_runner import context, environment
from edt_runner.adapter import Reduced, Sink
from edt_runner.callbacks.hooks import UserCallbacks
from edt_runner.checkpoints.snapshot import Snapshots
from edt_runner.checkpoints.user_files import BEST, Names, UserFiles
from edt_runner.comm.group import Group
from edt_runner.comm.plane import DataPlane
from edt_runner.comm.reduction import Reduction
from edt_runner.comm.tree_reduction import PartialSums
from edt_runner.context import ActivityKind
from edt_runner.engine import notes
from edt_runner.engine.assignment import Assignment, width_of
from edt_runner.engine.auditing import Auditing
from edt_runner.engine.checksum_sender import ChecksumSender
from edt_runner.engine.link import EngineLink, Membership
from edt_runner.engine.telemetry import MetricSums, PauseTimer, Recorder, Telemetry
from edt_runner.errors import NotFinite, PeerLost
from edt_runner.frameworks.trainable import EngineAdapter
from edt_runner.loader import SampleLoader
from edt_runner.protocol.data import RegroupStatus
from edt_runner.protocol.messages import GuaranteeEnded
from edt_runner.schedule import Step, StepKind
from edt_runner.seeds import step_seed
from edt_runner.splits import ReductionPlan, Split, plan_of
from edt_runner.step_lines import EngineLines
from edt_runner.step_times import Phase, clock
from edt_runner.training import Training

_CHECKPOINT_SECONDS, _LOOK_SECONDS = 600.0, 0.05


@dataclass(frozen=True)
class EngineParts:
    """The parts of an engine."""

    training: Training
    facts: Mapping[str, Any]
    """Facts about this engine's data, which the coordinator compares with the driver's."""
    adapter: EngineAdapter
    plane: DataPlane
    loader: SampleLoader
    link: EngineLink
    recorder: Recorder
    snapshots: Snapshots
    checksum_sender: ChecksumSender
    hooks: UserCallbacks | None
    files: UserFiles
    lines: EngineLines
    restore: Callable[[int], Mapping[str, Any]]
    """Loads the newest checkpoint of the given offset or an earlier one into the adapter, and removes later
    checkpoints. It returns the part of the state that is not in the adapter. It raises CheckpointError if there is no
    such checkpoint."""


class StepRunner:
    """Runs the steps of a training, and holds the part of the training's state that is not in the adapter.

    Args:
        parts: the parts of the engine.
    """

    def __init__(self, parts: EngineParts) -> None:
        self._parts, self._training, self._schedule = parts, parts.training, parts.training.schedule
        self._adapter, self._link, self._loader = parts.adapter, parts.link, parts.loader
        self.offset = 0
        """Offset of the coming step."""
        self.reduced: Reduced | None = None
        """The reduced tensor of the step that was committed last; None: there is none that other engines could
        apply."""
        self._sums: PartialSums | None = None
        """The sums of this engine's micro-batches of the coming step; None: there are none yet."""
        self.torn = False
        """Whether the state is incomplete, because the receiving of another engine's state has not finished."""
        self.assignment = Assignment(parts.training, parts.loader)
        self._summed_width = 0
        """Number of micro-batches of the step to which ``_sums`` belong."""
        self.pauses = PauseTimer(parts.link)
        prints = parts.link.name if environment.profile_step() else None
        self._telemetry = Telemetry(parts.link, parts.adapter.values, prints=prints)
        self.finish_sending: Callable[[], None] | None = None
        """A function that waits until the state has been sent to the joining engines; None: there are none."""
        self._epoch_sums = MetricSums(parts.adapter.width)
        self._tried_in = 0
        """The generation in which the coming step was tried last."""
        self._auditing = Auditing(parts.training, parts.adapter, parts.link)
        self._reported_first_step = False
        self._step_sums: list[float] = []
        """Sums of loss and metrics of the step that was committed last, over all engines."""

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────
    @property
    def training_steps(self) -> int:
        """Number of committed training steps."""
        return self._schedule.steps_before(self.offset)

    @property
    def done(self) -> bool:
        """Whether the training is over."""
        return self.offset >= self._schedule.length or self._stopped

    @property
    def _stopped(self) -> bool:
        return self._parts.hooks is not None and self._parts.hooks.stopped

    def status(self, engines: int) -> RegroupStatus:
        """Return how far this engine is, for a regroup. ``engines`` is the number of engines in its membership."""
        micro_batches, offset_after = self._schedule.micro_batches, None
        if self._schedule.follows_engines:
            micro_batches = 0 if self.done else width_of(self.assignment.coming(self.offset, engines))
            offset_after = self.offset + micro_batches
        return RegroupStatus(
            offset=self.offset,
            has_reduced=self.reduced is not None,
            summed=self._sums.spans() if self._sums is not None else (),
            ended=self.done,
            micro_batches=micro_batches,
            offset_after=offset_after,
        )

    def transfer(self, group: Group, sources: Sequence[int], receivers: Sequence[int]) -> Callable[[], None]:
        """Move the whole state from some ranks of ``group`` to other ranks. The state is equal in all sources.

        On a receiver, the state has arrived when this returns. On a source, the sending has begun when this returns,
        and the state must not change until the returned function has returned.

        Args:
            group: the group that connects the engines.
            sources: ranks that send.
            receivers: ranks that receive.

        Returns:
            A function that waits until this rank's part has been sent.

        Raises:
            PeerLost: a connection broke.
        """
        if group.rank in receivers:
            self._parts.snapshots.wait_copied()
            self._parts.checksum_sender.wait()
            self.torn = True
            self.accept(group.receive_state(self._adapter, sources))
        elif group.rank in sources and receivers:
            extra = {"offset": self.offset, "metric_sums": self._epoch_sums.to_json_object()}
            return group.send_state(self._adapter.export_state(), extra, sources, receivers)
        return lambda: None

    def accept(self, extra: Mapping[str, Any]) -> None:
        """Continue from a state that is already in the adapter. ``extra`` is the part of that state that is not in the
        adapter."""
        self.offset = int(extra["offset"])
        self._epoch_sums = MetricSums(self._adapter.width, extra["metric_sums"])
        self.reduced = self._sums = self.finish_sending = None
        self._parts.recorder.keep(())
        if self._parts.hooks is not None:
            self._parts.hooks.begin()

    # ── batches ───────────────────────────────────────────────────────────────────────────────────────────────
    def enter(self, engines: int) -> None:
        """Note that this engine has entered another membership, of ``engines`` engines, with a complete state."""
        self.assignment.enter(engines)
        self._auditing.audit.cancel()
        self._telemetry.profile.reset()
        clock.take()  # what came before is no part of a step
        self.torn = False

    def split_over(self, computing: tuple[str, ...], members: tuple[str, ...]) -> None:
        """Split the coming step over the engines ``computing`` only, which are some of ``members`` (in rank order)."""
        self.assignment.split_over(computing, members, self.offset)

    def request_batches(self, group: Group, kept: Collection[int] = ()) -> None:
        """Let the loader prepare the micro-batches that this engine will compute, without ``kept``, which are micro-
        batches of the coming step that are summed already."""
        if not self.done:
            self.assignment.request_batches(self.offset, group.rank, group.size, kept)

    def try_again(self, parts: Split, group: Group) -> None:
        """Prepare another try of the coming step.

        The sums of micro-batches that are this engine's in the new split are kept; the batches of its other
        micro-batches are requested from the loader.

        Args:
            parts: the new split of the step.
            group: the new group.
        """
        self.finish_sending = None
        self.assignment.split_next(parts)
        if width_of(parts) != self._summed_width:  # the sums belong to a step of another width
            self._sums = None
        if self._sums is not None:
            self._sums.restrict(parts[group.rank])
        kept = self._sums.micro_batches() if self._sums is not None else ()
        self._parts.recorder.keep(kept)
        self.request_batches(group, kept)

    # ── one step ──────────────────────────────────────────────────────────────────────────────────────────────
    def run(self, membership: Membership) -> int:
        """Compute, reduce and commit the coming step.

        Returns:
            The generation that all engines announced in the reduction, or 0 if they announced different ones.

        Raises:
            PeerLost: the group broke, or a regroup was started. The step is not committed.
        """
        self._telemetry.begin_step()
        group = membership.group
        parts = self.assignment.coming(self.offset, group.size)
        step = self._schedule.at(self.offset, width_of(parts))
        trains = step.kind is StepKind.TRAIN
        plan = plan_of(step.micro_batches, parts)
        self._summed_width = step.micro_batches
        if self._training.request.observe_step is not None and trains:
            self._training.request.observe_step(step, sum(map(bool, parts)), len(parts[group.rank]), membership.leads)
        if trains:
            self._auditing.audit.begin(step, self.offset, parts)
        self.reach(CrashPoint.ENGINE_FORWARD if trains else CrashPoint.ENGINE_VALIDATE)
        reduction = self._begin(plan, step, group)
        self._sums = reduction.sums
        try:
            reduction.sum_own(lambda index, sink: self._compute(step, index, sink))
            own = self._own_sums(step) if self._training.request.worker_logger else []
            self._auditing.compute_again(step, self.offset, group.rank)
            if self.finish_sending is not None:  # joining engines must have the parameters before they change
                self.finish_sending()
                self.finish_sending = None
            if trains:
                self._parts.recorder.trying(step.training_steps_before, membership.generation)
            self._tried_in = membership.generation
            self._link.check()
            context.page.write(ActivityKind.REDUCING, self.offset)
            self.reach(CrashPoint.ENGINE_BEFORE_REDUCE)
            reduced, table = reduction.finish(lambda: self._notes(step, membership))
        finally:
            if reduction.overwrites:
                self.reduced = None
            if self._auditing.tried(step):  # the sums may have the bits that the audit looks for
                self._sums = None
        self.reach(CrashPoint.ENGINE_REDUCED)
        self.reduced = None  # all have committed the step before
        audited = self._auditing.audit.choice is not None
        if trains and not self._auditing.stands(step, self.offset, table, membership):
            return self._run_again(membership)
        self.commit(reduced, membership, step)
        self._log_own(step, own, group.size)
        if trains and len(parts[group.rank]):
            self._write_lines(step, len(parts[group.rank]))
        if not self._reported_first_step and trains and len(parts[group.rank]):
            self._reported_first_step = True
            self._link.report("engine-counted", allocation=int(self._link.name), step=step.training_steps_before)
        if notes.unanimous(table, notes.Column.FASTER):
            group.change_over()
        self._learn(parts, table, membership, trains=trains, audited=audited)
        return notes.unanimous(table)

    def _begin(self, plan: ReductionPlan, step: Step, group: Group) -> Reduction:
        """Begin the reduction of a step. What has been summed of it in an earlier try is used again."""
        self._adapter.begin_step()
        exact = self._training.request.exact or step.kind is not StepKind.TRAIN
        buckets = self._adapter.buckets(step.kind)
        return group.begin(plan, buckets, exact=exact, notes=notes.WIDTH, previous=self._sums)

    def _run_again(self, membership: Membership) -> int:
        """Do what ``run`` does, from the beginning: the sums of the coming step are wrong."""
        self._parts.recorder.keep(())
        self.request_batches(membership.group)
        return self.run(membership)

    def _notes(self, step: Step, membership: Membership) -> list[int]:
        asks, checksum = self._auditing.for_notes(step, membership)
        return notes.notes(
            self._link.announce(),
            clock.take(),
            faster=membership.group.has_faster,
            audit_next=asks,
            checksum=checksum,
        )

    def _learn(
        self, parts: Split, table: list[list[int]], membership: Membership, *, trains: bool, audited: bool
    ) -> None:
        """Learn from the notes of a committed step where its time went, how to split later ones, and whether the next
        one is audited."""
        self._auditing.audit.hear(table)
        if not trains:
            self.assignment.split_next(None)
            return
        self._telemetry.profile.add(membership.members, [len(part) for part in parts], notes.phases(table))
        if self.assignment.committed(parts, table, audited=audited):
            self.request_batches(membership.group)

    def _compute(self, step: Step, index: int, sink: Sink) -> None:
        """Load and compute micro-batch ``index`` of ``step``, and give its local, of shape (length,), to ``sink``."""
        self._link.check()
        indices = self._schedule.samples(self._training.seed, step, index)
        if not len(indices):
            sink.put_zeros(0, sink.missing)
            return
        evaluates = step.kind is StepKind.VALIDATE
        context.page.write(ActivityKind.LOADING, self.offset, index)
        with clock.within(Phase.DATA):
            batch = self._loader.next()
        context.page.write(ActivityKind.VALIDATING if evaluates else ActivityKind.COMPUTING, self.offset, index)
        if evaluates:
            seed = step_seed(self._training.seed, *self._schedule.stream(self.offset, index))
            with sink.whole() as local:
                self._adapter.evaluate(batch, len(indices), seed, local)
            return
        if self._auditing.compute(step, self.offset, index, batch, len(indices), sink):
            self._parts.recorder.hold(step.epoch, step.training_steps_before, index, indices)
        if self._adapter.vector_device.type != "cpu" and not step.ends_epoch:  # the GPU computes still
            context.page.write(ActivityKind.LOADING, self.offset)  # of another micro-batch: this one hangs no more
            with clock.within(Phase.DATA):
                self._loader.prepare(self._adapter.placed)
        context.page.write(ActivityKind.APPLYING, self.offset)

    def commit(self, reduced: Reduced, membership: Membership, step: Step) -> None:
        """Make the reduced tensor of the coming step part of the state. This method does not wait for any other engine.

        Args:
            reduced: the reduced tensor of the step.
            membership: the membership in which the step was reduced.
            step: the step.
        """
        before, trains, leads = self.offset, step.kind is StepKind.TRAIN, membership.leads
        context.page.write(ActivityKind.APPLYING, self.offset)
        self._parts.snapshots.wait_copied()
        self._parts.checksum_sender.wait()
        with clock.within(Phase.APPLY):
            whole = self._apply(reduced, step, membership) if trains else True
        self.reach(CrashPoint.ENGINE_APPLIED)
        if step.index == 0:
            self._epoch_sums.reset(step.kind)
        sums = self._step_sums = self._adapter.sums(step.kind, reduced)
        if not trains or not self._adapter.left_out:
            self._epoch_sums.add(step.kind, sums)
        self.offset += step.advance
        # alone in its group, the engine uses the memory again in the next step, and nobody asks for it
        self.reduced, self._sums = reduced if whole and membership.group.size > 1 else None, None
        if trains:
            width = step.micro_batches if self._schedule.follows_engines else None
            self._parts.recorder.commit(step.training_steps_before, self._tried_in, width)
            self.pauses.committed()
        self._telemetry.end_step()
        if not trains or step.ends_epoch:
            self.pauses.interrupted()
        if self._parts.hooks is not None and self._parts.hooks.has_step_hooks:
            self._parts.hooks.end_step(step, self._adapter.values(self._epoch_sums.of(step.kind)))
        if step.ends_epoch and self._parts.hooks is not None:
            self._run_hooks(step)
        if self.done:
            self._judge_trained(membership)
            self._auditing.end(membership)
        for what, why in self._adapter.take_warnings():
            self._link.send(GuaranteeEnded(what, why))
        size, details = membership.group.size, self._adapter.details()
        self._telemetry.committed(
            self._schedule, step, self._epoch_sums, int(sums[0]), size, leads=leads, details=details
        )
        if leads:
            if self._link.reconnected:  # bundles of metrics may have been lost with the previous coordinator
                self._link.reconnected = False
                self._telemetry.lead()
            self._write_files(step)
        elif step.ends_epoch and membership.group.rank == 1:
            self._parts.files.hold(self._files_of(step))
        if not self.done:
            self._parts.checksum_sender.committed(step, self.offset, membership)
        crash_point(CrashPoint.ENGINE_COMMITTED, at=before, who=self._link.name)

    def _apply(self, reduced: Reduced, step: Step, membership: Membership) -> bool:
        """Apply a training step.

        Returns:
            Whether another engine may apply ``reduced``, too.

        Raises:
            NotFinite: the step's loss or gradient is no finite number. The state of before the step is then kept in a
                checkpoint.
        """
        seed = step_seed(self._training.seed, self.offset, step.micro_batches)
        self._training.request.trainable.framework.seed_step(seed)  # hooks of the optimizer may draw numbers
        try:
            return self._adapter.apply(reduced)
        except NotFinite as error:
            kept = self._keep_last_good(membership)
            schedule = self._schedule
            samples = min(step.training_steps_before, schedule.steps) * schedule.global_batch
            where = f"step {step.training_steps_before + 1} (epoch {step.epoch + 1}, after {samples:,} samples)"
            error = error.at(where)
            error.add_note(kept)
            raise error from None

    def _judge_trained(self, membership: Membership) -> None:
        """Check the weights after the last step, since no later step can show that they are not finite.

        Raises:
            NotFinite: they are not.
        """
        if self._training.request.on_nonfinite == "continue" or self._adapter.is_finite():
            return
        if not membership.leads:
            self._wait_for_first_engine()
        loss = self._adapter.loss(self._step_sums)
        raise NotFinite(loss, math.nan, None, "after the last step the weights are not finite")

    def _keep_last_good(self, membership: Membership) -> str:
        """Write a checkpoint of the state before a step that is not finite, in the first engine. Returns a sentence for
        the user."""
        advice = (
            "a smaller learning rate, clip_grad_norm or precision='bf16' may help; on_nonfinite='skip' leaves such "
            "steps out"
        )
        if not self._adapter.is_finite():
            return f"The weights themselves are no longer finite; {advice}."
        if not membership.leads:
            self._wait_for_first_engine()
        elif self.offset:
            self.write_checkpoint()
        if not self.offset:
            return f"It was the first step, so nothing of the training is lost; {advice}."
        return f"The state before this step is kept as a checkpoint, from which a job can go on; {advice}."

    def _wait_for_first_engine(self) -> None:
        """Wait until the first engine has written its checkpoint and ended. An engine that ends earlier would end the
        whole job."""
        deadline = time.monotonic() + _CHECKPOINT_SECONDS
        with contextlib.suppress(PeerLost):
            while time.monotonic() < deadline:
                self._link.check()
                time.sleep(_LOOK_SECONDS)

    def _run_hooks(self, step: Step) -> None:
        values = self._adapter.values(self._epoch_sums.of(StepKind.TRAIN))
        if step.kind is StepKind.VALIDATE:
            validated = self._adapter.values(self._epoch_sums.of(StepKind.VALIDATE))
            values |= {f"val_{name}": value for name, value in validated.items()}
        last = step.epoch + 1 == self._schedule.epochs
        saves = last or self._saves_after(step.epoch + 1)
        assert self._parts.hooks is not None
        self._parts.hooks.end_epoch(step.epoch, values, last=last, saves=saves)

    def flush(self) -> None:
        """Send all collected metrics, progress and pauses, because this engine is about to leave or to end."""
        self.pauses.finish()
        self._telemetry.flush()

    # ── further work of the first engine ──────────────────────────────────────────────────────────────────────
    def lead(self) -> None:
        """Take over the work of the first engine in rank order. This repeats work that the previous first engine may
        not have finished."""
        self._telemetry.lead()
        step = self._schedule.at(self.offset - 1) if self.offset else None
        if step is None or not step.ends_epoch:  # else the files of the present state are those that are held
            self._parts.files.write_held()
        if step is not None:  # also if the state has come from another engine or from a checkpoint
            self._write_files(step)

    def _write_files(self, step: Step) -> None:
        """Begin a recovery checkpoint if one is due, and write the user's files at the end of an epoch."""
        ended, self._link.guarantee_ended = self._link.guarantee_ended, False
        self._parts.snapshots.begin(self.offset, self._epoch_sums.to_json_object(), force=step.ends_epoch or ended)
        if step.ends_epoch:
            context.page.write(ActivityKind.EXPORTING, self.offset)
            if self._ends_training(step):
                self._parts.files.write_final("model_epoch_final")
            for name, then in self._files_of(step):
                self._parts.files.write(name, then)

    def _files_of(self, step: Step) -> list[Names]:
        """The user's files that the end of this step's epoch is worth, without the final ones."""
        found: list[Names] = []
        if not self._ends_training(step) and self._saves_after(step.epoch + 1):
            found.append((f"model_epoch_{step.epoch + 1}", None))
        if (best := self._best(step)) is not None:
            found.append((BEST, lambda: self._telemetry.best_kept(step, best)))
        return found

    def _ends_training(self, step: Step) -> bool:
        """Whether the training is over with the epoch that this step ends."""
        return step.epoch + 1 == self._schedule.epochs or self._stopped

    def _best(self, step: Step) -> dict[str, Any] | None:
        """What the platform is told of the best model, if the end of this step's epoch has made it; else None."""
        best = self._training.best
        if not step.ends_epoch or best is None or best.epoch != step.epoch + 1:
            return None
        return {"metric": best.metric, "mode": best.mode, "value": best.best, "epoch": best.epoch, "file": BEST}

    def _saves_after(self, epoch: int) -> bool:
        every = self._training.request.checkpoint_freq
        return bool(every) and epoch % every == 0

    def write_checkpoint(self) -> None:
        """Write a recovery checkpoint of the current state. Returns when the checkpoint is on disk."""
        context.page.write(ActivityKind.EXPORTING, self.offset)
        self._parts.snapshots.write_now(self.offset, self._epoch_sums.to_json_object())

    # ── this engine's own values ──────────────────────────────────────────────────────────────────────────────
    def _own_sums(self, step: Step) -> list[float]:
        """Return samples, loss and metrics, summed over this engine's micro-batches."""
        assert self._sums is not None
        found = [self._adapter.sums(step.kind, tensor) for tensor in self._sums.tensors()]
        return [sum(column) for column in zip(*found, strict=True)]

    def _log_own(self, step: Step, own: list[float], workers: int) -> None:
        logger = self._training.request.worker_logger
        if logger is None or not own or not own[0]:
            return
        values, iteration, epoch = self._adapter.values(own), step.training_steps_before + step.advance, step.epoch + 1
        if step.kind is StepKind.TRAIN:
            logger.log_train_metrics(values, iteration, epoch, workers)
        else:
            logger.log_test_metrics(values, iteration, epoch)

    def _write_lines(self, step: Step, own: int) -> None:
        """Write lines about a committed training step to standard output. ``own``: number of its micro-batches that
        this engine has computed."""
        schedule, sums, steps = self._schedule, self._step_sums, step.training_steps_after
        self._parts.lines.committed(
            own,
            steps * schedule.micro_batches,
            steps // schedule.steps_per_epoch,
            lambda: self._adapter.values(sums),
            (self._adapter.size(StepKind.TRAIN) * self._parts.plane.item_bytes, step.micro_batches),
        )

    def reach(self, point: CrashPoint) -> None:
        """Mark a point at which a test may end this engine."""
        crash_point(point, at=self.offset, who=self._link.name)
