"""Seeds and random orders. They depend on what is computed, and not on the engine that computes it.

This module seeds Python and NumPy. The adapter of a framework seeds the framework, with the same number.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt

_PROCESS, _STEP, _SAMPLE, _HOOK, _AUDIT = 1, 2, 3, 4, 5


def process_seed(seed: int) -> int:
    """Return the seed of a process before user code runs (31 bits). It is equal in the driver and the engines."""
    return key_of(_PROCESS, seed) & 0x7FFFFFFF


def step_seed(seed: int, offset: int, index: int) -> int:
    """Return the seed of the forward and backward pass of micro-batch ``index`` of the step at ``offset`` (63 bits)."""
    return key_of(_STEP, seed, offset, index) & 0x7FFFFFFFFFFFFFFF


def sample_seed(seed: int, epoch: int, index: int) -> int:
    """Return the seed with which sample ``index`` is loaded and augmented in ``epoch`` (63 bits)."""
    return key_of(_SAMPLE, seed, epoch, index) & 0x7FFFFFFFFFFFFFFF


def hook_seed(seed: int, place: int) -> int:
    """Return the seed of a user's callbacks at boundary ``place`` (63 bits)."""
    return key_of(_HOOK, seed, place) & 0x7FFFFFFFFFFFFFFF


def audit_key(seed: int, offset: int) -> int:
    """Return the number that decides what is audited in the step at ``offset`` (64 bits)."""
    return key_of(_AUDIT, seed, offset)


def seed_python(seed: int) -> None:
    """Seed Python's and NumPy's global generators; NumPy takes the low 32 bits."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


_ROUNDS = 4
_MASK64 = (1 << 64) - 1


def mix64(value: Any) -> Any:
    """Return MurmurHash3's 64-bit finalizer of ``value``: every input bit affects every output bit. ``value`` is an
    integer, which is taken modulo 2**64, or an array of uint64."""
    value = value & _MASK64
    value = ((value ^ (value >> 33)) * 0xFF51AFD7ED558CCD) & _MASK64
    value = ((value ^ (value >> 33)) * 0xC4CEB9FE1A85EC53) & _MASK64
    return value ^ (value >> 33)


def key_of(*parts: int) -> int:
    """Return one 64-bit key made from several integers. The order of the parts matters."""
    key: int = 0x9E3779B97F4A7C15
    for part in parts:
        key = mix64(key ^ mix64(part + 0x632BE59BD9B4E019))
    return key


class Permutation:
    """The order of the samples in one epoch: a bijection of range(size) from position to sample index.

    The order is computed, not stored. Each position can be looked up alone, in constant time and memory. So an engine
    that joins during an epoch needs only the position.

    Method: a four-round Feistel network over the smallest domain with an even number of bits that contains range(size),
        with cycle walking for values outside (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002).
        The round function is the 64-bit finalizer of MurmurHash3 (Appleby, public domain), applied to the half XOR a
        key of (key, round).

    Args:
        size: number of samples, at least 1.
        key: 64-bit key, usually ``key_of(seed, epoch)``. Equal keys give equal orders on every machine.

    Raises:
        ValueError: ``size`` is less than 1.
    """

    def __init__(self, size: int, key: int) -> None:
        if size < 1:
            raise ValueError(f"size: got {size}, takes at least 1")
        self.size = size
        half = max(1, ((size - 1).bit_length() + 1) // 2)
        self._half = np.uint64(half)
        self._half_mask = np.uint64((1 << half) - 1)
        self._round_keys = [key_of(key, round_) for round_ in range(_ROUNDS)]

    def __call__(self, positions: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Look up sample indices.

        Args:
            positions: integers of shape (n,), each in range(size).

        Returns:
            int64 array of shape (n,).

        Raises:
            IndexError: a position is outside of range(size).
        """
        given = np.atleast_1d(np.asarray(positions, dtype=np.int64))
        if given.size and (given.min() < 0 or given.max() >= self.size):
            raise IndexError(f"position outside 0..{self.size - 1}")
        values = self._encrypt(given.astype(np.uint64))
        outside = values >= self.size
        while outside.any():  # the domain is at most 4 x size, so a few repetitions are enough
            values[outside] = self._encrypt(values[outside])
            outside = values >= self.size
        return values.astype(np.int64)

    def _encrypt(self, values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        left, right = values >> self._half, values & self._half_mask
        for key in self._round_keys:
            left, right = right, left ^ (mix64(right ^ key) & self._half_mask)
        return (left << self._half) | right
