"""A permutation of range(n) that is computed, not stored. Pure; room: runners.

Any position of an epoch's order can be looked up by itself, in constant time and memory, so an engine that
joins in the middle of an epoch needs the position and nothing else.

Method: a four-round Feistel network over the smallest even-bit domain that holds n, with cycle walking for
values outside (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002); the round function is
the 64-bit finalizer of MurmurHash3 over (key, round, half).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_ROUNDS = 4
_MASK64 = (1 << 64) - 1


def mix64(value: int) -> int:
    """MurmurHash3's 64-bit finalizer: every input bit reaches every output bit."""
    value &= _MASK64
    value = ((value ^ (value >> 33)) * 0xFF51AFD7ED558CCD) & _MASK64
    value = ((value ^ (value >> 33)) * 0xC4CEB9FE1A85EC53) & _MASK64
    return value ^ (value >> 33)


def key_of(*parts: int) -> int:
    """One 64-bit key from several integers; the order of the parts matters."""
    key = 0x9E3779B97F4A7C15
    for part in parts:
        key = mix64(key ^ mix64(part + 0x632BE59BD9B4E019))
    return key


class Permutation:
    """The order of one epoch: position -> sample index, a bijection of range(size).

    Args:
        size: number of samples, at least 1.
        key: 64-bit key, usually ``key_of(seed, epoch)``. Equal keys give equal orders on every machine.
    """

    def __init__(self, size: int, key: int) -> None:
        if size < 1:
            raise ValueError(f"size: got {size}, takes at least 1")
        self.size = size
        half = max(1, ((size - 1).bit_length() + 1) // 2)
        self._half = np.uint64(half)
        self._half_mask = np.uint64((1 << half) - 1)
        self._round_keys = [np.uint64(key_of(key, round_)) for round_ in range(_ROUNDS)]

    def __call__(self, positions: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Sample indices at ``positions`` (int array of any length; each in range(size))."""
        given = np.atleast_1d(np.asarray(positions, dtype=np.int64))
        if given.size and (given.min() < 0 or given.max() >= self.size):
            raise IndexError(f"position outside 0..{self.size - 1}")
        values = self._encrypt(given.astype(np.uint64))
        outside = values >= self.size
        while outside.any():  # the domain is under 4 x size, so this takes a few turns at most
            values[outside] = self._encrypt(values[outside])
            outside = values >= self.size
        return values.astype(np.int64)

    def _encrypt(self, values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        left, right = values >> self._half, values & self._half_mask
        for key in self._round_keys:
            left, right = right, left ^ (_mix(right ^ key) & self._half_mask)
        return (left << self._half) | right


def _mix(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """``mix64`` on arrays; uint64 arithmetic wraps by itself."""
    shift: Any = np.uint64(33)
    value = (value ^ (value >> shift)) * np.uint64(0xFF51AFD7ED558CCD)
    value = (value ^ (value >> shift)) * np.uint64(0xC4CEB9FE1A85EC53)
    mixed: npt.NDArray[np.uint64] = value ^ (value >> shift)
    return mixed
