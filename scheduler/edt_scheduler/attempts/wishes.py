"""What a user wants of a job before it is over: that it pauses, goes on, has another number of epochs, other
bounds of its size, or another priority.

Call these functions inside a write transaction.
"""

from __future__ import annotations

import math
from typing import Any

from sqlalchemy import Connection, Row

from edt_scheduler.attempts import lifecycle
from edt_scheduler.errors import EpochsInvalid, JobOver, NotNow, PriorityInvalid, SizeInvalid
from edt_scheduler.model.jobs import MOST_SLOTS, exec_id
from edt_scheduler.model.queues import MOST_PRIORITY
from edt_scheduler.model.states import JobState, ResizeCause
from edt_scheduler.store import allocations, attempts, jobs, outbox

MOST_EPOCHS = 1_000_000_000
_ITS_OWN_LOOP = (
    "has not said that its training is elastic: only its script knows the epochs of a loop of its own. If the script "
    "has just started, extend it again as soon as it trains"
)


def pause(tx: Connection, job: Row[Any], by: str, now: float) -> None:
    """Pause a job: its engines leave at their next step boundary with a checkpoint, and it gets nothing until it is let
    go on. A gang has no checkpoint of the platform, nor has a script that trains in a loop of its own: their processes
    are asked to end, and start again from the beginning of their script.

    Raises:
        JobOver: the job is over.
        NotNow: the job is paused already, is being stopped, or its training has just ended.
    """
    name = exec_id(job.id)
    if JobState(job.state).terminal:
        raise JobOver(name, job.state, "there is nothing to pause")
    if job.stop_requested_at is not None:
        raise NotNow(name, "is being stopped: it cannot be paused any more")
    if job.paused_at is not None:
        raise NotNow(name, f"is paused already, by {job.paused_by}")
    if _has_trained(attempts.live(tx, job.id)):
        raise NotNow(name, "has just ended its training: its script does the rest without slots, and cannot be paused")
    jobs.change(tx, job.id, paused_at=now, paused_by=by)
    jobs.record(tx, job.id, "paused", f"paused by {by}", {"by": by}, now)
    outbox.put_scheduler(tx, now)


def go_on(tx: Connection, job: Row[Any], by: str, now: float) -> None:
    """Let a paused job go on.

    Raises:
        JobOver: the job is over.
        NotNow: the job is not paused.
    """
    name = exec_id(job.id)
    if JobState(job.state).terminal:
        raise JobOver(name, job.state, _instead(job))
    if job.paused_at is None:
        raise NotNow(name, "is not paused")
    values: dict[str, Any] = {"paused_at": None, "paused_by": None}
    if job.pending_timeout is not None and job.started_at is None:
        values["pending_timeout"] = job.pending_timeout + math.ceil(now - job.paused_at)
    jobs.change(tx, job.id, **values)
    jobs.record(tx, job.id, "resumed", f"resumed by {by}", {"by": by}, now)
    outbox.put_scheduler(tx, now)


def _instead(job: Row[Any]) -> str:
    """What a user can do who wants a job to go on that is over."""
    name = exec_id(job.id)
    if job.gang is not None:
        return "submit it again; the platform keeps no checkpoint of a gang"
    if job.checkpoint_step is None:
        return "submit it again; it had no checkpoint yet"
    if job.results_removed_at is not None:
        return "submit it again; its checkpoint was removed with its results"
    if job.state == JobState.FINISHED:
        return f"`edt extend {name} --epochs N` goes on with more epochs in a new job"
    return f"`edt submit … --resume-from {name}` goes on from its checkpoint of step {job.checkpoint_step} in a new job"


def extend(tx: Connection, job: Row[Any], epochs: int, by: str, now: float) -> None:
    """Give a job's training ``epochs`` epochs in all. If it runs, its engines leave at their next step boundary with a
    checkpoint, and the next attempt goes on with that number.

    Raises:
        JobOver: the job is over.
        EpochsInvalid: the training has done so many epochs already, or has this number anyway.
        NotNow: the job is being stopped, its training has just ended, or only its own script knows its epochs: it is a
            gang, or it runs and has not said that its training is elastic.
    """
    name = exec_id(job.id)
    check(job, epochs)
    if JobState(job.state).terminal:
        raise JobOver(name, job.state, "its training cannot get more epochs; a new job can go on from its checkpoint")
    if job.stop_requested_at is not None:
        raise NotNow(name, "is being stopped: it cannot get more epochs any more")
    if job.wanted_epochs == epochs:
        return
    attempt = attempts.live(tx, job.id)
    if _has_trained(attempt):
        raise NotNow(name, "has just ended its training: extend it again as soon as it is FINISHED")
    if job.engines is None and JobState(job.state) is JobState.RUNNING:
        raise NotNow(name, _ITS_OWN_LOOP)
    jobs.change(tx, job.id, wanted_epochs=epochs)
    before = job.wanted_epochs or job.epochs
    data = {"by": by, "epochs": epochs, "before": before}
    told = f"{by} gave it {epochs} epochs in all" + (f" instead of {before}" if before else "")
    jobs.record(tx, job.id, "extended", told, data, now)
    if attempt is not None and attempt.kind is None:
        held = allocations.open_of(tx, job.id, attempt.fence)
        why = f"goes on with {epochs} epochs in all"
        lifecycle.take_back(tx, job.id, attempt.fence, held, ResizeCause.EXTEND, why, now)
        lifecycle.settle(tx, job.id, now)
    outbox.put_scheduler(tx, now)


