"""Which threads and which processes do which work, so that no kind of work can keep another waiting.

What blocks (the database, a disk) happens in threads. What is an ordinary ``def`` has SHARED of them, FastAPI's own;
they serve people's requests. What the platform lives on, and what can fill any number of threads, has a small pool of
its own here:

    lookups    whose credential a request shows
    agents     what nodes ask and report: a node whose request is not answered in time is taken for lost
    uploads    a submission's bytes to disk, the submit itself
    files      logs, results and long lists, a piece at a time
    bulk       what takes minutes where there is much: removing all of somebody's jobs, or a user who has many

Those that ask the database are together no more than there are connections for reading
(``edt_scheduler.store.database``), so that none waits for one. A route that uses a pool is ``async``, and so is
everything that it depends on: FastAPI runs each ordinary function among them in the shared threads, too. Pieces of one
answer come one after the other; between them no thread is held, so a slow reader holds none.

Python runs one thread of a process at a time. A thread that computes keeps the event loop waiting for its turn, and one
of low priority longer still: the event loop hands over to it, and then it is not scheduled. So what computes for long
does so in another process, of low priority:

    passwords  argon2
    unpacking  an archive's files, written and synced to disk

A pool's processes are started when they are first needed and stay. Where one has died, new ones are started. They end
with this process, whatever ends it. Arguments go through a pipe, which nobody else can read.
"""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Hashable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, TypeVarTuple

from anyio import CancelScope, CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from edt_scheduler.errors import Unavailable

_T = TypeVar("_T")
_Given = TypeVarTuple("_Given")
_OVER = object()


class Limited:
    """Lets so many callers of each event loop in at a time; who comes later waits in order."""

    def __init__(self, name: str, most: int) -> None:
        self.name = name
        self.most = most
        self._of_loop: RunVar[CapacityLimiter] = RunVar(f"edt {name}")

    @property
    def limiter(self) -> CapacityLimiter:
        """The running event loop's own. Raises RuntimeError outside of one."""
        limiter = self._of_loop.get(None)
        if limiter is None:
            limiter = CapacityLimiter(self.most)
            self._of_loop.set(limiter)
        return limiter


class Pool(Limited):
    """At most so many threads at once, of each event loop; who comes later waits in order."""

    async def run(self, do: Callable[[*_Given], _T], *given: *_Given) -> _T:
        """What ``do(*given)`` returns or raises, once a thread of this pool has done it.

        A request that is given up does not end what its thread has begun: the thread is waited for.
        """
        return await to_thread.run_sync(do, *given, limiter=self.limiter)

    async def pieces(self, source: Generator[_T, None, None]) -> AsyncIterator[_T]:
        """What ``source`` yields, each piece fetched by a thread of this pool. ``source`` is closed at the end."""
        with closing(source):
            while (piece := await self.run(next, source, _OVER)) is not _OVER:
                yield piece  # type: ignore[misc]  # it is no longer the mark of the end


SHARED = 40
lookups = Pool("lookups", 5)
agents = Pool("agents", 6)
uploads = Pool("uploads", 2)
files = Pool("files", 2)
bulk = Pool("bulk", 2)


_NICENESS = 10


class Runs(Protocol):
    """What computes: a pool of processes or of threads."""

    async def run(self, do: Callable[[*_Given], _T], *given: *_Given) -> _T: ...


class Processes(Limited):
    """At most so many child processes, each with one call at a time; who comes later waits in order."""

    def __init__(self, name: str, most: int, module: str) -> None:
        """``module``: what is to be computed is in there; each process imports it before it gives way."""
        super().__init__(name, most)
        self._module = module
        self._executor: ProcessPoolExecutor | None = None

    async def run(self, do: Callable[[*_Given], _T], *given: *_Given) -> _T:
        """What ``do(*given)`` returns or raises in one of the processes. All of these must be what pickle takes.

        A request that is given up does not end what was begun: it is waited for. Raises Unavailable where a process
        of the pool died meanwhile: the library then ends the others, too.
        """
        async with self.limiter:
            try:
                doing = asyncio.wrap_future(self._ready().submit(do, *given))
            except BrokenProcessPool:  # one of them has died since the last call
                self._executor = None
                doing = asyncio.wrap_future(self._ready().submit(do, *given))
            with CancelScope(shield=True):
                await asyncio.wait([doing])
            try:
                return await doing
            except BrokenProcessPool:
                raise Unavailable(f"the process that was at work on {self.name} has died; send it again") from None

    def _ready(self) -> ProcessPoolExecutor:
        if self._executor is None:
            # Not forked: this process has threads, and a fork would keep whatever lock one of them holds.
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self.most, context, _begin, (self._module,))
        return self._executor


def end() -> None:
    """End all processes, at whatever they are: this process is about to end."""
    for child in multiprocessing.active_children():
        child.kill()


def _begin(module: str) -> None:
    """First thing in a child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent, which lets requests finish
    importlib.import_module(module)
    os.setpriority(os.PRIO_PROCESS, 0, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


passwords = Processes("passwords", 2, "edt_api.access.passwords")
unpacking = Processes("unpacking", 2, "edt_api.submissions.archives")


_Key = TypeVar("_Key", bound=Hashable)
_Found = TypeVar("_Found")


@dataclass
class SingleFlight(Generic[_Key, _Found]):
    """Whoever asks for a key while its answer is being looked for gets that answer, or its exception."""

    _looking: dict[_Key, asyncio.Task[_Found]] = field(default_factory=dict)

    async def ask(self, key: _Key, look: Callable[[], Coroutine[Any, Any, _Found]]) -> _Found:
        """What ``look()`` finds. One who goes away does not end it for the others."""
        task = self._looking.get(key)
        if task is None:
            task = self._looking[key] = asyncio.create_task(look())
            task.add_done_callback(lambda done: self._over(key, done))
        return await asyncio.shield(task)

    def _over(self, key: _Key, task: asyncio.Task[_Found]) -> None:
        del self._looking[key]
        if not task.cancelled():
            task.exception()  # looked at here, or the event loop reports it where all who asked have gone
