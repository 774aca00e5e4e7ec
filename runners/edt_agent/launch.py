"""Room: runners, agent. How a supervisor comes to be, warm or cold, and gets its letter.

Starts processes, writes the ledger, makes spool folders. One unassigned supervisor is kept warm: it has imported its
framework and waits for a line on its standard input. If the agent dies, that line never comes and it goes too.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import logging
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edt_agent.children import Child, Children
from edt_agent.decide import backoff_seconds
from edt_agent.errors import StartFailed
from edt_agent.ledger import ATTEMPT_FILE, Entry, Key, Ledger
from edt_agent.processes import alive, kill
from edt_agent.settings import LIFE_VARIABLE, NODE_VARIABLE, AgentSettings, make_private
from edt_runner.contract import TAG_VARIABLE, Letter

log = logging.getLogger(__name__)

WARM_FRAMEWORK = "pytorch"
COLD_PREFIXES = (
    *("OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "MALLOC_", "LD_", "PYTHON"),
    *("TORCH_", "PYTORCH_", "TF_", "CUDA_", "NCCL_", "GLOO_"),
)
"""Variables that Python, a framework or its libraries read once, when they are loaded: too late in a warm process."""

_REPLACE_SECONDS = 1.0
"""A new warm supervisor is started this long after one was handed out, so as not to compete with its first steps."""


@dataclass
class Unassigned:
    """A supervisor that has not got its letter."""

    child: Child
    life: str
    pipe: int
    output: Path


class Launcher:
    """Starts supervisors. ``keep_warm`` runs beside; ``start`` hands out the warm one or a cold one."""

    def __init__(self, settings: AgentSettings, children: Children, ledger: Ledger, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._children = children
        self._ledger = ledger
        self._environ = _clean(environ)
        self._warm: Unassigned | None = None
        self._taken = asyncio.Event()
        self._logs = settings.state_dir / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        self._sockets = make_private(settings.runtime_dir)

    async def start(self, letter: Letter, before: int = 0) -> tuple[Entry, Child]:
        """Start the supervisor of an attempt. When this returns, the letter is in its hands and the ledger knows it.

        ``before``: the last report of an earlier supervisor of it here. Raises StartFailed; then nothing of it runs,
        and nothing is known of it.
        """
        supervisor = self._take(letter) or self._spawn(letter.framework, cold=True)
        try:
            return await self._hand_over(supervisor, letter, before), supervisor.child
        except OSError as error:
            self._ledger.remove(Key(letter.job, letter.fence))
            raise StartFailed(f"the letter did not reach its supervisor: {error.strerror or error}") from error
        finally:
            if supervisor.pipe >= 0:
                os.close(supervisor.pipe)  # without a letter it exits at once
                supervisor.pipe = -1

    async def keep_warm(self) -> None:
        """Keep one unassigned supervisor, for ever. One that dies by itself is replaced with growing pauses."""
        failed = 0
        while True:
            try:
                warm = self._warm = self._spawn(WARM_FRAMEWORK, cold=False)
            except StartFailed as error:
                failed += 1
                log.warning("no warm supervisor: %s", error)
                await asyncio.sleep(backoff_seconds(failed))
                continue
            warm.child.on_exit.append(self._taken.set)
            while self._warm is warm and warm.child.status is None:
                self._taken.clear()
                await self._taken.wait()
            if self._warm is None:
                failed = 0
                await asyncio.sleep(_REPLACE_SECONDS)
            else:
                failed += 1
                log.warning("the warm supervisor ended by itself with %s: %s", warm.child.status, _tail(warm))
                self.let_go()
                await asyncio.sleep(backoff_seconds(failed))

    def let_go(self) -> None:
        """Give up the warm one, which nobody knows yet. When this returns it is gone."""
        warm, self._warm = self._warm, None
        if warm is None:
            return
        os.close(warm.pipe)  # without a letter it would exit by itself, but not before it has imported all
        kill([warm.child.id])
        with contextlib.suppress(ChildProcessError):
            os.waitpid(warm.child.id.pid, 0)
        warm.output.unlink(missing_ok=True)

    def lives(self) -> frozenset[str]:
        """EDT_LIFE of what this launcher keeps."""
        return frozenset({self._warm.life} if self._warm is not None else ())

    def _take(self, letter: Letter) -> Unassigned | None:
        warm = self._warm
        if warm is None or letter.framework != WARM_FRAMEWORK or must_be_cold(letter.environ, self._environ):
            return None
        self._warm = None
        self._taken.set()
        if alive(warm.child.id):
            return warm
        os.close(warm.pipe)
        return None

    def _spawn(self, framework: str, *, cold: bool) -> Unassigned:
        life = uuid.uuid4().hex
        output = self._logs / f"supervisor-{life[:12]}.log"
        command = [*self._settings.supervisor, "--framework", framework, *(["--cold"] if cold else [])]
        environ = {**self._environ, TAG_VARIABLE: self._settings.tag, LIFE_VARIABLE: life}
        environ[NODE_VARIABLE] = self._settings.name
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            # As much as may be written without waiting for a reader who is busy importing.
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
            log_file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
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
        letter = self._prepared(letter)
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
        _bring(supervisor.output, Path(letter.spool_dir) / "supervisor.log")
        await asyncio.to_thread(_write_all, supervisor.pipe, letter.to_json().encode() + b"\n")
        return entry

    def _prepared(self, letter: Letter) -> Letter:
        """The letter with a spool folder that exists and holds no earlier one's name, and a socket's path that is free.

        The agent chooses the socket's place itself: the path must be short, and a file system that several nodes
        share may not hold sockets.
        """
        Path(letter.spool_dir).mkdir(parents=True, exist_ok=True)
        Path(letter.spool_dir, ATTEMPT_FILE).unlink(missing_ok=True)
        socket = self._sockets / f"{letter.job}.{letter.fence}.sock"
        socket.unlink(missing_ok=True)
        return dataclasses.replace(letter, socket=str(socket))


def must_be_cold(wanted: Mapping[str, str], given: Mapping[str, str]) -> bool:
    """Whether a job wants otherwise what a framework reads when it is loaded; ``given`` is what a warm one has."""
    return any(name.startswith(COLD_PREFIXES) and given.get(name) != value for name, value in wanted.items())


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    """What a supervisor inherits: nothing of ours, since user code sees it; then what a zygote needs to stay one."""
    kept = {name: value for name, value in environ.items() if not name.startswith("EDT_")}
    return kept | {"OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "x"}


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


def _tail(supervisor: Unassigned) -> str:
    try:
        lines = supervisor.output.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it said nothing"
