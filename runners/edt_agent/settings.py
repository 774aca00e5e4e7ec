"""Room: runners, agent. What an agent is told at its start: by arguments, else by EDT_* variables, else by defaults.

Reads the environment when the settings are made; creates nothing but a folder that ``make_private`` is asked for.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from edt_agent.complaints import complaint, takes
from edt_agent.docker_settings import NETWORKS_OF_ONE_NODE, DockerSettings
from edt_agent.errors import BadSetting

NODE_VARIABLE = "EDT_NODE"
"""Environment variable that marks every process that this node's agent started."""
LIFE_VARIABLE = "EDT_LIFE"
"""Environment variable with a random name that one supervisor and all its descendants bear, from their birth on. A
warm supervisor is started before anybody knows for which attempt; this is how its processes are told apart."""

_LOOPBACK = "127.0.0.1"
_ROOT_BYTES = 48
"""Longest EDT_RUNTIME_DIR: a socket's path may have 107 bytes, and 50 are ours and an exec id's."""


def _default_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser().absolute() / "edt"


def _host_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:63].strip("-.") or "node"


def _own_address(api: str) -> str:
    """The address of this machine on the way to the API. A datagram socket that is connected sends nothing."""
    where = urlsplit(api)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((where.hostname or _LOOPBACK, where.port or 80))
            return str(probe.getsockname()[0])
    except OSError:
        return _LOOPBACK


def _short(path: Path) -> Path:
    if len(os.fsencode(path)) > _ROOT_BYTES:
        raise ValueError(path)
    return path


def _url(given: str) -> str:
    if urlsplit(given).scheme not in {"http", "https"}:
        raise ValueError(given)
    return given.rstrip("/")


def _frameworks(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    if given in {"0", "false", "no"}:
        return ()
    names = (name.strip() for name in given.split(","))
    return tuple(dict.fromkeys("pytorch" if name == "1" else name for name in names))


Place = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]
Seconds = Annotated[float, Field(gt=0, lt=3600), takes("a number of seconds above 0")]
Framework = Annotated[Literal["pytorch", "tensorflow"], takes("0, 1 or of pytorch, tensorflow")]


