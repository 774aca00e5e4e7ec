"""Whether all engines hold the same training, as the coordinator finds out. Room: runners; pure.

Engines send checksums of what they hold at one committed step (``engine.comparing``). Once all members of a generation
have, they are compared; what some of them never send (they died, or the engines found together in another generation)
is forgotten. What is known by then travels: to the driver, which says it at the end and gives it to a coordinator that
is new, and to the engines, which write it into checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edt_runner.roster import Roster

_SHARE = 0.01
"""Of the time between two comparisons at epochs' ends, the most that the checksums of an engine may take."""
_LEAST_SECONDS = 1.0
"""Between two such comparisons: each is also a report, which is written to disk and into a database."""
_MOST_IN_A_ROW = 3
"""After so many comparisons in which engines differed, one after the other, the next one waits its time again. Before,
it comes at the next epoch's end: whether they are equal by then is what a user needs to know."""
_MOST_WAITING = 4
"""Comparisons of which not all checksums are here; older ones are given up."""
_OTHERS = "the tensors and settings that there are"

CALLBACKS_WHY = (
    "the hooks in engine {} and in engine {} did not do the same, which ended with other weights: takes callbacks that "
    "keep what they remember in attributes of their own and go by the values they are given, not by a clock"
)


@dataclass(frozen=True)
class History:
    """What is known of a training's replicas, over all its attempts.

    Args:
        compared: comparisons that came to an end.
        last_step: of the newest of them in which all were equal.
        several: more than one engine has trained at a time.
        ended: why the result is no longer exact; empty: nothing is known against it.
        ended_where: what else was reported with ``ended``: engine, step and difference, as far as they are known.
        equal_at: the newest position at which all replicas are known to have been equal, those of one engine included.
        restored: the training has gone back to a checkpoint because replicas differed.
        computing: what the first engine computes with, by name.
    """

    compared: int = 0
    last_step: int | None = None
    several: bool = False
    ended: str = ""
    equal_at: int = 0
    restored: bool = False
    computing: Mapping[str, Any] | None = None
    ended_where: Mapping[str, Any] | None = None

    def to_json_object(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_json_object(cls, data: Mapping[str, Any]) -> History:
        """``data`` of another release may lack something, or say more."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})

    def verdict(self, *, wanted: bool) -> str:
        """One sentence for a user, at the end. ``wanted``: comparisons were asked for."""
        if self.ended:
            return f"The result is not exact because of {self.ended}."
        if self.compared:
            times = "once" if self.compared == 1 else f"{self.compared} times"
            return f"All engines' replicas were compared {times}, last at step {self.last_step}: they were equal."
        if not self.several:
            return "Replicas were never compared: one engine trained at a time."
        why = "no comparison came to its end" if wanted else "compare_interval=0"
        return f"Replicas were never compared, though several engines trained ({why})."


@dataclass(frozen=True)
class Verdict:
    """Of one comparison.

    Args:
        members: who was compared, in rank order.
        differing: those that differ from the first.
        difference: the first thing that differs, with both values; empty: nothing does.
        hooks: user callbacks run in the engines.
    """

    step: int
    tick: int
    members: tuple[str, ...]
    reason: str
    differing: tuple[str, ...] = ()
    difference: str = ""
    hooks: bool = False

    @property
    def equal(self) -> bool:
        return not self.differing

    @property
    def what(self) -> str:
        """The part that is to blame, as GUARANTEE_ENDED names it."""
        return "user_callback" if self.hooks else "replicas"

    @property
    def why(self) -> str:
        if self.hooks:
            return f"{CALLBACKS_WHY.format(self.members[0], self.differing[0])}; first at step {self.step}: " + (
                self.difference
            )
        others = len(self.differing) - 1
        more = f", and in {others} more" if others else ""
        return f"engines hold different states since step {self.step} or before: {self.difference}{more}"


def compare(members: Sequence[str], told: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, ...], str]:
    """(who of ``members`` differs from the first, the first thing that differs). ``told``: by engine, {"values": […]},
    of the first also {"names": […]}."""
    first, *others = members
    values, names = told[first]["values"], told[first].get("names") or []
    differing = tuple(name for name in others if told[name]["values"] != values)
    if not differing:
        return (), ""
    other = differing[0]
    theirs = told[other]["values"]
    if len(theirs) != len(values):
        return differing, f"{_OTHERS}: {len(values)} in engine {first}, {len(theirs)} in engine {other}"
    index = next(i for i, pair in enumerate(zip(values, theirs, strict=True)) if pair[0] != pair[1])
    called = names[index] if index < len(names) else f"number {index + 1} of {_OTHERS}"
    return differing, f"{called}: {values[index]} in engine {first}, {theirs[index]} in engine {other}"


class Replicas:
    """What engines have told of theirs, and what came of it."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._waiting: dict[tuple[int, int], dict[str, Mapping[str, Any]]] = {}
        """By (generation, position)."""
        self._told: set[str] = set()
        """What has ended the guarantee, each reported once."""
        self._compare_from = self._in_a_row = 0
        self.history = History()
        self.resumed_at: int | None = None
        """The position of the checkpoint that the first engine gets, as long as no engine has trained."""

    # ── what is known ─────────────────────────────────────────────────────────────────────────────────────────
    def take_up(self, history: History) -> None:
        """What the driver or an engine knows: of a checkpoint, or of the coordinator before this one."""
        own, self.history = self.history, history
        self.history = replace(
            history,
            compared=max(own.compared, history.compared),
            last_step=max((s for s in (own.last_step, history.last_step) if s is not None), default=None),
            several=own.several or history.several,
            ended=own.ended or history.ended,
            ended_where=own.ended_where if own.ended else history.ended_where,
            equal_at=max(own.equal_at, history.equal_at),
            restored=own.restored or history.restored,
            computing=own.computing or history.computing,
        )
        if not self.history == own == history:  # else the giver lacks something, or the others do
            self.tell()

    def know(self, **news: Any) -> None:
        """Change the history and let everybody know."""
        self.history = replace(self.history, **news)
        self.tell()

    def begun(self) -> None:
        """The first engine has the driver's state, and no other has any: all engines begin from that. It is not known
        to be right where several engines had trained since they were last found equal: they may have differed when
        the checkpoint was written."""
        if self.resumed_at is not None and not (self.history.several and self.history.equal_at < self.resumed_at):
            self.know(equal_at=self.resumed_at)

    def end(self, what: str, sentence: str, where: Mapping[str, Any]) -> bool:
        """The guarantee has ended because of ``what``. False: that was known."""
        if what in self._told or self.history.ended.startswith(f"{what}: "):
            return False
        self._told.add(what)
        if not self.history.ended:
            self.know(ended=sentence, ended_where=where)
        return True

    def end_again(self) -> None:
        """The guarantee had ended before this coordinator began: report it once more, in the same words, since the
        coordinator or the attempt before may have died before its report was written. What the
        platform already knows makes no second event."""
        what, _, why = self.history.ended.partition(": ")
        if what and not self._told:
            self._told.add(what)
            self._roster.report("guarantee-ended", what=what, why=why, **(self.history.ended_where or {}))

    def tell(self) -> None:
        """To the driver and the engines."""
        self._roster.send("driver", "replicas", history=self.history.to_json_object())
        for name in sorted(self._roster.holders):
            self.tell_engine(name)

    def tell_engine(self, name: str) -> None:
        """To one that has just got the state, or has taken up the line again."""
        self._roster.send(name, "replicas", history=self.history.to_json_object(), compare_from=self._compare_from)

    # ── comparing ─────────────────────────────────────────────────────────────────────────────────────────────
    def told(self, name: str, message: Mapping[str, Any]) -> Verdict | None:
        """Checksums of engine ``name``. A verdict once all members of its generation have sent theirs of that step."""
        members, tick = tuple(message["members"]), int(message["tick"])
        key = (int(message["generation"]), tick)
        heard = self._waiting.setdefault(key, {})
        heard[name] = message
        while len(self._waiting) > _MOST_WAITING:
            del self._waiting[min(self._waiting)]
        if not set(heard) >= set(members):
            return None
        self._waiting = {other: found for other, found in self._waiting.items() if other > key}
        differing, difference = compare(members, heard)
        self._in_a_row = self._in_a_row + 1 if differing else 0
        self._compare_from = 0 if 0 < self._in_a_row <= _MOST_IN_A_ROW else self._worth_it(tick, heard)
        hooks = any(bool(each.get("hooks")) for each in heard.values())
        return Verdict(int(message["step"]), tick, members, str(message["reason"]), differing, difference, hooks)

    def at_end(
        self, members: Sequence[str], told: Mapping[str, Mapping[str, Any]], tick: int, step: int
    ) -> Verdict | None:
        """Of the trained state; None: not all have told theirs, or there is one engine."""
        if len(members) < 2 or not all("values" in told[name] for name in members):
            return None
        differing, difference = compare(members, told)
        hooks = any(bool(told[name].get("hooks")) for name in members)
        return Verdict(step, tick, tuple(members), "end", differing, difference, hooks)

    def count(self, verdict: Verdict) -> None:
        """Report it and remember it."""
        engines = len(verdict.members)
        self._roster.report(
            "replicas-compared", step=verdict.step, engines=engines, equal=verdict.equal, reason=verdict.reason
        )
        if verdict.equal:
            equal_at = max(self.history.equal_at, verdict.tick)
            self.know(compared=self.history.compared + 1, last_step=verdict.step, equal_at=equal_at)
        else:
            self.know(compared=self.history.compared + 1)

    def _worth_it(self, tick: int, heard: Mapping[str, Mapping[str, Any]]) -> int:
        """The position from which on an epoch's end is far enough off to be worth the time of a comparison."""
        cost = max(float(each.get("seconds", 0.0)) for each in heard.values())
        pace = min(float(each.get("tick_seconds", 0.0)) for each in heard.values())
        return tick + math.ceil(max(_LEAST_SECONDS, cost / _SHARE) / pace) if pace > 0 else 0
