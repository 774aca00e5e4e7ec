"""What a supervisor puts on disk for the agent: its reports, and who it is. Room: runners; files only."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edt_runner import processes
from edt_runner.contract import Letter, Report, ReportKind, dump_line
from edt_runner.report_bodies import fit

_log = logging.getLogger(__name__)

REPORTS, ATTEMPT = "reports.jsonl", "attempt.json"
COORDINATOR = "coordinator"
"""File with the address at which the coordinator is now; the attempt's processes look there when their line breaks."""
_DURABLE = (ReportKind.ENGINE_GONE, ReportKind.ATTEMPT_ENDED, ReportKind.ENGINES_KNOWN)


class Spool:
    """Appends numbered reports; a number is the report's line. Continues where an earlier supervisor of the same
    attempt and node stopped."""

    def __init__(self, letter: Letter, *, clock: Callable[[], float] = time.time) -> None:
        self._letter, self._clock = letter, clock
        folder = Path(letter.spool_dir)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / REPORTS
        _cut_torn_line(self._path)
        self.seq = self._path.read_bytes().count(b"\n") if self._path.exists() else 0
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if self.seq < letter.heard:  # the disk has lost what the platform was told: those lines are empty
            os.write(self._file, b"\n" * (letter.heard - self.seq))
            self.seq = letter.heard

    def append(self, kind: ReportKind, body: Mapping[str, Any]) -> Report | None:
        """Store one report, its body made to ``fit``; those that free a slot or end an attempt are on disk when this
        returns. None: it lacks what its kind needs, and is dropped."""
        fitted = fit(kind, body)
        for fault in fitted.faults:
            _log.warning("a report does not fit: %s", fault)
        if fitted.body is None:
            return None
        self.seq += 1
        letter = self._letter
        report = Report(letter.job, letter.fence, letter.node, self.seq, kind, self._clock(), fitted.body)
        os.write(self._file, dump_line(report.to_message()))
        if kind in _DURABLE:
            os.fsync(self._file)
        return report

    def fileno(self) -> int:
        return self._file

    def introduce(self) -> None:
        """Write ``attempt.json``: with pid and start time another process can know this one for certain."""
        pid = os.getpid()
        facts = {
            "pid": pid,
            "starttime": processes.start_time(pid),
            "job": self._letter.job,
            "fence": self._letter.fence,
            "node": self._letter.node,
            "socket": self._letter.socket,
        }
        place = self._path.with_name(ATTEMPT)
        draft = place.with_suffix(".tmp")
        with draft.open("w") as file:
            json.dump(facts, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)


def note_coordinator(letter: Letter, address: str) -> None:
    """Let this node's driver and engines know where the coordinator is."""
    place = Path(letter.spool_dir) / COORDINATOR
    draft = place.with_suffix(".tmp")
    draft.write_text(address)
    draft.replace(place)


class SpoolReader:
    """Follows a spool: every whole line once, in order."""

    def __init__(self, spool_dir: str | Path, *, after: int = 0) -> None:
        self._path = Path(spool_dir) / REPORTS
        self._after, self._offset, self._seen = after, 0, 0

    def read(self) -> list[Report]:
        """Reports that have come since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        reports = [Report.from_message(json.loads(line)) for line in whole.splitlines() if line]
        return [report for report in reports if report.seq > self._after]


def _cut_torn_line(path: Path) -> None:
    """A supervisor that was killed in the middle of a write leaves half a line: it was never sent, so drop it."""
    if path.exists():
        data = path.read_bytes()
        if not data.endswith(b"\n"):
            os.truncate(path, data.rfind(b"\n") + 1)
