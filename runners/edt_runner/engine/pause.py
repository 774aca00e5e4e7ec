"""How long a resize held the training up. Pure; room: runners.

Pause: the longest interval between two committed steps around the event, less a steady step at the new size
(DESIGN.md section 8).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

_AROUND = 3
"""Intervals that count as around the event: the one in which the switch fell and the two after it."""
_STEADY = 8
"""Intervals after those that make a steady step."""


@dataclass
class _Event:
    body: Mapping[str, Any]
    intervals: list[float] = field(default_factory=list)


class PauseMeter:
    """Feed it commit times of training steps; it gives back each resize with its pause when that is known."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._event: _Event | None = None

    def resize(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A switch is about to happen. Returns the one before, if its measurement was still running."""
        earlier = self.finish()
        self._event = _Event(body)
        return earlier

    def committed(self, now: float) -> Mapping[str, Any] | None:
        """A training step was committed at ``now`` (monotonic seconds). Returns a finished measurement."""
        if self._event is not None and self._last is not None:
            self._event.intervals.append(now - self._last)
        self._last = now
        if self._event is not None and len(self._event.intervals) >= _AROUND + _STEADY:
            return self.finish()
        return None

    def interrupted(self) -> None:
        """Something else than training took the time since the last commit: a validation, a checkpoint."""
        self._last = None

    def finish(self) -> Mapping[str, Any] | None:
        """What is known of the event under way; its pause is None where too few steps came after it."""
        event, self._event = self._event, None
        if event is None:
            return None
        around, steady = event.intervals[:_AROUND], event.intervals[_AROUND:]
        pause = max(0.0, max(around) - median(steady)) if around and steady else None
        return {**event.body, "pause_seconds": pause}
