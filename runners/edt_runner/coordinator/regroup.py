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

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from edt_contract.crash_points import CrashPoint, crash_point
from edt_runner.coordinator.changes import Change
from edt_runner.coordinator.members import Generation, Members
from edt_runner.protocol.data import CatchUp, RegroupPlan, RegroupStatus
from edt_runner.protocol.engine_messages import ApplyRegroupPlan, StartRegroup
from edt_runner.splits import contiguous_split, even_counts

VIEWS_SECONDS = 20.0
"""Seconds that the regroup waits for the other engines after the latest ``GroupLost``. Building a group and probing the
other engines takes less time. So an engine that has sent nothing by then has built the group, or hangs."""


@dataclass
class Regroup:
    """One try to form a group. If an engine dies after the plan was made, or if the group is not built, a new try
    begins.

    Args:
        number: number of the try; it grows over the attempt.
        participants: living engines that have the state, in rank order.
    """

    number: int
    participants: tuple[str, ...]
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
        return set(self.statuses) >= set(self.participants)

    @property
    def failed(self) -> bool:
        """Whether the regroup has failed and no further message can explain why.

        There are two cases. All participants have built the group or failed to. Or a participant could not build the
        group, and no participant names an engine that it cannot reach.
        """
        tried = self.regrouped | set(self.unreachable) >= set(self.participants)
        had_it = self.regrouped | self.built
        plain = any(not others and name not in had_it for name, others in self.unreachable.items())
        return bool(self.unreachable) and (tried or (plain and not any(self.unreachable.values())))

    def least_reachable(self) -> str | None:
        """Return the engine that occurs in the most pairs of engines that cannot reach each other.

        If several engines occur equally often, the last in rank order is returned. A pair counts once, even if each of
        the two names the other. None: every engine reaches every other.
        """
        pairs = {frozenset((name, other)) for name, others in self.unreachable.items() for other in others}
        count = {name: sum(name in pair for pair in pairs) for name in self.participants}
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
        participants = tuple(name for name in order if name in with_state)
        if not participants:
            members.lose("no engine is left that has the weights")
            return
        self.regroup = Regroup(number, participants)
        for name in participants:
            members.send(name, StartRegroup(number, members.all_addresses))

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
        if regroup is None or regroup.plan is not None or not set(regroup.participants) - {name}:
            return False
        regroup.participants = tuple(other for other in regroup.participants if other != name)
        regroup.statuses.pop(name, None)
        self._decide(regroup)
        return True

    def _decide(self, regroup: Regroup) -> None:
        """Make the plan and send it to all participants, once all have sent their statuses."""
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
        """Whether a member's state differs from the first engine's, or all engines still have to go back to a
        checkpoint."""
        return self.restore is not None or bool(self.distrusted & set(self._members.current.members))


def plan_regroup(
    order: Sequence[str],
    statuses: Mapping[str, RegroupStatus],
    *,
    distrusted: Collection[str] = (),
    restore: int | None = None,
) -> RegroupPlan:
    """Plan how the survivors continue.

    Engines at the highest offset are *in front*; the coming step is the step at that offset. All other engines are
    *behind*, by one step.

    If the batch follows the engines, the coming step keeps the width with which engines have begun it, so that none of
    its micro-batches is lost or computed twice. If no engine has begun the step, the width of the first engine in front
    applies: engines that switched to another group before the loss see another width than engines that did not.

    Args:
        order: engines in rank order; engines without a status are left out.
        statuses: the status of each survivor, by name.
        distrusted: engines whose state differs from that of the first engine; the micro-batches that they have summed
            are not used.
        restore: all engines go back to a checkpoint of this offset or an earlier one; None: they do not.
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
    """Return what the engines behind receive, and the engines that send it."""
    if not behind:
        return CatchUp.NOTHING, ()
    offset = statuses[front[0]].offset
    have_reduced = tuple(name for name in front if statuses[name].has_reduced)
    if have_reduced and all(_offset_after(statuses[name]) == offset for name in behind):
        return CatchUp.REDUCED, have_reduced[:1]
    trusted = tuple(name for name in front if name not in distrusted)
    return CatchUp.STATE, trusted or front[:1]


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
    keeps = {*trusted, source} if not lost else {source, *(name for name in members if name not in front)}
    return source, tuple(name for name in members if name not in keeps)


def _kept(front: Sequence[str], statuses: Mapping[str, RegroupStatus]) -> dict[str, set[int]]:
    """Return the micro-batches that each engine keeps. The largest subtrees are chosen first; no micro-batch is kept
    twice."""
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
    """Split the lost micro-batches evenly over the members. Neighbours stay together, because a rank sums them before
    it sends them."""
    parts = contiguous_split(even_counts(len(lost), len(members)))
    return tuple(
        tuple(sorted({*kept.get(name, ()), *lost[part.start : part.stop]}))
        for name, part in zip(members, parts, strict=True)
    )
