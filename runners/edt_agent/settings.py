"""The settings of the agent. A value comes from the command line, else from an EDT_* variable, else from a default."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import stat
import sys
import tempfile
from collections.abc import Collection, Mapping
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

from edt_agent.docker_settings import NETWORKS_OF_ONE_NODE, DockerSettings, needs
from edt_agent.errors import BadSetting
from edt_contract.frameworks import FRAMEWORKS

NODE_VARIABLE = "EDT_NODE"
"""Environment variable with the node's name, in every process that this node's agent has started."""
LIFE_VARIABLE = "EDT_LIFE"
"""Environment variable with a random value for each supervisor and its descendants. It shows to which supervisor a
process belongs, also for a warm supervisor, which has no attempt yet."""

_LOOPBACK = "127.0.0.1"
_ROOT_BYTES = 48
"""Most bytes of EDT_RUNTIME_DIR: a socket's path may have 107 bytes, and the rest of the path needs up to 59."""


def _default_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser().absolute() / "edt"


def _host_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:63].strip("-.") or "node"


def _own_address(api: str) -> str:
    """The address of this machine on its route to the API. Connecting a datagram socket sends nothing."""
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


def _known_framework(name: str) -> str:
    if name not in FRAMEWORKS:
        raise ValueError(name)
    return name


Place = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]
Seconds = Annotated[float, Field(gt=0, lt=3600), needs("a number of seconds above 0")]
Span = Annotated[float, Field(ge=0, lt=float("inf")), needs("a number of seconds from 0")]
Idle = Annotated[float, Field(gt=0, lt=float("inf")), needs("a number of seconds above 0")]
Epoch = Annotated[
    float, Field(ge=1e9, lt=1e11), needs("a time in seconds since 1970, such as 1900000000: the time itself, no span")
]
Framework = Annotated[str, AfterValidator(_known_framework), needs(f"0, 1 or of {', '.join(FRAMEWORKS)}")]


