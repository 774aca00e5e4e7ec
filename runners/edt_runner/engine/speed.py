"""How fast the training steps of an engine's membership are. Pure."""

from __future__ import annotations

from collections import deque

_RATE_SECONDS = 2.0
"""The samples per second are those of so many seconds of training steps, or of one step that took longer."""


class Speed:
    """How fast training steps are: those of late, and all since ``restart``."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, float]] = deque()
        """Samples and seconds of the newest training steps, all done by the same number of engines."""
        self._recent_samples, self._recent_seconds = 0, 0.0
        self._workers = 0
        self.samples, self.seconds = 0, 0.0
        """Samples of the training steps since ``restart``, and how long these steps took."""

    def add(self, samples: int, seconds: float, workers: int) -> None:
        """Count a training step, which ``workers`` engines have done."""
        if workers != self._workers:
            self._recent.clear()
            self._recent_samples, self._recent_seconds, self._workers = 0, 0.0, workers
        self._recent.append((samples, seconds))
        self._recent_samples += samples
        self._recent_seconds += seconds
        while self._recent_seconds - self._recent[0][1] >= _RATE_SECONDS:
            old_samples, old_seconds = self._recent.popleft()
            self._recent_samples -= old_samples
            self._recent_seconds -= old_seconds
        self.samples += samples
        self.seconds += seconds

    def restart(self) -> None:
        """Count ``samples`` and ``seconds`` from zero again."""
        self.samples, self.seconds = 0, 0.0

    @property
    def rate(self) -> float:
        """Samples per second of late."""
        return self._recent_samples / max(self._recent_seconds, 1e-9)
