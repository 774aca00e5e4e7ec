"""The supervisor of an elastic job: it starts and ends engines until they are those that the desired state names.

The desired state names the slots that the attempt should hold on this node. The coordinator decides the membership. The
supervisor only tells the coordinator which engines it expects, which engines should leave, and which engines are gone.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterable, Mapping
from typing import Any

from edt_contract.attempt import AttemptSpec, DesiredSlot, DesiredState
from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.durable import PatientLog
from edt_contract.reports import ExitKind, ReportKind
from edt_runner import environment
from edt_runner.errors import ExitStatus, how_it_ended
from edt_runner.protocol.messages import (
    CoordinatorListening,
    DiscardEngine,
    EngineExpected,
    EngineGone,
    EngineRaised,
    EngineStuck,
    LeaveEngines,
    Message,
    Progress,
    ScriptFailed,
    StateLost,
    SupervisorIdle,
    TrainedStateReceived,
    TrainingCompleted,
    TrainingReport,
    TrainingSuspended,
)
from edt_runner.supervisor.agent_link import accepted_report
from edt_runner.supervisor.coordinator_link import CoordinatorLink, HeadNode
from edt_runner.supervisor.engines import EngineEnd, Engines
from edt_runner.supervisor.fork_server import Child
from edt_runner.supervisor.supervisor import END_SECONDS, Supervisor

_log = logging.getLogger(__name__)
_MOST_GRACE_SECONDS = 600.0
_FIRST_STATE_SECONDS = 60.0
"""Seconds that the supervisor waits for the first desired state where the driver is not its child."""


class ElasticSupervisor(Supervisor):
    """The supervisor of one attempt of one elastic job on one node.

    Args:
        spec: the attempt.

    Raises:
        OSError: the spool cannot be written. The supervisor may not start processes that it cannot report.
    """

    def __init__(self, spec: AttemptSpec) -> None:
        super().__init__(spec)
        self._engines = Engines(spec, self._selector)
        self._coordinator = CoordinatorLink(
            spec, self._selector, self._engines, receive=self._receive, alone=self._without_coordinator
        )
        self._started = time.monotonic()
        self._failure_deadline: float | None = None
        """User code has raised in an engine. The driver prints the error and has until then (monotonic seconds)."""
        self._failed_step: int | None = None
        self._oom = False
        self._completed: TrainingCompleted | None = None
        self._delivered = False
        """The driver has received the trained state."""
        self._step = self._step_at = 0.0
        self._step_seconds = 0.0

    def _read_environment(self) -> None:
        super()._read_environment()
        environment.hang_seconds()

    # ── the desired state ─────────────────────────────────────────────────────────────────────────────────────
    def _never_started(self, allocations: Iterable[int]) -> list[int]:
        found = [allocation for allocation in allocations if not self._engines.has_had(allocation)]
        self._engines.ended.update(found)
        return found

    def _without_slots(self, desired: DesiredState | None) -> DesiredState:
        return DesiredState(self._spec.fence, (), desired.coordinator if desired is not None else None)

    def _terminate(self) -> None:
        for process in self._children():
            process.signal(signal.SIGTERM)

    def _advance(self, now: float) -> None:
        if self._end is None:
            self._apply_desired_state(self._desired, now)
        elif now >= self._end_deadline:
            self._kill_all()
        for allocation in self._engines.watch(now):
            self._coordinator.send(EngineStuck(str(allocation)))
        if self._coordinator.head_node is not None and self._end is None:
            self._coordinator.head_node.kill_if_stopped()

    def _look_at_folder(self) -> None:
        self._coordinator.look_for_successor()
        super()._look_at_folder()

    def _apply_desired_state(self, desired: DesiredState | None, now: float) -> None:
        engines = self._engines
        slots = {slot.allocation: slot for slot in desired.slots} if desired is not None else {}
        missing = [slot for number, slot in slots.items() if not engines.has_had(number)]
        needed = missing or self._coordinator.head_node is not None or engines.living
        if needed and desired is not None and self._coordinator.reach(desired.coordinator, now):
            self._coordinator.start_driver(now)
            for slot in missing:  # start first, ask to leave later: a leaving engine may be the source of a joining one
                self._start_engine(slot)
        leaving = engines.ask_to_leave(set(slots), now + self._grace())
        if leaving:  # one message for all of them, so that they leave in one change of the membership
            self._coordinator.send(LeaveEngines(tuple(map(str, leaving))))
        if not slots and not engines.living:
            self._end_if_idle(desired, now)

    def _end_if_idle(self, desired: DesiredState | None, now: float) -> None:
        """No slots are desired here and no engine runs here: end the attempt on this node if it is over.

        On the head node the supervisor first asks the coordinator whether engines of other nodes still train.
        """
        if desired is None:  # the supervisor has just started; an external driver may have died before it connected
            if self._spec.driver == "external" and now >= self._started + _FIRST_STATE_SECONDS:
                self._finish(ExitKind.STOPPED, "its driver never spoke", 0)
            return
        node = self._coordinator.head_node
        if self._failure_deadline is not None and node is not None and node.driver is not None:
            if now >= self._failure_deadline:
                self._finish(ExitKind.SCRIPT_ERROR, "the script failed in an engine; see its log", 1, now=True)
        elif node is not None and desired.coordinator is None:
            self._coordinator.send(SupervisorIdle())
        else:
            self._finish(ExitKind.LEFT, "all engines of this node have left", 0)

    def _grace(self) -> float:
        """Seconds that an engine may take to leave."""
        return min(_MOST_GRACE_SECONDS, max(self._spec.grace_seconds, 3 * self._step_seconds))

    def _start_engine(self, slot: DesiredSlot) -> None:
        name = str(slot.allocation)
        self._coordinator.send(EngineExpected(name))
        pid = self._engines.start(slot, self._coordinator.address or "")
        crash_point(CrashPoint.SUPERVISOR_FORK)
        _log.info("engine %s starts on slot %s (pid %d)", name, slot.slot, pid)
        self._spool.append(ReportKind.ENGINE_STARTED, {"allocation": slot.allocation, "slot": slot.slot, "pid": pid})

    # ── messages of the coordinator ───────────────────────────────────────────────────────────────────────────
    def _receive(self, message: Message) -> None:
        match message:
            case CoordinatorListening():
                if self._coordinator.coordinator_listens():
                    self._spool.append(ReportKind.COORDINATOR_AT, {"address": self._coordinator.address})
            case TrainingReport():
                self._report_training(message)
            case Progress(step=step):
                self._step_reached(step)
            case DiscardEngine(engine=engine):
                self._engines.discard(int(engine))
            case TrainingCompleted():
                self._completed = message
            case TrainedStateReceived():
                self._delivered = True
            case TrainingSuspended():
                self._finish(ExitKind.LEFT, "all engines have left; the training goes on from its checkpoint", 0)
            case StateLost(why=why):
                self._finish(ExitKind.LOST, why, 0, now=True)
            case ScriptFailed(message=failure, failed_step=failed_step):
                self._failed_step = failed_step
                if self._spec.driver == "fork":
                    self._end_deadline = time.monotonic() + END_SECONDS
                    self._end = (ExitKind.SCRIPT_ERROR, failure, 1)

    def _report_training(self, message: TrainingReport) -> None:
        report = accepted_report(message, self._storage)
        if report is not None:
            self._spool.append(*report)
        match report:
            case ReportKind.PROGRESS, body:
                self._step_reached(float(body.get("step") or 0))
                self._failure_deadline = None  # the training continues in spite of the error in an engine
            case ReportKind.ENGINE_JOINED, _ if self._coordinator.head_node is not None:
                self._coordinator.head_node.recovering = True

    def _step_reached(self, step: float) -> None:
        """Measure how long a step takes, from the times at which steps are reported."""
        now = time.monotonic()
        if self._step_at and step > self._step:
            self._step_seconds = (now - self._step_at) / (step - self._step)
        self._step, self._step_at = step, now

    def _without_coordinator(self) -> None:
        """Handle that there is no coordinator and none will come. If engines run here, the attempt is lost; otherwise
        it is over."""
        if self._end is not None:
            return
        if self._engines.living:
            self._finish(ExitKind.LOST, "the coordinator is gone", 0, now=True)
        elif self._engines.finished or not self._engines.ended:
            self._finish(ExitKind.FINISHED, "the attempt is over", 0)
        else:
            self._finish(ExitKind.LEFT, "the attempt is over, or goes on without this node", 0)

    # ── children that have ended ──────────────────────────────────────────────────────────────────────────────
    def _child_ended(self, pid: int, status: int) -> None:
        self._coordinator.receive_now()  # handle messages from or about the child before its end
        end = self._engines.remove(pid, status, ending=self._end is not None, stopped=self._stop_deadline is not None)
        if end is not None:
            self._engine_ended(end)
            return
        self._engines.other_ended(status)
        for node in self._coordinator.head_nodes():
            present = node is self._coordinator.head_node
            if pid == node.coordinator:
                node.coordinator = None
                if present:
                    self._coordinator_ended(node, status)
            elif node.driver is not None and pid == node.driver.pid:
                process, node.driver = node.driver, None
                process.collect(self._selector)
                if present:
                    self._driver_ended(node, process, status)

    def _engine_ended(self, end: EngineEnd) -> None:
        crash_point(CrashPoint.SUPERVISOR_REAP)
        name = str(end.slot.allocation)
        _log.info("engine %s is gone: %s (%s)", name, end.kind, end.how)
        self._oom = self._oom or end.oom
        if end.kind is ExitKind.SCRIPT_ERROR:
            self._failure_deadline = self._failure_deadline or time.monotonic() + self._grace()
        if end.kind is ExitKind.SCRIPT_ERROR or end.code == ExitStatus.NO_TRAINING:
            self._coordinator.send(EngineRaised(name, end.message, end.traceback))
        self._coordinator.send(EngineGone(name, end.micro_batch, end.how))
        self._spool.append(ReportKind.ENGINE_GONE, end.report_body())

    def _coordinator_ended(self, node: HeadNode, status: int) -> None:
        node.coordinator_restarts.died(time.monotonic())
        if self._end is None:
            self._report_restart("coordinator", status, node.coordinator_restarts.count)

    def _driver_ended(self, node: HeadNode, process: Child, status: int) -> None:
        code = None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        from_outside = code in (None, ExitStatus.PEER_LOST, ExitStatus.TERMINATED)  # the script did not cause it
        if self._end is not None and (self._end[0] is not ExitKind.SCRIPT_ERROR or from_outside):
            return
        if self._end is None and not self._delivered and from_outside:
            node.driver_restarts.died(time.monotonic())
            self._report_restart("driver", status, node.driver_restarts.count)
        elif from_outside:
            self._finish(ExitKind.LOST, f"the driver ended ({how_it_ended(status)})", 0)
        elif code == ExitStatus.SUSPENDED:
            self._finish(ExitKind.LEFT, "all engines have left; the training goes on from its checkpoint", 0)
        elif code:
            failure = process.failure
            message = (failure and failure.message) or (self._end or (0, ""))[1]
            self._finish(ExitKind.SCRIPT_ERROR, message or f"the script ended with status {code}", code, now=True)
        else:
            self._finish(ExitKind.FINISHED, process.failure.message if process.failure else "", 0)

    def _report_restart(self, what: str, status: int, count: int) -> None:
        why = how_it_ended(status)
        _log.warning("the %s ended (%s); another one starts", what, why)
        self._spool.append(ReportKind.RESTARTED, {"what": what, "why": why, "count": count})

    # ── the end of the attempt ────────────────────────────────────────────────────────────────────────────────
    def _without_agent(self) -> None:
        if self._spec.driver == "external":
            self._finish(ExitKind.STOPPED, "the driver is gone", 0)  # it was connected in the agent's place

    def _finish(self, kind: ExitKind, message: str, code: int, *, now: bool = False) -> None:
        """End the attempt on this node; its driver is killed at once."""
        super()._finish(kind, message, code, now=now)
        node = self._coordinator.head_node
        if node is not None and node.driver is not None:
            node.driver.signal(signal.SIGKILL)

    def _is_empty(self) -> bool:
        return (
            not self._children() and super()._is_empty()
        )  # the coordinator may be left, and what user code has started

    def _end_body(self, kind: ExitKind) -> Mapping[str, Any]:
        return {
            "digest": self._completed and self._completed.digest,
            "step": self._completed and self._completed.step,
            # A wrong variable is found before this process knows whether this is the head node. The platform knows it.
            "whole": self._coordinator.head_node is not None or kind is ExitKind.SCRIPT_ERROR,
            "failed_step": self._failed_step if kind is ExitKind.SCRIPT_ERROR else None,
            "oom": self._oom and kind is ExitKind.LOST,
        }

    # ── children ──────────────────────────────────────────────────────────────────────────────────────────────
    def _children(self) -> list[Child]:
        return [*(engine.child for engine in self._engines.living.values()), *self._coordinator.drivers()]

    def _measured(self) -> Mapping[int, DesiredSlot]:
        return {engine.child.pid: engine.slot for engine in self._engines.living.values()}

    def _logs(self) -> Iterable[PatientLog]:
        return [pipe.log for child in self._children() for pipe in child.outputs]
