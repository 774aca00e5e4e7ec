"""What the first engine tells about the training. Room: runners; pure but for the clock and the link.

Metrics of every step go to the driver, whose logger writes them; they travel in small bundles. Progress goes the
way of reports, about once a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from edt_runner.engine.link import Link
from edt_runner.engine.schedule import Schedule, Tick, TickKind
from edt_runner.engine.tally import Tally

_BUNDLE_SECONDS = 0.1
_PROGRESS_SECONDS = 0.5


class Telemetry:
    """Collects and sends; ``clock`` is monotonic seconds."""

    def __init__(self, link: Link, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._link, self._clock = link, clock
        self._items: list[dict[str, Any]] = []
        self._sent = self._reported = self._since = clock()
        self._samples = 0
        self._progress: dict[str, Any] | None = None

    def committed(self, schedule: Schedule, where: Tick, tally: Tally, samples: int, workers: int) -> None:
        """A tick was committed by ``workers`` engines on ``samples`` samples."""
        now = self._clock()
        step = where.step + (where.kind is TickKind.TRAIN)
        means = tally.means(where.kind)
        if where.kind is TickKind.TRAIN or where.last:
            self._items.append(
                {
                    "phase": where.kind.value,
                    "step": step,
                    "iteration": step * schedule.logical_workers,
                    "epoch": where.epoch + 1,
                    "workers": workers,
                    "metrics": means,
                    "time": time.time(),
                }
            )
        if where.kind is TickKind.TRAIN:
            self._samples += samples
        if now - self._sent >= _BUNDLE_SECONDS or where.ends_epoch:
            self._send_items(now)
        if where.kind is TickKind.TRAIN:
            self._progress = {
                "step": step,
                "steps_total": schedule.steps,
                "epoch": where.epoch + 1,
                "epochs": schedule.epochs,
                "workers": workers,
                "loss": means["loss"],
                "metrics": means,
            }
        if now - self._reported >= _PROGRESS_SECONDS:
            self._send_progress(now)

    def flush(self) -> None:
        """Send what is held: the engine is about to stop being the first, or to end."""
        now = self._clock()
        self._send_items(now)
        self._send_progress(now)

    def _send_items(self, now: float) -> None:
        if self._items:
            self._link.tell("metrics", items=self._items)
            self._items = []
        self._sent = now

    def _send_progress(self, now: float) -> None:
        if self._progress is None:
            return
        rate = self._samples / max(now - self._since, 1e-9)
        self._link.report("progress", **self._progress, samples_per_second=rate)
        self._progress, self._samples, self._since, self._reported = None, 0, now, now
