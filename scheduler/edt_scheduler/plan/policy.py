"""The policy: shares first, then what can be done about them now. Room: scheduler, plan. Pure.

A slot that is being vacated belongs to nobody: whoever is to have it waits until its process is seen gone. So a
round takes back what is above its job's share at once, and gives from what is free: to jobs that start, in submit
order, then to the smallest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edt_scheduler.nodes import Health
from edt_scheduler.plan.placement import give_back, room_for, take
from edt_scheduler.plan.shares import shares, sizes
from edt_scheduler.plan.state import Action, Blocking, Explanation, Job, Node, Phase, Plan, State, Verb


def plan(state: State) -> Plan:
    """Decide, for every job, what it should hold now."""
    nodes = {node.id: node for node in state.nodes}
    jobs = sorted(state.jobs, key=lambda job: (job.submit, job.id))
    kept = {job.id: _stay(job, nodes) for job in jobs}
    targets = shares([_settled(job, kept[job.id]) for job in jobs], nodes, state.now)
    free = {node.id: node.free for node in state.nodes if node.health is Health.UP}
    alloc: dict[str, Mapping[str, int]] = {}
    for job in jobs:
        stays = kept[job.id]
        above = max(0, sum(stays.values()) - targets[job.id]) if job.phase is Phase.RUNNING else 0
        alloc[job.id] = give_back(job, stays, above, nodes) if above and stays else stays
    for job in sorted(jobs, key=lambda job: (sum(alloc[job.id].values()), job.submit, job.id)):
        grown = _grow(job, alloc[job.id], targets[job.id], free, state.now)
        for node, number in grown.items():
            if node in free:
                free[node] -= number - alloc[job.id].get(node, 0)
        alloc[job.id] = grown
    short = tuple(job.id for job in jobs if targets[job.id] > job.held)
    actions = tuple(action for job in jobs if (action := _action(job, alloc[job.id], short, nodes)))
    return Plan(alloc, actions, _explain(jobs, alloc, targets, nodes, sum(free.values()), state.now))


def _stay(job: Job, nodes: Mapping[str, Node]) -> dict[str, int]:
    """What a job keeps of what it holds. Without its home nothing: the attempt ends and starts elsewhere."""
    if job.phase is not Phase.RUNNING or not job.alloc.get(job.home or "") or _leaves(nodes[job.home or ""]):
        return {}
    return {node: slots for node, slots in job.alloc.items() if slots and not _leaves(nodes[node])}


def _leaves(node: Node) -> bool:
    return node.health in {Health.DRAINING, Health.LOST}


def _settled(job: Job, kept: Mapping[str, int]) -> Job:
    """The job as its share sees it: one that loses its home is on its way out."""
    phase = Phase.ENDING if job.phase is Phase.RUNNING and not kept else job.phase
    return replace(job, phase=phase, alloc=kept)


def _grow(job: Job, kept: Mapping[str, int], target: int, free: Mapping[str, int], now: float) -> Mapping[str, int]:
    """As far up its sizes towards ``target`` as the free slots reach."""
    if job.phase is Phase.ENDING or (job.phase is Phase.RUNNING and not kept):
        return kept
    if job.not_before is not None and job.not_before > now:
        return kept
    held = sum(kept.values())
    reach = min(target, held + room_for(job, free))
    size = max((size for size in sizes(job.engines, job.max) if size <= reach), default=0)
    return take(job, kept, size - held, free) if size > held else kept


def _action(job: Job, alloc: Mapping[str, int], short: tuple[str, ...], nodes: Mapping[str, Node]) -> Action | None:
    """What changes for a job, and why, in words. ``short``: jobs that hold less than their share."""
    held = {node: slots for node, slots in job.alloc.items() if slots}
    before, after = job.held, sum(alloc.values())
    if job.phase is Phase.ENDING or dict(alloc) == held:
        return None
    if job.phase is Phase.WAITING:
        return Action(job.id, Verb.START, before, after, f"starts on {_slots(after)}")
    if not alloc:
        why = f"is {nodes[job.home].health}" if job.home in held else "holds no engine any more"
        return Action(job.id, Verb.MOVE, before, after, f"its first node {job.home} {why}")
    emptied = sorted(node for node in held if _leaves(nodes[node]))
    if emptied:
        verb = Verb.SHRINK if after < before else Verb.GROW
        return Action(job.id, verb, before, after, f"node {', '.join(emptied)} is {nodes[emptied[0]].health}")
    if after < before:
        takers = ", ".join(other for other in short if other != job.id)
        return Action(job.id, Verb.SHRINK, before, after, f"makes room for {takers or 'others'}")
    return Action(job.id, Verb.GROW, before, after, f"{_slots(after - before)} came free")


def _explain(
    jobs: list[Job],
    alloc: Mapping[str, Mapping[str, int]],
    targets: Mapping[str, int],
    nodes: Mapping[str, Node],
    free: int,
    now: float,
) -> dict[str, Explanation]:
    """Every job has a reason; waiting ones a rank and what they lack."""
    rank = 0
    up = sum(node.slots for node in nodes.values() if node.health is Health.UP)
    explained = {}
    for job in jobs:
        target, held = targets[job.id], sum(alloc[job.id].values())
        if held or job.phase is not Phase.WAITING:
            reason = "ends" if job.phase is Phase.ENDING or not held else f"holds {_slots(held)} of its share {target}"
            explained[job.id] = Explanation(target, 0, 0, free, None, reason)
            continue
        rank += 1
        blocking, reason = _obstacle(job, target, up, now)
        explained[job.id] = Explanation(target, rank, 1, free, blocking, reason)
    return explained


def _obstacle(job: Job, target: int, up: int, now: float) -> tuple[Blocking, str]:
    if job.not_before is not None and job.not_before > now:
        return Blocking.COOLDOWN, "its last attempt was lost; the next one follows after a back-off"
    if not up:
        return Blocking.NODES, "no node takes work"
    if target:
        return Blocking.VACATING, "its slot is still being vacated"
    return Blocking.CAPACITY, f"all {_slots(up)} are shared by jobs submitted before it"


def _slots(number: int) -> str:
    return f"{number} slot" if number == 1 else f"{number} slots"
