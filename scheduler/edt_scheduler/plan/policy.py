"""The policy: it computes every job's share, then decides what can be done about the shares now. Pure.

A slot that is being vacated is not free. The job that will get this slot waits until the old process was seen gone. So
each plan takes back at once what a job holds above its share, and gives out only free slots. Jobs whose image needs a
node that starts containers get slots first, since they can use no other node. Then come jobs that start, in submit
order, then running jobs, the smallest first.

Shares count all slots alike, but some jobs cannot use some slots, for example because the job's engines cannot reach a
node. A slot that no job below its share can use is not taken back. While such a slot is free, the plan gives it to a
running job beyond that job's share.

Where gangs start, and which slots are kept for them, is decided first (gangs.py). Elastic jobs share what is left.

GPUs and CPU stand-ins are planned one after the other, each with the jobs that use them (devices.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Health
from edt_scheduler.plan import devices
from edt_scheduler.plan.free_slots import FreeSlots, Reach
from edt_scheduler.plan.gangs import Places, make_room, places
from edt_scheduler.plan.placement import begin, give_back, head_node_of, reach_of, take
from edt_scheduler.plan.reasons import all_shared, change, explain, leaves
from edt_scheduler.plan.shares import is_due, shares, sizes_of
from edt_scheduler.plan.state import Job, Node, Phase, Plan, State


def plan(state: State) -> Plan:
    """Decide what every job should hold now.

    Args:
        state: nodes and jobs at one instant.

    Returns:
        For each job of the state its slots, its action if it has one, its head node and its explanation.
    """
    nodes = {node.id: node for node in state.nodes}
    using = {job.id: devices.of(job, nodes) for job in state.jobs}
    kinds = {node.device for node in state.nodes}
    if len(kinds | set(using.values()) - {None}) < 2:
        return _plan(state)
    either = [job for job in state.jobs if using[job.id] is None]

    def of(device: Device, others: Iterable[Job]) -> Plan:
        jobs = [*(job for job in state.jobs if using[job.id] is device), *others]
        return _plan(devices.part(state, device, jobs))

    if len(kinds) < 2:  # somebody asks for a kind that is not there
        there = kinds.pop() if kinds else Device.CPU
        missing = next(device for device in Device if device is not there)
        return devices.joined(state.jobs, (of(missing, ()), of(there, either)))
    on_gpus = of(Device.GPU, either)
    with_gpus = devices.with_share(either, on_gpus)
    on_cpus = of(Device.CPU, [job for job in either if job.id not in with_gpus])
    with_cpus = devices.with_share([job for job in either if job.id not in with_gpus], on_cpus)
    if with_cpus:
        on_gpus = of(Device.GPU, [job for job in either if job.id not in with_cpus])
    gpus_up = any(node.device is Device.GPU and node.health is Health.UP for node in state.nodes)
    whole = devices.joined(state.jobs, (on_cpus, on_gpus) if gpus_up else (on_gpus, on_cpus))
    up = sum(node.slots for node in state.nodes if node.health is Health.UP)
    crowded = [job for job in either if devices.is_crowded_out(job, whole.explain[job.id])]
    told = {job.id: replace(whole.explain[job.id], reason=all_shared(up)) for job in crowded}
    return replace(whole, explain={**whole.explain, **told})


def _plan(state: State) -> Plan:
    """Decide for nodes of one kind, and the jobs that use them."""
    nodes = {node.id: node for node in state.nodes}
    up = [node for node in state.nodes if node.health is Health.UP]
    asked = sorted(state.jobs, key=lambda job: (job.submit, job.id))
    kept = {job.id: _stay(job, nodes) for job in asked}
    jobs = [_rehomed(_capped(job, state.now), kept[job.id]) for job in asked]
    reach = {job.id: reach_of(job, nodes) for job in jobs}
    found = places(jobs, kept, nodes, reach, state.now)
    gangs = {job.id: kept[job.id] or found.of(job) for job in jobs if job.gang}
    shared = shares([_settled(job, kept[job.id]) for job in jobs], gangs, nodes, state)
    targets = shared.of
    lacking = sum(_lacking(job, targets[job.id], state.now) for job in jobs if job.id not in found.first)
    preempted = {job.id for job in jobs if not job.gang and kept[job.id] and not targets[job.id]}
    kept |= {name: {} for name in preempted}
    held = {name: sum(slots.values()) for name, slots in kept.items()}
    kept = _clear(jobs, make_room(jobs, kept, targets, found, nodes), lacking, found.taken(), nodes)
    cleared = {name for name, slots in kept.items() if sum(slots.values()) < held[name]}
    wanted = _wanted(jobs, kept | {name: {node: 1} for name, node in found.first.items()}, targets, reach)
    alloc: dict[str, Mapping[str, int]] = {}
    for job in jobs:
        stays = kept[job.id]
        above = max(0, sum(stays.values()) - targets[job.id]) if job.phase is Phase.RUNNING else 0
        alloc[job.id] = _shrunk(job, stays, above, wanted, nodes) if above and stays else stays
    free = FreeSlots(up, found.free)
    for job in sorted(jobs, key=lambda job: (job.image is None, sum(alloc[job.id].values()), job.submit, job.id)):
        if job.gang:
            alloc[job.id] = found.starts.get(job.id, alloc[job.id])
            continue
        before = {found.first[job.id]: 1} if job.id in found.first else alloc[job.id]
        grown = _grow(job, before, targets[job.id], free, reach[job.id], nodes, state.now)
        if job.id in cleared:
            fitting = _sized(job, grown, nodes)
            for node, number in grown.items():  # what it does not take after all
                free.add(node, number - max(fitting.get(node, 0), before.get(node, 0)))
            grown = fitting
        alloc[job.id] = grown
    then = [_next(job, alloc[job.id]) for job in jobs]
    reach_then = {job.id: reach_of(job, nodes) for job in then}
    wanted = _wanted(then, alloc, targets, reach_then)
    rest = FreeSlots((node for node in up if not wanted(node)), dict(free.items()))
    _give_rest(then, alloc, rest, shared.useful, reach_then, nodes, state.now)
    short = tuple(job.id for job in jobs if targets[job.id] > job.held)
    head_nodes = {job.id: _head_node(job, alloc[job.id], found) for job in jobs if alloc[job.id]}
    actions = tuple(
        action for job in asked if (action := change(job, alloc[job.id], head_nodes.get(job.id), short, nodes))
    )
    left = FreeSlots(up, _left(state, alloc))
    return Plan(alloc, actions, head_nodes, explain(then, alloc, targets, found, left, reach_then, nodes, state.now))


def _left(state: State, alloc: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """The slots of nodes that are up which are free after the plan."""
    left = {node.id: node.free for node in state.nodes if node.health is Health.UP}
    for job in state.jobs:
        for name, number in alloc[job.id].items():
            if name in left:
                left[name] -= max(0, number - job.alloc.get(name, 0))
    return left


def _stay(job: Job, nodes: Mapping[str, Node]) -> dict[str, int]:
    """What a job keeps of the slots it holds. If nothing is left, the attempt ends and the job starts elsewhere.

    A gang keeps all its slots, or none. A paused job keeps nothing.
    """
    if job.paused is not None:
        return {}
    if job.phase is not Phase.RUNNING or (job.gang and any(n and leaves(nodes[name]) for name, n in job.alloc.items())):
        return {}
    return {node: slots for node, slots in job.alloc.items() if slots and not leaves(nodes[node])}


def _rehomed(job: Job, kept: Mapping[str, int]) -> Job:
    """The job with a new head node, if it keeps slots but none of them on its present head node.

    The head node of a gang never moves: a rank there that has finished has only given its slot back.
    """
    moves = kept and job.head_node not in kept and not job.gang
    return replace(job, head_node=head_node_of(kept)) if moves else job


def _capped(job: Job, now: float) -> Job:
    """The job with its maximum lowered to its cap, as long as the cap lasts. Nothing caps a gang."""
    if job.gang or job.cap is None or job.cap_until is None or job.cap_until <= now:
        return replace(job, cap=None, cap_until=None)
    return replace(job, max=min(job.max, job.cap))


def _clear(
    jobs: Sequence[Job],
    kept: dict[str, dict[str, int]],
    lacking: int,
    given: Mapping[str, int],
    nodes: Mapping[str, Node],
) -> dict[str, dict[str, int]]:
    """What jobs without an image keep when they hold slots that jobs with an image need to start now.

    The newest give back first. They give back slots on nodes that start containers and may grow again elsewhere. A job
    keeps one slot on its head node. ``lacking``: how many elastic jobs with an image could start now. ``given``: node
    to slots that are given or kept already.
    """
    if not lacking:
        return kept
    places = {node.id: node for node in nodes.values() if node.containers and node.health is Health.UP}
    coming = sum(node.slots - given.get(node.id, 0) for node in places.values())
    coming -= sum(number for held in kept.values() for name, number in held.items() if name in places)
    for job in reversed(jobs):
        if job.image is not None or job.gang:
            continue
        left = kept[job.id]
        for name in sorted((name for name in left if name in places), key=lambda name: (name == job.head_node, name)):
            spare = left[name] - (1 if name == job.head_node else 0)
            taken = max(0, min(spare, lacking - coming))
            left[name] -= taken
            coming += taken
        kept[job.id] = {name: number for name, number in left.items() if number}
    return kept


def _sized(job: Job, alloc: Mapping[str, int], nodes: Mapping[str, Node]) -> Mapping[str, int]:
    """``alloc`` cut down to one of the job's sizes."""
    size = sum(alloc.values())
    return give_back(job, alloc, size - max(allowed for allowed in sizes_of(job) if allowed <= size), nodes)


