"""Planned changes of the membership: engines join and leave. No input or output.

A change passes through:

* building: all engines of the old and the new membership build the new group in the background and acknowledge it.
  Training goes on meanwhile.
* committed: members announce the new number inside their reductions. They switch at the step after the first
  reduction in which *all* announced it, so all switch at the same step.
* settled: all have switched, and joining engines have the state. Leaving engines may exit, the next change may begin.

Until somebody has seen the announcements of all, a change can be taken back: a member that has not announced promises
that it never will (``RetractGeneration``). One promise is enough, since the switch needs all.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from edt_contract.crash_points import CrashPoint, crash_point
from edt_runner.coordinator.members import Generation, Members, MemberState
from edt_runner.protocol.engine_messages import (
    CancelGeneration,
    CommitGeneration,
    JoinCancelled,
    JoinContinues,
    PrepareGeneration,
    ReceiveStateFromMembers,
    RetractGeneration,
)

BUILD_SECONDS = 10.0
"""A generation that not all have built within this time is cancelled."""
RETRY_SECONDS = 1.0
"""Pause before the next try after a cancelled change."""


class ChangeStage(enum.Enum):
    """How far a change has come."""

    BUILDING = "building"
    COMMITTED = "committed"
    RETRACTING = "retracting"  # members were asked whether it can be taken back


@dataclass
class Change:
    """The one change under way. The sets hold names of engines."""

    new: Generation
    old: Generation
    deadline: float
    """Monotonic seconds by which all must have built the group."""
    stage: ChangeStage = ChangeStage.BUILDING
    built: set[str] = field(default_factory=set)
    switched: set[str] = field(default_factory=set)
    received: set[str] = field(default_factory=set)
    """Joining engines that have the state."""
    asked_to_retract: set[str] = field(default_factory=set)
    """Members that have not answered ``RetractGeneration``."""
    given_up: set[str] = field(default_factory=set)
    """Joining engines that are gone, or have waited too long."""
    offset: int | None = None
    """Where the members have switched; None: nobody has said so."""

    @property
    def surviving(self) -> tuple[str, ...]:
        return tuple(name for name in self.new.members if name in self.old.members)

    @property
    def joining(self) -> tuple[str, ...]:
        return tuple(name for name in self.new.members if name not in self.old.members)

    @property
    def leaving(self) -> tuple[str, ...]:
        return tuple(name for name in self.old.members if name not in self.new.members)

    @property
    def everybody(self) -> tuple[str, ...]:
        return self.old.members + self.joining


def target(members: Members) -> tuple[str, ...] | None:
    """The membership to aim at. None: wait, since an engine is being started that can carry the training on."""
    assert members.definition is not None
    cap = members.definition.max_engines
    staying = tuple(name for name in members.current.members if not members[name].leaving)
    waiting = tuple(name for name in members.waiting if not members[name].leaving)
    if not staying:
        if waiting:  # somebody must send them the state: first they join, then the others leave
            return members.current.members + waiting[:cap]
        coming = members.expected - set(members.current.members) - members.leaving
        return None if any(not members.is_released(name) for name in coming) else ()
    return staying + waiting[: max(0, cap - len(staying))]


class Changes:
    """The one change under way, if any. ``now`` is monotonic seconds."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self.change: Change | None = None
        self.not_before = 0.0
        """When the next change may begin."""
        self._received_early: set[tuple[str, int]] = set()
        """(engine, generation): joining engines that are known to have the state, though their own message has not
        been read."""

    def propose(self, new_members: tuple[str, ...], now: float) -> None:
        """Publish the next generation."""
        members = self._members
        crash_point(CrashPoint.COORDINATOR_PREPARE)
        change = Change(Generation(members.next_generation(), new_members), members.current, now + BUILD_SECONDS)
        self.change = change
        for name in change.joining:
            members.stop_waiting(name)
        for name in change.everybody:
            message = PrepareGeneration(change.new.number, new_members, change.surviving, change.joining, members.store)
            members.send(name, message)

    def group_built(self, name: str, generation: int) -> None:
        """Engine ``name`` has built the group of this generation. When all have, it is committed."""
        change = self.change
        if change is None or change.new.number != generation or change.stage is not ChangeStage.BUILDING:
            return
        change.built.add(name)
        if change.built >= set(change.everybody):
            crash_point(CrashPoint.COORDINATOR_COMMIT)
            change.stage = ChangeStage.COMMITTED
            for engine in change.everybody:
                self._members.send(engine, CommitGeneration(generation))

    def group_build_failed(self, generation: int, now: float) -> None:
        if self.change and self.change.new.number == generation and self.change.stage is ChangeStage.BUILDING:
            self.cancel(now)

    def switching(self, name: str, generation: int, offset: int) -> None:
        """Member ``name`` has left the old group: it works by ``generation`` from ``offset`` on."""
        change = self.change
        if change is None or change.new.number != generation:
            return
        if change.offset is None:
            change.offset = offset
            for joining in change.joining:
                self._members.send(joining, ReceiveStateFromMembers(generation))
        change.switched.add(name)

    def state_received(self, name: str, generation: int) -> bool:
        """Joining engine ``name`` has the state. Returns False if it is not part of this change."""
        if (name, generation) in self._received_early:
            self._received_early.discard((name, generation))
            return True
        change = self.change
        if change is None or change.new.number != generation or name not in change.joining:
            return False
        change.received.add(name)
        self._members[name].state = MemberState.WITH_STATE
        return True

    def pull_failed(self, name: str, now: float) -> None:
        """Joining engine ``name`` has waited too long for the state and wants to be left out of its change."""
        if self.change and name in self.change.joining and self.change.offset is None:
            self.take_back(name, now)
        elif self.change and name in self.change.joining:
            self._members.send(name, JoinContinues())
        else:
            self._members.stop_waiting(name)
            self._members.send(name, JoinCancelled())

    def retract_answer(self, name: str, generation: int, promised: bool, now: float) -> set[str]:
        """Member ``name`` has said whether it has never announced this generation, and promises that it never will.

        Returns:
            Joining engines that are gone though all have announced them: the switch is certain, and they are missing.
        """
        change = self.change
        if change is None or change.new.number != generation or change.stage is not ChangeStage.RETRACTING:
            return set()
        change.asked_to_retract.discard(name)
        if promised:
            self.cancel(now)
        elif not change.asked_to_retract:
            change.stage = ChangeStage.COMMITTED  # all have announced: the switch is certain, and so is the state
            for engine in change.given_up & self._members.expected:
                self._members.send(engine, JoinContinues())
            return change.given_up - self._members.expected
        return set()

    def take_back(self, name: str, now: float) -> bool:
        """Try to undo the change that joining engine ``name`` is part of. Returns False if a member has switched."""
        change = self.change
        assert change is not None
        change.given_up.add(name)
        if change.stage is ChangeStage.BUILDING:
            self.cancel(now)
            return True
        if change.offset is not None:
            return False
        if change.stage is ChangeStage.COMMITTED:
            change.stage = ChangeStage.RETRACTING
            change.asked_to_retract = set(change.old.members)
            for member in change.old.members:
                self._members.send(member, RetractGeneration(change.new.number))
        return True

    def training_finished(self, generation: int) -> None:
        """An engine has finished the training as a member of ``generation``. Then all have switched to it and its
        joining engines have the state, or the last reduction would not have come about."""
        change = self.change
        if change and change.new.number == generation:
            early = set(change.joining) - change.received
            self._received_early |= {(name, generation) for name in early}
            for name in early & self._members.expected:
                self._members[name].state = MemberState.WITH_STATE
            change.switched.update(change.old.members)
            change.received.update(change.joining)
        elif change:
            self.drop()

    def settle(self) -> Change | None:
        """Release leaving engines once all have switched. Returns the change when it is over."""
        change, members = self.change, self._members
        if change is None or not change.switched >= set(change.old.members):
            return None
        for name in change.leaving:
            if not members.is_released(name):
                members.release(name)
        if not change.received >= set(change.joining):
            return None
        crash_point(CrashPoint.COORDINATOR_SETTLE)
        self.change = None
        members.settle(change.new)
        return change

    def check_deadline(self, now: float) -> None:
        """End the change under way if it has not been built in time."""
        if self.change and self.change.stage is ChangeStage.BUILDING and now > self.change.deadline:
            self.cancel(now)

    def cancel(self, now: float) -> None:
        """End the change under way, to which nobody has switched and nobody will."""
        change = self.drop()
        assert change is not None
        members = self._members
        if not change.given_up:  # it was not built in time: the next try waits
            self.not_before = now + RETRY_SECONDS
        for name in change.joining:
            if members[name].leaving:
                members.discard(name)
            elif name in change.given_up:
                members.send(name, JoinCancelled())
            elif members[name].connected:
                members.wait(name)

    def drop(self) -> Change | None:
        """Tell all engines of the change under way to forget it, and return it."""
        change, self.change = self.change, None
        if change:
            for name in change.everybody:
                self._members.send(name, CancelGeneration(change.new.number))
        return change
