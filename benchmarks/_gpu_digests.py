"""The same trainings on other engines, over other networks, through joins, leaves, a kill and a restart."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from _gpu_attempts import Attempt, Failed, Place
from _gpu_networks import SMALL, TASKS
from _gpu_page import Page
from _gpu_training import SETTINGS

from edt_contract.reports import ReportKind

MICRO_BATCHES, STEPS = 4, 200
_CORES_EACH = 3
"""Cores for one training with its two engines, driver and supervisor."""
_CHANGE_SECONDS = 30.0
_LINE = 60
_BETWEEN_SECONDS = 0.5
"""Seconds of training between two events."""


@dataclass(frozen=True)
class Course:
    """A training and what happens to it.

    Attributes:
        collectives: whether its reductions are collective.
        happens: makes it happen. It is called with the attempt and returns when all has happened.
        restarts: the training is stopped after a checkpoint, and started again.
    """

    title: str
    collectives: bool
    happens: Callable[[Attempt], None]
    restarts: bool = False


def _alone(attempt: Attempt) -> None:
    attempt.hold([1])


def _two(attempt: Attempt) -> None:
    attempt.hold([1, 2])
    for number in (1, 2):
        attempt.wait_until_counted(number)


def _two_changed_over(attempt: Attempt) -> None:
    _two(attempt)
    attempt.wait(
        lambda: attempt.changes_over() >= 2, "both engines say that reductions are collective now", _CHANGE_SECONDS
    )


def _join(attempt: Attempt) -> None:
    attempt.hold([1])
    attempt.wait_until_counted(1)
    time.sleep(_BETWEEN_SECONDS)
    attempt.hold([1, 2])
    attempt.wait_until_counted(2)


def _leave(attempt: Attempt) -> None:
    _two(attempt)
    time.sleep(_BETWEEN_SECONDS)
    attempt.hold([2])
    attempt.wait_until_gone(1)


def _kill(attempt: Attempt) -> None:
    _two(attempt)
    _kill_one(attempt)


def _kill_changed_over(attempt: Attempt) -> None:
    _two_changed_over(attempt)
    _kill_one(attempt)


def _kill_one(attempt: Attempt) -> None:
    time.sleep(_BETWEEN_SECONDS)
    attempt.kill_engine(1)
    attempt.wait_until_gone(1)
    attempt.hold([2, 3])
    attempt.wait_until_counted(3)


def _until_checkpoint(attempt: Attempt) -> None:
    _two(attempt)
    attempt.wait(
        lambda: any(body["step"] > 0 for body in attempt.told(ReportKind.CHECKPOINTED)), "a checkpoint in mid-training"
    )


def courses(faster: str) -> list[Course]:
    """All courses.

    Args:
        faster: what collective reductions go over; "": that is not possible.
    """
    found = [
        Course("W = 2 over gloo", False, _two),
        Course("join, 1 → 2", False, _join),
        Course("leave, 2 → 1", False, _leave),
        Course("SIGKILL of one of 2, and return", False, _kill),
        Course("all stopped, restarted from a checkpoint", False, _until_checkpoint, restarts=True),
    ]
    if faster:
        found += [
            Course(f"W = 2 over {faster}", True, _two_changed_over),
            Course(f"SIGKILL of one of 2, and return, {faster}", True, _kill_changed_over),
        ]
    return found


def run(page: Page, place: Place, *, faster: str, why_not: str) -> bool:
    """Train all, some at a time, and print whether they are equal.

    Args:
        page: gets the rows.
        place: where they run.
        faster: what collective reductions go over; "": that is not possible.
        why_not: why it is not.

    Returns:
        Whether reductions were collective wherever they were to be.
    """
    collective = bool(faster)
    at_a_time = max(2, min(8, place.cores // _CORES_EACH))
    with ThreadPoolExecutor(at_a_time) as pool:
        references = {name: pool.submit(_train, place, name, 0, Course("W = 1", False, _alone)) for name in SMALL}
        others = {
            (name, course.title): pool.submit(_train, place, name, number, course)
            for name in SMALL
            for number, course in enumerate(courses(faster), 1)
        }
        for name in SMALL:
            title = TASKS[name].title
            try:
                reference, seconds = references[name].result()
            except Exception as error:
                page.failed(title, error)
                continue
            page.text(title, "")
            page.equal("  W = 1", reference, reference, f"{seconds:.1f} s")
            for course in courses(faster):
                try:
                    digest, seconds = others[name, course.title].result()
                except Exception as error:
                    collective = collective and not course.collectives
                    page.failed(f"{title}, {course.title}", error)
                else:
                    page.equal(f"  {course.title}", digest, reference, f"{seconds:.1f} s")
    if not faster:
        page.text("W = 2 over NCCL", f"not possible here: {why_not}")
    for path in sorted(place.folder.glob(f"*/{SETTINGS}"))[:1]:
        told = json.loads(path.read_text())
        words = "; ".join(f"{name}: {value}" for name, value in told.items())
        for number, line in enumerate(textwrap.wrap(words, _LINE)):
            page.text("" if number else "in an engine's pass", line)
    return collective


def _train(place: Place, network: str, number: int, course: Course) -> tuple[str, float]:
    """Returns the digest and the seconds that it took."""
    start, name = time.monotonic(), f"{network[:4]}{number}"
    words = ("paced", network, MICRO_BATCHES, STEPS)
    with Attempt(place, name, words, 2, collectives=course.collectives) as attempt:
        if course.happens is _alone:
            attempt.go()
        course.happens(attempt)
        if not course.restarts:
            attempt.go()
            digest = attempt.digest()
            _refuse_ended_guarantee(attempt)
            return digest, time.monotonic() - start
    with Attempt(place, name, words, 2, collectives=course.collectives, fence=2) as attempt:
        attempt.go()
        attempt.hold([3, 4])
        digest = attempt.digest()
        _refuse_ended_guarantee(attempt)
        return digest, time.monotonic() - start


def _refuse_ended_guarantee(attempt: Attempt) -> None:
    ended = attempt.told(ReportKind.GUARANTEE_ENDED)
    if ended:
        raise Failed(f"{attempt.name}: the guarantee of equal bits ended: {ended[0]}")
