"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def until(condition: Callable[[], _T], seconds: float = 30.0, what: str = "") -> _T:
    """The first true answer. Fails, with the last answer, when there is none in time: a slow machine takes less."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what or condition}; last answer {answer!r}")
        time.sleep(0.01)
    return answer
