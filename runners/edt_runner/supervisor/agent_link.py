"""The link between a supervisor and its agent: desired states come over a unix socket, reports go into a file.

The agent connects to the socket; in a local training the process of the training connects instead. It sends
``DesiredState`` lines. The supervisor sends an empty line when there are new reports on disk. The reports are
about the supervisor's processes, about the training, and about full disks. The supervisor also writes
``attempt.json``, and for this node's driver and engines a file with the coordinator's address.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from edt_contract import processes
from edt_contract.attempt import ATTEMPT_FILE, AttemptSpec, DesiredState
from edt_contract.durable import AppendFile, News, Outage, PatientLog, reason, write_whole
from edt_contract.encoding import ContractError, dump_line, from_json_object, load_line
from edt_contract.reports import BODIES, REPORTS_FILE, Report, ReportKind, fit
from edt_runner.protocol.channel import LineChannel
from edt_runner.protocol.messages import TrainingReport

_log = logging.getLogger(__name__)

COORDINATOR = "coordinator"
"""Name of the file with the coordinator's address. Driver and engines read it when their connection breaks."""
_DURABLE = frozenset({ReportKind.ENGINE_GONE, ReportKind.ATTEMPT_ENDED, ReportKind.ENGINES_KNOWN})
_GIVEN_UP_FIRST = (
    ReportKind.PROGRESS,
    ReportKind.CHECKPOINTED,
    ReportKind.VALIDATED,
    ReportKind.BEST_KEPT,
    ReportKind.PULL_FAILED,
    ReportKind.RESTARTED,
)
"""When more than ``_MOST_HELD`` reports wait, reports of these kinds are dropped: kinds in this order, and the oldest
report of a kind first. Reports of other kinds are kept."""
_DROPPED_ON_A_FULL_DISK = frozenset({ReportKind.PROGRESS, ReportKind.VALIDATED, ReportKind.BEST_KEPT})
_MOST_HELD = 10_000
_RESERVED_BYTES = 1 << 16
"""Bytes of the disk that are reserved for the next reports, so that the supervisor can still report on a full disk."""
_LOOK_AGAIN_SECONDS = 1.0
_WAIT_SECONDS = 0.5
_CHECKPOINTS, _LOGS = "checkpoints", "logs"
_MOST_PLACES = 8
_MOST_LOGS = 64
"""Most logs of ended processes that wait for room."""


class AgentLink:
    """The listening socket and its connections.

    Args:
        path: path of the socket. Only this process's user can connect to it.
        selector: reads the socket and its connections.
        receive: called with each desired state.
        gone: called when the last connection has ended.
    """

    def __init__(
        self,
        path: str,
        selector: selectors.BaseSelector,
        *,
        receive: Callable[[DesiredState], None],
        gone: Callable[[], None],
    ) -> None:
        self._path, self._selector, self._receive, self._gone = Path(path), selector, receive, gone
        self._connections: list[LineChannel] = []
        self._listener = _listen(self._path)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def notify(self) -> None:
        """Send an empty line on each connection: there are new reports on disk. A connection without room for a byte is
        left out."""
        for connection in self._connections:
            connection.hint(b"\n")

    def close(self) -> None:
        """Close all connections and remove the socket."""
        for connection in self._connections:
            connection.close()
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        connection = LineChannel(sock, write_seconds=1.0)
        self._connections.append(connection)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(connection))

    def _read(self, connection: LineChannel) -> None:
        for line in connection.read_lines():
            try:
                self._receive(from_json_object(DesiredState, load_line(line)))
            except ContractError as error:
                _log.warning("a desired state cannot be read: %s", error)
        if connection.closed:
            self._selector.unregister(connection)
            self._connections.remove(connection)
            connection.close()
            if not self._connections:
                self._gone()


def wakeup_at_signals(leave: Callable[[], None]) -> tuple[socket.socket, socket.socket]:
    """Install signal handlers. SIGTERM and SIGINT call ``leave``.

    Returns:
        A pair of connected sockets. The first one becomes readable at any signal.
    """
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: leave())
    return reader, writer


