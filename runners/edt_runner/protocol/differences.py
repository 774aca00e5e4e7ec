"""Memberships told as differences, and splits told as runs. Standard library only.

A membership has up to a thousand names, and every change of it goes to every engine. So the coordinator tells an engine
only what differs from a membership that the engine holds already. A generation has a number that is never given twice,
and its members never change, so a difference from it stays right whatever was lost in between.

An engine holds the members of the newest generation that the coordinator has called settled. It learns other
memberships from ``PrepareGeneration`` and ``ApplyRegroupPlan``. When it connects, it tells the coordinator which one it
holds (``EngineConnected.holds``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from edt_runner.protocol.data import MembersDifference
from edt_runner.protocol.engine_messages import (
    ApplyRegroupPlan,
    CancelGeneration,
    GenerationSettled,
    PrepareGeneration,
    ReceiveStateFromDriver,
)
from edt_runner.protocol.messages import Message

_MOST_HELD = 3
"""Memberships that an engine holds at most: the settled one, the one that is being prepared, and one more."""

Split = tuple[tuple[int, ...], ...]
Runs = tuple[tuple[int, int, int, int], ...]


class UnknownMembership(Exception):
    """A difference refers to a membership that this engine does not hold."""


def sends_members(rank: int) -> bool:
    """Return whether the engine of this rank names all members of its generation in its status. The ranks 0, 1, 2, 4,
    8, … do, so that a new coordinator learns the members although engines have died, and not from every engine."""
    return rank & (rank - 1) == 0


def difference(base: int, before: Sequence[str], members: Sequence[str]) -> MembersDifference | None:
    """Return ``members`` as a difference from generation ``base``, whose members are ``before``. None: there is no
    shorter way than to name them all."""
    kept = set(members)
    surviving = [name for name in before if name in kept]
    added = tuple(members[len(surviving) :])
    removed = tuple(name for name in before if name not in kept)
    if list(members[: len(surviving)]) != surviving or len(removed) + len(added) >= len(members):
        return None
    return MembersDifference(base, removed, added)


def to_runs(split: Split) -> Runs:
    """Write a split as runs (``PlanDifference.runs``). An even split is at most two runs, whatever its width."""
    runs: list[list[int]] = []
    open_runs: dict[tuple[int, int, int], list[int]] = {}
    for rank, part in enumerate(split):
        continued = {}
        for start, length in _intervals(part):
            run = open_runs.get((rank, start, length))
            if run is None:
                run = [rank, 0, start, length]
                runs.append(run)
            run[1] += 1
            continued[rank + 1, start + length, length] = run
        open_runs = continued
    return tuple((rank, ranks, start, length) for rank, ranks, start, length in runs)


def from_runs(runs: Runs, ranks: int) -> Split:
    """Read a split of ``ranks`` ranks from its runs."""
    parts: list[list[range]] = [[] for _ in range(ranks)]
    for first, number, start, length in runs:
        for place in range(number):
            parts[first + place].append(range(start + place * length, start + (place + 1) * length))
    return tuple(tuple(part[0]) if len(part) == 1 else tuple(sorted(chain(*part))) for part in parts)


def _intervals(part: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending micro-batches as intervals (first, length)."""
    found: list[tuple[int, int]] = []
    for index in part:
        if found and sum(found[-1]) == index:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((index, 1))
    return found


class HeldMemberships:
    """The memberships that engine ``name`` holds, by generation."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._members: dict[int, tuple[str, ...]] = {}
        self._base = 0
        """The generation that the coordinator may refer to: the newest settled one, or the one that this engine has
        named when it connected."""

    def read(self, message: Message) -> Message:
        """Return a message of the coordinator with whole memberships, and keep the membership that it tells.

        Raises:
            UnknownMembership: the message refers to a membership that this engine does not hold.
        """
        match message:
            case PrepareGeneration(generation=number, difference=told):
                if told is not None:
                    message = replace(message, members=self._apply(told), joining=told.added, difference=None)
                self._hold(number, message.members)
            case ApplyRegroupPlan(generation=number, plan=plan, difference=found):
                if found is not None:
                    members = self._apply(found.members)
                    plan = replace(plan, members=members, split=from_runs(found.runs, len(members)))
                    message = replace(message, plan=plan, difference=None)
                self._hold(number, plan.members)
            case ReceiveStateFromDriver(generation=number):
                self._hold(number, (self._name,))
            case CancelGeneration(generation=number) if number != self._base:
                self._members.pop(number, None)
            case GenerationSettled(generation=number) if number in self._members:
                self._base = number
        return message

    def holds(self, generation: int) -> int:
        """Return ``generation`` if this engine holds its members, to name it to a coordinator; otherwise 0."""
        if generation not in self._members:
            return 0
        self._base = generation
        return generation

    def _apply(self, told: MembersDifference) -> tuple[str, ...]:
        if told.base not in self._members:
            raise UnknownMembership(f"the members of generation {told.base} are not known")
        removed = set(told.removed)
        return (*(name for name in self._members[told.base] if name not in removed), *told.added)

    def _hold(self, generation: int, members: tuple[str, ...]) -> None:
        self._members[generation] = members
        while len(self._members) > _MOST_HELD:
            del self._members[min(number for number in self._members if number != self._base)]
