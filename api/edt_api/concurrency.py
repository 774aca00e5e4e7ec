"""Thread pools and process pools, one for each kind of work, so that no kind of work keeps another waiting.

Work that blocks (database, disk) runs in threads. FastAPI runs each ordinary ``def`` route in its own SHARED threads,
which serve people's requests. Work that the platform depends on, and work that could fill any number of threads, has a
small pool of its own here:

    lookups    finding the user or node of a request's credential
    agents     requests and reports of nodes: a node whose request is not answered in time is taken for lost
    uploads    writing a submission's bytes to disk, and the submit itself
    files      logs, results and long lists, one piece at a time
    bulk       work that can take minutes: removing all jobs of a user, or a user with many jobs, or copying the
               checkpoint from which a new job begins

The pools that use the database have together no more threads than there are connections for reading
(``edt_scheduler.store.database``), so no thread waits for a connection. A route that uses a pool is ``async``, and so
are all its dependencies, because FastAPI runs each ordinary function among them in the shared threads. The pieces of
one answer are fetched one after the other. Between two pieces the answer holds no thread, so a slow reader holds none.

Python runs one thread of a process at a time. A thread that computes makes the event loop wait for its turn. A
computing thread of low priority makes the event loop wait even longer: the event loop hands over to the thread, and the
kernel then does not schedule that thread. So long computations run in other processes, which have low priority:

    passwords  argon2
    unpacking  writing an archive's files to disk and syncing them, and compiling its main script to see whether it can
    answers    planning again and again for one question: why a job waits, or what if

A pool starts its processes when they are first needed and keeps them. The pool replaces processes that have died. The
processes end with this process, however this process ends. Their arguments go through a pipe, which no other process
can read.
"""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Hashable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, TypeVarTuple

from anyio import CancelScope, CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from edt_scheduler.errors import Unavailable

_T = TypeVar("_T")
_Given = TypeVarTuple("_Given")
_OVER = object()


class Limited:
    """Lets ``most`` callers of each event loop in at a time. Later callers wait in the order in which they came."""

    def __init__(self, name: str, most: int) -> None:
        self.name = name
        self.most = most
        self._of_loop: RunVar[CapacityLimiter] = RunVar(f"edt {name}")

    @property
    def limiter(self) -> CapacityLimiter:
        """The limiter of the running event loop.

        Raises:
            RuntimeError: no event loop runs.
        """
        limiter = self._of_loop.get(None)
        if limiter is None:
            limiter = CapacityLimiter(self.most)
            self._of_loop.set(limiter)
        return limiter


class Pool(Limited):
    """Runs calls in at most ``most`` threads of each event loop. Later callers wait in the order in which they came."""

    async def run(self, do: Callable[[*_Given], _T], *given: *_Given) -> _T:
        """Return what ``do(*given)`` returns, or raise what it raises, after a thread of this pool has run it.

        A request that is cancelled does not stop a call that has begun: the request waits for the thread.
        """
        return await to_thread.run_sync(do, *given, limiter=self.limiter)

    async def pieces(self, source: Generator[_T, None, None]) -> AsyncIterator[_T]:
        """Yield what ``source`` yields. A thread of this pool fetches each piece. ``source`` is closed at the end."""
        with closing(source):
            while (piece := await self.run(next, source, _OVER)) is not _OVER:
                yield piece  # type: ignore[misc]  # the type checker still takes it for the end mark _OVER


SHARED = 40
lookups = Pool("lookups", 5)
agents = Pool("agents", 6)
uploads = Pool("uploads", 2)
files = Pool("files", 2)
bulk = Pool("bulk", 2)


_NICENESS = 10


class Runs(Protocol):
    """Something that runs calls: a pool of processes or of threads."""

    async def run(self, do: Callable[[*_Given], _T], *given: *_Given) -> _T: ...


class Processes(Limited):
    """Runs calls in at most ``most`` child processes, one call at a time in each. Later callers wait in order."""

    def __init__(self, name: str, most: int, module: str) -> None:
        """``module`` holds the functions to be called. Each process imports it before it lowers its own priority."""
        super().__init__(name, most)
        self._module = module
        self._executor: ProcessPoolExecutor | None = None

    async def run(self, do: Callable[[*_Given], _T], *given: *_Given) -> _T:
        """Return what ``do(*given)`` returns, or raise what it raises, in one of the processes.

        ``do``, ``given`` and the result must be picklable. A request that is cancelled does not stop a call that has
        begun: the request waits for its end.

        Raises:
            Unavailable: a process of the pool died during the call. The library then ends the other processes, too.
        """
        async with self.limiter:
            try:
                doing = asyncio.wrap_future(self._ready().submit(do, *given))
            except BrokenProcessPool:  # a process of the pool has died since the last call
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
            # Not forked: this process has threads, and a fork would keep the locks that they hold at that moment.
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self.most, context, _begin, (self._module,))
        return self._executor


