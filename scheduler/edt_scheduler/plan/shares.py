"""Shares: how many slots each job should hold, and on which nodes. Pure. Next: policy.py.

Shares are computed by water-filling. First every job gets its smallest size: jobs that run, then jobs that wait, in
submit order. Then the job with the fewest slots gets its next size, if enough slots are left, and this repeats until no
job can grow. Submit order breaks ties. A gang has one size, and gangs that run or have a place (gangs.py) come before
everybody else.

An elastic job's sizes are the numbers of engines n at which ceil(E/n) drops. E micro-batches on n engines take
ceil(E/n) rounds. A size between two of these numbers would use a GPU and save no round. If the job's batch follows its
engines, E is the number of micro-batches of an epoch. This E is so large that almost every size is allowed. Until E is
known, the only size is 1.

Engines stay where they are: a job that grows or shrinks only gains or loses slots. A job uses as few nodes as possible,
its head node first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from edt_scheduler.model.states import Health
from edt_scheduler.plan.curves import SERIAL, Curve, Point
from edt_scheduler.plan.filling import Bidder, fill
from edt_scheduler.plan.queues import Demand, above, entitlements
from edt_scheduler.plan.state import Job, Node, Phase, State
from edt_scheduler.plan.worth import Weights, Work, offers

_ALL, _CONTAINERS = "\0all", "\0containers"


def sizes(engines: int | None, most: int) -> tuple[int, ...]:
    """The sizes a job may have, smallest first.

    Args:
        engines: E, the micro-batches of one step; None while it is unknown.
        most: the most slots the job may hold.

    >>> sizes(16, 16)
    (1, 2, 3, 4, 6, 8, 16)
    """
    if engines is None:
        return (1,)
    found, largest = [1], min(most, engines)
    while (rounds := -(-engines // found[-1])) > 1:  # the next size is the smallest that takes fewer rounds
        following = -(-engines // (rounds - 1))
        if following > largest:
            break
        found.append(following)
    return tuple(found)


def sizes_of(job: Job) -> tuple[int, ...]:
    """The sizes a job may have now, smallest first.

    The size at which a job is capped is always one of them. So the cap takes no slot from the job.
    """
    if job.allowed:
        return tuple(size for size in job.allowed if size <= job.max) or job.allowed[:1]
    allowed = sizes(job.engines, job.max)
    if job.cap is None or job.engines is None:
        return allowed
    return tuple(sorted({*allowed, min(job.cap, job.max, job.engines)}))


@dataclass(frozen=True)
class Shares:
    """How slots are shared."""

    of: Mapping[str, int]
    """Job to the number of slots that it should hold; 0: none."""
    useful: Mapping[str, tuple[int, ...]]
    """Elastic job to the sizes that are worth more to it than all smaller ones, smallest first."""
    price: float
    """What the last slot was worth; 0: nobody got a second one."""
    wanted: Mapping[str, float]
    """Job to what one slot more would be worth to it, if it could have used more."""


def shares(
    jobs: Sequence[Job], gangs: Mapping[str, Mapping[str, int]], nodes: Mapping[str, Node], state: State
) -> Shares:
    """The number of slots that each job should hold.

    The shares divide all slots of nodes that are up, slots that are being vacated included. A slot that a job holds on
    a cordoned node takes nothing from the others, since no other job can use it. A job with an image can use only slots
    on nodes that start containers. Other jobs can use all slots.

    First each user's jobs share what the user is entitled to, then all jobs what is left.

    Args:
        jobs: all jobs that are not over.
        gangs: gang to the slots that it holds or that it gets.
        nodes: node id to node.
        state: the time, the queues and the parameters.

    Returns:
        The shares, and what else each job could use.
    """
    open_slots = sum(node.slots for node in nodes.values() if node.health is Health.UP)
    for_images = sum(node.slots for node in nodes.values() if node.health is Health.UP and node.containers)
    for slots in gangs.values():
        open_slots -= sum(number for name, number in slots.items() if nodes[name].health is Health.UP)
        for_images -= sum(
            number for name, number in slots.items() if nodes[name].health is Health.UP and nodes[name].containers
        )
    granted = {job.id: sum(gangs.get(job.id, {}).values()) for job in jobs}
    per_node = max((node.slots for node in nodes.values()), default=1)
    bidders, sized = [], {}
    for job in jobs:
        if not job.gang and _may_hold(job, state.now):
            bidder, sized[job.id] = _bidder(job, nodes, per_node, state.weights)
            bidders.append(bidder)
    pools = {_ALL: open_slots, _CONTAINERS: for_images, **_limits(jobs, gangs, state)}
    entitled = fill(bidders, pools | _entitled(jobs, gangs, bidders, open_slots, state))
    left = {pool: number for pool, number in entitled.left.items() if pool in pools}
    filled = fill(bidders, left, entitled.sizes) if left[_ALL] else entitled
    sizes = {name: sized[name][cost] for name, cost in filled.sizes.items()}
    useful = {each.id: tuple(sized[each.id][cost] for cost, _ in each.rungs) for each in bidders}
    return Shares(granted | sizes, useful, filled.price, filled.wanted)


def _entitled(
    jobs: Sequence[Job],
    gangs: Mapping[str, Mapping[str, int]],
    bidders: Sequence[Bidder[str]],
    open_slots: int,
    state: State,
) -> dict[str, int]:
    """Pool of a user in a queue to what the user's elastic jobs are entitled to."""
    uses = {each.id: each.rungs[-1][0] for each in bidders if each.rungs}
    in_gangs = {job.id: sum(gangs[job.id].values()) for job in jobs if job.gang and gangs.get(job.id)}
    most, held, taken = Counter[tuple[str, str]](), Counter[tuple[str, str]](), Counter[str]()
    order: dict[tuple[str, str], int] = {}
    for job in jobs:
        key = job.queue, job.user
        most[key] += uses.get(job.id, 0) + in_gangs.get(job.id, 0)
        held[key] += job.held
        order.setdefault(key, job.submit)
        taken[_pool(*key)] += in_gangs.get(job.id, 0)
    demands = [
        Demand(queue, user, number, held[queue, user], state.usage.get((queue, user), 0.0), order[queue, user])
        for (queue, user), number in most.items()
        if number
    ]
    shares = entitlements(state.queues, demands, open_slots + sum(in_gangs.values()))
    return {_pool(*key): max(0, number - taken[_pool(*key)]) for key, number in shares.items()}


