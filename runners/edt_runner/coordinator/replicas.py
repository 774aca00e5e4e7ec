"""Whether the result is exact: checksums of the engines' states are compared, what is known is kept, and what the user
has asked for is done when engines differ or compute with something else. No input or output.

Engines send checksums of their state at the same committed steps (``engine.checksum_sender``). Once all members of a
generation have, they are compared. What some of them never send, because they were lost or the engines regrouped, is
forgotten. The history goes to the driver, which says it at the end and gives it to a coordinator that is new, and to
the engines, which write it into checkpoints.
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
"""Of the time between two comparisons at epochs' ends, the most that the checksums of an engine may take."""
_LEAST_SECONDS = 1.0
"""Between two such comparisons: each is also a report, which is written to disk and into a database."""
_MOST_IN_A_ROW = 3
"""Each of so many comparisons in a row that find a difference is followed by one at the next epoch's end, since a user
needs to know whether the engines are equal by then. After one more, the next comparison waits as after an equal one."""
_MOST_WAITING = 4
"""Comparisons of which not all checksums are here; older ones are given up."""
_ALL_PARTS = "the tensors and settings that there are"

CALLBACKS_WHY = (
    "the hooks in engine {} and in engine {} did not do the same, which ended with other weights: takes callbacks that "
    "keep what they remember in attributes of their own and go by the values they are given, not by a clock"
)


