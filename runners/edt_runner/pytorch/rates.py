"""A learning-rate scheduler that goes along with the updates of a training. Room: runners; torch.

Every process makes its own, by the same script. It moves with the updates, in each process alike; one that comes later
takes the steps that it has missed. So its state need not travel: it follows from what was trained on.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any


class Rates:
    """``scheduler.step()`` after every update, or at the end of every pass over the training set.

    Args:
        scheduler: a torch scheduler that needs no metric; None: there is none.
        epoch_samples: of a pass; 0: it moves after every update. Updates may differ in their samples, so that passes
            are counted in these.
    """

    def __init__(self, scheduler: Any, epoch_samples: int = 0) -> None:
        self._scheduler, self._epoch_samples = scheduler, epoch_samples
        self.passed = 0
        """Updates, or the samples of all of them."""
        self._steps = 0
        """That the scheduler has taken."""
        self._held = False

    def updated(self, samples: int) -> None:
        """The optimizer has taken a step of so many samples."""
        self.passed += samples if self._epoch_samples else 1
        self._follow()

    def go_to(self, passed: int) -> None:
        """Take the steps of a training that is there already. What it writes into the optimizer is overwritten by
        that training's own."""
        self.passed = passed
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*lr_scheduler.step.* before .*optimizer.step.*")
            self._follow()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Inside, the optimizer's learning rates are not its user's: the scheduler, which goes on from those that it
        finds, moves when they are again."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self._follow()

    def _follow(self) -> None:
        if self._scheduler is None or self._held:
            return
        wanted = self.passed // self._epoch_samples if self._epoch_samples else self.passed
        while self._steps < wanted:
            self._scheduler.step()
            self._steps += 1
