"""Planned changes of the membership: newcomers and leavers. Room: runners; pure.

A change passes through:

* building: all concerned build the new group in the background and acknowledge; training never waits for it;
* committed: members announce the number inside their reductions; they switch at the tick after the first
  reduction in which *all* announced it, so all switch at the same tick;
* settled: everybody has switched and newcomers have the weights. Leavers may go, the next change may begin.

Until somebody has seen all announcements a change can be taken back: a member that has not announced promises
never to (``retract``). One promise is enough, since the switch needs all.
"""

from __future__ import annotations

from edt_runner.crash_points import CrashPoint, crash_point
from edt_runner.generations import Change, Generation, Step
from edt_runner.roster import Roster

BUILD_SECONDS = 10.0
"""A generation not acknowledged by all within this time is cancelled."""
RETRY_SECONDS = 1.0
"""Pause before the next try after a cancelled change."""


class Changes:
    """The one change under way, if any. ``now`` is monotonic seconds."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self.change: Change | None = None
        self.not_before = 0.0
        self._overtaken: set[tuple[str, int]] = set()
        """Newcomers that have the weights, and by which generation, though their own word of it is still on its way."""

    def propose(self, members: tuple[str, ...], now: float) -> None:
        """Publish the next generation."""
        roster = self._roster
        crash_point(CrashPoint.COORDINATOR_PREPARE)
        change = Change(Generation(roster.next_generation(), members), roster.current, now + BUILD_SECONDS)
        self.change = change
        for newcomer in change.newcomers:
            roster.ready.pop(newcomer, None)
        for engine in change.everybody:
            roster.send(
                engine,
                "prepare",
                generation=change.new.number,
                members=list(members),
                stayers=list(change.stayers),
                newcomers=list(change.newcomers),
            )

    def built(self, name: str, number: int) -> None:
        change = self.change
        if change is None or change.new.number != number or change.step is not Step.BUILDING:
            return
        change.built.add(name)
        if change.built >= set(change.everybody):
            crash_point(CrashPoint.COORDINATOR_COMMIT)
            change.step = Step.COMMITTED
            for engine in change.everybody:
                self._roster.send(engine, "commit", generation=number)

    def build_failed(self, number: int, now: float) -> None:
        if self.change and self.change.new.number == number and self.change.step is Step.BUILDING:
            self.cancel(now)

    def switching(self, name: str, number: int, tick: int) -> None:
        """Member ``name`` has left the old group: it works by generation ``number`` from ``tick`` on."""
        change = self.change
        if change is None or change.new.number != number:
            return
        if change.tick is None:
            change.tick = tick
            for newcomer in change.newcomers:
                self._roster.send(newcomer, "switched", generation=number, tick=tick)
        change.switched.add(name)

    def received(self, name: str, number: int) -> bool:
        """Newcomer ``name`` has the weights. False: not by this change."""
        if (name, number) in self._overtaken:
            self._overtaken.discard((name, number))
            return True
        change = self.change
        if change is None or change.new.number != number or name not in change.newcomers:
            return False
        change.received.add(name)
        self._roster.holders.add(name)
        return True

    def pull_failed(self, name: str, now: float) -> None:
        """Newcomer ``name`` has waited long enough for the weights and wants to be let out of its change."""
        if self.change and name in self.change.newcomers and self.change.tick is None:
            self.take_back(name, now)
        elif self.change and name in self.change.newcomers:
            self._roster.send(name, "pull-answer", cancelled=False)
        else:
            self._roster.ready.pop(name, None)
            self._roster.send(name, "pull-answer", cancelled=True)

    def retracted(self, name: str, number: int, promised: bool, now: float) -> set[str]:
        """Answer of a member to ``retract``: it never announced generation ``number``, and never will.

        Returns newcomers that are gone although all have announced them: the switch is certain, and they are missing.
        """
        change = self.change
        if change is None or change.new.number != number or change.step is not Step.RETRACTING:
            return set()
        change.retracting.discard(name)
        if promised:
            self.cancel(now)
        elif not change.retracting:
            change.step = Step.COMMITTED  # all have announced: the switch is certain, and the weights with it
            for engine in change.complaining & self._roster.expected:
                self._roster.send(engine, "pull-answer", cancelled=False)
            return change.complaining - self._roster.expected
        return set()

    def take_back(self, name: str, now: float) -> bool:
        """Try to undo the change that newcomer ``name`` is part of; False: too late, somebody has switched."""
        change = self.change
        assert change is not None
        change.complaining.add(name)
        if change.step is Step.BUILDING:
            self.cancel(now)
            return True
        if change.tick is not None:
            return False
        if change.step is Step.COMMITTED:
            change.step = Step.RETRACTING
            change.retracting = set(change.old.members)
            for member in change.old.members:
                self._roster.send(member, "retract", generation=change.new.number)
        return True

    def overtaken(self, number: int) -> None:
        """Somebody has finished the training as a member of generation ``number``: then all have switched to it, and
        its newcomers have the weights, or the last reduction would not have come about."""
        change = self.change
        if change and change.new.number == number:
            unheard = set(change.newcomers) - change.received
            self._overtaken |= {(name, number) for name in unheard}
            self._roster.holders |= unheard & self._roster.expected
            change.switched.update(change.old.members)
            change.received.update(change.newcomers)
        elif change:
            self.drop()

    def settle(self) -> Change | None:
        """Let leavers go once all have switched; returns the change when it is over."""
        change, roster = self.change, self._roster
        if change is None or not change.switched >= set(change.old.members):
            return None
        for leaver in change.leavers:
            if leaver not in roster.released:
                roster.release(leaver)
        if not change.received >= set(change.newcomers):
            return None
        crash_point(CrashPoint.COORDINATOR_SETTLE)
        roster.current, self.change = change.new, None
        for engine in change.new.members:
            roster.send(engine, "settled", generation=change.new.number)
        return change

    def late(self, now: float) -> bool:
        """Whether the change under way has not been built in time."""
        return self.change is not None and self.change.step is Step.BUILDING and now > self.change.deadline

    def cancel(self, now: float) -> None:
        """Nobody has switched and nobody will."""
        change = self.drop()
        assert change is not None
        roster = self._roster
        if not change.complaining:  # it was not built in time: let things calm down
            self.not_before = now + RETRY_SECONDS
        for newcomer in change.newcomers:
            if newcomer in roster.leaving:
                roster.dismiss(newcomer)
            elif newcomer in change.complaining:
                roster.send(newcomer, "pull-answer", cancelled=True)
            elif newcomer in roster.connected:
                roster.ready[newcomer] = {}

    def drop(self) -> Change | None:
        """Tell everybody to forget it."""
        change, self.change = self.change, None
        if change:
            for engine in change.everybody:
                self._roster.send(engine, "cancel", generation=change.new.number)
        return change