@dataclass(frozen=True)
class Comparison:
    """What came of one comparison.

    Args:
        step: committed training steps.
        offset: where the training stood.
        members: engines that were compared, in rank order.
        differing: those that differ from the first.
        difference: the first thing that differs, with both values; empty: nothing does.
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
        """The part that is to blame, as GUARANTEE_ENDED names it."""
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
        checksums: of each; those of the first have names.

    Returns:
        The members that differ from the first, and the first thing that differs, with both values.
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
    """The first thing that two engines compute with and that is not the same; empty: there is none. What only one of
    them has said is ignored: it may be of another release."""
    return next((what for what in reference if what in other and reference[what] != other[what]), "")


class Replicas:
    """The checksums that engines have sent, the history of comparisons, and whether the result is still exact.

    Args:
        regroup: starts a regroup.
    """

    def __init__(
        self, members: Members, failures: ScriptFailures, regroups: Regroups, regroup: Callable[[], None]
    ) -> None:
        self._members, self._failures, self._regroups, self._regroup = members, failures, regroups, regroup
        self._waiting: dict[tuple[int, int], dict[str, ChecksumsTaken]] = {}
        """By (generation, offset), then by engine."""
        self._reported: set[str] = set()
        """What has ended the guarantee, each reported once."""
        self._compare_from = self._in_a_row = 0
        self._unanswered: Comparison | None = None
        """Engines differ, and the driver has not sent ``on_mismatch`` to this coordinator yet."""
        self.history = ReplicaHistory()
        self.resumed_at: int | None = None
        """The offset of the checkpoint that the first engine receives, as long as no engine has trained."""

    # ── what is known ─────────────────────────────────────────────────────────────────────────────────────────
    def merge(self, history: ReplicaHistory) -> None:
        """Add what the driver or an engine knows: of a checkpoint, or of the coordinator before this one."""
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
        if not self.history == own == history:  # if all are equal, everybody has it
            self.send_history()

    def learn(self, **fields: Any) -> None:
        """Change fields of the history and send it to all."""
        self.history = replace(self.history, **fields)
        self.send_history()

    def training_began(self) -> None:
        """The first engine has the driver's state, and no other has any: all engines begin from that. It is not known
        to be right where several engines had trained since they were last found equal: they may have differed when
        the checkpoint was written."""
        if self.resumed_at is not None and not (self.history.several and self.history.equal_at < self.resumed_at):
            self.learn(equal_at=self.resumed_at)

    def send_history(self) -> None:
        """Send the history to the driver and to all engines that have the state."""
        self._members.send(DRIVER, ReplicasChanged(self.history))
        for name in sorted(self._members.with_state):
            self.send_history_to(name)

    def send_history_to(self, name: str) -> None:
        """Send the history to an engine that has just received the state, or has connected again."""
        self._members.send(name, ReplicasChanged(self.history, self._compare_from))

    # ── the guarantee ─────────────────────────────────────────────────────────────────────────────────────────
    def end_guarantee(self, what: str, why: str, **where: Any) -> None:
        """The result is no longer exact because of ``what``; reported once. ``where``: more of the report's body."""
        if what in self._reported or self.history.ended.startswith(f"{what}: "):
            return
        self._reported.add(what)
        if not self.history.ended:
            self.learn(ended=f"{what}: {why}", ended_where=where)
        self._members.report("guarantee-ended", what=what, why=why, **where)
        self._members.send(DRIVER, Note(f"The result is no longer exact because of {what}: {why}."))
        self.require_exact()

    def report_ended_again(self) -> None:
        """If the guarantee had ended before this coordinator began, report it once more, in the same words: the
        coordinator or the attempt before may have died before its report was written. The platform makes one event of
        equal reports."""
        what, _, why = self.history.ended.partition(": ")
        if what and not self._reported:
            self._reported.add(what)
            self._members.report("guarantee-ended", what=what, why=why, **(self.history.ended_where or {}))

    def require_exact(self) -> None:
        """Fail the training if its result must be exact and is not."""
        definition, ended = self._members.definition, self.history.ended
        if ended and definition is not None and definition.require_exact:
            self._failures.fail(f"require_exact=True, and the result is no longer exact because of {ended}")

    # ── comparing ─────────────────────────────────────────────────────────────────────────────────────────────
    def add(self, name: str, message: ChecksumsTaken) -> None:
        """Keep the checksums of engine ``name``, and compare once all members of its generation have sent theirs of
        that step."""
        key = (message.generation, message.offset)
        messages = self._waiting.setdefault(key, {})
        messages[name] = message
        while len(self._waiting) > _MOST_WAITING:
            del self._waiting[min(self._waiting)]
        if not set(messages) >= set(message.members):
            return
        self._waiting = {other: waiting for other, waiting in self._waiting.items() if other > key}
        comparison = _comparison(
            message.members,
            {engine: each.checksums for engine, each in messages.items()},
            message.step,
            message.offset,
            message.reason,
        )
        self._in_a_row = 0 if comparison.equal else self._in_a_row + 1
        soon = 0 < self._in_a_row <= _MOST_IN_A_ROW
        self._compare_from = 0 if soon else _worthwhile_from(message.offset, messages)
        if not self._members.over and not self._failures.failed:
            self._judge(comparison)

    def ended_equal(self, results: Mapping[str, EngineResult]) -> bool:
        """Compare the trained state, where all have sent checksums of it. Returns False if the engines go back to a
        checkpoint, or the training has failed."""
        members = self._members.current.members
        checksums = {
            name: found for name in members if name in results and (found := results[name].checksums) is not None
        }
        if len(members) > 1 and len(checksums) == len(members):
            step, schedule = results[members[0]].step, self._members.schedule
            assert step is not None
            # a coordinator that does not know the training yet says where replicas were last equal
            offset = self.history.equal_at if schedule is None else schedule.length
            self._judge(_comparison(members, checksums, step, offset, ComparisonReason.END))
        return self._members.phase is Phase.ENDING

    def _judge(self, comparison: Comparison) -> None:
        """Report a comparison and remember it. If engines differ, do what the user has asked for."""
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
        """Do what the user has asked for when engines differ. It waits until this coordinator knows who trains and
        what the user has said."""
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

    # ── engines that compute with something else ──────────────────────────────────────────────────────────────
    def joined(self, name: str, step: int, *, first: bool) -> None:
        """Engine ``name`` has the state. The ``first`` of an attempt says what the others should compute with; a
        training that goes on from a checkpoint was computed with something, too."""
        if not first and not self.history.several:
            self.learn(several=True)
        if found := self._unlike(name):
            said = "the training goes on from a checkpoint, and" if first else "not all engines compute alike:"
            self.end_guarantee("unlike engines", f"{said} {found}", engine=int(name), step=step, difference=found)
        if first and (computing := self._members[name].computing):
            self.learn(computing=computing)

    def refuse_unlike(self, name: str) -> None:
        """If the result must be exact and engine ``name`` computes with something else, it exits, and the training goes
        on without it. If no other engine trains, the training cannot go on with this machine."""
        members, definition = self._members, self._members.definition
        if definition is None or not definition.require_exact or not (found := self._unlike(name)):
            return
        why = f"require_exact=True, and {found}"
        if members.phase in (Phase.RUNNING, Phase.RECOVERING):
            members[name].state = MemberState.RELEASED
            members.send(DRIVER, Note(f"engine {name} was sent away: {why}"))
            members.send(name, RefuseEngine(why))
        elif not members.over:
            self._failures.fail(f"{why}; the training can go on where the engines are like those before")

    def _unlike(self, name: str) -> str:
        """What engine ``name`` computes with that others do not, or did not; empty: nothing."""
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
    """The offset from which on an epoch's end is far enough off to be worth the time of a comparison."""
    cost = max(message.seconds for message in messages.values())
    seconds_per_offset = min(message.seconds_per_offset for message in messages.values())
    if seconds_per_offset <= 0:
        return 0
    return offset + math.ceil(max(_LEAST_SECONDS, cost / _SHARE) / seconds_per_offset)
