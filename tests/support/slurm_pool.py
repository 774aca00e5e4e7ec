"""A pool of Slurm's nodes beside a platform of a test, with real agents."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import sys

from edt_contract.processes import descendants
from support.pools import Provisioner
from support.running_platform import Platform
from support.slurm_cluster import SlurmOnThisMachine

_OF_THE_PLATFORM = ("PYTHONPATH", "GLOO_SOCKET_IFNAME", "EDT_TAG", "EDT_GRACE_SECONDS")
"""What nodes of a test need of its platform's environment: on a cluster an administrator writes such a file."""

_numbers = itertools.count(1)


class SlurmPool(Provisioner):
    """``python -m edt_provisioner slurm``. Each node takes a whole machine of the Slurm's partition ``low``.

    Args:
        platform: the platform that gets the pool.
        slurm: the Slurm.
        environ: EDT_* settings.
    """

    def __init__(self, platform: Platform, slurm: SlurmOnThisMachine, **environ: str) -> None:
        self.slurm = slurm
        prologue = platform.folder / "prologue.sh"
        given = {name: platform.environ[name] for name in _OF_THE_PLATFORM if name in platform.environ}
        given |= {"EDT_AGENT_HOST": "127.0.0.1", "EDT_AGENT_POLL_SECONDS": "1"}
        prologue.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in given.items()))
        settings = {
            "EDT_POOL": f"slurm{next(_numbers)}",  # what is set for a pool is kept, so each has its own
            "EDT_SLURM_PROLOGUE": str(prologue),
            "EDT_SLURM_PYTHON": sys.executable,
            "EDT_SLURM_PARTITIONS": "low",
            "EDT_SLURM_CPUS": "4",
            "EDT_SLURM_TIMEOUT_SECONDS": "2",
            "EDT_POOL_MAX_NODES": "3",
            "EDT_POOL_PATIENCE_SECONDS": "60",
            "EDT_POOL_IDLE_SECONDS": "2",
        }
        super().__init__(platform, "slurm", SLURM_CONF=str(slurm.conf), **{**settings, **environ})

    def __enter__(self) -> SlurmPool:
        super().__enter__()
        return self

    def job(self, node: str) -> str:
        """The number of a node's job, as ``array_index``."""
        for path in (self.platform.home / "pools" / self.pool).glob("*/nodes.json"):
            given = json.loads(path.read_text())
            if node in given["nodes"]:
                return f"{given['job']}_{given['nodes'].index(node)}"
        raise AssertionError(f"no job is {node}")

    def machine(self, node: str) -> str:
        """The machine that a node's job has."""
        return self.slurm.run("squeue", "--noheader", f"--jobs={self.job(node)}", "--format=%N")

    def said(self, node: str) -> str:
        """What a node's job has written."""
        for path in (self.platform.home / "pools" / self.pool).glob("*/nodes.json"):
            given = json.loads(path.read_text())
            if node in given["nodes"]:
                output = path.with_name(f"{given['nodes'].index(node)}.log")
                return output.read_text(errors="replace") if output.exists() else ""
        return ""

    def init(self, node: str) -> int:
        """pid of the first process of a node."""
        found = self.platform.processes(EDT_NAME=node)
        return next(pid for pid, command in found.items() if "edt_agent.temporary" in command and "srun" not in command)

    def kill_agent(self, node: str) -> int:
        """Kill a node's agent under its first process; returns its pid."""
        living = self.platform.processes(EDT_NAME=node)
        agents = [pid for pid in descendants(self.init(node)) if living.get(pid, "").endswith("-m edt_agent")]
        os.kill(agents[0], signal.SIGKILL)
        return agents[0]
