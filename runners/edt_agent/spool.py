"""Room: runners, agent. The reports that a supervisor has put on disk: read on from the acknowledged one, and closed.

Touches ``reports.jsonl`` of one spool folder. The supervisor appends to it; the agent reads, and appends only when
the supervisor is gone without its last word. Under the process launcher the job's own processes can write there too,
and an agent may be root where a job is not. So a report is what its line's place says: the number is the line's, job,
fence and node are those that the agent knows, and the body is what ``report_bodies`` lets through. A line that is no
report, one that ``believes`` refutes, and what comes more often than its kind may, is left out; its number is told all
the same (REPORTS_LEFT_OUT), so nothing waits for it. What is a link or no regular file is not opened.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edt_agent.allowance import Allowance
from edt_agent.ledger import Key, sync_folder
from edt_agent.safe_files import opened
from edt_runner.contract import ContractError, ExitKind, Letter, Report, ReportKind, Wish
from edt_runner.report_bodies import BATCH_BYTES, LINE_BYTES, fit, fit_time
from edt_runner.storage import Outage

log = logging.getLogger(__name__)

_CHUNK = 1 << 20
"""A line that is longer than this is cut off, with all behind it."""
_MOST_LINES = 20_000
"""So many are read at a time, so that one job's spool does not keep the agent from the others'."""
_SUMMARY_SECONDS = 60.0
"""Reports that are left out are told to the job's user so often at most."""
_OF_THE_JOB = 3
"""Last components of the path that the job could have put a link in the place of: ``spool/<fence>-<node>/file``."""
_NOBODY_SAW = {"code": None, "signal": None, "seconds": None}


@dataclass
class Facts:
    """What the reports read so far say about their supervisor."""

    last_seq: int = 0
    started: bool = False
    ended: bool = False
    """Its last word is the last there is. A supervisor that speaks on has not said its last word: somebody else did."""
    step: int | None = None
    open_engines: dict[int, str] = field(default_factory=dict)
    """Allocation to slot, of every engine that started and is not yet gone."""
    gone: set[int] = field(default_factory=set)
    """Allocations whose engine is gone."""
    starved: bool = False
    """An engine was killed for want of memory, and its supervisor was there to tell."""


@dataclass(frozen=True)
class _Place:
    """Between two lines: bytes and lines before it."""

    offset: int = 0
    lines: int = 0


@dataclass
class _Batch:
    """A batch that is being made, and what follows for the next once the API has it."""

    allowance: Allowance
    summary_due: float
    untold: Counter[str]
    messages: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0

    @property
    def last_seq(self) -> int:
        return int(self.messages[-1]["seq"]) if self.messages else 0


