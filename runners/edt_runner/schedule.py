"""What happens at which step of a training: which samples, which micro-batches on which rank, in which order they are
summed. Pure.

A step is one reduction and one commit: a training step, or a slice of a validation (an evaluation step). The offset of
a training says how far it is: the number of steps that it has committed, of both kinds. That one integer says
everything about what comes next.

Where the batch follows the engines, offsets count micro-batches instead: a step has as many micro-batches as there are
engines (``Widths``), and its offset is that of its first one. So an offset means the same whatever the engines were,
and training steps are counted in micro-batches, too.

The samples of a step's micro-batches follow from the schedule alone. Then the micro-batches are split over the engines
(``even_split``). The first never depends on the second.

Floating-point sums depend on their order, so the order is fixed by the number of micro-batches alone: a binary tree
whose left part is the largest power of two below that number (``children``). Each rank sums the subtrees that lie
wholly inside its part of the split; the rest of the tree is summed shard by shard, each by the rank that owns it.
Every split over engines therefore gives the same bits.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from edt_runner.seeds import Permutation, key_of


class StepKind(enum.StrEnum):
    """What a step does."""

    TRAIN = "train"  # E micro-batches, one reduction, one update
    VALIDATE = "validate"  # E test batches, one reduction of sums, no update


@dataclass(frozen=True)
class Step:
    """One step, by what it works on."""

    kind: StepKind
    epoch: int
    """0-based."""
    index: int
    """0-based within its kind and epoch: the training step of the epoch, or the slice of the validation."""
    training_steps_before: int
    """Training steps committed before this step, over all epochs."""
    last: bool
    """Whether it is the last step of its kind in its epoch."""
    ends_epoch: bool
    """Whether nothing of the epoch comes after it."""
    micro_batches: int
    """How many it has."""
    advance: int = 1
    """How far its commit moves the offset: 1, or ``micro_batches`` where the batch follows the engines."""

    @property
    def training_steps_after(self) -> int:
        """Training steps committed once this step is, over all epochs."""
        return self.training_steps_before + (self.advance if self.kind is StepKind.TRAIN else 0)


@dataclass(frozen=True)
class Schedule:
    """Shape of a training. All processes of a job hold the same one.

    Args:
        train_samples: length of the training set.
        test_samples: length of the test set; 0: no validation.
        micro_batches: E, of a step.
        batch_size: samples of a full micro-batch.
        epochs: passes over the training set.
        validation_freq: validate after every so many epochs; 0: never.
        step_samples: samples of a full step, where they are no whole micro-batches; 0: E x ``batch_size``.
        shuffled: each epoch has an order of its own; else its order is that of the training set.
        follows_engines: the batch follows the number of engines: offsets count micro-batches, and so do ``steps`` and
            ``length``; ``micro_batches`` is 1 then.
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
        """Samples of a full training step."""
        return self.step_samples or self.micro_batches * self.batch_size

    @cached_property
    def steps_per_epoch(self) -> int:
        """Training steps of an epoch (micro-batches where the batch follows the engines)."""
        return -(-self.train_samples // self.global_batch)

    @cached_property
    def steps(self) -> int:
        """Training steps of the whole training (micro-batches where the batch follows the engines)."""
        return self.steps_per_epoch * self.epochs

    @cached_property
    def validation_steps(self) -> int:
        """Evaluation steps of one validation: each has E batches of ``batch_size``."""
        return -(-self.test_samples // (self.micro_batches * self.batch_size))

    @cached_property
    def length(self) -> int:
        """The offset at which the training is over."""
        return self._offset_of(self.epochs)

    def at(self, offset: int, width: int = 1) -> Step:
        """The step that comes at ``offset``.

        Args:
            offset: 0 .. ``length`` - 1.
            width: its micro-batches where the batch follows the engines; clipped at the end of its kind and epoch.

        Raises:
            IndexError: the training is over at ``offset``, or it is negative.
        """
        if not 0 <= offset < self.length:
            raise IndexError(f"offset {offset} outside 0..{self.length - 1}")
        epoch = self._epoch_of(offset)
        within = offset - self._offset_of(epoch)
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
        """Training steps committed at ``offset``, which may be the end."""
        return self.steps if offset >= self.length else self.at(offset).training_steps_before

    def stream(self, offset: int, micro_batch: int) -> tuple[int, int]:
        """(offset, index) that name the samples and the random stream of ``micro_batch`` of the step at ``offset``.
        Where the batch follows the engines, each micro-batch counts as a step of its own, in whatever step it is."""
        return (offset + micro_batch, 0) if self.follows_engines else (offset, micro_batch)

    def step_sizes(self, index: int) -> tuple[int, ...]:
        """Samples of each of the E micro-batches of step ``index`` of an epoch.

        Full steps give ``batch_size`` to each, or nearly so where ``step_samples`` are fewer. The samples that are left
        for the last step are split evenly; nothing is padded, dropped or repeated. Micro-batches of one sample (which
        batch normalization refuses) are avoided by giving two to fewer of them, and a last step of a single sample
        takes one more from the step before it.
        """
        size, number, total = self.batch_size, self.micro_batches, self._step_total(index)
        if total == size * number:
            return (size,) * number
        if (size > 2 and number < total < 2 * number) or 1 < total <= number:
            active = max(1, total // 2)  # pairs, and one of three where the number is odd
        else:
            active = min(number, total)
        base, extra = divmod(total, active)
        if base + (extra > 0) > size:  # a batch of two cannot hold three
            active, (base, extra) = min(number, total), divmod(total, min(number, total))
        return tuple(base + (each < extra) if each < active else 0 for each in range(number))

    def sample_count(self, step: Step) -> int:
        """Samples of a whole training step."""
        if not self.follows_engines:
            return sum(self.step_sizes(step.index))
        return sum(self._step_total(index) for index in range(step.index, step.index + step.micro_batches))

    def samples(self, seed: int, step: Step, micro_batch: int) -> npt.NDArray[np.int64]:
        """Sample indices of one micro-batch of ``step``.

        Args:
            seed: of the job.
            step: training or evaluation step.
            micro_batch: 0 .. ``step.micro_batches`` - 1.

        Returns:
            int64 array of shape (samples,), which may be empty: indices into the training set, shuffled by (seed,
            epoch) or in its own order, or into the test set, in its own order.
        """
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
        """All fields, for messages and checkpoints."""
        return asdict(self)

    @classmethod
    def from_json_object(cls, data: dict[str, Any]) -> Schedule:
        """Read what ``to_json_object`` gave; a field that is missing has its default."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})

    def _step_total(self, index: int) -> int:
        """Samples of a whole step. A lone last sample gets company from the step before."""
        full, steps = self.global_batch, self.steps_per_epoch
        rest = self.train_samples - (steps - 1) * full
        lonely = rest == 1 and steps > 1 and self.batch_size > 2
        if index == steps - 1:
            return rest + lonely
        return full - (lonely and index == steps - 2)

    def _step_offset(self, index: int) -> int:
        """Position in the epoch's order at which step ``index`` begins."""
        if index == self.steps_per_epoch - 1:
            return self.train_samples - self._step_total(index)
        return index * self.global_batch

    def _length_of(self, epoch: int) -> int:
        return self._offset_of(epoch + 1) - self._offset_of(epoch)

    def _offset_of(self, epoch: int) -> int:
        validations = epoch // self.validation_freq if self.test_samples and self.validation_freq else 0
        return epoch * self.steps_per_epoch + validations * self.validation_steps

    def _epoch_of(self, offset: int) -> int:
        return bisect_right(range(self.epochs), offset, key=self._offset_of) - 1


@dataclass(frozen=True)
class Widths:
    """Gives the width of each step, which is the number of its micro-batches; the same in all processes of a job.

    It is E, or the number of engines, or what a trace says for an offset. The width is fixed when the step is first
    tried: after a crash in it the survivors compute the same micro-batches, and the next step has the new width.

    Args:
        changes: (offset, width from there on), ascending, the first at offset 0, whatever the number of engines is;
            none: every step has one micro-batch an engine.
    """

    changes: Sequence[tuple[int, int]] = ()

    def at(self, offset: int, engines: int) -> int:
        """Micro-batches of the step at ``offset`` that ``engines`` engines share. ``Schedule.at`` clips it at the end
        of an epoch's training or validation."""
        if not self.changes:
            return engines
        return self.changes[max(0, bisect_right(self.changes, offset, key=lambda change: change[0]) - 1)][1]

    @property
    def most(self) -> int | None:
        """The largest width; None: as many as there are engines."""
        return max((width for _, width in self.changes), default=None)


Split = tuple[Sequence[int], ...]
"""Which micro-batches of a step each rank computes, ascending; all of them together are the step's."""


def even_split(micro_batches: int, engines: int) -> tuple[range, ...]:
    """The micro-batches of each of ``engines`` engines: contiguous, as equal in number as can be, the longer parts
    first.

    The busiest engine has ceil(micro_batches / engines), so only sizes at which that drops are worth having.
    """
    base, extra = divmod(micro_batches, engines)
    starts = [rank * base + min(rank, extra) for rank in range(engines + 1)]
    return tuple(range(starts[rank], starts[rank + 1]) for rank in range(engines))


Span = tuple[int, int]
"""A node of the tree: the micro-batches from the first up to, not including, the second."""


def children(span: Span) -> tuple[Span, Span]:
    """The two halves of an inner node."""
    low, high = span
    middle = low + (1 << ((high - low - 1).bit_length() - 1))
    return (low, middle), (middle, high)


def cover(span: Span, micro_batches: Sequence[int]) -> tuple[Span, ...]:
    """The fewest nodes below ``span`` that together hold exactly those of ``micro_batches`` (ascending) that are in it,
    left to right."""
    low, high = span
    held = bisect_left(micro_batches, high) - bisect_left(micro_batches, low)
    if not held:
        return ()
    if held == high - low:
        return (span,)
    left, right = children(span)
    return cover(left, micro_batches) + cover(right, micro_batches)


@dataclass(frozen=True)
class ReductionPlan:
    """Who sums what in a group of engines.

    Args:
        micro_batches: of the step.
        split: the micro-batches of each rank, ascending; none for a rank that computes nothing this time.
    """

    micro_batches: int
    split: tuple[Sequence[int], ...]

    @property
    def root(self) -> Span:
        """The node of all micro-batches."""
        return (0, self.micro_batches)

    @cached_property
    def spans(self) -> tuple[tuple[Span, ...], ...]:
        """The nodes that each rank sums by itself."""
        return tuple(cover(self.root, part) for part in self.split)

    @cached_property
    def owners(self) -> dict[Span, int]:
        """The rank that sums a node by itself."""
        return {span: rank for rank, spans in enumerate(self.spans) for span in spans}


@lru_cache(maxsize=256)
def plan_of(micro_batches: int, split: tuple[Sequence[int], ...]) -> ReductionPlan:
    """The plan of this split, from a cache: every step asks for it."""
    return ReductionPlan(micro_batches, split)
