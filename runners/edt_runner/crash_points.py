"""Places at which a process can be told to die, to see that nothing is lost. Room: runners; standard library only,
since every room has some.

EDT_CRASH=POINT[@AT][#WHO][,…]   SIGKILL to the process that comes to POINT: for the AT-th time, or at position AT
                                 where the place names one (a tick, a report's number); only in WHO where it is named
EDT_CRASH_DIR=FOLDER             each entry of EDT_CRASH happens once: a mark is left there before the kill

Unset, a point costs one look into a dictionary. ``CrashPoint`` is the whole list; a test holds it against the code.
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

    # engine: ``at`` is the tick, ``who`` the allocation
    ENGINE_FORWARD = "engine.forward"  # before the first micro-batch of a tick
    ENGINE_BACKWARD = "engine.backward"  # in the first micro-batch, its gradients half written
    ENGINE_BEFORE_REDUCE = "engine.before-reduce"  # all own micro-batches done, nothing sent
    ENGINE_IN_REDUCE = "engine.in-reduce"  # between its first and its last send of shards
    ENGINE_BEFORE_GATHER = "engine.before-gather"  # its shard is summed, nobody has it
    ENGINE_REDUCED = "engine.reduced"  # has the reduced vector, has not applied it
    ENGINE_APPLIED = "engine.applied"  # applied, before anything else learns it
    ENGINE_COMMITTED = "engine.committed"  # after all that follows a commit
    ENGINE_CHECKPOINT = "engine.checkpoint"  # the checkpoint's draft is written, not renamed
    ENGINE_VALIDATE = "engine.validate"  # before the first micro-batch of a validation tick
    ENGINE_JOIN = "engine.join"  # a newcomer: the weights are half here
    ENGINE_JOINED = "engine.joined"  # a newcomer: has the weights, before its first reduction
    ENGINE_SWITCH = "engine.switch"  # a member: at the boundary, before it says that it switches
    ENGINE_SWITCHED = "engine.switched"  # a member: has said so, before it works by the new generation
    ENGINE_LEAVE = "engine.leave"  # a leaver: has switched, waits to be let go
    ENGINE_HAND_OVER = "engine.hand-over"  # the first one, at the end: before it gives the weights to the driver
    ENGINE_REFORM = "engine.reform"  # a survivor: has said where it stands, before the new group
    # driver
    DRIVER_BEGIN = "driver.begin"  # in train(), before it speaks to the coordinator
    DRIVER_GAVE = "driver.gave"  # has given the first weights
    DRIVER_METRICS = "driver.metrics"  # a bundle of metrics is here, not logged
    DRIVER_TOOK = "driver.took"  # has the trained weights, has not said so
    DRIVER_RELEASED = "driver.released"  # train() returns; the code after it has not run
    # coordinator: ``at`` counts
    COORDINATOR_START = "coordinator.start"
    COORDINATOR_PREPARE = "coordinator.prepare"  # a change is decided, nobody has been told
    COORDINATOR_COMMIT = "coordinator.commit"  # all have built, nobody has been told
    COORDINATOR_SETTLE = "coordinator.settle"  # all have switched, nobody has been told
    COORDINATOR_ROUND = "coordinator.round"  # a round begins
    COORDINATOR_REFORM = "coordinator.reform"  # all survivors have spoken, nobody has been told
    # supervisor
    SUPERVISOR_START = "supervisor.start"  # has its letter, has written nothing
    SUPERVISOR_FORK = "supervisor.fork"  # an engine has been forked, not reported
    SUPERVISOR_REAP = "supervisor.reap"  # an engine was reaped, not reported
    SUPERVISOR_END = "supervisor.end"  # everything of it is gone, the last word not written
    # agent
    AGENT_START = "agent.start"
    AGENT_LETTER = "agent.letter"  # the ledger knows a new supervisor, which has no letter yet
    AGENT_STARTED = "agent.started"  # the letter is handed over
    AGENT_TELL = "agent.tell"
    AGENT_CARRY = "agent.carry"  # before reports are sent
    AGENT_CARRIED = "agent.carried"  # the API has taken them, the ledger does not know
    AGENT_FORGET = "agent.forget"
    # scheduler
    SCHEDULER_PASS = "scheduler.pass"  # noqa: S105 - one pass of its loop
    SCHEDULER_PLAN = "scheduler.plan"  # a plan is made, nothing written
    SCHEDULER_RAISED = "scheduler.raised"  # fence files are raised, the database does not know
    SCHEDULER_WRITE = "scheduler.write"  # written, not committed
    SCHEDULER_COMMITTED = "scheduler.committed"  # committed, nobody rung
    SCHEDULER_RELAY = "scheduler.relay"  # rung, the outbox not cleared
    SCHEDULER_SWEEP = "scheduler.sweep"  # job folders are gone through, uploads are not
    SCHEDULER_FENCED = "scheduler.fenced"  # a job folder without a row is shut out, not moved
    SCHEDULER_NOTED = "scheduler.noted"  # lost+found has the note, not yet the folder
    SCHEDULER_SET_ASIDE = "scheduler.set-aside"  # the folder lies in lost+found, nobody has said so
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
    """Die here if EDT_CRASH says so. ``at``: the position, where it has one; else visits are counted."""
    told = os.environ.get(VARIABLE)
    if not told or point not in told:
        return
    _seen[point] += 1
    position = _seen[point] if at is None else at
    for entry in told.split(","):
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
