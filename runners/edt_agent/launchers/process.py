"""The launcher that runs supervisors as processes of this machine. It sends each spec to a warm supervisor if one fits,
else to a new one."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib.util
import os
import signal
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from edt_agent import compiled
from edt_agent.errors import BadSetting, StartFailed
from edt_agent.launchers import Handle, ImageAbsent, prepare
from edt_agent.launchers.warm import FrameworkKind, UnassignedSupervisor, WarmSupervisors
from edt_agent.processes import Child, Children, Process, ProcessId, alive, bearers, environment, kill, look
from edt_agent.settings import LIFE_VARIABLE, NODE_VARIABLE, AgentSettings, make_private
from edt_agent.spool import acknowledged_end
from edt_agent.supervisor_records import Key, SupervisorRecord, SupervisorRecords, from_attempt_file
from edt_contract.attempt import AttemptSpec, DesiredState
from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.durable import write_all
from edt_contract.encoding import dumps
from edt_contract.frameworks import FRAMEWORKS, must_be_cold
from edt_contract.oom import OomCounter
from edt_contract.processes import TAG_VARIABLE

_SWEEP_SECONDS = 10.0
_SWEEP_AGAIN_SECONDS = 0.02
_OOM_SECONDS = 1.0
"""Seconds between two looks at how many processes the kernel has killed because memory ran out."""


class ProcessLauncher:
    """Starts a supervisor as a process, or uses a warm supervisor, which has imported its framework already.

    Raises:
        BadSetting: the folder for sockets cannot be made.
    """

    def __init__(
        self, settings: AgentSettings, children: Children, records: SupervisorRecords, environ: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._children = children
        self._records = records
        self._environ = _clean(environ)
        self._warm = WarmSupervisors(lambda kind: self._spawn(kind, cold=False), settings.warm)
        self._oom = OomCounter()
        self._starting: set[str] = set()
        """EDT_LIFE of the supervisors that get their specs now, of which the agent has no record yet."""
        self._logs = settings.state_dir / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        make_private(settings.sockets)  # if this raises BadSetting, the agent does not start

    async def start(self, spec: AttemptSpec, desired: DesiredState, before: int = 0) -> ProcessHandle:
        if spec.image:
            raise StartFailed(f"it asks for the image {spec.image}, and this node starts processes")
        if spec.gang is None and (package := _missing_package(spec.framework)):  # a gang may bring its own Python
            raise StartFailed(
                f"its framework is not on node {spec.node}, whose Python has no {package}:"
                f" install openedt[{package}] there"
            )
        supervisor = self._take(spec) or self._spawn(FrameworkKind.of(spec), cold=True)
        self._starting.add(supervisor.life)
        try:
            record = await self._hand_over(supervisor, spec, before)
            return ProcessHandle(record, self._settings.tag, supervisor.child, self._oom)
        except OSError as error:
            self._records.remove(Key.of(spec))
            raise StartFailed(f"the spec did not reach its supervisor: {error.strerror or error}") from error
        finally:
            self._starting.discard(supervisor.life)
            if supervisor.pipe >= 0:
                os.close(supervisor.pipe)  # a supervisor without a spec exits when its input ends
                supervisor.pipe = -1

    def adopt(self, record: SupervisorRecord) -> ProcessHandle:
        if record.container:
            raise BadSetting(
                f"EDT_LAUNCHER: process, but {record.key} runs in a container of this node;"
                " start the agent with EDT_LAUNCHER=docker until it is over"
            )
        return ProcessHandle(record, self._settings.tag, oom=self._oom)

    async def find(self, spec: AttemptSpec) -> SupervisorRecord | None:
        """Search in the spool folder. A supervisor of an elastic job that has ended, and whose last report the API has,
        is not adopted: another one is wanted."""
        known = from_attempt_file(spec)
        if known is not None and spec.gang is None and acknowledged_end(spec) and not alive(known.process):
            return None
        return known

    async def sweep(self, known: Callable[[], Collection[SupervisorRecord]]) -> int:
        """Kill until nothing is left, because a process may start others while it is killed. A process that the kernel
        does not end is waited for only ``_SWEEP_SECONDS``."""
        until = time.monotonic() + _SWEEP_SECONDS
        ended: set[ProcessId] = set()
        while (strays := self._strays(known())) and time.monotonic() < until:
            kill(strays)
            ended |= strays
            await asyncio.sleep(_SWEEP_AGAIN_SECONDS)
        return len(ended)

    def _strays(self, known: Collection[SupervisorRecord]) -> set[ProcessId]:
        lives = {record.life for record in known if record.life} | self._warm.lives | self._starting
        sessions = {record.pid for record in known}
        marks = {TAG_VARIABLE: self._settings.tag, NODE_VARIABLE: self._settings.name}
        return {
            process.id
            for process in bearers(marks)
            if process.session not in sessions and environment(process.id.pid).get(LIFE_VARIABLE) not in lives
        }

    async def ensure_image(self, image: str) -> ImageAbsent | None:
        return ImageAbsent("this node starts no containers (EDT_LAUNCHER)", for_good=True)

    async def run(self, busy: asyncio.Event) -> None:
        """Count kills for want of memory, and keep warm supervisors. The latter begins after the API's first answer,
        because an API that starts on this machine at the same time needs the cores first."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._count_kills())
            await busy.wait()
            group.create_task(self._warm.run())

    def close(self) -> None:
        self._warm.discard()

    async def _count_kills(self) -> None:
        while True:
            self._oom.look(time.monotonic())
            await asyncio.sleep(_OOM_SECONDS)

    def _sockets(self) -> Path:
        """Make the folder for sockets again if the agent before this one has removed it; returns the folder."""
        try:
            return make_private(self._settings.sockets)
        except BadSetting as error:
            raise StartFailed(str(error)) from error

    def _take(self, spec: AttemptSpec) -> UnassignedSupervisor | None:
        """A warm supervisor that fits the job; None: there is none. A gang gets none, because a supervisor that has
        imported no framework starts in a moment."""
        if spec.gang is not None:
            return None
        kind = FrameworkKind.of(spec)
        self._warm.expect(kind)
        return None if must_be_cold(spec.environ, self._environ | kind.environ) else self._warm.take(kind)

    def _spawn(self, kind: FrameworkKind, *, cold: bool) -> UnassignedSupervisor:
        life = uuid.uuid4().hex
        output = self._logs / f"supervisor-{life[:12]}.log"
        command = [*self._settings.supervisor, "--framework", kind.framework, *(["--cold"] if cold else [])]
        marks = {TAG_VARIABLE: self._settings.tag, LIFE_VARIABLE: life, NODE_VARIABLE: self._settings.name}
        environ = self._environ | kind.environ | marks
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            # The pipe is so large that writing a spec does not wait while the supervisor is still importing.
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
            log_file = _log_file(output)
            try:
                child = self._children.start(command, environ, stdin=reading, output=log_file)
            finally:
                os.close(log_file)
        except StartFailed:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        return UnassignedSupervisor(child, life, writing, output)

    async def _hand_over(self, supervisor: UnassignedSupervisor, spec: AttemptSpec, before: int) -> SupervisorRecord:
        """Make the folder, write the record, and send the spec. The order matters, because the agent may die between
        these steps."""
        spec = prepare(spec, self._sockets() / f"{spec.job}.{spec.fence}.sock")
        spec, _ = await asyncio.to_thread(compiled.with_folder, spec, self._settings.compiled)
        process = supervisor.child.id
        record = SupervisorRecord.of(
            spec,
            spec.socket,
            pid=process.pid,
            starttime=process.starttime,
            life=supervisor.life,
            acked=before,
            before=before,
        )
        self._records.write(record)
        crash_point(CrashPoint.AGENT_SPEC)
        _move_output(supervisor.output, Path(spec.spool_dir) / "supervisor.log")
        await asyncio.to_thread(write_all, supervisor.pipe, dumps(spec).encode() + b"\n")
        return record


