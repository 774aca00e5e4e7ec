"""The verdict on each node: whether it could take a waiting job, and what keeps it from that. Pure."""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from edt_scheduler.answers.changes import number
from edt_scheduler.answers.settling import Settled
from edt_scheduler.answers.sight import Hidden, Sight, most_first
from edt_scheduler.model.states import Health
from edt_scheduler.plan.state import Job, Node

MOST_NODES = 100


class Verdict(enum.StrEnum):
    """Whether a node could take a job. The first that holds, in this order."""

    LOST = "lost"  # it is not heard from
    DRAINING = "draining"
    CORDONED = "cordoned"
    DEVICE = "device"  # its slots are of another kind than the job asks for
    MODEL = "model"  # its GPUs are of a model that the job does not take
    CONTAINERS = "containers"  # the job brings an image, and the node starts no containers
    OTHERS = "others"  # another job has asked a cluster manager for it, and uses it alone
    SMALL = "small"  # a worker of the gang needs more slots on one node than it has
    ALONE = "alone"  # engines on it reach no other node, and it has fewer slots than the job needs
    AVOIDED = "avoided"  # processes of the job are still leaving it
    FULL = "full"  # other jobs hold its slots
    KEPT = "kept"  # slots are free, but not for this job
    FREE = "free"  # it has slots for the job


_NEAREST = tuple(reversed(Verdict))
_HEALTHS = {Health.LOST: Verdict.LOST, Health.DRAINING: Verdict.DRAINING, Health.CORDONED: Verdict.CORDONED}


@dataclass(frozen=True)
class NodeVerdict:
    """One node as a waiting job sees it, once the present plans are carried out."""

    node: str
    verdict: Verdict
    sentence: str
    slots: int
    free: int
    jobs: tuple[str, ...]
    """Jobs that hold slots there and that the viewer may see, those that hold most first."""
    hidden: Hidden


@dataclass(frozen=True)
class Nodes:
    """The verdicts, those on nodes that are nearest to taking the job first, and how many there are of each kind."""

    items: tuple[NodeVerdict, ...]
    counts: Mapping[str, int]


def verdicts(job: Job, found: Settled, why: str, sight: Sight) -> Nodes:
    """The verdict on each node.

    Args:
        job: the waiting job.
        found: what the present plans come to.
        why: what keeps the job from slots that are free, as the end of a sentence.
        sight: which other jobs are named.
    """
    holders: dict[str, list[tuple[Job, int]]] = defaultdict(list)
    for other in found.state.jobs:
        for name, slots in other.alloc.items():
            if slots and other.id != job.id:
                holders[name].append((other, slots))
    given = found.last.alloc.get(job.id, {})
    judged = []
    for node in found.state.nodes:
        there = most_first(holders[node.id])
        verdict, sentence = _judged(job, node, given.get(node.id, 0), there, why, sight)
        seen, hidden = sight.split(there)
        judged.append(
            NodeVerdict(node.id, verdict, sentence, node.slots, node.free, tuple(name for name, _ in seen), hidden)
        )
    judged.sort(key=lambda each: (_NEAREST.index(each.verdict), -each.free, -each.slots, each.node))
    return Nodes(tuple(judged[:MOST_NODES]), dict(Counter(each.verdict.value for each in judged)))


def _judged(
    job: Job, node: Node, given: int, holders: list[tuple[str, int]], why: str, sight: Sight
) -> tuple[Verdict, str]:
    """The verdict on one node, and its sentence."""
    if node.health in _HEALTHS:
        unheard = "is lost: it is not heard from"
        return _HEALTHS[node.health], unheard if node.health is Health.LOST else f"is {node.health} and takes no work"
    if (barred := bar(job, node)) is not None:
        return barred
    if given:
        return Verdict.FREE, f"the job gets {number(given)} here"
    worker = job.unit if job.gang else 1
    if node.id in job.avoid:
        return Verdict.AVOIDED, "processes of the job are still leaving it"
    if node.free < worker:
        by = f" by {sight.listed(holders)}" if holders else ""
        if not node.free:
            return Verdict.FULL, f"{number(node.slots)}, full{by}"
        return Verdict.FULL, f"{node.free} of {number(node.slots)} free, and a worker needs {worker}; held{by}"
    return Verdict.KEPT, f"{node.free} of {number(node.slots)} free, but {why}"


def bar(job: Job, node: Node) -> tuple[Verdict, str] | None:
    """What keeps a node that takes work from ever taking the job, and its sentence; None: nothing does."""
    if job.device is not None and node.device is not job.device:
        return Verdict.DEVICE, f"has {node.device.upper()} slots, and the job asks for {job.device.upper()}s"
    if job.models and node.model not in job.models:
        return Verdict.MODEL, f"has {node.model or 'no known model'}, and the job takes {' or '.join(job.models)}"
    if job.image is not None and not node.containers:
        return Verdict.CONTAINERS, "starts no containers, and the job brings an image"
    if node.only_for is not None and node.only_for != job.id:
        return Verdict.OTHERS, "was asked for by another job, which uses it alone"
    if job.gang and node.slots < job.unit:
        return Verdict.SMALL, f"has {number(node.slots)}, and a worker of the job needs {job.unit} on one node"
    need = least(job)
    if node.alone and node.slots < need:
        return Verdict.ALONE, f"has {number(node.slots)} and its engines reach no other node; the job needs {need}"
    return None


def least(job: Job) -> int:
    """The slots that a job needs to start."""
    return job.max if job.gang else job.min
