"""The EDT_DOCKER_* settings of an agent that runs jobs in containers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidatorFunctionWrapHandler, WrapValidator
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic_core import PydanticCustomError
from pydantic_settings import NoDecode

from edt_contract.frameworks import FRAMEWORKS

GIB = 1 << 30
MIB = 1 << 20
LEAST_MEMORY = 64 * MIB
_SIZE = re.compile(r"(\d{1,15})([kmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

NETWORKS_OF_ONE_NODE = frozenset({"bridge", "default", "none"})
"""Docker networks in which containers of different nodes cannot reach each other."""


def needs(words: str) -> WrapValidator:
    """A validator whose error message names the allowed values: ``it is <words>``."""

    def checked(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValueError:  # also catches ValidationError, which is a ValueError
            raise PydanticCustomError("takes", "{words}", {"words": words}) from None

    return WrapValidator(checked)


@dataclass(frozen=True)
class Mount:
    """A folder of the node that containers see at ``target``."""

    source: str
    target: str
    read_only: bool = True


def _bytes(given: Any) -> Any:
    """Read a size in bytes as Docker does: m means 2**20. In Pydantic's ByteSize m means 10**6."""
    if not isinstance(given, str):
        return given
    match = _SIZE.fullmatch(given.strip())
    return int(match[1]) * _UNITS[match[2].lower()] if match else given


def _mount(given: Any) -> Any:
    """Read a mount, written ``/on/the/node[:/inside][:ro|rw]``."""
    if not isinstance(given, str):
        return given
    parts = given.split(":")
    mode = parts.pop() if parts[-1] in {"ro", "rw"} else "ro"
    if not 1 <= len(parts) <= 2 or not all(part.startswith("/") for part in parts):
        raise ValueError(given)
    return Mount(parts[0], parts[-1], read_only=mode == "ro")


def _pair(given: Any) -> Any:
    return (given.split(":") * 2 if ":" not in given else given.split(":")) if isinstance(given, str) else given


def _listed(given: Any) -> Any:
    return [each for each in given.split(",") if each] if isinstance(given, str) else given


Image = Annotated[
    str,
    Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._:/@-]{0,254}$"),
    needs(f"written like {FRAMEWORKS['pytorch'].image}"),
]
Memory = Annotated[
    int, Field(ge=LEAST_MEMORY), BeforeValidator(_bytes), needs("a size such as 512m or 4g, at least 64m")
]
Space = Annotated[int, Field(ge=MIB), BeforeValidator(_bytes), needs("a size such as 512m or 4g, at least 1m")]
Cores = Annotated[float, Field(gt=0, le=4096), needs("a number of cores above 0")]
User = Annotated[
    tuple[Annotated[int, Field(gt=0)], Annotated[int, Field(ge=0)]],
    NoDecode,
    BeforeValidator(_pair),
    needs("UID:GID in numbers, and not root's"),
]
ScriptUser = Annotated[
    Annotated[int, Field(gt=0, lt=1 << 31)] | None,
    BeforeValidator(lambda given: None if given == "same" else given),
    needs("the number of a user who is not root, or same"),
]
Mounts = Annotated[
    tuple[Annotated[Mount, BeforeValidator(_mount), needs("/folder[:/inside][:ro|rw], with commas between")], ...],
    NoDecode,
    BeforeValidator(_listed),
]


@checked_dataclass(frozen=True)
class DockerSettings:
    """The EDT_DOCKER_* settings. Each field except ``data`` and ``image`` has the name of a variable in lower case,
    without EDT_DOCKER_."""

    data: Path
    """The data file system (EDT_DATA_FS), which every container may read."""
    image: Annotated[Mapping[str, Image], NoDecode] = field(default_factory=dict)
    """Images by framework, from EDT_DOCKER_IMAGE_PYTORCH and EDT_DOCKER_IMAGE_TENSORFLOW. A framework without such a
    variable has the image in ``FRAMEWORKS``. The variable EDT_DOCKER_IMAGE has no effect."""
    python: str = "python"
    """The interpreter inside the image."""
    pull: Literal["missing", "never"] = "missing"
    """Whether a missing image is pulled (``missing``) or the start fails (``never``)."""
    pulls_at_once: Annotated[int, Field(ge=1, le=64), needs("a whole number from 1 to 64")] = 2
    pull_seconds: Annotated[float, Field(gt=0), needs("a number of seconds above 0")] = 3600.0
    """Seconds after which a pull is given up."""
    pull_bytes: Space = 64 * GIB
    """Most bytes of an image's layers together, as they are sent. A larger image is not pulled."""
    network: Annotated[
        str,
        Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.:-]{0,127}$"),
        needs("bridge, none, host or the name of a network"),
    ] = "bridge"
    """Network of the containers. With ``bridge`` and ``none`` containers of different nodes cannot reach each other, so
    an attempt on this node has no other nodes. With ``host`` containers reach the engines of other nodes, and every
    port on which this node listens. Any other network must span the nodes (overlay, macvlan), and the node's --host
    must be an address that a container has in this network."""
    user: User = (10001, 10001)
    """uid and gid of a container if root owns the job's folder; otherwise the folder's owner counts."""
    script_user: ScriptUser = 10002
    """uid of the job's own code, whose group is that of the container's user; None: the container's user."""
    memory_base: Memory | None = None
    memory_per_slot: Memory | None = None
    cpus_base: Cores = 1.0
    cpus_per_slot: Cores | None = None
    pids: Annotated[int, Field(ge=64, le=1 << 22), needs("a whole number from 64")] = 4096
    shm: Space = GIB
    """Bytes of /dev/shm. OpenEDT's own loader does not use it; NCCL and a user's own loaders do."""
    tmp: Space = GIB
    """Bytes of /tmp. Besides the job's folder a container can write only there. /tmp counts as memory."""
    gpus: Literal["all", "fixed"] = "all"
    """Whether a container gets all GPUs of its node (``all``), or only those of its first slots (``fixed``)."""
    mounts: Mounts = ()
    """Further folders of the node that every container sees."""
