"""The random state under which a unit of data is loaded. Room: runners; TensorFlow's generator, if data draw from it.

It follows from (seed, epoch, index) alone. Python's and NumPy's global generators are seeded each time, which is cheap.
Seeding TensorFlow's empties its cache of kernels, so that the next training step takes milliseconds longer: it is done
when a data set first draws from that generator, and only then.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from edt_runner.engine.seeds import sample_seed, seed_python


class Seeding:
    """One for the training set, one for the test set.

    Args:
        seed: of the training.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.always = False
        """Seed TensorFlow for every unit, whether or not it is seen to draw."""
        self.with_ops = True
        """False in loader processes, which run no op of TensorFlow."""

    def seed_of(self, epoch: int, index: int) -> int:
        """A number of 63 bits."""
        return sample_seed(self._seed, epoch, index)

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Around what loads: TensorFlow's generator goes on afterwards as if nothing had been loaded."""
        context = _context() if self.with_ops else None
        if context is None:
            yield
            return
        seed, generator = context._seed, getattr(context, "_rng", None)
        try:
            yield
        finally:
            context._seed, context._rng = seed, generator

    def start(self, epoch: int, index: int) -> None:
        """Inside ``loading``: what is loaded now is this unit."""
        seed = self.seed_of(epoch, index)
        seed_python(seed)
        if not self.with_ops:
            return
        context = None if self.always else _context()
        if context is not None:
            context._seed, context._rng = _short(seed), _Seeds(context, _short(seed))
        else:
            _seed_tensorflow(_short(seed))


class _Seeds:
    """In the place of the generator that gives eager ops their seeds: seeds all when it is first asked."""

    def __init__(self, context: Any, seed: int) -> None:
        self._context, self._seed = context, seed

    def randint(self, low: int, high: int) -> int:
        _seed_tensorflow(self._seed)  # puts a generator of its own here
        number: int = self._context._rng.randint(low, high)
        return number


def _context() -> Any:
    """TensorFlow's eager context, or None if it is not as we know it: its seed and the generator of its ops' seeds are
    private, and there is no public way to learn that an op has drawn."""
    from tensorflow.python.eager import context

    found = context.context()
    if getattr(found, "_seed", 0) is None:  # nobody has seeded it yet
        return found
    return found if isinstance(getattr(found, "_rng", None), random.Random | _Seeds) else None


def _seed_tensorflow(seed: int) -> None:
    import tensorflow as tf

    tf.random.set_seed(seed)


def _short(seed: int) -> int:
    return seed & 0x7FFFFFFF
