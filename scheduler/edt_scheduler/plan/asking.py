"""What nodes other cluster managers are asked for, and which are given up. Pure. Next: policy.py.

First it is decided what jobs get of the nodes that are there, as if there were no others: so no job waits for a node
that may never come while slots are idle. Then it is decided once more, with what the pools could give besides. What
jobs would get of that is asked for. Nothing is remembered: a node that was asked for and is not there is still asked
for as long as this decision gives it to somebody, and within its pool's patience. A node that does not come is given
up, and its job asks for no other for a while.

A pool whose nodes are for one job each is one node in the second decision: all its nodes that are there, with the jobs
that use them, and the room for more. So jobs share the most that an administrator allows as they share a node. Of a
pool whose nodes any job may use only the room for more is a node.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from edt_scheduler.model.states import Health
from edt_scheduler.plan.carrying import bare, carried_out, with_free
from edt_scheduler.plan.sizes import least_of
from edt_scheduler.plan.state import Ask, Blocking, Explanation, GiveUp, Job, Node, Phase, Plan, Pool, Requested, State

REFUSED_PATIENCES = 1.0
"""A job asks a pool again after so many times its patience, if a node did not come in time or ended before it came."""
_SOON_SECONDS = 120.0
"""A job that starts again within so many seconds keeps its nodes until then."""


def with_asks(state: State, planned: Plan, decide: Callable[[State], Plan]) -> Plan:
    """The plan with what is asked of the pools.

    Args:
        state: what the plan was made of.
        planned: the plan for the nodes that are there.
        decide: plans for any nodes.
    """
    if not state.pools:
        return planned
    then = carried_out(bare(state), planned)
    views = [_View.of(pool, state, then) for pool in state.pools]
    possible = decide(_with_pools(then, views))
    asks: list[Ask] = []
    give_ups: list[GiveUp] = []
    for view in views:
        compared = _per_job if view.pool.per_job else _shared
        more, fewer = compared(view, then, possible)
        asks += [] if view.pool.away else more  # what was asked for before keeps its place there
        give_ups += fewer
    jobs = {job.id: job for job in state.jobs}
    explain = {name: _explained(jobs[name], told, views, possible, asks) for name, told in planned.explain.items()}
    return replace(planned, asks=tuple(asks), give_ups=tuple(give_ups), explain=explain)


@dataclass(frozen=True)
class _View:
    """A pool, and what there is of it."""

    pool: Pool
    now: float
    name: str
    """The name of the node that stands for it."""
    inside: Mapping[str, Node]
    """Nodes that are there and take work, which this node stands for: those for one job each."""
    given_up: tuple[GiveUp, ...]
    """What is given up whatever is decided: it did not come in time, or its job is over."""
    room: int
    """How many nodes more the pool may have."""
    leaving: int
    """For how many nodes there will be room once others, which are given up or lost, are gone."""

    @classmethod
    def of(cls, pool: Pool, state: State, then: State) -> _View:
        going = {job.id for job in state.jobs}
        nodes = {node.id: node for node in then.nodes}
        given_up = (*_due(pool, going, state.now), *_above_the_most(pool, going, nodes, then.jobs))
        over = {each.node for each in given_up}
        inside = {}
        if pool.per_job:
            for each in pool.requested:
                node = nodes.get(each.node)
                usable = each.granted and not each.ending and each.node not in over
                if usable and node is not None and node.health is Health.UP:
                    inside[node.id] = node
        there = [each.node for each in pool.requested if each.granted or each.ending or each.node in over]
        stay = len(inside) if pool.per_job else sum(name not in over and _takes_work(nodes.get(name)) for name in there)
        leaving = min(len(there), pool.most) - stay
        room = max(0, pool.most - len(there))
        return cls(pool, state.now, f"\0{pool.id}", inside, given_up, room, max(0, leaving))

    @property
    def node(self) -> Node:
        """The node that stands for the pool."""
        pool = self.pool
        slots = sum(node.slots for node in self.inside.values()) + (self.room + self.leaving) * pool.slots
        return Node(self.name, slots, slots, Health.UP, pool.containers, device=pool.device, model=pool.model.lower())

    def closed_to(self, job: Job) -> bool:
        """Whether the job gets no new node of the pool."""
        return job.unit > self.pool.slots or self.refuses(job.id if self.pool.per_job else "")

    def refuses(self, job: str) -> bool:
        """Whether a node for the job ("": any) did not come, so that none is asked for now."""
        refusal = self.pool.refused.get(job)
        if refusal is not None and refusal.until > self.now:
            return True
        late = {each.node for each in self.given_up if each.refused}
        return any(each.node in late and (each.job or "") == job for each in self.pool.requested)

    def pending(self, job: str | None) -> list[Requested]:
        """The nodes that were asked for by a job and are not there, the newest first."""
        over = {each.node for each in self.given_up}
        found = [
            each
            for each in self.pool.requested
            if each.job == job and not each.granted and not each.ending and each.node not in over
        ]
        return sorted(found, key=lambda each: (-each.asked_at, each.node))


def _above_the_most(pool: Pool, going: set[str], nodes: Mapping[str, Node], jobs: Sequence[Job]) -> Iterator[GiveUp]:
    """Nodes that are there and more than an administrator allows: first those that nobody uses, then those of the job
    that has most of them, and of jobs with as many those of the one that came last."""
    there = [
        nodes[each.node]
        for each in pool.requested
        if each.granted and not each.ending and each.node in nodes and (each.job is None or each.job in going)
    ]
    users: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        for name, number in job.alloc.items():
            if number:
                users[name].append(job)
    left = Counter(job.id for node in there for job in users[node.id])

    def first(node: Node) -> tuple[bool, int, int, bool, str]:
        using = users[node.id]
        return (
            not using,
            min((left[job.id] for job in using), default=0),
            max((job.submit for job in using), default=0),
            not any(job.head_node == node.id for job in using),
            node.id,
        )

    while len(there) > pool.most:
        gone = max(there, key=first)
        there.remove(gone)
        left.subtract(job.id for job in users[gone.id])
        yield GiveUp(gone.id, f"{pool.id} may have {pool.most} nodes at most")


def _takes_work(node: Node | None) -> bool:
    return node is not None and node.health is Health.UP


def _due(pool: Pool, going: set[str], now: float) -> Iterator[GiveUp]:
    """What did not come within the pool's patience, and nodes of jobs that are over."""
    for each in pool.requested:
        if each.ending:
            continue
        if each.job is not None and each.job not in going:
            yield GiveUp(each.node, f"{each.job} is over")
        elif not each.granted and now - each.asked_at > pool.patience:
            why = f": {each.reason}" if each.reason else ""
            yield GiveUp(each.node, f"it did not come within {pool.patience:g} s{why}", refused=True)


