"""One job before and after a decision: what it keeps of the slots that it holds, and what the next plan sees. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edt_scheduler.model.states import Health
from edt_scheduler.plan.placement import give_back, head_node_of
from edt_scheduler.plan.reasons import leaves
from edt_scheduler.plan.state import Job, Node, Phase

Slots = Mapping[str, int]
"""Node to a number of slots."""


def kept_of(job: Job, nodes: Mapping[str, Node]) -> tuple[Slots, Slots]:
    """What a job keeps of the slots it holds, and what it keeps until an engine elsewhere has joined its training.

    A gang keeps all its slots, or none. A paused job keeps nothing. If nothing is kept, the attempt ends, and the job
    starts elsewhere.
    """
    if job.paused is not None or job.phase is not Phase.RUNNING:
        return {}, {}
    if not job.until_joined and all(slots and not leaves(nodes[node]) for node, slots in job.alloc.items()):
        return job.alloc, {}
    if job.gang:
        return ({}, {}) if any(n and leaves(nodes[name]) for name, n in job.alloc.items()) else (job.alloc, {})
    stays = {node: slots for node, slots in job.alloc.items() if slots and not leaves(nodes[node])}
    if stays:
        if job.joined is None or any(job.joined.get(node) for node in stays):
            return stays, {}
        return stays, {node: n for node, n in job.until_joined.items() if nodes[node].health is not Health.LOST}
    healthy = {node: n for node, n in job.until_joined.items() if n and not leaves(nodes[node])}
    if healthy:  # its new engines were lost: it goes on where it was
        return healthy, {}
    until_joined = emptied(job, nodes)
    if not until_joined or job.engines is None or job.engines < 2 or any(nodes[name].alone for name in until_joined):
        return {}, {}
    if sum(until_joined.values()) >= job.engines:  # one engine less makes room for one elsewhere
        until_joined = give_back(job, until_joined, sum(until_joined.values()) - job.engines + 1, nodes)
    return {}, until_joined


def emptied(job: Job, nodes: Mapping[str, Node]) -> Slots:
    """What a job holds on nodes that are being drained, none of which it can keep for long."""
    return {node: n for held in (job.until_joined, job.alloc) for node, n in held.items() if n and _drains(nodes[node])}


def with_head_node(job: Job, kept: Slots, until_joined: Slots | None) -> Job:
    """The job with a new head node, if it keeps slots but none of them on its present head node.

    The head node of a gang never moves: a rank there that has finished has only given its slot back.
    """
    moves = kept and job.head_node not in kept and not (until_joined and job.head_node in until_joined) and not job.gang
    return replace(job, head_node=head_node_of(kept)) if moves else job


def capped(job: Job, now: float) -> Job:
    """The job with its maximum lowered to its cap, as long as the cap lasts. Nothing caps a gang."""
    if job.cap is None:
        return job
    if job.gang or job.cap_until is None or job.cap_until <= now:
        return replace(job, cap=None, cap_until=None)
    return replace(job, max=min(job.max, job.cap))


def as_shared(job: Job, kept: Slots, moving: bool) -> Job:
    """The job as the shares should see it. A running job that keeps no slot counts as ending, unless it is moving."""
    if kept is job.alloc:
        return job
    phase = Phase.ENDING if job.phase is Phase.RUNNING and not kept and not moving else job.phase
    return replace(job, phase=phase, alloc=kept)


def afterwards(job: Job, alloc: Slots) -> Job:
    """The job as the next plan would see it: it holds ``alloc``, and its other slots are being vacated."""
    if (job.phase is not Phase.RUNNING and not alloc) or alloc is job.alloc:
        return job
    emptied = {node for node, slots in job.alloc.items() if slots and not alloc.get(node) and node != job.head_node}
    leaving = {node: slots for node, slots in job.leaving.items() if slots}
    leaving |= {node: slots for node, slots in job.alloc.items() if slots > alloc.get(node, 0)}
    phase = Phase.RUNNING if job.phase is Phase.WAITING else job.phase
    return replace(job, phase=phase, alloc=alloc, leaving=leaving, avoid=job.avoid | emptied)


def _drains(node: Node) -> bool:
    return node.health is Health.DRAINING
