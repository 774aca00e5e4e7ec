"""The schedule of a training: its steps, and the samples of each. Pure.

A step is one reduction and one commit. It is a training step, or an evaluation step, which is a slice of a validation.
The offset of a training is the number of steps that it has committed, of both kinds. The offset alone determines all
steps that follow.

If the batch follows the engines, offsets count micro-batches instead. A step then has as many micro-batches as there
are engines (``Widths``), and its offset is the offset of its first micro-batch. So an offset has the same meaning for
every number of engines. Training steps are counted in micro-batches, too.

The schedule alone determines the samples of a step's micro-batches. After that, the micro-batches are split over the
engines (``edt_runner.splits``). The samples never depend on the split.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from edt_runner.seeds import Permutation, key_of


class StepKind(enum.StrEnum):
    """The kind of a step."""

    TRAIN = "train"  # E micro-batches, one reduction, one update
    VALIDATE = "validate"  # E micro-batches of the test set, one reduction of sums, no update


@dataclass(frozen=True)
class Step:
    """One step of a training, and its place in the schedule."""

    kind: StepKind
    epoch: int
    """0-based."""
    index: int
    """Number of the training step in its epoch, or of the slice in its validation. 0-based."""
    training_steps_before: int
    """Training steps committed before this step, over all epochs."""
    last: bool
    """Whether the step is the last of its kind in its epoch."""
    ends_epoch: bool
    """Whether the step is the last of its epoch."""
    micro_batches: int
    """Number of micro-batches of the step."""
    advance: int = 1
    """How much the commit of the step adds to the offset: 1, or ``micro_batches`` if the batch follows the engines."""

    @property
    def training_steps_after(self) -> int:
        """Training steps committed after this step's commit, over all epochs."""
        return self.training_steps_before + (self.advance if self.kind is StepKind.TRAIN else 0)


