"""Changes of a state, as data: what somebody may ask "what if" about, and what an answer may suggest. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from edt_scheduler.errors import ChangeInvalid
from edt_scheduler.model.nodes import Device
from edt_scheduler.model.queues import belongs_to
from edt_scheduler.model.states import Health
from edt_scheduler.plan.carrying import with_free, without
from edt_scheduler.plan.queues import Queue, Sharing
from edt_scheduler.plan.state import Job, Node, Phase, State

NEW = "new"
"""The id of a job that nobody has submitted."""
ANY = "any"
"""Either kind of slots, where a change says so."""


@dataclass(frozen=True)
class MoreSlots:
    """A further node with free slots, which reaches all others."""

    kind: ClassVar[str] = "more-slots"
    slots: int
    device: Device | None = None
    """Kind of its slots; None: GPUs if some node has any."""
    model: str = ""
    """Model of its GPUs, in lower case; "": that of most GPUs here."""
    containers: bool | None = None
    """Whether it starts containers; None: as most nodes of its kind do."""


@dataclass(frozen=True)
class NodeLess:
    """A node is taken away, as if it were lost."""

    kind: ClassVar[str] = "node-less"
    node: str


@dataclass(frozen=True)
class NodeOpened:
    """A cordoned or draining node takes work again."""

    kind: ClassVar[str] = "node-opened"
    node: str


@dataclass(frozen=True)
class JobWith:
    """A job asks for something else. What is None stays."""

    kind: ClassVar[str] = "job"
    job: str
    max: int | None = None
    """The most slots; of a gang all of them."""
    min: int | None = None
    priority: int | None = None
    device: str | None = None
    """``gpu``, ``cpu``, or ``any``."""
    models: tuple[str, ...] | None = None
    """The only models of GPUs that it takes; empty: any."""
    image: bool | None = None
    """False: it brings no image."""


@dataclass(frozen=True)
class JobStopped:
    """A job is over, and its slots are free."""

    kind: ClassVar[str] = "job-stopped"
    job: str


@dataclass(frozen=True)
class JobResumed:
    """A paused job goes on."""

    kind: ClassVar[str] = "job-resumed"
    job: str


@dataclass(frozen=True)
class QueueWith:
    """A queue has other numbers. What is None stays."""

    kind: ClassVar[str] = "queue"
    queue: str
    quota: int | None = None
    limit: int | None = None
    unlimited: bool = False
    """Whether its limit is taken away."""
    weight: float | None = None
    policy: Sharing | None = None


@dataclass(frozen=True)
class NewJob:
    """One more job. Its id is ``NEW``, and its place is behind all others."""

    kind: ClassVar[str] = "new-job"
    max: int
    min: int = 1
    gang: bool = False
    unit: int = 1
    """Slots of one worker of a gang, which are all on one node."""
    priority: int = 1
    queue: str = ""
    user: str = ""
    device: Device | None = None
    models: tuple[str, ...] = ()
    image: bool = False
    after: tuple[str, ...] = ()
    deadline: float | None = None
    time_limit: float | None = None
    """For how many seconds it may train; None: for as long as it takes."""
    sizes: tuple[int, ...] = ()
    """The only numbers of slots that it may have, smallest first; empty: those that suit its steps."""


Change = MoreSlots | NodeLess | NodeOpened | JobWith | JobStopped | JobResumed | QueueWith | NewJob


def changed(state: State, *changes: Change) -> State:
    """The state with all changes, one after the other.

    Raises:
        ChangeInvalid: a change names something that is not there, or asks for what cannot be.
    """
    for change in changes:
        match change:
            case MoreSlots():
                state = _with_node(state, change)
            case NodeLess(name):
                state = _with_health(state, name, Health.LOST)
            case NodeOpened(name):
                state = _opened(state, name)
            case JobWith():
                state = _with_job(state, _job(_found(state, change.job), change))
            case JobStopped(name):
                state = without(state, {_found(state, name).id})
            case JobResumed(name):
                state = _with_job(state, _resumed(_found(state, name)))
            case QueueWith():
                state = _with_queue(state, change)
            case NewJob():
                state = _with_new(state, change)
    return state


def _found(state: State, name: str) -> Job:
    for job in state.jobs:
        if job.id == name:
            return job
    raise ChangeInvalid("job", f"{name!r} is no job that waits or runs")


def _with_job(state: State, job: Job) -> State:
    return replace(state, jobs=tuple(job if each.id == job.id else each for each in state.jobs))


def _node(state: State, name: str) -> Node:
    for node in state.nodes:
        if node.id == name:
            return node
    raise ChangeInvalid("node", f"there is no node {name!r}")


def _with_health(state: State, name: str, health: Health) -> State:
    node = replace(_node(state, name), health=health)
    return replace(state, nodes=tuple(node if each.id == name else each for each in state.nodes))


def _opened(state: State, name: str) -> State:
    health = _node(state, name).health
    if health is Health.LOST:
        raise ChangeInvalid("node", f"{name} is lost: it takes work again when it is heard from")
    return _with_health(state, name, Health.UP)


def _with_node(state: State, change: MoreSlots) -> State:
    """The state with one more node."""
    device = change.device or usual_device(state)
    alike = [node for node in state.nodes if node.device is device]
    model = change.model or usual_model(state, device)
    containers = change.containers
    if containers is None:
        containers = 2 * sum(node.containers for node in alike) > len(alike)
    taken = {node.id for node in state.nodes}
    name = next(name for number in range(1, len(taken) + 2) if (name := f"new-{number}") not in taken)
    added = Node(
        name, change.slots, change.slots, Health.UP, containers=containers, device=device, model=model if model else ""
    )
    return replace(state, nodes=(*state.nodes, added))


def usual_device(state: State) -> Device:
    """GPUs if some node has any, else CPU stand-ins."""
    return Device.GPU if any(node.device is Device.GPU for node in state.nodes) else Device.CPU


def usual_model(state: State, device: Device) -> str:
    """The model of most slots of this kind; "": they have none."""
    slots = Counter[str]()
    for node in state.nodes:
        if node.device is device:
            slots[node.model] += node.slots
    return max(slots, key=lambda model: (slots[model], model), default="")


def _job(job: Job, change: JobWith) -> Job:
    most = change.max if change.max is not None else job.max
    least = change.min if change.min is not None else job.min
    if job.gang:
        if change.min is not None:
            raise ChangeInvalid("min", f"{job.id} is a gang: it starts with all its slots or waits")
        if most % job.unit:
            raise ChangeInvalid("max", f"got {most}; {job.id} has workers of {job.unit} slots each")
        least = most
    elif least > most:
        raise ChangeInvalid("min", f"got {least}, which is more than its maximum {most}")
    if change.image:
        raise ChangeInvalid("image", "takes false: the job without its image")
    return replace(
        job,
        max=most,
        min=least,
        priority=change.priority if change.priority is not None else job.priority,
        device=job.device if change.device is None else None if change.device == ANY else Device(change.device),
        models=job.models if change.models is None else tuple(name.lower() for name in change.models),
        image=None if change.image is False else job.image,
    )


def _resumed(job: Job) -> Job:
    if job.paused is None:
        raise ChangeInvalid("job", f"{job.id} is not paused")
    return replace(job, paused=None, not_before=None)


def _with_queue(state: State, change: QueueWith) -> State:
    if change.limit is not None and change.unlimited:
        raise ChangeInvalid("limit", f"got {change.limit} and also that there is none")
    queues = {queue.id: queue for queue in state.queues}
    queue = queues.get(change.queue, Queue(change.queue))
    queues[queue.id] = replace(
        queue,
        quota=change.quota if change.quota is not None else queue.quota,
        limit=None if change.unlimited else change.limit if change.limit is not None else queue.limit,
        weight=change.weight if change.weight is not None else queue.weight,
        policy=change.policy if change.policy is not None else queue.policy,
    )
    return replace(state, queues=tuple(queues.values()))


def _with_new(state: State, change: NewJob) -> State:
    if any(job.id == NEW for job in state.jobs):
        raise ChangeInvalid("changes", "hold more than one new job; one at a time is enough")
    if change.gang and change.max % change.unit:
        raise ChangeInvalid("max", f"got {change.max}; its workers have {change.unit} slots each")
    if not change.gang and change.min > change.max:
        raise ChangeInvalid("min", f"got {change.min}, which is more than its maximum {change.max}")
    submit = max((job.submit for job in state.jobs), default=0) + 1
    job = Job(
        NEW,
        submit,
        change.max,
        Phase.WAITING,
        image="its image" if change.image else None,
        device=change.device,
        gang=change.gang,
        unit=change.unit if change.gang else 1,
        user=change.user,
        queue=belongs_to(change.queue, {queue.id for queue in state.queues}),
        priority=change.priority,
        min=change.max if change.gang else change.min,
        submitted=state.now,
        after=tuple(name for name in change.after if any(each.id == name for each in state.jobs)),
        deadline=change.deadline,
        time_limit=change.time_limit,
        models=change.models,
        allowed=change.sizes,
    )
    return with_free(replace(state, jobs=(*state.jobs, job)))


def said(changes: Sequence[Change]) -> list[str]:
    """What each change says, as a clause: ``edt-7 has priority 2``."""
    return [_said(change) for change in changes]


def _said(change: Change) -> str:
    match change:
        case MoreSlots(slots, device, model):
            kind = model or ("" if device is None else device.upper())
            return f"there is a further node with {number(slots, kind)}"
        case NodeLess(node):
            return f"node {node} is gone"
        case NodeOpened(node):
            return f"node {node} takes work"
        case JobWith(job):
            return f"{job} {' and '.join(_parts(change)) or 'stays as it is'}"
        case JobStopped(job):
            return f"{job} is over"
        case JobResumed(job):
            return f"{job} is resumed"
        case QueueWith(queue):
            return f"{queue_name(queue)} {' and '.join(_queue_parts(change)) or 'stays as it is'}"
        case NewJob():
            size = number(change.max, "" if change.device is None else change.device.upper())
            least = f", at least {change.min}" if change.min > 1 and not change.gang else ""
            how = f"{size} at once" if change.gang else f"up to {size}{least}"
            where = f" in {queue_name(change.queue)}" if change.queue else ""
            return f"there is a new job of {how} with priority {change.priority}{where}"


def queue_name(path: str) -> str:
    """A queue in words."""
    return f"queue {path}" if path else "the root queue"


def _parts(change: JobWith) -> list[str]:
    parts = []
    if change.priority is not None:
        parts.append(f"has priority {change.priority}")
    if change.min is not None:
        parts.append(f"needs {number(change.min)} at least")
    if change.max is not None:
        parts.append(f"takes {number(change.max)} at most")
    if change.device is not None:
        parts.append("takes slots of either kind" if change.device == ANY else f"takes {change.device.upper()} slots")
    if change.models is not None:
        parts.append(f"takes only {' or '.join(change.models)}" if change.models else "takes any model of GPU")
    if change.image is False:
        parts.append("brings no image")
    return parts


def _queue_parts(change: QueueWith) -> list[str]:
    parts = []
    if change.quota is not None:
        parts.append(f"has a quota of {number(change.quota)}")
    if change.limit is not None:
        parts.append(f"has a limit of {number(change.limit)}")
    if change.unlimited:
        parts.append("has no limit")
    if change.weight is not None:
        parts.append(f"has weight {change.weight:g}")
    if change.policy is not None:
        parts.append(f"shares by {change.policy}")
    return parts


def number(slots: int, kind: str = "") -> str:
    """A number of slots, in words."""
    word = "slot" if slots == 1 else "slots"
    return f"{slots} {kind} {word}" if kind else f"{slots} {word}"
