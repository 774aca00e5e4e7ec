"""Which threads do which work, so that no kind of work can keep another waiting. Room: api.

What blocks (the database, a disk) happens in threads. What is an ordinary ``def`` has SHARED of them, FastAPI's own;
they serve people's requests. What the platform lives on, and what can fill any number of threads, has a small pool of
its own here:

    lookups    whose credential a request shows
    agents     what nodes ask and report: a node that is not heard in time is taken for lost
    uploads    a submission's bytes to disk, the submit itself
    files      logs, results and long lists, a piece at a time
    bulk       what takes minutes where there is much: removing all of somebody's jobs, or a user who has many

Those that ask the database are together no more than there are connections for reading
(``edt_scheduler.store.database``), so that none waits for one. A route that uses a pool is ``async``, and so is
everything that it depends on: FastAPI runs each ordinary function among them in the shared threads, too. Pieces of one
answer come one after the other; between them no thread is held, so a slow reader holds none. What computes for long is
in processes.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar, TypeVarTuple

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

_T = TypeVar("_T")
_Given = TypeVarTuple("_Given")
_OVER = object()


class Limited:
    """Lets so many callers of each event loop in at a time; who comes later waits in order."""

    def __init__(self, what: str, most: int) -> None:
        self._most = most
        self._of_loop: RunVar[CapacityLimiter] = RunVar(f"edt {what}")

    @property
    def limiter(self) -> CapacityLimiter:
        """The running event loop's own. Raises RuntimeError outside of one."""
        limiter = self._of_loop.get(None)
        if limiter is None:
            limiter = CapacityLimiter(self._most)
            self._of_loop.set(limiter)
        return limiter


class Pool(Limited):
    """At most so many threads at once, of each event loop; who comes later waits in order."""

    def __init__(self, name: str, threads: int) -> None:
        super().__init__(f"threads: {name}", threads)
        self.name = name
        self.threads = threads

    async def run(self, do: Callable[[*_Given], _T], *given: *_Given) -> _T:
        """What ``do(*given)`` returns or raises, once a thread of this pool has done it.

        A request that is given up does not end what its thread has begun: the thread is waited for.
        """
        return await to_thread.run_sync(do, *given, limiter=self.limiter)

    async def pieces(self, source: Iterator[_T]) -> AsyncIterator[_T]:
        """What ``source`` yields, each piece fetched by a thread of this pool. ``source`` is closed at the end."""
        try:
            while (piece := await self.run(next, source, _OVER)) is not _OVER:
                yield piece  # type: ignore[misc]  # it is no longer the mark of the end
        finally:
            close = getattr(source, "close", None)
            if close is not None:
                close()


SHARED = 40
lookups = Pool("lookups", 5)
agents = Pool("agents", 6)
uploads = Pool("uploads", 2)
files = Pool("files", 2)
bulk = Pool("bulk", 2)
