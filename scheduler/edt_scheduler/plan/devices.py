"""Slots of different kinds are shared out apart: which nodes and jobs belong together. Pure. Next: policy.py.

A kind is CPU stand-ins, or GPUs of one model. A job that asks for a kind gets no other. A job that asks for none gets
GPUs where it has a share of them, and otherwise CPU stand-ins; what it has begun with it keeps until its attempt ends.
If there are GPUs of several models, a job that may use more than one of them begins on those that are asked for least,
or where it has a share.
So each kind of node, with the jobs that use it, is planned as if it were the whole cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Health
from edt_scheduler.plan.placement import head_node_of
from edt_scheduler.plan.reasons import all_shared, leaves
from edt_scheduler.plan.state import Blocking, Explanation, Job, Node, Plan, State

Kind = tuple[Device, str]
"""A kind of slot: a device, and the model of a GPU."""


def by_kind(state: State, decide: Callable[[State], Plan]) -> Plan:
    """Plan each kind of slot for itself.

    Args:
        state: all nodes and jobs.
        decide: plans for nodes of one kind, and the jobs that use them.
    """
    kinds = sorted({kind_of(node) for node in state.nodes}, key=lambda kind: (kind[0] is Device.CPU, kind))
    if len(kinds) < 2 and not any(job.device is not None or job.models for job in state.jobs):
        return decide(state)
    nodes = {node.id: node for node in state.nodes}
    sorting = _Sorting(kinds, state)
    either: list[Job] = []
    for job in state.jobs:
        if not sorting.put(job, of(job, nodes)):
            either.append(job)
    jobs_of = sorting.choose()
    plans: dict[Kind, Plan] = {}
    waiting: dict[str, Job] = {}
    for kind in sorted(jobs_of, key=lambda kind: (kind[0] is Device.CPU, kind)):
        if kind in kinds:
            jobs_of[kind] += [job for job in waiting.values() if _may_use(job, kind)]
        plans[kind] = decide(part(state, kind, jobs_of[kind]))
        open_to = {job.id: job for job in either if job.id in plans[kind].explain}
        served = {name for name in open_to if plans[kind].explain[name].target}
        waiting = {name: job for name, job in {**waiting, **open_to}.items() if name not in served}
        for earlier in [each for each in plans if each != kind and served & plans[each].explain.keys()]:
            jobs_of[earlier] = [job for job in jobs_of[earlier] if job.id not in served]
            plans[earlier] = decide(part(state, earlier, jobs_of[earlier]))
    gpus_up = any(node.device is Device.GPU and node.health is Health.UP for node in state.nodes)
    # Of a job that waits for either what is said last counts: that it waits for GPUs, if some are up.
    order = sorted(plans, key=lambda kind: ((kind[0] is Device.CPU) is not gpus_up, kind))
    whole = _joined(state.jobs, [plans[kind] for kind in order])
    up = sum(node.slots for node in state.nodes if node.health is Health.UP)
    anywhere = (job for job in waiting.values() if job.device is None and not job.models)
    crowded = [job for job in anywhere if _is_crowded_out(job, whole.explain[job.id])]
    told = {job.id: replace(whole.explain[job.id], reason=all_shared(up)) for job in crowded}
    return replace(whole, explain={**whole.explain, **told})


def kind_of(node: Node) -> Kind:
    """The kind of a node's slots."""
    return node.device, node.model if node.device is Device.GPU else ""


def of(job: Job, nodes: Mapping[str, Node]) -> Kind | None:
    """The kind of slot that a job has begun with; None: that is still open."""
    held = {name: number for name, number in job.alloc.items() if number}
    stays = {name: number for name, number in held.items() if not leaves(nodes[name])} or held
    if stays:
        return kind_of(nodes[job.head_node if job.head_node in stays else head_node_of(stays)])
    last = job.head_node or min((name for name, number in job.leaving.items() if number), default=None)
    return kind_of(nodes[last]) if last is not None else None


def part(state: State, kind: Kind, jobs: Sequence[Job]) -> State:
    """The nodes of one kind with the jobs that use it, as a state of its own.

    Slots that other jobs hold there are left out. Where a job holds slots of the other kind, because its node has
    changed or its attempt began before kinds were kept apart, it keeps them and gets no more of them.

    Args:
        state: all nodes and jobs.
        kind: the kind.
        jobs: the jobs that use it.
    """
    own = {job.id for job in jobs}
    foreign = Counter[str]()
    for job in state.jobs:
        if job.id not in own:
            foreign.update(job.used)
    used = {name for job in jobs for name in (job.head_node, *job.used)}
    nodes = []
    for node in state.nodes:
        if kind_of(node) == kind:
            slots = max(node.free, node.slots - foreign[node.id])
            nodes.append(node if slots == node.slots else replace(node, slots=slots))
        elif node.id in used:
            health = Health.CORDONED if node.health is Health.UP else node.health
            nodes.append(replace(node, free=0, health=health))
    return replace(state, nodes=tuple(nodes), jobs=tuple(jobs))


