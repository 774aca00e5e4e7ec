"""Child processes that compute for the API with what the processor has left beside it. Room: api.

Python runs one thread of a process at a time. A thread that computes keeps the event loop waiting for its turn, and one
of low priority longer still: the event loop hands over to it, and then it is not scheduled. So what computes for long
does so in another process, of low priority:

    passwords  argon2
    unpacking  an archive's files, written and synced to disk

A pool's processes are started when they are first needed and stay. Where one has died, new ones are started. They end
with this process, whatever ends it. What they are told goes through a pipe, which nobody else can read.
"""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Protocol, TypeVar, TypeVarTuple

from anyio import CancelScope

from edt_api.threads import Limited
from edt_scheduler.errors import Unavailable

_T = TypeVar("_T")
_Given = TypeVarTuple("_Given")
_NICENESS = 10


class Runs(Protocol):
    """What computes: a pool of processes or of threads."""

    async def run(self, do: Callable[[*_Given], _T], *given: *_Given) -> _T: ...


class Processes(Limited):
    """At most so many child processes, each with one call at a time; who comes later waits in order."""

    def __init__(self, name: str, processes: int, module: str) -> None:
        """``module``: what is to be computed is in there; each process imports it before it gives way."""
        super().__init__(f"processes: {name}", processes)
        self.name = name
        self._module = module
        self.processes = processes
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
            self._executor = ProcessPoolExecutor(self.processes, context, _begin, (self._module,))
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


passwords = Processes("passwords", 2, "edt_api.passwords")
unpacking = Processes("unpacking", 2, "edt_api.archives")
