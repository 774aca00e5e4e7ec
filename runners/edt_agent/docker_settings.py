"""Room: runners, agent. What the Docker launcher is told: EDT_DOCKER_* and what follows from the node. Pure.

Memory and processor limits are ceilings, not reservations: a base for the supervisor, the driver and the coordinator,
and a share for each engine. Where nothing is said, nine tenths of the node's memory and all of its cores are divided
by its slots, so that a node whose slots all work is not promised twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edt_agent.errors import BadSetting

GIB = 1 << 30
MIB = 1 << 20
_BASE_MEMORY = 2 * GIB
_BASE_CPUS = 1.0
_LEAST_MEMORY = 64 * MIB
_SIZE = re.compile(r"(\d{1,15})([kmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_IMAGE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:/@-]{0,254}")
_NETWORK = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.:-]{0,127}")

IMAGE_PYTORCH = "openedt/runner-torch:latest"
IMAGE_TENSORFLOW = "openedt/runner-tensorflow:latest"


@dataclass(frozen=True)
class Mount:
    """A folder of the node that containers see at ``target``."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class DockerSettings:
    """All that EDT_DOCKER_* can say. ``from_environment`` reads it; tests build it by hand."""

    data: Path
    """The data file system (EDT_DATA_FS), which every container may read."""
    image_pytorch: str = IMAGE_PYTORCH
    image_tensorflow: str = IMAGE_TENSORFLOW
    python: str = "python"
    """The interpreter inside the image."""
    pull: bool = True
    """Pull an image that is not there; False: say so and give up."""
    network: str = "host"
    """``host`` reaches other nodes' engines. With another network the node's --host must be an address that a
    container has there; ``none`` with --host 127.0.0.1 shuts jobs of one node in completely."""
    user: tuple[int, int] = (10001, 10001)
    """Who a container runs as where the job's folder belongs to root; else its owner."""
    script_user: int | None = 10002
    """Who the job's own code runs as, in the group of the container's user; None: as the container's user."""
    memory_base: int | None = None
    memory_per_slot: int | None = None
    cpus_base: float = _BASE_CPUS
    cpus_per_slot: float | None = None
    pids: int = 4096
    shm: int = GIB
    """Size of /dev/shm. OpenEDT's own loader does not use it; NCCL and a user's own loaders do."""
    tmp: int = GIB
    """Size of /tmp, the only place besides the job's folder that can be written; it counts as memory."""
    fixed_gpus: bool = False
    """A container gets the GPUs of the slots it starts with, and no others; False: all of its node's."""
    mounts: tuple[Mount, ...] = ()
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


def from_environment(environ: Mapping[str, str], home: Path) -> DockerSettings:
    """Read EDT_DOCKER_*. Raises BadSetting, which names the variable, what it got and what it takes."""

    def size(name: str, default: int) -> int:
        return _bytes(name, environ, least=MIB) or default

    return DockerSettings(
        data=Path(environ.get("EDT_DATA_FS") or home / "data").expanduser().absolute(),
        image_pytorch=_image("EDT_DOCKER_IMAGE_PYTORCH", environ, IMAGE_PYTORCH),
        image_tensorflow=_image("EDT_DOCKER_IMAGE_TENSORFLOW", environ, IMAGE_TENSORFLOW),
        python=environ.get("EDT_DOCKER_PYTHON") or "python",
        pull=_one_of("EDT_DOCKER_PULL", environ, ("missing", "never")) == "missing",
        network=_network(environ),
        user=_user(environ),
        script_user=_script_user(environ),
        memory_base=_bytes("EDT_DOCKER_MEMORY_BASE", environ),
        memory_per_slot=_bytes("EDT_DOCKER_MEMORY_PER_SLOT", environ),
        cpus_base=_number("EDT_DOCKER_CPUS_BASE", environ) or _BASE_CPUS,
        cpus_per_slot=_number("EDT_DOCKER_CPUS_PER_SLOT", environ),
        pids=_count("EDT_DOCKER_PIDS", environ, 4096),
        shm=size("EDT_DOCKER_SHM", GIB),
        tmp=size("EDT_DOCKER_TMP", GIB),
        fixed_gpus=_one_of("EDT_DOCKER_GPUS", environ, ("all", "fixed")) == "fixed",
        mounts=_mounts(environ),
    )


