"""An engine's work for the audit: it computes audited micro-batches, and does what follows if their bits differ.

``engine.audit`` decides what is audited and who is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edt_runner import context
from edt_runner.callbacks.records import bytes_of
from edt_runner.comm.group import Group
from edt_runner.comm.tree_reduction import Sink
from edt_runner.context import ActivityKind
from edt_runner.engine import notes
from edt_runner.engine.audit import Audit, judge, told
from edt_runner.engine.faults import Faults, flip
from edt_runner.engine.link import EngineLink, Membership
from edt_runner.frameworks.flat import checksum, new_vector
from edt_runner.frameworks.trainable import EngineAdapter
from edt_runner.protocol.messages import GuaranteeEnded, Note
from edt_runner.schedule import Step, StepKind
from edt_runner.seeds import step_seed
from edt_runner.splits import even_split, plan_of
from edt_runner.step_times import Phase, clock
from edt_runner.training import Training

_FAST = "reduction: "
"""How the cause begins that ends the guarantee of a training with reduction="fast". Its micro-batches have the same
bits in all engines; only their sum depends on the number of engines."""


class Auditing:
    """Computes micro-batches of training steps, and those that are audited as whole vectors.

    Args:
        training: the training.
        adapter: the adapter of this engine's model.
        link: the connection to the coordinator.
    """

    def __init__(self, training: Training, adapter: EngineAdapter, link: EngineLink) -> None:
        self._training, self._adapter, self._link = training, adapter, link
        self.audit = Audit(training)
        self._faults = Faults(context.page.engine)

    def for_notes(self, step: Step, membership: Membership) -> tuple[bool, int | None]:
        """Return what this engine says of the audit in the notes of ``step``: whether it asks for an audit of the next
        training step, and the checksum of the audited micro-batch if it has computed it."""
        history = self._link.history
        ended = history.ended if history is not None else ""
        alike = not ended or ended.startswith(_FAST)  # else bits may differ though no engine computes wrong
        asks = membership.leads and alike and self.audit.asks(step, membership.group.size)
        return asks, self.audit.checksum if step.kind is StepKind.TRAIN else None

    def compute(self, step: Step, offset: int, index: int, batch: Any, count: int, sink: Sink) -> bool:
        """Compute one of this engine's own micro-batches.

        Args:
            step: the training step.
            offset: its offset.
            index: number of the micro-batch.
            batch: its samples, as the loader has made them.
            count: number of its samples.
            sink: takes the local.

        Returns:
            False if a fault was made on purpose: the micro-batch was left out.
        """
        if self._faults.drops(step.training_steps_before, index):
            sink.put_zeros(0, sink.missing)
            return False
        choice = self.audit.choice
        audited = choice is not None and choice.micro_batch == index
        if not audited and not self._faults.flips(step.training_steps_before):
            self._stream(step, offset, index, batch, count, sink)
            return True
        local = self._local(step, offset, index, batch, count)
        if audited:
            self.audit.checksum = checksum_of(local)
        sink.put(0, local)
        return True

    def compute_again(self, step: Step, offset: int, rank: int) -> None:
        """Compute the audited micro-batch if ``rank``, which is this engine's, is its auditor."""
        choice = self.audit.choice
        if choice is not None and choice.auditor == rank:
            self.audit.checksum = self._computed_alone(step, offset, choice.micro_batch)

    def tried(self, step: Step) -> bool:
        """Note that a try of ``step`` has ended, also if the reduction failed. Returns whether it was audited."""
        if step.kind is StepKind.TRAIN:
            self._faults.tried(step.training_steps_before)
        return self.audit.choice is not None

    def stands(self, step: Step, offset: int, table: Sequence[Sequence[int]], membership: Membership) -> bool:
        """Look at the audit of a training step that is reduced.

        Args:
            step: the step.
            offset: its offset.
            table: the notes of all engines.
            membership: the membership that has reduced it.

        Returns:
            Whether the step may be committed. If not, it has to be computed again from the beginning.

        Raises:
            PeerLost: the group broke.
        """
        found, choice, before = notes.checksums(table), self.audit.choice, self.audit.verdict
        if choice is None or len(set(found.values())) < 2:
            self.audit.passed()
            return True
        what = f"micro-batch {choice.micro_batch} of step {step.training_steps_before}"
        if before is not None:
            self.audit.passed(over=True)
            if membership.leads:
                again = f"{told(before, what, membership.members)}, and again when the step was repeated"
                self._link.send(GuaranteeEnded("audit", again))
            return True
        verdict = judge(found, self._computed_by_all(step, offset, choice.micro_batch, membership.group))
        if membership.leads:
            self._link.report(
                "corrupted",
                allocations=[int(membership.members[rank]) for rank in verdict.ranks],
                certain=verdict.certain,
                step=step.training_steps_before,
                micro_batch=choice.micro_batch,
            )
            self._link.send(Note(f"{told(verdict, what, membership.members)}. The step is computed again."))
        self.audit.repeat(verdict)
        return False

    def end(self, membership: Membership) -> None:
        """The training is over: the first engine tells the user what the audits have cost."""
        if membership.leads and (cost := self.audit.cost()):
            self._link.send(Note(cost))

    def _computed_by_all(self, step: Step, offset: int, index: int, group: Group) -> list[int]:
        """Compute a micro-batch in all engines. Returns each rank's checksum of its local."""
        own = self._computed_alone(step, offset, index)
        plan = plan_of(group.size, even_split(group.size, group.size))
        reduction = group.begin(plan, ((0, 1),), exact=True, notes=notes.WIDTH)
        reduction.sum_own(lambda _, sink: sink.put_zeros(0, sink.missing))
        context.page.write(ActivityKind.REDUCING, offset)
        _, table = reduction.finish(lambda: notes.notes(0, clock.take(), checksum=own))
        found = notes.checksums(table)
        return [found[rank] for rank in range(group.size)]

    def _computed_alone(self, step: Step, offset: int, index: int) -> int:
        """Compute a micro-batch that may be another engine's. Returns the checksum of its local."""
        self._link.check()
        context.page.write(ActivityKind.LOADING, offset, index)
        indices = self._training.schedule.samples(self._training.seed, step, index)
        with clock.within(Phase.DATA):
            batch = self._training.samples.batch(True, step.epoch, indices.tolist())
        context.page.write(ActivityKind.COMPUTING, offset, index)
        return checksum_of(self._local(step, offset, index, batch, len(indices)))

    def _local(self, step: Step, offset: int, index: int, batch: Any, count: int) -> Any:
        """Compute a micro-batch. Returns its local, of shape (length,)."""
        local = new_vector(self._adapter.size(step.kind), self._adapter.dtype, self._adapter.vector_device)
        self._stream(step, offset, index, batch, count, Sink(local, adds=False))
        if self._faults.flips(step.training_steps_before):
            flip(local)
        return local

    def _stream(self, step: Step, offset: int, index: int, batch: Any, count: int, sink: Sink) -> None:
        schedule = self._training.schedule
        seed = step_seed(self._training.seed, *schedule.stream(offset, index))
        self._adapter.stream(batch, count, schedule.sample_count(step), seed, sink)


def checksum_of(local: Any) -> int:
    """Return a checksum of 63 bits of all bytes of a local, a torch tensor."""
    return int(checksum(bytes_of(local)), 16) >> 1
