"""What a supervisor puts on disk for the agent: its reports, and who it is. Room: runners; files only."""

from __future__ import annotations

import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edt_runner import processes
from edt_runner.contract import Letter, Report, ReportKind, dump_line
from edt_runner.report_bodies import fit
from edt_runner.storage import AppendFile, News, Outage

_log = logging.getLogger(__name__)

REPORTS, ATTEMPT = "reports.jsonl", "attempt.json"
COORDINATOR = "coordinator"
"""File with the address at which the coordinator is now; the attempt's processes look there when their line breaks."""
_DURABLE = frozenset({ReportKind.ENGINE_GONE, ReportKind.ATTEMPT_ENDED, ReportKind.ENGINES_KNOWN})
_GIVEN_UP_FIRST = (ReportKind.PROGRESS, ReportKind.CHECKPOINTED, ReportKind.PULL_FAILED, ReportKind.RESTARTED)
"""What is given up, in this order, where more reports wait than are held; the oldest first, and nothing else ever."""
_MOST_HELD = 10_000
_RESERVED_BYTES = 1 << 16
"""So much of the disk is kept for the reports to come, so that a full one does not silence a supervisor at once."""
_LOOK_AGAIN_SECONDS = 1.0


class Spool:
    """Appends numbered reports. Continues where an earlier supervisor of the same
    attempt and node stopped.

    A report gets its number when it is written. On a full disk reports wait in memory, in order: first those of
    progress are given up, as soon as the room that was kept is being used; what frees slots or ends the attempt never.

    Raises OSError where the folder cannot be written at all.
    """

    def __init__(
        self,
        letter: Letter,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._letter, self._clock, self._monotonic = letter, clock, monotonic
        folder = Path(letter.spool_dir)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / REPORTS
        _cut_torn_line(self._path)
        self.seq = self._path.read_bytes().count(b"\n") if self._path.exists() else 0
        self._file = AppendFile(self._path, 0o600)
        self._file.open()
        if self.seq < letter.heard:  # the disk has lost what the platform was told: those lines are empty
            self._file.append(b"\n" * (letter.heard - self.seq))
            self.seq = letter.heard
        self._held: deque[tuple[ReportKind, float, Mapping[str, Any]]] = deque()
        self._outage = Outage("spool", self._tell, clock=monotonic)
        self._low = False
        """The room that is kept could not be renewed."""
        self._looked = 0.0
        self.given_up = 0
        """Reports that were given up since the disk has been full."""
        self._keep_room()

    @property
    def holds(self) -> bool:
        """Reports wait for room."""
        return bool(self._held)

    def append(self, kind: ReportKind, body: Mapping[str, Any]) -> None:
        """Store one report, its body made to ``fit``, now or when there is room; durably what frees a slot or ends an
        attempt. One that lacks what its kind needs is dropped."""
        fitted = fit(kind, body)
        for fault in fitted.faults:
            _log.warning("a report does not fit: %s", fault)
        if fitted.body is None:
            return
        self._held.append((kind, self._clock(), fitted.body))
        if len(self._held) > 1:
            self._give_up_some()
        if len(self._held) == 1 or not self._outage.under_way:
            self.flush()

    def flush(self) -> bool:
        """Write what waits; whether nothing does any more. To be called again and again."""
        if self._low:
            self._look_for_room()
        while self._held:
            kind, at, body = self._held[0]
            if self._low and kind is ReportKind.PROGRESS:
                self._held.popleft()
                self.given_up += 1
                continue
            letter = self._letter
            report = Report(letter.job, letter.fence, letter.node, self.seq + 1, kind, at, body)
            try:
                self._file.append(dump_line(report.to_message()), durable=kind in _DURABLE)
            except OSError as error:
                self._outage.failed(error)
                return False
            self.seq += 1
            self._held.popleft()
            if not self._low:
                self._keep_room()
        if not self._low:
            self._outage.worked()
        return not self._held or self.flush()  # what has just been told of the outage

    def close(self) -> None:
        """Give the room back that was kept. What still waits is lost."""
        self._file.close()

    def _look_for_room(self) -> None:
        now = self._monotonic()
        if now >= self._looked + _LOOK_AGAIN_SECONDS:
            self._looked = now
            self._keep_room()

    def _keep_room(self) -> None:
        try:
            self._file.reserve(_RESERVED_BYTES)
            self._low = False
        except OSError as error:
            self._low = True
            self._outage.failed(error)

    def _give_up_some(self) -> None:
        if len(self._held) <= _MOST_HELD:
            return
        for kind in _GIVEN_UP_FIRST:
            for place, (held, _, _) in enumerate(self._held):
                if held is kind:
                    del self._held[place]
                    self.given_up += 1
                    return

    def _tell(self, news: News) -> None:
        """The beginning and the end of an outage are reports themselves; the others wait behind or stand before."""
        body = {"place": news.place, "error": news.error, "seconds": round(news.seconds, 1)}
        if not news.error:
            body["given_up"], self.given_up = self.given_up, 0
        self._held.append((ReportKind.STORAGE, self._clock(), body))

    def fileno(self) -> int:
        return self._file.fileno()

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
        try:
            with draft.open("w") as file:
                json.dump(facts, file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(place)
        finally:
            draft.unlink(missing_ok=True)


def note_coordinator(letter: Letter, address: str) -> None:
    """Let this node's driver and engines know where the coordinator is. Raises OSError."""
    place = Path(letter.spool_dir) / COORDINATOR
    draft = place.with_suffix(".tmp")
    try:
        draft.write_text(address)
        draft.replace(place)
    except OSError:
        draft.unlink(missing_ok=True)
        # In place it needs no room. Who reads half an address finds nobody there and reads again.
        with place.open("r+b", buffering=0) as file:
            file.write(address.encode().ljust(os.fstat(file.fileno()).st_size))


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
