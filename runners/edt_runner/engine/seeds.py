"""Random streams that depend on what is computed, never on who computes it. Room: runners.

Touches the global generators of Python and NumPy; a framework's own is seeded by its adapter with the same number.
"""

from __future__ import annotations

import random

import numpy as np

from edt_runner.engine.permutation import key_of

_PROCESS, _STEP, _SAMPLE, _HOOK = 1, 2, 3, 4


def process_seed(seed: int) -> int:
    """Seed of a process before user code runs; equal in driver and engines."""
    return key_of(_PROCESS, seed) & 0x7FFFFFFF


def step_seed(seed: int, tick: int, worker: int) -> int:
    """Seed of the forward and backward pass of logical worker ``worker`` at ``tick``."""
    return key_of(_STEP, seed, tick, worker) & 0x7FFFFFFFFFFFFFFF


def sample_seed(seed: int, epoch: int, index: int) -> int:
    """Seed under which sample ``index`` is loaded (augmented) in ``epoch``."""
    return key_of(_SAMPLE, seed, epoch, index) & 0x7FFFFFFFFFFFFFFF


def hook_seed(seed: int, place: int) -> int:
    """Seed of a user's hooks at boundary ``place``."""
    return key_of(_HOOK, seed, place) & 0x7FFFFFFFFFFFFFFF


def seed_python(seed: int) -> None:
    """Seed Python's and NumPy's global generators."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
