"""The supervisor's life: wishes in, processes started, led out and reaped, reports on disk. Room: runners.

One thread, one selector. What it wants is told by ``Wish``, a level; what happens to the training's membership is
the coordinator's business, to which this only says who is expected, who shall leave and who is gone.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import time
from pathlib import Path
from typing import Any

from edt_runner import exits, processes
from edt_runner.channel import Channel, connect
from edt_runner.context import Context
from edt_runner.contract import ContractError, ExitKind, Letter, ReportKind, SlotWish, Wish
from edt_runner.spool import Spool
from edt_runner.supervisor import children, doors, zygote
from edt_runner.supervisor.children import Child

_log = logging.getLogger(__name__)
_TICK_SECONDS = 0.2
_MOST_GRACE_SECONDS = 600.0
_FIRST_WISH_SECONDS = 60.0
_LAST_WORDS_SECONDS = 5.0
"""What a driver is given to show a failure and end, and engines to go once the attempt is over."""


def live(letter: Letter) -> int:
    """Be the supervisor of ``letter`` until its attempt is over; returns the exit status."""
    os.environ.update(letter.environ)
    processes.adopt_orphans()
    return Supervisor(letter).run()


class Supervisor:
    """Lives for one attempt of one job on one node."""

    def __init__(self, letter: Letter) -> None:
        self._letter = letter
        self._spool = Spool(letter)
        self._selector = selectors.EpollSelector()
        self._clients: list[Channel] = []
        self._engines: dict[int, Child] = {}
        self._driver: Child | None = None
        self._coordinator_pid: int | None = None
        self._coordinator: Channel | None = None
        self._address: str | None = None
        self._wish = Wish(letter.fence, ())
        self._wished = False
        self._started = time.monotonic()
        self._leads = False
        self._over: set[int] = set()
        """Allocations whose engine has ended: an allocation has one life."""
        self._told_to_leave = False
        self._end: tuple[ExitKind, str, int] | None = None
        self._end_by = 0.0
        self._stop_by: float | None = None
        self._doomed_by: float | None = None
        """The script has raised in an engine: the driver shows that, and is given until then."""
        self._trained: dict[str, Any] = {}
        self._step = self._progress_at = 0.0
        self._step_seconds = 0.0
        self._listener = doors.listen(letter.socket)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._wakeup = doors.signal_pipe(self._leave_all)
        self._selector.register(self._wakeup[0], selectors.EVENT_READ, lambda: self._wakeup[0].recv(4096))

    def run(self) -> int:
        """Until the attempt is over here; returns the exit status."""
        self._spool.introduce()
        self._report(ReportKind.ATTEMPT_STARTED, pid=os.getpid())
        while True:
            for key, _ in self._selector.select(_TICK_SECONDS):
                key.data()
            self._reap()
            self._advance(time.monotonic())
            if self._end is not None and self._is_empty(time.monotonic()):
                return self._close()

    # ── wishes ────────────────────────────────────────────────────────────────────────────────────────────────
    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        channel = Channel(sock, write_seconds=1.0)
        self._clients.append(channel)
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._hear(channel))

    def _hear(self, channel: Channel) -> None:
        for message in channel.read():
            if message["kind"] != "wish":
                continue
            try:
                self._take(Wish.from_message(message))
            except ContractError as error:
                channel.send({"kind": "refused", "why": str(error)})
        if channel.closed:
            self._selector.unregister(channel)
            self._clients.remove(channel)
            channel.close()
            if self._letter.driver == "external" and not self._clients:
                self._finish(ExitKind.STOPPED, "the driver is gone", 0)

    def _take(self, wish: Wish) -> None:
        if wish.fence == self._letter.fence and not self._told_to_leave and self._end is None:
            self._wish, self._wished = wish, True
            self._answer_for(wish.leaving)
            if wish.stop and self._stop_by is None:
                self._stop()

    def _answer_for(self, leaving: tuple[int, ...]) -> None:
        """A slot that was given and taken back before an engine was started on it is free at once."""
        for allocation in leaving:
            if allocation not in self._engines and allocation not in self._over:
                self._over.add(allocation)
                self._report(
                    ReportKind.ENGINE_GONE,
                    allocation=allocation,
                    slot="",
                    kind=ExitKind.LEFT.value,
                    code=None,
                    signal=None,
                    seconds=0.0,
                )

    def _leave_all(self) -> None:
        """SIGTERM: leave, and take no further wishes."""
        self._take(Wish(self._letter.fence, (), self._wish.coordinator))
        self._told_to_leave = True

    def _stop(self) -> None:
        self._stop_by = time.monotonic() + self._letter.grace_seconds
        for process in self._children():
            process.signal(signal.SIGTERM)
        self._end = (ExitKind.STOPPED, "stopped by its user", 0)
        self._end_by = self._stop_by

    # ── what there is against what is wished ──────────────────────────────────────────────────────────────────
    def _advance(self, now: float) -> None:
        if self._end is None:
            self._pursue(now)
        elif now >= self._end_by:
            self._kill_all()
        for process in self._engines.values():
            if process.leave_by is not None and now >= process.leave_by:
                _log.warning("engine %s did not leave in time: killed", process.slot and process.slot.allocation)
                process.signal(signal.SIGKILL)
                process.leave_by = now + _LAST_WORDS_SECONDS

    def _pursue(self, now: float) -> None:
        wanted = {slot.allocation: slot for slot in self._wish.slots}
        missing = [
            slot for allocation, slot in wanted.items() if allocation not in self._engines | dict.fromkeys(self._over)
        ]
        if missing and self._connected():
            if self._driver is None and self._leads and self._letter.driver == "fork":
                self._start_driver()
            for slot in missing:  # first those who come: whoever hands over to them shall not be gone by then
                self._start_engine(slot)
        leaving = [number for number, p in self._engines.items() if number not in wanted and p.leave_by is None]
        for allocation in leaving:
            self._engines[allocation].leave_by = now + self._grace()
        if leaving:  # told together, they leave at one switch
            self._say({"kind": "leave", "engines": [str(allocation) for allocation in leaving]})
        if not wanted and not self._engines:
            self._retire(now)

    def _retire(self, now: float) -> None:
        """Nothing is wished and nothing runs here. The leading supervisor asks whether others still train."""
        if not self._wished:  # it has just started; a driver of its own that never speaks has died before it could
            if self._letter.driver == "external" and now >= self._started + _FIRST_WISH_SECONDS:
                self._finish(ExitKind.STOPPED, "its driver never spoke", 0)
            return
        if self._doomed_by is not None and self._driver is not None:
            if now >= self._doomed_by:
                self._finish(ExitKind.SCRIPT_ERROR, "the script failed in an engine; see its log", 1, now=True)
        elif self._leads and self._coordinator is not None:
            self._say({"kind": "idle"})
        else:
            self._finish(ExitKind.LEFT, "all engines of this node have left", 0)

    def _grace(self) -> float:
        return min(_MOST_GRACE_SECONDS, max(self._letter.grace_seconds, 3 * self._step_seconds))

    def _connected(self) -> bool:
        """Whether the coordinator can be talked to; sees to it."""
        if self._coordinator is not None:
            return self._address is not None
        if self._wish.coordinator is None:
            self._start_coordinator()
            return False
        self._address = self._wish.coordinator
        try:
            sock = connect(self._address, role="supervisor", token=self._letter.token, name=self._letter.node)
        except OSError as error:
            self._finish(ExitKind.LOST, f"no coordinator at {self._address}: {error}", 0)
            return False
        self._hold_coordinator(sock)
        return True

    # ── children ──────────────────────────────────────────────────────────────────────────────────────────────
    def _start_coordinator(self) -> None:
        ours, theirs = socket.socketpair()
        letter = self._letter

        def run() -> int:
            from edt_runner.coordinator import Coordinator

            processes.set_name("edt-coordinator")
            coordinator = Coordinator(letter.host, letter.token)
            Channel(theirs).send({"kind": "listening", "address": coordinator.address})
            coordinator.serve(theirs)
            return 0

        self._leads = True
        self._coordinator_pid = zygote.fork(run, keep=[theirs.fileno()], close=[*self._descriptors(), ours.fileno()])
        theirs.close()
        self._hold_coordinator(ours)

    def _hold_coordinator(self, sock: socket.socket) -> None:
        self._coordinator = Channel(sock)
        self._selector.register(self._coordinator, selectors.EVENT_READ, self._hear_coordinator)

    def _start_driver(self) -> None:
        _log.info("driver of %s starts", self._letter.job)
        self._driver = self._start("driver", Context("driver", self._letter, self._address or ""))

    def _start_engine(self, slot: SlotWish) -> None:
        name = str(slot.allocation)
        self._say({"kind": "expect", "engine": name})
        role = Context("engine", self._letter, self._address or "", name, slot.device)
        process = self._start(f"engine-{name}", role)
        process.slot = slot
        self._engines[slot.allocation] = process
        _log.info("engine %s starts on slot %s (pid %d)", name, slot.slot, process.pid)
        self._report(ReportKind.ENGINE_STARTED, allocation=slot.allocation, slot=slot.slot, pid=process.pid)

    def _start(self, stem: str, role: Context) -> Child:
        return children.start(role, stem, self._selector, self._descriptors())

    def _descriptors(self) -> list[int]:
        """What a child must not hold: every conversation of this process."""
        conversations: list[Any] = [self._listener, *self._clients, *self._wakeup, self._coordinator, self._selector]
        own = [item.fileno() for item in conversations if item is not None]
        return own + [descriptor for process in self._children() for descriptor in process.descriptors()]

    def _children(self) -> list[Child]:
        return [*self._engines.values(), *([self._driver] if self._driver else [])]

    # ── what the coordinator says ─────────────────────────────────────────────────────────────────────────────
    def _hear_coordinator(self) -> None:
        assert self._coordinator is not None
        channel = self._coordinator
        for message in channel.read():
            self._obey(message)
        if channel.closed:
            self._selector.unregister(channel)
            channel.close()
            self._coordinator = None
            if self._end is None:
                self._without_coordinator()

    def _obey(self, message: dict[str, Any]) -> None:
        match message["kind"]:
            case "listening":
                self._address = message["address"]
                self._report(ReportKind.COORDINATOR_AT, address=self._address)
            case "report":
                self._forward(ReportKind(message["report"]), message["body"])
            case "pace":
                self._pace(float(message["step"]))
            case "discard":
                process = self._engines.get(int(message["engine"]))
                if process is not None:
                    process.leave_by = time.monotonic()
                    process.signal(signal.SIGKILL)
            case "trained":
                self._trained = {key: message[key] for key in ("digest", "step")}
            case "suspended":
                self._finish(ExitKind.LEFT, "all engines have left; the training goes on from its checkpoint", 0)
            case "lost":
                self._finish(ExitKind.LOST, f"engine {message['engine']} ended unasked", 0, now=True)
            case "failed" if self._letter.driver == "fork":
                self._end_by = time.monotonic() + _LAST_WORDS_SECONDS
                self._end = (ExitKind.SCRIPT_ERROR, message["message"], 1)

    def _forward(self, kind: ReportKind, body: dict[str, Any]) -> None:
        if kind is ReportKind.PROGRESS:
            self._pace(float(body["step"]))
        self._report(kind, **body)

    def _pace(self, step: float) -> None:
        """How long a step takes, from when steps are heard of."""
        now = time.monotonic()
        if self._progress_at and step > self._step:
            self._step_seconds = (now - self._progress_at) / (step - self._step)
        self._step, self._progress_at = step, now

    def _without_coordinator(self) -> None:
        """It ended first. On its own node that is a loss; elsewhere it means that the attempt is over."""
        if self._leads or self._engines:
            self._finish(ExitKind.LOST, "the coordinator is gone", 0, now=True)
        else:
            self._finish(ExitKind.FINISHED, "the attempt is over", 0)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────────────
    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._coordinator_pid:
                self._coordinator_pid = None
            elif self._driver is not None and pid == self._driver.pid:
                self._driver_ended(self._driver, status)
            else:
                for allocation, process in list(self._engines.items()):
                    if process.pid == pid:
                        self._engine_ended(allocation, process, status)

    def _engine_ended(self, allocation: int, process: Child, status: int) -> None:
        now = time.monotonic()
        del self._engines[allocation]
        self._over.add(allocation)
        process.collect(self._selector)
        leaving = process.leave_by is not None or self._end is not None
        code, number = (None, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), None)
        if code is not None:
            kind = exits.exit_kind(code, leaving=leaving)
        elif self._stop_by is not None:
            kind = ExitKind.STOPPED
        else:
            kind = ExitKind.LEFT if leaving else ExitKind.LOST
        _log.info("engine %d is gone: %s (code %s, signal %s)", allocation, kind, code, number)
        if kind is ExitKind.SCRIPT_ERROR:
            self._doomed_by = self._doomed_by or now + self._letter.grace_seconds
        if kind is ExitKind.SCRIPT_ERROR or code == exits.NO_TRAINING:
            words = {"message": f"the script ended with status {code}", "traceback": "", **process.last_words}
            self._say({"kind": "raised", "engine": str(allocation), **words})
        self._say({"kind": "gone", "engine": str(allocation)})
        assert process.slot is not None
        self._report(
            ReportKind.ENGINE_GONE,
            allocation=allocation,
            slot=process.slot.slot,
            kind=kind.value,
            code=code,
            signal=number,
            seconds=round(now - process.started, 3),
        )

    def _driver_ended(self, process: Child, status: int) -> None:
        self._driver = None
        process.collect(self._selector)
        if self._end is not None and self._end[0] is not ExitKind.SCRIPT_ERROR:
            return
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            self._finish(ExitKind.LOST, f"the driver was ended by signal {number}", 128 + number)
        elif (code := os.WEXITSTATUS(status)) == exits.SUSPENDED:
            self._finish(ExitKind.LEFT, "all engines have left; the training goes on from its checkpoint", 0)
        elif code == exits.PEER_LOST:
            self._finish(ExitKind.LOST, "the driver lost the coordinator", code)
        elif code:
            message = process.last_words.get("message") or (self._end or (0, ""))[1]
            self._finish(ExitKind.SCRIPT_ERROR, message or f"the script ended with status {code}", code, now=True)
        else:
            self._finish(ExitKind.FINISHED, "", 0)

    def _finish(self, kind: ExitKind, message: str, code: int, *, now: bool = False) -> None:
        """The attempt is over here; what still runs has a moment to end by itself, or none."""
        self._end = (kind, message, code)
        self._end_by = time.monotonic() + (0.0 if now else _LAST_WORDS_SECONDS)
        if self._driver is not None:
            self._driver.signal(signal.SIGKILL)

    def _is_empty(self, now: float) -> bool:
        if self._children():
            return False
        self._kill_all()  # grandchildren of user code, and the coordinator
        return not processes.descendants(os.getpid())

    def _kill_all(self) -> None:
        for pid in processes.descendants(os.getpid()):
            children.kill(pid)

    def _close(self) -> int:
        assert self._end is not None
        kind, message, code = self._end
        self._report(
            ReportKind.ATTEMPT_ENDED,
            kind=kind.value,
            code=code,
            message=message,
            digest=self._trained.get("digest"),
            step=self._trained.get("step"),
        )
        _log.info("attempt %d of %s is over: %s %s", self._letter.fence, self._letter.job, kind, message)
        for client in self._clients:
            client.close()
        self._listener.close()
        Path(self._letter.socket).unlink(missing_ok=True)
        return 0

    # ── plumbing ──────────────────────────────────────────────────────────────────────────────────────────────
    def _report(self, kind: ReportKind, /, **body: Any) -> None:
        report = self._spool.append(kind, body)
        for client in self._clients:
            client.hint({"kind": "report", "seq": report.seq})  # the report itself is on disk

    def _say(self, message: dict[str, Any]) -> None:
        if self._coordinator is not None:
            self._coordinator.send(message)
