"""The letter: everything that crosses the walls of the runners' room, as plain data.

Room: runners. Touches nothing but the standard library, because the scheduler and the agent import it too.
Three papers travel:

* ``Letter``: agent to supervisor, once, by pipe. All a supervisor must know about one attempt of a job.
* ``Wish``: agent to supervisor, any number of times, by unix socket. The slots that the job should hold on
  this node *now*. It is a level, not an edge: sending it twice, or only the newest one, changes nothing.
* ``Report``: supervisor to agent, numbered without gaps and spooled on disk before it is sent; the agent
  carries it to the API, and the scheduler's store takes each number of an attempt once.

On a socket each message is one JSON object a line. An unknown key is ignored, an unknown kind is refused.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

PROTOCOL = 1
"""Raised when a paper changes so that an older reader would act wrongly on it."""

TAG_VARIABLE = "EDT_TAG"
"""Environment variable that marks every process of one home; read back from /proc when adopting."""

DOORBELL_TASK = "edt.look"
"""Celery task by which the scheduler wakes an agent; arguments: node name, version of its assignments."""

DRAFT_PREFIX = ".draft-"
"""What names of files and folders begin with that are being written beside what a user will take away."""
FENCE_FILE = "fence"
"""In a job's checkpoint folder: the lowest fence that may still live. The scheduler writes it; a supervisor of an
older fence ends itself, and nobody writes a checkpoint under one (shared storage reaches where messages do not)."""

USAGE_FILE = "usage.json"
"""In a supervisor's spool folder, written every few seconds: ``{"time", "engines": {allocation: {"slot",
"cpu_seconds", "rss_bytes"}}}``, of each engine with all that it has started. Time is the machine's monotonic clock."""

BROKER_KEY_PREFIX = "edt:"
"""``global_keyprefix`` of the broker's transport: scheduler and agents must write it alike to hear each other."""


def node_queue(node: str) -> str:
    """The Celery queue on which one node's doorbells arrive."""
    return f"node.{node}"


class ContractError(ValueError):
    """A paper that cannot be read: wrong protocol, missing field, or a field of the wrong type."""


class ExitKind(enum.StrEnum):
    """Why a process or an attempt ended. Each kind has its own rule for what happens next."""

    FINISHED = "finished"  # the training (engine) or the script (driver) came to its end
    LEFT = "left"  # asked to leave, and left at a boundary; the job goes on, here or later
    PULL_FAILED = "pull-failed"  # a newcomer that did not get the weights; the job goes on
    SCRIPT_ERROR = "script-error"  # an exception out of user code, or the user's own exit status
    LOST = "lost"  # ended by something that is not the script's: signal, lost peer, lost node
    STOPPED = "stopped"  # killed on its user's word


class ReportKind(enum.StrEnum):
    """What a supervisor tells. The fields named after each kind are the keys of ``Report.body``; their types and
    ranges stand in ``report_bodies``, where every kind needs an entry."""

    ATTEMPT_STARTED = "attempt-started"  # pid
    COORDINATOR_AT = "coordinator-at"  # address "host:port"; other nodes' supervisors need it
    # engines (the most that can share the work), steps_total, epochs, follows_engines (where the global batch does)
    ENGINES_KNOWN = "engines-known"
    ENGINE_STARTED = "engine-started"  # allocation, slot, pid
    ENGINE_JOINED = "engine-joined"  # allocation, generation, step: member of the group, has the weights
    ENGINE_COUNTED = "engine-counted"  # allocation, step: its first micro-batch is in a committed step
    ENGINE_GONE = "engine-gone"  # allocation, slot, kind (ExitKind), code, signal, seconds, oom, message: seen gone
    PULL_FAILED = "pull-failed"  # allocation, count, limit: a newcomer did not get the weights in time
    RESIZED = "resized"  # generation, step, workers, pause_seconds, joined, left, lost [allocation], recomputed
    PROGRESS = "progress"  # step, steps_total, epoch, epochs, workers, loss, samples_per_second, metrics {}
    CHECKPOINTED = "checkpointed"  # step, path
    # what, why; engine, step, difference where replicas differ: the result is no longer exact
    GUARANTEE_ENDED = "guarantee-ended"
    # step, engines (how many were compared, at least 2), equal (bool), reason ("join", "epoch", "end", "interval")
    REPLICAS_COMPARED = "replicas-compared"
    # place, error ("": it can be written again), seconds, given_up (reports): a disk is full, or not any more
    STORAGE = "storage"
    RESTARTED = "restarted"  # what (driver, coordinator), why, count: a part of the attempt was started again
    # first, why, counts {kind: number}: written by an agent in the place of its number and all before it from ``first``
    REPORTS_LEFT_OUT = "reports-left-out"
    ATTEMPT_ENDED = "attempt-ended"  # kind (ExitKind), code, message, digest, step, whole, failed_step, oom: the last


_T = TypeVar("_T")


def _decode(cls: type[_T], data: Mapping[str, Any]) -> _T:
    """Build dataclass ``cls`` from JSON data; unknown keys are dropped, missing ones named."""
    values: dict[str, Any] = {}
    for spec in dataclasses.fields(cls):  # type: ignore[arg-type]
        if spec.name in data:
            value = data[spec.name]
            values[spec.name] = tuple(value) if isinstance(value, list) else value
        elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
            raise ContractError(f"{cls.__name__}: field {spec.name!r} is missing")
    return cls(**values)


