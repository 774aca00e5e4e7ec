"""Reads the reports of one supervisor from its spool folder, and makes batches of them for the API.

A job's own processes may be able to write into the spool folder, so the agent does not trust the lines. A report's
number is its line's number. Job, fence and node must be those that the agent knows. ``fit`` reduces the body to the
fields of ``reports.BODIES``. A line is left out if it is no report, if ``is_plausible`` refutes it, or if there are too
many reports of its kind. A report of kind REPORTS_LEFT_OUT then takes its number, so that the numbers have no gap.
"""

from __future__ import annotations

import copy
import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edt_agent.spool_file import Place, SpoolFile
from edt_agent.supervisor_records import Key
from edt_contract.attempt import AttemptSpec, DesiredState
from edt_contract.encoding import load_object, to_json_object
from edt_contract.reports import (
    BATCH_BYTES,
    BODIES,
    LINE_BYTES,
    REPORTS_FILE,
    ExitKind,
    Report,
    ReportKind,
    fit,
    fit_time,
)

log = logging.getLogger(__name__)

_MOST_LINES = 20_000
"""Most lines that are read at a time, so that the reports of one job do not delay those of others."""
_SUMMARY_SECONDS = 60.0
"""Least seconds between two messages to the job's user that reports were left out."""
_UNKNOWN = {"code": None, "signal": None, "seconds": None}


@dataclass
class Facts:
    """The facts about a supervisor that its reports contain, as far as they were read."""

    last_seq: int = 0
    """Number of the newest report."""
    started: bool = False
    """Whether the supervisor has written a report."""
    ended: bool = False
    """Whether the newest report is ATTEMPT_ENDED. If other reports follow it, the supervisor did not write it."""
    step: int | None = None
    """The newest reported step; None: no step was reported."""
    open_engines: dict[int, str] = field(default_factory=dict)
    """Slot of each engine that has started and is not gone, by allocation."""
    pids: dict[int, int] = field(default_factory=dict)
    """Pid of each of these engines, as its supervisor sees it. A process of a gang that holds several slots stands here
    once for each of them."""
    gone: set[int] = field(default_factory=set)
    """Allocations whose engine is gone."""
    starved: bool = False
    """Whether the kernel killed an engine because memory ran out, according to a report."""


class ReportQuota:
    """Limits the number of reports that an attempt may send. Each kind has a token bucket: ``burst`` reports at once,
    and ``a_minute`` more each minute."""

    def __init__(self) -> None:
        self._credit: dict[ReportKind, tuple[float, float]] = {}

    def take(self, kind: ReportKind, now: float) -> bool:
        """Whether one more report of this kind may be sent at ``now`` (monotonic seconds). If so, this counts it."""
        body = BODIES[kind]
        credit, since = self._credit.get(kind, (float(body.burst), now))
        credit = min(float(body.burst), credit + (now - since) * body.a_minute / 60)
        may = credit >= 1.0
        self._credit[kind] = (credit - 1.0 if may else credit, now)
        return may


@dataclass
class _Batch:
    """A batch of reports, and the state from which the next batch is made once the API has this one."""

    quota: ReportQuota
    summary_due: float
    unsummarized: Counter[str]
    messages: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0

    @property
    def last_seq(self) -> int:
        return int(self.messages[-1]["seq"]) if self.messages else 0


