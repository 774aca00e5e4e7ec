"""The messages from the platform to a supervisor: which attempt it runs, and which slots the job should hold here.

* ``AttemptSpec``: the agent sends it to a new supervisor once, through a pipe. It holds everything that the supervisor
  must know.
* ``DesiredState``: the agent sends it over a unix socket, as often as it likes. It names the slots that the job should
  hold on this node now. The agent may send it twice, or send only the newest one, with the same effect.

The scheduler makes both. The API gives them to the agent as an ``Assignment``. The agent sends them to the supervisor.
This module also names the files that one process of an attempt writes and another one reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from edt_contract.encoding import ContractError, from_json_object, to_json_object
from edt_contract.gang import Gang

ATTEMPT_FILE = "attempt.json"
"""File in a supervisor's spool folder with the supervisor's pid and start time, its attempt, and its socket's path. The
supervisor writes it before any user code runs. The agent reads it if it has lost its own record."""

USAGE_FILE = "usage.json"
"""File in a supervisor's spool folder: ``{"time", "engines": {allocation: {"slot", "cpu_seconds", "rss_bytes"}}}``. The
values of an engine include all processes that it has started. ``time`` is the machine's monotonic clock in seconds. The
supervisor writes the file every five seconds; the agent reads it."""

FENCE_FILE = "fence"
"""File in a job's checkpoint folder with the lowest fence whose processes may still live, as decimal digits. The
scheduler writes it. A supervisor with a lower fence ends itself, and an engine with a lower fence writes no checkpoint.
The file is needed because messages may not reach every process that can write to the shared storage."""

PROTOCOL, GANG_PROTOCOL, LIFE_PROTOCOL = 2, 3, 4
"""Versions of the attempt spec: of elastic jobs, of gangs, and of elastic jobs that begin from another job's checkpoint
or have another number of epochs than their script says. A number grows when an older reader would act wrongly on a new
spec. A runner that knows no gangs reads only the first."""


@dataclass(frozen=True)
class AttemptSpec:
    """One attempt of one job on one node. The spec holds secrets, so the agent sends it to the supervisor only through
    a pipe."""

    job: str
    """Exec id, for example ``edt-7``."""
    fence: int
    """Number of the attempt. Messages of an attempt with a smaller number are refused."""
    node: str
    """Name of the node on which this supervisor runs."""
    framework: str
    """Name of a framework in ``edt_contract.frameworks``."""
    main: str
    """Path of the user's main script, absolute or relative to ``work_dir``."""
    arguments: tuple[str, ...]
    """The user's own arguments, after the script in ``sys.argv``."""
    work_dir: str
    """Working directory of the user's code."""
    result_dir: str
    """Folder for the files that the user downloads after the training."""
    log_dir: str
    """Folder of the job's logs."""
    checkpoint_dir: str
    """Folder of the recovery checkpoints. All nodes of the job see the same one."""
    spool_dir: str
    """This supervisor's own folder, with ``attempt.json``, ``reports.jsonl``, ``usage.json``, ``supervisor.log`` and
    the file with the coordinator's address."""
    socket: str
    """Path of the unix socket on which the supervisor receives desired states."""
    environ: Mapping[str, str]
    """Environment variables for user code, in addition to the supervisor's own. The values may be secrets."""
    seed: int
    """The job's seed. All random streams are made from it."""
    max_engines: int
    """numWorker x workerDeviceNum: the largest world size."""
    threads: int
    """Threads that compute one micro-batch: the node's cores / its slots. The number is fixed at submission, because
    the bits of sums depend on it."""
    cores: int
    """Cores of the node, and the largest number of loader processes."""
    grace_seconds: float
    """Seconds that an engine has to leave before SIGKILL. If three steps take longer, the engine has that time, but at
    most 600 s."""
    token: str
    """Secret that a process sends to the coordinator when it connects."""
    host: str = "127.0.0.1"
    """Address at which the job's other nodes can reach this node. Coordinator and process groups bind to it."""
    driver: str = "fork"
    """``fork``: on the head node (where ``DesiredState.coordinator`` is None) the supervisor also runs the user's main
    script as driver. ``external``: another process starts the driver, and the driver connects to the coordinator."""
    last_report_seq: int = 0
    """Number of the last report of this attempt and node that the platform has. If that report ended a supervisor and
    the API still lists the attempt, the agent starts another supervisor, whose reports continue these numbers."""
    image: str = ""
    """Container image that the user asked for; "": the node's own image for the framework. A node that starts processes
    refuses a job with an image."""
    gang: Gang | None = None
    """The gang that the attempt runs; None: an elastic job. ``max_engines`` of a gang is its number of slots."""
    epochs: int = 0
    """The epochs that the training has in all, whatever the script says (``edt extend``); 0: those of the script."""
    begin_from: str = ""
    """Exec id of the job from whose checkpoint the training begins while it has none of its own; "": from none."""
    begin_dir: str = ""
    """Folder with a copy of that checkpoint, below the job's own folder."""
    owner: str = ""
    """The platform's user whose job it is, as the scheduler knows it; a job's own variables may say otherwise. Engines
    of one user share what they have compiled on a node. "": not known."""
    protocol: int = PROTOCOL
    """Version of this spec: GANG_PROTOCOL if ``gang`` is set, LIFE_PROTOCOL if ``epochs`` or ``begin_from`` is."""

    @classmethod
    def from_json_object(cls, data: Mapping[str, Any]) -> AttemptSpec:
        """The spec that JSON data holds.

        Raises:
            ContractError: the spec has another protocol number, or a field is missing or of the wrong type.
        """
        if data.get("protocol", PROTOCOL) not in (PROTOCOL, GANG_PROTOCOL, LIFE_PROTOCOL):
            raise ContractError(f"spec of protocol {data.get('protocol')}, this runner reads up to {LIFE_PROTOCOL}")
        return from_json_object(cls, data)


