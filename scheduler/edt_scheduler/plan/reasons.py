"""What a plan changes for each job, and why each job holds what it holds or waits, in words and numbers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Health
from edt_scheduler.plan.free_slots import FreeSlots, Reach
from edt_scheduler.plan.gangs import Places, whole_cluster
from edt_scheduler.plan.shares import is_due
from edt_scheduler.plan.state import Action, Blocking, Explanation, Job, Node, Phase, Verb

_WITH = {None: "", Device.GPU: "with a GPU ", Device.CPU: "with CPU slots "}
_ASKED = {
    None: "",
    Device.GPU: ", and it asks for GPUs (--workerDeviceType gpu)",
    Device.CPU: ", and it asks for CPUs (--workerDeviceType cpu)",
}


def leaves(node: Node) -> bool:
    """Whether everything leaves the node, or is lost with it."""
    return node.health in {Health.DRAINING, Health.LOST}


def change(
    job: Job, alloc: Mapping[str, int], head_node: str | None, short: tuple[str, ...], nodes: Mapping[str, Node]
) -> Action | None:
    """What changes for a job, with its reason in words; None if nothing changes.

    ``short``: jobs that hold less than their share.
    """
    held = {node: slots for node, slots in job.alloc.items() if slots}
    before, after = job.held, sum(alloc.values())
    stays = dict(alloc) == held and (head_node == job.head_node or job.gang)
    if job.phase is Phase.ENDING or stays:
        return None
    if job.phase is Phase.WAITING:
        return Action(job.id, Verb.START, before, after, f"starts on {_slots(after)}") if after else None
    emptied = sorted(node for node in held if leaves(nodes[node]))
    if job.paused is not None:
        return Action(job.id, Verb.PAUSE, before, after, job.paused)
    if not alloc and not emptied:
        return Action(job.id, Verb.PREEMPT, before, after, _entitled(job, short))
    if not alloc:
        return Action(job.id, Verb.MOVE, before, after, _emptied(emptied, nodes))
    if dict(alloc) == held:
        return Action(job.id, Verb.HAND_OVER, before, after, f"{job.head_node} holds no engine of it any more")
    if emptied:
        verb = Verb.SHRINK if after < before else Verb.GROW
        return Action(job.id, verb, before, after, _emptied(emptied, nodes))
    if after < before:
        takers = ", ".join(other for other in short if other != job.id)
        return Action(job.id, Verb.SHRINK, before, after, f"makes room for {takers or 'others'}")
    return Action(job.id, Verb.GROW, before, after, f"{_slots(after - before)} came free")


def _entitled(job: Job, short: tuple[str, ...]) -> str:
    takers = ", ".join(other for other in short if other != job.id)
    return f"its slots belong to {takers or 'others'} by quota or share"


def _emptied(names: list[str], nodes: Mapping[str, Node]) -> str:
    return f"node {', '.join(names)} is {nodes[names[0]].health}"


def explain(
    jobs: list[Job],
    alloc: Mapping[str, Mapping[str, int]],
    targets: Mapping[str, int],
    found: Places,
    left: FreeSlots,
    reach: Mapping[str, Reach],
    nodes: Mapping[str, Node],
    now: float,
) -> dict[str, Explanation]:
    """Explain every job: its share and its reason; for a waiting job also its rank and what it lacks.

    Args:
        jobs: all jobs that are not over, in submit order, as they are after the plan.
        alloc: job to the slots that it holds after the plan.
        targets: job to its share.
        found: the places of the gangs.
        left: the slots that are free after the plan.
        reach: job to the nodes that it can use.
        nodes: node id to node.
        now: the time of the state, in seconds since the epoch.
    """
    rank, free, up = 0, left.total, _Up.of(nodes)
    explained = {}
    for job in jobs:
        target, held = targets[job.id], sum(alloc[job.id].values())
        if held or job.phase is not Phase.WAITING:
            reason = "ends" if job.phase is Phase.ENDING or not held else _holds(job, held, target)
            if held < target and not left.room(reach[job.id]) and _confined(reach[job.id], nodes):
                reason += ", no slot that its engines can reach is free"
            if job.cap is not None and held:
                reason += f", kept at {_slots(job.max)} for now: its joining engines could not get the weights"
            explained[job.id] = Explanation(target, 0, 0, free, None, reason)
            continue
        if job.paused is not None:
            need = job.max if job.gang else 1
            reason = f"{job.paused}; `edt resume` lets it go on"
            explained[job.id] = Explanation(target, 0, need, free, Blocking.PAUSED, reason)
            continue
        rank += 1
        blocking, reason = _obstacle(job, target, found, left, up, now)
        explained[job.id] = Explanation(target, rank, job.max if job.gang else 1, free, blocking, reason)
    return explained


def _holds(job: Job, held: int, target: int) -> str:
    if not job.gang:
        return f"holds {_slots(held)} of its share {target}"
    if held < job.max:
        return f"holds {held} of its {_slots(job.max)}, the others have finished"
    return f"holds its {_slots(held)}"


def _confined(reach: Reach, nodes: Mapping[str, Node]) -> bool:
    """Whether the job's engines cannot reach some node that takes work."""
    return any(node.health is Health.UP and not reach.may_begin_on(node) for node in nodes.values())


