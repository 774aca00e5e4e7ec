"""Commands for jobs: ls, get, stop, rm, result."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from edt_api.schemas.jobs import ExecState, Job, JobPage
from edt_api.schemas.step_times import StepTimes
from edt_cli import metrics, output
from edt_cli.errors import CannotStart, CliError, Refused
from edt_cli.output import Format, FormatOption
from edt_cli.session import EXECS, OURS, Session, session

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, edt-7.")]
_GOING_ON = ",".join(state for state in ExecState if not state.over)


def ls(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Jobs that are over too.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """List jobs: those that run or wait, with --all also those that are over."""
    wanted = {} if everything else {"state": _GOING_ON}
    with session(context.obj) as api:
        shown = api.items(JobPage, f"{OURS}/jobs", **wanted)[::-1]  # the newest last, next to the prompt
        nothing = "" if shown or form is Format.JSON else _nothing(api, everything)
    if form is Format.JSON:
        output.as_json(shown)
        return
    narrow = output.narrow()
    whole = () if narrow else ("KIND",)
    columns = ("JOB", "NAME", "OWNER", *whole, "STATE", "SLOTS", "PROGRESS", "METRIC", "AGE")
    rows = [
        (
            job.id,
            job.app_name,
            job.owner,
            *(() if narrow else (job.kind,)),
            output.state(job),
            f"{job.slots}/{job.max_workers}",
            _percent(job) if narrow else _progress(job),
            metrics.main(job),
            output.ago(job.created_at),
        )
        for job in shown
    ]
    output.table(columns, rows, nothing, remarks=[output.remark(job) for job in shown])


def _nothing(api: Session, everything: bool) -> str:
    """Return the sentence for an empty list of jobs."""
    if everything:
        return "There are no jobs."
    over = api.one(JobPage, f"{OURS}/jobs", params={"limit": 1}).total
    return f"No job runs or waits{f'; {over} are over: edt ls --all' if over else ''}."


def get(context: typer.Context, job_id: JobArgument, form: FormatOption = Format.TABLE) -> None:
    """Show one job: what it holds, how far it is, why it waits, how it ended."""
    with session(context.obj) as api:
        job = api.one(Job, f"{OURS}/jobs/{job_id}")
        measured = job.efficiency is not None and form is not Format.JSON
        times = api.one(StepTimes, f"{OURS}/jobs/{job_id}/step-times") if measured else StepTimes()
    if form is Format.JSON:
        output.as_json(job)
        return
    lines: list[tuple[str, str | Text]] = [
        ("Job", f"{job.id} ({job.app_name}) of {job.owner}"),
        ("State", output.state(job)),
        ("Kind", job.kind if job.processes is None else _gang(job)),
        ("Slots", "" if job.state.over else _slots(job)),
        ("Sizes", _sizes(job)),
        ("Queue", job.queue),
        ("Priority", str(job.priority) if job.priority != 1 else ""),
        ("After", ", ".join(job.after)),
        ("Deadline", _deadline(job)),
        ("Time limit", f"{output.span(job.time_limit)} in all" if job.time_limit else ""),
        ("GPUs", ", ".join(job.gpu_models)),
        ("Progress", ", ".join(filter(None, (_progress(job), job.ended_early)))),
        ("Left", f"about {output.span(job.eta_seconds)}" if job.eta_seconds is not None else ""),
        ("Speed", metrics.speed(job)),
        ("Efficiency", metrics.efficiency(times)),
        ("Stragglers", " ".join(times.remarks)),
        ("Training", metrics.training(job)),
        ("Validation", metrics.validation(job)),
        ("Best", metrics.best(job)),
        ("Best model", metrics.best_model(job)),
        ("Attempts", str(job.attempts)),
        ("Begun from", _begun_from(job)),
        ("Epochs", f"{job.wanted_epochs} in all, as edt extend asked for" if job.wanted_epochs else ""),
        ("Restarts", f"{job.restarts} of at most {job.max_restarts}" if job.max_restarts else ""),
        ("Submitted", f"{output.ago(job.created_at)} ago"),
        ("Image", job.image or ""),
        ("Arguments", job.args.strip()),
        ("Folder", job.work_dir),
        ("Note", job.remark or ""),
        ("No effect", _without_effect(job)),
        ("Message", output.remark(job)),
        ("Kept", job.kept or ""),
        ("Result", _result(job)),
        ("Removed", job.results_removed or ""),
        ("SHA-256", job.digest or ""),
    ]
    output.sheet((title, value) for title, value in lines if value)


def _begun_from(job: Job) -> str:
    """Return from which job's checkpoint a job has begun; "": it began anew."""
    if job.resumed_from is None:
        return ""
    return f"{job.resumed_from}, its checkpoint" + (f" of step {job.resumed_step}" if job.resumed_step else "")


def _gang(job: Job) -> str:
    """Return what a gang is made of."""
    processes = f"{job.processes} process{'' if job.processes == 1 else 'es'}"
    each = f", {job.num_worker} x {job.worker_device_num} slots" if job.worker_device_num > 1 else ""
    return f"gang, not elastic: {processes}{each}, {job.framework}"


def _slots(job: Job) -> str:
    if job.processes is None:
        return f"{job.slots} of at most {job.max_workers}, {job.workers} training"
    return f"{job.slots}/{job.max_workers}" + ("" if job.slots else ", all at once or none")


def _sizes(job: Job) -> str:
    """Return which sizes a job may have besides its most slots; "": any."""
    if job.processes is not None:
        return ""
    least = f"at least {job.min_workers}" if job.min_workers > 1 else ""
    return ", ".join(filter(None, (least, f"only {', '.join(map(str, job.sizes))}" if job.sizes else "")))


