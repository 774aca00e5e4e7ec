"""Regroups: how the engines that are left after a loss form one group again. No input or output.

A regroup wakes all engines that have the state, wherever they are blocked, collects each engine's status and sends all
one plan (``plan_regroup``). It is over when all work in the new group. Nothing is decided before all statuses are here,
so an engine that dies before that is left out of the plan: the other engines often notice a death before its supervisor
does. Whatever fails later begins the next regroup; messages of an older number are stale.

No engine can be more than one step behind another, since nobody completes a reduction without all. So either all stand
at the same offset, and the lost micro-batches of that step are computed again, or some have committed a step that
others have not: then those receive its reduced gradients, and nothing is computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from edt_contract.crash_points import CrashPoint, crash_point
from edt_runner.coordinator.changes import Change
from edt_runner.coordinator.members import Generation, Members
from edt_runner.protocol.data import CatchUp, RegroupPlan, RegroupStatus
from edt_runner.protocol.engine_messages import ApplyRegroupPlan, StartRegroup
from edt_runner.schedule import even_split

VIEWS_SECONDS = 20.0
"""How long after the latest ``GroupLost`` the regroup waits for the other engines. Building a group and probing the
others takes less: an engine that has sent nothing by then has built the group, or hangs."""


@dataclass
class Regroup:
    """One try to form a group. A death after its plan was made, or a group that was not built, begins a new one.

    Args:
        number: grows over the attempt.
        participants: engines that have the state and live, in rank order.
    """

    number: int
    participants: tuple[str, ...]
    statuses: dict[str, RegroupStatus] = field(default_factory=dict)
    plan: RegroupPlan | None = None
    generation: int = 0
    """Of the new group; 0: there is no plan yet."""
    regrouped: set[str] = field(default_factory=set)
    """Participants that work in the new group."""
    unreachable: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By participant that could not build the group, or lost it again: the others that it cannot reach."""
    built: set[str] = field(default_factory=set)
    """Which of these had built the group and lost it again, for example because another engine gave up building it."""
    trouble_at: float = 0.0
    """When the latest of these sent ``GroupLost``, in monotonic seconds."""

    @property
    def answered(self) -> bool:
        """Whether all have said where they stand."""
        return set(self.statuses) >= set(self.participants)

    @property
    def failed(self) -> bool:
        """Whether an engine could not build or keep the group, and no further message can tell why: all have built it
        or failed to, or one could not build it and no engine names another that it cannot reach."""
        tried = self.regrouped | set(self.unreachable) >= set(self.participants)
        had_it = self.regrouped | self.built
        plain = any(not others and name not in had_it for name, others in self.unreachable.items())
        return bool(self.unreachable) and (tried or (plain and not any(self.unreachable.values())))

    def least_reachable(self) -> str | None:
        """The engine that is in most pairs of engines that cannot reach each other; of several the last in rank. Both
        of a pair may name the other, which counts once. None: all reach all."""
        pairs = {frozenset((name, other)) for name, others in self.unreachable.items() for other in others}
        count = {name: sum(name in pair for pair in pairs) for name in self.participants}
        worst = max(reversed(self.participants), key=lambda name: count[name])
        return worst if count[worst] else None


