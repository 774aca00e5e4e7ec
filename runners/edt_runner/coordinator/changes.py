"""Planned changes of the membership: engines join and leave. No input or output.

A change has these stages:

* building: all engines of the old and the new membership build the new group in the background and acknowledge it.
  The training continues during this stage.
* committed: members announce the new number inside their reductions. They switch at the step after the first reduction
  in which *all* members announced it. So all switch at the same step.
* settled: all have switched, and the joining engines have the state. The leaving engines may exit, and the next change
  may begin.

The coordinator can take a change back as long as one member has not announced it: that member promises that it never
will (``RetractGeneration``). One promise is enough, because the switch needs the announcements of all members.
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
"""Seconds within which all engines must build the group of a generation. Otherwise the change is cancelled."""
RETRY_SECONDS = 1.0
"""Seconds between a cancelled change and the next try."""


class ChangeStage(enum.Enum):
    """The stage of a change."""

    BUILDING = "building"
    COMMITTED = "committed"
    RETRACTING = "retracting"  # members were asked to promise that they will not announce the change


@dataclass
class Change:
    """The change under way. The sets contain names of engines."""

    new: Generation
    old: Generation
    deadline: float
    """Time by which all engines must have built the group, in monotonic seconds."""
    stage: ChangeStage = ChangeStage.BUILDING
    not_built: set[str] = field(init=False)
    """Engines of both memberships that have not built the group."""
    not_switched: set[str] = field(init=False)
    """Old members that have not switched."""
    not_received: set[str] = field(init=False)
    """Joining engines that do not have the state."""
    asked_to_retract: set[str] = field(default_factory=set)
    """Members that have not answered ``RetractGeneration`` yet."""
    given_up: set[str] = field(default_factory=set)
    """Joining engines that are gone or have waited too long for the state."""
    faster: bool = True
    """Whether all engines that have built the group are connected over its faster network, too."""
    offset: int | None = None
    """The offset at which the members have switched; None: no member has reported its switch."""

    joining: tuple[str, ...] = field(init=False)
    leaving: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.joining = tuple(name for name in self.new.members if name not in self.old.names)
        self.leaving = tuple(name for name in self.old.members if name not in self.new.names)
        self.not_built, self.not_switched = set(self.everybody), set(self.old.members)
        self.not_received = set(self.joining)

    @property
    def everybody(self) -> tuple[str, ...]:
        """The old members and the joining engines."""
        return self.old.members + self.joining

    def is_joining(self, name: str) -> bool:
        return name in self.new.names and name not in self.old.names


def target(members: Members) -> tuple[str, ...] | None:
    """Return the membership that the coordinator should aim at. None: wait for an engine that is being started, because
    all members shall leave and that engine can continue the training."""
    assert members.definition is not None
    cap = members.definition.max_engines
    current = members.current
    if current.members and not members.waiting and members.leaving.isdisjoint(current.names):
        return current.members
    staying = tuple(name for name in current.members if name not in members.leaving)
    waiting = tuple(name for name in members.waiting if name not in members.leaving)
    if not staying:
        if waiting:  # a member must send them the state: first they join, then the members leave
            return current.members + waiting[:cap]
        coming = members.expected - current.names - members.leaving
        return None if any(not members.is_released(name) for name in coming) else ()
    return staying + waiting[: max(0, cap - len(staying))]


class Changes:
    """Makes planned changes of the membership, one at a time. ``now`` is monotonic seconds."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self.change: Change | None = None
        self.not_before = 0.0
        """Time before which no change begins, in monotonic seconds."""
        self._received_early: set[tuple[str, int]] = set()
        """Pairs (engine, generation) of joining engines that are known to have the state although their own message has
        not been read."""

    def propose(self, new_members: tuple[str, ...], now: float) -> None:
        """Begin a change to the membership ``new_members``: let all engines of it build the next generation's group."""
        members = self._members
        crash_point(CrashPoint.COORDINATOR_PREPARE)
        change = Change(Generation(members.next_generation(), new_members), members.current, now + BUILD_SECONDS)
        self.change = change
        for name in change.joining:
            members.stop_waiting(name)
        number, difference = change.new.number, members.from_current(new_members)
        whole = PrepareGeneration(number, new_members, change.joining, members.store)
        brief = PrepareGeneration(number, (), (), members.store, difference)
        for name in change.everybody:
            members.send(name, brief if difference is not None and members.holds_current(name) else whole)

    def group_built(self, name: str, generation: int, *, faster: bool) -> None:
        """Note that engine ``name`` has built the group of ``generation``, and whether it is connected over the group's
        faster network. Commit the change when all engines have built the group."""
        change = self.change
        if change is None or change.new.number != generation or change.stage is not ChangeStage.BUILDING:
            return
        change.not_built.discard(name)
        change.faster &= faster
        if not change.not_built:
            crash_point(CrashPoint.COORDINATOR_COMMIT)
            change.stage = ChangeStage.COMMITTED
            commit = CommitGeneration(generation, change.faster)
            for engine in change.everybody:
                self._members.send(engine, commit)

    def group_build_failed(self, generation: int, now: float) -> None:
        if self.change and self.change.new.number == generation and self.change.stage is ChangeStage.BUILDING:
            self.cancel(now)

    def switching(self, name: str, generation: int, offset: int) -> None:
        """Note that member ``name`` has left the old group and works in ``generation`` from ``offset`` on, or has left
        the training. After the first such message, let the joining engines receive the state."""
        change = self.change
        if change is None or change.new.number != generation:
            return
        if change.offset is None:
            change.offset = offset
            for joining in change.joining:
                self._members.send(joining, ReceiveStateFromMembers(generation))
        change.not_switched.discard(name)

    def state_received(self, name: str, generation: int) -> bool:
        """Note that joining engine ``name`` has the state. Returns False if the engine is not part of a change to
        ``generation``."""
        if (name, generation) in self._received_early:
            self._received_early.discard((name, generation))
            return True
        change = self.change
        if change is None or change.new.number != generation or not change.is_joining(name):
            return False
        change.not_received.discard(name)
        self._members.set_state(name, MemberState.WITH_STATE)
        return True

    def pull_failed(self, name: str, now: float) -> None:
        """Answer joining engine ``name``, which has waited too long for the state. Take its change back if that is
        possible."""
        if self.change and self.change.is_joining(name) and self.change.offset is None:
            self.take_back(name, now)
        elif self.change and self.change.is_joining(name):
            self._members.send(name, JoinContinues())
        else:
            self._members.stop_waiting(name)
            self._members.send(name, JoinCancelled())

    def retract_answer(self, name: str, generation: int, promised: bool, now: float) -> set[str]:
        """Handle the answer of member ``name`` to ``RetractGeneration``.

        Args:
            name: the member.
            generation: the generation that should be taken back.
            promised: whether the member has not announced the generation and promises that it never will.
            now: monotonic seconds.

        Returns:
            Joining engines that are gone although all members have announced the generation. The switch is certain, so
            these engines will be missing from the new group.
        """
        change = self.change
        if change is None or change.new.number != generation or change.stage is not ChangeStage.RETRACTING:
            return set()
        change.asked_to_retract.discard(name)
        if promised:
            self.cancel(now)
        elif not change.asked_to_retract:
            change.stage = ChangeStage.COMMITTED  # all have announced: the switch is certain, and the state will come
            for engine in change.given_up & self._members.expected:
                self._members.send(engine, JoinContinues())
            return change.given_up - self._members.expected
        return set()

    def take_back(self, name: str, now: float) -> bool:
        """Try to take back the change under way, of which joining engine ``name`` is part. Returns False if a member
        has already switched."""
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
            retract = RetractGeneration(change.new.number)
            for member in change.old.members:
                self._members.send(member, retract)
        return True

    def training_finished(self, generation: int) -> None:
        """Handle the message of an engine that has finished the training as a member of ``generation``.

        If the change under way makes this generation, all members have switched to it and its joining engines have the
        state; otherwise the last reduction could not have completed. A change to any other generation is dropped.
        """
        change = self.change
        if change and change.new.number == generation:
            self._received_early |= {(name, generation) for name in change.not_received}
            for name in change.not_received & self._members.expected:
                self._members.set_state(name, MemberState.WITH_STATE)
            change.not_switched.clear()
            change.not_received.clear()
        elif change:
            self.drop()

    def settle(self) -> Change | None:
        """Release the leaving engines once all members have switched. Returns the change when it is over, else None."""
        change, members = self.change, self._members
        if change is None or change.not_switched:
            return None
        for name in change.leaving:
            if not members.is_released(name):
                members.release(name)
        if change.not_received:
            return None
        crash_point(CrashPoint.COORDINATOR_SETTLE)
        self.change = None
        members.settle(change.new)
        return change

    def check_deadline(self, now: float) -> None:
        """Cancel the change under way if its group has not been built in time."""
        if self.change and self.change.stage is ChangeStage.BUILDING and now > self.change.deadline:
            self.cancel(now)

    def cancel(self, now: float) -> None:
        """Cancel the change under way. No member has switched to it, and none will."""
        change = self.drop()
        assert change is not None
        members = self._members
        if not change.given_up:  # the group was not built: pause before the next try
            self.not_before = now + RETRY_SECONDS
        for name in change.joining:
            if name in members.leaving:
                members.discard(name)
            elif name in change.given_up:
                members.send(name, JoinCancelled())
            elif name in members.connected:
                members.wait(name)

    def drop(self) -> Change | None:
        """Tell all engines of the change under way to forget the change. Returns the change; None: there was none."""
        change, self.change = self.change, None
        if change:
            cancel = CancelGeneration(change.new.number)
            for name in change.everybody:
                self._members.send(name, cancel)
        return change