def _deadline(job: Job) -> str:
    if job.deadline is None:
        return ""
    when = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(job.deadline))
    left = job.deadline - time.time()
    if job.finished_at is not None:
        late = job.finished_at - job.deadline
        return f"{when}, " + (f"missed by {output.span(late)}" if late > 0 else "kept")
    return f"{when}, " + (f"in {output.span(left)}" if left > 0 else f"past for {output.span(-left)}")


def stop(context: typer.Context, jobs: Annotated[list[str], typer.Argument(metavar="JOB…")]) -> None:
    """Stop jobs. One that is over stays as it is."""

    def one(api: Session, job_id: str) -> str:
        job = api.one(Job, f"{OURS}/jobs/{job_id}")
        if job.state.over:
            return f"{job_id} is over already: {job.state}"
        api.ask("POST", f"{EXECS}/{job_id}/stop")
        return f"{job_id} is being stopped{_kept(job)}"

    for_each(context, jobs, one)


def _kept(job: Job) -> str:
    """Return what is kept of an elastic job that is being stopped, as the end of a sentence."""
    if job.processes is not None:
        return ""
    if job.checkpoint_step is None:
        return "; nothing of its training is kept, since it has no checkpoint yet"
    of = f" of {job.steps_total}" if job.steps_total else ""
    more = f"`edt submit … --resume-from {job.id}` goes on from there"
    return f"; its training is kept up to step {job.checkpoint_step}{of} at least: {more}"


def rm(
    context: typer.Context,
    jobs: Annotated[list[str] | None, typer.Argument(metavar="[JOB…]")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of your own jobs.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --all: do not ask.")] = False,
) -> None:
    """Remove jobs with their logs and results. One that runs is stopped first; --all asks."""
    if bool(jobs) == everything:
        raise CannotStart("name jobs, or say --all")
    if everything:
        _remove_all(context, asks=not yes)
        return

    def one(api: Session, job_id: str) -> str:
        job = api.one(Job, f"{OURS}/jobs/{job_id}")
        api.ask("DELETE", f"{EXECS}/{job_id}")
        return f"{job_id} is removed" + ("" if job.state.over else "; it is being stopped")

    for_each(context, jobs or [], one)


def _remove_all(context: typer.Context, *, asks: bool) -> None:
    with session(context.obj) as api:
        mine = {"mine": True, "limit": 1}
        total = api.one(JobPage, f"{OURS}/jobs", params=mine).total
        going_on_too = api.one(JobPage, f"{OURS}/jobs", params={**mine, "state": _GOING_ON}).total
        what = f"{total} job{'' if total == 1 else 's'}, {going_on_too} of which run or wait"
        if total == 0:
            typer.echo("You have no jobs.")
            return
        if asks and not sys.stdin.isatty():
            raise CannotStart(f"--all removes {what}: say --yes where nobody can be asked")
        if asks and not typer.confirm(f"Remove {what}, with logs and results?"):
            raise CliError("nothing is removed")
        api.ask("DELETE", EXECS)
        typer.echo("all of your jobs are removed")


def for_each(context: typer.Context, jobs: Sequence[str], one: Callable[[Session, str], str]) -> None:
    """Call ``one`` for each job and print its result. A refusal does not stop the other calls.

    Raises:
        Refused: the API refused at least one of the jobs. This is the last refusal; earlier ones are printed.
    """
    refused = None
    with session(context.obj) as api:
        for job_id in jobs:
            try:
                typer.echo(one(api, job_id))
            except Refused as error:
                if refused is not None:
                    typer.echo(f"edt: {refused}", err=True)
                refused = error
    if refused is not None:
        raise refused


def result(
    context: typer.Context,
    job_id: JobArgument,
    to: Annotated[Path | None, typer.Option("--to", help="File or folder; default <job>-result.zip here.")] = None,
) -> None:
    """Fetch what the job saved (its model folder) as a zip."""
    target = (to / f"{job_id}-result.zip" if to.is_dir() else to) if to else Path(f"{job_id}-result.zip")
    draft = target.with_name(f".{target.name}.part")
    with session(context.obj) as api:
        api.one(Job, f"{OURS}/jobs/{job_id}")  # an unknown id is refused here, with our own sentence
        try:
            with api.stream(f"{EXECS}/{job_id}/result") as response, draft.open("wb") as file:
                for piece in response.iter_bytes():
                    file.write(piece)
            draft.replace(target)
        except OSError as error:
            raise CliError(f"{target} cannot be written: {error.strerror}") from error
        finally:
            draft.unlink(missing_ok=True)
    typer.echo(str(target))


def _progress(job: Job) -> str:
    step, total = job.progress.get("step"), job.progress.get("steps_total") or job.steps_total
    if step is None:
        return ""
    return f"{step}/{total} ({_percent(job)})" if total else str(step)


def _percent(job: Job) -> str:
    """Return the share of the work that is done, rounded down, so that 100 % means all; "" if no step was reported."""
    if job.share_done is None or job.progress.get("step") is None:
        return ""
    return f"{math.floor(100 * job.share_done + 1e-9)} %"


def _without_effect(job: Job) -> str:
    """Return the options that the job was submitted with and that do nothing here."""
    return ", ".join(f"{each.name} {' '.join(each.values)}" for each in job.options if not each.effect)


def _result(job: Job) -> str:
    """Return whether the result is exact, and why; "" before the first step, and of a gang."""
    if job.progress.get("step") is None or job.processes is not None:
        return ""
    return f"{job.exactness.verdict.replace('-', ' ')}: {job.exactness.reason}"
