"""What the first engine tells about resizes: who came, left or died, and how long that took. Room: runners; pure but
for the clock and the link.

A resize is told once its pause is known, some steps later, and the first engine may be dead by then. So all engines
measure; the next first one tells again what the one before may not have told, and the coordinator drops what it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from edt_runner.engine.link import Link
from edt_runner.engine.pause import PauseMeter

_TICKS_APART = 1
"""So far at most is an engine ahead of one that has died: whatever was known before that, the dead one has told."""


class Resizes:
    """Measures and tells; ``clock`` is monotonic seconds. ``tick``: how many this engine has committed."""

    def __init__(self, link: Link, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._link, self._clock = link, clock
        self._meter = PauseMeter()
        self._known: list[tuple[int, Mapping[str, Any]]] = []
        """Those that a first engine which has just died may not have told, and at which tick each was known."""

    def begin(self, body: Mapping[str, Any], tick: int, *, leads: bool) -> None:
        """A switch is about to happen. Of the one before is told what is known; told only if this engine ``leads``."""
        self._learn(self._meter.resize(body), tick, leads)

    def committed(self, tick: int, *, leads: bool) -> None:
        """A training step was committed."""
        self._learn(self._meter.committed(self._clock()), tick, leads)

    def interrupted(self) -> None:
        """Something else than training took the time since the last commit: a validation, a checkpoint."""
        self._meter.interrupted()

    def finish(self, tick: int, *, leads: bool) -> None:
        """No more steps come: of the one under way is told what is known."""
        self._learn(self._meter.finish(), tick, leads)

    def lead(self, tick: int) -> None:
        """This engine is the first from now on; the one before it may have died with a resize untold."""
        self._forget(tick)
        for _, body in self._known:
            self._link.report("resized", **body)

    def _learn(self, body: Mapping[str, Any] | None, tick: int, leads: bool) -> None:
        if body is None:
            return
        self._forget(tick)
        self._known.append((tick, body))
        if leads:
            self._link.report("resized", **body)

    def _forget(self, tick: int) -> None:
        self._known = [(known, body) for known, body in self._known if known >= tick - _TICKS_APART]