class AgentSettings(BaseSettings):
    """All that an agent is told. Each name is the environment's without EDT_, in small letters; an empty variable
    counts as one that is not set."""

    # The nested delimiter splits once: EDT_DOCKER_SCRIPT_USER is ``docker.script_user``.
    model_config = SettingsConfigDict(
        env_prefix="EDT_",
        env_ignore_empty=True,
        env_nested_delimiter="_",
        env_nested_max_split=1,
        frozen=True,
        extra="ignore",
    )

    supervisor: ClassVar[tuple[str, ...]] = (sys.executable, "-P", "-m", "edt_runner.supervisor")
    """The command that is a supervisor. -P: the agent's own working directory is no place to import from."""

    api: Annotated[str, AfterValidator(_url), takes("a URL that begins with http:// or https://")] = (
        "http://127.0.0.1:9280"
    )
    """URL of the API, without a path."""
    home: Place = Field(default_factory=_default_home)
    """The agent keeps its own notes in ``agent/<name>`` below it."""
    name: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"),
        takes("a node's name: letters, digits, '.', '_' and '-', at most 63"),
    ] = Field(default_factory=_host_name)
    """The node's name: part of a queue's name and of folder names. Default: the machine's."""
    token_file: Place = Field(default_factory=lambda told: told["home"] / "join-token")
    """File that holds the join token."""
    agent_host: str = Field(default_factory=lambda told: _own_address(told["api"]))
    """Address at which the other nodes of a job reach this one."""
    tag: str = Field(default_factory=lambda told: home_tag(told["home"]))
    """Value of EDT_TAG on every process of this home."""
    agent_tick_seconds: Seconds = 2.0
    """With a broker: how often the agent asks without having been rung."""
    agent_poll_seconds: Seconds = 5.0
    """Without a broker: how long the API may hold a question open until something changes."""
    usage_seconds: Seconds = 15.0
    """How often the API is told how busy the slots are."""
    cpu_slots: Annotated[int, Field(ge=1, le=1024), takes("a whole number from 1 to 1024")] | None = None
    """CPU stand-ins for GPUs; None: one a core."""
    devices: Literal["auto", "cpu"] = "auto"
    """``auto``: GPUs where NVML shows some, else CPU stand-ins. ``cpu``: CPU stand-ins."""
    broker_url: str | None = None
    """Overrides the broker that the API names at registration."""
    warm: Annotated[tuple[Framework, ...], NoDecode, BeforeValidator(_frameworks)] = ("pytorch",)
    """Frameworks for which an unassigned supervisor is kept ready from the beginning (1: PyTorch's, 0: none); those
    whose jobs come are added, unless none is kept at all."""
    alive_file: Place | None = None
    """Touched whenever the API has answered, for a health check to look at."""
    runtime_dir: (
        Annotated[Place, AfterValidator(_short), takes(f"a path of at most {_ROOT_BYTES} bytes, for sockets lie below")]
        | None
    ) = None
    """Where the folder of sockets lies. An agent that is itself in a container shares this folder, under the same
    path, with the containers it starts."""
    data_fs: Place = Field(default_factory=lambda told: told["home"] / "data")
    """The data file system, which every container may read."""
    launcher: Literal["process", "docker"] = "process"
    """Processes of this machine, or a container for each job."""
    docker: DockerSettings | None = Field(default=None, validate_default=True)
    """EDT_DOCKER_*. None, and not looked at, with another launcher."""

    @field_validator("docker", mode="wrap")
    @classmethod
    def _where_asked_for(
        cls, given: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> DockerSettings | None:
        if info.data.get("launcher") != "docker":
            return None
        if given is None or isinstance(given, dict):
            given = {**(given or {}), "data": info.data.get("data_fs")}
        elif not isinstance(given, DockerSettings):  # EDT_DOCKER itself
            raise PydanticCustomError("none", "no setting; those of containers have longer names, as EDT_DOCKER_PULL")
        settings: DockerSettings = handler(given)
        return settings

    @property
    def runs_in(self) -> str:
        """In what this node runs jobs, as the platform names it."""
        return "docker-fixed" if self.docker and self.docker.gpus == "fixed" else self.launcher

    @property
    def alone(self) -> bool:
        """Whether engines of other nodes cannot reach those of this one: its containers have a network of their own."""
        return self.docker is not None and self.docker.network in NETWORKS_OF_ONE_NODE

    @property
    def reached_at(self) -> str:
        """The address at which engines that train with those of this node reach them."""
        return _LOOPBACK if self.alone else self.agent_host

    @property
    def state_dir(self) -> Path:
        """The agent's own notes."""
        return self.home / "agent" / self.name

    @property
    def sockets(self) -> Path:
        """Where sockets lie: a short path (a socket's may have 107 bytes), on this machine, for this user only."""
        base = os.environ.get("XDG_RUNTIME_DIR")
        root = self.runtime_dir or (Path(base) if base and Path(base).is_dir() else Path(tempfile.gettempdir()))
        short = hashlib.sha256(f"{self.tag}/{self.name}".encode()).hexdigest()[:12]
        return root / f"edt-{os.getuid()}-{short}"


def read(arguments: Mapping[str, str | None]) -> AgentSettings:
    """Settings from arguments by their settings' names, None or empty where one is missing, then the environment, then
    defaults. Raises BadSetting, which names the argument or the variable, what it got and what it takes."""
    given: dict[str, Any] = {name: value for name, value in arguments.items() if value}
    try:
        return AgentSettings(**given)
    except ValidationError as error:
        raise BadSetting(complaint(error, given)) from None


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
