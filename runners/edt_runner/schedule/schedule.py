"""What happens at which step of a training. Pure.

A step is one reduction and one commit: a training step, or a slice of a validation (an evaluation step). The offset of
a training says how far it is: the number of steps that it has committed, of both kinds. That one integer says
everything about what comes next.

Where the batch follows the engines, offsets count micro-batches instead: a step has as many micro-batches as there are
engines (``Widths``), and its offset is that of its first one. So an offset means the same whatever the engines were,
and training steps are counted in micro-batches, too.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any


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
        """(offset, index) that name the random stream of ``micro_batch`` of the step at ``offset``. Where the batch
        follows the engines, a micro-batch has the same one in whatever step it is."""
        return (offset + micro_batch, 0) if self.follows_engines else (offset, micro_batch)

    def to_json_object(self) -> dict[str, int]:
        """All fields, for messages and checkpoints."""
        return asdict(self)

    @classmethod
    def from_json_object(cls, data: dict[str, Any]) -> Schedule:
        """Read what ``to_json_object`` gave; a field that is missing has its default."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})

    def _validates(self, epoch: int) -> bool:
        return bool(self.test_samples and self.validation_freq and (epoch + 1) % self.validation_freq == 0)

    def _length_of(self, epoch: int) -> int:
        return self.steps_per_epoch + (self.validation_steps if self._validates(epoch) else 0)

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