@dataclass(frozen=True)
class Letter:
    """One attempt of one job on one node, as its supervisor must know it. Carries secrets: by pipe only."""

    job: str
    """Exec id, ``edt-7``."""
    fence: int
    """Number of the attempt; late messages of an older one are refused by it."""
    node: str
    """Name of the node this supervisor runs on."""
    framework: str
    """``pytorch`` or ``tensorflow``."""
    main: str
    """Path of the user's main script, absolute or relative to ``work_dir``."""
    arguments: tuple[str, ...]
    """The user's own arguments, after the script in ``sys.argv``."""
    work_dir: str
    """Working directory of the user's code."""
    result_dir: str
    log_dir: str
    checkpoint_dir: str
    """Where recovery checkpoints lie; all nodes of the job see the same folder."""
    spool_dir: str
    """This supervisor's own: ``attempt.json``, ``reports.jsonl``, engine logs."""
    socket: str
    """Path of the unix socket that takes wishes."""
    environ: Mapping[str, str]
    """What user code sees besides the supervisor's own environment. May hold secrets."""
    seed: int
    max_engines: int
    """numWorker x workerDeviceNum: W never exceeds it, nor E."""
    threads: int
    """Threads of one micro-batch: node cores / slots, fixed at submit, part of the result's identity."""
    cores: int
    """Cores of the node; loader processes are capped by them."""
    grace_seconds: float
    """Least time that a leave is given before SIGKILL; three steps where they take longer, at most 600 s."""
    token: str
    """What a process shows to the coordinator."""
    host: str = "127.0.0.1"
    """Address of this node that the job's other nodes can reach; coordinator and data plane bind to it."""
    driver: str = "fork"
    """``fork``: the supervisor that hosts the coordinator (``Wish.coordinator``) also runs the user's main as driver.
    ``external``: the driver connects by itself."""
    heard: int = 0
    """Number of the last report of this attempt and node that the platform has. Where that report was a supervisor's
    last word and the attempt is listed all the same, another supervisor is wanted; its numbers go on from there."""
    image: str = ""
    """Container image that its user asked for, where nodes start containers; "": the node's own for the framework."""
    protocol: int = PROTOCOL

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Letter:
        data = _object(text)
        if data.get("protocol", PROTOCOL) != PROTOCOL:
            raise ContractError(f"letter of protocol {data.get('protocol')}, this runner reads {PROTOCOL}")
        return _decode(cls, data)


@dataclass(frozen=True)
class SlotWish:
    """One slot that the job should hold."""

    allocation: int
    """Id of the allocation row: the engine's name in every report."""
    slot: str
    """Slot id on the node, ``0``, ``1`` …"""
    device: str = "cpu"
    """``cpu`` or what goes into CUDA_VISIBLE_DEVICES for the engine (a GPU's UUID)."""


@dataclass(frozen=True)
class Wish:
    """What the job should hold on this node now. No slots: leave at the next boundary, checkpoint if last."""

    fence: int
    slots: tuple[SlotWish, ...]
    coordinator: str | None = None
    """``host:port`` where another node's supervisor hosts the coordinator; None: host it here, driver included. It may
    change while the attempt lives: the home moves when its node is drained or lost."""
    stop: bool = False
    """The job's user wants it gone: no boundary is awaited, SIGTERM and after ``grace_seconds`` SIGKILL."""
    leaving: tuple[int, ...] = ()
    """Allocations asked back and not yet reported gone. Each is answered by one ENGINE_GONE, also one for which
    no process was ever started here (kind ``left``): between two wishes a slot can come and go unseen."""

    def to_message(self) -> dict[str, Any]:
        return {"kind": "wish", **dataclasses.asdict(self)}

    @classmethod
    def from_message(cls, data: Mapping[str, Any]) -> Wish:
        slots = tuple(_decode(SlotWish, item) for item in data.get("slots", ()))
        return dataclasses.replace(_decode(cls, {**data, "slots": []}), slots=slots)


@dataclass(frozen=True)
class Report:
    """One thing that happened, numbered 1, 2, 3 … by (job, fence, node) without a gap."""

    job: str
    fence: int
    node: str
    seq: int
    kind: ReportKind
    time: float
    """Wall clock of the node, seconds since the epoch; for people to read, never to compare."""
    body: Mapping[str, Any] = field(default_factory=dict)

    def to_message(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_message(cls, data: Mapping[str, Any]) -> Report:
        report = _decode(cls, data)
        try:
            return dataclasses.replace(report, kind=ReportKind(report.kind))
        except ValueError:
            raise ContractError(f"report of unknown kind {report.kind!r}") from None


@dataclass(frozen=True)
class Assignment:
    """One attempt that a node should be running, as the API hands it to the agent."""

    letter: Letter
    wish: Wish

    def to_json_object(self) -> dict[str, Any]:
        return {"letter": dataclasses.asdict(self.letter), "wish": dataclasses.asdict(self.wish)}

    @classmethod
    def from_json_object(cls, data: Mapping[str, Any]) -> Assignment:
        return cls(Letter.from_json(json.dumps(data["letter"])), Wish.from_message(data["wish"]))


def dump_line(message: Mapping[str, Any]) -> bytes:
    """One message as it goes over a stream: compact JSON and a newline. NaN and infinities become null."""
    try:
        text = json.dumps(message, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(message), separators=(",", ":"), allow_nan=False)
    return text.encode() + b"\n"


def load_line(line: bytes) -> dict[str, Any]:
    """The opposite of ``dump_line``. Raises ContractError for anything but a JSON object with a kind."""
    data = _object(line)
    if not isinstance(data.get("kind"), str):
        raise ContractError("a message has no kind")
    return data


def _finite(value: Any) -> Any:
    """The same value with null for each number that JSON does not know; a diverged loss is one."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _object(text: str | bytes) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ContractError("not a JSON object")
    return data
