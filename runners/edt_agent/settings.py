"""Room: runners, agent. What an agent is told at its start, from arguments and environment. Touches nothing."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from edt_agent import docker_settings
from edt_agent.docker_settings import DockerSettings
from edt_agent.errors import BadSetting
from edt_runner.contract import TAG_VARIABLE

NODE_VARIABLE = "EDT_NODE"
"""Environment variable that marks every process that this node's agent started."""
LIFE_VARIABLE = "EDT_LIFE"
"""Environment variable with a random name that one supervisor and all its descendants bear, from their birth on. A
warm supervisor is started before anybody knows for which attempt; this is how its processes are told apart."""

_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ROOT_BYTES = 48
"""Longest EDT_RUNTIME_DIR: a socket's path may have 107 bytes, and 50 are ours and an exec id's."""
_FRAMEWORKS = ("pytorch", "tensorflow")
_DEFAULT_API = "http://127.0.0.1:9280"


@dataclass(frozen=True)
class AgentSettings:
    """All that an agent is told. ``from_environment`` reads it; tests build it by hand."""

    api: str
    """URL of the API, without a path."""
    home: Path
    """EDT_HOME: the agent keeps its own notes in ``agent/<name>`` below it."""
    name: str
    """The node's name: part of a queue's name and of folder names."""
    token_file: Path
    """File that holds the join token."""
    host: str
    """Address at which the other nodes of a job reach this one."""
    tag: str
    """Value of EDT_TAG on every process of this home."""
    tick_seconds: float = 2.0
    """With a broker: how often the agent asks without having been rung."""
    poll_seconds: float = 5.0
    """Without a broker: how long the API may hold a question open until something changes."""
    usage_seconds: float = 15.0
    """How often it is told how busy the slots are."""
    cpu_slots: int | None = None
    """CPU stand-ins for GPUs; None: one a core."""
    devices: str = "auto"
    """``auto``: GPUs where NVML shows some, else CPU stand-ins. ``cpu``: CPU stand-ins."""
    broker_url: str | None = None
    """Overrides the broker that the API names at registration."""
    warm: tuple[str, ...] = ("pytorch",)
    """Frameworks for which an unassigned supervisor is kept ready from the beginning; those whose jobs come are added,
    unless none is kept at all."""
    supervisor: tuple[str, ...] = field(default=(sys.executable, "-P", "-m", "edt_runner.supervisor"))
    """The command that is a supervisor. -P: the agent's own working directory is no place to import from."""

    docker: DockerSettings | None = None
    """EDT_LAUNCHER=docker: a container for each job; None: processes of this machine."""
    alive_file: Path | None = None
    """EDT_ALIVE_FILE: touched whenever the API has answered, for a health check to look at."""
    runtime_root: Path | None = None
    """EDT_RUNTIME_DIR: where sockets lie. An agent that is itself in a container shares this folder, under the same
    path, with the containers it starts."""

    @property
    def launcher(self) -> str:
        """In what this node runs jobs, as the platform names it."""
        if self.docker is None:
            return "process"
        return "docker-fixed" if self.docker.fixed_gpus else "docker"

    @property
    def state_dir(self) -> Path:
        """The agent's own notes."""
        return self.home / "agent" / self.name

    @property
    def runtime_dir(self) -> Path:
        """Where sockets lie: a short path (a socket's may have 107 bytes), on this machine, for this user only."""
        base = os.environ.get("XDG_RUNTIME_DIR")
        root = self.runtime_root or (Path(base) if base and Path(base).is_dir() else Path(tempfile.gettempdir()))
        short = hashlib.sha256(f"{self.tag}/{self.name}".encode()).hexdigest()[:12]
        return root / f"edt-{os.getuid()}-{short}"


