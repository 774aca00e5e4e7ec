"""The engines of one attempt on this node: started, watched, measured, asked to leave, removed when they have ended.

Each allocation has one engine in its life: once that has ended, no other is started for it. Which kills were for want
of memory, and how much engines use, is read from /proc and /sys.
"""

from __future__ import annotations

import contextlib
import enum
import json
import logging
import mmap
import os
import selectors
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edt_contract import processes
from edt_contract.attempt import USAGE_FILE, AttemptSpec, DesiredSlot
from edt_contract.durable import write_whole
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
_OOM_KILLS = "oom_kill"
_EXPLAINS_SECONDS = 5.0
"""So long may a process that has much memory take from its kill to its end."""
_MEASURE_SECONDS = 5.0


class Verdict(enum.Enum):
    """Whether an engine hangs."""

    FINE = "fine"
    HUNG = "hung"  # it is the one that others wait for
    STUCK = "stuck"  # it waits for others, or for messages that do not arrive


@dataclass
class Engine:
    """One engine's process, and what was asked of it."""

    child: Child
    slot: DesiredSlot
    page: StatusPage
    """Where it writes what it is doing."""
    leave_by: float | None = None
    """It was asked to leave, and is killed at this time (monotonic seconds)."""
    why_killed: str = ""
    """Why this supervisor has killed it; empty: it has not."""
    stopped: bool = False
    """It was in state T."""
    stuck_since: float = 0.0


@dataclass(frozen=True)
class EngineEnd:
    """How an engine ended."""

    slot: DesiredSlot
    kind: ExitKind
    code: int | None = None
    """Exit status; None: a signal ended it, or there never was a process."""
    signal: int | None = None
    seconds: float = 0.0
    oom: bool = False
    """Whether the kernel killed it for want of memory."""
    message: str = ""
    traceback: str = ""
    micro_batch: MicroBatch | None = None
    """What it was computing, where that may be what ended it."""
    asked: bool = False
    """Whether it was asked to leave, or the attempt was ending."""

    @property
    def how(self) -> str:
        """In words."""
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
    """The engines that live, and the allocations whose engine has ended.

    Args:
        spec: of the attempt.
        selector: where their output is read.
    """

    def __init__(self, spec: AttemptSpec, selector: selectors.BaseSelector) -> None:
        self._spec, self._selector = spec, selector
        self.living: dict[int, Engine] = {}
        """By allocation."""
        self.ended: set[int] = set()
        """Allocations whose engine has ended, or will never be started."""
        self.finished = False
        """Whether an engine of this node has come to the training's end."""
        self._oom = OomCounter()

    def has_had(self, allocation: int) -> bool:
        """Whether it has an engine or had one; then no other is started for it."""
        return allocation in self.living or allocation in self.ended

    def start(self, slot: DesiredSlot, coordinator: str) -> int:
        """Fork an engine for ``slot``; returns its pid. ``coordinator``: ``host:port``."""
        name = str(slot.allocation)
        page = mmap.mmap(-1, PAGE_BYTES)
        context = Context("engine", self._spec, coordinator, name, slot.device, page)
        child = fork_server.start(context, f"engine-{name}", self._selector)
        self.living[slot.allocation] = Engine(child, slot, StatusPage(page))
        return child.pid

    def ask_to_leave(self, desired: set[int], by: float) -> list[int]:
        """Note that all engines but the desired ones shall leave until ``by``; returns those that were not asked
        before."""
        asked = [number for number, engine in self.living.items() if number not in desired and engine.leave_by is None]
        for allocation in asked:
            self.living[allocation].leave_by = by
        return asked

    def discard(self, allocation: int) -> None:
        """Kill an engine that nobody counts on."""
        engine = self.living.get(allocation)
        if engine is not None:
            engine.leave_by = time.monotonic()
            engine.child.signal(signal.SIGKILL)

    def watch(self, now: float) -> list[int]:
        """Kill engines that are late to leave, stopped or hung; returns those that wait for others longer than is
        plausible. ``now``: monotonic seconds."""
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
        """Take in that a child has ended.

        Args:
            pid: of the child.
            status: its wait status.
            ending: whether the attempt is ending.
            stopped: whether its user has stopped the job.

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
        """Take in the wait status of a child that was no engine: a kill for memory that explains its end explains no
        engine's."""
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
    """Whether an engine is taken for hung.

    One that is silent may be computing: only a micro-batch that takes far longer than any before it is held against its
    engine, and a reduction that does so against nobody in particular. Nothing is judged before the first micro-batch is
    done.

    Args:
        activity: what the engine does, from its status page.
        now: monotonic seconds, as in ``activity``.
        hang_seconds: the least time that counts as a hang; ten times the longest micro-batch so far where that is more.
    """
    if not activity.longest:
        return Verdict.FINE
    if now - activity.since <= max(hang_seconds, _LONGEST_TIMES * activity.longest):
        return Verdict.FINE
    if activity.kind in (ActivityKind.COMPUTING, ActivityKind.LOADING):
        return Verdict.HUNG
    return Verdict.STUCK if activity.kind is ActivityKind.REDUCING else Verdict.FINE