class Spool:
    """The reports of one supervisor.

    Args:
        folder: the spool folder, which holds ``reports.jsonl``.
        key: the attempt.
        node: this node's name.
        acked: number of the last report that the API has.
        before: number of the last report of an earlier supervisor of this attempt; 0: there was none.
        is_plausible: whether a report of processes can be true; None: it cannot be decided yet, so the report waits.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        folder: Path,
        key: Key,
        node: str,
        acked: int = 0,
        before: int = 0,
        *,
        is_plausible: Callable[[Report], bool | None] = lambda report: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = folder / REPORTS_FILE
        self.facts = Facts()
        self.acked = acked
        self.behind = False
        """Whether there are reports on disk that were not read yet."""
        self.is_plausible = is_plausible
        self._key, self._node, self._before, self._clock = key, node, before, clock
        self._begin = Place()
        self._scanned = self._begin  # the facts include all lines up to here
        self._sent = self._begin  # the API has all reports up to here
        self._made = self._building = _Batch(ReportQuota(), 0.0, Counter())
        self._end_due = False
        """Whether ATTEMPT_ENDED must be written again, under a number that is free."""
        self._logged: set[str] = set()
        self._file = SpoolFile(self.path, self._log_once)

    def scan(self) -> Facts:
        """Read the next reports, at most ``_MOST_LINES``; returns all facts that are known now."""
        self.behind = False
        self._file.write()
        if (start := self._file.replaced(self._scanned)) is not None:
            self._restart_at(start)
        for number, (line, after) in enumerate(self._file.lines(self._scanned)):
            if number == _MOST_LINES:
                self.behind = True
                break
            self._scanned = after
            self._learn(after.lines, self._report(line, after.lines))
        return self.facts

    def read_all(self) -> Facts:
        """Read all reports that are on disk; returns the facts."""
        facts = self.scan()
        while self.behind:
            facts = self.scan()
        return facts

    def discard_unread(self) -> None:
        """Cut off the lines that were not read. The agent calls this if the supervisor is gone and has left too many
        lines."""
        if self._file.could_cut(self._scanned):
            self._log_once("so much is in it that the rest was cut off")
            self.behind = False

    @property
    def all_acked(self) -> bool:
        """Whether the API has all reports that were read so far."""
        return self.acked >= self.facts.last_seq and not self._end_due

    @property
    def all_written(self) -> bool:
        """Whether the disk has accepted all reports that this agent made."""
        return self._file.all_written

    def batch(self, limit: int, *, withhold_end: bool) -> list[dict[str, Any]]:
        """The next reports to send, in order, as JSON objects.

        Args:
            limit: most reports in the batch.
            withhold_end: whether to hold back ATTEMPT_ENDED, because processes of the attempt may still run.
        """
        before = self._made
        made = _Batch(copy.deepcopy(before.quota), before.summary_due, before.unsummarized.copy())
        left_out: list[tuple[int, str, str]] = []
        self.scan()
        if self._end_due:
            self._write_end_again()
        place = self._sent
        for number, (line, after) in enumerate(self._file.lines(self._sent)):
            if place == self._scanned:
                break
            place = after
            if after.offset >= self._scanned.offset and after != self._scanned:
                # These lines have changed since they were read. They are read once more, under new numbers.
                self._restart_at(Place(self._sent.offset, self._scanned.lines))
                return self.batch(limit, withhold_end=withhold_end)
            if after.lines <= self.acked:
                self._sent = after
                continue
            if not made.messages and not left_out:  # lines may have been cut off, so that their numbers are missing
                left_out += [(seq, "unreadable", "they could not be read") for seq in (self.acked + 1, after.lines - 1)]
                left_out = left_out if self.acked + 1 < after.lines else []
            full = len(made.messages) >= limit or made.size > BATCH_BYTES - 2 * LINE_BYTES
            if full or number >= _MOST_LINES:
                break
            report = self._report(line, after.lines)
            why = self._why_left_out(report, made.quota, withhold_end=withhold_end)
            if why is None:
                break
            if why:
                left_out.append((after.lines, report.kind if report is not None else "unreadable", why))
                continue
            self._report_left_out(made, left_out)
            assert report is not None
            self._add(made, report)
        self._report_left_out(made, left_out)
        self._building = made
        return made.messages

    def ack(self, seq: int) -> None:
        """Note that the API has all reports up to ``seq``. If the number is smaller than before, because the database
        was restored, the reports after it are sent once more."""
        if seq < self.acked:
            self._sent = self._begin
        elif seq >= self._building.last_seq > 0:
            self._made = self._building
        self.acked = seq
        if self.facts.ended and seq > self.facts.last_seq:
            # The disk has lost reports that the API has, so the agent wrote the end under a number that was in use.
            self._write_end_again()

    def _write_end_again(self) -> None:
        """Write ATTEMPT_ENDED once more. If this fails, the next batch tries again."""
        self._end_due = True
        try:
            self.close(ExitKind.LOST, "its last reports were lost with the node", None, None)
        except OSError as error:
            self._log_once(f"it cannot be cut: {error.strerror}")
        else:
            self._end_due = False

    def close(
        self, kind: ExitKind, message: str, code: int | None, desired: DesiredState | None, oom: bool = False
    ) -> None:
        """Write the last reports of a supervisor that is gone: ENGINE_GONE for its engines, and ATTEMPT_ENDED.

        Call this only when no process of the attempt is left. If the disk is full, the reports are sent nevertheless,
        and written when there is room.

        Args:
            kind: how the attempt ended.
            message: why, in words for the job's user.
            code: the supervisor's exit status; None: unknown.
            desired: the newest desired state; None: unknown. Its slots get an ENGINE_GONE even if no engine was started
                on them.
            oom: whether the kernel killed the supervisor because memory ran out.

        Raises:
            OSError: half a line that the supervisor has left cannot be cut off. Then nothing is written.
        """
        facts = self.read_all()
        if facts.ended and self.acked <= facts.last_seq:
            return
        self._file.cut(self._scanned)  # cut off half a line, which a power cut may have left
        engines = dict(facts.open_engines)
        if desired is not None:
            engines = dict.fromkeys(desired.leaving, "") | {s.allocation: s.slot for s in desired.slots} | engines
        # An engine that was asked to leave or stop does not count as lost, even if it never ran.
        how = kind if kind in {ExitKind.LEFT, ExitKind.STOPPED} else ExitKind.LOST
        closing: list[tuple[ReportKind, dict[str, Any]]] = [
            (ReportKind.ENGINE_GONE, {"allocation": allocation, "slot": slot, "kind": how, **_UNKNOWN})
            for allocation, slot in sorted(engines.items())
            if allocation not in facts.gone
        ]
        last = {"kind": kind, "code": code, "message": message, "digest": None, "step": facts.step, "oom": oom}
        closing.append((ReportKind.ATTEMPT_ENDED, last))
        lost = max(0, self.acked - facts.last_seq)  # empty lines for reports that only the API has
        self._file.append(
            lost,
            [
                self._own(seq, what, time.time(), fit(what, body).body or {})
                for seq, (what, body) in enumerate(closing, start=facts.last_seq + lost + 1)
            ],
        )
        self.read_all()

    def _why_left_out(self, report: Report | None, quota: ReportQuota, *, withhold_end: bool) -> str | None:
        """Why a report is left out. "": it is sent. None: it waits, and so do all reports after it."""
        if report is None:
            return "they could not be read"
        if report.kind is ReportKind.ATTEMPT_ENDED and report.seq > self._before:
            if report.seq < self.facts.last_seq:
                return "the supervisor has reported more after them"
            if withhold_end:
                return None
        plausible = self.is_plausible(report)
        if not plausible:
            return None if plausible is None else "the engines that they call gone still run"
        if not quota.take(report.kind, self._clock()):
            return "there were too many of them"
        return ""

    def _report_left_out(self, made: _Batch, left_out: list[tuple[int, str, str]]) -> None:
        """Add one report in place of all reports of ``left_out``. At most once in ``_SUMMARY_SECONDS`` this report also
        has their number by kind, for the job's user."""
        if not left_out:
            return
        made.unsummarized.update(kind for _, kind, _ in left_out)
        body: dict[str, Any] = {"first": left_out[0][0], "why": left_out[-1][2]}
        if self._clock() >= made.summary_due:
            body["counts"] = dict(made.unsummarized)
            made.unsummarized.clear()
            made.summary_due = self._clock() + _SUMMARY_SECONDS
        self._log_once(f"reports were left out from number {left_out[0][0]} on: {left_out[-1][2]}", left_out[-1][2])
        seq = left_out[-1][0]
        left_out.clear()
        self._add(made, self._own(seq, ReportKind.REPORTS_LEFT_OUT, time.time(), body))

    def _add(self, made: _Batch, report: Report) -> None:
        message = to_json_object(report)
        made.messages.append(message)
        made.size += len(json.dumps(message)) + 2

    def _own(self, seq: int, kind: ReportKind, when: float, body: dict[str, Any]) -> Report:
        return Report(self._key.job, self._key.fence, self._node, seq, kind, when, body)

    def _restart_at(self, place: Place) -> None:
        self._log_once("its file was replaced or changed by something else than its supervisor")
        self._begin = self._scanned = self._sent = place

    def _report(self, line: bytes | None, number: int) -> Report | None:
        """The report on the line with this number; None: the line is no report of this attempt."""
        if line is None:
            return None
        try:
            read = load_object(line)
            kind, when = ReportKind(read["kind"]), read["time"]
            ours = (read["job"], read["fence"], read["node"]) == (self._key.job, self._key.fence, self._node)
        except (KeyError, ValueError):
            return None
        if not ours or kind is ReportKind.REPORTS_LEFT_OUT:
            return None
        fitted = fit(kind, read.get("body", {}))
        for fault in fitted.faults:
            self._log_once(fault)
        if fitted.body is None:
            return None
        return self._own(number, kind, fit_time(when, time.time()), fitted.body)

    def _learn(self, number: int, report: Report | None) -> None:
        facts = self.facts
        facts.last_seq = number
        if report is None or number <= self._before or self.is_plausible(report) is False:
            return
        facts.started = True
        facts.ended = report.kind is ReportKind.ATTEMPT_ENDED
        body = report.body
        match report.kind:
            case ReportKind.ENGINE_STARTED:
                facts.open_engines[body["allocation"]] = body.get("slot") or ""
                if body.get("pid") is not None:
                    facts.pids[body["allocation"]] = body["pid"]
            case ReportKind.ENGINE_GONE:
                facts.open_engines.pop(body["allocation"], None)
                facts.pids.pop(body["allocation"], None)
                facts.gone.add(body["allocation"])
                facts.starved = facts.starved or body.get("oom") is True
            case ReportKind.PROGRESS | ReportKind.CHECKPOINTED | ReportKind.RESIZED:
                facts.step = body.get("step", facts.step)

    def _log_once(self, text: str, about: str = "") -> None:
        """Log each sentence, or each subject ``about``, only once: a job could cause it a million times."""
        if (about or text) not in self._logged:
            self._logged.add(about or text)
            log.error("%s: %s", self.path, text)


def acknowledged_end(spec: AttemptSpec) -> int:
    """Number of the ATTEMPT_ENDED that an earlier supervisor of this attempt wrote here and that the API has; 0: there
    is none.

    If the API still lists such an attempt, the node must start another supervisor for it.
    """
    facts = Spool(Path(spec.spool_dir), Key.of(spec), spec.node).read_all()
    return facts.last_seq if facts.ended and facts.last_seq <= spec.last_report_seq else 0
