"""What reports about the job change: its state, E, size, progress, checkpoints and guarantee.

They count only while their attempt is the job's live one.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from edt_contract.reports import INT64, ExitKind
from edt_scheduler.attempts import gangs, head_node, losses
from edt_scheduler.ingest.context import Context
from edt_scheduler.model import speeds, validation
from edt_scheduler.model.exactness import cut, why_not_exact, why_they_differ
from edt_scheduler.model.progress import PACE, MetricPoint, final_points, with_report
from edt_scheduler.model.states import JobState
from edt_scheduler.model.step_times import TIME
from edt_scheduler.store import allocations, attempts, jobs, metrics, nodes, outbox, resizes, to_views
from edt_scheduler.store import speeds as speed_store

CHECKPOINTS_APART_SECONDS = 600.0
"""If no other event comes between checkpoints, the job's history gets one checkpoint event in this many seconds."""
_MOST_NAMED = 8
"""So many slots are named in an event, at most."""


def attempt_started(context: Context) -> None:
    """The attempt's first supervisor has started. Later starts, on other nodes or a new head node, change nothing."""
    if context.attempt.started_at is None:
        attempts.change(context.tx, context.job.id, context.report.fence, started_at=context.now)
    if JobState(context.job.state) is JobState.PENDING:
        fence = context.report.fence
        gang = context.attempt.gang
        where = gangs.runs_on(context.tx, context.job.id, fence) if gang else context.node.name
        message = f"attempt {fence} runs on {where}"
        jobs.change(context.tx, context.job.id, message=None)  # the end of the attempt before is in the history
        jobs.move(context.tx, context.job.id, JobState.RUNNING, message, context.now)


def coordinator_at(context: Context) -> None:
    """A node has said where its coordinator listens."""
    address = context.body["address"]
    head_node.listens(context.tx, context.job.id, context.report.fence, context.node.id, address, context.now)


def ports_reserved(context: Context) -> None:
    """A supervisor of a gang has reserved its ports."""
    if context.attempt.gang:
        gangs.reserve(context.tx, context.attempt, context.node, context.body["ports"], context.now)


def restarted(context: Context) -> None:
    """A supervisor has started a part again: the coordinator or the driver."""
    what, why, count = context.text("what") or "a part", context.text("why"), context.body.get("count")
    times = f", time {count}" if count is not None and count > 1 else ""
    context.record(f"the {what} was started again{times}" + (f": {why}" if why else ""), dict(context.body))


def engines_known(context: Context) -> None:
    """The script has said with how many engines it can work."""
    engines = context.body["engines"]
    values = {key: context.body.get(key) for key in ("engines", "steps_total", "epochs")}
    if (context.job.engines, context.job.steps_total, context.job.epochs) == tuple(values.values()):
        return
    jobs.change(context.tx, context.job.id, engines_at=context.now, **values)
    if context.body.get("follows_engines"):
        context.record(f"its batch follows its engines, of which an epoch can use {engines}", values)
    else:
        context.record(f"one step has {engines} micro-batches: at most {engines} engines", values)
    outbox.put_scheduler(context.tx, context.now)


def resized(context: Context) -> None:
    """The engines form another membership.

    The coordinator may report engines that left or died before their supervisor does.
    """
    workers = context.body.get("workers")
    values: dict[str, Any] = {"workers": workers} if workers is not None else {}
    if context.job.progress.get(speeds.MEASURING):  # of another membership
        values["progress"] = {**context.job.progress, speeds.MEASURING: None}
    if values:
        jobs.change(context.tx, context.job.id, **values)
    for key, how, kind in (("left", "left unasked", ExitKind.LEFT), ("lost", "was lost", ExitKind.LOST)):
        for row in context.named(key):
            if row.released_at is None:
                losses.note(context.tx, [row], f"engine {row.id} {how}", context.now, kind=kind)
    shrunk = [row.shrunk_by for key in ("left", "lost") for row in context.named(key) if row.shrunk_by is not None]
    resizes.switched(
        context.tx,
        [*(row.grown_by for row in context.named("joined")), *shrunk],
        generation=context.body.get("generation"),
        step=context.body.get("step"),
        workers=workers,
        pause=context.body.get("pause_seconds"),
        recomputed=context.body.get("recomputed"),
    )


