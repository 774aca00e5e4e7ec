"""GPUs and CPU stand-ins are shared out apart: which nodes and jobs belong together. Pure. Next: policy.py.

A job that asks for a kind of slot gets no other. A job that asks for none gets GPUs where it has a share of them, and
otherwise CPU stand-ins; what it has begun with it keeps until its attempt ends. So each kind of node, with the jobs
that use it, is planned as if it were the whole cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Health
from edt_scheduler.plan.placement import head_node_of
from edt_scheduler.plan.reasons import leaves
from edt_scheduler.plan.state import Blocking, Explanation, Job, Node, Plan, State


def of(job: Job, nodes: Mapping[str, Node]) -> Device | None:
    """The kind of slot that a job uses: the one that it asks for, or has begun with; None: that is still open."""
    if job.device is not None:
        return job.device
    held = {name: number for name, number in job.alloc.items() if number}
    stays = {name: number for name, number in held.items() if not leaves(nodes[name])} or held
    if stays:
        return nodes[job.head_node if job.head_node in stays else head_node_of(stays)].device
    last = job.head_node or min((name for name, number in job.leaving.items() if number), default=None)
    return nodes[last].device if last is not None else None


def part(state: State, device: Device, jobs: Sequence[Job]) -> State:
    """The nodes of one kind with the jobs that use it, as a state of its own.

    Slots that other jobs hold there are left out. Where a job holds slots of the other kind, because its node has
    changed or its attempt began before kinds were kept apart, it keeps them and gets no more of them.

    Args:
        state: all nodes and jobs.
        device: the kind.
        jobs: the jobs that use it.
    """
    own = {job.id for job in jobs}
    foreign = Counter[str]()
    for job in state.jobs:
        if job.id not in own:
            foreign.update(job.alloc)
            foreign.update(job.leaving)
    used = {name for job in jobs for name in (job.head_node, *job.alloc, *job.leaving)}
    nodes = []
    for node in state.nodes:
        if node.device is device:
            nodes.append(replace(node, slots=max(node.free, node.slots - foreign[node.id])))
        elif node.id in used:
            health = Health.CORDONED if node.health is Health.UP else node.health
            nodes.append(replace(node, free=0, health=health))
    return replace(state, nodes=tuple(nodes), jobs=tuple(jobs))


def joined(jobs: Sequence[Job], plans: Sequence[Plan]) -> Plan:
    """The plans of both kinds as one. What the later ones say of a job counts.

    Args:
        jobs: all jobs.
        plans: plans of different nodes. A job of two of them gets nothing in either.
    """
    place = {job.id: (job.submit, job.id) for job in jobs}
    alloc: dict[str, Mapping[str, int]] = {}
    head_nodes: dict[str, str] = {}
    explain: dict[str, Explanation] = {}
    for each in plans:
        alloc |= each.alloc
        head_nodes |= each.head_nodes
        explain |= each.explain
    actions = sorted((action for each in plans for action in each.actions), key=lambda action: place[action.job])
    return Plan(alloc, tuple(actions), head_nodes, explain)


def with_share(jobs: Collection[Job], plan: Plan) -> set[str]:
    """The jobs to which a plan gives a share."""
    return {job.id for job in jobs if plan.explain[job.id].target}


def is_crowded_out(job: Job, explanation: Explanation) -> bool:
    """Whether an elastic job waits only because other jobs share all slots."""
    return not job.gang and job.image is None and explanation.blocking is Blocking.CAPACITY
