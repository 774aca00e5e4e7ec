"""Whether a job's result is exact, as far as it was checked, and why. Pure.

A result is exact where it has the bits of an undisturbed training. What can be checked while it trains is that all
engines hold the same state; engines compare checksums of it, and the job's row keeps what came of that:

* ``inexact``: the first reason why the result is not exact; it never becomes exact again.
* ``comparisons``: how often the engines were compared and were equal, over all attempts.
* ``compared_step``: at which step that was last, as far as the attempt that runs now goes on from there.
* ``uncompared_step``: the step at which engines joined that nobody has compared since.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

MOST_CHARACTERS = 300
"""So much is kept of each text that a training tells about its guarantee."""


class Verdict(enum.StrEnum):
    """What may be said of a result."""

    EXACT = "exact"  # all engines were compared since the last one joined, and were equal
    NOT_COMPARED = "not-compared"  # nothing speaks against it, and nobody has looked
    NOT_EXACT = "not-exact"  # something has ended the guarantee


@dataclass(frozen=True)
class Exactness:
    """A verdict, and one sentence why."""

    verdict: Verdict
    reason: str
    comparisons: int = 0
    """How often the engines' states were compared and were equal."""
    compared_step: int | None = None
    """At which step that was last."""


@dataclass(frozen=True)
class Compared:
    """What a job's row knows of comparisons; the names are its columns'."""

    comparisons: int
    compared_step: int | None
    uncompared_step: int | None

    def equal(self, step: int, *, of_join: bool) -> Compared:
        """The engines were compared after ``step`` committed steps, and were equal. ``of_join``: because one joined."""
        joined = self.uncompared_step
        waits = joined is not None and (joined > step or (joined == step and not of_join))
        newest = step if self.compared_step is None else max(step, self.compared_step)
        return Compared(self.comparisons + 1, newest, self.uncompared_step if waits else None)

    def joined(self, step: int) -> Compared:
        """An engine took over the state of others after ``step`` committed steps. It may be told late."""
        if self.compared_step is not None and self.compared_step > step:
            return self
        newest = step if self.uncompared_step is None else max(step, self.uncompared_step)
        return Compared(self.comparisons, self.compared_step, newest)

    def resumed(self, step: int) -> Compared:
        """An attempt has begun after ``step`` committed steps, 0 if from the beginning; what came later is undone."""
        compared, uncompared = self.compared_step, self.uncompared_step
        return Compared(
            self.comparisons,
            None if compared is None or step == 0 else min(compared, step),
            None if uncompared is None or uncompared >= step else uncompared,
        )


def judge(compared: Compared, inexact: str | None, *, started: bool) -> Exactness:
    """What a job's columns say of its result. ``started``: an attempt of it has begun."""
    facts = (compared.comparisons, compared.compared_step)
    if inexact is not None:
        return Exactness(Verdict.NOT_EXACT, inexact, *facts)
    if not started:
        return Exactness(Verdict.NOT_COMPARED, "It has not trained yet.", *facts)
    if compared.uncompared_step is not None:
        reason = f"Engines joined at step {compared.uncompared_step}; the engines have not been compared since."
        return Exactness(Verdict.NOT_COMPARED, reason, *facts)
    if compared.compared_step is None:
        reason = "Only one engine at a time has trained it: there was no other to compare it with."
        return Exactness(Verdict.NOT_COMPARED, reason, *facts)
    times = "once" if compared.comparisons == 1 else f"{compared.comparisons} times"
    reason = f"The states of all engines were compared {times}, last at step {compared.compared_step}: they were equal."
    return Exactness(Verdict.EXACT, reason, *facts)


def why_not_exact(what: str, why: str, engine: int | None, step: int | None, difference: str) -> str:
    """The reason as one text: what ended the guarantee and why, then what differs, where and from when on."""
    reason = f"{cut(what) or 'something'}: {cut(why) or 'unknown'}"
    place = f"in engine {engine}" if engine is not None else ""
    time = f"at step {step}" if step is not None else ""
    where = " ".join(part for part in (place, time) if part)
    first = f"first difference {where}".rstrip() if difference else where
    details = ": ".join(part for part in (first, cut(difference)) if part)
    return f"{reason} ({details})" if details else reason


def cut(text: str) -> str:
    """As much of a text as is kept."""
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def why_they_differ(step: int) -> str:
    """The reason while nothing more is known than that a comparison failed."""
    return f"the engines' states differ at step {step}"