class _Sorting:
    """The jobs by the kind of slot that they use."""

    def __init__(self, kinds: Sequence[Kind], state: State) -> None:
        self._kinds = kinds
        self._jobs = state.jobs
        self._of: dict[Kind, list[Job]] = {kind: [] for kind in kinds}
        self._slots = Counter[Kind]()
        self._containers = {kind_of(node) for node in state.nodes if node.containers and node.health is Health.UP}
        for node in state.nodes:
            if node.health is Health.UP:
                self._slots[kind_of(node)] += node.slots

    def put(self, job: Job, begun: Kind | None) -> bool:
        """Put a job with others of its kind, if that is settled; whether it is."""
        open_to = [kind for kind in self._kinds if _may_use(job, kind)]
        if begun is not None and (begun in open_to or not (job.device or job.models)):
            open_to = [begun]
        if not open_to:  # it is planned with a kind of which there is no node, and waits
            device = job.device or (Device.GPU if job.models else Device.CPU)
            open_to = [(device, job.models[0] if job.models else "")]
        if len(open_to) == 1:
            self._of.setdefault(open_to[0], []).append(job)
        return len(open_to) == 1

    def choose(self) -> dict[Kind, list[Job]]:
        """The jobs by kind. Those whose kind is not settled are each with the kind of GPU that it may use of which jobs
        that come before it ask for least, beside what there is; whether these run or wait makes no difference, so that
        nothing changes when they start. Those that may use no GPU there is are with none.
        """
        chosen = {job.id: kind for kind, jobs in self._of.items() for job in jobs}
        asked = Counter[Kind]()
        found: dict[Kind, list[Job]] = {kind: list(jobs) for kind, jobs in self._of.items()}
        for job in sorted(self._jobs, key=lambda job: (-job.priority, job.submit, job.id)):
            kind = chosen.get(job.id)
            if kind is None and (fits := self._fits(job)):
                kind = min(fits, key=lambda kind: ((asked[kind] + 1) / (self._slots[kind] or 0.5), kind))
                found[kind].append(job)
            if kind is not None:
                asked[kind] += _use(job)
        return found

    def _fits(self, job: Job) -> list[Kind]:
        """The kinds of GPU that a job may use, without those that have too few slots for it if others have enough."""
        fits = [kind for kind in self._kinds if kind[0] is Device.GPU and _may_use(job, kind)]
        if job.image is not None:
            fits = [kind for kind in fits if kind in self._containers] or fits
        return [kind for kind in fits if self._slots[kind] >= (job.max if job.gang else job.min)] or fits


def _use(job: Job) -> int:
    """The most slots that a job can use."""
    return job.max if job.gang or job.engines is None else min(job.max, job.engines)


def _may_use(job: Job, kind: Kind) -> bool:
    """Whether a job asks for a kind of slot, or for none."""
    device, model = kind
    return (job.device is None or job.device is device) and (not job.models or model in job.models)


def _joined(jobs: Sequence[Job], plans: Sequence[Plan]) -> Plan:
    """The plans of all kinds as one. What the later ones say of a job counts.

    Args:
        jobs: all jobs.
        plans: plans of different nodes. A job of two of them gets nothing in either.
    """
    place = {job.id: (job.submit, job.id) for job in jobs}
    alloc: dict[str, Mapping[str, int]] = {}
    until_joined: dict[str, Mapping[str, int]] = {}
    head_nodes: dict[str, str] = {}
    explain: dict[str, Explanation] = {}
    for each in plans:
        alloc |= each.alloc
        until_joined |= each.until_joined
        head_nodes |= each.head_nodes
        explain |= each.explain
    actions = sorted((action for each in plans for action in each.actions), key=lambda action: place[action.job])
    return Plan(alloc, tuple(actions), head_nodes, _ranked(jobs, explain), until_joined)


def _ranked(jobs: Sequence[Job], explain: Mapping[str, Explanation]) -> dict[str, Explanation]:
    """The explanations with the ranks among all jobs that wait, whatever kind of slot they wait for."""
    queue = sorted((job for job in jobs if explain[job.id].rank), key=lambda job: (-job.priority, job.submit))
    found = dict(explain)
    for rank, job in enumerate(queue, 1):
        if found[job.id].rank != rank:
            found[job.id] = replace(found[job.id], rank=rank)
    return found


def _is_crowded_out(job: Job, explanation: Explanation) -> bool:
    """Whether an elastic job waits only because other jobs share all slots."""
    return not job.gang and job.image is None and explanation.blocking is Blocking.CAPACITY
