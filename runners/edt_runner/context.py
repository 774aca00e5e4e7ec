"""What a process of a training is, and what it is doing.

A process that the supervisor forked is a driver or an engine of one attempt: ``train()`` looks here to learn its role,
and a process that no supervisor forked has no context.

An engine says at every instant what it is doing, in a page of memory that it shares with its supervisor. The engine
writes and the supervisor reads, also after the engine's death. So a micro-batch that ends engines is known by name, and
an engine that hangs can be told from those that wait for it. The page has two places, written in turn, and the number
of the newest entry: a reader always sees a whole entry, whenever it looks and wherever the engine was killed.
(``pack_into`` fills a place with zeros first.)
"""

from __future__ import annotations

import enum
import mmap
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from edt_contract.attempt import AttemptSpec
from edt_runner.protocol.data import MicroBatch

_LAYOUT = struct.Struct("<qqqdd")
PAGE_BYTES = mmap.PAGESIZE
_MOST_READS = 1000
"""An engine writes far less often than its supervisor can read again; this ends the reading of a page that user code
scribbles on."""


@dataclass(frozen=True)
class Context:
    """A driver or an engine of one attempt."""

    role: str
    """``driver`` or ``engine``."""
    spec: AttemptSpec
    coordinator: str
    """``host:port`` at which the coordinator was when this process was forked."""
    name: str = ""
    """Of an engine: its allocation id in decimal digits."""
    device: str = "cpu"
    """Of an engine: ``cpu``, or a GPU as CUDA_VISIBLE_DEVICES names it."""
    page: mmap.mmap | None = None
    """Of an engine: shared memory in which it writes what it is doing (``StatusPage``)."""
    report_failure: Callable[[str, str], None] | None = None
    """Says to the supervisor why this process fails: (message, traceback). For code that ends it without raising."""


class ActivityKind(enum.IntEnum):
    """What an engine is doing. Its supervisor limits the time of those that say so."""

    STARTING = 0  # not limited: user code up to train(), warming up, compiling
    COMPUTING = 1  # limited: a micro-batch of a training step, from the second one on
    REDUCING = 2  # the others may make it wait: if it takes too long, the coordinator is told
    APPLYING = 3  # not limited
    VALIDATING = 4  # not limited
    EXPORTING = 5  # not limited: checkpoints and the user's files
    WAITING = 6  # not limited: for the coordinator
    REGROUPING = 7  # not limited
    LOADING = 8  # limited: the batch of a micro-batch


@dataclass(frozen=True)
class Activity:
    """One entry of the page."""

    kind: ActivityKind
    offset: int
    """How far the training is, in steps, or in micro-batches where the batch follows the engines."""
    index: int
    """Of the micro-batch that is computed; -1: none is."""
    since: float
    """Monotonic seconds at which this began."""
    longest: float
    """Seconds that the longest micro-batch so far has taken; 0: there was none yet."""

    @property
    def micro_batch(self) -> MicroBatch | None:
        """The micro-batch that is computed."""
        return MicroBatch(self.offset, self.index) if self.index >= 0 else None


class StatusPage:
    """The page.

    Args:
        memory: shared memory of ``PAGE_BYTES``; None: memory of this process alone.
        engine: name of the engine, for crash points.
    """

    def __init__(self, memory: mmap.mmap | None = None, engine: str = "") -> None:
        self._memory = memory if memory is not None else mmap.mmap(-1, PAGE_BYTES)
        self._number = memoryview(self._memory).cast("q")  # one item of it is written at once
        self.engine, self.offset = engine, 0
        self._longest = 0.0
        self._computing_since = 0.0

    def write(self, kind: ActivityKind, offset: int, index: int = -1) -> None:
        """This engine does something else from now on. ``index``: of the micro-batch that it computes."""
        now = time.monotonic()
        if self._computing_since and kind is not ActivityKind.STARTING:
            self._longest = max(self._longest, now - self._computing_since)
        self._computing_since = now if kind is ActivityKind.COMPUTING else 0.0
        self.offset = offset
        number = self._number[0] + 1
        _LAYOUT.pack_into(self._memory, _place(number), kind, offset, index, now, self._longest)
        self._number[0] = number

    def read(self) -> Activity:
        """The newest entry."""
        number = self._number[0]
        for _ in range(_MOST_READS):
            before, entry = number, _LAYOUT.unpack_from(self._memory, _place(number))
            number = self._number[0]
            if number == before:  # else its place may have been written again meanwhile
                break
        kind, offset, index, since, longest = entry
        return Activity(ActivityKind(kind), offset, index, since, longest)


def _place(number: int) -> int:
    """Offset in bytes of the place of the ``number``-th entry, behind that number."""
    return 8 + number % 2 * _LAYOUT.size


page = StatusPage()
"""Of this process; an engine's is the one that it shares with its supervisor."""

_current: Context | None = None


def current() -> Context | None:
    """The context of this process; None: started by hand."""
    return _current


def enter(context: Context) -> None:
    """Set the context of this process, and its page; called once, in the freshly forked child."""
    global _current, page  # noqa: PLW0603 - a process has one role, and user code calls train() without naming it
    _current = context
    if context.page is not None:
        page = StatusPage(context.page, context.name)


training = ""
"""Name of the user's call by which this process's training has begun (``launch.train.claim``); empty: it has not."""
