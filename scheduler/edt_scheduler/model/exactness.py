"""Whether a job's result is exact, as far as this was checked, and why. Pure.

A result is exact if it has the bits of an undisturbed training. During a training one thing can be checked: whether all
engines hold the same state. Engines compare checksums of their states. The job's row stores the outcome in these
columns:

* ``inexact``: the first reason why the result is not exact. The result never becomes exact again.
* ``comparisons``: how often the engines were compared and were equal, over all attempts.
* ``compared_step``: the step of the last such comparison. An attempt that resumes from an earlier step lowers it to
  that step. An attempt that begins at step 0 clears it.
* ``uncompared_step``: the step at which engines joined that were not compared since.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

MOST_CHARACTERS = 300
"""Number of characters that are kept of each text that a training reports about its guarantee."""


class Verdict(enum.StrEnum):
    """What can be said about a result."""

    EXACT = "exact"  # all engines were compared since the last one joined, and were equal
    NOT_COMPARED = "not-compared"  # nothing has ended the guarantee, but not all engines were compared
    NOT_EXACT = "not-exact"  # something has ended the guarantee of equal bits


@dataclass(frozen=True)
class Exactness:
    """A verdict, and one sentence that explains it."""

    verdict: Verdict
    reason: str
    comparisons: int = 0
    """How often the engines' states were compared and were equal."""
    compared_step: int | None = None
    """The step of the last such comparison."""


@dataclass(frozen=True)
class Compared:
    """The columns of a job's row about comparisons; the fields have the columns' names."""

    comparisons: int
    compared_step: int | None
    uncompared_step: int | None

    def equal(self, step: int, *, of_join: bool) -> Compared:
        """The columns after the engines were compared at ``step`` committed steps and were equal.

        ``of_join``: whether they were compared because an engine joined.
        """
        joined = self.uncompared_step
        waits = joined is not None and (joined > step or (joined == step and not of_join))
        newest = step if self.compared_step is None else max(step, self.compared_step)
        return Compared(self.comparisons + 1, newest, self.uncompared_step if waits else None)

    def joined(self, step: int) -> Compared:
        """The columns after an engine took over the state of others at ``step`` committed steps. The report may come
        late.
        """
        if self.compared_step is not None and self.compared_step > step:
            return self
        newest = step if self.uncompared_step is None else max(step, self.uncompared_step)
        return Compared(self.comparisons, self.compared_step, newest)

    def resumed(self, step: int) -> Compared:
        """The columns after an attempt has begun at ``step`` committed steps; 0: from the beginning. Later steps are
        undone.
        """
        compared, uncompared = self.compared_step, self.uncompared_step
        return Compared(
            self.comparisons,
            None if compared is None or step == 0 else min(compared, step),
            None if uncompared is None or uncompared >= step else uncompared,
        )


def judge(compared: Compared, inexact: str | None, *, started: bool) -> Exactness:
    """The verdict that follows from a job's columns. ``started``: whether an attempt of the job has begun."""
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
    """The reason as one text: what ended the guarantee and why, then what differs, in which engine and from which step
    on.
    """
    reason = f"{cut(what) or 'something'}: {cut(why) or 'unknown'}"
    place = f"in engine {engine}" if engine is not None else ""
    time = f"at step {step}" if step is not None else ""
    where = " ".join(part for part in (place, time) if part)
    first = f"first difference {where}".rstrip() if difference else where
    details = ": ".join(part for part in (first, cut(difference)) if part)
    return f"{reason} ({details})" if details else reason


def cut(text: str) -> str:
    """The part of a text that is kept: at most MOST_CHARACTERS characters."""
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def why_they_differ(step: int) -> str:
    """The reason as long as only the failed comparison is known."""
    return f"the engines' states differ at step {step}"
