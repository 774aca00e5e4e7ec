"""Waits for gloo in a thread of its own, so that whoever needs the answer can be told that none will come.

Room: runners; threads. gloo forgets operations: a receive of which a part was here when its peer died, a send that was
about to begin (measured: each waits until its timeout, with its connection closed; neither ``abort`` nor ``shutdown``
of the group wakes it, nor another operation's end). Such a thread is left behind with the one operation that it is
stuck in, and with the group, whose destructor would wait for that; it lets go of both when the timeout is over. Any
other ends with its group: one that lets go of torch's objects while the interpreter ends is ended in the middle of C++,
and the process by SIGABRT.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from edt_runner.errors import PeerLost

OPERATION_TIMEOUT = timedelta(minutes=30)
"""A step may be as long as it likes; a dead peer is told by its supervisor, not by this. gloo takes the time in which a
group must be built for that of every operation in it, unless the operation brings its own."""
_LOOK_UP_SECONDS = 0.02
_LAST_SECONDS = 0.05
"""After the connections are shut, for what gloo does notice."""
_END_SECONDS = 2.0
"""For the thread to end, which it does at once unless it is stuck."""


class Waiter:
    """For one group. Only one thread uses it.

    Args:
        shut: is set once the group's connections have been shut.
    """

    def __init__(self, shut: threading.Event) -> None:
        self._shut = shut
        self._asked: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.stuck = False
        """It waits for what will not come, and for nothing else any more."""
        self._kept: Any = None

    def wait(self, works: Sequence[Any]) -> None:
        """Until all operations are done. Whatever breaks one is a lost peer, never an error of user code."""
        if not works:
            return
        if self.stuck:
            raise PeerLost("the data plane was shut")
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="edt-waiter", daemon=True)
            self._thread.start()
        question = _Question(works)
        self._asked.put(question)
        while not question.answered.acquire(timeout=_LOOK_UP_SECONDS):
            if self._shut.is_set():
                if question.answered.acquire(timeout=_LAST_SECONDS):
                    break
                self._give_up(question)
                raise PeerLost("the data plane was shut")
        if question.error is not None:
            raise PeerLost(f"the data plane broke off: {question.error}") from question.error

    def keep(self, group: Any) -> None:
        """Hold ``group`` as long as the thread is stuck in one of its operations."""
        self._kept = group

    def _give_up(self, question: _Question) -> None:
        self.stuck = True
        question.works.clear()  # of all but the one that it is stuck in the memory is free
        self._asked.put(None)

    def close(self) -> None:
        """Wait for the thread to end, unless it is ``stuck``."""
        self._asked.put(None)
        if self._thread is not None and not self.stuck:
            self._thread.join(_END_SECONDS)
            self.stuck = self._thread.is_alive()

    def _serve(self) -> None:
        while (question := self._asked.get()) is not None:
            try:
                for work in question.works:
                    work.wait(OPERATION_TIMEOUT)
            except RuntimeError as error:
                question.error = error
            question.answered.release()
        self._kept = None


class _Question:
    def __init__(self, works: Sequence[Any]) -> None:
        self.works = list(works)
        self.error: RuntimeError | None = None
        self.answered = threading.Lock()
        self.answered.acquire()