def _limits(jobs: Sequence[Job], gangs: Mapping[str, Mapping[str, int]], state: State) -> dict[str, int]:
    """Queue to what its limit leaves to elastic jobs, for the queues that have one."""
    found = {}
    for queue in state.queues:
        if queue.limit is not None:
            inside = (job for job in jobs if queue.id in above(job.queue))
            found[queue.id] = max(0, queue.limit - sum(sum(gangs.get(job.id, {}).values()) for job in inside))
    return found


def _pool(queue: str, user: str) -> str:
    return f"{queue}\0{user}"


def _bidder(job: Job, nodes: Mapping[str, Node], per_node: int, weights: Weights) -> tuple[Bidder[str], dict[int, int]]:
    """An elastic job as one that shares slots of nodes that are up, and the size that each number of them makes."""
    speeds, work = speeds_of(job, per_node, weights)
    worth = offers(speeds, job.held, work, job.pause, weights)
    own, least = _own_use(job, nodes)
    sizes = {max(size - own, least): size for size in sorted(speeds)}
    sizes |= {max(size - own, least): size for size, _ in worth}
    rungs = tuple({max(size - own, least): utility for size, utility in worth}.items())
    pools = (_ALL, *((_CONTAINERS,) if job.image is not None else ()), _pool(job.queue, job.user), *above(job.queue))
    first = (job.phase is Phase.WAITING, job.submit)
    return Bidder(job.id, rungs, pools, first, (job.submit, job.id), max(job.held - own, 0)), sizes


def speeds_of(job: Job, per_node: int, weights: Weights) -> tuple[Mapping[int, float], Work]:
    """How fast a job trains at each size that it may have now, beside one worker, and what it has to do.

    Until step times were measured, a tenth of a step is taken to be serial.
    """
    sizes = sizes_of(job)
    if job.held and job.held not in sizes:
        sizes = tuple(sorted({*sizes, job.held}))
    growth = weights.growth if weights.is_costly(job.pause) else math.inf
    engines = None if job.allowed else job.engines or 1
    if growth < math.inf and not job.points:
        sizes = tuple(size for size in sizes if size <= weights.probe or size in {job.held, sizes[0]})
    speeds, alone = _speeds(job.points, engines, per_node, sizes, growth, job.held)
    if alone is None:
        return speeds, Work(weights.new_seconds, known=job.steps_left is not None)
    if job.steps_left is None:
        return speeds, Work(job.attained + weights.new_seconds, known=False)
    return speeds, Work(job.steps_left * alone)


@lru_cache(maxsize=100_000)
def _speeds(
    points: tuple[Point, ...], engines: int | None, per_node: int, sizes: tuple[int, ...], growth: float, held: int
) -> tuple[Mapping[int, float], float | None]:
    """Size to speed, and the seconds of a step with one worker; None: no step was measured. Kept, since one plan after
    the other asks for the same.
    """

    def work(workers: int) -> float:
        return 1 / workers if engines is None else -(-engines // workers) / engines

    if not points:
        return {size: 1 / (SERIAL + (1 - SERIAL) * work(size)) for size in sizes}, None
    curve = Curve.fit(points, per_node, work)
    tried = [size for size in sizes if size <= curve.largest * growth or size in {held, sizes[0]}]
    return {size: curve.speed(size) for size in tried}, curve.seconds(1)


def _may_hold(job: Job, now: float) -> bool:
    """Whether a job gets a share. An ending job gets none. A waiting job gets none during its back-off."""
    return is_due(job, now) if job.phase is Phase.WAITING else job.phase is Phase.RUNNING


def is_due(job: Job, now: float) -> bool:
    """Whether the job's back-off is over."""
    return job.not_before is None or job.not_before <= now


def _own_use(job: Job, nodes: Mapping[str, Node]) -> tuple[int, int]:
    """How many slots a job keeps on cordoned nodes, where it takes them from nobody, and how many of nodes that are up
    it uses at least: 1 if its head node is up, because coordinator and driver run there.
    """
    own = sum(number for node, number in job.alloc.items() if nodes[node].health is Health.CORDONED)
    return own, int(job.head_node is not None and nodes[job.head_node].health is Health.UP)
