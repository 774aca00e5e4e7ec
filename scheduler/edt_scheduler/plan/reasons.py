"""What a plan changes for each job, and why each job holds what it holds or waits, in words and numbers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Health, ResizeCause
from edt_scheduler.plan.free_slots import FreeSlots, Reach
from edt_scheduler.plan.gangs import Places, whole_cluster
from edt_scheduler.plan.shares import Market, Shares, is_due
from edt_scheduler.plan.sizes import least_of
from edt_scheduler.plan.state import Action, Blocking, Explanation, Job, Node, Phase, State, Verb

_WITH = {None: "", Device.GPU: "with a GPU ", Device.CPU: "with CPU slots "}
_ASKED = {
    None: "",
    Device.GPU: ", and it asks for GPUs (--workerDeviceType gpu)",
    Device.CPU: ", and it asks for CPUs (--workerDeviceType cpu)",
}
_MOST_NAMED = 5
"""So many jobs are named that keep another one from starting."""


@dataclass(frozen=True)
class Situation:
    """What was decided, and with what."""

    state: State
    nodes: Mapping[str, Node]
    targets: Mapping[str, int]
    """Job to its share."""
    alloc: Mapping[str, Mapping[str, int]]
    """Job to the slots that it holds after the plan."""
    until_joined: Mapping[str, Mapping[str, int]]
    """Job to the slots that it keeps besides until an engine on the others has joined."""
    found: Places
    shared: Shares
    market: Market
    short: tuple[Job, ...]
    """Jobs that hold less than their share."""

    @cached_property
    def used(self) -> Mapping[tuple[str, str], int]:
        """(queue, user) to the slots that their jobs have by their shares, as entitlements are reckoned."""
        found: dict[tuple[str, str], int] = {}
        for job in self.state.jobs:
            key = self.market.key(job)
            found[key] = found.get(key, 0) + self.targets[job.id]
        return found

    @cached_property
    def claimants(self) -> int:
        """How many users in queues have jobs that get or want slots."""
        return sum(number > 0 for number in self.market.entitled.values())

    @cached_property
    def highest(self) -> int:
        """The highest priority of a job that has a share."""
        return max((job.priority for job in self.state.jobs if self.targets[job.id]), default=0)

    @cached_property
    def holders(self) -> tuple[Job, ...]:
        """Jobs that have a share, those with the largest first."""
        having = [job for job in self.state.jobs if self.targets[job.id]]
        return tuple(sorted(having, key=lambda job: (-self.targets[job.id], job.submit)))

    @cached_property
    def largest_of(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """(queue, user) to a few of their jobs that have a share, those with the largest first."""
        found: dict[tuple[str, str], tuple[str, ...]] = {}
        for job in self.holders:
            key = self.market.key(job)
            if len(found.get(key, ())) < _MOST_NAMED:
                found[key] = (*found.get(key, ()), job.id)
        return found

    def above(self, priority: int) -> tuple[str, ...]:
        """A few jobs of a higher priority that have a share, those with the largest first."""
        return tuple(islice((job.id for job in self.holders if job.priority > priority), _MOST_NAMED))

    def entitled(self, job: Job) -> int:
        """To how many slots the job's user is entitled in its queue, for all jobs there."""
        return self.market.entitled.get(self.market.key(job), 0)

    def gain(self, job: Job) -> float:
        """What its next slot is worth to a job beside the price."""
        return self.shared.wanted.get(job.id, 0.0) / self.shared.price if self.shared.price else 0.0


def leaves(node: Node) -> bool:
    """Whether everything leaves the node, or is lost with it."""
    return node.health in {Health.DRAINING, Health.LOST}


def change(job: Job, head_node: str | None, situation: Situation) -> Action | None:
    """What changes for a job, with its reason as a code and in words; None if nothing changes."""
    alloc, until_joined = situation.alloc[job.id], situation.until_joined.get(job.id, {})
    if job.phase is Phase.ENDING or (job.phase is Phase.WAITING and not alloc):
        return None
    homed = head_node == job.head_node or job.gang
    if homed and (alloc is job.alloc or dict(alloc) == _held(job)) and dict(until_joined) == dict(job.until_joined):
        return None
    verb, cause, reason = _what(job, alloc, until_joined, situation)
    share, entitled, gain = situation.targets[job.id], situation.entitled(job), situation.gain(job)
    numbers = {"share": float(share), "entitled": float(entitled), "gain": round(gain, 3)}
    return Action(job.id, verb, job.held, sum(alloc.values()), reason, cause, numbers)


