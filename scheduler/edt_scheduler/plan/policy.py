"""The policy: it computes every job's share, then decides what can be done about the shares now. Pure.

A slot that is being vacated is not free. The job that will get this slot waits until the old process was seen gone. So
each plan takes back at once what a job holds above its share, and gives out only free slots. Jobs whose image needs a
node that starts containers get slots first, since they can use no other node. Then come jobs that start, in submit
order, then running jobs, the smallest first.

Shares count all slots alike, but some jobs cannot use some slots, for example because the job's engines cannot reach a
node. A slot that no job below its share can use is not taken back. While such a slot is free, the plan gives it to a
running job beyond that job's share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from edt_scheduler.model.states import Health
from edt_scheduler.plan.shares import give_back, head_node_of, room_for, shares, sizes_of, take
from edt_scheduler.plan.state import Action, Blocking, Explanation, Job, Node, Phase, Plan, State, Verb


def plan(state: State) -> Plan:
    """Decide what every job should hold now.

    Args:
        state: nodes and jobs at one instant.

    Returns:
        For each job of the state its slots, its action if it has one, its head node and its explanation.
    """
    nodes = {node.id: node for node in state.nodes}
    asked = sorted(state.jobs, key=lambda job: (job.submit, job.id))
    kept = {job.id: _stay(job, nodes) for job in asked}
    jobs = [_fitted(_rehomed(_capped(job, state.now), kept[job.id]), nodes) for job in asked]
    targets = shares([_settled(job, kept[job.id]) for job in jobs], nodes, state.now)
    lacking = sum(_lacking(job, targets[job.id], state.now) for job in jobs)
    held = {name: sum(slots.values()) for name, slots in kept.items()}
    for job in reversed(jobs):
        kept[job.id] = _cleared(job, kept, lacking, nodes)
    cleared = {name for name, slots in kept.items() if sum(slots.values()) < held[name]}
    free = {node.id: node.free for node in state.nodes if node.health is Health.UP}
    alloc: dict[str, Mapping[str, int]] = {}
    wanted = _wanted(jobs, kept, targets, nodes)
    for job in jobs:
        stays = kept[job.id]
        above = max(0, sum(stays.values()) - targets[job.id]) if job.phase is Phase.RUNNING else 0
        alloc[job.id] = _shrunk(job, stays, above, wanted, nodes) if above and stays else stays
    for job in sorted(jobs, key=lambda job: (job.image is None, sum(alloc[job.id].values()), job.submit, job.id)):
        grown = _grow(job, alloc[job.id], targets[job.id], free, nodes, state.now)
        if job.id in cleared:
            grown = _sized(job, grown, nodes)
        for node, number in grown.items():
            if node in free:
                free[node] -= max(0, number - alloc[job.id].get(node, 0))
        alloc[job.id] = grown
    then = [_fitted(_next(job, alloc[job.id]), nodes) for job in jobs]
    wanted = _wanted(then, alloc, targets, nodes)
    _give_rest(then, alloc, {name: slots for name, slots in free.items() if name not in wanted}, free, nodes, state.now)
    short = tuple(job.id for job in jobs if targets[job.id] > job.held)
    head_nodes = {job.id: _head_node(job, alloc[job.id]) for job in jobs if alloc[job.id]}
    actions = tuple(
        action for job in asked if (action := _action(job, alloc[job.id], head_nodes.get(job.id), short, nodes))
    )
    return Plan(alloc, actions, head_nodes, _explain(then, alloc, targets, nodes, free, state.now))


def _stay(job: Job, nodes: Mapping[str, Node]) -> dict[str, int]:
    """What a job keeps of the slots it holds. If nothing is left, the attempt ends and the job starts elsewhere."""
    if job.phase is not Phase.RUNNING:
        return {}
    return {node: slots for node, slots in job.alloc.items() if slots and not _leaves(nodes[node])}


def _rehomed(job: Job, kept: Mapping[str, int]) -> Job:
    """The job with a new head node, if it keeps slots but none of them on its present head node."""
    return replace(job, head_node=head_node_of(kept)) if kept and job.head_node not in kept else job


def _capped(job: Job, now: float) -> Job:
    """The job with its maximum lowered to its cap, as long as the cap lasts."""
    if job.cap is None or job.cap_until is None or job.cap_until <= now:
        return replace(job, cap=None, cap_until=None)
    return replace(job, max=min(job.max, job.cap))


def _fitted(job: Job, nodes: Mapping[str, Node]) -> Job:
    """The job with every node that it cannot use added to the nodes it avoids."""
    there = {name for name in (*job.alloc, *job.leaving) if job.alloc.get(name) or job.leaving.get(name)}
    alone = any(nodes[name].alone for name in there)
    unfit = {
        node.id
        for node in nodes.values()
        if (job.image is not None and not node.containers)
        or (node.fixed and node.id in there)
        or (there and node.id not in there and (alone or node.alone))
    }
    return replace(job, avoid=job.avoid | unfit) if unfit else job


def _cleared(
    job: Job, kept: Mapping[str, Mapping[str, int]], lacking: int, nodes: Mapping[str, Node]
) -> dict[str, int]:
    """What a job without an image keeps when it holds slots that jobs with an image need to start now.

    The job gives back slots on nodes that start containers and may grow again elsewhere. It keeps one slot on its head
    node. ``lacking``: how many jobs with an image could start now.
    """
    left = dict(kept[job.id])
    if job.image is not None:
        return left
    places = [node for node in nodes.values() if node.containers and node.health is Health.UP]
    coming = sum(node.slots - sum(held.get(node.id, 0) for held in kept.values()) for node in places)
    for node in sorted(places, key=lambda node: (node.id == job.head_node, node.id)):
        spare = left.get(node.id, 0) - (1 if node.id == job.head_node else 0)
        taken = max(0, min(spare, lacking - coming))
        left[node.id] = left.get(node.id, 0) - taken
        coming += taken
    return {node: slots for node, slots in left.items() if slots}


def _sized(job: Job, alloc: Mapping[str, int], nodes: Mapping[str, Node]) -> Mapping[str, int]:
    """``alloc`` cut down to one of the job's sizes."""
    size = sum(alloc.values())
    return give_back(job, alloc, size - max(allowed for allowed in sizes_of(job) if allowed <= size), nodes)


