"""How many workers each queue and each of its users is entitled to: quota before weight, down the tree. Pure.

At each queue its workers are divided among its children, which are queues or, below the last queue, the users that have
jobs there:

1. Each child gets its quota, as far as it has use for it. If that is more than there is, the quotas are cut alike.
2. What is left goes to the children by weight, each up to what it has use for and up to its limit. A weight counts less
   for who has used more than its part lately: w' = w * max(0.05, 1 - k * (u / U - w / W)), with usage u of all usage U
   and weight w of all weights W among those that still want something. U is at least an hour of all slots.

So a quota that its owner does not use is lent, and it comes back as soon as its owner wants it: the lender's share
rises, and the borrower's falls with it. Users count alike, however many jobs each has: nobody gains by splitting work.
What the users of one queue have together goes to their jobs' priority classes first: from the highest to the lowest,
each class gets the least sizes of its jobs, then what else they can use. Within a class its users divide.

Shares are whole workers that add up to what there is. What is left over by rounding goes first to who would get none,
then to who lacks the largest part of a worker, then to who came first. It does not go by what somebody holds now:
shares would then follow what they decide, and move back and forth.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST = 0.05
"""The least part of its weight with which a child counts, whatever it has used."""
_COUNTS_SECONDS = 3600.0
"""Usage counts in full once it is as much as all slots have in this time. Less of it says little, and what somebody is
entitled to would change from one minute to the next.
"""


@dataclass(frozen=True)
class Claim:
    """One child among those that divide workers."""

    id: str
    demand: int
    """The most workers that it has use for."""
    quota: int = 0
    """Workers that it gets before anything is divided by weight."""
    limit: int | None = None
    """The most workers that it may have; None: no limit."""
    weight: float = 1.0
    usage: float = 0.0
    """Worker-seconds of the past, decayed."""
    held: int = 0
    """Workers that it has now."""
    order: tuple[int | str, ...] = ()
    """Breaks ties."""

    @property
    def most(self) -> int:
        """The most workers that it can get."""
        return self.demand if self.limit is None else min(self.demand, self.limit)


def divide(claims: Sequence[Claim], capacity: int, memory: float = 1.0) -> dict[str, int]:
    """Divide ``capacity`` workers among children.

    Args:
        claims: the children.
        capacity: whole workers.
        memory: k, how much past usage counts; 0: not at all.

    Returns:
        Each child's share. The shares are whole and add up to the capacity, or to all that the children can use.
    """
    owed = {each.id: float(min(each.most, each.quota)) for each in claims}
    if sum(owed.values()) > capacity:
        owed = _by_weight(owed, owed, float(capacity))
    left = capacity - sum(owed.values())
    rest = {each.id: each.most - owed[each.id] for each in claims}
    weights = _weights([each for each in claims if rest[each.id] > 0], memory, capacity)
    more = _by_weight(weights, rest, left)
    return _whole(claims, {name: number + more.get(name, 0.0) for name, number in owed.items()}, capacity)


def _weights(claims: Sequence[Claim], memory: float, capacity: int) -> dict[str, float]:
    """The weights of children, less for who has used more than its part, in tenths: shares then change rarely."""
    used, weighed = sum(each.usage for each in claims), sum(each.weight for each in claims)
    if not used or not weighed:
        return {each.id: each.weight for each in claims}
    counts = max(used, _COUNTS_SECONDS * capacity)
    return {
        each.id: each.weight * max(LEAST, round(1 - memory * (each.usage - used * each.weight / weighed) / counts, 1))
        for each in claims
    }


def _by_weight(weights: Mapping[str, float], most: Mapping[str, float], capacity: float) -> dict[str, float]:
    """Divide by weight, nobody above its most: what one cannot take is divided among the others."""
    found = dict.fromkeys(most, 0.0)
    open_to = {name for name, weight in weights.items() if weight > 0 and most[name] > 0}
    while open_to and capacity > 1e-9:
        level = capacity / sum(weights[name] for name in open_to)
        full = {name for name in open_to if most[name] - found[name] <= level * weights[name]}
        for name in full or open_to:
            more = most[name] - found[name] if full else level * weights[name]
            found[name] += more
            capacity -= more
        open_to -= full or open_to
    return found


def _whole(claims: Sequence[Claim], shares: Mapping[str, float], capacity: int) -> dict[str, int]:
    """The shares in whole workers."""
    found = {each.id: int(shares[each.id] + 1e-9) for each in claims}
    left = min(capacity, sum(each.most for each in claims)) - sum(found.values())

    def lacks(each: Claim) -> tuple[bool, float, tuple[int | str, ...], str]:
        return found[each.id] > 0, -round(shares[each.id] - found[each.id], 6), each.order, each.id

    entitled = [each for each in claims if shares[each.id] - found[each.id] > 1e-9 and found[each.id] < each.most]
    for each in sorted(entitled, key=lacks)[: max(0, left)]:
        found[each.id] += 1
    return found


class Sharing(enum.StrEnum):
    """How the jobs of one queue share its slots. In each, jobs of a higher priority come first."""

    EFFICIENT = "efficient"  # each slot goes where it is worth most: the time from submission to end is short
    FAIRSHARE = "fairshare"  # each job gets as many slots as the others, or by its priority as a weight
    PRIORITY = "priority"  # by priority, then by submission: who comes first gets all that it can use
    FIFO = "fifo"  # by submission alone: who comes first gets all that it can use


@dataclass(frozen=True)
class Queue:
    """A queue of the tree. WMLA's word for one is consumer, and its resource plan holds these numbers."""

    id: str
    """Its path, such as ``/research/vision``. The path of its parent comes before the last slash; "" is the root."""
    quota: int = 0
    """Slots that it has before anything is divided by weight: its owned slots."""
    weight: float = 1.0
    """Its share ratio."""
    limit: int | None = None
    """The most slots that its jobs may hold together; None: no limit."""
    policy: Sharing = Sharing.EFFICIENT
    """How its jobs share what it has."""


