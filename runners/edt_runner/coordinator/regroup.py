"""Regroups: after a loss, the remaining engines form one group again. No input or output.

A regroup interrupts all engines that have the state, even if they are blocked in an operation. It collects the status
of each engine and then sends one plan to all (``plan_regroup``). The regroup is over when all engines work in the new
group. The coordinator makes the plan only when all statuses have arrived. An engine that dies before that is left out
of the plan. This is common, because other engines often notice a death before the supervisor does. A failure after the
plan begins the next regroup. Messages with an older regroup number are stale.

No engine can be more than one step behind another, because a reduction completes only with all engines. So there are
two cases. Either all engines are at the same offset: then they compute the lost micro-batches of that step again. Or
some engines have committed a step that others have not: then the others receive the reduced gradients of that step, and
nothing is computed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from edt_contract.crash_points import CrashPoint, crash_point
from edt_runner.coordinator.changes import Change
from edt_runner.coordinator.members import Generation, Members
from edt_runner.protocol.data import CatchUp, PlanDifference, RegroupPlan, RegroupStatus
from edt_runner.protocol.differences import to_runs
from edt_runner.protocol.engine_messages import ApplyRegroupPlan, StartRegroup
from edt_runner.splits import contiguous_split, even_counts, even_split

VIEWS_SECONDS = 20.0
"""Seconds that the regroup waits for the other engines after the latest ``GroupLost``. Building a group and probing the
other engines takes less time. So an engine that has sent nothing by then has built the group, or hangs."""

MOST_TESTS = 16
"""The most engines to which one engine tries to connect if the group is not built. Where there are no more others, it
tries them all."""
MOST_RUNS = 64
"""The most runs (``PlanDifference.runs``) of a split that keeps all that was summed."""
MOST_SOURCES = 32
"""The most engines that send the state to engines that are behind."""


@dataclass
class Regroup:
    """One try to form a group. If an engine dies after the plan was made, or if the group is not built, a new try
    begins.

    Args:
        number: number of the try; it grows over the attempt.
        participants: living engines that have the state, in rank order: the keys.
    """

    number: int
    participants: dict[str, None]
    statuses: dict[str, RegroupStatus] = field(default_factory=dict)
    plan: RegroupPlan | None = None
    generation: int = 0
    """The generation of the new group; 0: there is no plan yet."""
    regrouped: set[str] = field(default_factory=set)
    """Participants that work in the new group."""
    unreachable: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For each participant that could not build the group or lost it again: the other engines that it cannot reach."""
    built: set[str] = field(default_factory=set)
    """The keys of ``unreachable`` that had built the group and lost it again, for example because another engine gave
    up building it."""
    trouble_at: float = 0.0
    """Time at which the latest ``GroupLost`` of this regroup came, in monotonic seconds."""

    @property
    def answered(self) -> bool:
        """Whether all participants have sent their statuses."""
        return len(self.statuses) >= len(self.participants) and self.statuses.keys() >= self.participants.keys()

    @property
    def failed(self) -> bool:
        """Whether the regroup has failed and no further message can explain why.

        There are two cases. All participants have built the group or failed to. Or a participant could not build the
        group, and no participant names an engine that it cannot reach.
        """
        if not self.unreachable:
            return False
        heard = len(self.regrouped) + len(self.unreachable)
        if heard >= len(self.participants) and self.regrouped | self.unreachable.keys() >= self.participants.keys():
            return True
        return bool(self.not_built) and not any(self.unreachable.values())

    @property
    def not_built(self) -> set[str]:
        """The engines that could not build the group."""
        return self.unreachable.keys() - self.regrouped - self.built

    def least_reachable(self) -> str | None:
        """Return the engine that occurs in the most pairs of engines that cannot reach each other.

        If several engines occur equally often, the last in rank order is returned. A pair counts once, even if each of
        the two names the other. None: every engine reaches every other.
        """
        pairs = {frozenset((name, other)) for name, others in self.unreachable.items() for other in others}
        count = Counter(name for pair in pairs for name in pair)
        worst = max(reversed(self.participants), key=lambda name: count[name])
        return worst if count[worst] else None


