"""The platform's own policy as the simulator asks it: what the scheduler would see of a training, and its plan."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from edt_scheduler.model.states import Health
from edt_scheduler.plan.curves import Point
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.state import Job, Node, Phase, State
from edt_scheduler.plan.worth import Weights
from edt_scheduler.simulate.cluster import Allocation
from edt_scheduler.simulate.training import Split, Training, steps_left

_LOOKS = 4
"""How many plans follow each other at one instant, at most."""


class Platform:
    """``plan`` as a policy of the simulator, with batches that do not change.

    Args:
        pause: seconds that a resize costs a job.
        known: whether scripts say how many steps they have left.
        remembers: whether the step times of earlier jobs with the same script and batch count.
        weights: the parameters of the plan.
    """

    def __init__(
        self, pause: float = 30.0, *, known: bool = True, remembers: bool = True, weights: Weights | None = None
    ) -> None:
        self.split: Split | None = None
        self._pause, self._known, self._remembers = pause, known, remembers
        self._weights = weights or Weights()
        self._earlier: dict[tuple[str, int], dict[tuple[int, int], float]] = {}
        self._homes: dict[str, str] = {}
        self._gpus, self._per_node = 0, 1

    def allocate(
        self, jobs: Mapping[str, Training], nodes: Mapping[int, int], held: Allocation, now: float
    ) -> Allocation:
        given: dict[str, tuple[int, ...]] = {name: tuple(gpus) for name, gpus in held.items()}
        self._gpus, self._per_node = sum(nodes.values()), max(nodes.values())
        for _ in range(_LOOKS):  # what one plan takes back, the next one gives to somebody else
            used = Counter(node for gpus in given.values() for node in gpus)
            state = State(
                now,
                tuple(Node(_name(node), gpus, gpus - used[node], Health.UP) for node, gpus in nodes.items()),
                tuple(self._job(place, job, given.get(name, ())) for place, (name, job) in enumerate(jobs.items())),
                weights=self._weights,
            )
            decided = plan(state)
            if not decided.actions:
                break
            self._homes = dict(decided.head_nodes)
            given = {
                name: tuple(int(node) for node in sorted(slots) for _ in range(slots[node]))
                for name, slots in decided.alloc.items()
                if slots
            }
        return given

    def _job(self, place: int, job: Training, gpus: tuple[int, ...]) -> Job:
        most = min(self._gpus, job.application.most_gpus(job.batch))
        return Job(
            id=job.name,
            submit=place,
            max=most,
            phase=Phase.RUNNING if gpus else Phase.WAITING,
            alloc={_name(node): number for node, number in Counter(gpus).items()},
            head_node=self._homes.get(job.name) if gpus else None,
            allowed=self._sizes(most),
            points=self._points(job),
            steps_left=steps_left(job) if self._known else None,
            attained=job.held_seconds,
            pause=self._pause,
        )

    def _points(self, job: Training) -> tuple[Point, ...]:
        earlier = self._earlier.setdefault((job.application.name, job.batch), {})
        own = {}
        for (nodes, gpus, local), (step, sync) in job.seen.items():
            if job.application.split(job.batch, gpus)[0] == local:
                own[gpus, nodes] = step + job.application.split(job.batch, gpus)[1] * (step - sync)
                earlier.setdefault((gpus, nodes), own[gpus, nodes])
        seen = {**earlier, **own} if self._remembers else own
        return tuple(Point(gpus, nodes, seconds) for (gpus, nodes), seconds in sorted(seen.items()))

    def _sizes(self, most: int) -> tuple[int, ...]:
        """Powers of two on one node, then whole nodes."""
        node = self._per_node
        small = [2**power for power in range(int(math.log2(node)) + 1) if 2**power <= min(node, most)]
        return (*small, *range(2 * node if small[-1] == node else node, most + 1, node))


def _name(node: int) -> str:
    return f"{node:03d}"
