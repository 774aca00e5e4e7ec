"""What a scheduler does on a platform, without one: an engine that died is replaced. Room: runners; a thread.

For ``python main.py``: a slot whose engine was lost gets another one, at first at once, then after growing pauses.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from edt_runner.bench import Bench
from edt_runner.contract import ExitKind, ReportKind, SlotWish, Wish
from edt_runner.spool import SpoolReader

_LOOK_SECONDS = 0.25
_END_SECONDS = 2.0
_PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)


class Replacing:
    """Holds these slots, whatever happens to their engines, from ``__enter__`` until ``let_go`` or the end."""

    def __init__(self, bench: Bench, devices: Sequence[str]) -> None:
        self._bench = bench
        self._slots = {number: SlotWish(number + 1, str(number), device) for number, device in enumerate(devices)}
        self._reader = SpoolReader(bench.letter.spool_dir)
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._lost = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Wish for all slots and look after them."""
        self._wish()
        self._thread = threading.Thread(target=self._look, name="edt-replacing", daemon=True)
        self._thread.start()

    def let_go(self) -> None:
        """All engines shall leave."""
        self._done.set()
        with self._lock:
            self._bench.wish(Wish(self._bench.letter.fence, ()))

    def stop(self) -> None:
        """Nothing is replaced any more; the thread has ended, so that the interpreter can."""
        self._done.set()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)

    def _look(self) -> None:
        while not self._done.wait(_LOOK_SECONDS):
            for report in self._reader.read():
                lost = report.body.get("kind") in (ExitKind.LOST, ExitKind.SCRIPT_ERROR)
                if report.kind is ReportKind.ENGINE_GONE and lost:
                    self._replace(int(report.body["allocation"]))

    def _replace(self, allocation: int) -> None:
        if self._done.wait(_PAUSES[min(self._lost, len(_PAUSES) - 1)]):
            return
        self._lost += 1
        newest = max(slot.allocation for slot in self._slots.values())
        for number, slot in self._slots.items():
            if slot.allocation == allocation:
                self._slots[number] = replace(slot, allocation=newest + 1)
        with self._lock:
            if not self._done.is_set():
                self._wish()

    def _wish(self) -> None:
        self._bench.wish(Wish(self._bench.letter.fence, tuple(self._slots.values())))
