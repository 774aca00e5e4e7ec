"""Names the slots of a plan, and tells by them what has made a job grow. Pure.

Free slots of a node are given in the node's order, so the order of the engines is that of the slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from edt_scheduler.model.states import ResizeCause
from edt_scheduler.plan.state import Action, Freed, Job, Plan, State, Verb

_Names = Mapping[str, tuple[str, ...]]
"""Node to names of slots."""


def named(state: State, plan: Plan) -> Plan:
    """The plan with the names of the slots that jobs get and give back, as far as the state names slots."""
    free = {node.id: list(node.free_slots) for node in state.nodes if node.free_slots}
    if not free and not any(job.slots for job in state.jobs):
        return plan
    jobs = {job.id: job for job in state.jobs}
    gives: dict[str, _Names] = {}
    takes: dict[str, _Names] = {}
    actions = []
    for action in plan.actions:
        job, then, until_joined = jobs[action.job], plan.alloc[action.job], plan.until_joined.get(action.job, {})
        given: dict[str, tuple[str, ...]] = {}
        for node, number in then.items():
            more = number + until_joined.get(node, 0) - job.alloc.get(node, 0) - job.until_joined.get(node, 0)
            if more > 0 and node in free:
                given[node] = tuple(free[node][:more])
                del free[node][:more]
        taken = {
            node: names[: len(names) - then.get(node, 0) - until_joined.get(node, 0)]
            for node, names in job.slots.items()
            if len(names) > then.get(node, 0) + until_joined.get(node, 0)
        }
        if given:
            gives[job.id] = given
        if taken:
            takes[job.id] = taken
        actions.append(_with_cause(action, job, given, state) if action.verb is Verb.GROW else action)
    return replace(plan, actions=tuple(actions), gives=gives, takes=takes)


def _with_cause(action: Action, job: Job, given: _Names, state: State) -> Action:
    """A growth with its cause: another job or engine gave its slots back, or E has become known."""
    if action.cause is not ResizeCause.SLOTS_FREE:
        return action
    known, resized = job.engines_at or 0.0, job.last_resize or 0.0
    freed = _newest(
        state.freed[node, slot] for node, slots in given.items() for slot in slots if (node, slot) in state.freed
    )
    if freed is not None and freed.at >= max(known, resized):
        if freed.job == job.id and freed.lost:
            return replace(action, reason="in place of an engine that was lost")
        if freed.ended is not None:
            return replace(action, cause=ResizeCause.JOB_ENDED, reason=f"{freed.job} {freed.ended}")
        return replace(action, reason=f"{freed.job} gave slots back")
    if job.engines_at is not None and resized <= known:
        reason = f"its script works with up to {job.engines} engines"
        return replace(action, cause=ResizeCause.ENGINES_KNOWN, reason=reason)
    return action


def _newest(freed: Iterable[Freed]) -> Freed | None:
    return max(freed, key=lambda each: (each.at, each.job), default=None)