def _held(job: Job) -> dict[str, int]:
    return {node: slots for node, slots in job.alloc.items() if slots}


def _what(
    job: Job, alloc: Mapping[str, int], until_joined: Mapping[str, int], situation: Situation
) -> tuple[Verb, ResizeCause, str]:
    """What is done to a job, why, and the reason in words."""
    if job.phase is Phase.WAITING:
        cause = ResizeCause.RESTART if job.attempts else ResizeCause.SUBMIT
        return Verb.START, cause, f"attempt {job.attempts + 1}" if job.attempts else "first attempt"
    if job.paused is not None:
        return Verb.PAUSE, ResizeCause.PAUSE, job.paused
    nodes, held = situation.nodes, _held(job)
    emptied = sorted(node for node in held if leaves(nodes[node]))
    if not alloc and (not emptied or (len(emptied) < len(held) and not job.gang)):
        return Verb.PREEMPT, *_takers(job, situation)
    if not alloc:
        return Verb.MOVE, ResizeCause.DRAIN, _emptied(emptied, nodes)
    if bool(until_joined) != bool(job.until_joined):
        return _relocation(job, alloc, until_joined, nodes)
    return _resize(job, alloc, held, situation)


def _relocation(
    job: Job, alloc: Mapping[str, int], until_joined: Mapping[str, int], nodes: Mapping[str, Node]
) -> tuple[Verb, ResizeCause, str]:
    """A job gets slots elsewhere and keeps its own for now, or leaves those that it has kept."""
    left = until_joined or job.until_joined
    emptying = any(leaves(nodes[node]) for node in left)
    cause = ResizeCause.DRAIN if emptying else ResizeCause.COMPACT
    why = _emptied(sorted(left), nodes) if emptying else "jobs then lie on fewer nodes"
    if until_joined:
        return Verb.RELOCATE, cause, why
    return Verb.LEAVE, cause, f"its engines on {', '.join(sorted(alloc))} have joined: {why}"


def _resize(
    job: Job, alloc: Mapping[str, int], held: Mapping[str, int], situation: Situation
) -> tuple[Verb, ResizeCause, str]:
    before, after, nodes = job.held, sum(alloc.values()), situation.nodes
    emptied = sorted(node for node in held if leaves(nodes[node]))
    if dict(alloc) == held:
        return Verb.HAND_OVER, ResizeCause.DRAIN, f"{job.head_node} holds no engine of it any more"
    if emptied:
        return Verb.SHRINK if after < before else Verb.GROW, ResizeCause.DRAIN, _emptied(emptied, nodes)
    if after < before:
        return Verb.SHRINK, *_takers(job, situation)
    if after == before:
        reason = f"its {_slots(after)} are on {_nodes(len(alloc))} now, and were on {_nodes(len(held))}"
        return Verb.GATHER, ResizeCause.COMPACT, reason
    return Verb.GROW, ResizeCause.SLOTS_FREE, f"{_slots(after - before)} came free"


def _takers(job: Job, situation: Situation) -> tuple[ResizeCause, str]:
    """Why a job gives slots back, and to whom."""
    takers = [other for other in situation.short if other.id != job.id]
    if job.held > job.max:
        return ResizeCause.BOUNDS, f"its most are {_slots(job.max)} now"
    if not takers:
        return ResizeCause.WORTH, "others make more of its slots"
    names = ", ".join(other.id for other in takers[:_MOST_NAMED])
    key = situation.market.key(job)
    foreign = [other for other in takers if situation.market.key(other) != key]
    if foreign and situation.used.get(key, 0) <= situation.entitled(job) < situation.used.get(key, 0) + job.held:
        where = f" in {job.queue}" if job.queue else ""
        return ResizeCause.RECLAIM, (
            f"{names} of other users or queues are entitled to its slots; its own is entitled to"
            f" {_slots(situation.entitled(job))}{where}"
        )
    if any(other.priority > job.priority for other in takers):
        return ResizeCause.PRIORITY, f"makes room for {names} of a higher priority"
    return ResizeCause.ROOM, f"makes room for {names}"


def _emptied(names: list[str], nodes: Mapping[str, Node]) -> str:
    return f"node {', '.join(names)} is {nodes[names[0]].health}"


