"""Commands for a job's life beyond one run: pause, resume, extend."""

from __future__ import annotations

from typing import Annotated

import typer

from edt_api.schemas.jobs import Changed
from edt_cli import output
from edt_cli.jobs import JobArgument, for_each
from edt_cli.output import Format, FormatOption
from edt_cli.session import OURS, Session, session
from edt_cli.submit import variable

_Jobs = Annotated[list[str], typer.Argument(metavar="JOB…", help="Ids of jobs, edt-7.")]


def pause(context: typer.Context, jobs: _Jobs) -> None:
    """Pause jobs: their engines leave at the next step with a checkpoint, and they get no slot until `edt resume`. The
    processes of a gang, or of a script that trains in a loop of its own, are asked to end, and start again from the
    beginning of their script."""
    for_each(context, jobs, lambda api, job: _changed(api, job, "pause"))


def resume(context: typer.Context, jobs: _Jobs) -> None:
    """Let paused jobs go on from their checkpoints. A job that is over goes on in a new one, which `edt submit
    --resume-from` or `edt extend` makes."""
    for_each(context, jobs, lambda api, job: _changed(api, job, "resume"))


def _changed(api: Session, job: str, how: str) -> str:
    return api.read(Changed, api.ask("POST", f"{OURS}/jobs/{job}/{how}")).message


def extend(
    context: typer.Context,
    job_id: JobArgument,
    epochs: Annotated[int, typer.Option(min=1, help="The epochs that its training has in all.")],
    environ: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            "-e",
            metavar="NAME[=VALUE]",
            help="Of a job that is over: a variable that it was given, again; repeatable. The platform has removed its "
            "value at the job's end.",
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Give a training another number of epochs. One that runs goes on with it after a second or two; one that is over
    goes on in a new job with the same code and arguments. The result has the bits of a training that had so many epochs
    from its beginning, apart from what a script itself computes from its own number of epochs."""
    body = {"epochs": epochs, "environ": dict(variable(each).split("=", 1) for each in environ or [])}
    with session(context.obj) as api:
        answer = api.post_once(f"{OURS}/jobs/{job_id}/extend", lambda: {"json": body}, copies=True)
        changed = api.read(Changed, answer)
    if form is Format.JSON:
        output.as_json(changed.job)
    else:
        typer.echo(changed.message)
