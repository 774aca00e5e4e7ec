"""Rounds: how those who are left after a crash find together again. Room: runners; pure. The plan: ``reform``.

A round wakes everybody who has the state out of the data plane, hears where each stands, tells all how they go on, and
is over when all work in the new group. Until all have spoken nothing is decided, so who dies by then is merely left
out: the others often notice a death before its supervisor tells of it. Whatever goes wrong later begins the next
round; what bears an older number is stale.
"""

from __future__ import annotations

from collections.abc import Sequence

from edt_runner.crash_points import CrashPoint, crash_point
from edt_runner.engine.tree import Span
from edt_runner.generations import Change, Generation
from edt_runner.reform import Round, Standing, at_odds, reform
from edt_runner.roster import Roster

VIEWS_SECONDS = 20.0
"""Longer than a group may take to be built, and its members to look whom they reach: whoever has not spoken by then is
in no trouble, or stands."""


class Rounds:
    """The round under way, if any."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self.round: Round | None = None
        self._lost: set[str] = set()
        """Engines that have died since the last group worked."""
        self.distrusted: set[str] = set()
        """Engines that hold another state than the first one, and are about to be given its."""
        self.restore: int | None = None
        """All are about to go back to a checkpoint of this position or before."""

    def begin(self, change: Change | None) -> None:
        """Call a round of all who have the state; ``change``: the planned one that it does away with."""
        roster = self._roster
        number = roster.next_round()
        crash_point(CrashPoint.COORDINATOR_ROUND)
        for newcomer in change.newcomers if change else ():
            if newcomer not in roster.holders:
                roster.send_back(newcomer, number)
        order = [*roster.current.members, *(change.newcomers if change else ()), *sorted(roster.holders)]
        participants = tuple(name for name in dict.fromkeys(order) if name in roster.holders)
        if not participants:
            roster.lose("no engine is left that has the weights")
            return
        self.round = Round(number, participants)
        for name in participants:
            self.wake(name)

    def wake(self, name: str) -> None:
        """Tell one participant (again)."""
        assert self.round is not None
        self._roster.send(name, "wake", round=self.round.number, addresses=self._roster.all_addresses)

    def lost(self, name: str) -> None:
        """It has died; the next group is made without it."""
        self._lost.add(name)

    def troubled(self, name: str, unreachable: Sequence[str], now: float, *, built: bool) -> None:
        """``name`` could not build the group of this round, or has ``built`` it and lost it again."""
        if self.round is not None:
            self.round.unreachable[name] = tuple(unreachable)
            self.round.troubled_at = now
            if built:
                self.round.built.add(name)

    def failed(self, now: float) -> bool:
        """It is time for the next round. Whoever names others that it cannot reach, and whoever had built the group and
        lost it by that, makes us wait for the view of all, if not for ever: then one of them is left out."""
        round_ = self.round
        if round_ is None or not round_.unreachable:
            return False
        return round_.failed or now > round_.troubled_at + VIEWS_SECONDS

    def least_reachable(self) -> str | None:
        """Who is left out of the next round, because it cannot be reached."""
        return self.round.least_reachable() if self.round is not None else None

    def stands(self, name: str, number: int, standing: Standing, workers: int) -> None:
        """Where a participant is. ``workers``: E. When all have spoken, all are told how to go on."""
        round_ = self.round
        if round_ is None or round_.number != number or name not in round_.participants:
            return
        round_.standings[name] = standing
        round_.workers = workers
        self._decide(round_)

    def goes_on_without(self, name: str) -> bool:
        """``name`` has died. True: the round under way has not been decided, and is one of the others alone."""
        round_ = self.round
        if round_ is None or round_.plan is not None or not set(round_.participants) - {name}:
            return False
        round_.participants = tuple(other for other in round_.participants if other != name)
        round_.standings.pop(name, None)
        self._decide(round_)
        return True

    def _decide(self, round_: Round) -> None:
        """Tell all how they go on, once all have spoken."""
        roster = self._roster
        if not round_.heard or round_.plan is not None:
            return
        crash_point(CrashPoint.COORDINATOR_REFORM)
        round_.plan = reform(
            round_.participants, round_.standings, round_.workers, distrusted=self.distrusted, restore=self.restore
        )
        round_.generation = roster.next_generation()
        told = round_.plan.to_json_object()
        for engine in round_.participants:
            roster.send(
                engine,
                "reform",
                round=round_.number,
                generation=round_.generation,
                lost=sorted(self._lost, key=_age),
                doors={name: roster.doors[name] for name in round_.participants if name in roster.doors},
                **told,
            )

    @property
    def at_odds(self) -> tuple[str, str] | None:
        """See ``reform.at_odds``; None as long as not all have spoken."""
        return at_odds(self.round.standings) if self.round is not None and self.round.heard else None

    def reformed(self, name: str, number: int) -> bool:
        """``name`` works in the new group. True: now all do, and the round is over."""
        round_, roster = self.round, self._roster
        if round_ is None or round_.number != number:
            return False
        round_.reformed.add(name)
        if not round_.complete or round_.unreachable:
            return False
        roster.current, self.round = Generation(round_.generation, round_.participants), None
        for engine in round_.participants:
            roster.send(engine, "settled", generation=round_.generation)
        self._lost.clear()
        if round_.plan is not None:
            self.distrusted -= {*round_.plan.mended, round_.plan.source}
            if round_.plan.restore is not None:
                self.restore = None
        return True

    @property
    def unmended(self) -> bool:
        """Whether some of those who work hold another state than the others, or should have gone back."""
        return self.restore is not None or bool(self.distrusted & set(self._roster.current.members))


def span_of(pair: Sequence[int]) -> Span:
    """A span as it comes over the wire."""
    return (int(pair[0]), int(pair[1]))


def _age(name: str) -> tuple[int, str]:
    return (int(name), name) if name.isdigit() else (0, name)
