"""What a supervisor is told: which attempt of which job it runs, and which slots the job should hold on its node.

* ``AttemptSpec``: the agent sends it to a new supervisor, once, by pipe. It holds all that the supervisor must know.
* ``DesiredState``: the agent sends it by unix socket, as often as it likes. It names the slots that the job should hold
  on this node now, so sending it twice, or only the newest one, changes nothing.

The scheduler makes both; the API hands them to the agent as ``Assignment``; the agent passes them on to the supervisor.
The files of an attempt that one process writes and another one reads have their names here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from edt_contract.encoding import ContractError, from_json_object, to_json_object

ATTEMPT_FILE = "attempt.json"
"""In a supervisor's spool folder: which process it is, of which attempt, and its socket. The supervisor writes it
before any user code runs; the agent reads it where its own record was lost."""

USAGE_FILE = "usage.json"
"""In a supervisor's spool folder: ``{"time", "engines": {allocation: {"slot", "cpu_seconds", "rss_bytes"}}}``, where
each engine counts with all that it has started. ``time`` is the machine's monotonic clock in seconds. The supervisor
writes it every few seconds; the agent reads it."""

FENCE_FILE = "fence"
"""In a job's checkpoint folder: the lowest fence whose processes may still live, as decimal digits. The scheduler
writes it. A supervisor of an older fence ends itself, and no engine writes a checkpoint under an older one: shared
storage reaches processes that messages cannot reach."""

PROTOCOL = 2
"""Version of the attempt spec. It grows when an older reader would act wrongly on a new spec."""


@dataclass(frozen=True)
class AttemptSpec:
    """One attempt of one job on one node, as its supervisor must know it. It holds secrets and travels only by pipe."""

    job: str
    """Exec id, ``edt-7``."""
    fence: int
    """Number of the attempt. Messages of an attempt with a smaller number are refused."""
    node: str
    """Name of the node this supervisor runs on."""
    framework: str
    """One of ``edt_contract.frameworks``."""
    main: str
    """Path of the user's main script, absolute or relative to ``work_dir``."""
    arguments: tuple[str, ...]
    """The user's own arguments, after the script in ``sys.argv``."""
    work_dir: str
    """Working directory of the user's code."""
    result_dir: str
    """Folder whose files the user takes away."""
    log_dir: str
    """Folder of the job's logs."""
    checkpoint_dir: str
    """Folder of the recovery checkpoints. All nodes of the job see the same one."""
    spool_dir: str
    """This supervisor's own folder: ``attempt.json``, ``reports.jsonl``, engine logs."""
    socket: str
    """Path of the unix socket on which the supervisor receives desired states."""
    environ: Mapping[str, str]
    """What user code sees besides the supervisor's own environment. It may hold secrets."""
    seed: int
    """The job's seed, of which all random streams are made."""
    max_engines: int
    """numWorker x workerDeviceNum: the world size never exceeds it."""
    threads: int
    """Threads that compute one micro-batch: the node's cores / its slots. Fixed at submit, since sums depend on it."""
    cores: int
    """Cores of the node. There are no more loader processes than this."""
    grace_seconds: float
    """Seconds that an engine has to leave before SIGKILL; the time of three steps where that is longer, at most 600."""
    token: str
    """What a process shows to the coordinator."""
    host: str = "127.0.0.1"
    """Address of this node that the job's other nodes can reach. Coordinator and process groups bind to it."""
    driver: str = "fork"
    """``fork``: on the head node (where ``DesiredState.coordinator`` is None) the supervisor also runs the user's main
    script as driver. ``external``: the driver is started by somebody else and connects."""
    last_report_seq: int = 0
    """Number of the last report of this attempt and node that the platform has. Where that report ended a supervisor
    and the attempt is listed all the same, another supervisor is wanted; its reports are numbered from there on."""
    image: str = ""
    """Container image that the user asked for, where nodes start containers; "": the node's own for the framework."""
    protocol: int = PROTOCOL
    """Version of this spec."""

    @classmethod
    def from_json_object(cls, data: Mapping[str, Any]) -> AttemptSpec:
        """The spec that JSON data holds.

        Raises:
            ContractError: it has another protocol's number, or a field is missing or of the wrong type.
        """
        if data.get("protocol", PROTOCOL) != PROTOCOL:
            raise ContractError(f"spec of protocol {data.get('protocol')}, this runner reads {PROTOCOL}")
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


@dataclass(frozen=True)
class DesiredState:
    """What the job should hold on this node now. Without slots its engines leave at the next boundary, and the last one
    writes a checkpoint first."""

    kind: ClassVar[str] = "desired-state"
    fence: int
    """Number of the attempt."""
    slots: tuple[DesiredSlot, ...]
    """The slots that the job should hold here."""
    coordinator: str | None = None
    """``host:port`` of the coordinator on another node. None: this node is the head node, so its supervisor starts the
    coordinator and the driver. It may change during an attempt, when the head node is drained or lost."""
    stop: bool = False
    """The user stops the job: its processes get SIGTERM at once, and SIGKILL after ``grace_seconds``."""
    leaving: tuple[int, ...] = ()
    """Allocations that were asked back and are not yet reported gone. The supervisor answers each with one ENGINE_GONE,
    also one for which it never started a process (kind ``left``): a slot can come and go between two messages."""


@dataclass(frozen=True)
class Assignment:
    """One attempt that a node should be running, as the API hands it to the agent."""

    spec: AttemptSpec
    desired: DesiredState

    def to_json_object(self) -> dict[str, Any]:
        """The assignment as JSON data."""
        return {"spec": to_json_object(self.spec), "desired-state": to_json_object(self.desired)}

    @classmethod
    def from_json_object(cls, data: Mapping[str, Any]) -> Assignment:
        """The assignment that JSON data holds.

        Raises:
            ContractError: a field of one of the two is missing or of the wrong type.
            KeyError: one of the two is missing.
        """
        return cls(AttemptSpec.from_json_object(data["spec"]), from_json_object(DesiredState, data["desired-state"]))
