"""Room: runners, agent. Supervisors as processes: how one comes to be, warm or cold, and gets its letter.

Starts processes, writes the ledger, makes spool folders. Next: ``warm.py`` for those that wait for a letter.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
import uuid
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from edt_agent.children import Children
from edt_agent.errors import BadSetting, StartFailed
from edt_agent.launcher import NotHere, Started, key_of, prepared
from edt_agent.ledger import Entry, Ledger, from_attempt_file
from edt_agent.process_handle import ProcessHandle
from edt_agent.processes import alive, bearers, environment, kill
from edt_agent.settings import LIFE_VARIABLE, NODE_VARIABLE, AgentSettings, make_private
from edt_agent.spool import last_word_heard
from edt_agent.warm import Kind, Unassigned, WarmSupervisors
from edt_runner.contract import TAG_VARIABLE, Letter, Wish
from edt_runner.crash_points import CrashPoint, crash_point
from edt_runner.environment import must_be_cold

_PACKAGES = {"pytorch": "torch", "tensorflow": "tensorflow"}
"""What a framework is imported from; openedt's extra has the same name."""


class ProcessLauncher:
    """See ``Launcher``. ``start`` hands out a warm supervisor or a cold one."""

    def __init__(self, settings: AgentSettings, children: Children, ledger: Ledger, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._children = children
        self._ledger = ledger
        self._environ = _clean(environ)
        self._warm = WarmSupervisors(lambda kind: self._spawn(kind, cold=False), settings.warm)
        self._logs = settings.state_dir / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        make_private(settings.sockets)  # or no agent starts here

    async def start(self, letter: Letter, wish: Wish, before: int = 0) -> Started:
        if letter.image:
            raise StartFailed(f"it asks for the image {letter.image}, and this node starts processes")
        if package := _missing(letter.framework):
            raise StartFailed(
                f"its framework is not on node {letter.node}, whose Python has no {package}:"
                f" install openedt[{package}] there"
            )
        supervisor = self._take(letter) or self._spawn(Kind.of(letter), cold=True)
        try:
            entry = await self._hand_over(supervisor, letter, before)
            return Started(entry, ProcessHandle(entry, self._settings.tag, supervisor.child))
        except OSError as error:
            self._ledger.remove(key_of(letter))
            raise StartFailed(f"the letter did not reach its supervisor: {error.strerror or error}") from error
        finally:
            if supervisor.pipe >= 0:
                os.close(supervisor.pipe)  # without a letter it exits at once
                supervisor.pipe = -1

    def adopt(self, entry: Entry) -> ProcessHandle:
        if entry.container:
            raise BadSetting(
                f"EDT_LAUNCHER: process, but {entry.key} runs in a container of this node;"
                " start the agent with EDT_LAUNCHER=docker until it is over"
            )
        return ProcessHandle(entry, self._settings.tag)

    async def find(self, letter: Letter) -> Entry | None:
        """What only its spool knows: one whose last word the API has heard is no longer there to be adopted."""
        known = from_attempt_file(letter)
        if known is None or (last_word_heard(letter) and not alive(known.process)):
            return None
        return known

    async def sweep(self, known: Callable[[], Collection[Entry]]) -> int:
        entries = known()
        lives = {entry.life for entry in entries} | self._warm.lives
        sessions = {entry.pid for entry in entries}
        marks = {TAG_VARIABLE: self._settings.tag, NODE_VARIABLE: self._settings.name}
        strays = [
            process
            for process in bearers(marks)
            if process.session not in sessions and environment(process.id.pid).get(LIFE_VARIABLE) not in lives
        ]
        kill(process.id for process in strays)
        return len(strays)

    async def fetch(self, image: str) -> NotHere | None:
        """See ``Launcher``."""
        return NotHere("this node starts no containers (EDT_LAUNCHER)", for_good=True)

    async def go_on(self, busy: asyncio.Event) -> None:
        """From the first answer on: before it, the API that starts beside this needs the processor more."""
        await busy.wait()
        await self._warm.keep()

    def close(self) -> None:
        self._warm.let_go()

    def _sockets(self) -> Path:
        """The folder for sockets, as it is now: the agent before this one took it along when it went."""
        try:
            return make_private(self._settings.sockets)
        except BadSetting as error:
            raise StartFailed(str(error)) from error

    def _take(self, letter: Letter) -> Unassigned | None:
        """The warm one, where there is one that fits."""
        kind = Kind.of(letter)
        self._warm.wanted(kind)
        return None if must_be_cold(letter.environ, self._environ | kind.environ) else self._warm.take(kind)

    def _spawn(self, kind: Kind, *, cold: bool) -> Unassigned:
        life = uuid.uuid4().hex
        output = self._logs / f"supervisor-{life[:12]}.log"
        command = [*self._settings.supervisor, "--framework", kind.framework, *(["--cold"] if cold else [])]
        marks = {TAG_VARIABLE: self._settings.tag, LIFE_VARIABLE: life, NODE_VARIABLE: self._settings.name}
        environ = self._environ | kind.environ | marks
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            # As much as may be written without waiting for a reader who is busy importing.
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
        return Unassigned(child, life, writing, output)

    async def _hand_over(self, supervisor: Unassigned, letter: Letter, before: int) -> Entry:
        """Folder, ledger, letter, in this order: the agent may die between any two of them."""
        letter = prepared(letter, self._sockets() / f"{letter.job}.{letter.fence}.sock")
        entry = Entry(
            job=letter.job,
            fence=letter.fence,
            node=letter.node,
            spool_dir=letter.spool_dir,
            socket=letter.socket,
            grace_seconds=letter.grace_seconds,
            pid=supervisor.child.id.pid,
            starttime=supervisor.child.id.starttime,
            life=supervisor.life,
            acked=before,
            before=before,
        )
        self._ledger.write(entry)
        crash_point(CrashPoint.AGENT_LETTER)
        _bring(supervisor.output, Path(letter.spool_dir) / "supervisor.log")
        await asyncio.to_thread(_write_all, supervisor.pipe, letter.to_json().encode() + b"\n")
        return entry


def _missing(framework: str) -> str | None:
    """The package that a framework needs and this Python lacks. It is not imported; one of tomorrow is not judged."""
    package = _PACKAGES.get(framework)
    return package if package is not None and importlib.util.find_spec(package) is None else None


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    """What a supervisor inherits: nothing of ours, since user code sees it."""
    return {name: value for name, value in environ.items() if not name.startswith("EDT_")}


def _log_file(path: Path) -> int:
    """Raises StartFailed."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StartFailed(f"{path} cannot be written: {error.strerror}") from error


def _bring(output: Path, target: Path) -> None:
    """Put a supervisor's output where its other papers lie; the open file goes along unless the disk is another."""
    try:
        output.replace(target)
    except OSError:
        target.unlink(missing_ok=True)
        target.symlink_to(output)


def _write_all(pipe: int, data: bytes) -> None:
    while data:
        data = data[os.write(pipe, data) :]