@dataclass(frozen=True)
class Schedule:
    """The schedule of a training. It is the same in all processes of a job.

    Args:
        train_samples: length of the training set.
        test_samples: length of the test set; 0: no validation.
        micro_batches: E, the number of micro-batches of a step.
        batch_size: number of samples of a full micro-batch.
        epochs: number of passes over the training set.
        validation_freq: number of epochs from one validation to the next; 0: no validation.
        step_samples: number of samples of a full step, if it is not E x ``batch_size``; 0: it is.
        shuffled: whether each epoch has its own random order; otherwise each epoch has the order of the training set.
        follows_engines: whether the batch follows the number of engines. Then offsets, ``steps`` and ``length`` count
            micro-batches, and ``micro_batches`` is 1.
    """

    train_samples: int
    test_samples: int
    micro_batches: int
    batch_size: int
    epochs: int
    validation_freq: int = 1
    step_samples: int = 0
    shuffled: bool = True
    follows_engines: bool = False

    @property
    def global_batch(self) -> int:
        """Number of samples of a full training step."""
        return self.step_samples or self.micro_batches * self.batch_size

    @cached_property
    def steps_per_epoch(self) -> int:
        """Number of training steps of an epoch (of micro-batches if the batch follows the engines)."""
        return -(-self.train_samples // self.global_batch)

    @cached_property
    def steps(self) -> int:
        """Number of training steps of the whole training (of micro-batches if the batch follows the engines)."""
        return self.steps_per_epoch * self.epochs

    @property
    def validates(self) -> bool:
        """Whether there is a validation at all."""
        return bool(self.test_samples and self.validation_freq)

    @cached_property
    def validation_steps(self) -> int:
        """Number of evaluation steps of one validation. Each has E micro-batches of ``batch_size`` samples."""
        return -(-self.test_samples // (self.micro_batches * self.batch_size))

    @cached_property
    def length(self) -> int:
        """The offset at which the training is over."""
        return self.offset_of(self.epochs)

    def at(self, offset: int, width: int = 1) -> Step:
        """Return the step at ``offset``.

        Args:
            offset: 0 .. ``length`` - 1.
            width: number of its micro-batches if the batch follows the engines; fewer if the epoch's training or
                validation ends before that. Ignored otherwise.

        Raises:
            IndexError: the training is over at ``offset``, or ``offset`` is negative.
        """
        if not 0 <= offset < self.length:
            raise IndexError(f"offset {offset} outside 0..{self.length - 1}")
        epoch = self._epoch_of(offset)
        within = offset - self.offset_of(epoch)
        trains = within < self.steps_per_epoch
        end = self.steps_per_epoch if trains else self._length_of(epoch)
        advance = min(width, end - within) if self.follows_engines else 1
        micro_batches = advance if self.follows_engines else self.micro_batches
        return Step(
            StepKind.TRAIN if trains else StepKind.VALIDATE,
            epoch,
            within if trains else within - self.steps_per_epoch,
            epoch * self.steps_per_epoch + min(within, self.steps_per_epoch),
            within + advance == end,
            within + advance == self._length_of(epoch),
            micro_batches,
            advance,
        )

    def steps_before(self, offset: int) -> int:
        """Return the number of training steps committed at ``offset``, which may be the end of the training."""
        return self.steps if offset >= self.length else self.at(offset).training_steps_before

    def stream(self, offset: int, micro_batch: int) -> tuple[int, int]:
        """Return the pair (offset, index) that identifies the samples and the random stream of a micro-batch.

        If the batch follows the engines, each micro-batch counts as a separate step, so that the pair does not depend
        on the step that contains it.

        Args:
            offset: offset of the step.
            micro_batch: number of the micro-batch in the step.
        """
        return (offset + micro_batch, 0) if self.follows_engines else (offset, micro_batch)

    def step_sizes(self, index: int) -> tuple[int, ...]:
        """Return the number of samples of each of the E micro-batches of step ``index`` of an epoch.

        In a full step, each micro-batch has ``batch_size`` samples, or nearly as many if ``step_samples`` is smaller.
        The samples that are left for the last step are split evenly. Nothing is padded, and no sample is dropped or
        repeated.
        Micro-batches of one sample are avoided, because batch normalization refuses them: fewer micro-batches get two
        samples each. If a single sample is left for the last step, that step takes one more sample from the step before
        it.
        """
        size, number, total = self.batch_size, self.micro_batches, self._step_total(index)
        if total == size * number:
            return (size,) * number
        if (size > 2 and number < total < 2 * number) or 1 < total <= number:
            active = max(1, total // 2)  # pairs, and one group of three if the number is odd
        else:
            active = min(number, total)
        base, extra = divmod(total, active)
        if base + (extra > 0) > size:  # a micro-batch of two samples cannot hold three
            active, (base, extra) = min(number, total), divmod(total, min(number, total))
        return tuple(base + (each < extra) if each < active else 0 for each in range(number))

    def sample_count(self, step: Step) -> int:
        """Return the number of samples of the training step ``step``."""
        if not self.follows_engines:
            return sum(self.step_sizes(step.index))
        return sum(self._step_total(index) for index in range(step.index, step.index + step.micro_batches))

    def samples(self, seed: int, step: Step, micro_batch: int) -> npt.NDArray[np.int64]:
        """Return the sample indices of one micro-batch of ``step``.

        Args:
            seed: seed of the job.
            step: training or evaluation step.
            micro_batch: 0 .. ``step.micro_batches`` - 1.

        Returns:
            int64 array of shape (samples,), which may be empty. For a training step, the indices are into the training
            set, in the epoch's order. For an evaluation step, they are into the test set, in its own order.
        """
        return _samples(self, seed, step, micro_batch)

    def _samples_of(self, seed: int, step: Step, micro_batch: int) -> npt.NDArray[np.int64]:
        if step.kind is StepKind.VALIDATE:
            first = (step.index * self.micro_batches + micro_batch) * self.batch_size
            return np.arange(first, max(first, min(first + self.batch_size, self.test_samples)))
        index, micro_batch = self.stream(step.index, micro_batch)
        sizes = self.step_sizes(index)
        if not sizes[micro_batch]:
            return np.empty(0, dtype=np.int64)
        start = self._step_offset(index) + sum(sizes[:micro_batch])
        places = np.arange(start, start + sizes[micro_batch])
        return Permutation(self.train_samples, key_of(seed, step.epoch))(places) if self.shuffled else places

    def to_json_object(self) -> dict[str, int]:
        """Return all fields, for messages and checkpoints."""
        return asdict(self)

    @classmethod
    def from_json_object(cls, data: dict[str, Any]) -> Schedule:
        """Make a schedule from the result of ``to_json_object``. A missing field gets its default."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})

    def _step_total(self, index: int) -> int:
        """Return the number of samples of step ``index`` of an epoch. If a single sample is left for the last step, one
        sample moves there from the step before it."""
        full, steps = self.global_batch, self.steps_per_epoch
        rest = self.train_samples - (steps - 1) * full
        lonely = rest == 1 and steps > 1 and self.batch_size > 2
        if index == steps - 1:
            return rest + lonely
        return full - (lonely and index == steps - 2)

    def _step_offset(self, index: int) -> int:
        """Return the position in the epoch's order at which step ``index`` begins."""
        if index == self.steps_per_epoch - 1:
            return self.train_samples - self._step_total(index)
        return index * self.global_batch

    def _length_of(self, epoch: int) -> int:
        return self.offset_of(epoch + 1) - self.offset_of(epoch)

    def offset_of(self, epoch: int) -> int:
        """Return the offset at which an epoch begins. 0-based; ``epochs`` for the end of the training."""
        validations = epoch // self.validation_freq if self.test_samples and self.validation_freq else 0
        return epoch * self.steps_per_epoch + validations * self.validation_steps

    def _epoch_of(self, offset: int) -> int:
        return bisect_right(range(self.epochs), offset, key=self.offset_of) - 1


@dataclass(frozen=True)
class Widths:
    """The width of each step, which is the number of its micro-batches. It is the same in all processes of a job.

    The width is E, or the number of engines, or the width that the trace of an emulation gives for the offset. The
    first try of a step fixes its width: after a crash during the step, the survivors compute the same micro-batches,
    and the next step has the new width.

    Args:
        changes: pairs (offset, width from that offset on) in ascending order, the first at offset 0. They apply to
            every number of engines. Empty: every step has one micro-batch for each engine.
    """

    changes: Sequence[tuple[int, int]] = ()

    def at(self, offset: int, engines: int) -> int:
        """Return the width of the step at ``offset`` that ``engines`` engines share. ``Schedule.at`` reduces it at the
        end of an epoch's training or validation."""
        if not self.changes:
            return engines
        return self.changes[max(0, bisect_right(self.changes, offset, key=lambda change: change[0]) - 1)][1]

    @property
    def most(self) -> int | None:
        """The largest width; None: the width is the number of engines."""
        return max((width for _, width in self.changes), default=None)


@lru_cache(maxsize=256)
def _samples(schedule: Schedule, seed: int, step: Step, micro_batch: int) -> npt.NDArray[np.int64]:
    """``Schedule.samples``, remembered, because the loader and the step both ask."""
    found = schedule._samples_of(seed, step, micro_batch)
    found.flags.writeable = False
    return found
