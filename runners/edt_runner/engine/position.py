"""Where an engine is, at every instant: a small page of memory that it shares with its supervisor. Room: runners.

The engine writes, the supervisor reads, also after the engine's death: so a micro-batch that kills is known by name,
and an engine that hangs is told from those that wait for it.

The page has two places, written in turn, and the number of the newest: so a look is a whole one, whenever it is taken
and wherever the engine was killed. (``pack_into`` fills with zeros first: half of that has read as "hung since the
machine was started".)
"""

from __future__ import annotations

import enum
import mmap
import struct
import time
from dataclasses import dataclass

_LAYOUT = struct.Struct("<qqqdd")
PAGE_BYTES = mmap.PAGESIZE
_MOST_LOOKS = 1000
"""An engine writes far less often than its supervisor can look again; user code that scribbles here stops nobody."""


class Doing(enum.IntEnum):
    """What an engine is doing. The time that something may take is limited where the second column says so."""

    STARTING = 0  # no: user code up to train(), warming up, compiling
    COMPUTING = 1  # yes: a micro-batch of a training step, from the second one on
    REDUCING = 2  # the others may make it wait: its coordinator is told
    APPLYING = 3  # no
    VALIDATING = 4  # no
    EXPORTING = 5  # no: checkpoints and the user's files
    WAITING = 6  # no: for the coordinator
    REFORMING = 7  # no
    LOADING = 8  # yes: the batch of a micro-batch


@dataclass(frozen=True)
class Position:
    """One look at the page."""

    doing: Doing
    tick: int
    worker: int
    """Logical worker of the micro-batch; -1 outside of one."""
    since: float
    """Monotonic seconds at which this began."""
    longest: float
    """Seconds of the longest micro-batch so far; 0: there was none yet."""

    @property
    def micro_batch(self) -> tuple[int, int] | None:
        """(tick, logical worker) that is being computed."""
        return (self.tick, self.worker) if self.worker >= 0 else None


class Board:
    """The page. ``tick`` and ``engine`` are also kept as attributes, for crash points."""

    def __init__(self, page: mmap.mmap | None = None, engine: str = "") -> None:
        self._page = page if page is not None else mmap.mmap(-1, PAGE_BYTES)
        self._number = memoryview(self._page).cast("q")  # one of its items is written at one blow
        self.engine, self.tick = engine, 0
        self._longest = 0.0
        self._began = 0.0

    def write(self, doing: Doing, tick: int, worker: int = -1) -> None:
        """This engine does ``doing`` from now on."""
        now = time.monotonic()
        if self._began and doing is not Doing.STARTING:
            self._longest = max(self._longest, now - self._began)
        self._began = now if doing is Doing.COMPUTING else 0.0
        self.tick = tick
        number = self._number[0] + 1
        _LAYOUT.pack_into(self._page, _place(number), doing, tick, worker, now, self._longest)
        self._number[0] = number

    def read(self) -> Position:
        number = self._number[0]
        for _ in range(_MOST_LOOKS):
            before, found = number, _LAYOUT.unpack_from(self._page, _place(number))
            number = self._number[0]
            if number == before:  # else its place may have been written again meanwhile
                break
        doing, tick, worker, since, longest = found
        return Position(Doing(doing), tick, worker, since, longest)


def _place(number: int) -> int:
    """Where the page holds what was written at the ``number``-th time, behind that number."""
    return 8 + number % 2 * _LAYOUT.size


board = Board()
"""Of this process; an engine puts its own here when it begins."""


def take(page: mmap.mmap, engine: str) -> None:
    """Once, by the freshly forked engine."""
    global board  # noqa: PLW0603 - a process is one engine, and the data plane asks where it is
    board = Board(page, engine)