class Regroups:
    """Starts regroups and keeps the regroup under way, if there is one. ``now`` is monotonic seconds.

    Args:
        members: all engines of the attempt.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        self.regroup: Regroup | None = None
        self.lost: set[str] = set()
        """Engines that were lost since the last group worked. The next group is made without them."""
        self.distrusted: set[str] = set()
        """Engines whose state differs from that of the first engine. They will receive the state of the first
        engine."""
        self.restore: int | None = None
        """All engines will go back to a checkpoint of this offset or an earlier one; None: they will not."""
        self._suspects: set[str] = set()
        """The engines that could not build the group of the regroup before. They test each other first."""

    def begin(self, change: Change | None) -> None:
        """Start a regroup of all engines that have the state. ``change`` is the planned change that was given up for
        this regroup, if any."""
        members = self._members
        number = members.next_regroup()
        crash_point(CrashPoint.COORDINATOR_REGROUP)
        joining = change.joining if change else ()
        for name in joining:
            if not members.has_state(name):
                members.send_back(name, number)
        with_state = members.with_state
        order = dict.fromkeys([*members.current.members, *joining, *sorted(with_state)])
        participants = {name: None for name in order if name in with_state}
        if not participants:
            members.lose("no engine is left that has the weights")
            return
        self._suspects = self.regroup.not_built if self.regroup else set()
        self.regroup = Regroup(number, participants)
        start = StartRegroup(number)
        for name in participants:
            members.send(name, start)

    def group_lost(self, name: str, unreachable: Sequence[str], now: float, *, built: bool) -> None:
        """Note that engine ``name`` could not build the group of this regroup, or lost it again.

        Args:
            name: the engine.
            unreachable: the other engines that it cannot reach.
            now: monotonic seconds.
            built: whether the engine had built the group and lost it again.
        """
        if self.regroup is not None:
            self.regroup.unreachable[name] = tuple(unreachable)
            self.regroup.trouble_at = now
            if built:
                self.regroup.built.add(name)

    def has_failed(self, now: float) -> bool:
        """Return whether the next regroup should begin.

        If an engine names other engines that it cannot reach, or has built the group and lost it, the coordinator first
        waits until all engines have built the group or failed to. It waits at most ``VIEWS_SECONDS``.
        """
        regroup = self.regroup
        if regroup is None or not regroup.unreachable:
            return False
        return regroup.failed or now > regroup.trouble_at + VIEWS_SECONDS

    def add_status(self, name: str, number: int, status: RegroupStatus) -> None:
        """Keep the status of engine ``name`` for regroup ``number``. When all statuses are there, send the plan to
        all."""
        regroup = self.regroup
        if regroup is None or regroup.number != number or name not in regroup.participants:
            return
        regroup.statuses[name] = status
        self._decide(regroup)

    def goes_on_without(self, name: str) -> bool:
        """Take engine ``name``, which is gone, out of the regroup under way.

        Returns:
            True if the regroup had no plan yet and continues with the other engines. False if another regroup is
            needed.
        """
        regroup = self.regroup
        if regroup is None or regroup.plan is not None or not regroup.participants.keys() - {name}:
            return False
        regroup.participants.pop(name, None)
        regroup.statuses.pop(name, None)
        self._decide(regroup)
        return True

    def _decide(self, regroup: Regroup) -> None:
        """Make the plan and send it to all participants, once all have sent their statuses."""
        members = self._members
        if not regroup.answered or regroup.plan is not None:
            return
        crash_point(CrashPoint.COORDINATOR_REGROUPED)
        plan = regroup.plan = plan_regroup(
            tuple(regroup.participants),
            regroup.statuses,
            distrusted=self.distrusted,
            restore=self.restore,
            before=members.current.members,
        )
        regroup.generation = members.next_generation()
        lost = tuple(sorted(self.lost, key=int))
        told = members.from_current(plan.members)
        difference = PlanDifference(told, to_runs(plan.split)) if told is not None else None
        parts, tests = _own_parts(plan), _whom_to_test(plan.members, self._suspects, regroup.number)
        for name in plan.members:
            own, brief = parts(name), difference if members.holds_current(name) else None
            message = ApplyRegroupPlan(
                regroup.number,
                regroup.generation,
                own if brief is None else replace(own, members=(), split=()),
                lost=lost,
                probe_addresses={other: address for other in tests[name] if (address := members[other].probe_address)},
                store=members.store,
                difference=brief,
            )
            members.send(name, message)

    @property
    def disagreement(self) -> tuple[str, str] | None:
        """Two engines at the highest offset that disagree: for the first the training has ended, for the second it has
        not. None: there is no such pair, or not all statuses have arrived."""
        if self.regroup is None or not self.regroup.answered:
            return None
        statuses = self.regroup.statuses
        offset = max(status.offset for status in statuses.values())
        ended = {status.ended: name for name, status in statuses.items() if status.offset == offset}
        return (ended[True], ended[False]) if len(ended) > 1 else None

    def regrouped(self, name: str, number: int) -> bool:
        """Note that engine ``name`` works in the new group of regroup ``number``.

        Returns:
            True if all participants now work in the new group, so that the regroup is over.
        """
        regroup = self.regroup
        if regroup is None or regroup.number != number or name not in regroup.participants:
            return False
        regroup.regrouped.add(name)
        plan = regroup.plan
        if plan is None or regroup.unreachable or len(regroup.regrouped) < len(regroup.participants):
            return False
        self.regroup = None
        self._members.settle(Generation(regroup.generation, plan.members))
        self.lost.clear()
        self.distrusted -= {*plan.repaired, plan.repair_source}
        if plan.restore is not None:
            self.restore = None
        return True

    @property
    def repair_needed(self) -> bool:
        """Whether a member's state differs from the first engine's, or all engines still have to go back to a
        checkpoint."""
        return self.restore is not None or bool(self.distrusted & self._members.current.names)


def _own_parts(plan: RegroupPlan) -> Callable[[str], RegroupPlan]:
    """Return a function that returns the plan as one engine needs it (``RegroupPlan``)."""
    behind, sources, repaired = set(plan.behind), set(plan.sources), set(plan.repaired)
    idle = replace(plan, behind=(), sources=(), catch_up=CatchUp.NOTHING, repaired=())

    def own(name: str) -> RegroupPlan:
        part = idle
        if name in behind or name in sources:
            to = plan.behind if name in sources else (name,)
            part = replace(part, behind=to, sources=plan.sources, catch_up=plan.catch_up)
        if name == plan.repair_source or name in repaired:
            part = replace(part, repaired=plan.repaired if name == plan.repair_source else (name,))
        return part

    return own


def _whom_to_test(members: Sequence[str], suspects: Collection[str], number: int) -> dict[str, list[str]]:
    """Return, for each engine, the engines to which it tries to connect if the group is not built.

    These are at most ``MOST_TESTS``, so that no engine is tested by all others at once. An engine that nobody reaches
    is found at once, because all that test it name it. A single pair of engines that do not reach each other is found
    in the next regroup, because both are suspects. Each regroup chooses other pairs, by its number.

    Args:
        members: all engines, in rank order.
        suspects: engines that could not build the group of the regroup before. They test each other first.
        number: number of the regroup.
    """
    found: dict[str, list[str]] = {name: [] for name in members}
    for ring in ([name for name in members if name in suspects], members):
        first = number * MOST_TESTS % max(1, len(ring) - 1)
        for place, name in enumerate(ring):
            for turn in range(min(MOST_TESTS, len(ring) - 1)):
                other = ring[(place + 1 + (first + turn) % (len(ring) - 1)) % len(ring)]
                if len(found[name]) < MOST_TESTS and other not in found[name]:
                    found[name].append(other)
    return found


def plan_regroup(
    order: Sequence[str],
    statuses: Mapping[str, RegroupStatus],
    *,
    distrusted: Collection[str] = (),
    restore: int | None = None,
    before: Sequence[str] = (),
) -> RegroupPlan:
    """Plan how the survivors continue.

    Engines at the highest offset are *in front*; the coming step is the step at that offset. All other engines are
    *behind*, by one step.

    If the batch follows the engines, the coming step keeps the width with which engines have begun it, so that none of
    its micro-batches is lost or computed twice. If no engine has begun the step, the width of the first engine in front
    applies: engines that switched to another group before the loss see another width than engines that did not.

    Each engine keeps the micro-batches that it has summed, and all others are dealt evenly. Every engine is told the
    whole split. So if there are many engines and each has summed another part of its own, each keeps all of its part of
    the step, summed or not, and only the parts of the engines that are gone are dealt (``MOST_RUNS``).

    Args:
        order: engines in rank order; engines without a status are left out.
        statuses: the status of each survivor, by name.
        distrusted: engines whose state differs from that of the first engine; the micro-batches that they have summed
            are not used.
        restore: all engines go back to a checkpoint of this offset or an earlier one; None: they do not.
        before: the engines of the last settled membership, in rank order.
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
    behind = tuple(name for name in members if statuses[name].offset != offset)
    catch_up, sources = _catch_up(front, behind, statuses, distrusted)
    begun_first = sorted(front, key=lambda name: not statuses[name].summed)
    width = next((statuses[name].micro_batches for name in begun_first if statuses[name].micro_batches), 0)
    kept = _kept([name for name in front if statuses[name].micro_batches in (0, width)], statuses)
    split = _split(members, kept, width)
    if len(to_runs(split)) > MOST_RUNS:
        own = dict(zip(before, even_split(width, len(before)), strict=True)) if before else {}
        split = _split(members, {name: own[name] for name in members if name in own}, width)
    none: set[int] = set()
    lost = width - sum(len(kept.get(name, none) & {*part}) for name, part in zip(members, split, strict=True))
    repair_source, repaired = _repair(members, front, catch_up, distrusted)
    return RegroupPlan(members, offset, behind, sources, catch_up, split, lost, repair_source, repaired)