@dataclass(frozen=True)
class Demand:
    """What one user has use for in one queue."""

    queue: str
    user: str
    most: int
    """The most slots that its jobs there have use for."""
    held: int = 0
    usage: float = 0.0
    order: int = 0
    """The place of its oldest job in the order of submission."""
    classes: tuple[tuple[int, int, int], ...] = ()
    """(priority, the least slots, the most slots) of its jobs of each class; empty: all are of one class."""


def entitlements(
    queues: Sequence[Queue], demands: Sequence[Demand], capacity: int, memory: float = 1.0
) -> dict[tuple[str, str], int]:
    """How many slots each user is entitled to in each queue.

    Args:
        queues: the tree. A queue that is not named here counts as one without quota, with weight 1, below the root.
        demands: who has use for how much.
        capacity: the slots of all nodes that take work.
        memory: how much past usage counts.

    Returns:
        (queue, user) to slots.
    """
    return _Tree(queues, demands, memory).divided(capacity)


class _Tree:
    """The queues that somebody has use for slots in, and what each has use for with all below it."""

    def __init__(self, queues: Sequence[Queue], demands: Sequence[Demand], memory: float) -> None:
        self._known = {each.id: each for each in queues}
        self._memory = memory
        self._children: dict[str, set[str]] = defaultdict(set)
        self._users: dict[str, list[Demand]] = defaultdict(list)
        self._claims: dict[str, Claim] = {}
        for each in demands:
            self._users[each.queue].append(each)
            path = each.queue
            while path:
                self._children[parent(path)].add(path)
                path = parent(path)

    def divided(self, capacity: int) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        limit = self._known.get("", Queue("")).limit
        left = [("", capacity if limit is None else min(capacity, limit))]
        while left:
            path, slots = left.pop()
            here = {f"\0{each.user}": each for each in self._users.get(path, ())}
            claims = [self._claim(child) for child in sorted(self._children.get(path, ()))]
            claims += [
                Claim(name, each.most, usage=each.usage, held=each.held, order=(each.order,))
                for name, each in here.items()
            ]
            shares = divide(claims, slots, self._memory)
            left += [(name, share) for name, share in shares.items() if name not in here]
            of_users = _by_class([*here.values()], sum(shares[name] for name in here), self._memory)
            for name, each in here.items():
                found[path, each.user] = shares[name] if of_users is None else of_users[each.user]
        return found

    def _claim(self, path: str) -> Claim:
        if path not in self._claims:
            queue = self._known.get(path, Queue(path))
            below = [self._claim(child) for child in sorted(self._children.get(path, ()))]
            here = self._users.get(path, [])
            self._claims[path] = Claim(
                path,
                demand=sum(each.most for each in below) + sum(each.most for each in here),
                quota=queue.quota,
                limit=queue.limit,
                weight=queue.weight,
                usage=sum(each.usage for each in below) + sum(each.usage for each in here),
                held=sum(each.held for each in below) + sum(each.held for each in here),
                order=(min([each.order for each in here] + [int(each.order[0]) for each in below], default=0),),
            )
        return self._claims[path]


def _by_class(users: Sequence[Demand], capacity: int, memory: float) -> dict[str, int] | None:
    """What each user gets of ``capacity`` if their jobs are of several priority classes; None: they are of one."""
    classes = sorted({priority for each in users for priority, _, _ in each.classes}, reverse=True)
    if len(classes) < 2:
        return None
    least, most = Counter[int](), Counter[int]()
    for each in users:
        for priority, few, many in each.classes:
            least[priority] += few
            most[priority] += many
    given, left = Counter[int](), capacity
    for wanted in (least, most):
        for priority in classes:
            more = min(left, wanted[priority] - given[priority])
            given[priority] += more
            left -= more
    found = Counter({each.user: 0 for each in users})
    for priority in classes:
        claims = [
            Claim(each.user, many, usage=each.usage, held=each.held, order=(each.order,))
            for each in users
            for level, _, many in each.classes
            if level == priority
        ]
        found.update(divide(claims, given[priority], memory))
    return dict(found)


def parent(path: str) -> str:
    """The path of a queue's parent; "" for one below the root."""
    return path.rpartition("/")[0]


def above(path: str) -> tuple[str, ...]:
    """The paths of a queue and of all queues above it, without the root."""
    found = []
    while path:
        found.append(path)
        path = parent(path)
    return tuple(found)
