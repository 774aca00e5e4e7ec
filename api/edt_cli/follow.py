"""Follows a job's log while it is written, until the job ends. The command then ends with the job's exit status."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import typer

from edt_api.schemas.jobs import Event, EventPage, ExecState, Job, JobKind, LogFilePage
from edt_cli import output
from edt_cli.errors import CannotStart, NoAnswer
from edt_cli.session import OURS, Session

EXIT_CODES = {ExecState.FINISHED: 0, ExecState.ERROR: 1, ExecState.KILLED: 130}
ALL = "all"
STREAMS = ("training", "out", "err")
"""The log of the training, the script's standard output, and the script's standard error."""
ELOG = "elog"
"""The lines of WMLA's logger."""
_PROCESS = re.compile(r"(engine|rank)-[0-9]{1,18}\.(out|err)")
_FAILED = re.compile(r"rank ([0-9]+)\b")
"""How the message of a gang begins of which a process has failed."""
_PAUSE_SECONDS = 0.5
_PATIENCE_SECONDS = 60.0
"""How long a follower waits for an API that does not answer (an upgrade, a restart of `edt up`)."""
_OFFSET = "Edt-Log-Offset"
_STEPS = {
    "training": re.compile(rb"\d\d:\d\d:\d\d  note: "),
    ELOG: re.compile(rb"\] Train,"),
    "out": re.compile(
        rb"Timestamp \d+, Iteration \d+$|batches :\d+ \S+$|Iteration \d+: tag (?:train|test)_\w+, simple_value \S+$"
    ),
}
"""The lines that are left out where all streams are shown: those about each step and, on standard output, about each
validation; the notes of the training's log, which the driver has printed as errors, too. The pattern of ``elog`` may be
anywhere in a line."""
_BEGINNINGS = (b"Timestamp ", b"batches :", b"Iteration ")
"""How the lines about a step begin on standard output."""
_SHOWN_OTHERWISE = frozenset({"state", "waiting", "checkpointed", "engines-known", "stop-requested"})
"""Kinds of events that the lines of state and the log show already, or that come too often."""


def other_ranks(job: Job) -> str:
    """Return how to see the other processes of a gang whose rank 0 was shown: first of the one that failed, if its
    message names one. Empty: there are no others, or none has been started.
    """
    if job.processes is None or job.processes < 2 or not job.attempts:
        return ""
    failed = _FAILED.match(job.message or "")
    other = int(failed[1]) if failed else 0
    return f"That was rank 0 of {job.processes}; for another: edt logs {job.id} --rank {other or 1}"


def streams(
    wanted: str, rank: int | None = None, *, engine: int | None = None, driver: bool = False
) -> tuple[str, ...]:
    """Return the files of a log that ``--stream`` names. With ``rank`` those of one process of a gang, with ``engine``
    those of one engine, with ``driver`` those of the driver.

    Raises:
        CannotStart: there is no such stream, or the process has none of this name.
    """
    option, prefix = "", ""
    if rank is not None:
        option, prefix = "--rank", f"rank-{rank}."
    elif engine is not None:
        option, prefix = "--engine", f"engine-{engine}."
    elif driver:
        option = "--driver"
    if option:
        if wanted not in {ALL, "out", "err"}:
            raise CannotStart(f"--stream {wanted}: with {option} it is all, out or err")
        return tuple(f"{prefix}{each}" for each in ("out", "err") if wanted in {ALL, each})
    if wanted == ALL:
        return STREAMS
    if wanted in {*STREAMS, ELOG} or _PROCESS.fullmatch(wanted):
        return (wanted,)
    raise CannotStart(
        f"--stream {wanted}: it is all, training, elog, out, err or a process's, engine-3.out or rank-0.out; "
        "`edt logs JOB --list` names them"
    )


def usual_streams(api: Session, job: Job) -> tuple[str, ...]:
    """Return the streams that are shown of a job where the user names none. A gang has no log of the training, and a
    driver of an earlier release wrote none: their loggers' lines stand in its place.
    """
    written = {file.stream for file in api.items(LogFilePage, f"{OURS}/jobs/{job.id}/logs") if file.bytes}
    logger = job.kind is JobKind.GANG or ELOG in written
    return STREAMS if "training" in written or not logger else (ELOG, *STREAMS[1:])