def _lacking(job: Job, target: int, now: float) -> bool:
    """Whether an elastic job could start now, if a node that starts containers had a free slot."""
    return job.image is not None and not job.gang and job.phase is Phase.WAITING and target > 0 and is_due(job, now)


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
    reach: Mapping[str, Reach],
) -> Callable[[Node], bool]:
    """Whether at least one elastic job below its share can use a node. Slots for gangs are chosen one by one before."""
    short = {reach[job.id] for job in jobs if not job.gang and sum(held[job.id].values()) < targets[job.id]}
    return lambda node: node.health is Health.UP and any(each.may_begin_on(node) for each in short)


def _shrunk(
    job: Job, kept: Mapping[str, int], above: int, wanted: Callable[[Node], bool], nodes: Mapping[str, Node]
) -> Mapping[str, int]:
    """``kept`` without up to ``above`` slots on ``wanted`` nodes, cut down to one of the job's sizes."""
    there = {node: slots for node, slots in kept.items() if wanted(nodes[node])}
    left = {**kept, **dict.fromkeys(there, 0), **give_back(job, there, above, nodes)}
    return _sized(job, {node: slots for node, slots in left.items() if slots}, nodes)


def _give_rest(
    jobs: Sequence[Job],
    alloc: dict[str, Mapping[str, int]],
    rest: FreeSlots,
    useful: Mapping[str, tuple[int, ...]],
    reach: Mapping[str, Reach],
    nodes: Mapping[str, Node],
    now: float,
) -> None:
    """Give the free slots in ``rest`` to running jobs, the smallest first. No job below its share can use them."""
    growing = [
        (sum(alloc[job.id].values()), job.submit, job.id, job)
        for job in jobs
        if job.phase is Phase.RUNNING and alloc[job.id] and not job.gang
    ]
    heapq.heapify(growing)
    while growing and rest.total:
        held, submit, name, job = heapq.heappop(growing)
        larger = min((size for size in useful.get(name, ()) if size > held), default=0)
        grown = _grow(job, alloc[name], larger, rest, reach[name], nodes, now)
        if grown != alloc[name]:
            alloc[name] = grown
            heapq.heappush(growing, (sum(grown.values()), submit, name, job))