def end() -> None:
    """Kill all child processes, whatever they are doing. Called when this process is about to end."""
    for child in multiprocessing.active_children():
        child.kill()


def _begin(module: str) -> None:
    """Prepare a new child process. The pool calls this before any other work in the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles a terminal's Ctrl-C and lets requests finish
    importlib.import_module(module)
    os.setpriority(os.PRIO_PROCESS, 0, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


passwords = Processes("passwords", 2, "edt_api.access.passwords")
unpacking = Processes("unpacking", 2, "edt_api.submissions.main_script")
answers = Processes("answers", 2, "edt_scheduler.operations.answers")


_Item = TypeVar("_Item")


class Gathered(Generic[_Item, _T]):
    """Calls of one function that takes several items at a time: items that come while a call runs share the next one.

    Belongs to the event loop that uses it.
    """

    def __init__(
        self, do: Callable[[list[_Item]], list[_T | Exception]], runs: Runs, most: int, patience: float = 0.0
    ) -> None:
        """``do`` returns for each item its result, or the exception that is the answer to this item alone. ``runs``
        runs it, with at most ``most`` items. A call waits for expected items for ``patience`` seconds.
        """
        self._do, self._runs, self._most, self._patience = do, runs, most, patience
        self._expected = 0
        self._news = asyncio.Event()
        self._waiting: deque[tuple[_Item, asyncio.Future[_T]]] = deque()
        self._working: asyncio.Task[None] | None = None

    async def run(self, item: _Item) -> _T:
        """Return the result of ``item``, or raise what is wrong with it or with the whole call.

        A request that is cancelled waits for the result, because the call goes on.
        """
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        self._news.set()
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        with CancelScope(shield=True):
            await asyncio.wait([answer])
        return await answer

    @contextmanager
    def expected(self) -> Iterator[None]:
        """While the block runs, an item is about to come. Calls wait for it a little."""
        self._expected += 1
        try:
            yield
        finally:
            self._expected -= 1
            self._news.set()

    async def _all_there(self) -> None:
        """Return when no more items are expected, when a call has enough, or when the patience has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                while self._expected and len(self._waiting) < self._most:
                    self._news.clear()
                    await self._news.wait()

    async def _work(self) -> None:
        try:
            while self._waiting:
                if self._expected:
                    await self._all_there()
                some = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
                try:
                    found = await self._runs.run(self._do, [item for item, _ in some])
                except Exception as error:
                    found = [error] * len(some)
                for (_, answer), each in zip(some, found, strict=True):
                    if isinstance(each, Exception):
                        answer.set_exception(each)
                    else:
                        answer.set_result(each)
        finally:
            self._working = None


_Key = TypeVar("_Key", bound=Hashable)
_Found = TypeVar("_Found")


def each_once(look: Callable[[_Key], _Found]) -> Callable[[list[_Key]], list[_Found | Exception]]:
    """Return a function for ``Gathered`` that looks each item up once, however many callers ask for it.

    Once a look finds that the database cannot serve, the items after it get the same answer. If each of them waited for
    the database by itself, those who come later would wait for minutes.
    """

    def look_all(items: list[_Key]) -> list[_Found | Exception]:
        found: dict[_Key, _Found | Exception] = {}
        away: Unavailable | None = None
        for item in items:
            if item in found:
                continue
            try:
                found[item] = look(item) if away is None else away
            except Unavailable as error:
                found[item] = away = error
            except Exception as error:
                found[item] = error
        return [found[item] for item in items]

    return look_all


@dataclass
class SingleFlight(Generic[_Key, _Found]):
    """Answers all callers who ask for the same key at the same time with one computation, or with its exception."""

    _looking: dict[_Key, asyncio.Task[_Found]] = field(default_factory=dict)

    async def ask(self, key: _Key, look: Callable[[], Coroutine[Any, Any, _Found]]) -> _Found:
        """Return what ``look()`` finds. A caller who is cancelled does not end the computation for the others."""
        task = self._looking.get(key)
        if task is None:
            task = self._looking[key] = asyncio.create_task(look())
            task.add_done_callback(lambda done: self._over(key, done))
        return await asyncio.shield(task)

    def _over(self, key: _Key, task: asyncio.Task[_Found]) -> None:
        del self._looking[key]
        if not task.cancelled():
            task.exception()  # marks it as seen; otherwise the event loop reports it if all callers were cancelled