def progress(context: Context) -> None:
    """The training has come so far."""
    fence, time, body = context.report.fence, context.report.time, dict(context.body)
    pace = with_report(context.job.progress.get(PACE), body, fence, time)
    times = body.pop("step_times", None)
    measuring, news = speeds.with_report(context.job.progress.get(speeds.MEASURING), body, fence, time)
    values: dict[str, Any] = {"progress": {**body, PACE: pace, speeds.MEASURING: measuring}}
    if news is not None:
        _measured(context, news)
    if times is not None:
        values["step_times"] = {**times, TIME: time}
    metrics.add(context.tx, context.job.id, fence, time, body)
    if (workers := context.body.get("workers")) is not None:
        values["workers"] = workers
    samples, seconds = context.body.get("samples"), context.body.get("seconds")
    if samples is not None and seconds is not None:
        values["trained_samples"] = min(INT64, context.job.trained_samples + samples)
        values["trained_seconds"] = context.job.trained_seconds + seconds
    jobs.change(context.tx, context.job.id, **values)


def _measured(context: Context, news: speeds.News) -> None:
    """Write how long a step takes, for this job and for all jobs that are alike."""
    places = allocations.places(context.tx, context.job.id, context.report.fence)
    if not places:
        return
    model = next((model.lower() for _, model in places if model), "")
    point = {"model": model, "workers": news.workers, "nodes": len({node for node, _ in places})}
    owners: list[dict[str, Any]] = [{"job_id": context.job.id}]
    if context.job.prior_key is not None:
        owners.append({"prior_key": context.job.prior_key})
    for owner in owners:
        before = speed_store.find(context.tx, owner, point)
        known, own = before.samples if before is not None else 0, "job_id" in owner
        seconds = news.step_seconds
        if before is not None and not own:
            seconds = speeds.mixed(before.step_seconds, known, seconds, news.steps)
        if before is None or speeds.is_news(before.step_seconds, seconds):
            values = {"step_seconds": seconds, "samples": min(INT64, known + news.steps), "at": context.now}
            speed_store.put(context.tx, owner, point, values, new=before is None)


def validated(context: Context) -> None:
    """A validation has ended."""
    body, job = context.body, context.job
    found = validation.named(body["metrics"])
    point = MetricPoint(
        body["step"],
        context.report.time,
        body.get("epoch"),
        body.get("workers"),
        found.get(validation.VAL_LOSS),
        None,
        found,
    )
    again = metrics.add_validation(context.tx, job.id, context.report.fence, point)
    best = validation.up_to(job.best, point.step if again else point.step - 1)
    if len(best) < len(job.best):
        # The training has gone back to a checkpoint: what was validated after it does not count any more. What counts
        # still is not read anew, because its point may have been left out since.
        rows = metrics.validations_of(context.tx, job.id)
        read = validation.best_of(final_points([to_views.validation_point(row) for row in rows]))
        best = {name: best.get(name) or read[name] for name in job.best if name in best or name in read}
    newest = {**body, "time": point.time, "metrics": found}
    jobs.change(context.tx, job.id, validation=newest, best=validation.with_point(best, point))


def best_kept(context: Context) -> None:
    """A model is kept, because it is the best so far."""
    jobs.change(context.tx, context.job.id, best_model=dict(context.body))


def checkpointed(context: Context) -> None:
    """A new checkpoint ends a series of losses, because the next attempt can go on from this checkpoint."""
    step = context.body.get("step")
    if step is None:
        return
    values: dict[str, Any] = {"checkpoint_step": step}
    if context.job.checkpoint_step is None or step > context.job.checkpoint_step:
        values["losses"] = 0
    jobs.change(context.tx, context.job.id, **values)
    before = jobs.newest_event(context.tx, context.job.id)
    same = before is not None and (before.kind, before.fence) == (context.report.kind, context.report.fence)
    if before is None or not same or context.now > before.time + CHECKPOINTS_APART_SECONDS:
        context.record(f"checkpoint at step {step}", {"step": step})


