"""The supervisor's life: wishes in, processes started, led out and reaped, reports on disk. Room: runners.

One thread, one selector. What it wants is told by ``Wish``, a level; what happens to the training's membership is
the coordinator's business, to which this only says who is expected, who shall leave and who is gone. Engines:
``engines``; the line to the coordinator, and hosting it where this is the attempt's home: ``contact``.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from edt_runner import exits, processes
from edt_runner.channel import Channel
from edt_runner.contract import FENCE_FILE, ContractError, ExitKind, Letter, ReportKind, SlotWish, Wish
from edt_runner.crash_points import CrashPoint, crash_point
from edt_runner.report_bodies import BODIES, fit
from edt_runner.spool import Spool
from edt_runner.storage import CANNOT_WRITE
from edt_runner.supervisor import children, doors, users, zygote
from edt_runner.supervisor.children import Child
from edt_runner.supervisor.contact import Contact
from edt_runner.supervisor.engines import Ended, Engines, gone_body
from edt_runner.supervisor.home import Home, how_it_ended
from edt_runner.supervisor.storage import CHECKPOINTS, Storage
from edt_runner.supervisor.usage import Meter

_log = logging.getLogger(__name__)
_TICK_SECONDS = 0.1
_MOST_GRACE_SECONDS = 600.0
_FIRST_WISH_SECONDS = 60.0
_LAST_WORDS_SECONDS = 5.0
"""What a driver is given to show a failure and end, and engines to go once the attempt is over."""
_FENCE_SECONDS = 1.0
_SHARE_SECONDS = 60.0
_ROOM_SECONDS = 0.5


def live(letter: Letter) -> int:
    """Be the supervisor of ``letter`` until its attempt is over; returns the exit status."""
    os.environ.update(letter.environ)
    processes.adopt_orphans()
    crash_point(CrashPoint.SUPERVISOR_START)
    try:
        supervisor = Supervisor(letter)
    except OSError as error:
        _log.error("%s does not begin, since %s cannot be written: %s", letter.job, letter.spool_dir, error)
        return CANNOT_WRITE
    return supervisor.run()


class Supervisor:
    """Lives for one attempt of one job on one node. Raises OSError where its spool cannot be written: it can begin
    nothing of which it could not tell."""

    def __init__(self, letter: Letter) -> None:
        self._letter = letter
        self._spool = Spool(letter)
        self._hinted = 0
        self._selector = selectors.EpollSelector()
        self._clients: list[Channel] = []
        self._engines = Engines(letter, self._selector, self._descriptors)
        self._contact = Contact(
            letter, self._selector, self._descriptors, self._engines, obey=self._obey, alone=self._without_coordinator
        )
        self._wish = Wish(letter.fence, ())
        self._wished = False
        self._started = time.monotonic()
        self._told_to_leave = False
        self._end: tuple[ExitKind, str, int] | None = None
        self._end_by = 0.0
        self._stop_by: float | None = None
        self._doomed_by: float | None = None
        """The script has raised in an engine: the driver shows that, and is given until then."""
        self._failed_step: int | None = None
        self._oom = False
        self._trained: dict[str, Any] = {}
        self._delivered = False
        """The driver has the trained weights."""
        self._fence_at = 0.0
        self._meter = Meter(letter)
        self._step = self._progress_at = 0.0
        self._step_seconds = 0.0
        self._listener = doors.listen(letter.socket)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._wakeup = doors.signal_pipe(self._leave_all)
        self._selector.register(self._wakeup[0], selectors.EVENT_READ, lambda: self._wakeup[0].recv(4096))
        self._storage = Storage(self._report)
        self._spool.introduce()

    def run(self) -> int:
        """Until the attempt is over here; returns the exit status."""
        self._share_files()  # those of an attempt that was killed
        self._report(ReportKind.ATTEMPT_STARTED, pid=os.getpid())
        while True:
            for key, _ in self._selector.select(_TICK_SECONDS):
                key.data()
            self._reap()
            self._advance(time.monotonic())
            self._storage.look_at_logs(self._children())
            self._write_reports()
            if self._end is not None and self._is_empty():
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
            if allocation not in self._engines and allocation not in self._engines.over:
                self._engines.over.add(allocation)
                never = Ended(SlotWish(allocation, ""), ExitKind.LEFT, None, None, 0.0, False, "", "", None, asked=True)
                self._report(ReportKind.ENGINE_GONE, **gone_body(never))

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
        for allocation in self._engines.watch(now):
            self._contact.say({"kind": "stuck", "engine": str(allocation)})
        if self._contact.home is not None and self._end is None:
            self._contact.home.kill_if_stopped()
        self._meter.look(now, self._engines.by_pid())
        if now >= self._fence_at:
            self._fence_at = now + _FENCE_SECONDS
            self._contact.heed_other_homes()
            self._heed_fence()

    def _pursue(self, now: float) -> None:
        wanted = {slot.allocation: slot for slot in self._wish.slots}
        missing = [
            slot for number, slot in wanted.items() if number not in self._engines and number not in self._engines.over
        ]
        needed = missing or self._contact.home is not None or self._engines
        if needed and self._wished and self._contact.reach(self._wish.coordinator, now):
            self._contact.start_driver(now)
            for slot in missing:  # first those who come: whoever hands over to them shall not be gone by then
                self._start_engine(slot)
        leaving = self._engines.ask_to_leave(set(wanted), now + self._grace())
        if leaving:  # told together, they leave at one switch
            self._contact.say({"kind": "leave", "engines": [str(allocation) for allocation in leaving]})
        if not wanted and not self._engines:
            self._retire(now)

    def _retire(self, now: float) -> None:
        """Nothing is wished and nothing runs here. The home asks whether others still train."""
        if not self._wished:  # it has just started; a driver of its own that never speaks has died before it could
            if self._letter.driver == "external" and now >= self._started + _FIRST_WISH_SECONDS:
                self._finish(ExitKind.STOPPED, "its driver never spoke", 0)
            return
        home = self._contact.home
        if self._doomed_by is not None and home is not None and home.driver is not None:
            if now >= self._doomed_by:
                self._finish(ExitKind.SCRIPT_ERROR, "the script failed in an engine; see its log", 1, now=True)
        elif home is not None and self._wish.coordinator is None:
            self._contact.say({"kind": "idle"})
        else:
            self._finish(ExitKind.LEFT, "all engines of this node have left", 0)

    def _grace(self) -> float:
        return min(_MOST_GRACE_SECONDS, max(self._letter.grace_seconds, 3 * self._step_seconds))

    # ── children ──────────────────────────────────────────────────────────────────────────────────────────────
    def _start_engine(self, slot: SlotWish) -> None:
        name = str(slot.allocation)
        self._contact.say({"kind": "expect", "engine": name})
        pid = self._engines.start(slot, self._contact.address or "")
        crash_point(CrashPoint.SUPERVISOR_FORK)
        _log.info("engine %s starts on slot %s (pid %d)", name, slot.slot, pid)
        self._report(ReportKind.ENGINE_STARTED, allocation=slot.allocation, slot=slot.slot, pid=pid)

    def _descriptors(self) -> list[int]:
        """What a child must not hold: every conversation of this process."""
        conversations: list[Any] = [self._listener, *self._clients, *self._wakeup, self._selector, self._spool]
        own = [item.fileno() for item in conversations]
        engines = [descriptor for process in self._engines.children() for descriptor in process.descriptors()]
        return own + engines + self._contact.descriptors()

    def _children(self) -> list[Child]:
        return [*self._engines.children(), *self._contact.drivers()]

    # ── what the coordinator says ─────────────────────────────────────────────────────────────────────────────
    def _obey(self, message: dict[str, Any]) -> None:
        match message["kind"]:
            case "listening":
                if self._contact.listens():
                    self._report(ReportKind.COORDINATOR_AT, address=self._contact.address)
            case "report":
                self._forward(message)
            case "pace":
                self._pace(float(message["step"]))
            case "discard":
                self._engines.discard(int(message["engine"]))
            case "trained":
                self._trained = {key: message[key] for key in ("digest", "step")}
            case "delivered":
                self._delivered = True
            case "suspended":
                self._finish(ExitKind.LEFT, "all engines have left; the training goes on from its checkpoint", 0)
            case "lost":
                self._finish(ExitKind.LOST, message["why"], 0, now=True)
            case "failed":
                self._failed_step = message["failed_step"]
                if self._letter.driver == "fork":
                    self._end_by = time.monotonic() + _LAST_WORDS_SECONDS
                    self._end = (ExitKind.SCRIPT_ERROR, message["message"], 1)

    def _forward(self, message: dict[str, Any]) -> None:
        """What the training reports. Engines run user code, so of processes they tell nothing."""
        try:
            kind = ReportKind(str(message.get("report")))
        except ValueError:
            kind = ReportKind.REPORTS_LEFT_OUT
        if not BODIES[kind].of_training:
            _log.warning("a report of the training is none that it may make: dropped")
            return
        body = fit(kind, message.get("body")).body
        if body is None:
            _log.warning("a %s of the training lacks what it needs: dropped", kind)
            return
        if kind is ReportKind.PROGRESS:
            self._pace(float(body.get("step") or 0))
            self._doomed_by = None  # whatever raised in an engine, the training goes on
        elif kind is ReportKind.STORAGE:
            self._storage.hear(body)
            return
        elif kind is ReportKind.CHECKPOINTED:
            self._storage.hear({"place": CHECKPOINTS})
        elif kind is ReportKind.ENGINE_JOINED and self._contact.home is not None:
            self._contact.home.recovering = True
        self._report(kind, **body)

    def _pace(self, step: float) -> None:
        """How long a step takes, from when steps are heard of."""
        now = time.monotonic()
        if self._progress_at and step > self._step:
            self._step_seconds = (now - self._progress_at) / (step - self._step)
        self._step, self._progress_at = step, now

    def _without_coordinator(self) -> None:
        """There is none, and none comes. With engines here that is a loss; else it means that the attempt is over."""
        if self._end is not None:
            return
        if self._engines:
            self._finish(ExitKind.LOST, "the coordinator is gone", 0, now=True)
        elif self._engines.finished or not self._engines.over:
            self._finish(ExitKind.FINISHED, "the attempt is over", 0)
        else:
            self._finish(ExitKind.LEFT, "the attempt is over, or goes on without this node", 0)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────────────
    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._contact.catch_up()  # what it said last, and what became of that, comes before its end
            self._ended(pid, status)

    def _ended(self, pid: int, status: int) -> None:
        for home in self._contact.homes():
            if pid == home.coordinator:
                home.coordinator = None
                self._engines.other_ended(status)
                if home is self._contact.home:
                    self._coordinator_ended(home, status)
                return
            if home.driver is not None and pid == home.driver.pid:
                process, home.driver = home.driver, None
                process.collect(self._selector)
                self._engines.other_ended(status)
                if home is self._contact.home:
                    self._driver_ended(home, process, status)
                return
        ended = self._engines.bury(pid, status, ending=self._end is not None, stopped=self._stop_by is not None)
        if ended is not None:
            self._engine_ended(ended)
        else:
            self._engines.other_ended(status)

    def _engine_ended(self, ended: Ended) -> None:
        crash_point(CrashPoint.SUPERVISOR_REAP)
        name = str(ended.slot.allocation)
        _log.info("engine %s is gone: %s (%s)", name, ended.kind, ended.how)
        self._oom = self._oom or ended.oom
        if ended.kind is ExitKind.SCRIPT_ERROR:
            self._doomed_by = self._doomed_by or time.monotonic() + self._grace()
        if ended.kind is ExitKind.SCRIPT_ERROR or ended.code == exits.NO_TRAINING:
            words = {"message": ended.message, "traceback": ended.traceback}
            self._contact.say({"kind": "raised", "engine": name, **words})
        self._contact.say({"kind": "gone", "engine": name, "micro_batch": ended.micro_batch, "how": ended.how})
        self._report(ReportKind.ENGINE_GONE, **gone_body(ended))

    def _coordinator_ended(self, home: Home, status: int) -> None:
        home.coordinator_restarts.died(time.monotonic())
        if self._end is None:
            _log.warning("the coordinator ended (%s); another one starts", how_it_ended(status))
            self._tell_restart("coordinator", status, home.coordinator_restarts.count)

    def _driver_ended(self, home: Home, process: Child, status: int) -> None:
        code = None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        unasked = code in (None, exits.PEER_LOST, exits.TERMINATED)  # nothing of this is its script's
        if self._end is not None and (self._end[0] is not ExitKind.SCRIPT_ERROR or unasked):
            return
        if self._end is None and not self._delivered and unasked:
            home.driver_restarts.died(time.monotonic())
            _log.warning("the driver ended (%s); another one starts", how_it_ended(status))
            self._tell_restart("driver", status, home.driver_restarts.count)
        elif unasked:
            self._finish(ExitKind.LOST, f"the driver ended ({how_it_ended(status)})", 0)
        elif code == exits.SUSPENDED:
            self._finish(ExitKind.LEFT, "all engines have left; the training goes on from its checkpoint", 0)
        elif code:
            message = process.last_words.get("message") or (self._end or (0, ""))[1]
            self._finish(ExitKind.SCRIPT_ERROR, message or f"the script ended with status {code}", code, now=True)
        else:
            self._finish(ExitKind.FINISHED, "", 0)

    def _tell_restart(self, what: str, status: int, count: int) -> None:
        self._report(ReportKind.RESTARTED, what=what, why=how_it_ended(status), count=count)

    def _heed_fence(self) -> None:
        """The platform has given this attempt up, and told so where messages may not have reached us. Where it has
        taken the job's folder away meanwhile, that says as much."""
        if self._end is not None:
            return
        with suppress(OSError):  # storage that does not answer says nothing
            if not Path(self._letter.spool_dir).exists():
                self._finish(ExitKind.LOST, f"{self._letter.spool_dir} is gone", 0, now=True)
                return
        if lowest := self._shut_out():
            self._finish(ExitKind.LOST, f"attempt {self._letter.fence} is shut out by fence {lowest}", 0, now=True)

    def _shut_out(self) -> int:
        """The fence by which this attempt is shut out; 0: it is not."""
        try:
            with users.as_script():
                lowest = int((Path(self._letter.checkpoint_dir) / FENCE_FILE).read_text())
        except (OSError, ValueError):
            return 0
        return lowest if lowest > self._letter.fence else 0

    def _finish(self, kind: ExitKind, message: str, code: int, *, now: bool = False) -> None:
        """The attempt is over here; what still runs has a moment to end by itself, or none."""
        if self._stop_by is None:  # else its user has said how it ends, and engines that leave on that word do not
            self._end = (kind, message, code)
        self._end_by = time.monotonic() + (0.0 if now else _LAST_WORDS_SECONDS)
        home = self._contact.home
        if home is not None and home.driver is not None:
            home.driver.signal(signal.SIGKILL)

    def _is_empty(self) -> bool:
        if self._children():
            return False
        self._kill_all()  # grandchildren of user code, and the coordinator
        return not processes.descendants(os.getpid())

    def _kill_all(self) -> None:
        for pid in processes.descendants(os.getpid()):
            children.kill(pid)

    def _close(self) -> int:
        assert self._end is not None
        crash_point(CrashPoint.SUPERVISOR_END)
        kind, message, code = self._end
        self._share_files()
        self._report(
            ReportKind.ATTEMPT_ENDED,
            kind=kind.value,
            code=code,
            message=message,
            digest=self._trained.get("digest"),
            step=self._trained.get("step"),
            whole=self._contact.home is not None,
            failed_step=self._failed_step if kind is ExitKind.SCRIPT_ERROR else None,
            oom=self._oom and kind is ExitKind.LOST,
        )
        _log.info("attempt %d of %s is over: %s %s", self._letter.fence, self._letter.job, kind, message)
        self._wait_for_room()
        for client in self._clients:
            client.close()
        self._listener.close()
        self._spool.close()
        Path(self._letter.socket).unlink(missing_ok=True)
        return 0

    def _share_files(self) -> None:
        """The platform reads and deletes what the script's user has written."""
        if not users.separate():
            return
        letter = self._letter
        folders = (letter.result_dir, letter.work_dir, letter.log_dir, letter.checkpoint_dir)

        def run() -> int:
            users.share(folders)
            return 0

        pid = zygote.fork(run, keep=[], close=self._descriptors())
        until = time.monotonic() + _SHARE_SECONDS
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > until:
                children.kill(pid)
            time.sleep(0.02)

    def _wait_for_room(self) -> None:
        """Nothing is left to do but to write the last reports, so that is tried until there is room, or until another
        attempt has taken this one's place. Whoever wants this process gone before kills it."""
        if self._spool.holds:
            _log.warning("the last reports wait until there is room on the disk of %s", self._letter.spool_dir)
        while self._spool.holds and not self._shut_out():
            time.sleep(_ROOM_SECONDS)
            self._write_reports()

    # ── plumbing ──────────────────────────────────────────────────────────────────────────────────────────────
    def _report(self, kind: ReportKind, /, **body: Any) -> None:
        self._spool.append(kind, body)
        self._hint()

    def _write_reports(self) -> None:
        """Those that wait for room."""
        self._spool.flush()
        self._hint()

    def _hint(self) -> None:
        """Say that there is something new on disk."""
        if self._spool.seq == self._hinted:
            return
        self._hinted = self._spool.seq
        for client in self._clients:
            client.hint({"kind": "report", "seq": self._hinted})