def explain(
    jobs: list[Job], situation: Situation, left: FreeSlots, reach: Callable[[Job], Reach]
) -> dict[str, Explanation]:
    """Explain every job: its share and its reason; for a waiting job also its rank and what it lacks.

    Args:
        jobs: all jobs that are not over, in submit order, as they are after the plan.
        situation: what was decided.
        left: the slots that are free after the plan.
        reach: the nodes that a job can use.
    """
    free, nodes = left.total, situation.nodes
    up = _Up.of(nodes)
    price = situation.shared.price
    explained = {}
    told: dict[tuple[object, ...], _Obstacle] = {}
    ranks: dict[str, int] = {}
    queue = [job for job in jobs if job.phase is Phase.WAITING and not situation.alloc[job.id] and job.paused is None]
    queue.sort(key=lambda job: (-job.priority, job.submit))
    for rank, job in enumerate(queue, 1):
        ranks[job.id] = rank
    confined = any(node.alone or node.fixed for node in nodes.values())
    for job in jobs:
        target, held = situation.targets[job.id], sum(situation.alloc[job.id].values())
        entitled = situation.entitled(job)
        if held or job.phase is not Phase.WAITING:
            reason = "ends" if job.phase is Phase.ENDING or not held else _holds(job, held, target)
            if confined and held < target and not left.room(reach(job)) and _confined(reach(job), nodes):
                reason += ", no slot that its engines can reach is free"
            if job.cap is not None and held:
                reason += f", kept at {_slots(job.max)} for now: its joining engines could not get the weights"
            gain = situation.gain(job)
            explained[job.id] = Explanation(target, 0, 0, free, None, reason, entitled, gain, price)
            continue
        need = job.max if job.gang else least_of(job)
        if job.paused is not None:
            reason = f"{job.paused}; `edt resume` lets it go on"
            explained[job.id] = Explanation(target, 0, need, free, Blocking.PAUSED, reason, entitled)
            continue
        alike = _alike(job, target)
        if alike is None or alike not in told:
            obstacle = _obstacle(job, target, situation, left, up)
            if alike is not None:
                told[alike] = obstacle
        blocking, reason, by = obstacle if alike is None else told[alike]
        explained[job.id] = Explanation(target, ranks[job.id], need, free, blocking, reason, entitled, 0.0, price, by)
    return explained


def _alike(job: Job, target: int) -> tuple[object, ...] | None:
    """What a waiting job's obstacle depends on, so that it is put into words once for jobs that are alike; None: it is
    a gang, or something of its own keeps it from starting.
    """
    if job.gang or job.locked is not None or job.after or job.not_before is not None:
        return None
    return job.queue, job.user, job.priority, least_of(job), job.image, job.device, job.models, bool(target)


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


_Obstacle = tuple[Blocking, str, tuple[str, ...]]
"""What keeps a job from starting, in words, and which jobs do."""


def _obstacle(job: Job, target: int, situation: Situation, left: FreeSlots, cluster: _Up) -> _Obstacle:
    if job.locked is not None:
        return Blocking.KEY, f"its environment cannot be opened: {job.locked}", ()
    if job.after:
        return Blocking.DEPENDENCY, f"{_list(job.after)} must be over before it starts", job.after
    if not is_due(job, situation.state.now):
        return Blocking.COOLDOWN, "its last attempt failed or was lost; the next one follows after a back-off", ()
    if not cluster.slots:
        return Blocking.NODES, _no_node(job), ()
    if job.image is not None and not cluster.in_containers:
        return Blocking.NODES, f"its image {job.image} needs a node that starts containers, and none is up", ()
    if job.gang:
        return _obstacle_of_gang(job, situation, left, cluster)
    kept_for = situation.found.reserved_for
    if kept_for is not None and (target or not any(_beside(node, situation) for node in situation.nodes.values())):
        return Blocking.RESERVED, f"the slots that it could begin on are kept for {kept_for}", (kept_for,)
    if target and least_of(job) > 1:
        return Blocking.VACATING, f"needs {_slots(least_of(job))} at once, and they are still being vacated", ()
    if target:
        return Blocking.VACATING, "its slot is still being vacated", ()
    return _no_share(job, situation, cluster)


def _beside(node: Node, situation: Situation) -> bool:
    """Whether a job may begin on a node, beside what is reserved there."""
    return node.health is Health.UP and situation.found.beside.get(node.id, 1) > 0


def _no_node(job: Job) -> str:
    if job.models:
        return f"no node with a GPU {_list(job.models, 'or')} takes work, and it asks for one (--gpu-model)"
    return f"no node {_WITH[job.device]}takes work{_ASKED[job.device]}"


