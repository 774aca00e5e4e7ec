"""Room: runners, agent. What the Docker launcher is told: EDT_DOCKER_* and what follows from the node. Pure.

Memory and processor limits are ceilings, not reservations: a base for the supervisor, the driver and the coordinator,
and a share for each engine. Where nothing is said, nine tenths of the node's memory and all of its cores are divided
by its slots, so that a node whose slots all work is not promised twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic_settings import NoDecode

from edt_agent.complaints import takes

GIB = 1 << 30
MIB = 1 << 20
_BASE_MEMORY = 2 * GIB
_LEAST_MEMORY = 64 * MIB
_SIZE = re.compile(r"(\d{1,15})([kmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

NETWORKS_OF_ONE_NODE = frozenset({"bridge", "default", "none"})
"""Docker's networks that containers of other nodes cannot be reached in."""

IMAGE_PYTORCH = "openedt/runner-torch:latest"
IMAGE_TENSORFLOW = "openedt/runner-tensorflow:latest"


@dataclass(frozen=True)
class Mount:
    """A folder of the node that containers see at ``target``."""

    source: str
    target: str
    read_only: bool = True


def _bytes(given: Any) -> Any:
    """As Docker reads a size: m is 2**20. Pydantic's ByteSize takes it for 10**6."""
    if not isinstance(given, str):
        return given
    match = _SIZE.fullmatch(given.strip())
    return int(match[1]) * _UNITS[match[2].lower()] if match else given


def _mount(given: Any) -> Any:
    """``/on/the/node[:/inside][:ro|rw]``."""
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


Image = Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._:/@-]{0,254}$"), takes(f"written like {IMAGE_PYTORCH}")]
Memory = Annotated[
    int, Field(ge=_LEAST_MEMORY), BeforeValidator(_bytes), takes("a size such as 512m or 4g, at least 64m")
]
Space = Annotated[int, Field(ge=MIB), BeforeValidator(_bytes), takes("a size such as 512m or 4g, at least 1m")]
Cores = Annotated[float, Field(gt=0, le=4096), takes("a number of cores above 0")]
User = Annotated[
    tuple[Annotated[int, Field(gt=0)], Annotated[int, Field(ge=0)]],
    NoDecode,
    BeforeValidator(_pair),
    takes("UID:GID in numbers, and not root's"),
]
ScriptUser = Annotated[
    Annotated[int, Field(gt=0, lt=1 << 31)] | None,
    BeforeValidator(lambda given: None if given == "same" else given),
    takes("the number of a user who is not root, or same"),
]
Mounts = Annotated[
    tuple[Annotated[Mount, BeforeValidator(_mount), takes("/folder[:/inside][:ro|rw], with commas between")], ...],
    NoDecode,
    BeforeValidator(_listed),
]


@checked_dataclass(frozen=True)
class DockerSettings:
    """All that EDT_DOCKER_* can say: each name is the variable's without that, in small letters."""

    data: Path
    """The data file system (EDT_DATA_FS), which every container may read."""
    image_pytorch: Image = IMAGE_PYTORCH
    image_tensorflow: Image = IMAGE_TENSORFLOW
    python: str = "python"
    """The interpreter inside the image."""
    pull: Literal["missing", "never"] = "missing"
    """Whether an image that is not there is pulled, or it is said so and given up."""
    pulls_at_once: Annotated[int, Field(ge=1, le=64), takes("a whole number from 1 to 64")] = 2
    pull_seconds: Annotated[float, Field(gt=0), takes("a number of seconds above 0")] = 3600.0
    """A pull that takes longer is given up."""
    pull_bytes: Space = 64 * GIB
    """An image whose layers, as they are sent, are larger than this together is not pulled."""
    network: Annotated[
        str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.:-]{0,127}$"), takes("bridge, none, host or the name of a network")
    ] = "bridge"
    """``bridge`` and ``none`` end at the node: an attempt there spans no other. ``host`` reaches other nodes' engines,
    and everything that the node listens on. Another one must span the nodes (overlay, macvlan), and the node's --host
    be an address that a container has there."""
    user: User = (10001, 10001)
    """Who a container runs as where the job's folder belongs to root; else its owner."""
    script_user: ScriptUser = 10002
    """Who the job's own code runs as, in the group of the container's user; None: as the container's user."""
    memory_base: Memory | None = None
    memory_per_slot: Memory | None = None
    cpus_base: Cores = 1.0
    cpus_per_slot: Cores | None = None
    pids: Annotated[int, Field(ge=64, le=1 << 22), takes("a whole number from 64")] = 4096
    shm: Space = GIB
    """Size of /dev/shm. OpenEDT's own loader does not use it; NCCL and a user's own loaders do."""
    tmp: Space = GIB
    """Size of /tmp, the only place besides the job's folder that can be written; it counts as memory."""
    gpus: Literal["all", "fixed"] = "all"
    """Whether a container gets all GPUs of its node, or those of the slots it starts with and no others."""
    mounts: Mounts = ()
    """More folders of the node that every container sees."""


@dataclass(frozen=True)
class Limits:
    """What a container may use."""

    memory: int
    cpus: float


def limits(settings: DockerSettings, engines: int, slots: int, memory: int, cores: int) -> Limits:
    """For so many engines, on a node of so many slots, bytes and cores."""
    base = settings.memory_base
    if base is None:
        base = min(_BASE_MEMORY, memory // 4)
    share = settings.memory_per_slot
    if share is None:
        share = max(0, memory * 9 // 10 - base) // max(1, slots)
    cpus = settings.cpus_per_slot
    if cpus is None:
        cpus = cores / max(1, slots)
    return Limits(
        memory=max(_LEAST_MEMORY, min(memory, base + engines * share)),
        cpus=round(max(0.1, min(float(cores), settings.cpus_base + engines * cpus)), 2),
    )
