"""A cluster manager that runs nodes as processes of this machine: to try pools without a cluster, and for tests.

Each node is a process ``python -m edt_agent.temporary`` in a session of its own. What is known of it lies in a file in
EDT_HOME, so the next provisioner finds it. Nodes for which this machine has no room are pending.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from edt_contract.durable import write_whole
from edt_contract.pools import NodeRequest, NodeState, PoolOffer, PoolState, node_token
from edt_provisioner.settings import Nodes, PoolName, Settings, join_token, needs, node_environment, read_settings


class ProcessSettings(Settings):
    """The EDT_PROCESS_POOL_* settings, besides those of all provisioners."""

    model_config = SettingsConfigDict(env_prefix="EDT_")

    pool: PoolName = "process"
    process_pool_room: Nodes = 4
    """How many nodes run at once. More are pending."""
    process_pool_per_job: bool = True
    """Whether each node is for one job, as on Kubernetes, or for any, as on Slurm."""
    process_pool_leave_seconds: Annotated[float, Field(ge=0), needs("a number of seconds from 0")] = 30.0
    """The grace that a node has to leave. 0: it is killed at once."""


class ProcessCluster:
    """Runs nodes as processes of this machine."""

    def __init__(self, settings: ProcessSettings) -> None:
        self._settings = settings
        self._folder = settings.home / "pools" / settings.pool
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tag = hashlib.sha256(os.path.realpath(settings.home).encode()).hexdigest()[:16]
        self._tag = os.environ.get("EDT_TAG") or tag  # the mark of all processes of this home
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def offer(self) -> PoolOffer:
        settings = self._settings
        return PoolOffer(
            kind="process",
            slots=settings.pool_slots,
            max_nodes=settings.pool_max_nodes,
            min_nodes=0 if settings.process_pool_per_job else settings.pool_min_nodes,
            per_job=settings.process_pool_per_job,
            device=settings.pool_device,
            model=settings.pool_model,
            patience_seconds=settings.pool_patience_seconds,
            idle_seconds=settings.pool_idle_seconds,
            note="nodes are processes of the provisioner's machine",
        )

    def nodes(self) -> list[NodeState]:
        found = []
        running = 0
        for name, known in self._known().items():
            if "pid" in known and _lives(known):
                running += 1
                found.append(NodeState(name, PoolState.RUNNING))
            elif "pid" in known and self._kill_left(name):
                found.append(NodeState(name, PoolState.RUNNING))  # until nothing of it is left
            elif "pid" in known:
                found.append(NodeState(name, PoolState.ENDED, self._how(name)))
        for name, known in self._known().items():
            if "pid" in known:
                continue
            if running < self._settings.process_pool_room:
                self._start(name, known)
                running += 1
                found.append(NodeState(name, PoolState.RUNNING))
            else:
                words = f"this machine has room for {self._settings.process_pool_room} nodes, and {running} run"
                found.append(NodeState(name, PoolState.PENDING, words))
        return found

    def create(self, requests: Sequence[NodeRequest]) -> list[NodeState]:
        for request in requests:
            path = self._path(request.node)
            if not path.exists():
                self._write(path, {"environ": node_environment(request, self._settings)})
        return []

    def end(self, nodes: Collection[str]) -> None:
        for name, known in self._known().items():
            if name not in nodes:
                continue
            if "pid" in known and _lives(known):
                graceful = self._settings.process_pool_leave_seconds > 0
                _signal(known, signal.SIGTERM if graceful else signal.SIGKILL)
                continue  # it is removed once it has ended
            self._path(name).unlink(missing_ok=True)
            self._token(name).unlink(missing_ok=True)
            self._children.pop(name, None)

    def watch(self, changed: Callable[[], None]) -> None:
        """Nothing to start: processes of this machine are cheap to look at."""

    def close(self) -> None:
        """Nothing to end."""

    def _start(self, name: str, known: dict[str, Any]) -> None:
        settings = self._settings
        write_whole(self._token(name), node_token(join_token(settings), name) + "\n", mode=0o600)
        environ = {key: value for key, value in os.environ.items() if not key.startswith("EDT_")}
        environ |= {key: value for key, value in os.environ.items() if key == "EDT_AGENT_POLL_SECONDS"}
        environ |= {**known["environ"], "EDT_TAG": self._tag}
        environ |= {
            "EDT_TOKEN_FILE": str(self._token(name)),
            "EDT_LEAVE_SECONDS": f"{settings.process_pool_leave_seconds:g}",
        }
        with (self._folder / f"{name}.log").open("ab") as output:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "edt_agent.temporary"],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._children[name] = child
        self._write(self._path(name), {**known, "pid": child.pid, "starttime": _starttime(child.pid)})

    def _kill_left(self, name: str) -> bool:
        """Kill what a node whose first process is dead has left, as a container would be; whether anything was left."""
        marks = {f"EDT_NODE={name}".encode(), f"EDT_TAG={self._tag}".encode()}
        left = False
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with contextlib.suppress(OSError):
                    if marks <= set((folder / "environ").read_bytes().split(b"\0")):
                        os.kill(int(folder.name), signal.SIGKILL)
                        left = True
        return left

    def _how(self, name: str) -> str:
        child = self._children.get(name)
        if child is None or child.poll() is None:
            return "its process is gone"
        if child.returncode < 0:
            return f"its process was ended by signal {-child.returncode}"
        return f"its process ended with status {child.returncode}" if child.returncode else ""

    def _known(self) -> dict[str, dict[str, Any]]:
        for child in self._children.values():
            child.poll()  # a zombie is no node
        found = {}
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(OSError, ValueError):
                found[path.stem] = json.loads(path.read_text())
        return found

    def _path(self, node: str) -> Path:
        return self._folder / f"{node}.json"

    def _token(self, node: str) -> Path:
        return self._folder / f"{node}.token"

    @staticmethod
    def _write(path: Path, known: dict[str, Any]) -> None:
        write_whole(path, json.dumps(known) + "\n", mode=0o600)


def _lives(known: dict[str, Any]) -> bool:
    return known["starttime"] is not None and _starttime(known["pid"]) == known["starttime"]


def _signal(known: dict[str, Any], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            os.killpg(known["pid"], number)
        else:
            os.kill(known["pid"], number)


def _starttime(pid: int) -> int | None:
    """When a process began, in ticks since the boot; None: there is none, or it has ended and was not waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def cluster(arguments: dict[str, str | None]) -> tuple[ProcessSettings, ProcessCluster]:
    """The settings and the cluster manager, for the command."""
    settings = read_settings(ProcessSettings, arguments)
    return settings, ProcessCluster(settings)