def _culprit(engine: Engine, code: int | None, number: int | None, *, oom: bool) -> MicroBatch | None:
    """The micro-batch that an engine ended in, where that may be the micro-batch's doing. One that hung in loading is
    not: whatever the data come from may be away for a while."""
    activity = engine.page.read()
    hung = bool(engine.why_killed) and not engine.stopped and activity.kind is ActivityKind.COMPUTING
    if activity.micro_batch is None or not blames_the_script(code, number, oom=oom, hung=hung):
        return None
    return activity.micro_batch


# ── memory and processor time of the engines ─────────────────────────────────────────────────────────────────────
class OomCounter:
    """Counts the SIGKILLs that the kernel has sent for want of memory, from now on.

    A process that dies of SIGKILL does not say who sent it. The kernel counts its own in the victim's memory cgroup,
    and for the whole machine, before the victim is gone. Each that is counted explains one death, and only one that
    follows soon: a kill of something else, of a tool that the script has started for example, does not make a kill from
    outside look like one for memory. A kill of a neighbour in the same cgroup can, therefore the first one is not
    blamed on the script. Where nobody counts, nothing is ever explained.

    Args:
        process: the process's folder in /proc; children count with it as long as they stay in its cgroup.
        machine: where the kernel counts for the whole machine; used where the process's cgroup has no count.
    """

    def __init__(self, process: Path = Path("/proc/self"), machine: Path = Path("/proc/vmstat")) -> None:
        files = (_counter_file(process), machine)
        self.file = next((file for file in files if file is not None and _count(file) is not None), None)
        self._last = self.count() or 0
        self._kills: list[float] = []
        """When each was seen that has explained nothing yet."""

    def count(self) -> int | None:
        """Kills so far; None: nobody counts."""
        return None if self.file is None else _count(self.file)

    def look(self, now: float) -> None:
        """Call often: see what was killed by now. ``now``: monotonic seconds."""
        count = self.count()
        if count is not None:
            self._kills += [now] * (count - self._last)
            self._last = count
        self._kills = [then for then in self._kills if now - then <= _EXPLAINS_SECONDS]

    def explains(self, now: float) -> bool:
        """Whether a process that has just ended by SIGKILL was one that the kernel has killed."""
        self.look(now)
        if self._kills:
            self._kills.pop(0)
            return True
        return False


class UsageMeter:
    """Writes how much the engines use to a file, where the agent of the node finds it.

    Only this process can say whose a process is wherever it runs: it is the parent, and in a container the agent does
    not even know its pids. Each file replaces the one before.
    """

    def __init__(self, spec: AttemptSpec) -> None:
        self._path = Path(spec.spool_dir) / USAGE_FILE
        self._due = 0.0
        self._written: Mapping[str, Any] = {}

    def measure(self, now: float, engines: Mapping[int, DesiredSlot]) -> None:
        """Measure the engines, by pid, with all processes that they have started; may be called at any time, and does
        it every few seconds. ``now``: monotonic seconds."""
        if now < self._due or not (engines or self._written):
            return
        self._due = now + _MEASURE_SECONDS
        used = processes.used_below(engines)
        self._written = {
            str(slot.allocation): {
                "slot": slot.slot,
                "cpu_seconds": round(used[pid].cpu_seconds, 2),
                "rss_bytes": used[pid].rss_bytes,
            }
            for pid, slot in engines.items()
            if pid in used
        }
        with contextlib.suppress(OSError):  # a full disk is reported by the spool
            text = json.dumps({"time": now, "engines": self._written})
            write_whole(self._path, text, mode=0o600, durable=False, alone=True)


def _count(file: Path) -> int | None:
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
        return next(int(words[1]) for words in lines if words and words[0] == _OOM_KILLS)
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _counter_file(process: Path) -> Path | None:
    """``memory.oom_control`` of cgroup version 1, ``memory.events`` of version 2."""
    try:
        groups = [line.split(":", 2) for line in (process / "cgroup").read_text().splitlines()]
        mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    except OSError:
        return None
    for _, controllers, path in groups:
        old = "memory" in controllers.split(",")
        if not old and controllers:
            continue
        for mount in mounts:
            root, point, kind, options = mount[3], mount[4], mount[mount.index("-") + 1], mount[-1].split(",")
            if kind == ("cgroup" if old else "cgroup2") and (not old or "memory" in options):
                name = "memory.oom_control" if old else "memory.events"
                inside = path.removeprefix(root) if root != "/" else path  # a container sees only its own part
                for folder in (Path(point) / inside.lstrip("/"), Path(point)):
                    if (folder / name).is_file():
                        return folder / name
    return None