class Spool:
    """The reports of one supervisor, from disk to the API. Up to number ``before`` they are an earlier one's.

    Args:
        folder: where they lie.
        key: the attempt.
        node: this node's name.
        acked: number of the last report that the API has.
        before: number of the last report of an earlier supervisor.
        believes: whether what a report says of processes can be so; None: nobody can tell yet, so it waits.
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
        believes: Callable[[Report], bool | None] = lambda report: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = folder / "reports.jsonl"
        self.facts = Facts()
        self.acked = acked
        self.behind = False
        """There is more on disk than has been read."""
        self.believes = believes
        self._key, self._node, self._before, self._clock = key, node, before, clock
        self._inode: int | None = None
        self._begin = _Place()
        self._scanned = self._begin  # what the facts know
        self._sent = self._begin  # of which the API surely has everything
        self._made = self._building = _Batch(Allowance(), 0.0, Counter())
        self._end_due = False
        """The end has to be said again, under a number that is free."""
        self._complained: set[str] = set()
        self._unwritten = b""
        """Reports of this agent's own that the disk has not taken yet. They are sent all the same, as what comes behind
        the file; an agent that follows this one makes them anew."""
        self._outage = Outage(str(self.path), lambda news: log.warning("%s", news))

    def scan(self) -> Facts:
        """Read on for a while, and answer with all that is known now."""
        self.behind = False
        self._write()
        self._heed_what_was_cut()
        for number, (line, after) in enumerate(self._lines(self._scanned)):
            if number == _MOST_LINES:
                self.behind = True
                break
            self._scanned = after
            self._learn(after.lines, self._report(line, after.lines))
        return self.facts

    def read_all(self) -> Facts:
        """Read all there is."""
        facts = self.scan()
        while self.behind:
            facts = self.scan()
        return facts

    def give_up_the_rest(self) -> None:
        """Nobody writes any more, and there is too much to read: what has not been read goes."""
        if self._could_cut(self._scanned):
            self._complain("so much is in it that the rest was cut off")
            self.behind = False

    @property
    def all_acked(self) -> bool:
        """True when the API has every report that is on disk so far."""
        return self.acked >= self.facts.last_seq and not self._end_due

    @property
    def all_written(self) -> bool:
        """False while the disk has not taken what this agent itself had to say."""
        return not self._unwritten

    def batch(self, limit: int, *, hold_the_end: bool) -> list[dict[str, Any]]:
        """The next reports to send, in order. ``hold_the_end`` keeps ATTEMPT_ENDED back: not all is seen gone yet."""
        before = self._made
        made = _Batch(before.allowance.copy(), before.summary_due, before.untold.copy())
        left_out: list[tuple[int, str, str]] = []
        self.scan()
        if self._end_due:
            self._say_the_end_again()
        place = self._sent
        for number, (line, after) in enumerate(self._lines(self._sent)):
            if place == self._scanned:
                break
            place = after
            if after.offset >= self._scanned.offset and after != self._scanned:
                # What lies between is not what it was when it was read: it is read once more, under new numbers.
                self._begin_anew(_Place(self._sent.offset, self._scanned.lines))
                return self.batch(limit, hold_the_end=hold_the_end)
            if after.lines <= self.acked:
                self._sent = after
                continue
            if not made.messages and not left_out:  # numbers that went with what was cut off
                left_out += [(seq, "unreadable", "they could not be read") for seq in (self.acked + 1, after.lines - 1)]
                left_out = left_out if self.acked + 1 < after.lines else []
            full = len(made.messages) >= limit or made.size > BATCH_BYTES - 2 * LINE_BYTES
            if full or number >= _MOST_LINES:
                break
            report = self._report(line, after.lines)
            why = self._why_not(report, made.allowance, hold_the_end=hold_the_end)
            if why is None:
                break
            if why:
                left_out.append((after.lines, report.kind if report is not None else "unreadable", why))
                continue
            self._tell_left_out(made, left_out)
            assert report is not None
            self._add(made, report)
        self._tell_left_out(made, left_out)
        self._building = made
        return made.messages

    def ack(self, seq: int) -> None:
        """The API has everything up to ``seq``. A smaller number than before (its database was restored) rewinds."""
        if seq < self.acked:
            self._sent = self._begin
        elif seq >= self._building.last_seq > 0:
            self._made = self._building
        self.acked = seq
        if self.facts.ended and seq > self.facts.last_seq:
            # The disk lost reports that the API has, so the end was written under a number that was taken.
            self._say_the_end_again()

    def _say_the_end_again(self) -> None:
        """Where the disk does not let it be said, the next batch tries again."""
        self._end_due = True
        try:
            self.close(ExitKind.LOST, "its last reports were lost with the node", None, None)
        except OSError as error:
            self._complain(f"it cannot be cut: {error.strerror}")
        else:
            self._end_due = False

    def close(self, kind: ExitKind, message: str, code: int | None, wish: Wish | None, oom: bool = False) -> None:
        """Say what the supervisor no longer can: its engines are gone and the attempt is over.

        Legal only when no process of the attempt is left. ``wish`` names slots whose engines may never have started;
        ``oom``: the supervisor was killed for want of memory. What a full disk does not take is sent all the same,
        and written when there is room. Raises OSError where what was torn cannot be cut off; then nothing is said yet.
        """
        facts = self.read_all()
        if facts.ended and self.acked <= facts.last_seq:
            return
        self._cut(self._scanned)  # a machine that lost power in the middle of a line: what was never whole was not said
        engines = dict(facts.open_engines)
        if wish is not None:
            engines = dict.fromkeys(wish.leaving, "") | {s.allocation: s.slot for s in wish.slots} | engines
        # What is gone on somebody's word is not lost, also where it never came to run.
        how = kind if kind in {ExitKind.LEFT, ExitKind.STOPPED} else ExitKind.LOST
        closing: list[tuple[ReportKind, dict[str, Any]]] = [
            (ReportKind.ENGINE_GONE, {"allocation": allocation, "slot": slot, "kind": how, **_NOBODY_SAW})
            for allocation, slot in sorted(engines.items())
            if allocation not in facts.gone
        ]
        last = {"kind": kind, "code": code, "message": message, "digest": None, "step": facts.step, "oom": oom}
        closing.append((ReportKind.ATTEMPT_ENDED, last))
        lost = max(0, self.acked - facts.last_seq)  # numbers that the API has and the disk has not are empty lines
        self._append(
            lost,
            [
                Report(self._key.job, self._key.fence, self._node, seq, what, time.time(), fit(what, body).body or {})
                for seq, (what, body) in enumerate(closing, start=facts.last_seq + lost + 1)
            ],
        )
        self.read_all()

    # ── what goes, and what is left out ───────────────────────────────────────────────────────────────────────
    def _why_not(self, report: Report | None, allowance: Allowance, *, hold_the_end: bool) -> str | None:
        """Why a report is left out; "": it is not. None: it waits, and with it all behind it."""
        if report is None:
            return "they could not be read"
        if report.kind is ReportKind.ATTEMPT_ENDED and report.seq > self._before:
            if report.seq < self.facts.last_seq:
                return "the supervisor has spoken on after them"
            if hold_the_end:
                return None
        believed = self.believes(report)
        if not believed:
            return None if believed is None else "what they say is gone still runs"
        if not allowance.take(report.kind, self._clock()):
            return "there were too many of them"
        return ""

    def _tell_left_out(self, made: _Batch, left_out: list[tuple[int, str, str]]) -> None:
        """One report in the place of all these. Its user is told of them now and then, all at once."""
        if not left_out:
            return
        made.untold.update(kind for _, kind, _ in left_out)
        body: dict[str, Any] = {"first": left_out[0][0], "why": left_out[-1][2]}
        if self._clock() >= made.summary_due:
            body["counts"] = dict(made.untold)
            made.untold.clear()
            made.summary_due = self._clock() + _SUMMARY_SECONDS
        self._complain(f"reports were left out from number {left_out[0][0]} on: {left_out[-1][2]}", left_out[-1][2])
        seq = left_out[-1][0]
        left_out.clear()
        self._add(made, self._own(seq, ReportKind.REPORTS_LEFT_OUT, time.time(), body))

    def _add(self, made: _Batch, report: Report) -> None:
        message = report.to_message()
        made.messages.append(message)
        made.size += len(json.dumps(message)) + 2

    def _own(self, seq: int, kind: ReportKind, when: float, body: dict[str, Any]) -> Report:
        return Report(self._key.job, self._key.fence, self._node, seq, kind, when, body)

    def _heed_what_was_cut(self) -> None:
        """Of a file that is shorter than it was, what comes from now on is read, of another one all; numbers go on."""
        try:
            handle = opened(self.path, os.O_RDONLY, _OF_THE_JOB)
        except OSError:
            return
        now = os.fstat(handle)
        os.close(handle)
        another = self._inode not in {None, now.st_ino}
        self._inode = now.st_ino
        if another or now.st_size + len(self._unwritten) < self._scanned.offset:
            self._begin_anew(_Place(0 if another else now.st_size, self._scanned.lines))

    def _begin_anew(self, place: _Place) -> None:
        self._complain("somebody has put another file in its place, or changed it")
        self._begin = self._scanned = self._sent = place

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────
    def _report(self, line: bytes | None, number: int) -> Report | None:
        """The report on a line; None: it is none of this attempt's."""
        if line is None:
            return None
        try:
            told = Report.from_message(json.loads(line))
        except (ContractError, ValueError, TypeError, RecursionError):
            return None
        ours = (told.job, told.fence, told.node) == (self._key.job, self._key.fence, self._node)
        if not ours or told.kind is ReportKind.REPORTS_LEFT_OUT:
            return None
        fitted = fit(told.kind, told.body)
        for fault in fitted.faults:
            self._complain(fault)
        if fitted.body is None:
            return None
        return self._own(number, told.kind, fit_time(told.time, time.time()), fitted.body)

    def _learn(self, number: int, report: Report | None) -> None:
        facts = self.facts
        facts.last_seq = number
        if report is None or number <= self._before or self.believes(report) is False:
            return
        facts.started = True
        facts.ended = report.kind is ReportKind.ATTEMPT_ENDED
        body = report.body
        match report.kind:
            case ReportKind.ENGINE_STARTED:
                facts.open_engines[body["allocation"]] = body.get("slot") or ""
            case ReportKind.ENGINE_GONE:
                facts.open_engines.pop(body["allocation"], None)
                facts.gone.add(body["allocation"])
                facts.starved = facts.starved or body.get("oom") is True
            case ReportKind.PROGRESS | ReportKind.CHECKPOINTED | ReportKind.RESIZED:
                facts.step = body.get("step", facts.step)

    def _lines(self, place: _Place) -> Iterator[tuple[bytes | None, _Place]]:
        """Whole lines from a place on, each with the place behind it; the one being written is not one yet. None: it
        is too long to be a report."""
        size, rest = 0, b""
        try:
            with os.fdopen(opened(self.path, os.O_RDONLY, _OF_THE_JOB), "rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                stream.seek(place.offset)
                while chunk := stream.read(_CHUNK):
                    *whole, rest = (rest + chunk).split(b"\n")
                    for line in whole:
                        place = _Place(place.offset + len(line) + 1, place.lines + 1)
                        yield (line if len(line) < LINE_BYTES else None), place
                    if len(rest) >= _CHUNK:
                        break
        except FileNotFoundError:
            pass  # the supervisor has not come to write any
        except OSError as error:
            self._complain(f"it cannot be read: {error.strerror}")
            return
        if len(rest) >= _CHUNK:
            if self._could_cut(place):
                self._complain("a line without end was cut off")
            return
        for line in self._unwritten[max(0, place.offset - size) :].splitlines():
            place = _Place(place.offset + len(line) + 1, place.lines + 1)
            yield line, place

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────
    def _append(self, empty_lines: int, reports: Iterable[Report]) -> None:
        text = "".join(json.dumps(report.to_message(), separators=(",", ":")) + "\n" for report in reports)
        self._unwritten += b"\n" * empty_lines + text.encode()
        self._write()

    def _write(self) -> None:
        """Append what has not been written, all of it or nothing."""
        if not self._unwritten:
            return
        try:
            self.path.parents[_OF_THE_JOB - 1].mkdir(parents=True, exist_ok=True)
            handle = opened(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _OF_THE_JOB)
            try:
                _append_whole(handle, self._unwritten)
            finally:
                os.close(handle)
            sync_folder(self.path.parent)
        except OSError as error:
            self._outage.failed(error)
        else:
            self._unwritten = b""
            self._outage.worked()

    def _could_cut(self, place: _Place) -> bool:
        """Drop what lies behind a place, where the disk lets it; if not, the next look tries again."""
        try:
            self._cut(place)
        except OSError as error:
            self._complain(f"it cannot be cut: {error.strerror}")
            return False
        return True

    def _cut(self, place: _Place) -> None:
        """Drop what lies behind a place. Raises OSError."""
        try:
            handle = opened(self.path, os.O_WRONLY, _OF_THE_JOB)
        except FileNotFoundError:
            return
        try:
            if os.fstat(handle).st_size > place.offset:
                os.truncate(handle, place.offset)
        finally:
            os.close(handle)

    def _complain(self, text: str, about: str = "") -> None:
        """Each thing once: a job could say it a million times."""
        if (about or text) not in self._complained:
            self._complained.add(about or text)
            log.error("%s: %s", self.path, text)


def _append_whole(handle: int, data: bytes) -> None:
    """Append durably, or raise OSError and leave the file as it was."""
    size, rest = os.fstat(handle).st_size, memoryview(data)
    try:
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, size)
        raise


def last_word_heard(letter: Letter) -> int:
    """Number of the last word that an earlier supervisor of this attempt said here and the API has; 0: there is none.

    An attempt that is listed all the same wants another supervisor on this node.
    """
    facts = Spool(Path(letter.spool_dir), Key(letter.job, letter.fence), letter.node).read_all()
    return facts.last_seq if facts.ended and facts.last_seq <= letter.heard else 0