def _catch_up(
    front: tuple[str, ...],
    behind: tuple[str, ...],
    statuses: Mapping[str, RegroupStatus],
    distrusted: Collection[str],
) -> tuple[CatchUp, tuple[str, ...]]:
    """Return what the engines behind receive, and the engines that send it."""
    if not behind:
        return CatchUp.NOTHING, ()
    offset = statuses[front[0]].offset
    have_reduced = tuple(name for name in front if statuses[name].has_reduced)
    if have_reduced and all(_offset_after(statuses[name]) == offset for name in behind):
        return CatchUp.REDUCED, have_reduced[:1]
    trusted = tuple(name for name in front if name not in distrusted)
    return CatchUp.STATE, trusted[:MOST_SOURCES] or front[:1]


def _offset_after(status: RegroupStatus) -> int:
    """Return the offset after the coming step."""
    return status.offset + 1 if status.offset_after is None else status.offset_after


def _repair(
    members: Sequence[str], front: Sequence[str], catch_up: CatchUp, distrusted: Collection[str]
) -> tuple[str, tuple[str, ...]]:
    """Return the engine that sends its state after the catch-up, and the engines that receive it.

    The first trusted engine sends to all engines that are not trusted. If all engines that could send a state are
    distrusted, the first of them sends: none of them is better than another.
    """
    if not any(name in distrusted for name in members):
        return "", ()
    lost = catch_up is CatchUp.STATE and all(name in distrusted for name in front)
    trusted = () if lost else tuple(name for name in members if name not in distrusted)
    source = (trusted or tuple(front))[0]
    keeps = {*trusted, source} if not lost else {source, *members} - {*front[1:]}
    return source, tuple(name for name in members if name not in keeps)


def _kept(front: Sequence[str], statuses: Mapping[str, RegroupStatus]) -> dict[str, set[int]]:
    """Return the micro-batches that each engine keeps. The largest subtrees are chosen first; no micro-batch is kept
    twice."""
    kept: dict[str, set[int]] = {}
    taken: set[int] = set()
    every = [(span, place, name) for place, name in enumerate(front) for span in statuses[name].summed]
    for (low, high), _, name in sorted(every, key=lambda item: (item[0][0] - item[0][1], *item)):
        span = set(range(low, high))
        if not span & taken:
            taken |= span
            kept.setdefault(name, set()).update(span)
    return kept


def _split(members: Sequence[str], kept: Mapping[str, Collection[int]], width: int) -> tuple[tuple[int, ...], ...]:
    """Split a step of ``width`` micro-batches: each member has those that it keeps, and the others are dealt evenly.
    Neighbours stay together, because a rank sums them before it sends them."""
    taken = set[int]().union(*kept.values())
    lost = [index for index in range(width) if index not in taken]
    parts = contiguous_split(even_counts(len(lost), len(members)))
    return tuple(
        tuple(sorted({*kept.get(name, ()), *lost[part.start : part.stop]}))
        for name, part in zip(members, parts, strict=True)
    )