def _lacking(job: Job, target: int, now: float) -> bool:
    """Whether the job could start now, if a node that starts containers had a free slot."""
    due = job.not_before is None or job.not_before <= now
    return job.image is not None and job.phase is Phase.WAITING and target > 0 and due


def _next(job: Job, alloc: Mapping[str, int]) -> Job:
    """The job as the next plan would see it: it holds ``alloc``, and its other slots are being vacated."""
    if job.phase is not Phase.RUNNING and not alloc:
        return job
    emptied = {node for node, slots in job.alloc.items() if slots and not alloc.get(node) and node != job.head_node}
    leaving = {node: slots for node, slots in job.leaving.items() if slots}
    leaving |= {node: slots for node, slots in job.alloc.items() if slots > alloc.get(node, 0)}
    phase = Phase.RUNNING if job.phase is Phase.WAITING else job.phase
    return replace(job, phase=phase, alloc=alloc, leaving=leaving, avoid=job.avoid | emptied)


def _wanted(
    jobs: Iterable[Job],
    held: Mapping[str, Mapping[str, int]],
    targets: Mapping[str, int],
    nodes: Mapping[str, Node],
) -> frozenset[str]:
    """The nodes that at least one job below its share can use."""
    short = [job for job in jobs if sum(held[job.id].values()) < targets[job.id]]
    return frozenset(
        node.id
        for node in nodes.values()
        if node.health is Health.UP and any(node.id not in job.avoid for job in short)
    )