class Log:
    """A job's log, and how much of it has been shown. The job's standard error goes to our standard error.

    ``steps``: whether the lines about each step are shown, too.
    """

    def __init__(self, api: Session, job: str, wanted: Iterable[str], *, steps: bool = True) -> None:
        self._api = api
        self._path = f"{OURS}/jobs/{job}/log"
        self._offsets = dict.fromkeys(wanted, 0)
        self._steps = steps
        self._begun: dict[str, bytes] = {}
        """By stream, the beginning of a line whose end has not come yet, and which may be about a step."""

    def show(self) -> None:
        """Write what is there and has not been shown."""
        for stream in self._offsets:
            target = sys.stderr.buffer if stream.endswith("err") else sys.stdout.buffer
            for piece in self.rest(stream):
                target.write(piece if self._steps or stream not in _STEPS else self._without_steps(stream, piece))
            target.flush()

    def end(self) -> None:
        """Write the last line of each stream even if its end is missing, because the job ended while the line was being
        written.
        """
        for stream, line in self._begun.items():
            if line and not _is_step(stream, line):
                sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
        self._begun = {}

    def rest(self, stream: str) -> Iterator[bytes]:
        """Yield the rest of one stream in pieces."""
        while piece := self._piece(stream):
            yield piece

    def _piece(self, stream: str) -> bytes:
        answer = self._api.ask("GET", self._path, params={"stream": stream, "offset": self._offsets[stream]})
        self._offsets[stream] = int(answer.headers.get(_OFFSET, self._offsets[stream] + len(answer.content)))
        return answer.content

    def _without_steps(self, stream: str, piece: bytes) -> bytes:
        *lines, last = (self._begun.pop(stream, b"") + piece).split(b"\n")
        if stream != "out" or any(last[: len(start)] == start[: len(last)] for start in _BEGINNINGS):
            self._begun[stream], last = last, b""
        return b"".join(line + b"\n" for line in lines if not _is_step(stream, line)) + last


def _is_step(stream: str, line: bytes) -> bool:
    pattern = _STEPS[stream]
    return (pattern.search(line) if stream == ELOG else pattern.match(line)) is not None


class EventReader:
    """Reads a job's events, each once."""

    def __init__(self, api: Session, job: str) -> None:
        self._api = api
        self._path = f"{OURS}/jobs/{job}/events"
        self._cursor: str | None = None
        """The cursor after the last full page of events."""
        self._seen = 0
        """``seq`` of the newest event that was read."""

    def news(self) -> Iterator[Event]:
        """Yield the events that have not been read."""
        at = {} if self._cursor is None else {"cursor": self._cursor}
        for page in self._api.pages(EventPage, self._path, **at):
            for event in page.items:
                if event.seq > self._seen:
                    self._seen = event.seq
                    yield event
            self._cursor = page.next or self._cursor


class _Course:
    """Prints what the platform does with a job between the lines of its log: each change of its size, with its cause,
    and what went wrong."""

    def __init__(self, api: Session, job: str) -> None:
        self._events = EventReader(api, job)
        self._size: tuple[object, ...] | None = None

    def show(self, job: Job) -> None:
        """Write what is new."""
        size = (job.state, job.attempts, job.slots, job.workers)
        if size != self._size:
            for event in self._events.news():
                if event.kind not in _SHOWN_OTHERWISE:
                    typer.echo(f"[{time.strftime('%H:%M:%S', time.localtime(event.time))}] {event.message}", err=True)
        self._size = size


def until_over(api: Session, job: str, show: Callable[[Job], None]) -> tuple[Job, int]:
    """Call ``show`` some times a second until the job is over.

    Args:
        api: the session.
        job: the job's id.
        show: gets the job as it was before the call.

    Returns:
        The job, and the exit status for its end: 0 finished, 1 error, 130 stopped.

    Raises:
        NoAnswer: the API did not answer for a minute.
        CliError: as in ``Session.ask``.
    """
    gone_since = None
    while True:
        try:
            now = api.one(Job, f"{OURS}/jobs/{job}")  # before anything else is read, so that nothing last is missed
            show(now)
        except NoAnswer:
            gone_since = gone_since or time.monotonic()
            if time.monotonic() > gone_since + _PATIENCE_SECONDS:
                raise
        else:
            gone_since = None
            if now.state.over:
                return now, EXIT_CODES[now.state]
        time.sleep(_PAUSE_SECONDS)


def follow(api: Session, job: str, wanted: Iterable[str] | None = None) -> int:
    """Write the log as it grows and each change of the job's state, until the job ends.

    Where no streams are named, the lines of steps are left out, since the log of the training tells of them, and each
    resize is printed with its cause. Ctrl-C ends the following, not the job.

    Args:
        api: the session.
        job: the job's id.
        wanted: the streams, as ``streams`` returns them; None: the usual ones.

    Returns:
        The exit status for the job's end: 0 finished, 1 error, 130 stopped. Also 130 after Ctrl-C.

    Raises:
        NoAnswer: the API did not answer for a minute.
        CliError: as in ``Session.ask``.
    """
    whole = wanted is None
    shown = tuple(wanted) if wanted is not None else usual_streams(api, api.one(Job, f"{OURS}/jobs/{job}"))
    log = Log(api, job, shown, steps=not whole)
    course, before = _Course(api, job) if whole else None, None

    def show(now: Job) -> None:
        nonlocal before
        if not now.state.over and now.state is not before:
            _say(now)
        before = now.state
        log.show()
        if course is not None:
            course.show(now)

    try:
        now, status = until_over(api, job, show)
    except KeyboardInterrupt:
        typer.echo(f"\n{job} goes on; follow it with `edt logs -f {job}`, end it with `edt stop {job}`", err=True)
        return 130
    log.end()
    _say(now)
    if not any(map(_PROCESS.fullmatch, shown)) and (others := other_ranks(now)):
        typer.echo(others, err=True)
    return status


def _say(job: Job) -> None:
    why = "; ".join(filter(None, (output.remark(job), job.kept)))
    typer.echo(f"{job.id} {output.state(job)}{f': {why}' if why else ''}", err=True)