def is_image(text: str) -> bool:
    """Whether this could name an image; whether it exists is for the daemon to say."""
    return _IMAGE.fullmatch(text) is not None


def _one_of(variable: str, environ: Mapping[str, str], known: tuple[str, ...]) -> str:
    text = environ.get(variable) or known[0]
    if text not in known:
        raise BadSetting(f"{variable}: {text!r}; it is {' or '.join(known)}")
    return text


def _image(variable: str, environ: Mapping[str, str], default: str) -> str:
    text = environ.get(variable) or default
    if not is_image(text):
        raise BadSetting(f"{variable}: {text!r} is no image; it is written like {default}")
    return text


def _network(environ: Mapping[str, str]) -> str:
    text = environ.get("EDT_DOCKER_NETWORK") or "host"
    if not _NETWORK.fullmatch(text):
        raise BadSetting(f"EDT_DOCKER_NETWORK: {text!r}; it is host, none or the name of a network")
    return text


def _user(environ: Mapping[str, str]) -> tuple[int, int]:
    text = environ.get("EDT_DOCKER_USER") or "10001:10001"
    user, colon, group = text.partition(":")
    if not user.isdecimal() or (colon and not group.isdecimal()) or int(user) == 0:
        raise BadSetting(f"EDT_DOCKER_USER: {text!r}; it is UID:GID in numbers, and not root's")
    return int(user), int(group or user)


def _script_user(environ: Mapping[str, str]) -> int | None:
    text = environ.get("EDT_DOCKER_SCRIPT_USER") or "10002"
    if text == "same":
        return None
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise BadSetting(f"EDT_DOCKER_SCRIPT_USER: {text!r}; it is the number of a user who is not root, or same")
    return int(text)


def _bytes(variable: str, environ: Mapping[str, str], least: int = _LEAST_MEMORY) -> int | None:
    text = environ.get(variable)
    if not text:
        return None
    match = _SIZE.fullmatch(text.strip())
    number = int(match[1]) * _UNITS[match[2].lower()] if match else 0
    if number < least:
        raise BadSetting(f"{variable}: {text!r}; it is a size such as 512m or 4g, at least {least // MIB}m")
    return number


def _number(variable: str, environ: Mapping[str, str]) -> float | None:
    text = environ.get(variable)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number <= 4096:
        raise BadSetting(f"{variable}: {text!r}; it is a number of cores above 0")
    return number


def _count(variable: str, environ: Mapping[str, str], default: int) -> int:
    text = environ.get(variable)
    if not text:
        return default
    if not text.isdecimal() or not 64 <= int(text) <= 1 << 22:
        raise BadSetting(f"{variable}: {text!r}; it is a whole number from 64")
    return int(text)


def _mounts(environ: Mapping[str, str]) -> tuple[Mount, ...]:
    """``/on/the/node[:/inside][:ro|rw]``, several with commas between."""
    mounts = []
    for text in filter(None, (environ.get("EDT_DOCKER_MOUNTS") or "").split(",")):
        parts = text.split(":")
        mode = parts.pop() if parts[-1] in {"ro", "rw"} else "ro"
        if not 1 <= len(parts) <= 2 or not all(part.startswith("/") for part in parts):
            raise BadSetting(f"EDT_DOCKER_MOUNTS: {text!r}; it is /folder[:/inside][:ro|rw], with commas between")
        mounts.append(Mount(parts[0], parts[-1], read_only=mode == "ro"))
    return tuple(mounts)
