"""Room: runners, agent. What a job's container is, from its letter, its wish and the node. Pure.

Inside there is one supervisor, as process 1, with everything that it forks; the job's code is another user than it. It
sees the job's folder, the data (to read) and the folder of its socket; all else of the node's disk is not there, and of
its own image it can write nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from edt_agent.docker_settings import DockerSettings, Limits, limits
from edt_agent.slots import Slot
from edt_runner.contract import Letter, Wish
from edt_runner.environment import supervisor_environ

LABEL_TAG, LABEL_NODE, LABEL_JOB, LABEL_FENCE = "edt.tag", "edt.node", "edt.job", "edt.fence"
CPU_PERIOD = 100_000
"""Microseconds over which processor time is counted."""
_STOP_SLACK_SECONDS = 5
_LOG_SIZE = "1m"


@dataclass(frozen=True)
class Node:
    """The machine on which a container shall run."""

    name: str
    tag: str
    slots: tuple[Slot, ...]
    memory: int
    cores: int

    @property
    def labels(self) -> dict[str, str]:
        """By which all containers of this node of this home are found."""
        return {LABEL_TAG: self.tag, LABEL_NODE: self.name}

    def limits(self, settings: DockerSettings, engines: int) -> Limits:
        """What a container with so many engines may use here."""
        return limits(settings, engines, len(self.slots), self.memory, self.cores)


def container_spec(
    letter: Letter,
    wish: Wish,
    settings: DockerSettings,
    node: Node,
    *,
    user: tuple[int, int],
    script_user: int | None = None,
    with_data: bool = True,
) -> dict[str, Any]:
    """The words for docker's ``create_container``; ``host_config`` holds those for ``create_host_config``.

    ``user``: who it runs as. ``script_user``: who the job's code in it runs as, where that is somebody else; then it
    begins as root, with the capabilities by which the supervisor becomes the one and its children the other, and no
    others. ``with_data``: the data file system's folder is there.
    """
    allowed = node.limits(settings, len(wish.slots))
    command = ["-P", "-m", "edt_runner.supervisor", "--framework", letter.framework, "--cold"]
    if script_user is not None:
        command += ["--user", f"{user[0]}:{user[1]}", "--script-user", f"{script_user}:{user[1]}"]
    return {
        "name": container_name(letter, node),
        "image": image_of(letter, settings),
        "entrypoint": [settings.python],
        "command": [*command, "--log", f"{letter.spool_dir}/supervisor.log"],
        "user": f"{user[0]}:{user[1]}" if script_user is None else "0:0",
        "working_dir": "/tmp",  # noqa: S108 - the container's own
        # Nothing of a letter's environment: what is said here can be read by whoever may ask the daemon.
        "environment": {
            "HOME": "/tmp",  # noqa: S108
            "USER": "edt",
            "LOGNAME": "edt",
            "PYTHONDONTWRITEBYTECODE": "x",
            **supervisor_environ(letter.framework),
        },
        "labels": {**node.labels, LABEL_JOB: letter.job, LABEL_FENCE: str(letter.fence)},
        # Open for one letter. An agent that dies before it has written one leaves an end of input behind.
        "stdin_open": True,
        "stop_signal": "SIGTERM",
        "stop_timeout": int(letter.grace_seconds) + _STOP_SLACK_SECONDS,
        "host_config": {
            "mounts": _mounts(letter, settings, guarded=script_user is not None, with_data=with_data),
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
            "device_requests": device_requests(wish, settings, node.slots),
        },
    }


def container_name(letter: Letter, node: Node) -> str:
    """One name for each attempt of a node: the daemon itself refuses to make a second."""
    mark = hashlib.sha256(f"{node.tag}/{node.name}".encode()).hexdigest()[:8]
    return f"edt-{mark}-{re.sub(r'[^a-zA-Z0-9_.-]', '-', letter.job)}.{letter.fence}"


def image_of(letter: Letter, settings: DockerSettings) -> str:
    """The job's own, or the node's for its framework."""
    if letter.image:
        return letter.image
    return settings.image_tensorflow if letter.framework == "tensorflow" else settings.image_pytorch


def cpu_quota(allowed: Limits) -> int:
    return int(allowed.cpus * CPU_PERIOD)


def device_requests(wish: Wish, settings: DockerSettings, slots: Sequence[Slot]) -> list[dict[str, Any]]:
    """The GPUs it gets: all of its node's, since none can be added later and an engine sees only its own by
    CUDA_VISIBLE_DEVICES; with ``fixed`` those of the slots that it starts with. None on a node without."""
    on_node = [slot.device for slot in slots if slot.device != "cpu"]
    wished = {slot.device for slot in wish.slots}
    devices = [device for device in on_node if device in wished] if settings.gpus == "fixed" else on_node
    if not devices:
        return []
    return [{"driver": "nvidia", "device_ids": devices, "capabilities": [["gpu", "compute", "utility"]]}]


def folders(letter: Letter) -> list[str]:
    """What of a job must be written: its folder, and what of the letter's lies elsewhere."""
    named = [letter.result_dir, letter.work_dir, letter.log_dir, letter.checkpoint_dir, letter.spool_dir]
    return outermost([*named, str(Path(letter.socket).parent)])


def outermost(paths: Collection[str]) -> list[str]:
    """Without those that lie in another one."""
    known = [PurePosixPath(path) for path in dict.fromkeys(paths)]
    return [str(path) for path in known if not any(other in path.parents for other in known)]


def _mounts(letter: Letter, settings: DockerSettings, *, guarded: bool, with_data: bool) -> list[Mapping[str, Any]]:
    """Everything at the path that it has on the node, so that a path means the same everywhere. ``guarded``: the
    spool's folder is a mount of its own, since what is mounted cannot be renamed by who may write around it."""
    written = [*folders(letter), *([str(Path(letter.spool_dir).parent)] if guarded else [])]
    own = [_bind(path, path, read_only=False) for path in dict.fromkeys(written)]
    data = [_bind(str(settings.data), str(settings.data), read_only=True)] if with_data else []
    return [*(_bind(each.source, each.target, read_only=each.read_only) for each in settings.mounts), *data, *own]


def _bind(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}
