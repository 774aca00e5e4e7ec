"""Which failures may be forgiven: a test that fails once, passes when it is run again alone, and is none of those that
must never fail.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

MOST = 2
"""So many failed tests are run again. More of them are no accident."""
FLAKY = Path(__file__).parents[1] / "flaky.txt"

NEVER: Mapping[str, str] = {
    "tests/chaos/": "a storm's counts and its checker's verdict",
    "tests/checker/": "the checker itself",
    "tests/elastic/test_crashes.py": "crash points and digests",
    "tests/elastic/test_digests.py": "digests",
    "tests/elastic/test_head_nodes.py": "crash points and digests",
    "tests/elastic/test_lr_rule.py": "digests",
    "tests/elastic/test_per_engine.py": "digests and sample counts",
    "tests/elastic/test_random_schedules.py": "digests and sample counts",
    "tests/elastic/test_recoveries.py": "crash points and digests",
    "tests/elastic/test_resume.py": "digests",
    "tests/runners/test_crash_points.py": "crash points",
    "tests/scheduler/test_deaths.py": "crash points and the checker's verdict",
}
"""Files and folders of tests that are never forgiven, however they failed, and what they try. Single tests bear the
marker ``never_forgiven``, with the same kind of words."""
_EXACT = re.compile(r"digest|sample|audit", re.I)
"""In an assertion that failed, or in what led to it: what must be the same in every run."""


@dataclass(frozen=True)
class Failed:
    """A test that failed. ``never``: why it cannot be forgiven; None: it may be."""

    test: str
    never: str | None = None


@dataclass(frozen=True)
class Verdict:
    """What became of the failed tests: ids of those that are forgiven, and of those that stay failures."""

    forgiven: tuple[str, ...]
    failed: tuple[str, ...]


def never_of(
    file: str, marked: str | None = None, *, assertion: str = "", checker: bool = False, flaky: bool = False
) -> str | None:
    """Why a test of this file is never forgiven; None: it may be.

    ``marked``: the words of its marker; ``assertion``: the statements that led to one that failed; ``checker``: it
    failed by the checker's verdict; ``flaky``: its name is in tests/flaky.txt.
    """
    if checker:
        return "the checker's verdict"
    if _EXACT.search(assertion):
        return "it compared digests or samples"
    if marked is not None:
        return marked
    if flaky:
        return "it is in tests/flaky.txt, and has to be mended"
    return next((why for place, why in NEVER.items() if file == place or file.startswith(place)), None)


def to_run_again(failed: Collection[Failed]) -> list[str]:
    """The tests that are run once more, each alone: all that failed, where that could make the run good."""
    if len(failed) > MOST or any(each.never is not None for each in failed):
        return []
    return [each.test for each in failed]


def judge(failed: Collection[Failed], passed_again: Collection[str]) -> Verdict:
    """What is forgiven, by what passed when it was run again."""
    tried = to_run_again(failed)
    forgiven = tuple(test for test in tried if test in passed_again)
    return Verdict(forgiven, tuple(each.test for each in failed if each.test not in forgiven))


@dataclass(frozen=True)
class Flaky:
    """A line of tests/flaky.txt."""

    test: str
    since: datetime.date
    why: str


def flaky_tests(text: str) -> list[Flaky]:
    """The lines of tests/flaky.txt: ``ID | YYYY-MM-DD | WHY``; empty ones and those with # in front are passed over.

    Raises ValueError, which names the line, where one has another form.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.rsplit("|", 2)]
        try:
            test, since, why = parts
            if not (test and why):
                raise ValueError
            found.append(Flaky(test, datetime.date.fromisoformat(since), why))
        except ValueError:
            raise ValueError(
                f"tests/flaky.txt, line {number}: {line!r} is not `id | date as YYYY-MM-DD | why`"
            ) from None
    return found