def _with_pools(then: State, views: Sequence[_View]) -> State:
    """The state with a node for each pool, in place of those for one job each."""
    stands = {name: view.name for view in views for name in view.inside}
    jobs = []
    for job in then.jobs:
        closed = frozenset(view.name for view in views if view.closed_to(job))
        alloc = Counter[str]()
        for name, number in job.alloc.items():
            alloc[stands.get(name, name)] += number
        head_node = stands.get(job.head_node, job.head_node) if job.head_node is not None else None
        jobs.append(replace(job, alloc=dict(alloc), head_node=head_node, avoid=job.avoid | closed))
    nodes = (*(node for node in then.nodes if node.id not in stands), *(view.node for view in views))
    counted = with_free(replace(then, nodes=nodes, jobs=tuple(jobs), pools=(), still=True))
    # Jobs share what comes back, too, but it is not free: else they would share otherwise while a node is leaving.
    leaving = {view.name: view.leaving * view.pool.slots for view in views}
    return replace(
        counted, nodes=tuple(replace(node, free=max(0, node.free - leaving.get(node.id, 0))) for node in counted.nodes)
    )


def _per_job(view: _View, then: State, possible: Plan) -> tuple[list[Ask], list[GiveUp]]:
    """What jobs ask of a pool whose nodes are for one job each."""
    pool, room = view.pool, view.room
    asks: list[Ask] = []
    give_ups = list(view.given_up)
    own: dict[str, list[Node]] = defaultdict(list)
    for node in view.inside.values():
        own[str(node.only_for)].append(node)
    for job in sorted(then.jobs, key=lambda job: (-job.priority, job.submit, job.id)):
        pending, there = view.pending(job.id), own.get(job.id, [])
        slots = possible.alloc.get(job.id, {}).get(view.name, 0)
        wanted = math.ceil(slots / pool.slots)
        more = min(room, max(0, wanted - len(there)))
        room -= more
        if more > len(pending):
            asks += _asks(view, job, more - len(pending), there, len(pending))
        spare = pending[: max(0, len(pending) - more)]
        give_ups += [GiveUp(each.node, f"{job.id} has no use for it any more") for each in spare]
        give_ups += _unwanted(job, there, slots, wanted, view, then.now)
    return asks, give_ups


