"""Whether the result is exact. No input or output.

The coordinator compares checksums of the engines' states and keeps a history of the comparisons. If engines differ, or
if their hardware or libraries differ, the coordinator does what the user has chosen for that case.

Engines send checksums of their states at the same committed steps (``engine.checksum_sender``). The coordinator
compares them when all members of a generation have sent theirs. It forgets checksums of a step for which some engines
never send theirs, because an engine was lost or the engines regrouped. The coordinator sends the history to the driver
and to the engines. The driver shows it at the end and sends it to a new coordinator. The engines write it into
checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edt_runner.coordinator.members import DRIVER, Members, MemberState, Phase, ScriptFailures
from edt_runner.coordinator.regroup import Regroups
from edt_runner.protocol.data import ComparisonReason, EngineResult, ReplicaChecksums, ReplicaHistory
from edt_runner.protocol.engine_messages import ChecksumsTaken, RefuseEngine, ReplicasChanged
from edt_runner.protocol.messages import Note

_SHARE = 0.01
"""The largest part of the time between two comparisons at epochs' ends that the checksums of one engine may take."""
_LEAST_SECONDS = 1.0
"""The shortest time between two such comparisons. Each comparison is also a report, which is written to disk and into a
database."""
_MOST_IN_A_ROW = 3
"""After a comparison that finds a difference, the next one follows at the next epoch's end, because the user needs to
know whether the engines are equal by then. After more than this number of differences in a row, the next comparison
waits as long as after an equal one."""
_MOST_WAITING = 4
"""How many incomplete comparisons are kept. Older ones are given up."""
_ALL_PARTS = "the tensors and settings that there are"

CALLBACKS_WHY = (
    "the hooks in engine {} and in engine {} did not do the same, which ended with other weights: takes callbacks that "
    "keep what they remember in attributes of their own and go by the values they are given, not by a clock"
)


@dataclass(frozen=True)
class Comparison:
    """The result of one comparison.

    Args:
        step: number of committed training steps.
        offset: offset of the training at that step.
        members: engines that were compared, in rank order.
        reason: why the engines were compared.
        differing: engines that differ from the first.
        difference: the first tensor or setting that differs, with both values; empty: all are equal.
        user_callbacks: whether user callbacks run in the engines.
    """

    step: int
    offset: int
    members: tuple[str, ...]
    reason: ComparisonReason
    differing: tuple[str, ...] = ()
    difference: str = ""
    user_callbacks: bool = False

    @property
    def equal(self) -> bool:
        return not self.differing

    @property
    def what(self) -> str:
        """The cause of a difference, as the report GUARANTEE_ENDED names it."""
        return "user_callback" if self.user_callbacks else "replicas"

    @property
    def why(self) -> str:
        if self.user_callbacks:
            sentence = CALLBACKS_WHY.format(self.members[0], self.differing[0])
            return f"{sentence}; first at step {self.step}: {self.difference}"
        others = len(self.differing) - 1
        more = f", and in {others} more" if others else ""
        return f"engines hold different states since step {self.step} or before: {self.difference}{more}"


def compare(members: Sequence[str], checksums: Mapping[str, ReplicaChecksums]) -> tuple[tuple[str, ...], str]:
    """Compare checksums.

    Args:
        members: engines in rank order.
        checksums: the checksums of each engine; those of the first engine have names.

    Returns:
        The members that differ from the first, and the first tensor or setting that differs, with both values.
    """
    first, *others = members
    values, names = checksums[first].values, checksums[first].names
    differing = tuple(name for name in others if checksums[name].values != values)
    if not differing:
        return (), ""
    other = differing[0]
    theirs = checksums[other].values
    if len(theirs) != len(values):
        return differing, f"{_ALL_PARTS}: {len(values)} in engine {first}, {len(theirs)} in engine {other}"
    index = next(i for i, pair in enumerate(zip(values, theirs, strict=True)) if pair[0] != pair[1])
    part = names[index] if index < len(names) else f"number {index + 1} of {_ALL_PARTS}"
    return differing, f"{part}: {values[index]} in engine {first}, {theirs[index]} in engine {other}"


