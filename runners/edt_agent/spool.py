"""Room: runners, agent. The reports that a supervisor has put on disk: read on from the acknowledged one, and closed.

Touches ``reports.jsonl`` of one spool folder. The supervisor appends to it; the agent reads, and appends only when
the supervisor is gone without its last word.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edt_agent.ledger import Key, sync_folder
from edt_runner.contract import ContractError, ExitKind, Letter, Report, ReportKind, Wish

log = logging.getLogger(__name__)

_CHUNK = 1 << 20
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

    def close(self, kind: ExitKind, message: str, code: int | None, wish: Wish | None) -> None:
        """Say what the supervisor no longer can: its engines are gone and the attempt is over.

        Legal only when no process of the attempt is left. ``wish`` names slots whose engines may never have started.
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
        last = {"kind": kind, "code": code, "message": message, "digest": None, "step": facts.step}
        closing.append((ReportKind.ATTEMPT_ENDED, last))
        self._append(
            Report(self._key.job, self._key.fence, self._node, seq, what, time.time(), body)
            for seq, (what, body) in enumerate(closing, start=max(facts.last_seq, self.acked) + 1)
        )
        self.scan()

    def _append(self, reports: Iterable[Report]) -> None:
        text = "".join(json.dumps(report.to_message(), separators=(",", ":")) + "\n" for report in reports)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            os.write(handle, text.encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        sync_folder(self.path.parent)

    def _cut_torn_line(self) -> None:
        """A machine that lost power in the middle of a line: what was never whole was never said."""
        if self.path.exists() and self.path.stat().st_size > self._scanned:
            os.truncate(self.path, self._scanned)

    def _lines(self, offset: int) -> Iterable[bytes]:
        """Whole lines from ``offset`` on; the one being written is not one yet."""
        try:
            with self.path.open("rb") as stream:
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
            case ReportKind.PROGRESS | ReportKind.CHECKPOINTED | ReportKind.RESIZED:
                facts.step = body.get("step", facts.step)
            case ReportKind.ATTEMPT_ENDED:
                facts.ended = True


def last_word_heard(letter: Letter) -> int:
    """Number of the last word that an earlier supervisor of this attempt said here and the API has; 0: there is none.

    An attempt that is listed all the same wants another supervisor on this node.
    """
    facts = Spool(Path(letter.spool_dir), Key(letter.job, letter.fence), letter.node).scan()
    return facts.last_seq if facts.ended and facts.last_seq <= letter.heard else 0
