"""Regroups: after a loss, the remaining engines form one group again. No input or output.

A regroup interrupts all engines that have the state, even if they are blocked in an operation. It collects the status
of each engine and then sends one plan to all (``regroup_plan``). The regroup is over when all engines work in the new
group. The coordinator makes the plan only when all statuses have arrived. An engine that dies before that is left out
of the plan. This is common, because other engines often notice a death before the supervisor does. A failure after the
plan begins the next regroup. Messages with an older regroup number are stale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from edt_contract.crash_points import CrashPoint, crash_point
from edt_runner.coordinator.changes import Change
from edt_runner.coordinator.members import Generation, Members
from edt_runner.coordinator.regroup_plan import own_parts, plan_regroup, whom_to_test
from edt_runner.protocol.data import PlanDifference, RegroupPlan, RegroupStatus
from edt_runner.protocol.differences import to_runs
from edt_runner.protocol.engine_messages import ApplyRegroupPlan, StartRegroup

VIEWS_SECONDS = 20.0
"""Seconds that the regroup waits for the other engines after the latest ``GroupLost``. Building a group and probing the
other engines takes less time. So an engine that has sent nothing by then has built the group, or hangs."""


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
        parts, tests = own_parts(plan), whom_to_test(plan.members, self._suspects, regroup.number)
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
