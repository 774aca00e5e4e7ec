"""Paths of queues, which queue a job belongs to, and how usage of the past counts less with time. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

MOST_SLOTS = 10_000_000
"""The largest quota and limit of a queue."""
MOST_WEIGHT = 1_000_000.0
MOST_CHARACTERS = 256
"""Longest path of a queue."""
MOST_PRIORITY = 2**31 - 1
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def canonical(path: str) -> str:
    """A queue's path as it is stored: ``/research/vision``; "" is the root.

    >>> canonical("research//vision/"), canonical("/")
    ('/research/vision', '')
    """
    return "".join(f"/{part}" for part in path.split("/") if part.strip())


def fault(path: str) -> str | None:
    """Why there can be no queue of this canonical path; None: there can."""
    if len(path) > MOST_CHARACTERS:
        return f"got {len(path)} characters, takes at most {MOST_CHARACTERS}"
    if not all(_PART.fullmatch(part) for part in path.split("/")[1:]):
        return (
            f"got {path!r}, takes parts like /research/vision: each of letters, digits and _ . -, at most 63, and it "
            "begins with a letter or a digit"
        )
    return None


def belongs_to(path: str, queues: Collection[str]) -> str:
    """The queue of a job that asked for this path: that queue, or the nearest one above it. The root is always there.

    >>> belongs_to("/research/vision/cats", {"/research"})
    '/research'
    """
    while path and path not in queues:
        path = path.rpartition("/")[0]
    return path


def decayed(slot_seconds: float, seconds: float, half_life: float) -> float:
    """What is left of some usage after ``seconds``, if it halves each ``half_life`` seconds."""
    return float(slot_seconds * 0.5 ** (max(0.0, seconds) / half_life))
