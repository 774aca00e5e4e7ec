"""Rich states for the planner, made from a seed, and what becomes of a state once a plan is carried out. Pure."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Health
from edt_scheduler.plan.curves import Point
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.queues import Queue, Sharing
from edt_scheduler.plan.sizes import sizes_of
from edt_scheduler.plan.state import Job, Node, Phase, Plan, State

NOW = 1000.0
_HEALTHS = [Health.UP] * 8 + [Health.CORDONED, Health.DRAINING, Health.LOST]


@dataclass(frozen=True)
class Kinds:
    """What a generated state may hold besides elastic jobs and nodes that are up."""

    queues: bool = True
    priorities: bool = True
    gangs: bool = True
    confined: bool = True
    """Images, and nodes that are alone or whose containers are fixed."""
    gpus: bool = True
    unhealthy: bool = True
    moving: bool = True
    """Jobs that keep slots until an engine elsewhere has joined."""
    limited: bool = True
    """Back-offs, pauses, caps, dependencies, deadlines and time limits."""


def rich(seed: int, nodes: int, jobs: int, kinds: Kinds | None = None) -> State:
    """A state of so many nodes and jobs. Its slots have names, and no node holds more than it has."""
    return _Making(random.Random(seed), kinds or Kinds()).state(nodes, jobs)


class _Making:
    """A state, while it is made."""

    def __init__(self, chance: random.Random, kinds: Kinds) -> None:
        self._chance, self._kinds = chance, kinds
        self._free: dict[str, list[str]] = {}

    def state(self, nodes: int, jobs: int) -> State:
        chance = self._chance
        there = [self._node(f"n{number:02}") for number in range(nodes)]
        queues = self._queues() if self._kinds.queues else ()
        paths = ["", *(queue.id for queue in queues)]
        made = [self._job(number, there, paths) for number in range(1, jobs + 1)]
        nodes_then = tuple(
            replace(node, free=len(self._free[node.id]), free_slots=tuple(self._free[node.id])) for node in there
        )
        usage = {(job.queue, job.user): chance.choice([0.0, 1e2, 1e4, 1e6]) for job in made if chance.random() < 0.5}
        return State(NOW, nodes_then, tuple(made), queues, usage if self._kinds.queues else {})

    def _node(self, name: str) -> Node:
        chance, kinds = self._chance, self._kinds
        slots = chance.choice([1, 2, 4, 4, 8, 8])
        containers = kinds.confined and chance.random() < 0.5
        gpu = kinds.gpus and chance.random() < 0.6
        self._free[name] = [f"{name}:{number}" for number in range(slots)]
        return Node(
            name,
            slots,
            slots,
            chance.choice(_HEALTHS) if kinds.unhealthy else Health.UP,
            containers=containers,
            fixed=containers and chance.random() < 0.2,
            alone=kinds.confined and chance.random() < 0.1,
            device=Device.GPU if gpu else Device.CPU,
            model=chance.choice(["", "a100", "h100"]) if gpu else "",
        )

    def _queues(self) -> tuple[Queue, ...]:
        chance = self._chance
        found = []
        for top in "ab":
            for path in (f"/{top}", f"/{top}/x", f"/{top}/y", f"/{top}/x/1", f"/{top}/x/2"):
                if chance.random() < 0.8:
                    found.append(
                        Queue(
                            path,
                            quota=chance.choice([0, 0, 2, 4, 8]),
                            weight=chance.choice([0.5, 1.0, 1.0, 3.0]),
                            limit=chance.choice([None, None, None, 4, 8, 16]),
                            policy=chance.choice([*Sharing]),
                        )
                    )
        return tuple(found)

    def _job(self, number: int, nodes: Sequence[Node], paths: Sequence[str]) -> Job:
        chance, kinds = self._chance, self._kinds
        most = chance.choice([1, 2, 3, 4, 6, 8, 16])
        engines = chance.choice([None, 1, 2, 4, 6, 8, 16, 32])
        job = Job(
            f"edt-{number}",
            number,
            most,
            Phase.WAITING,
            engines,
            user=f"u{chance.randint(1, 12)}",
            queue=chance.choice(paths),
            priority=chance.choice([1, 1, 1, 2, 5]) if kinds.priorities else 1,
            min=min(most, chance.choice([1, 1, 1, 2, 3])),
            submitted=float(number),
            attempts=chance.choice([0, 0, 1, 3]),
            attained=chance.choice([0.0, 50.0, 5e3, 5e5]),
            pause=chance.choice([0.5, 0.5, 5.0, 30.0, 250.0]),
            steps_left=chance.choice([None, None, 10.0, 1e3, 1e6]),
            points=self._points(engines),
        )
        if chance.random() < 0.1:
            allowed = sorted(size for size in chance.sample([1, 2, 3, 4, 8, 12], 3) if size <= most)
            job = replace(job, allowed=tuple(allowed))
        if kinds.gangs and chance.random() < 0.2:
            unit = chance.choice([1, 1, 2, 4])
            most = unit * chance.randint(1, 3)
            job = replace(job, gang=True, unit=unit, max=most, min=most, engines=None, points=(), allowed=())
        if kinds.confined and chance.random() < 0.2:
            job = replace(job, image="an/image")
        if kinds.gpus and chance.random() < 0.3:
            job = replace(job, device=chance.choice([*Device]))
        elif kinds.gpus and chance.random() < 0.2:
            job = replace(job, models=tuple(chance.sample(["a100", "h100"], chance.randint(1, 2))))
        if kinds.limited:
            job = self._limited(job, number)
        if chance.random() < 0.6:
            job = self._begun(job, nodes)
        return job

    def _points(self, engines: int | None) -> tuple[Point, ...]:
        chance = self._chance
        if engines is None or chance.random() < 0.5:
            return ()
        alone, serial = chance.choice([0.1, 1.0, 10.0]), chance.choice([0.02, 0.1, 0.5])
        sizes = chance.sample([1, 2, 4, 8], chance.randint(1, 3))
        return tuple(Point(n, 1, alone * (serial + (1 - serial) / n) * chance.uniform(0.95, 1.05)) for n in sizes)

    def _limited(self, job: Job, number: int) -> Job:
        chance = self._chance
        what = chance.randint(1, 30)
        if what == 1:
            return replace(job, not_before=NOW + chance.choice([-10.0, 10.0]))
        if what == 2:
            return replace(job, paused="paused by u1", not_before=float("inf"))
        if what == 3:
            return replace(job, locked="its key is missing", not_before=float("inf"))
        if what == 4 and not job.gang:
            return replace(job, cap=chance.choice(sizes_of(job)), cap_until=NOW + chance.choice([-10.0, 10.0]))
        if what == 5 and number > 1:
            return replace(job, after=(f"edt-{chance.randint(1, number - 1)}",))
        if what in {6, 7}:
            return replace(job, deadline=NOW + chance.choice([-10.0, 100.0, 1e4]))
        if what in {8, 9}:
            return replace(job, time_limit=chance.choice([60.0, 6000.0]))
        return job

    def _begun(self, job: Job, nodes: Sequence[Node]) -> Job:
        """The job with slots that it could have got, or as it is if there are none."""
        chance, kinds = self._chance, self._kinds
        if job.after or job.locked is not None:
            return job
        size = job.max if job.gang else chance.choice(sizes_of(job))
        first = chance.choice(nodes)
        kind = first.device, first.model
        alike = [node for node in nodes if (node.device, node.model) == kind and (job.image is None or node.containers)]
        if not _may_use(job, *kind) or first not in alike:
            return job
        others = [node for node in alike if node is not first and not node.alone and not first.alone]
        chance.shuffle(others)
        alloc: dict[str, tuple[str, ...]] = {}
        left = size
        for node in (first, *others):
            number = min(left, len(self._free[node.id])) // job.unit * job.unit
            if number:
                alloc[node.id] = self._taken(node.id, number)
                left -= number
        held = size - left
        if not held or (held not in sizes_of(job) and not job.gang) or (job.gang and left):
            for name, names in alloc.items():
                self._free[name] += names
            return job
        head_node = max(alloc, key=lambda name: (len(alloc[name]), name))
        leaving: dict[str, int] = {}
        if not job.gang and chance.random() < 0.1:
            leaving = {name: self._vacated(name) for name in chance.sample([*alloc], 1) if self._free[name]}
        if chance.random() < 0.05:
            for name, names in alloc.items():
                leaving[name] = leaving.get(name, 0) + len(names)
            return replace(job, phase=Phase.ENDING, leaving=leaving, head_node=head_node, attempts=job.attempts + 1)
        slots, until_joined, joined = alloc, {}, None
        can_move = not job.gang and (job.engines or 0) > held and not first.alone
        if kinds.moving and can_move and chance.random() < 0.15:
            to = [node for node in others if node.id not in alloc and self._free[node.id]]
            if to and len(to[0].id):
                until_joined = {name: len(names) for name, names in alloc.items()}
                slots = {**alloc, to[0].id: self._taken(to[0].id, 1)}
                alloc, joined = {to[0].id: slots[to[0].id]}, dict(until_joined)
                if chance.random() < 0.4:
                    joined[to[0].id] = 1
        return replace(
            job,
            phase=Phase.RUNNING,
            attempts=job.attempts + 1,
            alloc={name: len(names) for name, names in alloc.items()},
            slots=slots,
            until_joined=until_joined,
            joined=joined,
            leaving=leaving,
            head_node=head_node,
            last_resize=NOW - chance.choice([1.0, 100.0]),
            ends_by=None if job.time_limit is None else NOW + job.time_limit,
        )

    def _taken(self, node: str, number: int) -> tuple[str, ...]:
        names = self._free[node][:number]
        del self._free[node][:number]
        return tuple(names)

    def _vacated(self, node: str) -> int:
        """One slot less is free: it is being vacated."""
        self._free[node].pop()
        return 1


def _may_use(job: Job, device: Device, model: str) -> bool:
    return (job.device is None or job.device is device) and (not job.models or model in job.models)


def applied(state: State, decided: Plan) -> State:
    """The state once a plan is carried out and nothing else has happened: nobody has left yet."""
    taken = {(node, slot) for gives in decided.gives.values() for node, slots in gives.items() for slot in slots}
    free = Counter({node.id: node.free for node in state.nodes})
    jobs = []
    for job in state.jobs:
        target, until_joined = decided.alloc[job.id], decided.until_joined.get(job.id, {})
        if job.phase is Phase.ENDING:
            jobs.append(job)
            continue
        leaving = dict(job.leaving)
        for name in {*job.alloc, *job.until_joined, *target, *until_joined}:
            gone = _both(job.alloc, job.until_joined, name) - _both(target, until_joined, name)
            free[name] += min(0, gone)
            if gone > 0:
                leaving[name] = leaving.get(name, 0) + gone
        phase = Phase.RUNNING if target else Phase.ENDING if job.phase is Phase.RUNNING else job.phase
        head_node = decided.head_nodes.get(job.id, job.head_node)
        stays = {*target, *until_joined, head_node}
        emptied = frozenset(name for name in (*job.alloc, *job.until_joined) if name not in stays)
        jobs.append(
            replace(
                job,
                phase=phase,
                alloc=dict(target),
                until_joined=until_joined,
                joined=(job.joined or _sum(job.alloc, job.until_joined)) if until_joined else None,
                leaving=leaving,
                head_node=head_node,
                avoid=job.avoid | emptied,
                slots=_names_then(job, decided),
            )
        )
    nodes = tuple(
        replace(
            node,
            free=free[node.id],
            free_slots=tuple(slot for slot in node.free_slots if (node.id, slot) not in taken),
        )
        for node in state.nodes
    )
    return replace(state, nodes=nodes, jobs=tuple(jobs))


def vacated(state: State) -> State:
    """The state once everybody has left who was asked to, and all engines have joined. Attempts that end wait again."""
    free = Counter({node.id: node.free for node in state.nodes})
    jobs = []
    for job in state.jobs:
        for name, number in job.leaving.items():
            free[name] += number
        then = replace(job, leaving={}, avoid=frozenset(), joined=None)
        if job.phase is Phase.ENDING:
            then = replace(then, phase=Phase.WAITING, alloc={}, until_joined={}, slots={}, head_node=None)
        jobs.append(then)
    nodes = tuple(_with_names(replace(node, free=free[node.id]), jobs) for node in state.nodes)
    return replace(state, nodes=nodes, jobs=tuple(jobs))


def at_rest(state: State, most: int) -> tuple[State, int]:
    """The state once plans change it no more, and how many plans that took.

    Raises:
        AssertionError: after ``most`` plans it still changes.
    """
    decided = plan(state)
    for number in range(most):
        if not decided.actions and not any(
            job.leaving or job.until_joined or job.phase is Phase.ENDING for job in state.jobs
        ):
            return state, number
        state = vacated(applied(state, decided))
        decided = plan(state)
    actions = [(action.job, action.verb, action.before, action.after, action.reason) for action in decided.actions]
    raise AssertionError(f"after {most} plans there is still something to do: {actions[:5]}")


def _with_names(node: Node, jobs: Sequence[Job]) -> Node:
    if not node.slots or not (node.free_slots or any(job.slots for job in jobs)):
        return node
    held = {slot for job in jobs for slot in job.slots.get(node.id, ())}
    names = [f"{node.id}:{number}" for number in range(node.slots)]
    return replace(node, free_slots=tuple(name for name in names if name not in held)[: node.free])


def _names_then(job: Job, decided: Plan) -> Mapping[str, tuple[str, ...]]:
    takes, gives = decided.takes.get(job.id, {}), decided.gives.get(job.id, {})
    then = {node: tuple(slot for slot in slots if slot not in takes.get(node, ())) for node, slots in job.slots.items()}
    for node, slots in gives.items():
        then[node] = (*reversed(slots), *then.get(node, ()))
    return {node: slots for node, slots in then.items() if slots}


def _both(alloc: Mapping[str, int], until_joined: Mapping[str, int], node: str) -> int:
    return alloc.get(node, 0) + until_joined.get(node, 0)


def _sum(alloc: Mapping[str, int], until_joined: Mapping[str, int]) -> dict[str, int]:
    return {name: _both(alloc, until_joined, name) for name in {*alloc, *until_joined}}
