"""What becomes of a state when plans are carried out: slots go from job to job, and asked-back ones come free. Pure.

Names of slots play no part here: the states count slots on each node, and plan does the same with them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from edt_scheduler.model.states import Health
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.state import Job, Node, Phase, Plan, State

LOOKS = 4
"""How many plans follow each other at one instant, at most: what one takes back, the next one gives to others."""


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


@dataclass(frozen=True)
class Settled:
    """A state after plans were carried out until nothing more changes."""

    state: State
    first: Plan
    """The plan for the state as it was."""
    last: Plan
    """The plan for the state as it is then. It changes nothing, unless there were too many."""
    since: Mapping[str, int]
    """Job that holds slots then, but held none before, to the number of the plan that gave it the first ones."""
    plans: int
    """How many plans were made."""

    def held(self, job: str) -> int:
        """The slots that a job holds then; 0: none, or there is no such job."""
        return sum(self.last.alloc.get(job, {}).values())


def settled(state: State, looks: int = LOOKS) -> Settled:
    """Carry out plans until one changes nothing, at most ``looks`` of them."""
    held = {job.id for job in state.jobs if job.held}
    first = last = plan(state)
    since: dict[str, int] = {}
    number = 1
    while True:
        for action in last.actions:
            if action.after and action.job not in held:
                since.setdefault(action.job, number)
        moves = bool(last.actions) or _is_open(state)
        if not moves or number == looks:
            break
        state = carried_out(state, last)
        last = plan(state)
        number += 1
    if last.actions:
        state = carried_out(state, last)
    return Settled(state, first, last, {name: at for name, at in since.items() if last.alloc.get(name)}, number)


def _is_open(state: State) -> bool:
    """Whether slots will come free that are still used."""
    return any(job.phase is Phase.ENDING or job.leaving or job.until_joined for job in state.jobs)


def slots_up(state: State) -> int:
    """The slots of all nodes that take work."""
    return sum(node.slots for node in state.nodes if node.health is Health.UP)
