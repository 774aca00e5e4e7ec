"""What is aimed at, and whether two processes mean the same training. Room: runners; pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edt_runner.roster import Roster


def target(roster: Roster) -> tuple[str, ...] | None:
    """The membership to aim at; None: wait, since somebody is on the way who can carry on."""
    assert roster.definition is not None
    cap = most_engines(roster.definition)
    staying = tuple(name for name in roster.current.members if name not in roster.leaving)
    waiting = tuple(name for name in roster.ready if name not in roster.leaving)
    if not staying:
        if waiting:  # somebody must hand the weights over: first they come, then the others go
            return roster.current.members + waiting[:cap]
        coming = roster.expected - set(roster.current.members) - roster.leaving - roster.released
        return None if coming else ()
    return staying + waiting[: max(0, cap - len(staying))]


def most_engines(definition: Mapping[str, Any]) -> int:
    """So many can share the work: E, or where the batch follows the engines as many as the driver says."""
    return int(definition.get("engines") or definition["schedule"]["logical_workers"])


def other_data(definition: Mapping[str, Any], facts: Mapping[str, Any] | None) -> str:
    """How an engine's data differ from the driver's; empty: they do not. ``facts`` None: it has not said."""
    for fact, value in definition["facts"].items():
        if facts and facts.get(fact) != value:
            return (
                f"DatasetMismatch: {fact}: {value} in the driver, {facts.get(fact)} in an engine. "
                "datasets_function() must give every process the same data; it runs under the job's seed."
            )
    return ""


def unlike(reference: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The first thing that two engines compute with and that is not the same; empty: there is none. What only one of
    them tells is passed over: it may be of an earlier release."""
    return next((what for what in reference if what in other and reference[what] != other[what]), "")


def other_training(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What tells the training of a driver that was started again from the one before; empty: nothing."""
    return next(
        (f"{name} was {before[name]} and is {now.get(name)}" for name in before if before[name] != now.get(name)), ""
    )