def _asks(view: _View, job: Job, nodes: int, there: Sequence[Node], pending: int) -> list[Ask]:
    """A job's asks: first for those nodes that it needs to start, then for those by which it only grows."""
    if job.gang:
        return [Ask(view.pool.id, job.id, nodes, True, math.ceil(job.max / view.pool.slots))]
    needed = 0
    if job.phase is Phase.WAITING:
        own = sum(node.slots for node in there) + pending * view.pool.slots
        needed = min(nodes, math.ceil(max(0, least_of(job) - own) / view.pool.slots))
    first = [Ask(view.pool.id, job.id, needed, True)] if needed else []
    return [*first, *([Ask(view.pool.id, job.id, nodes - needed, False)] if nodes > needed else [])]


def _unwanted(job: Job, there: Sequence[Node], slots: int, wanted: int, view: _View, now: float) -> Iterator[GiveUp]:
    """Nodes that a job gives up although they are there: others of the pool are entitled to their slots, or the job is
    paused. One that it only does not use leaves by itself, when it has been idle."""
    held = sum(job.alloc.get(node.id, 0) for node in there)
    soon = job.not_before is not None and now < job.not_before <= now + _SOON_SECONDS
    if job.paused is not None:
        wanted, why = 0, job.paused
    elif slots < held and not soon and job.phase is not Phase.ENDING:
        why = f"others are entitled to slots of {view.pool.id}"
    else:
        return
    order = sorted(there, key=lambda node: (node.id == job.head_node, job.alloc.get(node.id, 0), node.id))
    for node in order[: max(0, len(there) - wanted)]:
        yield GiveUp(node.id, why)


def _shared(view: _View, then: State, possible: Plan) -> tuple[list[Ask], list[GiveUp]]:
    """What is asked of a pool whose nodes any job may use."""
    pool = view.pool
    over = {each.node for each in view.given_up}
    there = sum(each.granted and not each.ending and each.node not in over for each in pool.requested)
    slots = sum(alloc.get(view.name, 0) for alloc in possible.alloc.values())
    wanted = max(math.ceil(slots / pool.slots), pool.least - there)
    more = min(view.room, 0 if view.refuses("") else wanted)
    pending = view.pending(None)
    asks = [Ask(pool.id, None, more - len(pending))] if more > len(pending) else []
    spare = pending[: max(0, len(pending) - more)]
    return asks, [*view.given_up, *(GiveUp(each.node, "no job has use for it any more") for each in spare)]


def _explained(job: Job, told: Explanation, views: Sequence[_View], possible: Plan, asks: Sequence[Ask]) -> Explanation:
    """What is said of a job, with what was asked for it and is not there."""
    said = []
    for view in views:
        pool, own = view.pool, job.id if view.pool.per_job else None
        wants = view.refuses("") and job.held < min(job.max, job.engines or job.max)
        if own is None and not wants and not possible.alloc.get(job.id, {}).get(view.name):
            continue
        pending = view.pending(own)
        number = len(pending) + sum(ask.nodes for ask in asks if ask.pool == pool.id and ask.job == own)
        refusal = pool.refused.get(own or "")
        if number:
            nodes = "a node" if number == 1 else f"{number} nodes"
            why = next((each.reason for each in pending if each.reason), "")
            said.append(f"{pool.id} was asked for {nodes}" + (f": {why}" if why else ""))
        elif refusal is not None and refusal.until > view.now:
            why = f": {refusal.reason}" if refusal.reason else ""
            said.append(f"{pool.id} gave no node within {pool.patience:g} s and is asked again later{why}")
    if not said:
        return told
    if not told.rank:
        return replace(told, reason="; ".join([told.reason, *said]))
    return replace(told, blocking=Blocking.ASKED, reason="; ".join([*said, told.reason]))
