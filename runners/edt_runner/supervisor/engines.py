"""The engines of one attempt on this node: this module starts and watches them, and takes in how they end.

Each allocation has one engine: once that engine has ended, no other engine is started for the allocation.
"""

from __future__ import annotations

import enum
import logging
import mmap
import os
import selectors
import signal
import time
from dataclasses import dataclass
from typing import Any

from edt_contract import processes
from edt_contract.attempt import AttemptSpec, DesiredSlot
from edt_contract.oom import OomCounter
from edt_contract.reports import ExitKind
from edt_runner import environment
from edt_runner.context import PAGE_BYTES, Activity, ActivityKind, Context, StatusPage
from edt_runner.errors import ExitStatus, blames_the_script, exit_kind
from edt_runner.protocol.data import MicroBatch
from edt_runner.protocol.messages import ScriptEnded
from edt_runner.supervisor import fork_server
from edt_runner.supervisor.fork_server import Child

_log = logging.getLogger(__name__)
_KILL_AGAIN_SECONDS = 5.0
_LONGEST_TIMES = 10.0


class Verdict(enum.Enum):
    """Whether an engine hangs."""

    FINE = "fine"
    HUNG = "hung"  # it hangs in its own work, and other engines wait for it
    STUCK = "stuck"  # it waits for other engines, or for messages that do not arrive


@dataclass
class Engine:
    """One engine's process, and what the supervisor has asked it to do."""

    child: Child
    slot: DesiredSlot
    page: StatusPage
    """Shared memory into which the engine writes what it is doing."""
    leave_by: float | None = None
    """Monotonic seconds at which the engine is killed if it has not left; None: it was not asked to leave."""
    why_killed: str = ""
    """Why this supervisor killed the engine because it was stopped or hung; "": it did not."""
    stopped: bool = False
    """The engine was stopped by a signal (state T)."""
    stuck_since: float = 0.0
    """Start (monotonic seconds) of the activity for which the engine was last found stuck."""


@dataclass(frozen=True)
class EngineEnd:
    """How an engine ended."""

    slot: DesiredSlot
    kind: ExitKind
    code: int | None = None
    """Exit status; None: a signal ended the engine, or it was never started."""
    signal: int | None = None
    """Number of the signal that ended the engine; None: it exited, or it was never started."""
    seconds: float = 0.0
    """Seconds from its start to its end."""
    oom: bool = False
    """Whether the kernel killed the engine because memory ran out."""
    message: str = ""
    traceback: str = ""
    micro_batch: MicroBatch | None = None
    """The micro-batch that the engine was computing, if this micro-batch may have ended it."""
    asked: bool = False
    """Whether the engine was asked to leave, or the attempt was ending."""

    @property
    def how(self) -> str:
        """How the engine ended, in words."""
        if self.oom:
            return "out of memory"
        if self.message:
            return self.message
        return f"signal {self.signal}" if self.signal is not None else f"exit status {self.code}"

    def report_body(self) -> dict[str, Any]:
        """The body of ENGINE_GONE."""
        return {
            "allocation": self.slot.allocation,
            "slot": self.slot.slot,
            "kind": self.kind.value,
            "code": self.code,
            "signal": self.signal,
            "seconds": self.seconds,
            "oom": self.oom,
            "message": "" if self.asked else self.message,
        }


