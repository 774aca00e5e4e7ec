"""The role of a process in a training, and its current activity.

Every process that the supervisor forks is a driver or an engine of one attempt. ``train()`` reads its role from here. A
process that no supervisor forked has no context.

An engine writes its current activity to a page of memory that it shares with its supervisor. The supervisor can read
the page even after the engine's death. So the supervisor knows which micro-batch ended an engine, and can distinguish
an engine that hangs from engines that wait for it. The page has places for two entries, which are written in turn, and
the number of the newest entry. So a reader always finds a complete entry, even if the engine was killed while it wrote.
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
"""The most tries to read the page. An engine writes much less often than its supervisor can read, so more tries are
needed only if user code overwrites the page."""


@dataclass(frozen=True)
class Context:
    """What a driver or an engine of one attempt knows about itself."""

    role: str
    """``driver`` or ``engine``."""
    spec: AttemptSpec
    coordinator: str
    """``host:port`` of the coordinator at the time when this process was forked."""
    name: str = ""
    """Name of the engine: its allocation id in decimal digits. Empty for the driver."""
    device: str = "cpu"
    """Device of the engine: ``cpu``, or a GPU as CUDA_VISIBLE_DEVICES names it."""
    ordinal: int = 0
    """Which of the job's engines it is, over all attempts and nodes: 1 for the first. 0: not known, or the driver."""
    page: mmap.mmap | None = None
    """Shared memory to which the engine writes its activity (``StatusPage``); None for the driver."""
    report_failure: Callable[[str, str], None] | None = None
    """Tells the supervisor why this process fails; called with (message, traceback). Code that ends the process without
    an exception uses this."""


class ActivityKind(enum.IntEnum):
    """The activity of an engine. The supervisor limits the time of the activities that are marked as limited."""

    STARTING = 0  # not limited: user code up to train(), warming up, compiling
    COMPUTING = 1  # limited: a micro-batch of a training step, from the second one on
    REDUCING = 2  # other engines may cause the wait: if it is too long, the coordinator gets a message
    APPLYING = 3  # not limited
    VALIDATING = 4  # not limited
    EXPORTING = 5  # not limited: checkpoints and the user's files
    WAITING = 6  # not limited: the engine waits for the coordinator
    REGROUPING = 7  # not limited
    LOADING = 8  # limited: the engine waits for the batch of a micro-batch


@dataclass(frozen=True)
class Activity:
    """One entry of a status page."""

    kind: ActivityKind
    offset: int
    """Offset of the training, in steps, or in micro-batches if the batch follows the engines."""
    index: int
    """Number of the micro-batch that is being computed; -1: there is none."""
    since: float
    """Time at which this activity began, in monotonic seconds."""
    longest: float
    """Duration of the longest micro-batch so far, in seconds; 0: there was none yet."""

    @property
    def micro_batch(self) -> MicroBatch | None:
        """The micro-batch that is being computed; None: there is none."""
        return MicroBatch(self.offset, self.index) if self.index >= 0 else None


class StatusPage:
    """A page of memory with the current activity of one engine.

    Args:
        memory: shared memory of ``PAGE_BYTES``; None: memory that is not shared.
        engine: name of the engine, for crash points.
    """

    def __init__(self, memory: mmap.mmap | None = None, engine: str = "") -> None:
        self._memory = memory if memory is not None else mmap.mmap(-1, PAGE_BYTES)
        self._number = memoryview(self._memory).cast("q")  # one item is written in a single store
        self.engine, self.offset = engine, 0
        self._longest = 0.0
        self._computing_since = 0.0

    def write(self, kind: ActivityKind, offset: int, index: int = -1) -> None:
        """Write that a new activity begins now.

        Args:
            kind: the activity.
            offset: offset of the training.
            index: number of the micro-batch that is computed; -1: there is none.
        """
        now = time.monotonic()
        if self._computing_since and kind is not ActivityKind.STARTING:
            self._longest = max(self._longest, now - self._computing_since)
        self._computing_since = now if kind is ActivityKind.COMPUTING else 0.0
        self.offset = offset
        number = self._number[0] + 1
        _LAYOUT.pack_into(self._memory, _place(number), kind, offset, index, now, self._longest)
        self._number[0] = number

    def read(self) -> Activity:
        """Return the newest entry."""
        number = self._number[0]
        for _ in range(_MOST_READS):
            before, entry = number, _LAYOUT.unpack_from(self._memory, _place(number))
            number = self._number[0]
            if number == before:  # else the place may have been overwritten meanwhile
                break
        kind, offset, index, since, longest = entry
        return Activity(ActivityKind(kind), offset, index, since, longest)


def _place(number: int) -> int:
    """Return the offset in bytes of the place of entry ``number``. The places follow the number of the newest entry."""
    return 8 + number % 2 * _LAYOUT.size


page = StatusPage()
"""The status page of this process. In an engine, its supervisor shares the memory."""

_current: Context | None = None


def current() -> Context | None:
    """Return the context of this process; None: no supervisor started it."""
    return _current


def enter(context: Context) -> None:
    """Set the context and the page of this process. The forked child calls this once."""
    global _current, page  # noqa: PLW0603 - a process has one role, and user code calls train() without naming it
    _current = context
    if context.page is not None:
        page = StatusPage(context.page, context.name)


training = ""
"""Name of the user's call that has begun this process's training (``launch.train.claim``); empty: no training has
begun."""

remark = ""
"""What the user should know about a training that has come to its end; the driver sends it as the message of the job.
Empty: nothing."""
