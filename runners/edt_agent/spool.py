"""Room: runners, agent. The reports that a supervisor has put on disk: read on from the acknowledged one, and closed.

Touches ``reports.jsonl`` of one spool folder. The supervisor appends to it; the agent reads, and appends only when
the supervisor is gone without its last word. The folder is the job's, and an agent may be root where a job is not: what
is a link or no regular file is not opened.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edt_agent.ledger import Key, sync_folder
from edt_runner.contract import ContractError, ExitKind, Letter, Report, ReportKind, Wish

log = logging.getLogger(__name__)

_CHUNK = 1 << 20
_OF_THE_JOB = 3
"""Last components of the path that the job could have put a link in the place of: ``spool/<fence>-<node>/file``."""
_NOT_OURS = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO})
_NOBODY_SAW = {"code": None, "signal": None, "seconds": None}


@dataclass
class Facts:
    """What the reports read so far say about their supervisor."""

    last_seq: int = 0
    started: bool = False
    ended: bool = False
    step: int | None = None
    open_engines: dict[int, str] = field(default_factory=dict)
    """Allocation to slot, of every engine that started and is not yet gone."""
    gone: set[int] = field(default_factory=set)
    """Allocations whose engine is gone."""
    starved: bool = False
    """An engine was killed for want of memory, and its supervisor was there to tell."""


class Spool:
    """The reports of one supervisor, from disk to the API. Up to number ``before`` they are an earlier one's."""

    def __init__(self, folder: Path, key: Key, node: str, acked: int = 0, before: int = 0) -> None:
        self.path = folder / "reports.jsonl"
        self.facts = Facts()
        self.acked = acked
        self._key, self._node, self._before = key, node, before
        self._scanned = 0  # bytes that the facts know
        self._sent = 0  # bytes of which the API surely has everything

    def scan(self) -> Facts:
        """Read what has been appended since, and answer with all that is known now."""
        for line in self._lines(self._scanned):
            self._scanned += len(line)
            try:
                report = Report.from_message(json.loads(line))
            except (ContractError, ValueError) as error:
                log.error("%s: a line that is no report is passed over: %s", self.path, error)
                continue
            self._learn(report)
        return self.facts

    @property
    def all_acked(self) -> bool:
        """True when the API has every report that is on disk so far."""
        return self.acked >= self.facts.last_seq

    def batch(self, limit: int, *, hold_the_end: bool) -> list[dict[str, Any]]:
        """The next reports to send, in order. ``hold_the_end`` keeps ATTEMPT_ENDED back: not all is seen gone yet."""
        batch: list[dict[str, Any]] = []
        for line in self._lines(self._sent):
            try:
                message = json.loads(line)
            except ValueError:
                message = {}
            if not batch and message.get("seq", 0) <= self.acked:
                self._sent += len(line)
                continue
            if hold_the_end and message.get("kind") == ReportKind.ATTEMPT_ENDED:
                break
            batch.append(message)
            if len(batch) == limit:
                break
        return batch

    def ack(self, seq: int) -> None:
        """The API has everything up to ``seq``. A smaller number than before (its database was restored) rewinds."""
        if seq < self.acked:
            self._sent = 0
        self.acked = seq
        if self.facts.ended and seq > self.facts.last_seq:
            # The disk lost reports that the API has, so the end was written under a number that was taken.
            self.close(ExitKind.LOST, "its last reports were lost with the node", None, None)

    def close(self, kind: ExitKind, message: str, code: int | None, wish: Wish | None, oom: bool = False) -> None:
        """Say what the supervisor no longer can: its engines are gone and the attempt is over.

        Legal only when no process of the attempt is left. ``wish`` names slots whose engines may never have started;
        ``oom``: the supervisor was killed for want of memory.
        """
        facts = self.scan()
        if facts.ended and self.acked <= facts.last_seq:
            return
        self._cut_torn_line()
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
        self._append(
            Report(self._key.job, self._key.fence, self._node, seq, what, time.time(), body)
            for seq, (what, body) in enumerate(closing, start=max(facts.last_seq, self.acked) + 1)
        )
        self.scan()

    def _append(self, reports: Iterable[Report]) -> None:
        text = "".join(json.dumps(report.to_message(), separators=(",", ":")) + "\n" for report in reports)
        self.path.parents[_OF_THE_JOB - 1].mkdir(parents=True, exist_ok=True)
        handle = _opened(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(handle, text.encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        sync_folder(self.path.parent)

    def _cut_torn_line(self) -> None:
        """A machine that lost power in the middle of a line: what was never whole was never said."""
        try:
            handle = _opened(self.path, os.O_WRONLY)
        except FileNotFoundError:
            return
        try:
            if os.fstat(handle).st_size > self._scanned:
                os.truncate(handle, self._scanned)
        finally:
            os.close(handle)

    def _lines(self, offset: int) -> Iterable[bytes]:
        """Whole lines from ``offset`` on; the one being written is not one yet."""
        try:
            with os.fdopen(_opened(self.path, os.O_RDONLY), "rb") as stream:
                stream.seek(offset)
                rest = b""
                while chunk := stream.read(_CHUNK):
                    *whole, rest = (rest + chunk).split(b"\n")
                    for line in whole:
                        yield line + b"\n"
        except FileNotFoundError:
            return

    def _learn(self, report: Report) -> None:
        facts, body = self.facts, report.body
        facts.last_seq = report.seq
        if report.seq <= self._before:
            return
        facts.started = True
        match report.kind:
            case ReportKind.ATTEMPT_STARTED:  # after an end it is another supervisor that speaks
                facts.ended = False
            case ReportKind.ENGINE_STARTED:
                facts.open_engines[int(body["allocation"])] = str(body.get("slot", ""))
            case ReportKind.ENGINE_GONE:
                facts.open_engines.pop(int(body["allocation"]), None)
                facts.gone.add(int(body["allocation"]))
                facts.starved = facts.starved or body.get("oom") is True
            case ReportKind.PROGRESS | ReportKind.CHECKPOINTED | ReportKind.RESIZED:
                facts.step = body.get("step", facts.step)
            case ReportKind.ATTEMPT_ENDED:
                facts.ended = True


def _opened(path: Path, flags: int) -> int:
    """A descriptor of the regular file at ``path``. What else lies there or on the way is put aside where the file may
    be created; else it counts as no file: FileNotFoundError."""
    make = bool(flags & os.O_CREAT)
    folder = os.open(path.parents[_OF_THE_JOB - 1], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    *inner, name = path.parts[-_OF_THE_JOB:]
    try:
        for part in inner:
            deeper = _open_one(part, os.O_RDONLY | os.O_DIRECTORY, folder, stat.S_ISDIR, make)
            os.close(folder)
            folder = deeper
        return _open_one(name, flags, folder, stat.S_ISREG, make)
    finally:
        os.close(folder)


def _open_one(name: str, flags: int, folder: int, is_right: Callable[[int], bool], make: bool) -> int:
    if make:
        with contextlib.suppress(FileNotFoundError):
            if not is_right(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                log.error("%s: what a job put there is put aside", name)
                os.rename(name, f"{name}.{time.time_ns()}", src_dir_fd=folder, dst_dir_fd=folder)
        if flags & os.O_DIRECTORY:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
    try:
        handle = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_OURS:
            raise FileNotFoundError(errno.ENOENT, "it is no file of ours", name) from error
        raise
    if not is_right(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(errno.ENOENT, "it is no file of ours", name)
    return handle


def last_word_heard(letter: Letter) -> int:
    """Number of the last word that an earlier supervisor of this attempt said here and the API has; 0: there is none.

    An attempt that is listed all the same wants another supervisor on this node.
    """
    facts = Spool(Path(letter.spool_dir), Key(letter.job, letter.fence), letter.node).scan()
    return facts.last_seq if facts.ended and facts.last_seq <= letter.heard else 0
