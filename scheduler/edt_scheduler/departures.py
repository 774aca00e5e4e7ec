"""Reports of what is gone: an engine, or all that an attempt had on a node. Room: scheduler.

True whatever the fence: they free what was held. What follows for the job is asked only of its live attempt.
"""

from __future__ import annotations

from edt_runner.contract import ExitKind
from edt_scheduler import homes, lifecycle, losses, parts
from edt_scheduler.bells import wake_nodes
from edt_scheduler.jobs import OOM_LIMIT, OUT_OF_MEMORY
from edt_scheduler.lifecycle import End
from edt_scheduler.scene import Scene
from edt_scheduler.store import allocations, attempts, jobs, outbox, resizes


def engine_gone(scene: Scene) -> None:
    """An engine's process was seen gone. Where nobody had asked for that, the attempt goes on without it."""
    tx, kind, row = scene.tx, scene.kind, scene.own()
    if row is None or row.released_at is not None:
        return
    lost = scene.current and row.release_asked_at is None and kind is not ExitKind.FINISHED
    if lost:
        told = {key: scene.body.get(key) for key in ("kind", "code", "signal", "oom", "message")}
        losses.note(tx, [row], _how(scene, row.id), scene.now, told, kind=kind)
    allocations.close(tx, row.id, kind, scene.now)
    closed = allocations.of_attempt(tx, row.id, scene.job.id, scene.report.fence)
    resizes.mark(tx, closed.shrunk_by if closed else None, gone_at=scene.report.time)
    outbox.put_scheduler(tx, scene.now)
    if not scene.current:
        return
    if kind is ExitKind.FINISHED:
        attempts.change(tx, scene.job.id, scene.report.fence, trained_at=scene.now)
        return
    if kind is ExitKind.PULL_FAILED:
        losses.cap(tx, scene.job.id, scene.report.fence, scene.now)
    elif lost and kind is not ExitKind.LEFT:
        losses.hold_back(tx, scene.job.id, scene.now)
    if lost and _is_the_scripts(scene):
        lifecycle.end_attempt(tx, scene.job.id, scene.report.fence, _out_of_memory(scene), scene.now)
        return
    why = f"no engine is left on {scene.node.name}"
    homes.keep(tx, scene.job.id, scene.report.fence, why, scene.now)
    wake_nodes(tx, [scene.node.id], scene.now)


def attempt_ended(scene: Scene) -> None:
    """A supervisor's last word, its own or its agent's: its children died with it, nothing of them can be left."""
    tx, job_id, fence = scene.tx, scene.job.id, scene.report.fence
    whole = _is_whole(scene)
    end = End(scene.kind, scene.text("message"), scene.number("code"), scene.number("failed_step"))
    parts.close(tx, scene.attempt, scene.node, end, scene.now, scene.report.time, whole)
    parts.spoken_for(tx, scene.attempt, scene.node, scene.now)
    wake_nodes(tx, [scene.node.id], scene.now)
    outbox.put_scheduler(tx, scene.now)
    if scene.current:
        if scene.body.get("digest"):
            jobs.change(tx, job_id, digest=scene.text("digest"))
        if scene.kind is ExitKind.FINISHED and (step := scene.number("step")) is not None:
            # Reports of progress may have been given up on a full disk; this one never is.
            known = scene.job.progress.get("step") or 0
            jobs.change(tx, job_id, progress={**scene.job.progress, "step": max(known, step)})
        if not scene.attempt.oom and _is_the_scripts(scene):
            end, whole = _out_of_memory(scene), True
        if whole:
            lifecycle.end_attempt(tx, job_id, fence, end, scene.now)
        else:
            why = f"its supervisor on {scene.node.name} is gone"
            parts.carry_on(tx, scene.attempt, scene.node, end, why, scene.now)
    if scene.attempt.ended_at is None:
        lifecycle.settle(tx, job_id, scene.now)


def _is_whole(scene: Scene) -> bool:
    """Whether this is the end of the attempt, not only of its part on this node.

    That is for whom to say who hosts the coordinator. That the script came to its end is true whoever says it.
    How a script ends is nothing that an agent could know: without a word on it, it is the supervisor that speaks.
    """
    hosts = scene.node.id in {scene.attempt.home_node_id, scene.attempt.host_node_id}
    if "whole" not in scene.body:
        return hosts and scene.kind in {ExitKind.FINISHED, ExitKind.SCRIPT_ERROR}
    return scene.body["whole"] is True and (hosts or scene.kind is ExitKind.FINISHED)


def _is_the_scripts(scene: Scene) -> bool:
    """Counts a kill for memory. The first may be a neighbour's fault, the second is the script's."""
    if scene.body.get("oom") is not True:
        return False
    return losses.count_oom(scene.tx, scene.job.id, scene.report.fence) >= OOM_LIMIT


def _out_of_memory(scene: Scene) -> End:
    return End(ExitKind.SCRIPT_ERROR, OUT_OF_MEMORY, scene.number("code"))


def _how(scene: Scene, engine: int) -> str:
    """What became of an engine, in words."""
    who = f"engine {engine} on {scene.node.name}"
    message, number = scene.text("message"), scene.number("signal")
    match scene.kind:
        case ExitKind.PULL_FAILED:
            return f"{who} could not get the weights"
        case ExitKind.SCRIPT_ERROR:
            return f"{who} raised" + (f": {message}" if message else "")
        case ExitKind.LEFT:
            return f"{who} left: its node let it go"
    if scene.body.get("oom") is True:
        return f"{who} was killed for memory"
    return f"{who} was lost" + (f" by signal {number}" if number else "") + (f": {message}" if message else "")
