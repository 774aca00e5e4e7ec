"""Plans that follow each other until nothing changes any more. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edt_scheduler.plan.carrying import carried_out
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.state import Phase, Plan, State

LOOKS = 4
"""How many plans follow each other at one instant, at most: what one takes back, the next one gives to others."""


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