class AgentSettings(BaseSettings):
    """The settings of one agent. Each field has the name of a variable in lower case, without EDT_. An empty variable
    counts as not set."""

    # The nested delimiter splits a name only once: EDT_DOCKER_SCRIPT_USER is ``docker.script_user``.
    model_config = SettingsConfigDict(
        env_prefix="EDT_",
        env_ignore_empty=True,
        env_nested_delimiter="_",
        env_nested_max_split=1,
        frozen=True,
        extra="ignore",
    )

    supervisor: ClassVar[tuple[str, ...]] = (sys.executable, "-P", "-m", "edt_runner.supervisor")
    """The command that starts a supervisor. With -P Python does not import from the agent's working directory."""

    api: Annotated[str, AfterValidator(_url), needs("a URL that begins with http:// or https://")] = (
        "http://127.0.0.1:9280"
    )
    """URL of the API, without a path."""
    ca_file: Place | None = None
    """File with the authorities whose certificates of the API are accepted. None: those that the machine knows."""
    api_certificate: Place | None = None
    """File with the API's own certificate. The agent then accepts this certificate alone, whatever its names are."""
    home: Place = Field(default_factory=_default_home)
    """The platform's folder. The agent keeps its own files in ``agent/<name>`` below it."""
    name: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"),
        needs("a node's name: letters, digits, '.', '_' and '-', at most 63"),
    ] = Field(default_factory=_host_name)
    """The node's name, which is part of its queue's name and of folder names. Default: the machine's name."""
    token_file: Place = Field(default_factory=lambda given: given["home"] / "join-token")
    """File that holds the join token."""
    agent_host: str = Field(default_factory=lambda given: _own_address(given["api"]))
    """Address at which the other nodes of a job reach this node."""
    tag: str = Field(default_factory=lambda given: home_tag(given["home"]))
    """Value of EDT_TAG in every process of this home."""
    agent_tick_seconds: Seconds = 2.0
    """With a broker: seconds after which the agent asks the API without a notification."""
    agent_poll_seconds: Seconds = 5.0
    """Without a broker: seconds that the API may wait for a change before it answers."""
    usage_seconds: Seconds = 15.0
    """Seconds between two messages to the API about how busy the slots are."""
    cpu_slots: Annotated[int, Field(ge=1, le=1024), needs("a whole number from 1 to 1024")] | None = None
    """Number of CPU stand-ins for GPUs; None: one for each core."""
    devices: Literal["auto", "cpu"] = "auto"
    """``auto``: GPUs if NVML shows some, else CPU stand-ins. ``cpu``: CPU stand-ins."""
    broker_url: str | None = None
    """URL of the broker; None: the broker that the API names at registration."""
    warm: Annotated[tuple[Framework, ...], NoDecode, BeforeValidator(_frameworks)] = ("pytorch",)
    """Frameworks for which the agent keeps a warm supervisor from its start on (1: PyTorch, 0: none). Frameworks of
    later jobs are added, unless the list is empty."""
    alive_file: Place | None = None
    """File that the agent touches after each answer of the API, for a health check."""
    runtime_dir: (
        Annotated[Place, AfterValidator(_short), needs(f"a path of at most {_ROOT_BYTES} bytes, for sockets lie below")]
        | None
    ) = None
    """Folder in which the folder of sockets lies. An agent that runs in a container itself shares this folder, under
    the same path, with the containers that it starts."""
    data_fs: Place = Field(default_factory=lambda given: given["home"] / "data")
    """The data file system, which every container may read."""
    launcher: Literal["process", "docker"] = "process"
    """Whether jobs run as processes of this machine (``process``) or in containers (``docker``)."""
    temporary: Annotated[bool, needs("true or false")] = False
    """Whether another cluster manager has given this node for a while and takes it back with SIGTERM. Then SIGTERM
    means that the node leaves. The next three settings have no effect otherwise."""
    leave_seconds: Span = 0.0
    """Seconds after SIGTERM within which nothing of this node may run any more. 0: it gets no grace."""
    idle_seconds: Idle | None = None
    """Seconds without an assignment after which the agent asks the API whether the node may leave; None: it never
    asks."""
    ends_at: Epoch | None = None
    """Time at which the cluster manager kills the node, in seconds since 1970; None: no time is known."""
    docker: DockerSettings | None = Field(default=None, validate_default=True)
    """The EDT_DOCKER_* settings; None: the launcher is not ``docker``."""

    @field_validator("docker", mode="wrap")
    @classmethod
    def _only_with_docker(
        cls, given: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> DockerSettings | None:
        if info.data.get("launcher") != "docker":
            return None
        if given is None or isinstance(given, dict):
            given = {**(given or {}), "data": info.data.get("data_fs")}
            images = {name: given.get(f"image_{name}") for name in FRAMEWORKS}
            given["image"] = {name: image for name, image in images.items() if image is not None}
        elif not isinstance(given, DockerSettings):  # the variable EDT_DOCKER is set
            raise PydanticCustomError("none", "no setting; those of containers have longer names, as EDT_DOCKER_PULL")
        settings: DockerSettings = handler(given)
        return settings

    @field_validator("temporary", mode="after")
    @classmethod
    def _only_processes(cls, given: bool, info: ValidationInfo) -> bool:
        if given and info.data.get("launcher") != "process":
            raise PydanticCustomError("processes", "true only with EDT_LAUNCHER=process: containers outlive a node")
        return given

    @property
    def runs_in(self) -> str:
        """How this node runs jobs, as the API names it: ``process``, ``docker`` or ``docker-fixed``."""
        return "docker-fixed" if self.docker and self.docker.gpus == "fixed" else self.launcher

    @property
    def alone(self) -> bool:
        """Whether this node's containers have a network in which engines of other nodes cannot reach them."""
        return self.docker is not None and self.docker.network in NETWORKS_OF_ONE_NODE

    @property
    def reached_at(self) -> str:
        """The address at which other engines of a job reach this node's engines."""
        return _LOOPBACK if self.alone else self.agent_host

    @property
    def state_dir(self) -> Path:
        """The folder of the agent's own files."""
        return self.home / "agent" / self.name

    @property
    def compiled(self) -> Path:
        """The folder of the folders in which jobs keep compiled models."""
        return self.state_dir / "compiled"

    @property
    def sockets(self) -> Path:
        """The folder of sockets, for this user only. Its path is short, because a socket's path may have 107 bytes."""
        base = os.environ.get("XDG_RUNTIME_DIR")
        root = self.runtime_dir or (Path(base) if base and Path(base).is_dir() else Path(tempfile.gettempdir()))
        short = hashlib.sha256(f"{self.tag}/{self.name}".encode()).hexdigest()[:12]
        return root / f"edt-{os.getuid()}-{short}"


def read_settings(arguments: Mapping[str, str | None]) -> AgentSettings:
    """Make the settings from the command line and the environment.

    Args:
        arguments: values from the command line, by field; None or "": not given.

    Raises:
        BadSetting: the message names the argument or variable, its value, and what is allowed.
    """
    given: dict[str, Any] = {name: value for name, value in arguments.items() if value}
    try:
        return AgentSettings(**given)
    except ValidationError as error:
        raise BadSetting(_describe(error, given)) from None


def home_tag(home: Path) -> str:
    """The tag of a home. All paths that lead to the same folder give the same tag."""
    return hashlib.sha256(os.path.realpath(home).encode()).hexdigest()[:16]


def make_private(folder: Path) -> Path:
    """Make a folder that only this user can read; returns it.

    Raises:
        BadSetting: another user has put something there, or the folder cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(f"EDT_RUNTIME_DIR: {folder} cannot be made: {error.strerror}") from error
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise BadSetting(f"{folder} belongs to somebody else; remove it or set XDG_RUNTIME_DIR")
    folder.chmod(0o700)
    return folder


def _describe(error: ValidationError, arguments: Collection[str]) -> str:
    """Describe the first error in one sentence. ``arguments``: names of the settings that came from the command
    line."""
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"] if isinstance(part, str)]
    name = f"EDT_{'_'.join(path)}".upper()
    if path[0] in arguments:
        name = f"--{path[0].removeprefix('agent_').replace('_', '-')}"
    would_do = first["ctx"]["expected"].replace("'", "") if first["type"] == "literal_error" else first["msg"]
    return f"{name}: {first['input']!r}; it is {would_do}"
