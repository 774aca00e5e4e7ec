"""What the body of a user's loop asks for beside gradients, as numbers of a flat vector.

The body calls ``clip_grad_norm_``, ``scheduler.step()`` or ``scaler.step(optimizer)`` for its own micro-batch, and the
platform does it once for the whole step. So every engine must know what was asked, also an engine that has computed no
micro-batch of the step. The numbers are small whole numbers, which a reduction adds up without rounding:

    1 for each optimizer that took a step
    1 if the loss was scaled by a GradScaler
    for each object that the body moves: how often
    for each trained parameter: the sum of 2**i over the clips i that act on it
    for each of the most clips: 0, or its kind, and the 8 bytes of its limit

The sum over all micro-batches, divided by their number, is what each of them has written. If it is not, the body did
not do the same for all micro-batches of the step.
"""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edt_runner.errors import UsageError
from edt_runner.frameworks.flat import squared_norm

MOST_CLIPS = 4
"""The most calls of ``clip_grad_norm_`` and ``clip_grad_value_`` for one batch."""
MOST_MOVES = 255
"""The most that a scheduler or an average moves for one batch."""
_LIMIT_BYTES = 8
_CLIP_NUMBERS = 1 + _LIMIT_BYTES
_EPSILON = 1e-6
"""Added to a norm before it is divided by, as in ``torch.nn.utils.clip_grad_norm_``."""


class ClipKind(enum.IntEnum):
    """What is limited."""

    NORM = 1  # the L2 norm
    LARGEST = 2  # the infinity norm: the largest absolute value; all numbers are scaled
    VALUE = 3  # each absolute value


@dataclass(frozen=True)
class Clip:
    """One call of ``clip_grad_norm_`` or ``clip_grad_value_``.

    Args:
        kind: what is limited.
        limit: the limit.
        parameters: numbers of the trained parameters whose gradients are clipped together, in ascending order.
    """

    kind: ClipKind
    limit: float
    parameters: tuple[int, ...]

    def clipped(self, gradients: Tensor, sizes: Sequence[int]) -> tuple[Tensor, float | None]:
        """Clip the gradient of a step.

        Args:
            gradients: the gradients of all parameters, one after the other; they stay as they are.
            sizes: how many numbers each parameter has.

        Returns:
            The clipped gradients, and the norm of the clipped parameters before; None: the clip needs no norm.
        """
        whole = len(self.parameters) == len(sizes)
        result = gradients if whole else gradients.clone()
        pieces = torch.split(result, list(sizes))
        parts = [result] if whole else [pieces[index] for index in self.parameters]
        if self.kind is ClipKind.VALUE:
            done, norm = [part.clamp(-self.limit, self.limit) for part in parts], None
        else:
            norm = self._norm(parts)
            if self.limit >= norm + _EPSILON:
                return gradients, norm
            done = [part * (self.limit / (norm + _EPSILON)) for part in parts]
        if whole:
            return done[0], norm
        for part, new in zip(parts, done, strict=True):
            part.copy_(new)
        return result, norm

    def _norm(self, parts: Sequence[Tensor]) -> float:
        if self.kind is ClipKind.LARGEST:
            return max((float(part.abs().max()) for part in parts if part.numel()), default=0.0)
        return math.sqrt(math.fsum(squared_norm(part) for part in parts))


@dataclass(frozen=True)
class Asks:
    """What the body has asked for in one micro-batch.

    Args:
        optimizers: numbers of the optimizers that take the step.
        scaled: whether a GradScaler has scaled the loss.
        moves: (number of the object, how often) for each object that moves once for the whole step.
        clips: in the order of the calls.
    """

    optimizers: tuple[int, ...] = ()
    scaled: bool = False
    moves: tuple[tuple[int, int], ...] = ()
    clips: tuple[Clip, ...] = ()


class AskNumbers:
    """Writes what was asked for into the numbers of a vector, and reads it from their sum.

    Args:
        optimizers, objects, parameters: how many there are.
        name: the loop's name in error messages.
    """

    def __init__(self, optimizers: int, objects: int, parameters: int, name: str) -> None:
        self._sizes = [optimizers, 1, objects, parameters, MOST_CLIPS * _CLIP_NUMBERS]
        self._name = name
        self._written: tuple[Asks, list[int]] | None = None
        self._read: tuple[list[float], Asks] | None = None

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return sum(self._sizes)

    def write(self, asks: Asks, place: Tensor) -> None:
        """Write what one micro-batch has asked for to ``place``, of shape (``size``,)."""
        if self._written is None or self._written[0] != asks:
            self._written = asks, self._numbers(asks)
        place.copy_(torch.tensor(self._written[1], dtype=place.dtype))

    def read(self, place: Tensor, micro_batches: int) -> Asks:
        """Return what every micro-batch of a step has asked for.

        Args:
            place: the sum over the micro-batches, of shape (``size``,).
            micro_batches: how many micro-batches had samples.

        Raises:
            UsageError: the micro-batches have asked for different things.
        """
        means = [number / micro_batches for number in place.tolist()] if micro_batches else [0.0] * self.size
        if self._read is None or self._read[0] != means:
            if any(mean != int(mean) for mean in means):
                raise self.unlike()
            self._read = means, self._asks([int(mean) for mean in means])
        return self._read[1]

    def unlike(self) -> UsageError:
        """The error if micro-batches of one step have asked for different things."""
        return UsageError(
            f"{self._name}: the body of the loop did not take the same steps for all micro-batches of a batch: "
            "optimizer.step(), scheduler.step(), scaler.step() or a clip was called for some and not for others, or "
            "with other values; takes a condition that is alike in all of them, such as one on loader.step"
        )

    def _numbers(self, asks: Asks) -> list[int]:
        optimizers, scaled, objects, parameters, _ = self._sizes
        moves = dict(asks.moves)
        masks = [0] * parameters
        clips: list[int] = []
        for index, clip in enumerate(asks.clips):
            for parameter in clip.parameters:
                masks[parameter] += 1 << index
            clips += [int(clip.kind), *struct.pack("<d", clip.limit)]
        return [
            *(int(index in asks.optimizers) for index in range(optimizers)),
            *[int(asks.scaled)] * scaled,
            *(moves.get(index, 0) for index in range(objects)),
            *masks,
            *clips,
            *[0] * (self._sizes[-1] - len(clips)),
        ]

    def _asks(self, numbers: Sequence[int]) -> Asks:
        parts: list[Sequence[int]] = []
        for size in self._sizes:
            parts.append(numbers[:size])
            numbers = numbers[size:]
        optimizers, scaled, moves, masks, clips = parts
        return Asks(
            tuple(index for index, steps in enumerate(optimizers) if steps),
            bool(scaled[0]),
            tuple((index, times) for index, times in enumerate(moves) if times),
            tuple(
                Clip(
                    ClipKind(clips[start]),
                    struct.unpack("<d", bytes(clips[start + 1 : start + _CLIP_NUMBERS]))[0],
                    tuple(number for number, mask in enumerate(masks) if (mask >> (start // _CLIP_NUMBERS)) & 1),
                )
                for start in range(0, len(clips), _CLIP_NUMBERS)
                if clips[start]
            ),
        )