def _shrunk(
    job: Job, kept: Mapping[str, int], above: int, wanted: frozenset[str], nodes: Mapping[str, Node]
) -> Mapping[str, int]:
    """``kept`` without up to ``above`` slots on ``wanted`` nodes, cut down to one of the job's sizes."""
    there = {node: slots for node, slots in kept.items() if node in wanted}
    left = {**kept, **dict.fromkeys(there, 0), **give_back(job, there, above, nodes)}
    return _sized(job, {node: slots for node, slots in left.items() if slots}, nodes)


def _give_rest(
    jobs: Sequence[Job],
    alloc: dict[str, Mapping[str, int]],
    rest: dict[str, int],
    free: dict[str, int],
    nodes: Mapping[str, Node],
    now: float,
) -> None:
    """Give the free slots in ``rest`` to running jobs, the smallest first. No job below its share can use them."""
    growing = [job for job in jobs if job.phase is Phase.RUNNING and alloc[job.id]]
    while growing and any(rest.values()):
        job = min(growing, key=lambda job: (sum(alloc[job.id].values()), job.submit, job.id))
        before = alloc[job.id]
        larger = min((allowed for allowed in sizes_of(job) if allowed > sum(before.values())), default=0)
        grown = _grow(job, before, larger, rest, nodes, now)
        if grown == before:
            growing.remove(job)
            continue
        for node, number in grown.items():
            if taken := number - before.get(node, 0):
                rest[node] -= taken
                free[node] -= taken
        alloc[job.id] = grown


def _head_node(job: Job, alloc: Mapping[str, int]) -> str:
    if job.phase is Phase.RUNNING and job.head_node is not None and job.head_node in alloc:
        return job.head_node
    return head_node_of(alloc)


def _leaves(node: Node) -> bool:
    return node.health in {Health.DRAINING, Health.LOST}


def _settled(job: Job, kept: Mapping[str, int]) -> Job:
    """The job as ``shares`` should see it. A running job that keeps no slot counts as ending."""
    phase = Phase.ENDING if job.phase is Phase.RUNNING and not kept else job.phase
    return replace(job, phase=phase, alloc=kept)


def _grow(
    job: Job, kept: Mapping[str, int], target: int, free: Mapping[str, int], nodes: Mapping[str, Node], now: float
) -> Mapping[str, int]:
    """``kept`` grown towards ``target``, to the largest of the job's sizes that the free slots allow."""
    if job.phase is Phase.ENDING or (job.phase is Phase.RUNNING and not kept):
        return kept
    if job.not_before is not None and job.not_before > now:
        return kept
    held = sum(kept.values())
    if not kept:
        most = min(job.max, job.engines or job.max)
        rooms = [(room_for(job, slots), slots) for slots in _within_reach(free, nodes)]
        free = max(rooms, key=lambda room: (min(target, room[0]), min(most, room[0])))[1]
    reach = min(target, held + room_for(job, free))
    size = max((size for size in sizes_of(job) if size <= reach), default=0)
    return take(job, kept, size - held, free) if size > held else kept


def _within_reach(free: Mapping[str, int], nodes: Mapping[str, Node]) -> list[Mapping[str, int]]:
    """``free``, grouped by nodes whose engines reach each other.

    The first group holds all nodes that are not ``alone``. Each node that is ``alone`` follows as its own group, by
    name.
    """
    together = {name: slots for name, slots in free.items() if not nodes[name].alone}
    return [together, *({name: free[name]} for name in sorted(free) if nodes[name].alone)]


