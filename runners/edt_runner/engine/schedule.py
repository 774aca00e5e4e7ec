"""What happens at which tick of a training. Pure; room: runners.

A tick is one reduction and one commit: a training step, or a slice of a validation. The position of a training
is its number of committed ticks, one integer that says everything (reference: DESIGN.md section 4).

Where the global batch follows the engines, positions count micro-batches instead: a tick has as many as there are
engines (``widths``), and its position is its first one. So a position means the same whatever the engines were, and
steps count micro-batches, too.
"""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any


class TickKind(enum.StrEnum):
    """What a tick does."""

    TRAIN = "train"  # E micro-batches, one reduction, one update
    VALIDATE = "validate"  # E test batches, one reduction of sums, no update


@dataclass(frozen=True)
class Tick:
    """One tick, by what it works on."""

    kind: TickKind
    epoch: int
    """0-based."""
    index: int
    """Within its kind and epoch, 0-based: the step of the epoch, or the slice of the validation."""
    step: int
    """Training steps committed before this tick, over all epochs."""
    last: bool
    """The last tick of its kind in its epoch."""
    ends_epoch: bool
    """Nothing of the epoch comes after it."""
    workers: int
    """Logical workers that share it: its micro-batches."""
    positions: int = 1
    """How far its commit moves the training on."""

    @property
    def steps(self) -> int:
        """Training steps committed when it is."""
        return self.step + (self.positions if self.kind is TickKind.TRAIN else 0)


@dataclass(frozen=True)
class Schedule:
    """Shape of a training. All processes of a job hold the same one.

    Args:
        train_samples: length of the training set.
        test_samples: length of the test set; 0: no validation.
        logical_workers: E, micro-batches a step.
        batch_size: samples of a full micro-batch.
        epochs: passes over the training set.
        validation_freq: validate after every so many epochs; 0: never.
        step_samples: samples of a full step, where they are no whole micro-batches; 0: E x ``batch_size``.
        shuffled: an epoch has an order of its own; else it is that of the training set.
        follows_engines: positions count micro-batches, of which a tick has a width of its own; ``logical_workers`` is
            1 then, and ``steps`` and ``ticks`` count micro-batches.
    """

    train_samples: int
    test_samples: int
    logical_workers: int
    batch_size: int
    epochs: int
    validation_freq: int = 1
    step_samples: int = 0
    shuffled: bool = True
    follows_engines: bool = False

    @property
    def global_batch(self) -> int:
        return self.step_samples or self.logical_workers * self.batch_size

    @cached_property
    def steps_per_epoch(self) -> int:
        return -(-self.train_samples // self.global_batch)

    @cached_property
    def steps(self) -> int:
        return self.steps_per_epoch * self.epochs

    @cached_property
    def validation_ticks(self) -> int:
        """Ticks of one validation: E batches of ``batch_size`` each."""
        return -(-self.test_samples // (self.logical_workers * self.batch_size))

    @cached_property
    def ticks(self) -> int:
        return self._ticks_before(self.epochs)

    def at(self, tick: int, width: int = 1) -> Tick:
        """The tick at position ``tick``, 0 <= tick < ticks. ``width``: its micro-batches where these follow the
        engines, clipped at the end of its kind and epoch; without it a single one."""
        if not 0 <= tick < self.ticks:
            raise IndexError(f"tick {tick} outside 0..{self.ticks - 1}")
        epoch = self._epoch_of(tick)
        offset = tick - self._ticks_before(epoch)
        trains = offset < self.steps_per_epoch
        end = self.steps_per_epoch if trains else self._ticks_in(epoch)
        positions = min(width, end - offset) if self.follows_engines else 1
        workers = positions if self.follows_engines else self.logical_workers
        last_of_epoch = offset + positions == self._ticks_in(epoch)
        if trains:
            return Tick(
                TickKind.TRAIN,
                epoch,
                offset,
                epoch * self.steps_per_epoch + offset,
                offset + positions == self.steps_per_epoch,
                last_of_epoch,
                workers,
                positions,
            )
        return Tick(
            TickKind.VALIDATE,
            epoch,
            offset - self.steps_per_epoch,
            (epoch + 1) * self.steps_per_epoch,
            last_of_epoch,
            last_of_epoch,
            workers,
            positions,
        )

    def steps_before(self, tick: int) -> int:
        """Training steps committed when ``tick`` ticks are; ``tick`` may be the end."""
        return self.steps if tick >= self.ticks else self.at(tick).step

    def stream(self, tick: int, worker: int) -> tuple[int, int]:
        """What names the random stream of logical worker ``worker`` at ``tick``: where the batch follows the engines, a
        micro-batch has the same one whatever the tick that it is in."""
        return (tick + worker, 0) if self.follows_engines else (tick, worker)

    def to_json_object(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def from_json_object(cls, data: dict[str, Any]) -> Schedule:
        """``data`` of an earlier release says nothing of what there was not."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})

    def _validates(self, epoch: int) -> bool:
        return bool(self.test_samples and self.validation_freq and (epoch + 1) % self.validation_freq == 0)

    def _ticks_in(self, epoch: int) -> int:
        return self.steps_per_epoch + (self.validation_ticks if self._validates(epoch) else 0)

    def _ticks_before(self, epoch: int) -> int:
        validations = epoch // self.validation_freq if self.test_samples and self.validation_freq else 0
        return epoch * self.steps_per_epoch + validations * self.validation_ticks

    def _epoch_of(self, tick: int) -> int:
        low, high = 0, self.epochs - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._ticks_before(middle) <= tick else (low, middle - 1)
        return low
