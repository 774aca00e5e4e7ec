"""How the survivors of a regroup continue, and what each of them is told of it. Pure.

No engine can be more than one step behind another, because a reduction completes only with all engines. So there are
two cases. Either all engines are at the same offset: then they compute the lost micro-batches of that step again. Or
some engines have committed a step that others have not: then the others receive the reduced gradients of that step, and
nothing is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from edt_runner.protocol.data import CatchUp, RegroupPlan, RegroupStatus
from edt_runner.protocol.differences import to_runs
from edt_runner.splits import contiguous_split, even_counts, even_split

MOST_TESTS = 16
"""The most engines to which one engine tries to connect if the group is not built. Where there are no more others, it
tries them all."""
MOST_RUNS = 64
"""The most runs (``PlanDifference.runs``) of a split that keeps all that was summed."""
MOST_SOURCES = 32
"""The most engines that send the state to engines that are behind."""


def own_parts(plan: RegroupPlan) -> Callable[[str], RegroupPlan]:
    """Return a function that returns the plan as one engine needs it (``RegroupPlan``)."""
    behind, sources, repaired = set(plan.behind), set(plan.sources), set(plan.repaired)
    idle = replace(plan, behind=(), sources=(), catch_up=CatchUp.NOTHING, repaired=())

    def own(name: str) -> RegroupPlan:
        part = idle
        if name in behind or name in sources:
            to = plan.behind if name in sources else (name,)
            part = replace(part, behind=to, sources=plan.sources, catch_up=plan.catch_up)
        if name == plan.repair_source or name in repaired:
            part = replace(part, repaired=plan.repaired if name == plan.repair_source else (name,))
        return part

    return own


def whom_to_test(members: Sequence[str], suspects: Collection[str], number: int) -> dict[str, list[str]]:
    """Return, for each engine, the engines to which it tries to connect if the group is not built.

    These are at most ``MOST_TESTS``, so that no engine is tested by all others at once. An engine that nobody reaches
    is found at once, because all that test it name it. A single pair of engines that do not reach each other is found
    in the next regroup, because both are suspects. Each regroup chooses other pairs, by its number.

    Args:
        members: all engines, in rank order.
        suspects: engines that could not build the group of the regroup before. They test each other first.
        number: number of the regroup.
    """
    found: dict[str, list[str]] = {name: [] for name in members}
    for ring in ([name for name in members if name in suspects], members):
        first = number * MOST_TESTS % max(1, len(ring) - 1)
        for place, name in enumerate(ring):
            for turn in range(min(MOST_TESTS, len(ring) - 1)):
                other = ring[(place + 1 + (first + turn) % (len(ring) - 1)) % len(ring)]
                if len(found[name]) < MOST_TESTS and other not in found[name]:
                    found[name].append(other)
    return found


def plan_regroup(
    order: Sequence[str],
    statuses: Mapping[str, RegroupStatus],
    *,
    distrusted: Collection[str] = (),
    restore: int | None = None,
    before: Sequence[str] = (),
) -> RegroupPlan:
    """Plan how the survivors continue.

    Engines at the highest offset are *in front*; the coming step is the step at that offset. All other engines are
    *behind*, by one step.

    If the batch follows the engines, the coming step keeps the width with which engines have begun it, so that none of
    its micro-batches is lost or computed twice. If no engine has begun the step, the width of the first engine in front
    applies: engines that switched to another group before the loss see another width than engines that did not.

    Each engine keeps the micro-batches that it has summed, and all others are dealt evenly. Every engine is told the
    whole split. So if there are many engines and each has summed another part of its own, each keeps all of its part of
    the step, summed or not, and only the parts of the engines that are gone are dealt (``MOST_RUNS``).

    Args:
        order: engines in rank order; engines without a status are left out.
        statuses: the status of each survivor, by name.
        distrusted: engines whose state differs from that of the first engine; the micro-batches that they have summed
            are not used.
        restore: all engines go back to a checkpoint of this offset or an earlier one; None: they do not.
        before: the engines of the last settled membership, in rank order.
    """
    members = tuple(name for name in order if name in statuses)
    if restore is not None:
        split: tuple[tuple[int, ...], ...] = ((),) * len(members)
        return RegroupPlan(
            members, restore, (), (), CatchUp.NOTHING, split, 0, members[0], members[1:], restore=restore
        )
    statuses = {name: replace(each, summed=()) if name in distrusted else each for name, each in statuses.items()}
    offset = max(status.offset for status in statuses.values())
    front = tuple(name for name in members if statuses[name].offset == offset)
    behind = tuple(name for name in members if statuses[name].offset != offset)
    catch_up, sources = _catch_up(front, behind, statuses, distrusted)
    begun_first = sorted(front, key=lambda name: not statuses[name].summed)
    width = next((statuses[name].micro_batches for name in begun_first if statuses[name].micro_batches), 0)
    kept = _kept([name for name in front if statuses[name].micro_batches in (0, width)], statuses)
    split = _split(members, kept, width)
    if len(to_runs(split)) > MOST_RUNS:
        own = dict(zip(before, even_split(width, len(before)), strict=True)) if before else {}
        split = _split(members, {name: own[name] for name in members if name in own}, width)
    none: set[int] = set()
    lost = width - sum(len(kept.get(name, none) & {*part}) for name, part in zip(members, split, strict=True))
    repair_source, repaired = _repair(members, front, catch_up, distrusted)
    return RegroupPlan(members, offset, behind, sources, catch_up, split, lost, repair_source, repaired)


def _catch_up(
    front: tuple[str, ...],
    behind: tuple[str, ...],
    statuses: Mapping[str, RegroupStatus],
    distrusted: Collection[str],
) -> tuple[CatchUp, tuple[str, ...]]:
    """Return what the engines behind receive, and the engines that send it."""
    if not behind:
        return CatchUp.NOTHING, ()
    offset = statuses[front[0]].offset
    have_reduced = tuple(name for name in front if statuses[name].has_reduced)
    if have_reduced and all(_offset_after(statuses[name]) == offset for name in behind):
        return CatchUp.REDUCED, have_reduced[:1]
    trusted = tuple(name for name in front if name not in distrusted)
    return CatchUp.STATE, trusted[:MOST_SOURCES] or front[:1]


def _offset_after(status: RegroupStatus) -> int:
    """Return the offset after the coming step."""
    return status.offset + 1 if status.offset_after is None else status.offset_after


def _repair(
    members: Sequence[str], front: Sequence[str], catch_up: CatchUp, distrusted: Collection[str]
) -> tuple[str, tuple[str, ...]]:
    """Return the engine that sends its state after the catch-up, and the engines that receive it.

    The first trusted engine sends to all engines that are not trusted. If all engines that could send a state are
    distrusted, the first of them sends: none of them is better than another.
    """
    if not any(name in distrusted for name in members):
        return "", ()
    lost = catch_up is CatchUp.STATE and all(name in distrusted for name in front)
    trusted = () if lost else tuple(name for name in members if name not in distrusted)
    source = (trusted or tuple(front))[0]
    keeps = {*trusted, source} if not lost else {source, *members} - {*front[1:]}
    return source, tuple(name for name in members if name not in keeps)


def _kept(front: Sequence[str], statuses: Mapping[str, RegroupStatus]) -> dict[str, set[int]]:
    """Return the micro-batches that each engine keeps. The largest subtrees are chosen first; no micro-batch is kept
    twice."""
    kept: dict[str, set[int]] = {}
    taken: set[int] = set()
    every = [(span, place, name) for place, name in enumerate(front) for span in statuses[name].summed]
    for (low, high), _, name in sorted(every, key=lambda item: (item[0][0] - item[0][1], *item)):
        span = set(range(low, high))
        if not span & taken:
            taken |= span
            kept.setdefault(name, set()).update(span)
    return kept


def _split(members: Sequence[str], kept: Mapping[str, Collection[int]], width: int) -> tuple[tuple[int, ...], ...]:
    """Split a step of ``width`` micro-batches: each member has those that it keeps, and the others are dealt evenly.
    Neighbours stay together, because a rank sums them before it sends them."""
    taken = set[int]().union(*kept.values())
    lost = [index for index in range(width) if index not in taken]
    parts = contiguous_split(even_counts(len(lost), len(members)))
    return tuple(
        tuple(sorted({*kept.get(name, ()), *lost[part.start : part.stop]}))
        for name, part in zip(members, parts, strict=True)
    )