@dataclass(frozen=True)
class DesiredSlot:
    """One slot that the job should hold."""

    allocation: int
    """Id of the allocation row: the engine's name in every report."""
    slot: str
    """Slot id on the node, ``0``, ``1`` …"""
    device: str = "cpu"
    """``cpu``, or a GPU's UUID, which goes into the engine's CUDA_VISIBLE_DEVICES."""
    ordinal: int = 0
    """Which of the job's allocations it is, over all its attempts and nodes: 1 for the first. 0: not known."""


@dataclass(frozen=True)
class DesiredState:
    """The slots that the job should hold on this node now. If there are none, the job's engines leave at the next
    boundary, and the last engine writes a checkpoint first."""

    kind: ClassVar[str] = "desired-state"
    fence: int
    """Number of the attempt."""
    slots: tuple[DesiredSlot, ...]
    """The slots that the job should hold here."""
    coordinator: str | None = None
    """``host:port`` of the coordinator on another node. None: this node is the head node, so its supervisor starts the
    coordinator and the driver. The value may change during an attempt, when the head node is drained or lost."""
    stop: bool = False
    """The user stops the job: its processes get SIGTERM at once, and SIGKILL after ``grace_seconds``."""
    leaving: tuple[int, ...] = ()
    """Allocations that the platform took back and that are not yet reported gone. The supervisor reports ENGINE_GONE
    once for each. It also does so for an allocation for which it never started an engine (kind ``left``), because the
    platform may give and take back a slot between two messages."""
    ports: tuple[tuple[int, ...], ...] = ()
    """Only for a gang: the ports that its supervisors have reported (PORTS_RESERVED), in the order of ``Gang.nodes``.
    Empty until all of them have: only then the supervisors start the gang's processes."""


@dataclass(frozen=True)
class Assignment:
    """One attempt that a node should run, as the API gives it to the agent."""

    spec: AttemptSpec
    desired: DesiredState

    def to_json_object(self) -> dict[str, Any]:
        """The assignment as JSON data."""
        return {"spec": to_json_object(self.spec), "desired-state": to_json_object(self.desired)}

    @classmethod
    def from_json_object(cls, data: Mapping[str, Any]) -> Assignment:
        """The assignment that JSON data holds.

        Raises:
            ContractError: a field of the spec or of the desired state is missing or of the wrong type.
            KeyError: the spec or the desired state is missing.
        """
        return cls(AttemptSpec.from_json_object(data["spec"]), from_json_object(DesiredState, data["desired-state"]))
