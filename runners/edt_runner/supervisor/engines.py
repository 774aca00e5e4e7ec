"""The engines of one attempt on this node: started, watched, led out, buried. Room: runners; processes.

An allocation has one life: once its engine has ended, it is over.
"""

from __future__ import annotations

import logging
import mmap
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from edt_runner import environment, exits, processes
from edt_runner.context import Context
from edt_runner.contract import ExitKind, Letter, SlotWish
from edt_runner.engine import position
from edt_runner.engine.position import Board, Doing
from edt_runner.supervisor import children
from edt_runner.supervisor.children import Child
from edt_runner.supervisor.memory import OomCounter
from edt_runner.supervisor.watch import Verdict, judge

_log = logging.getLogger(__name__)
_KILL_AGAIN_SECONDS = 5.0


@dataclass
class Engine:
    """One engine's process, and what is asked of it."""

    child: Child
    slot: SlotWish
    board: Board
    leave_by: float | None = None
    """Asked to leave; killed after this."""
    why: str = ""
    """Killed by us, and why."""
    stopped: bool = False
    """It was in state T."""
    stuck_since: float = 0.0


@dataclass(frozen=True)
class Ended:
    """An engine that is gone."""

    slot: SlotWish
    kind: ExitKind
    code: int | None
    signal: int | None
    seconds: float
    oom: bool
    message: str
    traceback: str
    micro_batch: tuple[int, int] | None
    asked: bool

    @property
    def how(self) -> str:
        """In words."""
        if self.oom:
            return "out of memory"
        if self.message:
            return self.message
        return f"signal {self.signal}" if self.signal is not None else f"exit status {self.code}"


class Engines:
    """By allocation."""

    def __init__(self, letter: Letter, selector: selectors.BaseSelector, descriptors: Callable[[], list[int]]) -> None:
        self._letter, self._selector, self._others = letter, selector, descriptors
        self._living: dict[int, Engine] = {}
        self.over: set[int] = set()
        """Allocations whose engine has ended, or will never be started."""
        self.finished = False
        """An engine of ours has come to the training's end."""
        self._oom = OomCounter()

    def __iter__(self) -> Iterator[int]:
        return iter(self._living)

    def __bool__(self) -> bool:
        return bool(self._living)

    def __contains__(self, allocation: int) -> bool:
        return allocation in self._living

    def children(self) -> list[Child]:
        return [engine.child for engine in self._living.values()]

    def by_pid(self) -> dict[int, SlotWish]:
        return {engine.child.pid: engine.slot for engine in self._living.values()}

    def leaving(self) -> list[int]:
        """Those asked to leave."""
        return [allocation for allocation, engine in self._living.items() if engine.leave_by is not None]

    def start(self, slot: SlotWish, coordinator: str) -> int:
        """Fork an engine; its pid."""
        name = str(slot.allocation)
        page = mmap.mmap(-1, position.PAGE_BYTES)
        role = Context("engine", self._letter, coordinator, name, slot.device, page)
        child = children.start(role, f"engine-{name}", self._selector, self._others())
        self._living[slot.allocation] = Engine(child, slot, Board(page))
        return child.pid

    def ask_to_leave(self, wanted: set[int], by: float) -> list[int]:
        """All but ``wanted`` shall leave until then; returns those who have not been asked before."""
        found = [number for number, engine in self._living.items() if number not in wanted and engine.leave_by is None]
        for allocation in found:
            self._living[allocation].leave_by = by
        return found

    def discard(self, allocation: int) -> None:
        """Nobody counts on it: it goes now."""
        engine = self._living.get(allocation)
        if engine is not None:
            engine.leave_by = time.monotonic()
            engine.child.signal(signal.SIGKILL)

    def watch(self, now: float) -> list[int]:
        """Kill those that are late, stopped or hung; returns those that wait for others longer than is plausible."""
        self._oom.look(now)
        stuck = []
        for allocation, engine in self._living.items():
            if engine.leave_by is not None and now >= engine.leave_by:
                _log.warning("engine %d did not leave in time: killed", allocation)
                engine.child.signal(signal.SIGKILL)
                engine.leave_by = now + _KILL_AGAIN_SECONDS
            elif processes.is_stopped(engine.child.pid):
                engine.stopped = True
                self._kill(allocation, engine, "was stopped")
            else:
                where = engine.board.read()
                verdict = judge(where, now, environment.hang_seconds())
                if verdict is Verdict.HUNG:
                    self._kill(allocation, engine, f"hung for {now - where.since:.0f} s")
                elif verdict is Verdict.STUCK and engine.stuck_since != where.since:
                    engine.stuck_since = where.since
                    stuck.append(allocation)
        return stuck

    def _kill(self, allocation: int, engine: Engine, why: str) -> None:
        if not engine.why:
            _log.warning("engine %d %s: killed", allocation, why)
            engine.why = why
        engine.child.signal(signal.SIGKILL)

    def bury(self, pid: int, status: int, *, ending: bool, stopped: bool) -> Ended | None:
        """A child has ended; None: it was no engine. ``ending``: the attempt is; ``stopped``: on its user's word."""
        allocation = next((number for number, engine in self._living.items() if engine.child.pid == pid), None)
        if allocation is None:
            return None
        engine = self._living.pop(allocation)
        self.over.add(allocation)
        engine.child.collect(self._selector)
        asked = engine.leave_by is not None or ending
        code, number = (None, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), None)
        if code is not None:
            kind = exits.exit_kind(code, leaving=asked)
        elif stopped:
            kind = ExitKind.STOPPED
        else:
            kind = ExitKind.LEFT if asked else ExitKind.LOST
        self.finished = self.finished or kind is ExitKind.FINISHED
        words = engine.child.last_words
        oom = not engine.why and not asked and self._is_for_memory(code, number)
        raised = kind is ExitKind.SCRIPT_ERROR or code == exits.NO_TRAINING
        return Ended(
            slot=engine.slot,
            kind=kind,
            code=code,
            signal=number,
            seconds=round(time.monotonic() - engine.child.started, 3),
            oom=oom,
            message=words.get("message", f"the script ended with status {code}")
            if raised
            else engine.why or str(words.get("message", "")),
            traceback=words.get("traceback", "") if raised else "",
            micro_batch=None if asked else _culprit(engine, code, number, oom=oom),
            asked=asked,
        )

    def other_ended(self, status: int) -> None:
        """Something of ours that is no engine has ended with this wait status. A kill for memory that explains it
        explains no engine's end."""
        if os.WIFSIGNALED(status):
            self._is_for_memory(None, os.WTERMSIG(status))

    def _is_for_memory(self, code: int | None, number: int | None) -> bool:
        killed = number == signal.SIGKILL or code == exits.HELPER_LOST
        return killed and self._oom.explains(time.monotonic())


def _culprit(engine: Engine, code: int | None, number: int | None, *, oom: bool) -> tuple[int, int] | None:
    """The micro-batch that an engine ended in, where that may be the micro-batch's doing. One that hung in loading is
    not: whatever the data come from may be away for a while."""
    where = engine.board.read()
    hung = bool(engine.why) and not engine.stopped and where.doing is Doing.COMPUTING
    return where.micro_batch if exits.blames_the_script(code, number, oom=oom, hung=hung) else None


def gone_body(ended: Ended) -> dict[str, Any]:
    """The body of ENGINE_GONE."""
    return {
        "allocation": ended.slot.allocation,
        "slot": ended.slot.slot,
        "kind": ended.kind.value,
        "code": ended.code,
        "signal": ended.signal,
        "seconds": ended.seconds,
        "oom": ended.oom,
        "message": "" if ended.asked else ended.message,
    }
