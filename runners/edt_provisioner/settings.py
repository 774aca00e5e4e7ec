"""The settings that all provisioners have. A value comes from the command line, else from an EDT_* variable, else from
a default. What one cluster manager needs besides is in its own package."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from edt_contract.frameworks import FRAMEWORKS
from edt_contract.pools import NodeRequest
from edt_provisioner.errors import BadSetting

_Settings = TypeVar("_Settings", bound=BaseSettings)


def needs(words: str) -> WrapValidator:
    """A validator whose error message names the allowed values: ``it is <words>``."""

    def checked(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValueError:  # also catches ValidationError, which is a ValueError
            raise PydanticCustomError("takes", "{words}", {"words": words}) from None

    return WrapValidator(checked)


def _url(given: str) -> str:
    if urlsplit(given).scheme not in {"http", "https"}:
        raise ValueError(given)
    return given.rstrip("/")


def _default_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser().absolute() / "edt"


Place = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]
Seconds = Annotated[float, Field(gt=0, lt=864_000), needs("a number of seconds above 0")]
Url = Annotated[str, AfterValidator(_url), needs("a URL that begins with http:// or https://")]
PoolName = Annotated[
    str,
    Field(pattern=r"^[a-z][a-z0-9-]{0,39}$"),
    needs("a pool's name: lower-case letters, digits and '-', at most 40, beginning with a letter"),
]
Nodes = Annotated[int, Field(ge=0, le=10_000), needs("a whole number from 0 to 10000")]


class Settings(BaseSettings):
    """What every provisioner is told. Each field has the name of a variable in lower case, without EDT_. An empty
    variable counts as not set."""

    model_config = SettingsConfigDict(env_prefix="EDT_", env_ignore_empty=True, frozen=True, extra="ignore")

    api: Url = "http://127.0.0.1:9280"
    """URL of the API, without a path."""
    node_api: Url = Field(default_factory=lambda given: given["api"])
    """The same as the nodes reach it."""
    ca_file: Place | None = None
    """File with the authorities whose certificates of the API are accepted. None: those that the machine knows."""
    api_certificate: Place | None = None
    """File with the API's own certificate. Then this one alone is accepted."""
    home: Place = Field(default_factory=_default_home)
    """The platform's folder, which all nodes see at this path."""
    data_fs: Place = Field(default_factory=lambda given: given["home"] / "data")
    """The data file system, which all nodes see at this path."""
    token_file: Place = Field(default_factory=lambda given: given["home"] / "join-token")
    """File that holds the join token."""
    pool: PoolName
    """The pool's name, with which the names of its nodes begin."""
    pool_slots: Annotated[int, Field(ge=1, le=1024), needs("a whole number from 1 to 1024")] = 1
    """Slots of each node."""
    pool_max_nodes: Nodes = 4
    """The most nodes, as long as no administrator has set another number (``edt pool set``)."""
    pool_min_nodes: Nodes = 0
    """The fewest nodes. Only where any job may use a node."""
    pool_device: Annotated[str, Field(pattern="^(cpu|gpu)$"), needs("cpu or gpu")] = "cpu"
    """What the slots are: GPUs, or CPU stand-ins for them."""
    pool_model: Annotated[str, Field(max_length=200), needs("the name of a GPU, as NVML shows it")] = ""
    """Model of the GPUs, where the cluster has several."""
    pool_patience_seconds: Seconds = 120.0
    """Seconds after which a node that does not come is given up."""
    pool_idle_seconds: Seconds = 60.0
    """Seconds after which a node that no job uses leaves."""
    pool_sync_seconds: Seconds = 2.0
    """Seconds between two looks at the cluster manager and the API."""
    alive_file: Place | None = None
    """File that the provisioner touches after each answer of the API, for a health check."""


def read_settings(kind: type[_Settings], arguments: Mapping[str, str | None]) -> _Settings:
    """Make settings from the command line and the environment.

    Args:
        kind: the class of the settings.
        arguments: values from the command line, by field; None or "": not given.

    Raises:
        BadSetting: the message names the argument or variable, its value, and what is allowed.
    """
    given: dict[str, Any] = {name: value for name, value in arguments.items() if value}
    try:
        return kind(**given)
    except ValidationError as error:
        raise BadSetting(_describe(error, given, str(kind.model_config.get("env_prefix", "EDT_")))) from None


def _describe(error: ValidationError, arguments: Collection[str], prefix: str) -> str:
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"] if isinstance(part, str)]
    name = f"--{path[0].replace('_', '-')}" if path[0] in arguments else f"{prefix}{'_'.join(path)}".upper()
    if first["type"] == "missing":
        return f"{name} is not set"
    would_do = first["ctx"]["expected"].replace("'", "") if first["type"] == "literal_error" else first["msg"]
    return f"{name}: {first['input']!r}; it is {would_do}"


def join_token(settings: Settings) -> str:
    """The join token.

    Raises:
        BadSetting: its file cannot be read.
    """
    try:
        return settings.token_file.read_text().strip()
    except OSError as error:
        raise BadSetting(f"EDT_TOKEN_FILE: {settings.token_file}: {error.strerror}") from error


def node_environment(request: NodeRequest, settings: Settings) -> dict[str, str]:
    """The environment of a node's agent, without the token and without what only its cluster manager knows: where the
    token's file is (EDT_TOKEN_FILE), the grace (EDT_LEAVE_SECONDS) and the time limit (EDT_ENDS_AT)."""
    environ = {
        "EDT_API": settings.node_api,
        "EDT_NAME": request.node,
        "EDT_HOME": str(settings.home),
        "EDT_DATA_FS": str(settings.data_fs),
        "EDT_TEMPORARY": "true",
        "EDT_IDLE_SECONDS": f"{request.idle_seconds:g}",
        # A node of one job has one supervisor to start: another one that waits would only take its memory.
        "EDT_WARM": request.framework if request.job is None and request.framework in FRAMEWORKS else "0",
        "EDT_LAUNCHER": "process",
        "EDT_DEVICES": "auto",
    }
    if settings.ca_file is not None:
        environ["EDT_CA_FILE"] = str(settings.ca_file)
    if settings.api_certificate is not None:
        environ["EDT_API_CERTIFICATE"] = str(settings.api_certificate)
    if settings.pool_device == "cpu":
        environ |= {"EDT_DEVICES": "cpu", "EDT_CPU_SLOTS": str(request.slots)}
    return environ
