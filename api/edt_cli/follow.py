"""Room: api, CLI. A job's log while it is written, until the job is over. The job's end is the command's
end."""

from __future__ import annotations

import enum
import sys
import time

import typer

from edt_api.schemas import ExecState, Job
from edt_cli.errors import NoAnswer, Refused
from edt_cli.session import EXECS, OURS, Session

EXIT_CODES = {ExecState.FINISHED: 0, ExecState.ERROR: 1, ExecState.KILLED: 130}
_PAUSE_SECONDS = 0.5
_PATIENCE_SECONDS = 60.0
"""So long may the API be gone (an upgrade, a restart of `edt up`) before a follower gives up."""


class Stream(enum.StrEnum):
    """Which part of a log; WMLA's logType behind it."""

    OUT = "out"  # the loggers' lines
    ERR = "err"  # what the script wrote to standard error
    ALL = "all"  # all it wrote


_LOG_TYPES = {Stream.OUT: "outlog", Stream.ERR: "errlog", Stream.ALL: "outerrlog"}


def print_log(api: Session, job: str, stream: Stream, shown: int = 0) -> int:
    """Write what of a log is behind the first ``shown`` bytes. Answers how many are shown now."""
    path = f"{EXECS}/{job}/log"
    with api.stream(path, params={"logType": _LOG_TYPES[stream]}, headers={"Accept": "text/plain"}) as response:
        seen = 0
        for piece in response.iter_bytes():
            new = piece[max(0, shown - seen) :]
            seen += len(piece)
            sys.stdout.buffer.write(new)
    sys.stdout.buffer.flush()
    return max(seen, shown)


def follow(api: Session, job: str, stream: Stream = Stream.OUT) -> int:
    """Write the log as it grows and what changes in the job's state. Answers the exit status its end stands
    for.

    Ctrl-C ends the following, not the job.
    """
    shown, before, gone_since = 0, None, None
    try:
        while True:
            try:
                now = api.one(Job, f"{OURS}/jobs/{job}")  # before the log, so that the last look misses nothing
                shown = print_log(api, job, stream, shown)
            except NoAnswer:
                gone_since = gone_since or time.monotonic()
                if time.monotonic() > gone_since + _PATIENCE_SECONDS:
                    raise
                time.sleep(_PAUSE_SECONDS)
                continue
            gone_since = None
            if now.state is not before:
                _say(now)
                before = now.state
            if now.state.over:
                return _finish(api, now, stream)
            time.sleep(_PAUSE_SECONDS)
    except KeyboardInterrupt:
        typer.echo(f"\n{job} goes on; follow it with `edt logs -f {job}`, end it with `edt stop {job}`", err=True)
        return 130


def _finish(api: Session, job: Job, stream: Stream) -> int:
    if job.state is ExecState.ERROR and stream is Stream.OUT:
        try:
            print_log(api, job.id, Stream.ERR)
        except Refused as error:
            typer.echo(str(error), err=True)
    return EXIT_CODES[job.state]


def _say(job: Job) -> None:
    why = job.waiting.reason if job.waiting is not None and not job.state.over else job.message
    state = "PENDING" if job.state is ExecState.PENDING else job.state
    typer.echo(f"{job.id} {state}{f': {why}' if why else ''}", err=True)