def _no_share(job: Job, situation: Situation, cluster: _Up) -> _Obstacle:
    """Why an elastic job has no share."""
    up, in_containers = cluster.slots, cluster.in_containers
    slots = in_containers if job.image is not None else up
    least = least_of(job)
    if least > slots:
        return Blocking.CAPACITY, f"needs {_slots(least, job.device)} at once, the cluster has {slots}", ()
    limited = situation.market.limited(job)
    if limited is not None and _used_in(limited[0], situation) + least > limited[1]:
        which = f"queue {limited[0]}" if limited[0] else "the root queue"
        return Blocking.QUOTA, f"{which} has its limit of {_slots(limited[1])}", ()
    key, holders = situation.market.key(job), situation.holders
    used, entitled = situation.used.get(key, 0), situation.entitled(job)
    if situation.claimants > 1 and used + least > entitled:
        where = f" in {job.queue}" if job.queue else ""
        reason = f"its user has {used} of the {_slots(entitled)} that it is entitled to{where}, and no others are free"
        return Blocking.QUOTA, reason, situation.largest_of.get(key, ())
    if situation.highest > job.priority:
        above = situation.above(job.priority)
        return Blocking.PRIORITY, f"{_list(above)} of a higher priority come first", above
    names = tuple(other.id for other in holders[:_MOST_NAMED])
    if least > 1:
        return Blocking.CAPACITY, f"needs {_slots(least, job.device)} at once, and others share them", names
    if job.image is not None and in_containers < up:
        return Blocking.CAPACITY, all_shared(in_containers, job.device, " that start containers"), names
    return Blocking.CAPACITY, all_shared(up, job.device), names


def _used_in(queue: str, situation: Situation) -> int:
    """The slots that jobs in a queue and below it have by their shares."""
    return sum(n for (path, _), n in situation.used.items() if path == queue or path.startswith(f"{queue}/"))


def _list(names: tuple[str, ...], last: str = "and") -> str:
    """Names in a sentence."""
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else "others"


def all_shared(number: int, device: Device | None = None, which: str = "") -> str:
    """Says that other jobs have all slots.

    Args:
        number: how many slots these are.
        device: their kind, if only that kind counts for the job.
        which: what kind of slots they are besides.
    """
    return f"all {_slots(number, device)}{which} are shared by jobs that run or came before it"


def _obstacle_of_gang(job: Job, situation: Situation, left: FreeSlots, cluster: _Up) -> _Obstacle:
    found = situation.found
    need, kept = _need(job), found.awaited.get(job.id)
    if kept:
        free = sum(min(number, left[name]) for name, number in kept.items())
        vacated = f"{_are(job.max - free)} being vacated"
        said = f"{need}, {_are(free)} free and {vacated}" if free else f"{need}, {vacated}"
        return Blocking.VACATING, said, ()
    total, most = cluster.whole(job.unit, in_containers=job.image is not None)
    if total < job.max:
        where = "the nodes that start containers have" if job.image is not None else "the cluster has"
        return Blocking.CAPACITY, f"{need}, {where} {total}", ()
    if most < job.max:
        said = f"{need}, the nodes have room for {most} of them even when nothing else runs"
        return Blocking.TOPOLOGY, said, ()
    if job.id in found.allowed:
        said = f"{need}, its user or queue is entitled to {found.allowed[job.id]} more"
        return Blocking.QUOTA, said, ()
    running = tuple(islice((other.id for other in situation.holders if other.gang), _MOST_NAMED))
    room = found.room.get(job.id, 0)
    if found.reserved_for is not None and found.reserved_for != job.id and _fits_but_for(job, situation):
        said = f"{need}, slots are kept for {found.reserved_for}, which waits for longer"
        return Blocking.RESERVED, said, (found.reserved_for,)
    return Blocking.CAPACITY, f"{need}, jobs that run or came before it leave {room}", running


def _fits_but_for(job: Job, situation: Situation) -> bool:
    """Whether a gang would have room enough, were there no reservation."""
    found = situation.found
    return found.room.get(job.id, 0) + sum(found.reserved.values()) >= job.max


def _need(job: Job) -> str:
    """What a gang needs, in words."""
    need = f"needs {_slots(job.max, job.device)} at once"
    if job.unit == 1 or job.max == 1:
        return need
    if job.unit == job.max:
        return f"{need} on one node"
    return f"{need} ({job.max // job.unit} workers of {_slots(job.unit)}, each on one node)"


def _nodes(number: int) -> str:
    return "one node" if number == 1 else f"{number} nodes"


def _are(number: int) -> str:
    return f"{number} is" if number == 1 else f"{number} are"


def _slots(number: int, device: Device | None = None) -> str:
    kind = f"{device.upper()} " if device is not None else ""
    return f"{number} {kind}slot" if number == 1 else f"{number} {kind}slots"
