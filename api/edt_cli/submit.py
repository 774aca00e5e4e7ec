"""``edt submit``: sends a script, a folder or a command as a job."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from edt_api.schemas.jobs import Exec
from edt_cli import output
from edt_cli.answers import dry_run
from edt_cli.errors import CannotStart
from edt_cli.follow import follow
from edt_cli.output import Format, FormatOption
from edt_cli.pack import pack
from edt_cli.session import EXECS, session


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
        int | None,
        typer.Option(
            "--max-workers",
            "-n",
            min=1,
            help="The most workers of an elastic job; all workers of others. Default: 1, or the largest of --sizes.",
        ),
    ] = None,
    gpus_per_worker: Annotated[int, typer.Option(min=1, help="Slots of each worker.")] = 1,
    max_restarts: Annotated[int, typer.Option(min=0, help="How often it starts again after it failed.")] = 0,
    main: Annotated[str | None, typer.Option(help="A folder's script; default main.py, or the only one.")] = None,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    queue: Annotated[str | None, typer.Option(metavar="PATH", help="One of `edt queues`, such as /research.")] = None,
    priority: Annotated[int | None, typer.Option(min=1, help="Jobs of a higher one come first; without it 1.")] = None,
    min_workers: Annotated[
        int | None, typer.Option(min=1, help="The fewest workers with which an elastic job trains.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(metavar="1,2,4,8", help="The only numbers of workers that an elastic job may have.")
    ] = None,
    after: Annotated[str | None, typer.Option(metavar="JOB,JOB", help="Start once these jobs have finished.")] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it shall be done: 2026-12-01T08:00Z, or +6h from now.")
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option(metavar="90m", help="How long its attempts may run in all: s, m, h or d.")
    ] = None,
    pending_timeout: Annotated[
        int | None, typer.Option(min=1, metavar="SECONDS", help="It ends if it has not started within this time.")
    ] = None,
    gpu_model: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="The only models of GPUs that it gets: `edt nodes`.")
    ] = None,
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
    dry: Annotated[bool, typer.Option("--dry-run", help="Only say when and where it would start, and why.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Hand in a job. An elastic one starts with --min-workers and grows to what is free and worth it, up to
    --max-workers; others start when the slots of all their workers are free."""
    if form is Format.JSON and follow_it:
        raise CannotStart("-o json and --follow do not go together: follow with `edt logs -f`")
    if dry and follow_it:
        raise CannotStart("--dry-run submits nothing that --follow could follow")
    own = [*(arg or []), *(arguments or [])]
    if user_cmd and not own:
        raise CannotStart("--user-cmd needs the command after --: edt submit FOLDER --user-cmd -- bash run.sh")
    if path == Path("-") and not user_cmd and not unchecked:
        why = "- sends no code, so the job needs a command: edt submit - --user-cmd -- COMMAND"
        raise CannotStart(f"{why}; or --unchecked, if its framework has a command that needs no script")
    if path == Path("-") and main is not None:
        raise CannotStart("--main names a script of a folder, and - sends none")
    archive = pack(path, main, checked=not unchecked, command=user_cmd) if path != Path("-") else None
    words = ["--exec-start", framework]
    words += ["--numWorker", str(max_workers or 1)] if max_workers or not sizes else []
    words += ["--model-main", archive.main] if archive and archive.main else []
    words += ["--model-dir", archive.model_dir] if archive and archive.model_dir else []
    words += ["--workerDeviceNum", str(gpus_per_worker)] if gpus_per_worker > 1 else []
    words += ["--maxRestarts", str(max_restarts)] if max_restarts else []
    words += ["--appName", name] if name else []
    words += ["--resume-from", resume_from] if resume_from else []
    for option, value in (
        ("--queue", queue),
        ("--msd-priority", priority),
        ("--minWorkers", min_workers),
        ("--sizes", sizes),
        ("--after", after),
        ("--deadline", deadline),
        ("--time-limit", time_limit),
        ("--msd-pending-timeout", pending_timeout),
        ("--gpu-model", gpu_model),
    ):
        words += [option, str(value)] if value is not None else []
    words += ["--cs-datastore-meta", f"type=fs,data_path={data_path}"] if data_path else []
    words += ["--msd-image-name", image] if image else []
    for given in environ or []:
        words += ["--msd-env", variable(given)]
    words += [*(["--user-cmd"] if user_cmd else []), "--", *own] if own else []
    with session(context.obj) as api, archive.file if archive else nullcontext():
        if dry:
            dry_run(api, shlex.join(words), form)
            return

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
