"""Recovery checkpoints in the background, each of one step boundary. Room: runners; threads, framework-neutral.

At a boundary a thread begins to copy the state. Parameters stand still until the end of the next step, so the copy
runs while that step computes; whoever changes them asks ``copied()`` first. Writing the copy to disk takes as long
as it takes. Only one is under way, so there is one copy in memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from edt_runner.storage import News, Outage, reason

_AGAIN_SECONDS = 1.0


class Snapshots:
    """Begins, waits for and finishes recovery checkpoints. All methods belong to the thread that trains.

    Args:
        interval_seconds: between the beginnings of two.
        export: the state by reference; called at the boundary by the thread that trains, since a pass may move what
            the model holds and put it back.
        copy: of what ``export`` returned, in another thread, while the state stands still.
        write: (tick, tally, copy) -> writes it durably, in another thread.
        note: hears why there is none, from any thread: a full disk costs the checkpoint, not the training. It is said
            once, and once more when checkpoints are written again.
        patience: seconds for which ``write_now`` tries again where the disk does not take it.
    """

    def __init__(
        self,
        interval_seconds: float,
        export: Callable[[], Any],
        copy: Callable[[Any], Any],
        write: Callable[[int, Mapping[str, Any], Any], None],
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        patience: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._interval, self._export, self._copy, self._write = interval_seconds, export, copy, write
        self._note, self._clock = note, clock
        self._patience, self._sleep = patience, sleep
        self._lacks_room = False
        """The disk did not take the last one."""
        self._outage = Outage("recovery checkpoints", self._tell, clock=clock)
        self._next = clock() + interval_seconds
        self._thread: threading.Thread | None = None
        self._copied = threading.Event()
        self._copied.set()
        self._waiting: tuple[int, Mapping[str, Any]] | None = None
        """Forced while another was under way; its state still stands."""

    def due(self) -> bool:
        """The interval is over since the last began, and none is under way."""
        return self._clock() >= self._next and not self.under_way

    def begin(self, tick: int, tally: Mapping[str, Any], *, force: bool = False) -> None:
        """At a boundary: begin one if it is due, or if ``force``.

        A forced one that finds another under way is begun at the first boundary after that.
        """
        if self.under_way:
            if force:
                self._waiting = (tick, tally)
                self._next = self._clock()
            return
        if not force and not self.due():
            return
        self._begun()
        exported = self._exported(tick)
        if not exported:
            return
        self._copied.clear()
        self._thread = threading.Thread(target=self._work, args=(tick, tally, exported), name="checkpoint", daemon=True)
        self._thread.start()

    def copied(self) -> None:
        """Called before the state changes: waits until it is copied, if it is being copied."""
        self._copied.wait()
        self._waiting = None  # its state is about to go; due() asks for the next one

    def finish(self) -> None:
        """Wait until what was begun is on disk."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._waiting is not None:
            tick, tally = self._waiting
            self._begun()
            self._work(tick, tally, self._exported(tick))

    def write_now(self, tick: int, tally: Mapping[str, Any]) -> None:
        """Write one of the state as it is and return when it is on disk, when there was no room for too long, or when
        something else than the disk is in the way."""
        deadline = self._clock() + self._patience
        while True:
            self._waiting = (tick, tally)
            self.finish()
            if not self._lacks_room or self._clock() >= deadline:
                return
            self._sleep(_AGAIN_SECONDS)

    def _begun(self) -> None:
        self._waiting = None
        self._next = self._clock() + self._interval

    @property
    def under_way(self) -> bool:
        """One is being copied or written."""
        return self._thread is not None and self._thread.is_alive()

    def _exported(self, tick: int) -> list[Any]:
        """[the state], which the copying thread pops: while a reference is held, TensorFlow copies a variable before it
        writes. Empty if the export failed, which is noted."""
        try:
            return [self._export()]
        except Exception as error:
            self._no_checkpoint(tick, error)
            return []

    def _work(self, tick: int, tally: Mapping[str, Any], exported: list[Any]) -> None:
        self._lacks_room = False
        if not exported:
            return
        try:
            try:
                copy = self._copy(exported.pop())
            finally:
                self._copied.set()
            self._write(tick, tally, copy)
            self._outage.worked()
        except OSError as error:
            self._lacks_room = True
            self._outage.failed(f"{reason(error)} (at position {tick})")
        except Exception as error:
            self._no_checkpoint(tick, error)

    def _no_checkpoint(self, tick: int, error: Exception) -> None:
        """Whatever it is, the training goes on without this checkpoint."""
        self._note(f"no recovery checkpoint at position {tick}: {str(error) or type(error).__name__}")

    def _tell(self, news: News) -> None:
        again = f"; the training goes on, and it is tried again every {self._interval:g} s" if news.error else ""
        self._note(f"{news}{again}")
