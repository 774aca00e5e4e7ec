"""Room: api, CLI. A job's log while it is written, until the job is over. The job's end is the command's end."""

from __future__ import annotations

import enum
import sys
import time
from collections.abc import Iterable

import typer

from edt_api.schemas import ExecState, Job
from edt_cli.errors import NoAnswer
from edt_cli.session import OURS, Session

EXIT_CODES = {ExecState.FINISHED: 0, ExecState.ERROR: 1, ExecState.KILLED: 130}
_PAUSE_SECONDS = 0.5
_PATIENCE_SECONDS = 60.0
"""So long may the API be gone (an upgrade, a restart of `edt up`) before a follower gives up."""
_OFFSET = "Edt-Log-Offset"


class Stream(enum.StrEnum):
    """Which part of a log."""

    ALL = "all"  # all three
    ELOG = "elog"  # the loggers' lines
    OUT = "out"  # what the script printed
    ERR = "err"  # what it wrote to standard error


class Log:
    """What has been shown of a job's log. Standard error goes to standard error."""

    def __init__(self, api: Session, job: str, stream: Stream) -> None:
        self._api = api
        self._path = f"{OURS}/jobs/{job}/log"
        wanted: Iterable[Stream] = (Stream.ELOG, Stream.OUT, Stream.ERR) if stream is Stream.ALL else (stream,)
        self._offsets = dict.fromkeys(wanted, 0)

    def show(self) -> None:
        """Write what is there and not yet shown."""
        for stream in self._offsets:
            target = sys.stderr.buffer if stream is Stream.ERR else sys.stdout.buffer
            while piece := self.piece(stream):
                target.write(piece)
            target.flush()

    def piece(self, stream: Stream) -> bytes:
        """What follows of one of them; empty: nothing yet."""
        answer = self._api.ask("GET", self._path, params={"stream": stream.value, "offset": self._offsets[stream]})
        self._offsets[stream] = int(answer.headers.get(_OFFSET, self._offsets[stream] + len(answer.content)))
        return answer.content


def follow(api: Session, job: str, stream: Stream = Stream.ALL) -> int:
    """Write the log as it grows and what changes in the job's state. Answers the exit status its end stands for.

    Ctrl-C ends the following, not the job.
    """
    log, before, gone_since = Log(api, job, stream), None, None
    try:
        while True:
            try:
                now = api.one(Job, f"{OURS}/jobs/{job}")  # before the log, so that the last look misses nothing
                if not now.state.over and now.state is not before:
                    _say(now)
                log.show()
            except NoAnswer:
                gone_since = gone_since or time.monotonic()
                if time.monotonic() > gone_since + _PATIENCE_SECONDS:
                    raise
                time.sleep(_PAUSE_SECONDS)
                continue
            gone_since, before = None, now.state
            if now.state.over:
                _say(now)
                return EXIT_CODES[now.state]
            time.sleep(_PAUSE_SECONDS)
    except KeyboardInterrupt:
        typer.echo(f"\n{job} goes on; follow it with `edt logs -f {job}`, end it with `edt stop {job}`", err=True)
        return 130


def _say(job: Job) -> None:
    why = job.waiting.reason if job.waiting is not None and not job.state.over else job.message
    state = "PENDING" if job.state is ExecState.PENDING else job.state
    typer.echo(f"{job.id} {state}{f': {why}' if why else ''}", err=True)