def unlike(reference: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the name of the first fact about hardware or libraries in which two engines differ; empty: they are alike.

    A fact that only one of them has sent is ignored, because the engines may be of different releases.

    Args:
        reference: facts of one engine, by name.
        other: facts of the other engine, by name.
    """
    return next((what for what in reference if what in other and reference[what] != other[what]), "")


class Replicas:
    """Keeps the checksums that engines have sent, the history of comparisons, and whether the result is still exact.

    Args:
        members: all engines of the attempt.
        failures: fails the training where the user wants that.
        regroups: where a repair of replicas is requested.
        regroup: starts a regroup.
    """

    def __init__(
        self, members: Members, failures: ScriptFailures, regroups: Regroups, regroup: Callable[[], None]
    ) -> None:
        self._members, self._failures, self._regroups, self._regroup = members, failures, regroups, regroup
        self._waiting: dict[tuple[int, int], dict[str, ChecksumsTaken]] = {}
        """Checksums that wait for the other members', by (generation, offset) and then by engine."""
        self._reported: set[str] = set()
        """Causes that have ended the guarantee of exactness. Each is reported once."""
        self._compare_from = self._in_a_row = 0
        self._unanswered: Comparison | None = None
        """A comparison that found a difference and waits until ``on_mismatch`` of the driver is known; None: there is
        none."""
        self.history = ReplicaHistory()
        self.resumed_at: int | None = None
        """Offset of the checkpoint from which the driver has loaded the state for the first engine; None: the state is
        the script's initial one, or engines were already training."""

    # ── the history ───────────────────────────────────────────────────────────────────────────────────────────
    def merge(self, history: ReplicaHistory) -> None:
        """Merge a history that the driver or an engine has, from a checkpoint or from the previous coordinator."""
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
        if not self.history == own == history:  # if all are equal, every process has it
            self.send_history()

    def learn(self, **fields: Any) -> None:
        """Change fields of the history and send the history to the driver and the engines."""
        self.history = replace(self.history, **fields)
        self.send_history()

    def training_began(self) -> None:
        """Note that the first engine has the driver's state. All other engines will receive their states from it.

        The state of a checkpoint counts as equal in all engines. There is one exception: if several engines had trained
        since they were last found equal, they may have differed when the checkpoint was written.
        """
        if self.resumed_at is not None and not (self.history.several and self.history.equal_at < self.resumed_at):
            self.learn(equal_at=self.resumed_at)

    def send_history(self) -> None:
        """Send the history to the driver and to all engines that have the state."""
        self._members.send(DRIVER, ReplicasChanged(self.history))
        changed = ReplicasChanged(self.history, self._compare_from)
        for name in sorted(self._members.with_state):
            self._members.send(name, changed)

    def send_history_to(self, name: str) -> None:
        """Send the history to engine ``name``, which has just received the state or has connected again."""
        self._members.send(name, ReplicasChanged(self.history, self._compare_from))

    # ── the guarantee ─────────────────────────────────────────────────────────────────────────────────────────
    def end_guarantee(self, what: str, why: str, **where: Any) -> None:
        """Note that the result is no longer exact, and report the cause once.

        Args:
            what: the cause.
            why: a sentence for the user.
            where: further fields of the report.
        """
        if what in self._reported or self.history.ended.startswith(f"{what}: "):
            return
        self._reported.add(what)
        if not self.history.ended:
            self.learn(ended=f"{what}: {why}", ended_where=where)
        self._members.report("guarantee-ended", what=what, why=why, **where)
        self._members.send(DRIVER, Note(f"The result is no longer exact because of {what}: {why}."))
        self.require_exact()

    def report_ended_again(self) -> None:
        """Report once more, in the same words, that the guarantee has ended, if that was before this coordinator began.

        The previous coordinator or attempt may have died before its report was written. The platform stores equal
        reports as one event.
        """
        what, _, why = self.history.ended.partition(": ")
        if what and not self._reported:
            self._reported.add(what)
            self._members.report("guarantee-ended", what=what, why=why, **(self.history.ended_where or {}))

    def require_exact(self) -> None:
        """Fail the training if its result must be exact and is not exact any more."""
        definition, ended = self._members.definition, self.history.ended
        if ended and definition is not None and definition.require_exact:
            self._failures.fail(f"require_exact=True, and the result is no longer exact because of {ended}")

    # ── comparing ─────────────────────────────────────────────────────────────────────────────────────────────
    def add(self, name: str, message: ChecksumsTaken) -> None:
        """Keep the checksums of engine ``name``. Compare when all members of its generation have sent theirs of that
        step."""
        key = (message.generation, message.offset)
        messages = self._waiting.setdefault(key, {})
        messages[name] = message
        while len(self._waiting) > _MOST_WAITING:
            del self._waiting[min(self._waiting)]
        compared = next((each.members for each in messages.values() if each.members), ())
        if not compared or len(messages) < len(compared) or not messages.keys() >= set(compared):
            return
        self._waiting = {other: waiting for other, waiting in self._waiting.items() if other > key}
        if len({each.reason for each in messages.values()}) > 1:
            return  # ``compare_from`` reached some of them before this epoch's end and others after it
        comparison = _comparison(
            compared,
            {engine: each.checksums for engine, each in messages.items()},
            message.step,
            message.offset,
            message.reason,
        )
        if comparison.equal and message.reason is ComparisonReason.SETTINGS:
            return
        self._in_a_row = 0 if comparison.equal else self._in_a_row + 1
        soon = 0 < self._in_a_row <= _MOST_IN_A_ROW
        self._compare_from = 0 if soon else _worthwhile_from(message.offset, messages)
        if not self._members.over and not self._failures.failed:
            self._judge(comparison)

    def ended_equal(self, results: Mapping[str, EngineResult]) -> bool:
        """Compare the trained states, if all members have sent checksums of them.

        Args:
            results: the result of each engine, by name.

        Returns:
            False if the engines go back to a checkpoint or the training has failed; else True.
        """
        members = self._members.current.members
        checksums = {
            name: found for name in members if name in results and (found := results[name].checksums) is not None
        }
        if len(members) > 1 and len(checksums) == len(members):
            step, schedule = results[members[0]].step, self._members.schedule
            assert step is not None
            # a coordinator that does not know the schedule yet uses the offset at which replicas were last equal
            offset = self.history.equal_at if schedule is None else schedule.length
            self._judge(_comparison(members, checksums, step, offset, ComparisonReason.END))
        return self._members.phase is Phase.ENDING

    def _judge(self, comparison: Comparison) -> None:
        """Report a comparison and add it to the history. If engines differ, do what the user has chosen
        (``on_mismatch``)."""
        self._members.report(
            "replicas-compared",
            step=comparison.step,
            engines=len(comparison.members),
            equal=comparison.equal,
            reason=comparison.reason.value,
        )
        compared = self.history.compared + 1
        if comparison.equal:
            equal_at = max(self.history.equal_at, comparison.offset)
            self.learn(compared=compared, last_step=comparison.step, equal_at=equal_at)
            return
        self.learn(compared=compared)
        engine, step, difference = int(comparison.differing[0]), comparison.step, comparison.difference
        self.end_guarantee(comparison.what, comparison.why, engine=engine, step=step, difference=difference)
        self._unanswered = comparison
        self.answer()

    def answer(self) -> None:
        """Do what the user has chosen for engines that differ (``on_mismatch``). Do nothing until this coordinator
        knows which engines train and what the user has chosen."""
        comparison, members = self._unanswered, self._members
        if comparison is None or members.definition is None or members.phase is Phase.RECOVERING:
            return
        self._unanswered = None
        if self._failures.failed or members.phase not in (Phase.RUNNING, Phase.ENDING):
            return
        wanted = members.definition.on_mismatch
        if wanted == "stop" or (wanted == "restore" and self.history.restored):
            again = " for the second time" if wanted == "restore" else ""
            self._failures.fail(f"on_mismatch={wanted!r}: {comparison.why}{again}")
        elif wanted == "restore":
            self.learn(restored=True)
            self._regroups.restore = self.history.equal_at
            self._regroup()
        elif members.phase is Phase.RUNNING:
            self._regroups.distrusted.update(comparison.differing)
            if self._regroups.regroup is None:
                self._regroup()

    # ── engines with other hardware or libraries ──────────────────────────────────────────────────────────────
    def joined(self, name: str, step: int, *, first: bool) -> None:
        """Check the hardware and libraries of engine ``name``, which has the state. If they differ from the reference,
        the guarantee ends.

        The reference is the first engine of the attempt. For that engine itself, it is the engine that wrote the
        checkpoint.

        Args:
            name: the engine.
            step: number of committed training steps.
            first: whether the engine is the first of the attempt.
        """
        if not first and not self.history.several:
            self.learn(several=True)
        if found := self._unlike(name):
            said = "the training goes on from a checkpoint, and" if first else "not all engines compute alike:"
            self.end_guarantee("unlike engines", f"{said} {found}", engine=int(name), step=step, difference=found)
        if first and (computing := self._members[name].computing):
            self.learn(computing=computing)

    def refuse_unlike(self, name: str) -> None:
        """Refuse engine ``name`` if the result must be exact and the engine's hardware or libraries differ.

        The engine then exits, and the training continues without it. If no other engine trains, the training fails,
        because it cannot continue on this machine.
        """
        members, definition = self._members, self._members.definition
        if definition is None or not definition.require_exact or not (found := self._unlike(name)):
            return
        why = f"require_exact=True, and {found}"
        if members.phase in (Phase.RUNNING, Phase.RECOVERING):
            members.set_state(name, MemberState.RELEASED)
            members.send(DRIVER, Note(f"engine {name} was sent away: {why}"))
            members.send(name, RefuseEngine(why))
        elif not members.over:
            self._failures.fail(f"{why}; the training can go on where the engines are like those before")

    def _unlike(self, name: str) -> str:
        """Return how the hardware or libraries of engine ``name`` differ from those of the other or earlier engines;
        empty: they are alike."""
        members, reference = self._members, self.history.computing
        first = next((other for other in members.current.members if members[other].computing), None)
        if first is not None and first != name:
            reference, who = members[first].computing, f"engine {first}"
        else:
            who = "the engines before"
        own = members[name].computing
        if not reference or not own or not (what := unlike(reference, own)):
            return ""
        return f"{what}: {reference[what]} in {who}, {own[what]} in engine {name}"


def _comparison(
    members: tuple[str, ...],
    checksums: Mapping[str, ReplicaChecksums],
    step: int,
    offset: int,
    reason: ComparisonReason,
) -> Comparison:
    differing, difference = compare(members, checksums)
    user_callbacks = any(each.user_callbacks for each in checksums.values())
    return Comparison(step, offset, members, reason, differing, difference, user_callbacks)


def _worthwhile_from(offset: int, messages: Mapping[str, ChecksumsTaken]) -> int:
    """Return the first offset at which an epoch's end is worth the time of a comparison again."""
    cost = max(message.seconds for message in messages.values())
    seconds_per_offset = min(message.seconds_per_offset for message in messages.values())
    if seconds_per_offset <= 0:
        return 0
    return offset + math.ceil(max(_LEAST_SECONDS, cost / _SHARE) / seconds_per_offset)