class Engines:
    """The living engines, and the allocations whose engine has ended.

    Args:
        spec: the attempt.
        selector: reads the engines' output.
    """

    def __init__(self, spec: AttemptSpec, selector: selectors.BaseSelector) -> None:
        self._spec, self._selector = spec, selector
        self.living: dict[int, Engine] = {}
        """Living engines by allocation."""
        self.ended: set[int] = set()
        """Allocations whose engine has ended or will never be started."""
        self.finished = False
        """Whether an engine of this node has finished the training."""
        self._oom = OomCounter()

    def has_had(self, allocation: int) -> bool:
        """Whether the allocation has or had an engine. If so, no other engine is started for it."""
        return allocation in self.living or allocation in self.ended

    def start(self, slot: DesiredSlot, coordinator: str) -> int:
        """Fork an engine for ``slot``; returns its pid. ``coordinator``: ``host:port`` of the coordinator.

        Raises:
            RunnerError: this process has more than one thread.
        """
        name = str(slot.allocation)
        page = mmap.mmap(-1, PAGE_BYTES)
        context = Context("engine", self._spec, coordinator, name, slot.device, slot.ordinal, page)
        child = fork_server.start(context, f"engine-{name}", self._selector)
        self.living[slot.allocation] = Engine(child, slot, StatusPage(page))
        return child.pid

    def ask_to_leave(self, desired: set[int], by: float) -> list[int]:
        """Note that all other engines than the desired ones must leave until ``by``.

        Args:
            desired: allocations whose engines stay.
            by: monotonic seconds.

        Returns:
            Allocations of the engines that were not asked before.
        """
        asked = [number for number, engine in self.living.items() if number not in desired and engine.leave_by is None]
        for allocation in asked:
            self.living[allocation].leave_by = by
        return asked

    def discard(self, allocation: int) -> None:
        """Kill an engine that the coordinator does not need."""
        engine = self.living.get(allocation)
        if engine is not None:
            engine.leave_by = time.monotonic()
            engine.child.signal(signal.SIGKILL)

    def watch(self, now: float) -> list[int]:
        """Kill engines that are late to leave, stopped by a signal, or hung.

        Args:
            now: monotonic seconds.

        Returns:
            Allocations of engines that newly wait longer for other engines than is plausible.
        """
        self._oom.look(now)
        stuck = []
        for allocation, engine in self.living.items():
            if engine.leave_by is not None and now >= engine.leave_by:
                _log.warning("engine %d did not leave in time: killed", allocation)
                engine.child.signal(signal.SIGKILL)
                engine.leave_by = now + _KILL_AGAIN_SECONDS
            elif processes.is_stopped(engine.child.pid):
                engine.stopped = True
                self._kill(allocation, engine, "was stopped")
            else:
                activity = engine.page.read()
                verdict = judge(activity, now, environment.hang_seconds())
                if verdict is Verdict.HUNG:
                    self._kill(allocation, engine, f"hung for {now - activity.since:.0f} s")
                elif verdict is Verdict.STUCK and engine.stuck_since != activity.since:
                    engine.stuck_since = activity.since
                    stuck.append(allocation)
        return stuck

    def remove(self, pid: int, status: int, *, ending: bool, stopped: bool) -> EngineEnd | None:
        """Remove the engine whose process has ended.

        Args:
            pid: the pid of a child that has ended.
            status: the wait status of the child.
            ending: whether the attempt is ending.
            stopped: whether the user has stopped the job.

        Returns:
            How the engine ended; None: the child was no engine.
        """
        allocation = next((number for number, engine in self.living.items() if engine.child.pid == pid), None)
        if allocation is None:
            return None
        engine = self.living.pop(allocation)
        self.ended.add(allocation)
        engine.child.collect(self._selector)
        asked = engine.leave_by is not None or ending
        code, number = (None, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), None)
        if code is not None:
            kind = exit_kind(code, leaving=asked)
        elif stopped:
            kind = ExitKind.STOPPED
        else:
            kind = ExitKind.LEFT if asked else ExitKind.LOST
        self.finished = self.finished or kind is ExitKind.FINISHED
        oom = not engine.why_killed and not asked and self._is_for_memory(code, number)
        raised = kind is ExitKind.SCRIPT_ERROR or code == ExitStatus.NO_TRAINING
        failure = engine.child.failure or ScriptEnded(f"the script ended with status {code}" if raised else "", "")
        return EngineEnd(
            slot=engine.slot,
            kind=kind,
            code=code,
            signal=number,
            seconds=round(time.monotonic() - engine.child.started, 3),
            oom=oom,
            message=failure.message if raised else engine.why_killed or failure.message,
            traceback=failure.traceback if raised else "",
            micro_batch=None if asked else _culprit(engine, code, number, oom=oom),
            asked=asked,
        )

    def other_ended(self, status: int) -> None:
        """Take in the wait status of a child that was no engine. If the kernel killed this child because memory ran
        out, that kill does not also explain the end of an engine."""
        if os.WIFSIGNALED(status):
            self._is_for_memory(None, os.WTERMSIG(status))

    def _kill(self, allocation: int, engine: Engine, why: str) -> None:
        if not engine.why_killed:
            _log.warning("engine %d %s: killed", allocation, why)
            engine.why_killed = why
        engine.child.signal(signal.SIGKILL)

    def _is_for_memory(self, code: int | None, number: int | None) -> bool:
        killed = number == signal.SIGKILL or code == ExitStatus.HELPER_LOST
        return killed and self._oom.explains(time.monotonic())


def judge(activity: Activity, now: float, hang_seconds: float) -> Verdict:
    """Whether an engine hangs.

    A silent engine may be computing. So an engine counts as hung only when one micro-batch takes far longer than every
    micro-batch before it. When a reduction takes that long, any of its engines may be the cause, so the engine counts
    as stuck. Before the first micro-batch is done, every engine counts as fine.

    Args:
        activity: what the engine does, from its status page.
        now: monotonic seconds, on the same clock as ``activity``.
        hang_seconds: seconds that an activity must last to count as a hang. If ten times the longest micro-batch so
            far is more, that time counts instead.
    """
    if not activity.longest:
        return Verdict.FINE
    if now - activity.since <= max(hang_seconds, _LONGEST_TIMES * activity.longest):
        return Verdict.FINE
    if activity.kind in (ActivityKind.COMPUTING, ActivityKind.LOADING):
        return Verdict.HUNG
    return Verdict.STUCK if activity.kind is ActivityKind.REDUCING else Verdict.FINE


def _culprit(engine: Engine, code: int | None, number: int | None, *, oom: bool) -> MicroBatch | None:
    """The micro-batch in which an engine ended, if the micro-batch may have caused the end. If the engine hung while it
    loaded data, the cause is not the micro-batch: the storage may not have answered."""
    activity = engine.page.read()
    hung = bool(engine.why_killed) and not engine.stopped and activity.kind is ActivityKind.COMPUTING
    if activity.micro_batch is None or not blames_the_script(code, number, oom=oom, hung=hung):
        return None
    return activity.micro_batch
