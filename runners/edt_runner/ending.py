"""The end of a training: all ticks are committed, the first engine gives the driver the weights. Room: runners.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edt_runner.generations import Phase
from edt_runner.roster import Roster


class Ending:
    """Who has committed the last tick, and whether the weights are on their way."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._finished: dict[str, Mapping[str, Any]] = {}
        self.handed = False
        """First engine and driver have been told to meet."""

    def finished(self, told: Mapping[str, Mapping[str, Any]]) -> None:
        """These have committed the last tick; the first one tells digest and step, all the checksums of their state."""
        self._finished.update(told)

    def clear(self) -> None:
        """The engines re-form: all of them will say so again."""
        self._finished.clear()
        self.handed = False
        if self._roster.phase is Phase.ENDING:
            self._roster.phase = Phase.RUNNING

    @property
    def begun(self) -> bool:
        """An engine has committed the last tick: nobody comes to another switch."""
        return bool(self._finished)

    @property
    def complete(self) -> bool:
        return bool(self._finished) and set(self._finished) >= set(self._roster.current.members)

    @property
    def told(self) -> Mapping[str, Mapping[str, Any]]:
        """What those have told who have committed the last tick."""
        return self._finished

    def look(self, agreed: Callable[[], bool]) -> None:
        """Nothing is under way any more: if the training is at its end, bring it about. ``agreed``: asked when all
        have told how they ended; False: this is not the end after all."""
        roster = self._roster
        if not self._finished:
            return
        if roster.phase is Phase.RUNNING:
            roster.phase = Phase.ENDING
            for other in roster.expected - set(roster.current.members):
                roster.dismiss(other)
        if roster.phase is Phase.ENDING and self.complete and agreed():
            told = self._finished[roster.current.members[0]]
            roster.send("leader", "trained", digest=told["digest"], step=told["step"])
            if roster.driver_there:
                self.hand_over()

    def hand_over(self) -> None:
        """Let the first engine and the driver meet."""
        roster, self.handed = self._roster, True
        first, key = roster.current.members[0], f"result/{roster.next_round()}"
        roster.send(first, "handover", key=key, rank=0, size=2)
        told = {name: self._finished[first][name] for name in ("digest", "step")}
        roster.send("driver", "handover", key=key, rank=1, size=2, **told)

    def delivered(self) -> None:
        """The driver has the weights: engines may go."""
        roster = self._roster
        roster.phase = Phase.DONE
        roster.send("leader", "delivered")
        for name in roster.expected:
            if name in roster.connected:
                roster.release(name)
            else:
                roster.dismiss(name)
        if not roster.expected:
            roster.send("driver", "released")
