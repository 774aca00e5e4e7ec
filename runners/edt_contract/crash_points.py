"""Crash points: places in the code at which a test can kill the process, to check that nothing is lost.

EDT_CRASH=POINT[@AT][#WHO][,…]   A process that reaches POINT gets SIGKILL. With AT: only the AT-th time, or at position
                                 AT if the point has a position (a step, for example). With WHO: only the process WHO.
EDT_CRASH_DIR=FOLDER             Each entry of EDT_CRASH kills only once: the process first leaves a mark in FOLDER.

Tests set the two variables; every process reads them. If they are not set, a crash point costs one dictionary lookup.
``CrashPoint`` lists all points; a test compares the list with the code.
"""

from __future__ import annotations

import enum
import os
import signal
from collections import Counter
from pathlib import Path

VARIABLE, MARKS = "EDT_CRASH", "EDT_CRASH_DIR"


class CrashPoint(enum.StrEnum):
    """All crash points, by the process that dies there."""

    # engine: ``at`` is the step, ``who`` the allocation
    ENGINE_FORWARD = "engine.forward"  # before the first micro-batch of a step
    ENGINE_BACKWARD = "engine.backward"  # in the first micro-batch, its gradients half written
    ENGINE_BUCKET = "engine.bucket"  # has sent a bucket, and goes on with the backward pass
    ENGINE_BEFORE_REDUCE = "engine.before-reduce"  # all own micro-batches done, its sums are sent
    ENGINE_IN_REDUCE = "engine.in-reduce"  # between its first and its last send of a bucket's shards
    ENGINE_BEFORE_GATHER = "engine.before-gather"  # its shard of the last bucket is summed, no other engine has it
    ENGINE_REDUCED = "engine.reduced"  # has the reduced gradients, has not applied them
    ENGINE_APPLIED = "engine.applied"  # applied, before any other process knows
    ENGINE_COMMITTED = "engine.committed"  # after all actions that follow a commit
    ENGINE_CHECKPOINT = "engine.checkpoint"  # the checkpoint's draft is written, not renamed
    ENGINE_VALIDATE = "engine.validate"  # before the first micro-batch of a validation step
    ENGINE_JOIN = "engine.join"  # a joining engine: it has half of the weights
    ENGINE_JOINED = "engine.joined"  # a joining engine: it has the weights, before its first reduction
    ENGINE_SWITCH = "engine.switch"  # a member: at the boundary, before it sends that it switches
    ENGINE_SWITCHED = "engine.switched"  # a member: it has sent that it switches, before it does so
    ENGINE_LEAVE = "engine.leave"  # a leaving engine: it has switched and waits for the permission to exit
    ENGINE_HAND_OVER = "engine.hand-over"  # the first engine, at the end: before it gives the weights to the driver
    ENGINE_REGROUP = "engine.regroup"  # a surviving engine: it has sent its status, before the new group
    # driver
    DRIVER_BEGIN = "driver.begin"  # in train(), before it connects to the coordinator
    DRIVER_SENT_STATE = "driver.sent-state"  # has sent the first weights
    DRIVER_METRICS = "driver.metrics"  # a bundle of metrics has arrived, it is not logged
    DRIVER_RECEIVED_STATE = "driver.received-state"  # has the trained weights, has not acknowledged them
    DRIVER_RELEASED = "driver.released"  # train() returns; the code after it has not run
    # coordinator: ``at`` counts visits
    COORDINATOR_START = "coordinator.start"
    COORDINATOR_PREPARE = "coordinator.prepare"  # a change is decided, no member knows
    COORDINATOR_COMMIT = "coordinator.commit"  # all members have built the group, no member knows this
    COORDINATOR_SETTLE = "coordinator.settle"  # all members have switched, no member knows this
    COORDINATOR_REGROUP = "coordinator.regroup"  # a regroup begins
    COORDINATOR_REGROUPED = "coordinator.regrouped"  # all surviving engines have sent their status, none has the plan
    # supervisor
    SUPERVISOR_START = "supervisor.start"  # has its spec, has written nothing
    SUPERVISOR_FORK = "supervisor.fork"  # an engine has been forked, not reported
    SUPERVISOR_REAP = "supervisor.reap"  # an engine was reaped, not reported
    SUPERVISOR_END = "supervisor.end"  # all its processes are gone, the last report is not written
    # agent
    AGENT_START = "agent.start"
    AGENT_SPEC = "agent.spec"  # the record of a new supervisor is written, the supervisor has no spec yet
    AGENT_STARTED = "agent.started"  # the supervisor has its spec
    AGENT_SEND = "agent.send"
    AGENT_REPORT = "agent.report"  # before reports are sent
    AGENT_REPORTED = "agent.reported"  # the API has the reports, the agent's record does not know it
    AGENT_FORGET = "agent.forget"
    # scheduler
    SCHEDULER_PASS = "scheduler.pass"  # noqa: S105 - one pass of its loop
    SCHEDULER_PLAN = "scheduler.plan"  # a plan is made, nothing written
    SCHEDULER_RAISED = "scheduler.raised"  # fence files are raised, the database does not know it
    SCHEDULER_WRITE = "scheduler.write"  # written, not committed
    SCHEDULER_COMMITTED = "scheduler.committed"  # committed, no agent is notified
    SCHEDULER_RELAY = "scheduler.relay"  # notified, the outbox not cleared
    SCHEDULER_SWEEP = "scheduler.sweep"  # job folders are checked, uploads are not
    SCHEDULER_FENCED = "scheduler.fenced"  # the fence of a job folder without a row is raised, it is not moved
    SCHEDULER_NOTED = "scheduler.noted"  # lost+found has the note, not yet the folder
    SCHEDULER_SET_ASIDE = "scheduler.set-aside"  # the folder lies in lost+found, there is no event yet
    # the process that starts first
    HOME_ID = "home.id"  # the home has its id, the database does not know it
    # API
    API_UPLOAD = "api.upload"  # a part of the upload is on disk
    API_EXTRACTED = "api.extracted"  # the code is staged, there is no row in the database
    API_RESERVED = "api.reserved"  # the job's number is reserved, there is no folder of this number
    API_LAID_OUT = "api.laid-out"  # the job's folder is in place, its row is not written
    API_SUBMITTED = "api.submitted"  # committed, not answered
    API_REPORTS = "api.reports"  # reports are taken, not committed
    API_REPORTED = "api.reported"  # committed, not answered
    API_STOP = "api.stop"  # a stop is committed, not answered


_seen: Counter[str] = Counter()


def crash_point(point: CrashPoint, *, at: int | None = None, who: str = "") -> None:
    """Kill this process with SIGKILL if EDT_CRASH names this point.

    Args:
        point: the crash point that the process has reached.
        at: the position, if the point has one; None: visits are counted.
        who: the name of this process, if several processes reach the point.
    """
    entries = os.environ.get(VARIABLE)
    if not entries or point not in entries:
        return
    _seen[point] += 1
    position = _seen[point] if at is None else at
    for entry in entries.split(","):
        if _is_meant(entry, point, position, who) and _first_time(entry):
            os.kill(os.getpid(), signal.SIGKILL)


def _is_meant(entry: str, point: CrashPoint, position: int, who: str) -> bool:
    rest, _, wanted = entry.strip().partition("#")
    name, _, where = rest.partition("@")
    return name == point and (not where or int(where) == position) and (not wanted or wanted == who)


def _first_time(entry: str) -> bool:
    folder = os.environ.get(MARKS)
    if not folder:
        return True
    Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(Path(folder) / entry.strip().replace("/", "_"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True