def resize(tx: Connection, job: Row[Any], least: int | None, most: int | None, by: str, now: float) -> None:
    """Change the fewest and the most slots of an elastic job. None: it stays as it is.

    Raises:
        JobOver: the job is over.
        SizeInvalid: the job cannot have this number; ``field`` is ``min`` or ``max``.
        NotNow: the job is a gang, is being stopped, or has just ended its training.
    """
    name = exec_id(job.id)
    if JobState(job.state).terminal:
        raise JobOver(name, job.state, "it cannot get other slots any more")
    if job.gang is not None:
        raise NotNow(name, "is a gang: it has the size with which it was submitted")
    if job.stop_requested_at is not None:
        raise NotNow(name, "is being stopped: it cannot get other slots any more")
    if _has_trained(attempts.live(tx, job.id)):
        raise NotNow(name, "has just ended its training: its script does the rest without slots")
    before = (job.min_slots, jobs.most_slots(job))
    after = (before[0] if least is None else least, before[1] if most is None else most)
    _check_sizes(job, least, most, after)
    if after == before:
        return
    jobs.change(tx, job.id, min_slots=after[0], max_slots=after[1])
    told = f"{by} gave it {after[0]} to {after[1]} slots instead of {before[0]} to {before[1]}"
    jobs.record(tx, job.id, "bounds", told, {"by": by, "min": after[0], "max": after[1], "before": list(before)}, now)
    outbox.put_scheduler(tx, now)


def _check_sizes(job: Row[Any], least: int | None, most: int | None, after: tuple[int, int]) -> None:
    for field, number in (("min", least), ("max", most)):
        if number is not None and not 1 <= number <= MOST_SLOTS:
            raise SizeInvalid(field, f"got {number}, takes a whole number of slots from 1 to {MOST_SLOTS}")
    if most is not None and job.engines is not None and most > max(job.engines, jobs.most_slots(job)):
        has = f"one step of {exec_id(job.id)} has {job.engines} micro-batches"
        raise SizeInvalid("max", f"got {most}, takes at most {job.engines}: {has}")
    if after[0] > after[1]:
        field = "max" if least is None else "min"
        than = f"at least the min, {after[0]}" if field == "max" else f"at most the max, {after[1]}"
        raise SizeInvalid(field, f"got {most if field == 'max' else least}, takes {than}")
    if job.sizes and not any(after[0] <= size <= after[1] for size in job.sizes):
        sizes = ", ".join(map(str, job.sizes))
        raise SizeInvalid("max" if least is None else "min", f"leaves none of the sizes of {exec_id(job.id)}: {sizes}")


def set_priority(tx: Connection, job: Row[Any], priority: int, by: str, now: float, *, unlimited: bool) -> None:
    """Change a job's priority.

    Args:
        tx: the write transaction.
        job: the job's row.
        priority: from 1; jobs of a higher one come first.
        by: name of the user who changes it.
        now: the current time, in seconds since the epoch.
        unlimited: whether it may be higher than that with which the job was submitted.

    Raises:
        JobOver: the job is over.
        PriorityInvalid: it is no priority, or higher than the user may set.
    """
    name = exec_id(job.id)
    if JobState(job.state).terminal:
        raise JobOver(name, job.state, "its priority means nothing any more")
    if not 1 <= priority <= MOST_PRIORITY:
        raise PriorityInvalid("priority", f"got {priority}, takes a whole number from 1 to {MOST_PRIORITY}")
    if priority > job.submitted_priority and not unlimited:
        most = f"{job.submitted_priority}, with which {name} was submitted"
        raise PriorityInvalid("priority", f"got {priority}, takes at most {most}; an admin may set a higher one")
    if priority == job.priority:
        return
    jobs.change(tx, job.id, priority=priority)
    data = {"by": by, "priority": priority, "before": job.priority}
    jobs.record(tx, job.id, "priority", f"{by} gave it the priority {priority} instead of {job.priority}", data, now)
    outbox.put_scheduler(tx, now)


def _has_trained(attempt: Row[Any] | None) -> bool:
    """Whether the training of a job's live attempt has ended. Its script goes on, without slots."""
    return attempt is not None and attempt.trained_at is not None


def check(job: Row[Any], epochs: int) -> None:
    """Refuse a number of epochs that a job's training cannot have.

    Raises:
        EpochsInvalid: the training has done so many already, or has this number anyway, or the number is none.
        NotNow: the job is a gang.
    """
    if job.gang is not None:
        raise NotNow(exec_id(job.id), "is a gang: only its own script knows its epochs")
    if not 1 <= epochs <= MOST_EPOCHS:
        raise EpochsInvalid("epochs", f"got {epochs}, takes a whole number from 1 to {MOST_EPOCHS}")
    done = epochs_done(job)
    if epochs <= done:
        raise EpochsInvalid("epochs", f"got {epochs}, takes more than the {done} that {exec_id(job.id)} has done")
    going_on = not JobState(job.state).terminal  # one that was stopped may well have its rest trained
    if going_on and job.wanted_epochs is None and job.epochs == epochs:
        raise EpochsInvalid("epochs", f"got {epochs}, which is what {exec_id(job.id)} has anyway; takes another number")


def epochs_done(job: Row[Any]) -> int:
    """How many epochs a job's training has done, as far as it was reported."""
    step = job.progress.get("step") or 0
    if not (job.steps_total and job.epochs):
        return 0
    return int(step * job.epochs // job.steps_total)