def from_environment(given: Mapping[str, str | None], environ: Mapping[str, str]) -> AgentSettings:
    """Settings from arguments (``given``, None where an argument is missing), then EDT_* variables, then defaults."""

    def value(name: str, fallback: str = "") -> str:
        return given.get(name) or environ.get(f"EDT_{name.upper()}") or fallback

    home = Path(value("home") or _default_home(environ)).expanduser().absolute()
    api = value("api", _DEFAULT_API).rstrip("/")
    if urlsplit(api).scheme not in {"http", "https"}:
        raise BadSetting(f"--api: {api!r} is no URL; it begins with http:// or https://")
    name = value("name") or _host_name()
    if not _NODE_NAME.fullmatch(name):
        raise BadSetting(f"--name: {name!r} is no node name; letters, digits, '.', '_' and '-', at most 63")
    devices = value("devices", "auto")
    if devices not in {"auto", "cpu"}:
        raise BadSetting(f"EDT_DEVICES: {devices!r}; it is auto or cpu")
    launcher = environ.get("EDT_LAUNCHER") or "process"
    if launcher not in {"process", "docker"}:
        raise BadSetting(f"EDT_LAUNCHER: {launcher!r}; it is process or docker")
    runtime = environ.get("EDT_RUNTIME_DIR")
    if runtime and len(os.fsencode(runtime)) > _ROOT_BYTES:
        raise BadSetting(f"EDT_RUNTIME_DIR: {runtime!r} is too long for sockets below it; at most {_ROOT_BYTES} bytes")
    return AgentSettings(
        api=api,
        home=home,
        name=name,
        token_file=Path(value("token_file") or home / "join-token").expanduser(),
        host=value("agent_host") or _own_address(api),
        tag=environ.get(TAG_VARIABLE) or home_tag(home),
        tick_seconds=_number("EDT_AGENT_TICK_SECONDS", environ, 2.0),
        poll_seconds=_number("EDT_AGENT_POLL_SECONDS", environ, 5.0),
        usage_seconds=_number("EDT_USAGE_SECONDS", environ, 15.0),
        cpu_slots=_count("EDT_CPU_SLOTS", environ),
        devices=devices,
        broker_url=environ.get("EDT_BROKER_URL") or None,
        warm=_warm(environ),
        docker=docker_settings.from_environment(environ, home) if launcher == "docker" else None,
        alive_file=Path(alive).absolute() if (alive := environ.get("EDT_ALIVE_FILE")) else None,
        runtime_root=Path(runtime).absolute() if runtime else None,
    )


def home_tag(home: Path) -> str:
    """The mark of a home: the same for every path that leads to it."""
    return hashlib.sha256(os.path.realpath(home).encode()).hexdigest()[:16]


def make_private(folder: Path) -> Path:
    """The folder, made where it is missing, and for nobody else. Refuses one that another user put there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise BadSetting(f"{folder} belongs to somebody else; remove it or set XDG_RUNTIME_DIR")
    folder.chmod(0o700)
    return folder


def _default_home(environ: Mapping[str, str]) -> str:
    return str(Path(environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "edt")


def _host_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:63].strip("-.") or "node"


def _own_address(api: str) -> str:
    """The address of this machine on the way to the API. A datagram socket that is connected sends nothing."""
    where = urlsplit(api)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((where.hostname or "127.0.0.1", where.port or 80))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def _warm(environ: Mapping[str, str]) -> tuple[str, ...]:
    """EDT_WARM: 1 (PyTorch's), 0 (none), or frameworks with commas between."""
    text = environ.get("EDT_WARM") or "1"
    if text in {"0", "false", "no"}:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if unknown := set(names) - set(_FRAMEWORKS) - {"1"}:
        raise BadSetting(f"EDT_WARM: {sorted(unknown)[0]!r}; it is 0, 1 or of {', '.join(_FRAMEWORKS)}")
    return tuple(dict.fromkeys("pytorch" if name == "1" else name for name in names))


def _number(variable: str, environ: Mapping[str, str], default: float) -> float:
    text = environ.get(variable)
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < 3600:
        raise BadSetting(f"{variable}: {text!r}; it is a number of seconds above 0")
    return number


def _count(variable: str, environ: Mapping[str, str]) -> int | None:
    text = environ.get(variable)
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise BadSetting(f"{variable}: {text!r}; it is a whole number from 1 to 1024")
    return int(text)
