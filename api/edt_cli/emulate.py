"""``edt emulate``: shows what elasticity would have done to the accuracy, under each learning-rate rule.

The runner does the trainings (``python -m edt_emulate``) and reads the trace. This module speaks HTTP: it takes the
sizes that a job has had from the job's resizes and from its log, where the loggers write one line for every update.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from edt_api.schemas.jobs import Job, ResizePage
from edt_cli.errors import CannotStart, CliError
from edt_cli.follow import Log
from edt_cli.session import OURS, Session, session

PYTHON = (sys.executable, "-P", "-m", "edt_emulate")
_UPDATE = re.compile(rb"Train,.*?Global steps: (\d+),\s*Iteration: (\d+)")


def emulate(
    context: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="TRACE SCRIPT [ARGUMENTS]", help="With --job: SCRIPT [ARGUMENTS].")
    ],
    rule: Annotated[
        list[str] | None,
        typer.Option(
            help="Of the learning rate; repeatable. linear, legw:epochs=2, … or script: its own. "
            "Default: constant, linear, sqrt, adascale."
        ),
    ] = None,
    job: Annotated[str | None, typer.Option(help="Take the sizes that this job has had; no TRACE then.")] = None,
    save_history: Annotated[Path | None, typer.Option(help="Keep what --job fetched: a TRACE for later.")] = None,
    engines_max: Annotated[int | None, typer.Option(min=1, help="The most engines of a trace of devices.")] = None,
    unit: Annotated[int, typer.Option(min=1, help="Devices of such a trace that an engine takes.")] = 1,
    step_seconds: Annotated[
        float | None, typer.Option(help="How long an update lasts; default: the trace lasts for the training.")
    ] = None,
    column: Annotated[str | None, typer.Option(help="Its column of counts, where it is not clear.")] = None,
    trace_end: Annotated[
        str | None, typer.Option(help="When the trace has ended: hold, cycle or error; default hold, devices: cycle.")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="What is compared; default an accuracy, or else the loss.")] = None,
    picture: Annotated[str, typer.Option(help="PNG, SVG or PDF to draw; - draws none.")] = "emulation.png",
    as_json: Annotated[Path | None, typer.Option("--json", help="File for all figures.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Folder for what the trainings leave.")] = None,
) -> None:
    """Train a script on this machine under changing batch sizes, once for each learning-rate rule, and compare.

    TRACE: a CSV of batch sizes (step,batchsize), of devices over time (Time,GPUs), or a saved history. Options stand
    before it; what follows the script is the script's.
    """
    options = [f"--rule={name}" for name in rule or []]
    given = {
        "--engines-max": engines_max,
        "--unit": unit,
        "--step-seconds": step_seconds,
        "--column": column,
        "--trace-end": trace_end,
        "--metric": metric,
        "--picture": picture,
        "--json": as_json,
        "--keep": keep,
    }
    options += [f"{name}={value}" for name, value in given.items() if value is not None]
    if save_history is not None and job is None:
        raise CannotStart("--save-history keeps what --job fetches: name a job")
    if job is None and len(words) < 2:
        raise CannotStart("name a TRACE and a script, or a job's sizes with --job and a script")
    with _history_file(context.obj, job, save_history) as fetched:
        command = [*PYTHON, *options, *([str(fetched)] if fetched else []), *words]
        raise typer.Exit(_status(command))


def _status(command: Sequence[str]) -> int:
    """Run a command to its end. It also gets the terminal's Ctrl-C and then cleans up, so this process waits for it.

    Returns:
        The exit status; 128 and the number of the signal if a signal ended the command.
    """
    process = subprocess.Popen(command)
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            status = process.wait()
            return status if status >= 0 else 128 - status


@contextlib.contextmanager
def _history_file(api_address: str | None, job: str | None, keep: Path | None) -> Iterator[Path | None]:
    """Write the job's history to a file and yield its path; None if no job was named."""
    if job is None:
        yield None
        return
    with session(api_address) as api:
        text = json.dumps(history(api, job))
    with tempfile.TemporaryDirectory(prefix="edt-emulate-") as folder:
        path = keep or Path(folder) / f"{job}.json"
        try:
            path.write_text(text)
        except OSError as error:
            raise CliError(f"{path} cannot be written: {error.strerror}") from error
        yield path


def history(api: Session, job: str) -> dict[str, Any]:
    """Return what a replay of the job needs, in the form that ``edt_emulate.traces`` reads."""
    found = api.one(Job, f"{OURS}/jobs/{job}")
    resizes = api.items(ResizePage, f"{OURS}/jobs/{job}/resizes")
    log = Log(api, job, ("elog",))
    unit, updates = _updates(log.rest("elog"), found.max_workers)
    return {
        "job": found.model_dump(mode="json"),
        "micro_batches_a_step": unit,
        "updates": updates,
        "resizes": [each.model_dump(mode="json") for each in resizes],
    }


def _updates(log: Iterable[bytes], most: int) -> tuple[int | None, list[list[int]]]:
    """Read from a job's log how many steps each update counted.

    If the beginning of the log is missing, the updates begin later.

    Args:
        log: the loggers' lines, in pieces.
        most: the most steps that one update can count.

    Returns:
        The micro-batches that the log counts as one step (None if the log has no updates), and a list of changes, each
            with the steps before it and the steps that one update counts from there on.
    """
    unit: int | None = None
    found: list[list[int]] = []
    before, rest = 0, b""
    for piece in log:
        *lines, rest = (rest + piece).split(b"\n")
        for match in filter(None, map(_UPDATE.search, lines)):
            step, iteration = int(match[1]), int(match[2])
            if unit is None:
                unit = max(1, iteration // max(1, step))
                before = step if step > most else 0
            if step > before:
                if not found or found[-1][1] != step - before:
                    found.append([before, step - before])
                before = step
    return unit, found
