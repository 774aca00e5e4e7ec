"""What one viewer may see of other jobs, and how an answer names or only counts them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edt_scheduler.plan.state import Job

_JOB = re.compile(r"\bedt-[1-9][0-9]*\b")


@dataclass(frozen=True)
class Hidden:
    """What is not named, because the viewer may not see it."""

    jobs: int = 0
    slots: int = 0


@dataclass(frozen=True)
class Sight:
    """Which jobs a viewer may see."""

    only: frozenset[str] | None = None
    """The only ones; None: all."""

    def sees(self, job: str) -> bool:
        """Whether the viewer may see the job of this id."""
        return self.only is None or job in self.only

    def text(self, sentence: str) -> str:
        """A sentence in which the jobs that the viewer may not see are not named."""
        return _JOB.sub(lambda found: found[0] if self.sees(found[0]) else "another user's job", sentence)

    def split(self, jobs: Iterable[tuple[str, int]]) -> tuple[list[tuple[str, int]], Hidden]:
        """Jobs with their slots: those that may be named, and what the others are together."""
        seen, unseen, slots = [], 0, 0
        for name, number in jobs:
            if self.sees(name):
                seen.append((name, number))
            else:
                unseen += 1
                slots += number
        return seen, Hidden(unseen, slots)

    def listed(self, jobs: Sequence[tuple[str, int]], most: int = 3) -> str:
        """Jobs in words: ``edt-1, edt-2 and 3 jobs of others``."""
        seen, hidden = self.split(jobs)
        words = [name for name, _ in seen[:most]]
        if len(seen) > most:
            words.append(f"{len(seen) - most} more")
        if hidden.jobs:
            words.append("a job of another user" if hidden.jobs == 1 else f"{hidden.jobs} jobs of other users")
        return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "nobody"


def most_first(jobs: Iterable[tuple[Job, int]]) -> list[tuple[str, int]]:
    """Jobs with their slots, those that hold most first."""
    return [(job.id, number) for job, number in sorted(jobs, key=lambda each: (-each[1], each[0].submit))]