def _action(
    job: Job, alloc: Mapping[str, int], head_node: str | None, short: tuple[str, ...], nodes: Mapping[str, Node]
) -> Action | None:
    """What changes for a job, with its reason in words; None if nothing changes.

    ``short``: jobs that hold less than their share.
    """
    held = {node: slots for node, slots in job.alloc.items() if slots}
    before, after = job.held, sum(alloc.values())
    if job.phase is Phase.ENDING or (dict(alloc) == held and head_node == job.head_node):
        return None
    if job.phase is Phase.WAITING:
        return Action(job.id, Verb.START, before, after, f"starts on {_slots(after)}") if after else None
    if not alloc:
        return Action(job.id, Verb.MOVE, before, after, _emptied(sorted(held), nodes))
    if dict(alloc) == held:
        return Action(job.id, Verb.HAND_OVER, before, after, f"{job.head_node} holds no engine of it any more")
    emptied = sorted(node for node in held if _leaves(nodes[node]))
    if emptied:
        verb = Verb.SHRINK if after < before else Verb.GROW
        return Action(job.id, verb, before, after, _emptied(emptied, nodes))
    if after < before:
        takers = ", ".join(other for other in short if other != job.id)
        return Action(job.id, Verb.SHRINK, before, after, f"makes room for {takers or 'others'}")
    return Action(job.id, Verb.GROW, before, after, f"{_slots(after - before)} came free")


def _emptied(names: list[str], nodes: Mapping[str, Node]) -> str:
    return f"node {', '.join(names)} is {nodes[names[0]].health}"


def _explain(
    jobs: list[Job],
    alloc: Mapping[str, Mapping[str, int]],
    targets: Mapping[str, int],
    nodes: Mapping[str, Node],
    left: Mapping[str, int],
    now: float,
) -> dict[str, Explanation]:
    """Explain every job: its share and its reason; for a waiting job also its rank and what it lacks.

    ``left``: the slots that are free after the plan.
    """
    rank, free = 0, sum(left.values())
    explained = {}
    for job in jobs:
        target, held = targets[job.id], sum(alloc[job.id].values())
        if held or job.phase is not Phase.WAITING:
            reason = "ends" if job.phase is Phase.ENDING or not held else f"holds {_slots(held)} of its share {target}"
            if held < target and _confined(job, nodes) and not room_for(job, left):
                reason += ", no slot that its engines can reach is free"
            if job.cap is not None and held:
                reason += f", kept at {_slots(job.max)} for now: its joining engines could not get the weights"
            explained[job.id] = Explanation(target, 0, 0, free, None, reason)
            continue
        rank += 1
        blocking, reason = _obstacle(job, target, nodes, now)
        explained[job.id] = Explanation(target, rank, 1, free, blocking, reason)
    return explained


def _confined(job: Job, nodes: Mapping[str, Node]) -> bool:
    """Whether the job's engines cannot reach some node that takes work."""
    return any(node.health is Health.UP and node.id in job.avoid for node in nodes.values())


def _obstacle(job: Job, target: int, nodes: Mapping[str, Node], now: float) -> tuple[Blocking, str]:
    open_nodes = [node for node in nodes.values() if node.health is Health.UP]
    up = sum(node.slots for node in open_nodes)
    in_containers = sum(node.slots for node in open_nodes if node.containers)
    if job.locked is not None:
        return Blocking.KEY, f"its environment cannot be opened: {job.locked}"
    if job.not_before is not None and job.not_before > now:
        return Blocking.COOLDOWN, "its last attempt was lost; the next one follows after a back-off"
    if not up:
        return Blocking.NODES, "no node takes work"
    if job.image is not None and not in_containers:
        return Blocking.NODES, f"its image {job.image} needs a node that starts containers, and none is up"
    if target:
        return Blocking.VACATING, "its slot is still being vacated"
    if job.image is not None and in_containers < up:
        return Blocking.CAPACITY, f"all {_slots(in_containers)} that start containers are shared by earlier jobs"
    return Blocking.CAPACITY, f"all {_slots(up)} are shared by jobs submitted before it"


def _slots(number: int) -> str:
    return f"{number} slot" if number == 1 else f"{number} slots"
