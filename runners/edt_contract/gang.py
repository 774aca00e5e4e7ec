"""Gangs: the jobs whose number of processes never changes, and what the platform starts for them.

A gang has ``numWorker`` workers. A worker has ``workerDeviceNum`` slots, all on one node; several workers may be on the
same node. All workers start together, or none does. When one process fails, the attempt is over.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Processes(enum.StrEnum):
    """How many processes run a gang's command."""

    DEVICE = "device"  # one for each slot; each process sees the devices of its worker
    WORKER = "worker"  # one for each worker, which sees the worker's devices
    JOB = "job"  # one, for the first worker; it can start processes on the nodes of the others through edt-rsh


class Rendezvous(enum.StrEnum):
    """Groups of environment variables by which the processes of a gang find each other."""

    TORCH = "torch"  # MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, GROUP_RANK
    TENSORFLOW = "tensorflow"  # TF_CONFIG
    MPI = "mpi"  # variables with which Open MPI finds the hosts and edt-rsh


MAIN = "{main}"
"""A word of a command that stands for the path of the job's main script."""
PYTHON = "{python}"
"""A word of a command that stands for the path of the Python interpreter."""


@dataclass(frozen=True)
class GangCommand:
    """What the processes of a gang run. The job keeps a copy, so a later change of its framework does not change it."""

    command: tuple[str, ...]
    """The program and its arguments. MAIN and PYTHON are replaced, and the user's arguments follow."""
    processes: Processes = Processes.WORKER
    rendezvous: tuple[Rendezvous, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    """Variables of the framework. The job's own variables win over them."""
    python_home: str = ""
    """Folder of a Python environment on the nodes, such as ``/opt/conda/envs/ray``: its ``bin`` comes first in PATH.
    "": the environment in which the runner is installed."""


@dataclass(frozen=True)
class GangNode:
    """The part of a gang that one node carries."""

    node: str
    """Name of the node."""
    host: str
    """Address at which the gang's other nodes reach it."""
    allocations: tuple[int, ...]
    """The slots that the gang holds there, in the order of ranks. Each ``Gang.devices`` of them are one worker."""


@dataclass(frozen=True)
class Gang:
    """A gang as it was placed for one attempt."""

    command: GangCommand
    devices: int
    """Slots of a worker."""
    nodes: tuple[GangNode, ...]
    """The nodes in the order of ranks. The first one is the attempt's head node, with rank 0."""
