"""What becomes of a state when a plan is carried out: slots go from job to job, and asked-back ones come free. Pure.

Names of slots play no part here: the states count slots on each node, and plan does the same with them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from edt_scheduler.model.states import Health
from edt_scheduler.plan.state import Job, Node, Phase, Plan, State


def bare(state: State) -> State:
    """The same state without the names of slots, and without who has just left which: only numbers count here."""
    nodes = tuple(replace(node, free_slots=()) if node.free_slots else node for node in state.nodes)
    jobs = tuple(replace(job, slots={}) if job.slots else job for job in state.jobs)
    return replace(state, nodes=nodes, jobs=jobs, freed={})


def carried_out(state: State, decided: Plan) -> State:
    """The state once a plan is carried out, new engines have joined, and whoever was asked to leave has left.

    Jobs that end are gone. A job whose attempt was ended by the plan waits again.
    """
    jobs = tuple(_then(job, decided, state.now) for job in state.jobs)
    return without(replace(state, jobs=jobs, freed={}), {job.id for job in state.jobs if job.phase is Phase.ENDING})


def without(state: State, over: Collection[str]) -> State:
    """The state once these jobs are over: their slots are free, and who waited for their end does no longer."""
    jobs = []
    for job in state.jobs:
        if job.id not in over:
            waits = tuple(name for name in job.after if name not in over)
            jobs.append(job if len(waits) == len(job.after) else replace(job, after=waits))
    return with_free(replace(state, jobs=tuple(jobs)))


def with_free(state: State) -> State:
    """The state with the free slots of each node counted anew, from what its jobs hold."""
    used = Counter[str]()
    for job in state.jobs:
        used.update(job.used)
    nodes = tuple(_with_free(node, max(0, node.slots - used[node.id])) for node in state.nodes)
    return replace(state, nodes=nodes)


def _with_free(node: Node, free: int) -> Node:
    return node if node.free == free else replace(node, free=free)


def _then(job: Job, decided: Plan, now: float) -> Job:
    target = {name: number for name, number in decided.alloc.get(job.id, {}).items() if number}
    held = {name: number for name, number in job.alloc.items() if number}
    head_node = decided.head_nodes.get(job.id) if target else None
    left = job.leaving or job.until_joined or job.avoid
    if target == held and not left and head_node == job.head_node:
        return job
    begins = bool(target) and job.phase is Phase.WAITING
    return replace(
        job,
        phase=Phase.RUNNING if target else Phase.WAITING,
        alloc=target,
        leaving={},
        until_joined={},
        avoid=frozenset(),
        joined=None,
        head_node=head_node,
        attempts=job.attempts + begins,
        last_resize=job.last_resize if target == held else now,
        not_before=math.inf if job.paused is not None else job.not_before,
    )


def slots_up(state: State) -> int:
    """The slots of all nodes that take work."""
    return sum(node.slots for node in state.nodes if node.health is Health.UP)