@dataclass(frozen=True)
class _Up:
    """The slots of nodes that are up."""

    slots: int
    in_containers: int
    nodes: Mapping[str, Node]
    known: dict[tuple[int, bool], tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Mapping[str, Node]) -> _Up:
        up = [node for node in nodes.values() if node.health is Health.UP]
        return cls(sum(node.slots for node in up), sum(node.slots for node in up if node.containers), nodes)

    def whole(self, unit: int, *, in_containers: bool) -> tuple[int, int]:
        """All slots, and how many of them one gang could have if nothing else ran."""
        if (unit, in_containers) not in self.known:
            self.known[unit, in_containers] = whole_cluster(self.nodes, unit, in_containers=in_containers)
        return self.known[unit, in_containers]


def _obstacle(job: Job, target: int, found: Places, left: FreeSlots, cluster: _Up, now: float) -> tuple[Blocking, str]:
    up, in_containers = cluster.slots, cluster.in_containers
    if job.locked is not None:
        return Blocking.KEY, f"its environment cannot be opened: {job.locked}"
    if not is_due(job, now):
        return Blocking.COOLDOWN, "its last attempt failed or was lost; the next one follows after a back-off"
    if not up:
        return Blocking.NODES, f"no node {_WITH[job.device]}takes work{_ASKED[job.device]}"
    if job.image is not None and not in_containers:
        return Blocking.NODES, f"its image {job.image} needs a node that starts containers, and none is up"
    if job.gang:
        return _obstacle_of_gang(job, found, left, cluster)
    if target:
        return Blocking.VACATING, "its slot is still being vacated"
    if job.image is not None and in_containers < up:
        return Blocking.CAPACITY, all_shared(in_containers, job.device, " that start containers")
    return Blocking.CAPACITY, all_shared(up, job.device)


def all_shared(number: int, device: Device | None = None, which: str = "") -> str:
    """Says that other jobs have all slots.

    Args:
        number: how many slots these are.
        device: their kind, if only that kind counts for the job.
        which: what kind of slots they are besides.
    """
    return f"all {_slots(number, device)}{which} are shared by jobs that run or came before it"


def _obstacle_of_gang(job: Job, found: Places, left: FreeSlots, cluster: _Up) -> tuple[Blocking, str]:
    """What keeps a gang from starting, for which nodes are up."""
    need, kept = _need(job), found.awaited.get(job.id)
    if kept:
        free = sum(min(number, left[name]) for name, number in kept.items())
        vacated = f"{_are(job.max - free)} being vacated"
        return Blocking.VACATING, f"{need}, {_are(free)} free and {vacated}" if free else f"{need}, {vacated}"
    total, most = cluster.whole(job.unit, in_containers=job.image is not None)
    if total < job.max:
        where = "the nodes that start containers have" if job.image is not None else "the cluster has"
        return Blocking.CAPACITY, f"{need}, {where} {total}"
    if most < job.max:
        return Blocking.CAPACITY, f"{need}, the nodes have room for {most} of them even when nothing else runs"
    room = found.room.get(job.id, 0)
    return Blocking.CAPACITY, f"{need}, jobs that run or came before it leave {room}"


def _need(job: Job) -> str:
    """What a gang needs, in words."""
    need = f"needs {_slots(job.max, job.device)} at once"
    if job.unit == 1 or job.max == 1:
        return need
    if job.unit == job.max:
        return f"{need} on one node"
    return f"{need} ({job.max // job.unit} workers of {_slots(job.unit)}, each on one node)"


def _are(number: int) -> str:
    return f"{number} is" if number == 1 else f"{number} are"


def _slots(number: int, device: Device | None = None) -> str:
    kind = f"{device.upper()} " if device is not None else ""
    return f"{number} {kind}slot" if number == 1 else f"{number} {kind}slots"
