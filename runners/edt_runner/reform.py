"""How the survivors of a crash go on: who has what, who catches up, who works on what. Room: runners; pure.

No engine can be more than one tick behind another, since nobody completes a reduction without everybody (DESIGN.md
section 4, commit). So either all stand at the same tick, of which the lost micro-batches are computed again, or some
have committed a tick that others have not: then those get its reduced vector and nothing is computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edt_runner.engine.tree import Span


@dataclass(frozen=True)
class Standing:
    """Where one survivor stands.

    Args:
        tick: ticks it has committed.
        holds: it still has the reduced vector of tick - 1.
        spans: subtrees of the coming tick that it has summed.
        ended: for it there is no coming tick.
        workers: micro-batches of the coming tick, where they follow the engines; 0: E.
        after: where the training stands after the coming tick; 0: at tick + 1.
    """

    tick: int
    holds: bool
    spans: tuple[Span, ...] = ()
    ended: bool = False
    workers: int = 0
    after: int = 0


@dataclass(frozen=True)
class Reform:
    """What the survivors do. ``members`` in rank order."""

    members: tuple[str, ...]
    tick: int
    """Where all stand once those behind have caught up."""
    behind: tuple[str, ...]
    donors: tuple[str, ...]
    """Who gives to those behind: one its vector, or all of them the state."""
    by: str
    """``vector``, ``state``, or empty where nobody is behind."""
    runs: tuple[tuple[int, ...], ...]
    """Logical workers of each rank at the coming tick: what it has and what it does anew."""
    recomputed: int
    """Micro-batches that are done again."""
    source: str = ""
    """Who gives its state to those that hold another one, once all stand at ``tick``."""
    mended: tuple[str, ...] = ()
    """Those."""
    restore: int | None = None
    """``source`` first takes the newest checkpoint of this position or before; then all others are ``mended``."""

    def to_json_object(self) -> dict[str, Any]:
        return {
            "members": list(self.members),
            "tick": self.tick,
            "behind": list(self.behind),
            "donors": list(self.donors),
            "by": self.by,
            "runs": [list(run) for run in self.runs],
            "recomputed": self.recomputed,
            "source": self.source,
            "mended": list(self.mended),
            "restore": self.restore,
        }


def reform(
    order: Sequence[str],
    standings: Mapping[str, Standing],
    workers: int,
    *,
    distrusted: Collection[str] = (),
    restore: int | None = None,
) -> Reform:
    """The plan for the survivors ``standings``; ``order``: by rank. ``workers``: E. ``distrusted``: those that hold
    another state than the first engine; what they have summed is not used. ``restore``: all go back to a checkpoint of
    this position or before.

    Where the batch follows the engines, the coming tick stays as wide as those who have begun it have it: so no
    micro-batch of it is lost or done twice. Only where nobody has may they see it differently, since some have switched
    to another group before the crash and others have not; then it is as the first of those in front has it.
    """
    members = tuple(name for name in order if name in standings)
    if restore is not None:
        return Reform(members, restore, (), (), "", ((),) * len(members), 0, members[0], members[1:], restore)
    standings = {name: replace(found, spans=()) if name in distrusted else found for name, found in standings.items()}
    tick = max(standing.tick for standing in standings.values())
    front = tuple(name for name in members if standings[name].tick == tick)
    behind = tuple(name for name in members if name not in front)
    holders = tuple(name for name in front if standings[name].holds)
    trusted = tuple(name for name in front if name not in distrusted)
    by, donors = "", front[:0]
    if behind:
        one_tick = all((standings[name].after or standings[name].tick + 1) == tick for name in behind)
        by, donors = ("vector", holders[:1]) if holders and one_tick else ("state", trusted or front[:1])
    workers = width_of(front, standings, workers)
    kept = _kept([name for name in front if standings[name].workers in (0, workers)], standings)
    lost = [worker for worker in range(workers) if not any(worker in own for own in kept.values())]
    runs = _share(members, kept, lost)
    source, mended = _mending(members, front, by, distrusted)
    return Reform(members, tick, behind, donors, by, runs, len(lost), source, mended)


def _mending(
    members: Sequence[str], front: Sequence[str], by: str, distrusted: Collection[str]
) -> tuple[str, tuple[str, ...]]:
    """Who gives its state to whom, once those behind have caught up: the first that is trusted to all that are not.
    Where all that could give a state are distrusted, the first of them is as good as another."""
    if not any(name in distrusted for name in members):
        return "", ()
    lost = by == "state" and all(name in distrusted for name in front)
    trusted = () if lost else tuple(name for name in members if name not in distrusted)
    source = (trusted or tuple(front))[0]
    keeps = {*trusted, source} if not lost else {source, *(name for name in members if name not in front)}
    return source, tuple(name for name in members if name not in keeps)


def width_of(front: Sequence[str], standings: Mapping[str, Standing], workers: int) -> int:
    """Micro-batches of the coming tick of those in ``front``; 0: none comes. ``workers``: E, where they do not follow
    the engines."""
    known = [standings[name] for name in sorted(front, key=lambda name: not standings[name].spans)]
    follows = any(standing.after for standing in known)
    return next((standing.workers for standing in known if standing.workers), 0 if follows else workers)


def at_odds(standings: Mapping[str, Standing]) -> tuple[str, str] | None:
    """Of those that are ahead, one for which the training has ended and one for which it has not."""
    tick = max(standing.tick for standing in standings.values())
    ended = {standing.ended: name for name, standing in standings.items() if standing.tick == tick}
    return (ended[True], ended[False]) if len(ended) > 1 else None


def _kept(front: Sequence[str], standings: Mapping[str, Standing]) -> dict[str, set[int]]:
    """What each keeps: the largest subtrees first, and no logical worker twice."""
    found: dict[str, set[int]] = {}
    taken: set[int] = set()
    every = [(span, name) for name in front for span in standings[name].spans]
    for (low, high), name in sorted(every, key=lambda item: (item[0][0] - item[0][1], item[0], front.index(item[1]))):
        run = set(range(low, high))
        if not run & taken:
            taken |= run
            found.setdefault(name, set()).update(run)
    return found


def _share(
    members: Sequence[str], kept: Mapping[str, Collection[int]], lost: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """Deal the lost ones out evenly, in runs, since neighbours are summed before they are sent."""
    base, extra = divmod(len(lost), len(members))
    runs: list[tuple[int, ...]] = []
    start = 0
    for rank, name in enumerate(members):
        end = start + base + (rank < extra)
        runs.append(tuple(sorted({*kept.get(name, ()), *lost[start:end]})))
        start = end
    return tuple(runs)


@dataclass
class Round:
    """One try to re-form. Each death after its plan was made, and each group that was not built, begins a new one.

    Args:
        number: grows for ever; what bears an older one is stale.
        participants: engines that have the state and live, in rank order.
        workers: micro-batches of the coming tick, as whoever spoke last has it.
    """

    number: int
    participants: tuple[str, ...]
    standings: dict[str, Standing] = field(default_factory=dict)
    workers: int = 0
    plan: Reform | None = None
    generation: int = 0
    reformed: set[str] = field(default_factory=set)
    unreachable: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By a participant that could not build the group, or lost it again: whom of the others it cannot reach."""
    built: set[str] = field(default_factory=set)
    """Who of these lost it again before anybody had caught up in it: the others, who were still building, gave up."""
    troubled_at: float = 0.0
    """When the latest of these has spoken."""

    @property
    def heard(self) -> bool:
        """All have said where they stand."""
        return set(self.standings) >= set(self.participants)

    @property
    def tried(self) -> bool:
        """All have built the group, or failed to."""
        return self.reformed | set(self.unreachable) >= set(self.participants)

    @property
    def failed(self) -> bool:
        """Somebody is in trouble, and nothing more is to be learnt of why."""
        had_it = self.reformed | self.built
        plain = any(not others and name not in had_it for name, others in self.unreachable.items())
        return bool(self.unreachable) and (self.tried or (plain and not any(self.unreachable.values())))

    def least_reachable(self) -> str | None:
        """Where two cannot reach each other both may name the other: whoever is in most such pairs, of the latest in
        rank. None: all reach all."""
        pairs = {frozenset((name, other)) for name, others in self.unreachable.items() for other in others}
        count = {name: sum(name in pair for pair in pairs) for name in self.participants}
        worst = max(reversed(self.participants), key=lambda name: count[name])
        return worst if count[worst] else None

    @property
    def complete(self) -> bool:
        """All work in the new group."""
        return self.plan is not None and self.reformed >= set(self.participants)
