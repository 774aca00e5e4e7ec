"""When a job is expected to start and to end, with how far such estimates were off. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edt_scheduler.answers.forecast import Forecast


@dataclass(frozen=True)
class PastError:
    """How far earlier estimates of a start were off, each made when its job began to wait."""

    jobs: int
    median_seconds: float
    """Half of them were off by no more than this."""
    p90_seconds: float
    """Nine of ten were."""

    @classmethod
    def of(cls, errors: Sequence[float]) -> PastError | None:
        """The errors of past estimates, in seconds, early or late; None: there are none."""
        if not errors:
            return None
        found = sorted(abs(each) for each in errors)
        return cls(len(found), found[(len(found) - 1) // 2], found[-(-9 * len(found) // 10) - 1])


@dataclass(frozen=True)
class Expected:
    """When a job is expected to start, and to end. Times are seconds since the epoch."""

    start: float | None
    """None: not before ``until``, or it runs already."""
    end: float | None
    """None: not before ``until``."""
    coarse: bool
    """Whether the start is only reckoned from the pace of starts, because the forecast ended before."""
    until: float
    guessed: int
    """Jobs that have not said how much they have left."""
    first: float | None
    """The start that was expected when it began to wait."""
    error: PastError | None
    """None: there are no past estimates yet."""
    sentence: str


def expected(
    job: str, found: Forecast, now: float, *, waits: bool, first: float | None, error: PastError | None
) -> Expected:
    """What a forecast says of one job.

    Args:
        job: its id.
        found: the forecast.
        now: when it was made.
        waits: whether the job holds no slot now.
        first: the start that was expected when it began to wait.
        error: how far past estimates were off.
    """
    (start, coarse), end = found.start_of(job) if waits else (None, False), found.ends.get(job)
    sentences = []
    if waits:
        sentences.append(_start(start, found, now, job, coarse=coarse))
        if start is not None and start > now:
            sentences.append(_error(error))
    if end is not None:
        guess = ", if it needs as long again as it has had" if job in found.guessed else ""
        sentences.append(f"Its end is expected {_in(end - now)}{guess}.")
    guessed = len(found.guessed - {job})
    if guessed and (not waits or start is None or start > now):
        who = "One other job has" if guessed == 1 else f"{guessed} other jobs have"
        sentences.append(f"{who} not said how much is left: each is taken to need as long again as it has had.")
    return Expected(start, end, coarse, found.until, len(found.guessed), first, error, " ".join(sentences))


def _start(start: float | None, found: Forecast, now: float, job: str, *, coarse: bool) -> str:
    if start is None:
        ahead = span(found.until - now)
        if found.whole:
            return f"It is not expected to start within {ahead}."
        return f"Its start lies beyond the {ahead} that could be looked ahead in the time for an answer."
    if start <= now:
        return (
            f"It starts {'as soon as slots are vacated for it' if found.settled.since.get(job, 1) > 1 else 'at once'}."
        )
    if coarse:
        return f"Its start is expected roughly {_in(start - now)}, by its rank and the pace at which others start."
    return f"Its start is expected {_in(start - now)}."


def _error(error: PastError | None) -> str:
    if error is None:
        return "There are no past estimates yet to compare with."
    jobs = "one past estimate was" if error.jobs == 1 else f"{error.jobs} past estimates were"
    return (
        f"In the median {jobs} off by {span(error.median_seconds)}, nine of ten by at most {span(error.p90_seconds)}."
    )


def _in(seconds: float) -> str:
    return f"in about {span(seconds)}" if seconds > 1 else "at once"


def span(seconds: float) -> str:
    """A duration in words."""
    for unit, length in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s" if seconds >= 10 or seconds == int(seconds) else f"{seconds:.1f} s"
