"""What the first engine tells about the training. Room: runners; pure but for the clock and the link.

Metrics of every step go to the driver, whose logger writes them; they travel in small bundles. Progress goes the
way of reports, about once a second. All engines have the numbers, and keep the newest of them: if the first dies with
a bundle in its hands, the next first sends what it may not have sent, and the driver drops what it has.

Samples per second are those of training: the time of a validation counts for nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from edt_runner.engine.link import Link
from edt_runner.engine.schedule import Schedule, Tick, TickKind
from edt_runner.engine.tally import Tally

_BUNDLE_SECONDS = 0.1
_PROGRESS_SECONDS = 0.5
_KEPT_SECONDS = 5.0
_KEPT_MOST = 4096


class Telemetry:
    """Collects and sends.

    Args:
        link: where to.
        values: loss and metrics out of sums, asked only for what is sent.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        link: Link,
        values: Callable[[Sequence[float]], dict[str, float]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link, self._values, self._clock = link, values, clock
        self._items: list[dict[str, Any]] = []
        self._kept: deque[tuple[float, dict[str, Any]]] = deque(maxlen=_KEPT_MOST)
        self._sent = self._reported = self._last = clock()
        self._samples, self._seconds = 0, 0.0
        self._progress: dict[str, Any] | None = None

    def committed(
        self,
        schedule: Schedule,
        where: Tick,
        tally: Tally,
        samples: int,
        workers: int,
        *,
        leads: bool,
        details: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """A tick was committed by ``workers`` engines on ``samples`` samples; told if this engine ``leads``.
        ``details``: of a training step, beside loss and metrics."""
        now = self._clock()
        took, self._last = now - self._last, now
        step = where.steps
        if where.kind is TickKind.TRAIN or where.last:
            self._keep(
                now,
                {
                    "phase": where.kind.value,
                    "step": step,
                    "iteration": step * schedule.logical_workers,
                    "epoch": where.epoch + 1,
                    "workers": workers,
                    "metrics": tally.of(where.kind),
                    "details": dict(details) if where.kind is TickKind.TRAIN else {},
                    "time": time.time(),
                },
                leads=leads,
            )
        if not leads:
            return
        if where.kind is TickKind.TRAIN:
            self._samples += samples
            self._seconds += took
        if now - self._sent >= _BUNDLE_SECONDS or where.ends_epoch:
            self._send_items(now)
        if where.kind is TickKind.TRAIN:
            self._progress = {
                "step": step,
                "steps_total": schedule.steps,
                "epoch": where.epoch + 1,
                "epochs": schedule.epochs,
                "workers": workers,
                "metrics": tally.of(where.kind),
                "details": dict(details),
            }
        if now - self._reported >= _PROGRESS_SECONDS:
            self._send_progress(now)

    def _keep(self, now: float, item: dict[str, Any], *, leads: bool) -> None:
        self._kept.append((now, item))
        while self._kept and self._kept[0][0] < now - _KEPT_SECONDS:
            self._kept.popleft()
        if leads:
            self._items.append(item)

    def lead(self) -> None:
        """This engine is the first from now on; the one before it may have died with a bundle unsent."""
        self._items = [item for _, item in self._kept]
        self._last = self._reported = self._clock()
        self._send_items(self._last)

    def flush(self) -> None:
        """Send what is held: the engine is about to stop being the first, or to end."""
        now = self._clock()
        self._send_items(now)
        self._send_progress(now)

    def _send_items(self, now: float) -> None:
        if self._items:
            items = [self._with_values(item) for item in self._items]
            self._link.tell("metrics", items=items)
            self._items = []
        self._sent = now

    def _send_progress(self, now: float) -> None:
        if self._progress is None:
            return
        rate = self._samples / max(self._seconds, 1e-9)
        told = self._with_values(self._progress)
        self._link.report("progress", **told, loss=told["metrics"]["loss"], samples_per_second=rate)
        self._progress, self._samples, self._seconds, self._reported = None, 0, 0.0, now

    def _with_values(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """What is sent: the user's metrics first, and none of them hidden."""
        rest = {name: value for name, value in item.items() if name != "details"}
        values = self._values(item["metrics"])
        return {**rest, "metrics": {**values, **{k: v for k, v in item["details"].items() if k not in values}}}