class Regroups:
    """The regroup under way, if any. ``now`` is monotonic seconds."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self.regroup: Regroup | None = None
        self.lost: set[str] = set()
        """Engines that were lost since the last group worked; the next one is made without them."""
        self.distrusted: set[str] = set()
        """Engines that hold another state than the first one, and are to be sent its state."""
        self.restore: int | None = None
        """All are to go back to a checkpoint of this offset or before; None: they are not."""

    def begin(self, change: Change | None) -> None:
        """Start a regroup of all that have the state. ``change``: the planned one that is given up for it."""
        members = self._members
        number = members.next_regroup()
        crash_point(CrashPoint.COORDINATOR_REGROUP)
        joining = change.joining if change else ()
        for name in joining:
            if not members.has_state(name):
                members.send_back(name, number)
        with_state = members.with_state
        order = dict.fromkeys([*members.current.members, *joining, *sorted(with_state)])
        participants = tuple(name for name in order if name in with_state)
        if not participants:
            members.lose("no engine is left that has the weights")
            return
        self.regroup = Regroup(number, participants)
        for name in participants:
            members.send(name, StartRegroup(number, members.all_addresses))

    def group_lost(self, name: str, unreachable: Sequence[str], now: float, *, built: bool) -> None:
        """Engine ``name`` could not build the group of this regroup, or has ``built`` it and lost it again."""
        if self.regroup is not None:
            self.regroup.unreachable[name] = tuple(unreachable)
            self.regroup.trouble_at = now
            if built:
                self.regroup.built.add(name)

    def has_failed(self, now: float) -> bool:
        """Whether the next regroup should begin. If an engine names others that it cannot reach, or had built the group
        and lost it, the coordinator first waits until all engines have built the group or failed to, but at most
        ``VIEWS_SECONDS``."""
        regroup = self.regroup
        if regroup is None or not regroup.unreachable:
            return False
        return regroup.failed or now > regroup.trouble_at + VIEWS_SECONDS

    def add_status(self, name: str, number: int, status: RegroupStatus) -> None:
        """Engine ``name`` has said where it stands. When all have, all are told how to go on."""
        regroup = self.regroup
        if regroup is None or regroup.number != number or name not in regroup.participants:
            return
        regroup.statuses[name] = status
        self._decide(regroup)

    def goes_on_without(self, name: str) -> bool:
        """Engine ``name`` is gone. Returns True if the regroup under way had no plan yet and goes on with the others
        alone."""
        regroup = self.regroup
        if regroup is None or regroup.plan is not None or not set(regroup.participants) - {name}:
            return False
        regroup.participants = tuple(other for other in regroup.participants if other != name)
        regroup.statuses.pop(name, None)
        self._decide(regroup)
        return True

    def _decide(self, regroup: Regroup) -> None:
        """Send all the plan, once all have spoken."""
        members = self._members
        if not regroup.answered or regroup.plan is not None:
            return
        crash_point(CrashPoint.COORDINATOR_REGROUPED)
        regroup.plan = plan_regroup(
            regroup.participants, regroup.statuses, distrusted=self.distrusted, restore=self.restore
        )
        regroup.generation = members.next_generation()
        probes = {name: members[name].probe_address for name in regroup.participants if members[name].probe_address}
        for name in regroup.participants:
            members.send(
                name,
                ApplyRegroupPlan(
                    regroup.number,
                    regroup.generation,
                    regroup.plan,
                    lost=tuple(sorted(self.lost, key=int)),
                    probe_addresses=probes,
                    store=members.store,
                ),
            )

    @property
    def disagreement(self) -> tuple[str, str] | None:
        """Of the engines in front, one for which the training has ended and one for which it has not; None also as long
        as not all have spoken."""
        if self.regroup is None or not self.regroup.answered:
            return None
        statuses = self.regroup.statuses
        offset = max(status.offset for status in statuses.values())
        ended = {status.ended: name for name, status in statuses.items() if status.offset == offset}
        return (ended[True], ended[False]) if len(ended) > 1 else None

    def regrouped(self, name: str, number: int) -> bool:
        """Engine ``name`` works in the new group. Returns True if all do now: then the regroup is over."""
        regroup = self.regroup
        if regroup is None or regroup.number != number:
            return False
        regroup.regrouped.add(name)
        plan = regroup.plan
        if plan is None or not regroup.regrouped >= set(regroup.participants) or regroup.unreachable:
            return False
        self.regroup = None
        self._members.settle(Generation(regroup.generation, regroup.participants))
        self.lost.clear()
        self.distrusted -= {*plan.repaired, plan.repair_source}
        if plan.restore is not None:
            self.restore = None
        return True

    @property
    def repair_needed(self) -> bool:
        """Whether a member holds another state than the others, or all should have gone back to a checkpoint."""
        return self.restore is not None or bool(self.distrusted & set(self._members.current.members))


def plan_regroup(
    order: Sequence[str],
    statuses: Mapping[str, RegroupStatus],
    *,
    distrusted: Collection[str] = (),
    restore: int | None = None,
) -> RegroupPlan:
    """Plan how the survivors go on.

    Engines at the highest offset are *in front*: the coming step is theirs. All others are *behind*, by one step.

    Where the batch follows the engines, the coming step keeps the width with which engines have begun it, so that no
    micro-batch of it is lost or computed twice. If no engine has begun the step, the width of the first engine in front
    applies: engines that switched to another group before the loss see another width than those that did not.

    Args:
        order: engines by rank; those without a status are left out.
        statuses: where each survivor stands.
        distrusted: engines that hold another state than the first engine; what they have summed is not used.
        restore: all go back to a checkpoint of this offset or before.
    """
    members = tuple(name for name in order if name in statuses)
    if restore is not None:
        split: tuple[tuple[int, ...], ...] = ((),) * len(members)
        return RegroupPlan(
            members, restore, (), (), CatchUp.NOTHING, split, 0, members[0], members[1:], restore=restore
        )
    statuses = {name: replace(each, summed=()) if name in distrusted else each for name, each in statuses.items()}
    offset = max(status.offset for status in statuses.values())
    front = tuple(name for name in members if statuses[name].offset == offset)
    behind = tuple(name for name in members if name not in front)
    catch_up, sources = _catch_up(front, behind, statuses, distrusted)
    begun_first = sorted(front, key=lambda name: not statuses[name].summed)
    width = next((statuses[name].micro_batches for name in begun_first if statuses[name].micro_batches), 0)
    kept = _kept([name for name in front if statuses[name].micro_batches in (0, width)], statuses)
    lost = [index for index in range(width) if not any(index in own for own in kept.values())]
    split = _split(members, kept, lost)
    repair_source, repaired = _repair(members, front, catch_up, distrusted)
    return RegroupPlan(members, offset, behind, sources, catch_up, split, len(lost), repair_source, repaired)


def _catch_up(
    front: tuple[str, ...],
    behind: tuple[str, ...],
    statuses: Mapping[str, RegroupStatus],
    distrusted: Collection[str],
) -> tuple[CatchUp, tuple[str, ...]]:
    """What those behind receive, and from whom."""
    if not behind:
        return CatchUp.NOTHING, ()
    offset = statuses[front[0]].offset
    have_reduced = tuple(name for name in front if statuses[name].has_reduced)
    if have_reduced and all(_offset_after(statuses[name]) == offset for name in behind):
        return CatchUp.REDUCED, have_reduced[:1]
    trusted = tuple(name for name in front if name not in distrusted)
    return CatchUp.STATE, trusted or front[:1]


def _offset_after(status: RegroupStatus) -> int:
    """Where the training stands after the coming step."""
    return status.offset + 1 if status.offset_after is None else status.offset_after


def _repair(
    members: Sequence[str], front: Sequence[str], catch_up: CatchUp, distrusted: Collection[str]
) -> tuple[str, tuple[str, ...]]:
    """Who sends its state to whom, once those behind have caught up: the first trusted engine to all that are not.
    Where all that could send a state are distrusted, the first of them is as good as another."""
    if not any(name in distrusted for name in members):
        return "", ()
    lost = catch_up is CatchUp.STATE and all(name in distrusted for name in front)
    trusted = () if lost else tuple(name for name in members if name not in distrusted)
    source = (trusted or tuple(front))[0]
    keeps = {*trusted, source} if not lost else {source, *(name for name in members if name not in front)}
    return source, tuple(name for name in members if name not in keeps)


def _kept(front: Sequence[str], statuses: Mapping[str, RegroupStatus]) -> dict[str, set[int]]:
    """The micro-batches that each engine keeps: the largest subtrees first, and no micro-batch twice."""
    kept: dict[str, set[int]] = {}
    taken: set[int] = set()
    every = [(span, name) for name in front for span in statuses[name].summed]
    for (low, high), name in sorted(every, key=lambda item: (item[0][0] - item[0][1], item[0], front.index(item[1]))):
        span = set(range(low, high))
        if not span & taken:
            taken |= span
            kept.setdefault(name, set()).update(span)
    return kept


def _split(
    members: Sequence[str], kept: Mapping[str, Collection[int]], lost: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """Deal the lost micro-batches out evenly, neighbours together, since they are summed before they are sent."""
    parts = even_split(len(lost), len(members))
    return tuple(
        tuple(sorted({*kept.get(name, ()), *lost[part.start : part.stop]}))
        for name, part in zip(members, parts, strict=True)
    )
