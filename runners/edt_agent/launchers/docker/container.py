"""Makes the description of a job's container from the attempt spec, the desired state and the node. Pure.

The container runs one supervisor as process 1, and the processes that the supervisor forks. The job's code runs as
another user. The container sees the job's folder, the data (read-only), the folder of the supervisor's socket, and the
folders of EDT_DOCKER_MOUNTS, and the folder with what jobs of its user have compiled, but no other folder of the node.
Its image is read-only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from edt_agent.docker_settings import GIB, LEAST_MEMORY, DockerSettings
from edt_agent.slots import Slot
from edt_contract.attempt import AttemptSpec, DesiredState
from edt_contract.frameworks import FRAMEWORKS, NO_FRAMEWORK, supervisor_environ

LABEL_TAG, LABEL_NODE, LABEL_JOB, LABEL_FENCE = "edt.tag", "edt.node", "edt.job", "edt.fence"
CPU_PERIOD = 100_000
"""Microseconds of a period for which ``cpu_quota`` limits the processor time."""
_BASE_MEMORY = 2 * GIB
_STOP_SLACK_SECONDS = 5
_LOG_SIZE = "1m"


@dataclass(frozen=True)
class Limits:
    """The limits of a container: memory in bytes, cpus in cores.

    The limits are maxima; nothing is reserved. A limit is the sum of a base for supervisor, driver and coordinator, and
    of a share for each engine. By default each engine's share of the cores is the node's cores / its slots, and its
    share of the memory is (nine tenths of the node's memory - the base) / its slots.
    """

    memory: int
    cpus: float


@dataclass(frozen=True)
class Node:
    """The machine on which a container runs."""

    name: str
    tag: str
    """Value of EDT_TAG, which names the home."""
    slots: tuple[Slot, ...]
    memory: int
    """Bytes of memory."""
    cores: int

    @property
    def labels(self) -> dict[str, str]:
        """Labels that all containers of this node and this home have."""
        return {LABEL_TAG: self.tag, LABEL_NODE: self.name}

    def limits(self, settings: DockerSettings, engines: int) -> Limits:
        """The limits of a container with this number of engines on this node."""
        slots = max(1, len(self.slots))
        base = settings.memory_base
        if base is None:
            base = min(_BASE_MEMORY, self.memory // 4)
        share = settings.memory_per_slot
        if share is None:
            share = max(0, self.memory * 9 // 10 - base) // slots
        cpus = settings.cpus_per_slot
        if cpus is None:
            cpus = self.cores / slots
        return Limits(
            memory=max(LEAST_MEMORY, min(self.memory, base + engines * share)),
            cpus=round(max(0.1, min(float(self.cores), settings.cpus_base + engines * cpus)), 2),
        )


def container_spec(
    spec: AttemptSpec,
    desired: DesiredState,
    settings: DockerSettings,
    node: Node,
    *,
    user: tuple[int, int],
    script_user: int | None = None,
    with_data: bool = True,
    compiled: Path | None = None,
) -> dict[str, Any]:
    """The arguments for docker's ``create_container``. ``host_config`` holds the arguments for ``create_host_config``.

    Args:
        spec: the attempt.
        desired: the first desired state; it determines the limits.
        settings: EDT_DOCKER_*.
        node: the machine.
        user: uid and gid of the supervisor.
        script_user: uid of the job's code; None: the same uid. If it is another uid, the container starts as root, with
            only the three capabilities that the supervisor needs to run children as that user and to signal them.
        with_data: whether the data file system's folder exists.
        compiled: the node's folder with what jobs of this user and image have compiled; None: there is none.
    """
    allowed = node.limits(settings, len(desired.slots))
    framework = spec.framework if spec.gang is None else NO_FRAMEWORK
    command = ["-P", "-m", "edt_runner.supervisor", "--framework", framework, "--cold"]
    if script_user is not None:
        command += ["--user", f"{user[0]}:{user[1]}", "--script-user", f"{script_user}:{user[1]}"]
    return {
        "name": container_name(spec, node),
        "image": image_of(spec, settings),
        "entrypoint": [settings.python],
        "command": [*command, "--log", f"{spec.spool_dir}/supervisor.log"],
        "user": f"{user[0]}:{user[1]}" if script_user is None else "0:0",
        "working_dir": "/tmp",  # noqa: S108 - the container's own
        # No variables of the spec's environment: they may be secrets, and all users of the daemon can read these.
        "environment": {
            "HOME": "/tmp",  # noqa: S108
            "USER": "edt",
            "LOGNAME": "edt",
            "PYTHONDONTWRITEBYTECODE": "x",
            **supervisor_environ(framework),
        },
        "labels": {**node.labels, LABEL_JOB: spec.job, LABEL_FENCE: str(spec.fence)},
        # The input is open for one spec. If the agent dies before it has written the spec, the input ends.
        "stdin_open": True,
        "stop_signal": "SIGTERM",
        "stop_timeout": int(spec.grace_seconds) + _STOP_SLACK_SECONDS,
        "host_config": {
            "mounts": _mounts(spec, settings, guarded=script_user is not None, with_data=with_data, compiled=compiled),
            "read_only": True,
            "tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,size={settings.tmp},mode=1777"},  # noqa: S108
            "shm_size": settings.shm,
            "network_mode": settings.network,
            "cap_drop": ["ALL"],
            "cap_add": [] if script_user is None else ["KILL", "SETGID", "SETUID"],
            "security_opt": ["no-new-privileges"],
            "privileged": False,
            "pids_limit": settings.pids,
            "mem_limit": allowed.memory,
            "memswap_limit": allowed.memory,
            "cpu_period": CPU_PERIOD,
            "cpu_quota": cpu_quota(allowed),
            "restart_policy": {"Name": "no"},
            "auto_remove": False,
            "init": False,
            "log_config": {"type": "json-file", "config": {"max-size": _LOG_SIZE, "max-file": "1"}},
            "device_requests": device_requests(desired, settings, node.slots),
        },
    }


def container_name(spec: AttemptSpec, node: Node) -> str:
    """The container's name. Each attempt of a node has one name, so the daemon refuses to make a second container."""
    mark = hashlib.sha256(f"{node.tag}/{node.name}".encode()).hexdigest()[:8]
    return f"edt-{mark}-{re.sub(r'[^a-zA-Z0-9_.-]', '-', spec.job)}.{spec.fence}"


def image_of(spec: AttemptSpec, settings: DockerSettings) -> str:
    """The image that the job asks for, or else the node's image for the job's framework."""
    if spec.image:
        return spec.image
    known = FRAMEWORKS.get(spec.framework, FRAMEWORKS["pytorch"])
    return settings.image.get(known.name, known.image)


def cpu_quota(allowed: Limits) -> int:
    """Microseconds of processor time that a container may use in each ``CPU_PERIOD``."""
    return int(allowed.cpus * CPU_PERIOD)


def device_requests(desired: DesiredState, settings: DockerSettings, slots: Sequence[Slot]) -> list[dict[str, Any]]:
    """The GPUs of a container, as docker's device requests. The list is empty on a node without GPUs.

    By default a container gets all GPUs of its node, because none can be added later. CUDA_VISIBLE_DEVICES shows each
    engine only its own GPU. With EDT_DOCKER_GPUS=fixed a container gets only the GPUs of the slots with which it
    starts.
    """
    on_node = [slot.device for slot in slots if slot.device != "cpu"]
    desired_devices = {slot.device for slot in desired.slots}
    devices = [device for device in on_node if device in desired_devices] if settings.gpus == "fixed" else on_node
    if not devices:
        return []
    return [{"driver": "nvidia", "device_ids": devices, "capabilities": [["gpu", "compute", "utility"]]}]


def folders(spec: AttemptSpec) -> list[str]:
    """The folders of the spec in which a job's processes write, without folders that lie inside another one."""
    named = [spec.result_dir, spec.work_dir, spec.log_dir, spec.checkpoint_dir, spec.spool_dir]
    return outermost([*named, str(Path(spec.socket).parent)])


def outermost(paths: Collection[str]) -> list[str]:
    """The paths that do not lie inside another path of the list."""
    known = [PurePosixPath(path) for path in dict.fromkeys(paths)]
    return [str(path) for path in known if not any(other in path.parents for other in known)]


def _mounts(
    spec: AttemptSpec, settings: DockerSettings, *, guarded: bool, with_data: bool, compiled: Path | None
) -> list[Mapping[str, Any]]:
    """The container's mounts. The job's folders, the data and ``compiled`` have the same path as on the node. If
    ``guarded``, the spool's folder is a mount of its own, so that the job cannot rename it."""
    written = [*folders(spec), *([str(Path(spec.spool_dir).parent)] if guarded else [])]
    written += [str(compiled)] if compiled is not None else []
    own = [_bind(path, path, read_only=False) for path in dict.fromkeys(written)]
    data = [_bind(str(settings.data), str(settings.data), read_only=True)] if with_data else []
    return [*(_bind(each.source, each.target, read_only=each.read_only) for each in settings.mounts), *data, *own]


def _bind(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}
