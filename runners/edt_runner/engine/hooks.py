"""A user's callbacks as the loop runs them. Room: runners; a protocol only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Hooks(Protocol):
    """What they change, and what they remember, is part of the state that the adapter exports: the state after n ticks
    is the one after all hooks that belong before tick n."""

    @property
    def stopped(self) -> bool:
        """They have ended the training at the end of an epoch."""

    def begin(self) -> None:
        """A state has been taken over. If it is the driver's of position 0, on which nothing has been run: run what
        belongs before the first step."""

    def end_epoch(self, epoch: int, values: Mapping[str, float], *, last: bool, saves: bool) -> None:
        """Run what belongs between the last tick of ``epoch`` (0-based) and the next tick, if it is not the ``last``.

        ``values``: means over all engines, those of the validation as ``val_…``. ``saves``: the user's model files are
        written after this epoch.
        """
