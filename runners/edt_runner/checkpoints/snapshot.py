"""Recovery checkpoints in the background, each of the state between two steps. Threads, framework-neutral.

Between two steps a thread begins to copy the state. Parameters stand still until the end of the next step, so the copy
is made while that step computes; whoever changes them calls ``wait_copied()`` first. Writing the copy to disk takes as
long as it takes. Only one is under way at a time, so there is one copy in memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from edt_contract.durable import News, Outage, reason

_AGAIN_SECONDS = 1.0


class Snapshots:
    """Begins, waits for and finishes recovery checkpoints. All methods belong to the thread that trains.

    Args:
        interval_seconds: between the beginnings of two.
        export: the state by reference; called between two steps by the thread that trains, since a pass may move what
            the model holds and put it back.
        copy: of what ``export`` returned, in another thread, while the state stands still.
        write: (offset, sums of the epoch, copy) -> writes it durably, in another thread.
        note: called with a sentence for the user when a checkpoint could not be written, once, and once more when
            checkpoints are written again; by any thread. A full disk costs the checkpoint, not the training.
        clock: monotonic seconds.
        patience: seconds for which ``write_now`` tries again where the disk does not take it.
        sleep: waits so many seconds.
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
        """Whether the disk did not take the last one."""
        self._outage = Outage("recovery checkpoints", self._tell, clock=clock)
        self._next = clock() + interval_seconds
        self._thread: threading.Thread | None = None
        self._copied = threading.Event()
        self._copied.set()
        self._waiting: tuple[int, Mapping[str, Any]] | None = None
        """One that was forced while another was under way; its state has not changed yet."""

    def due(self) -> bool:
        """Whether the interval has passed since the last began, and none is under way."""
        return self._clock() >= self._next and not self.under_way

    def begin(self, offset: int, metric_sums: Mapping[str, Any], *, force: bool = False) -> None:
        """Between two steps: begin a checkpoint if one is due, or if ``force``. If another is under way, a forced one
        makes the next due at once: the first call that finds none under way begins it, of the state at that time."""
        if self.under_way:
            if force:
                self._waiting = (offset, metric_sums)
                self._next = self._clock()
            return
        if not force and not self.due():
            return
        self._note_start()
        exported = self._export_state(offset)
        if not exported:
            return
        self._copied.clear()
        self._thread = threading.Thread(
            target=self._work, args=(offset, metric_sums, exported), name="checkpoint", daemon=True
        )
        self._thread.start()

    def wait_copied(self) -> None:
        """Called before the state changes: wait until it has been copied, if it is being copied."""
        self._copied.wait()
        self._waiting = None  # its state is about to change; ``_next`` makes another one due

    def finish(self) -> None:
        """Wait until the checkpoint that was begun is on disk."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._waiting is not None:
            offset, metric_sums = self._waiting
            self._note_start()
            self._work(offset, metric_sums, self._export_state(offset))

    def write_now(self, offset: int, metric_sums: Mapping[str, Any]) -> None:
        """Write one of the state as it is and return when it is on disk, when there was no room for too long, or when
        something else than the disk is in the way."""
        deadline = self._clock() + self._patience
        while True:
            self._waiting = (offset, metric_sums)
            self.finish()
            if not self._lacks_room or self._clock() >= deadline:
                return
            self._sleep(_AGAIN_SECONDS)

    def _note_start(self) -> None:
        self._waiting = None
        self._next = self._clock() + self._interval

    @property
    def under_way(self) -> bool:
        """One is being copied or written."""
        return self._thread is not None and self._thread.is_alive()

    def _export_state(self, offset: int) -> list[Any]:
        """[the state], which the copying thread pops: while a reference is held, TensorFlow copies a variable before it
        writes. Empty if the export failed, which is noted."""
        try:
            return [self._export()]
        except Exception as error:
            self._no_checkpoint(offset, error)
            return []

    def _work(self, offset: int, metric_sums: Mapping[str, Any], exported: list[Any]) -> None:
        self._lacks_room = False
        if not exported:
            return
        try:
            try:
                copy = self._copy(exported.pop())
            finally:
                self._copied.set()
            self._write(offset, metric_sums, copy)
            self._outage.worked()
        except OSError as error:
            self._lacks_room = True
            self._outage.failed(f"{reason(error)} (at offset {offset})")
        except Exception as error:
            self._no_checkpoint(offset, error)

    def _no_checkpoint(self, offset: int, error: Exception) -> None:
        """Whatever it is, the training goes on without this checkpoint."""
        self._note(f"no recovery checkpoint at offset {offset}: {str(error) or type(error).__name__}")

    def _tell(self, news: News) -> None:
        again = f"; the training goes on, and it is tried again every {self._interval:g} s" if news.error else ""
        self._note(f"{news}{again}")