def _listen(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(8)
    return listener


class Spool:
    """Appends numbered reports to the spool file. An earlier supervisor of the same attempt and node may have written
    reports there; then the numbers continue after its last report.

    A report gets its number when it is written. On a full disk reports wait in memory, in order. Reports of how the
    training goes are dropped first, as soon as the reserved bytes are being used. Reports that free slots or end the
    attempt are never dropped.

    Args:
        spec: the attempt.
        notify: called when there are new reports on disk.
        clock: wall clock in seconds since the epoch, for the time of each report.
        monotonic: monotonic clock in seconds, to measure outages.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(
        self,
        spec: AttemptSpec,
        notify: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec, self._notify, self._clock, self._monotonic = spec, notify, clock, monotonic
        folder = Path(spec.spool_dir)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / REPORTS_FILE
        _cut_torn_line(self._path)
        self.seq = self._path.read_bytes().count(b"\n") if self._path.exists() else 0
        self._file = AppendFile(self._path, 0o600)
        self._file.open()
        if self.seq < spec.last_report_seq:  # the disk has lost reports that the platform has: write empty lines
            self._file.append(b"\n" * (spec.last_report_seq - self.seq))
            self.seq = spec.last_report_seq
        self._held: deque[tuple[ReportKind, float, Mapping[str, Any]]] = deque()
        self._outage = Outage("spool", self._tell, clock=monotonic)
        self._low = False
        """The supervisor could not reserve disk space again; it uses the reserved bytes now."""
        self._looked = 0.0
        self.given_up = 0
        """Number of reports that were dropped since the disk became full."""
        self._keep_room()

    @property
    def holds(self) -> bool:
        """Whether reports wait for room on the disk."""
        return bool(self._held)

    def append(self, kind: ReportKind, body: Mapping[str, Any]) -> None:
        """Write one report now, or when there is room on the disk.

        ``fit`` makes the body fit its kind. A report without a field that its kind needs is dropped. Reports of the
        kinds in ``_DURABLE``, which free a slot or end the attempt, are synced to the disk.
        """
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
        """Write the waiting reports. Call this again and again.

        Returns:
            Whether no report waits any more.
        """
        before = self.seq
        done = self._write()
        if self.seq != before:
            self._notify()
        return done

    def wait_for_room(self, given_up: Callable[[], object]) -> None:
        """Wait until the last reports are written, or until ``given_up`` returns a true value because another attempt
        has replaced this one. While this waits, only SIGKILL ends the process."""
        if self.holds:
            _log.warning("the last reports wait until there is room on the disk of %s", self._spec.spool_dir)
        while self.holds and not given_up():
            time.sleep(_WAIT_SECONDS)
            self.flush()

    def _write(self) -> bool:
        if self._low:
            now = self._monotonic()
            if now >= self._looked + _LOOK_AGAIN_SECONDS:
                self._looked = now
                self._keep_room()
        while self._held:
            kind, at, body = self._held[0]
            if self._low and kind in _DROPPED_ON_A_FULL_DISK:
                self._held.popleft()
                self.given_up += 1
                continue
            spec = self._spec
            report = Report(spec.job, spec.fence, spec.node, self.seq + 1, kind, at, body)
            try:
                self._file.append(dump_line(report), durable=kind in _DURABLE)
            except OSError as error:
                self._outage.failed(error)
                return False
            self.seq += 1
            self._held.popleft()
            if not self._low:
                self._keep_room()
        if not self._low:
            self._outage.worked()
        return not self._held or self._write()  # the outage's end has added a report

    def close(self) -> None:
        """Close the file and free the reserved bytes. Reports that still wait are lost."""
        self._file.close()

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
            for index, (held, _, _) in enumerate(self._held):
                if held is kind:
                    del self._held[index]
                    self.given_up += 1
                    return

    def _tell(self, news: News) -> None:
        """Add a report about the beginning or the end of an outage, in order with the other reports."""
        body = _body(news)
        if not news.error:
            body["given_up"], self.given_up = self.given_up, 0
        self._held.append((ReportKind.STORAGE, self._clock(), body))

    def introduce(self) -> None:
        """Write ``attempt.json``. It has this process's pid and start time, which together identify the process.

        Raises:
            OSError: the disk does not accept the file.
        """
        pid = os.getpid()
        facts = {
            "pid": pid,
            "starttime": processes.start_time(pid),
            "job": self._spec.job,
            "fence": self._spec.fence,
            "node": self._spec.node,
            "socket": self._spec.socket,
        }
        write_whole(self._path.with_name(ATTEMPT_FILE), json.dumps(facts), alone=True)


class Storage:
    """Combines what engines and this process know about places of the job that cannot be written.

    Each engine sees only its own failures. The platform gets one report when an outage begins and one when it ends, no
    matter which process noticed it.

    Args:
        report: called with ``ReportKind.STORAGE`` and its body.
    """

    def __init__(self, report: Callable[[ReportKind, Mapping[str, Any]], None]) -> None:
        self._report = report
        self._outages: dict[str, Outage] = {}
        self._live: list[PatientLog] = []
        self._ended: list[PatientLog] = []
        """Logs of processes that are gone; their last text waits for room on the disk."""

    def look(self, place: str, error: str) -> None:
        """Note that a place could not be written because of ``error``, or, if ``error`` is empty, that it could."""
        place, error = place[:64], error[:400]
        if place not in self._outages and (not error or len(self._outages) >= _MOST_PLACES):
            return
        outage = self._outages.setdefault(place, Outage(place, self._tell))
        if error:
            outage.failed(error)
        else:
            outage.worked()

    def look_at_logs(self, logs: Iterable[PatientLog]) -> None:
        """Note whether the logs of drivers and engines can be written.

        Logs that could not be written are tried again, also logs of processes that are gone. Call this at least once
        between a process's start and its end.

        Args:
            logs: the logs of the living processes.
        """
        live = list(logs)
        still = set(live)
        gone = [*self._ended, *(log for log in self._live if log not in still)]
        failing = [log for log in (*gone, *live) if log.holds and not log.flush()]
        for log in gone:
            log.close()  # ``flush`` may have opened it again
        self._live, self._ended = live, [log for log in gone if log.holds][-_MOST_LOGS:]
        error = next((log.error for log in failing if log.error is not None), None)
        self.look(_LOGS, reason(error) if error is not None else "")

    def _tell(self, news: News) -> None:
        _log.warning("%s", news)
        self._report(ReportKind.STORAGE, _body(news))


def accepted_report(message: TrainingReport, storage: Storage) -> tuple[ReportKind, Mapping[str, Any]] | None:
    """Check a report from the coordinator or an engine before it goes to the platform. Engines run user code, so their
    reports about processes are not accepted.

    Args:
        message: the report.
        storage: takes in reports about full disks; it tells the platform when an outage begins and when it ends.

    Returns:
        Kind and body; None: the report is dropped, or ``storage`` has taken it in.
    """
    try:
        kind = ReportKind(message.report)
    except ValueError:
        kind = ReportKind.REPORTS_LEFT_OUT
    if not BODIES[kind].of_training:
        _log.warning("a report of the training is none that it may make: dropped")
        return None
    body = fit(kind, message.body).body
    if body is None:
        _log.warning("a %s of the training lacks what it needs: dropped", kind)
        return None
    if kind is ReportKind.STORAGE:
        storage.look(str(body.get("place", "")), str(body.get("error") or ""))
        return None
    if kind is ReportKind.CHECKPOINTED:
        storage.look(_CHECKPOINTS, "")
    return kind, body


def _body(news: News) -> dict[str, Any]:
    """The body of a STORAGE report."""
    return {"place": news.place, "error": news.error, "seconds": round(news.seconds, 1)}


def note_coordinator(spec: AttemptSpec, address: str) -> None:
    """Write the coordinator's address into a file for this node's driver and engines.

    Args:
        spec: the attempt.
        address: ``host:port`` of the coordinator.

    Raises:
        OSError: the disk accepts neither a new file nor new contents in the old one.
    """
    path = Path(spec.spool_dir) / COORDINATOR
    try:
        write_whole(path, address, durable=False, alone=True)
    except OSError:
        # Writing over the old contents needs no room. A process that reads half an address cannot connect, and reads
        # the file again.
        with path.open("r+b", buffering=0) as file:
            file.write(address.encode().ljust(os.fstat(file.fileno()).st_size))


def _cut_torn_line(path: Path) -> None:
    """Drop half a line at the end of the file. A supervisor that was killed in the middle of a write left it, and it
    was never sent."""
    if path.exists():
        data = path.read_bytes()
        if not data.endswith(b"\n"):
            os.truncate(path, data.rfind(b"\n") + 1)