def _head_node(job: Job, alloc: Mapping[str, int], found: Places) -> str:
    if job.phase is Phase.RUNNING and job.head_node is not None and (job.gang or job.head_node in alloc):
        return job.head_node
    return found.first.get(job.id) or head_node_of(alloc)


def _settled(job: Job, kept: Mapping[str, int]) -> Job:
    """The job as ``shares`` should see it. A running job that keeps no slot counts as ending."""
    phase = Phase.ENDING if job.phase is Phase.RUNNING and not kept else job.phase
    return replace(job, phase=phase, alloc=kept)


def _grow(
    job: Job,
    kept: Mapping[str, int],
    target: int,
    free: FreeSlots,
    reach: Reach,
    nodes: Mapping[str, Node],
    now: float,
) -> Mapping[str, int]:
    """``kept`` grown towards ``target``, to the largest of the job's sizes that the free slots allow.

    What it grows by is taken out of ``free``.
    """
    if job.phase is Phase.ENDING or (job.phase is Phase.RUNNING and not kept):
        return kept
    if not is_due(job, now):
        return kept
    held = sum(kept.values())
    if held >= target:
        return kept
    if not kept:
        return begin(job, target, sizes_of(job), free, reach)
    if job.phase is Phase.WAITING:
        reach = reach.beside(kept, nodes)
    reached = min(target, held + free.room(reach))
    size = max((size for size in sizes_of(job) if size <= reached), default=0)
    return take(job, kept, size - held, free, reach) if size > held else kept
