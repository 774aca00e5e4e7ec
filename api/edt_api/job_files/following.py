"""Serves those who follow logs, however many follow the same one. Reads jobs' log folders through ``logs``.

Whoever asks for a part of a log that is not there yet may wait for it. One thread then looks at all files that are
waited for, some times a second; a waiting request holds no thread. Requests for the same part of the same file that
come at the same time are answered by one look at the database and one look at the file.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edt_api import concurrency
from edt_api.job_files import logs
from edt_scheduler.operations import execs
from edt_scheduler.platform import Platform
from edt_scheduler.views import UserView

LOOK_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
MOST_BYTES = 1 << 20
"""Of one answer."""
_ANSWERED_TOGETHER = 64


@dataclass(frozen=True)
class Wanted:
    """What a follower asks for."""

    viewer: UserView
    exec_id: str
    stream: str
    offset: int


@dataclass(frozen=True)
class Found:
    """What there is of it."""

    data: bytes
    after: int
    """The offset for the next question."""
    file: Path
    over: bool
    """Whether the job is over, so that no more is written."""


class LogFollowing:
    """The followers of logs in one process. Belongs to one event loop."""

    def __init__(self, platform: Platform, stopping: threading.Event) -> None:
        self._platform = platform
        self._stopping = stopping
        self._reads = concurrency.Gathered(concurrency.each_once(self._read), concurrency.files, _ANSWERED_TOGETHER)
        self._waiting: defaultdict[Path, set[tuple[int, asyncio.Event]]] = defaultdict(set)
        self._looking: asyncio.Task[None] | None = None

    async def read(self, wanted: Wanted, wait: float) -> Found:
        """Return what there is. If there is nothing yet, wait for it, at most LONGEST_WAIT_SECONDS.

        Raises:
            NoSuchJob: the viewer may see no job of this id.
            RequestInvalid: there is no such stream.
            ResultsRemoved: the job's files were removed because of their age.
        """
        found = await self._reads.run(wanted)
        if found.data or found.over or wait <= 0:
            return found
        await self._changed(found.file, found.after, min(wait, LONGEST_WAIT_SECONDS))
        return await self._reads.run(wanted)

    def _read(self, wanted: Wanted) -> Found:
        job = execs.job(self._platform, wanted.exec_id, viewer=wanted.viewer)
        data, after = logs.since(job, wanted.stream, wanted.offset, MOST_BYTES)
        return Found(data, after, logs.path(job, wanted.stream), job.state.terminal)

    async def _changed(self, file: Path, size: int, seconds: float) -> None:
        """Return when the file has another size, when the time is over, or when the server is asked to stop."""
        waiter = size, asyncio.Event()
        self._waiting[file].add(waiter)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await waiter[1].wait()
        finally:
            self._waiting[file].discard(waiter)
            if not self._waiting[file]:
                del self._waiting[file]

    async def _look(self) -> None:
        try:
            while self._waiting:
                sizes = await concurrency.files.run(_sizes, list(self._waiting))
                for file, waiters in self._waiting.items():
                    for known, changed in waiters:
                        if sizes.get(file, known) != known or self._stopping.is_set():
                            changed.set()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._looking = None


def _sizes(files: list[Path]) -> dict[Path, int]:
    """Return the sizes of the files that are there. Links are not followed, and nothing is opened."""
    sizes: dict[Path, int] = {}
    for file in files:
        with suppress(OSError):
            sizes[file] = os.lstat(file).st_size
    return sizes
