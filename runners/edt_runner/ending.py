"""The end of a training: all ticks are committed, the first engine gives the driver the weights. Room: runners.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edt_runner.generations import Phase
from edt_runner.roster import Roster

_WHAT = "user_callback"
_WHY = (
    "the hooks in engine {} and in engine {} did not do the same, which ended with other weights: takes callbacks that "
    "keep what they remember in attributes of their own and go by the values they are given, not by a clock"
)


class Ending:
    """Who has committed the last tick, and whether the weights are on their way."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._finished: dict[str, Mapping[str, Any]] = {}
        self.handed = False
        """First engine and driver have been told to meet."""
        self._differed = False

    def finished(self, told: Mapping[str, Mapping[str, Any]]) -> None:
        """These have committed the last tick; the first one tells digest and step, all do where hooks have run."""
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

    def look(self) -> None:
        """Nothing is under way any more: if the training is at its end, bring it about."""
        roster = self._roster
        if not self._finished:
            return
        if roster.phase is Phase.RUNNING:
            roster.phase = Phase.ENDING
            for other in roster.expected - set(roster.current.members):
                roster.dismiss(other)
        if roster.phase is Phase.ENDING and self.complete:
            self._compare()
            told = self._finished[roster.current.members[0]]
            roster.send("leader", "trained", digest=told["digest"], step=told["step"])
            if roster.driver_there:
                self.hand_over()

    def _compare(self) -> None:
        """Whether all have ended with the same weights, as far as they tell; said once."""
        first, *others = self._roster.current.members
        digest = self._finished[first]["digest"]
        other = next((name for name in others if self._finished[name].get("digest", digest) != digest), None)
        if other is not None and not self._differed:
            self._differed = True
            why = _WHY.format(first, other)
            self._roster.report("guarantee-ended", what=_WHAT, why=why)
            self._roster.send("driver", "note", text=f"The result is no longer exact because of {_WHAT}: {why}.")

    def hand_over(self) -> None:
        """Let the first engine and the driver meet."""
        roster, self.handed = self._roster, True
        first, key = roster.current.members[0], f"result/{roster.next_round()}"
        roster.send(first, "handover", key=key, rank=0, size=2)
        roster.send("driver", "handover", key=key, rank=1, size=2, **self._finished[first])

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
