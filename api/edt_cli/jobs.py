"""Commands for jobs: submit, ls, get, stop, rm, result."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from edt_api.schemas.jobs import Exec, ExecState, Job, JobPage
from edt_api.schemas.step_times import StepTimes
from edt_cli import metrics, output
from edt_cli.errors import CannotStart, CliError, Refused
from edt_cli.follow import follow
from edt_cli.output import Format, FormatOption
from edt_cli.pack import pack
from edt_cli.session import EXECS, OURS, Session, session

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, edt-7.")]
_GOING_ON = ",".join(state for state in ExecState if not state.over)


def submit(
    context: typer.Context,
    path: Annotated[
        Path,
        typer.Argument(metavar="SCRIPT|FOLDER", help="A script, or a folder with its script. -: none, for --user-cmd."),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- ARGUMENTS]", help="After --: the script's own arguments, or the command."),
    ] = None,
    max_workers: Annotated[
        int,
        typer.Option("--max-workers", "-n", min=1, help="The most workers of an elastic job; all workers of others."),
    ] = 1,
    gpus_per_worker: Annotated[int, typer.Option(min=1, help="Slots of each worker.")] = 1,
    max_restarts: Annotated[int, typer.Option(min=0, help="How often it starts again after it failed.")] = 0,
    main: Annotated[str | None, typer.Option(help="A folder's script; default main.py, or the only one.")] = None,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    framework: Annotated[str, typer.Option(help="One of `edt frameworks`.")] = "edtPyTorch",
    resume_from: Annotated[
        str | None,
        typer.Option(metavar="JOB", help="Begin from the newest checkpoint of this job, which may be over."),
    ] = None,
    user_cmd: Annotated[bool, typer.Option("--user-cmd", help="Run the command after -- instead of a script.")] = False,
    environ: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            "-e",
            metavar="NAME[=VALUE]",
            help="A variable of the job; repeatable. Without =VALUE: as it is here, for secrets.",
        ),
    ] = None,
    data_path: Annotated[str | None, typer.Option(help="Folder below the platform's data folder.")] = None,
    image: Annotated[str | None, typer.Option(help="What its containers are made of, on nodes that use them.")] = None,
    arg: Annotated[list[str] | None, typer.Option("--arg", help="One argument of the script; repeatable.")] = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Let the server alone check the script, and whether one is needed.")
    ] = False,
    follow_it: Annotated[bool, typer.Option("--follow", "-f", help="Show its log; end with its exit status.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Hand in a job. An elastic one starts with one slot and grows to what is free, up to --max-workers; others start
    when the slots of all their workers are free."""
    if form is Format.JSON and follow_it:
        raise CannotStart("-o json and --follow do not go together: follow with `edt logs -f`")
    own = [*(arg or []), *(arguments or [])]
    if user_cmd and not own:
        raise CannotStart("--user-cmd needs the command after --: edt submit FOLDER --user-cmd -- bash run.sh")
    if path == Path("-") and not user_cmd and not unchecked:
        why = "- sends no code, so the job needs a command: edt submit - --user-cmd -- COMMAND"
        raise CannotStart(f"{why}; or --unchecked, if its framework has a command that needs no script")
    if path == Path("-") and main is not None:
        raise CannotStart("--main names a script of a folder, and - sends none")
    archive = pack(path, main, checked=not unchecked, command=user_cmd) if path != Path("-") else None
    words = ["--exec-start", framework, "--numWorker", str(max_workers)]
    words += ["--model-main", archive.main] if archive and archive.main else []
    words += ["--model-dir", archive.model_dir] if archive and archive.model_dir else []
    words += ["--workerDeviceNum", str(gpus_per_worker)] if gpus_per_worker > 1 else []
    words += ["--maxRestarts", str(max_restarts)] if max_restarts else []
    words += ["--appName", name] if name else []
    words += ["--resume-from", resume_from] if resume_from else []
    words += ["--cs-datastore-meta", f"type=fs,data_path={data_path}"] if data_path else []
    words += ["--msd-image-name", image] if image else []
    for given in environ or []:
        words += ["--msd-env", variable(given)]
    words += [*(["--user-cmd"] if user_cmd else []), "--", *own] if own else []
    with session(context.obj) as api, archive.file if archive else nullcontext():

        def request() -> dict[str, Any]:
            form = {"data": json.dumps({"args": shlex.join(words)})}  # not in the URL, which proxies log
            if archive is None:
                return {"data": form}
            archive.file.seek(0)
            return {"data": form, "files": {"file": (archive.name, archive.file, "application/octet-stream")}}

        job = api.read(Exec, api.post_once(EXECS, request, copies=resume_from is not None))
        if form is Format.JSON:
            output.as_json(job)
        elif follow_it:
            typer.echo(f"{job.id} submitted", err=True)
            raise typer.Exit(follow(api, job.id))
        else:
            typer.echo(job.id)


def variable(given: str) -> str:
    """Return ``NAME=VALUE`` for an ``--env`` option. Without a value, the value comes from this process's environment.

    Raises:
        CannotStart: there is no name, or the variable is not set here.
    """
    name, equals, _ = given.partition("=")
    if not name:
        raise CannotStart(f"--env {given}: it is NAME=VALUE, or NAME for the value that it has here")
    if equals:
        return given
    if name not in os.environ:
        raise CannotStart(f"--env {name}: it is not set here: export it, or say --env {name}=VALUE")
    return f"{name}={os.environ[name]}"


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
