"""A coordinator that is not the attempt's first: it learns from the engines where they are. Room: runners; pure.

The engines train on without a coordinator and take up the line to the new one, each with what it knows. If all members
of the newest generation are there and nothing was half done, the training is simply watched again. Else they are
called to a round, which is right whatever they were in the middle of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edt_runner.generations import Generation, Phase
from edt_runner.roster import Roster

SETTLE_SECONDS = 5.0
"""So long are engines waited for that others name, or that their supervisor has, once one has spoken."""
SILENT_SECONDS = 10.0
"""So long for the first: where the home moves, the engines stay with the coordinator before as long as it lives."""
NUMBERS_APART = 1000
"""Generations of a new coordinator begin so far above all that was heard of: nothing of the old one is mistaken."""


@dataclass(frozen=True)
class Picture:
    """What the engines' standings come to."""

    generation: int
    members: tuple[str, ...]
    """Of the newest generation that anybody works in."""
    holders: tuple[str, ...]
    """All that have the state."""
    missing: frozenset[str]
    """Members that have not said anything."""
    clean: bool
    """All members work by the newest generation, and nothing else was announced."""
    number: int
    """The highest number heard of."""
    round: int
    finished: Mapping[str, Mapping[str, Any]]
    """Members that have committed all ticks, with what they told."""


def picture(standings: Mapping[str, Mapping[str, Any]]) -> Picture | None:
    """Put together what each engine said of itself; None: none of them has the state."""
    holders = {name: told for name, told in standings.items() if told["generation"] > 0}
    if not holders:
        return None
    generation = max(int(told["generation"]) for told in holders.values())
    members = next(tuple(told["members"]) for told in holders.values() if told["generation"] == generation)
    there = [holders[name] for name in members if name in holders]
    clean = len(there) == len(members) and all(
        told["generation"] == generation and told["doing"] in ("training", "ended") and told["announced"] <= generation
        for told in there
    )
    return Picture(
        generation=generation,
        members=members,
        holders=tuple(sorted(holders)),
        missing=frozenset(set(members) - set(holders)),
        clean=clean and not any(told.get("next", 0) > generation for told in holders.values()),
        number=max(max(int(told["generation"]), int(told["announced"])) for told in standings.values()),
        round=max(int(told["round"]) for told in standings.values()),
        finished={name: holders[name]["body"] for name in members if name in holders and "body" in holders[name]},
    )


class Recovery:
    """What has been heard so far, and until when is waited for more. ``now`` is monotonic seconds."""

    def __init__(self, roster: Roster, now: float) -> None:
        self._roster = roster
        self._standings: dict[str, Mapping[str, Any]] = {}
        self._dead: set[str] = set()
        self._by = now + SILENT_SECONDS

    def hear(self, name: str, standing: Mapping[str, Any], now: float) -> None:
        """An engine has introduced itself."""
        self._standings[name] = standing
        if standing["generation"] > 0:
            self._by = min(self._by, now + SETTLE_SECONDS)

    def learn(self, name: str, **news: Any) -> None:
        """Something that an engine said since."""
        if name in self._standings:
            self._standings[name] = {**self._standings[name], **news}

    def gone(self, name: str) -> None:
        self._standings.pop(name, None)
        self._dead.add(name)

    def conclude(self, now: float) -> Picture | None:
        """Take over, as soon as everybody has spoken, or should have; then the phase is another one."""
        roster = self._roster
        found = picture(self._standings)
        silent = roster.expected - set(self._standings) | (found.missing - self._dead if found else frozenset())
        if now < self._by and (found is None or silent):
            return None
        if found is None:
            roster.lose("its coordinator ended, and no engine has the weights")
            return None
        roster.phase = Phase.RUNNING
        roster.number = found.number + NUMBERS_APART
        roster.round = max(roster.round, found.round)
        roster.current = Generation(found.generation, found.members)
        roster.holders = set(found.members) if found.clean else set(found.holders)
        for name, told in self._standings.items():
            if name in roster.holders and not told.get("settled"):  # the coordinator before may have died over it
                roster.report_joined(name, int(told["generation"]), told.get("step"))
            if name not in found.holders:
                roster.send_back(name, roster.next_round())
            elif name not in roster.holders:
                roster.release(name)
        return found