def guarantee_ended(context: Context) -> None:
    """Store why the result is no longer exact, and record an event.

    The first reason stays, unless it says only that the engines differ. A reason that is stored already is not recorded
    again.
    """
    engine, step = context.body.get("engine"), context.body.get("step")
    texts = {key: cut(context.text(key)) for key in ("what", "why", "difference")}
    reason = why_not_exact(texts["what"], texts["why"], engine, step, texts["difference"])
    known = context.job.inexact
    if known == reason:
        return
    if known is None or (step is not None and known == why_they_differ(step)):
        jobs.change(context.tx, context.job.id, inexact=reason)
    context.record(f"the result is no longer exact: {reason}", {**texts, "engine": engine, "step": step})


def replicas_compared(context: Context) -> None:
    """Engines were compared.

    If all are equal, only the job's row is changed: an event for each comparison would be too many. If they differ, the
    first such report is an event.
    """
    step, engines = context.body["step"], context.body["engines"]
    if context.body["equal"]:
        of_join = context.body.get("reason") == "join"
        jobs.change(context.tx, context.job.id, **asdict(jobs.compared(context.job).equal(step, of_join=of_join)))
    elif context.job.inexact is None:
        reason = why_they_differ(step)
        jobs.change(context.tx, context.job.id, inexact=reason)
        data = {"step": step, "engines": engines, "reason": cut(context.text("reason"))}
        context.record(f"{engines} engines were compared: {reason}", data)


def corrupted(context: Context) -> None:
    """An audit has found engines that compute other bits than others. Record an event that names their slots. What
    becomes of these slots is for an administrator to decide."""
    step, micro_batch, certain = context.body["step"], context.body["micro_batch"], bool(context.body.get("certain"))
    rows = context.named("allocations")
    slots = [
        {"allocation": row.id, "node": nodes.name(context.tx, row.node_id), "slot": row.slot}
        for row in rows[:_MOST_NAMED]
    ]
    where = ", ".join(f"engine {each['allocation']} on {each['node']}, slot {each['slot']}" for each in slots)
    where += f", and {len(rows) - len(slots)} more" if len(rows) > len(slots) else ""
    which = f"micro-batch {micro_batch} of step {step}"
    if not slots:
        found = f"{which} was never computed twice with the same bits"
    elif certain:
        found = f"{where} computed {which} with other bits than the others"
    else:
        found = f"these do not compute {which} with the same bits: {where}"
    data = {"slots": slots, "certain": certain, "step": step, "micro_batch": micro_batch}
    context.record(f"{found}; the step was computed again", data)


def storage(context: Context) -> None:
    """A folder of the job cannot be written, or can be written again. The training, or the gang, goes on."""
    place, error, seconds = context.text("place") or "a place", context.text("error"), context.body.get("seconds")
    if error:
        what = "the job" if context.attempt.gang else "the training"
        context.record(
            f"{place}: cannot be written on {context.node.name} ({error}); {what} goes on", dict(context.body)
        )
        return
    after = f", after {seconds:.0f} s" if seconds is not None else ""
    given_up = context.body.get("given_up")
    missing = f"; {given_up} reports of progress are missing" if given_up else ""
    context.record(f"{place}: can be written again on {context.node.name}{after}{missing}", dict(context.body))


def pull_failed(context: Context) -> None:
    """A joining engine did not get the weights in time."""
    count, limit = context.body.get("count"), context.body.get("limit")
    context.record(f"a joining engine did not get the weights in time ({count} of {limit})", dict(context.body))


def left_out(context: Context) -> None:
    """The agent left out some reports of the job, because they came too often or had bad content."""
    counts = context.body.get("counts") or {}
    kinds = ", ".join(f"{number:.0f} of kind {kind}" for kind, number in counts.items() if number)
    if kinds:
        context.record(f"reports were left out, {kinds}: {context.text('why')}", dict(context.body))