def _missing_package(framework: str) -> str | None:
    """The package that a framework needs and this Python lacks; None: nothing is missing. The package is not
    imported."""
    known = FRAMEWORKS.get(framework)
    return known.package if known is not None and importlib.util.find_spec(known.package) is None else None


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that a supervisor inherits. User code sees it, so it has no EDT_* variables."""
    return {name: value for name, value in environ.items() if not name.startswith("EDT_")}


def _log_file(path: Path) -> int:
    """Open a log for appending.

    Raises:
        StartFailed: the log cannot be opened.
    """
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StartFailed(f"{path} cannot be written: {error.strerror}") from error


def _move_output(output: Path, target: Path) -> None:
    """Move a supervisor's output into its spool folder. If the folder is on another disk, make a link there."""
    try:
        output.replace(target)
    except OSError:
        target.unlink(missing_ok=True)
        target.symlink_to(output)


class ProcessHandle(Handle):
    """The handle of a supervisor that is a process of this machine.

    Args:
        record: the supervisor's record.
        tag: value of EDT_TAG in the processes of this home.
        child: the supervisor's process, if this agent started it.
        oom: counts the processes that the kernel kills because memory runs out; None: they are not counted.
    """

    def __init__(
        self, record: SupervisorRecord, tag: str, child: Child | None = None, oom: OomCounter | None = None
    ) -> None:
        super().__init__(record)
        self._tag, self._child, self._oom_counter = tag, child, oom
        self._killed = self._oom = False
        self._pidfd = self._open_pidfd()
        if child is not None:
            child.on_exit.append(self._on_gone)

    @property
    def lives(self) -> bool:
        """Whether the recorded process runs and has this home's tag. A child of this agent counts as running until it
        is reaped, because its exit status is not known before."""
        if self._child is not None:
            return self._child.status is None
        return self._pidfd is not None and alive(self.record.process)

    @property
    def code(self) -> int | None:
        return self._child.status if self._child is not None else None

    @property
    def oom(self) -> bool:
        """Whether the supervisor got SIGKILL, not from this agent, while the kernel killed for want of memory. The exit
        status of an adopted supervisor is not known, so any end of it at that moment counts."""
        return self._oom

    def empty(self) -> bool:
        return not self.lives and not self._processes()

    def child(self, pid: int) -> ProcessId | None:
        process = look(pid)
        is_one = process is not None and process.alive and process.parent == self.record.pid
        return process.id if process is not None and is_one and self.lives else None

    def kill(self) -> None:
        """Send SIGKILL to the supervisor and all its processes. If a process starts during this call, the next call
        finds it."""
        self._killed = self._killed or self.lives
        kill(process.id for process in self._processes())

    def drop(self) -> None:
        super().drop()
        self._close_pidfd()

    async def remove(self) -> None:
        self.drop()
        if self.record.socket:  # a supervisor that was killed has not removed its socket
            with contextlib.suppress(OSError):
                Path(self.record.socket).unlink()  # noqa: ASYNC240 - on this machine's own disk

    def _processes(self) -> list[Process]:
        """The supervisor and all its descendants, also those that have moved to another session."""
        record = self.record
        found = bearers({TAG_VARIABLE: self._tag})
        if record.life:
            return [process for process in found if environment(process.id.pid).get(LIFE_VARIABLE) == record.life]
        # A record without EDT_LIFE comes from the spool (from_attempt_file), and its supervisor is gone. ``sweep`` has
        # ended what it left in other sessions. The rest is found by its session, unless another process has the
        # supervisor's pid now.
        if any(process.id.pid == record.pid and process.id != record.process for process in found):
            return []
        return [process for process in found if process.session == record.pid]

    def _open_pidfd(self) -> int | None:
        process: ProcessId = self.record.process
        try:
            handle = os.pidfd_open(process.pid)
        except OSError:
            return None
        # This check comes after opening, because an open pidfd cannot come to mean another process.
        if not alive(process) or not self._is_ours(environment(process.pid)):
            os.close(handle)
            return None
        asyncio.get_running_loop().add_reader(handle, self._on_gone)
        return handle

    def _is_ours(self, environ: Mapping[str, str]) -> bool:
        """Whether a process with this environment can be the recorded one. On another machine, to which the node has
        moved, another process may have the same pid and start time."""
        life = self.record.life
        return environ.get(TAG_VARIABLE) == self._tag and (
            self._child is not None or not life or environ.get(LIFE_VARIABLE) == life
        )

    def _on_gone(self) -> None:
        self._close_pidfd()
        ended = self._child is None or self._child.status is not None
        if ended and not self._killed and self.code in {None, -signal.SIGKILL} and self._oom_counter is not None:
            self._oom = self._oom or self._oom_counter.explains(time.monotonic())
        self._changed()

    def _close_pidfd(self) -> None:
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
