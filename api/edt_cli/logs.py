"""``edt logs``: what a job's training, its script and each of its processes have written."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from edt_api.schemas.jobs import Job, LogFilePage
from edt_cli import output
from edt_cli.errors import CannotStart
from edt_cli.follow import ALL, Log, follow, other_ranks, streams, usual_streams
from edt_cli.jobs import JobArgument
from edt_cli.session import OURS, Session, session

_ENGINE = re.compile(r"engine-([0-9]+)\.(?:out|err)")


def logs(
    context: typer.Context,
    job_id: JobArgument,
    follow_it: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until it is over; end with its status.")
    ] = False,
    stream: Annotated[
        str,
        typer.Option(
            "--stream",
            metavar="STREAM",
            help="training: the log of the training; out, err: the script's; all of these; elog: WMLA's log, a line "
            "each step; or one that --list names.",
        ),
    ] = ALL,
    engine: Annotated[
        int | None, typer.Option("--engine", min=1, help="What this engine printed; --list names the engines.")
    ] = None,
    driver: Annotated[
        bool, typer.Option("--driver", help="What the driver printed, with its lines about each step.")
    ] = False,
    rank: Annotated[
        int | None, typer.Option("--rank", min=0, help="What this process of a gang writes; without it, rank 0's.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Name the streams that there are.")] = False,
) -> None:
    """Show a job's log: the course of its training, and what its script printed. WMLA's log is --stream elog."""
    if sum((engine is not None, driver, rank is not None)) > 1:
        raise CannotStart("--engine, --driver and --rank each name a process: give one of them")
    wanted = streams(stream, rank=rank, engine=engine, driver=driver)
    with session(context.obj) as api:
        if listed:
            files = api.items(LogFilePage, f"{OURS}/jobs/{job_id}/logs")
            rows = [(file.stream, output.size(file.bytes)) for file in files]
            output.table(("STREAM", "SIZE"), rows, f"Nothing has been written for {job_id} yet.")
            return
        job = api.one(Job, f"{OURS}/jobs/{job_id}")
        if rank is not None:
            _check_rank(job, rank)
        if engine is not None:
            _check_engine(api, job, engine)
        if driver and job.processes is not None:
            raise CannotStart(f"--driver: {job.id} is a gang and has none; its script's output is that of --rank 0")
        usual = stream == ALL and wanted == streams(ALL)
        if follow_it:
            raise typer.Exit(follow(api, job_id, None if usual else wanted))
        log = Log(api, job_id, usual_streams(api, job) if usual else wanted, steps=not usual)
        log.show()
        log.end()
        if rank is None and engine is None and not _ENGINE.fullmatch(stream) and (others := other_ranks(job)):
            typer.echo(others, err=True)


def _check_rank(job: Job, rank: int) -> None:
    """Raise ``CannotStart`` if the job has no process of this rank."""
    if job.processes is None:
        raise CannotStart(
            f"--rank {rank}: {job.id} is elastic and has no ranks; `edt logs {job.id} --list` names its streams"
        )
    if rank >= job.processes:
        has = f"the ranks 0 to {job.processes - 1}" if job.processes > 1 else "rank 0 alone"
        raise CannotStart(f"--rank {rank}: {job.id} has {has}")


def _check_engine(api: Session, job: Job, engine: int) -> None:
    """Raise ``CannotStart`` if no engine of this number has been started."""
    if job.processes is not None:
        raise CannotStart(f"--engine {engine}: {job.id} is a gang, whose processes are ranks: --rank 0")
    files = api.items(LogFilePage, f"{OURS}/jobs/{job.id}/logs")
    there = sorted({int(found[1]) for file in files if (found := _ENGINE.fullmatch(file.stream))})
    if engine not in there:
        has = f"engine{'s' if len(there) > 1 else ''} {_ranges(there)}" if there else "no engine yet"
        raise CannotStart(f"--engine {engine}: {job.id} has had {has}")


def _ranges(numbers: list[int]) -> str:
    """Return numbers in ascending order as ``1 to 4, 7, 8, 10 to 12``."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    words = (f"{span[0]} to {span[-1]}" if len(span) > 2 else ", ".join(map(str, span)) for span in spans)
    return ", ".join(words)
