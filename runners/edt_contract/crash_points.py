"""Places in the code at which a test kills the process that comes there, to see that nothing is lost.

EDT_CRASH=POINT[@AT][#WHO][,…]   SIGKILL to the process that comes to POINT: for the AT-th time, or at position AT
                                 where the place names one (a step, a report's number); only in WHO where it is named
EDT_CRASH_DIR=FOLDER             each entry of EDT_CRASH happens once: a mark is left there before the kill

Tests write the two variables; every process reads them. Unset, a point costs one look into a dictionary. ``CrashPoint``
is the whole list; a test compares it with the code.
"""

from __future__ import annotations

import enum
import os
import signal
from collections import Counter
from pathlib import Path

VARIABLE, MARKS = "EDT_CRASH", "EDT_CRASH_DIR"


class CrashPoint(enum.StrEnum):
    """Every place, by the process that dies there."""

    # engine: ``at`` is the step, ``who`` the allocation
    ENGINE_FORWARD = "engine.forward"  # before the first micro-batch of a step
    ENGINE_BACKWARD = "engine.backward"  # in the first micro-batch, its gradients half written
    ENGINE_BEFORE_REDUCE = "engine.before-reduce"  # all own micro-batches done, nothing sent
    ENGINE_IN_REDUCE = "engine.in-reduce"  # between its first and its last send of shards
    ENGINE_BEFORE_GATHER = "engine.before-gather"  # its shard is summed, nobody has it
    ENGINE_REDUCED = "engine.reduced"  # has the reduced gradients, has not applied them
    ENGINE_APPLIED = "engine.applied"  # applied, before any other process knows
    ENGINE_COMMITTED = "engine.committed"  # after all that follows a commit
    ENGINE_CHECKPOINT = "engine.checkpoint"  # the checkpoint's draft is written, not renamed
    ENGINE_VALIDATE = "engine.validate"  # before the first micro-batch of a validation step
    ENGINE_JOIN = "engine.join"  # a joining engine: it has half of the weights
    ENGINE_JOINED = "engine.joined"  # a joining engine: it has the weights, before its first reduction
    ENGINE_SWITCH = "engine.switch"  # a member: at the boundary, before it sends that it switches
    ENGINE_SWITCHED = "engine.switched"  # a member: it has sent so, before it works by the new generation
    ENGINE_LEAVE = "engine.leave"  # a leaving engine: it has switched and waits for the permission to exit
    ENGINE_HAND_OVER = "engine.hand-over"  # the first one, at the end: before it gives the weights to the driver
    ENGINE_REGROUP = "engine.regroup"  # a surviving engine: it has sent its status, before the new group
    # driver
    DRIVER_BEGIN = "driver.begin"  # in train(), before it connects to the coordinator
    DRIVER_SENT_STATE = "driver.sent-state"  # has sent the first weights
    DRIVER_METRICS = "driver.metrics"  # a bundle of metrics is here, not logged
    DRIVER_RECEIVED_STATE = "driver.received-state"  # has the trained weights, has not acknowledged them
    DRIVER_RELEASED = "driver.released"  # train() returns; the code after it has not run
    # coordinator: ``at`` counts
    COORDINATOR_START = "coordinator.start"
    COORDINATOR_PREPARE = "coordinator.prepare"  # a change is decided, no member knows
    COORDINATOR_COMMIT = "coordinator.commit"  # all have built the group, no member knows
    COORDINATOR_SETTLE = "coordinator.settle"  # all have switched, no member knows
    COORDINATOR_REGROUP = "coordinator.regroup"  # a regroup begins
    COORDINATOR_REGROUPED = "coordinator.regrouped"  # all surviving engines have sent their status, none has the plan
    # supervisor
    SUPERVISOR_START = "supervisor.start"  # has its spec, has written nothing
    SUPERVISOR_FORK = "supervisor.fork"  # an engine has been forked, not reported
    SUPERVISOR_REAP = "supervisor.reap"  # an engine was reaped, not reported
    SUPERVISOR_END = "supervisor.end"  # all its processes are gone, the last report is not written
    # agent
    AGENT_START = "agent.start"
    AGENT_SPEC = "agent.spec"  # the record of a new supervisor is written, which has no spec yet
    AGENT_STARTED = "agent.started"  # the supervisor has its spec
    AGENT_SEND = "agent.send"
    AGENT_REPORT = "agent.report"  # before reports are sent
    AGENT_REPORTED = "agent.reported"  # the API has taken them, the record does not know
    AGENT_FORGET = "agent.forget"
    # scheduler
    SCHEDULER_PASS = "scheduler.pass"  # noqa: S105 - one pass of its loop
    SCHEDULER_PLAN = "scheduler.plan"  # a plan is made, nothing written
    SCHEDULER_RAISED = "scheduler.raised"  # fence files are raised, the database does not know
    SCHEDULER_WRITE = "scheduler.write"  # written, not committed
    SCHEDULER_COMMITTED = "scheduler.committed"  # committed, nobody notified
    SCHEDULER_RELAY = "scheduler.relay"  # notified, the outbox not cleared
    SCHEDULER_SWEEP = "scheduler.sweep"  # job folders are gone through, uploads are not
    SCHEDULER_FENCED = "scheduler.fenced"  # a job folder without a row is shut out, not moved
    SCHEDULER_NOTED = "scheduler.noted"  # lost+found has the note, not yet the folder
    SCHEDULER_SET_ASIDE = "scheduler.set-aside"  # the folder lies in lost+found, no event says so
    # whoever starts first
    HOME_ID = "home.id"  # the home has its id, the database does not know it
    # API
    API_UPLOAD = "api.upload"  # a part of the upload is on disk
    API_EXTRACTED = "api.extracted"  # the code is staged, no row
    API_RESERVED = "api.reserved"  # the job's number is reserved, nothing lies under it
    API_LAID_OUT = "api.laid-out"  # the job's folder is in place, its row not written
    API_SUBMITTED = "api.submitted"  # committed, not answered
    API_REPORTS = "api.reports"  # reports are taken, not committed
    API_REPORTED = "api.reported"  # committed, not answered
    API_STOP = "api.stop"  # a stop is committed, not answered


_seen: Counter[str] = Counter()


def crash_point(point: CrashPoint, *, at: int | None = None, who: str = "") -> None:
    """End this process by SIGKILL if EDT_CRASH names this point.

    Args:
        point: where the process is.
        at: the position, where the point has one; None: visits are counted.
        who: which process it is, where the point has several.
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
