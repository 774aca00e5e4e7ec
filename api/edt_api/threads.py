"""Which threads do which work, so that no kind of work can keep another waiting. Room: api.

What blocks (the database, a disk) happens in threads. What is an ordinary ``def`` has SHARED of them, FastAPI's own;
they serve people's requests. What the platform lives on, and what can fill any number of threads, has a small pool of
its own here:

    lookups    whose credential a request shows
    passwords  argon2, which takes all of a processor that it can get: these yield to all others
    agents     what nodes ask and report: a node that is not heard in time is taken for lost
    uploads    a submission's bytes to disk, unpacking, the submit itself
    files      logs, results and long lists, a piece at a time
    bulk       what takes minutes where there is much: removing all of somebody's jobs, or a user who has many

Those that ask the database are together no more than there are connections for reading
(``edt_scheduler.store.database``), so that none waits for one. A route that uses a pool is ``async``, and so is
everything that it depends on: FastAPI runs each ordinary function among them in the shared threads, too. Pieces of one
answer come one after the other; between them no thread is held, so a slow reader holds none.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

from anyio import CancelScope, CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

_T = TypeVar("_T")
_Given = TypeVarTuple("_Given")
_OVER = object()
_YIELDING = 10
"""How nice such a thread is."""


class Pool:
    """At most so many threads at once, of each event loop; who comes later waits in order.

    ``yielding``: its threads compute with what the processor has left beside all others. They are the pool's own for
    ever, since a thread's priority cannot be raised again.
    """

    def __init__(self, name: str, threads: int, *, yielding: bool = False) -> None:
        self.name = name
        self.threads = threads
        self._own = ThreadPoolExecutor(threads, f"edt-{name}", _yield_to_others) if yielding else None
        self._of_loop: RunVar[CapacityLimiter] = RunVar(f"edt threads: {name}")

    @property
    def limiter(self) -> CapacityLimiter:
        """The running event loop's own. Raises RuntimeError outside of one."""
        limiter = self._of_loop.get(None)
        if limiter is None:
            limiter = CapacityLimiter(self.threads)
            self._of_loop.set(limiter)
        return limiter

    async def run(self, do: Callable[[*_Given], _T], *given: *_Given) -> _T:
        """What ``do(*given)`` returns or raises, once a thread of this pool has done it.

        A request that is given up does not end what its thread has begun: the thread is waited for.
        """
        if self._own is None:
            return await to_thread.run_sync(do, *given, limiter=self.limiter)
        async with self.limiter:
            doing = asyncio.wrap_future(self._own.submit(do, *given))
            with CancelScope(shield=True):
                await asyncio.wait([doing])
            return await doing

    async def pieces(self, source: Iterator[_T]) -> AsyncIterator[_T]:
        """What ``source`` yields, each piece fetched by a thread of this pool. ``source`` is closed at the end."""
        try:
            while (piece := await self.run(next, source, _OVER)) is not _OVER:
                yield piece  # type: ignore[misc]  # it is no longer the mark of the end
        finally:
            close = getattr(source, "close", None)
            if close is not None:
                close()


def _yield_to_others() -> None:
    """Of the calling thread and of those that it starts, as argon2 does. On Linux alone threads have a priority."""
    if sys.platform == "linux":
        already = os.getpriority(os.PRIO_PROCESS, 0)  # nobody may take niceness back
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(_YIELDING, already))


SHARED = 40
lookups = Pool("lookups", 5)
passwords = Pool("passwords", 2, yielding=True)
agents = Pool("agents", 6)
uploads = Pool("uploads", 3)
files = Pool("files", 2)
bulk = Pool("bulk", 2)
