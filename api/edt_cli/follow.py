"""Follows a job's log while it is written, until the job ends. The command then ends with the job's exit status."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator

import typer

from edt_api.schemas.jobs import Event, EventPage, ExecState, Job
from edt_cli import output
from edt_cli.errors import CannotStart, NoAnswer
from edt_cli.session import OURS, Session

EXIT_CODES = {ExecState.FINISHED: 0, ExecState.ERROR: 1, ExecState.KILLED: 130}
ALL = "all"
STREAMS = ("elog", "out", "err")
"""The loggers' lines, the script's standard output, and the script's standard error."""
_PROCESS = re.compile(r"(engine|rank)-[0-9]{1,18}\.(out|err)")
_FAILED = re.compile(r"rank ([0-9]+)\b")
"""How the message of a gang begins of which a process has failed."""
_PAUSE_SECONDS = 0.5
_PROGRESS_SECONDS = 2.0
"""The progress is shown at most this often."""
_PATIENCE_SECONDS = 60.0
"""How long a follower waits for an API that does not answer (an upgrade, a restart of `edt up`)."""
_OFFSET = "Edt-Log-Offset"
_STEPS = {
    "elog": re.compile(rb"\] Train,"),
    "out": re.compile(
        rb"Timestamp \d+, Iteration \d+$|batches :\d+ \S+$|Iteration \d+: tag train_\w+, simple_value \S+$"
    ),
}
"""The lines about each step, by stream. The pattern of ``out`` is for the beginning of a line."""
_BEGINNINGS = (b"Timestamp ", b"batches :", b"Iteration ")
"""How the lines about a step begin on standard output."""
_SHOWN_OTHERWISE = frozenset({"state", "waiting", "checkpointed", "engines-known", "stop-requested"})
"""Kinds of events that the lines of state and progress show already, or that come too often."""


def other_ranks(job: Job) -> str:
    """Return how to see the other processes of a gang whose rank 0 was shown: first of the one that failed, if its
    message names one. Empty: there are no others, or none has been started.
    """
    if job.processes is None or job.processes < 2 or not job.attempts:
        return ""
    failed = _FAILED.match(job.message or "")
    other = int(failed[1]) if failed else 0
    return f"That was rank 0 of {job.processes}; for another: edt logs {job.id} --rank {other or 1}"


def streams(wanted: str, rank: int | None = None) -> tuple[str, ...]:
    """Return the files of a log that ``--stream`` names. With ``rank`` those of one process of a gang.

    Raises:
        CannotStart: there is no such stream, or a rank has none of this name.
    """
    if rank is not None:
        if wanted not in {ALL, "out", "err"}:
            raise CannotStart(f"--stream {wanted}: with --rank it is all, out or err")
        return tuple(f"rank-{rank}.{each}" for each in ("out", "err") if wanted in {ALL, each})
    if wanted == ALL:
        return STREAMS
    if wanted in STREAMS or _PROCESS.fullmatch(wanted):
        return (wanted,)
    raise CannotStart(
        f"--stream {wanted}: it is all, elog, out, err or a process's, engine-3.out or rank-0.out; "
        "`edt logs JOB --list` names them"
    )


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
        if stream == "elog" or any(last[: len(start)] == start[: len(last)] for start in _BEGINNINGS):
            self._begun[stream], last = last, b""
        return b"".join(line + b"\n" for line in lines if not _is_step(stream, line)) + last


def _is_step(stream: str, line: bytes) -> bool:
    pattern = _STEPS[stream]
    return (pattern.match(line) if stream == "out" else pattern.search(line)) is not None


class _Course:
    """Prints the course of a training between the lines of its script: its progress, and each change of its size."""

    def __init__(self, api: Session, job: str) -> None:
        self._api = api
        self._path = f"{OURS}/jobs/{job}/events"
        self._cursor: str | None = None
        """The cursor after the last full page of events."""
        self._seen = 0
        """``seq`` of the newest event that was read."""
        self._size: tuple[object, ...] | None = None
        self._step: object = None
        self._next = 0.0
        """When the progress may be shown again, in seconds of ``time.monotonic``."""

    def show(self, job: Job) -> None:
        """Write what is new."""
        size = (job.state, job.attempts, job.slots, job.workers)
        if size != self._size:
            for event in self._news():
                typer.echo(f"[{time.strftime('%H:%M:%S', time.localtime(event.time))}] {event.message}", err=True)
        step, now = job.progress.get("step"), time.monotonic()
        changed = self._size is not None and size[3] != self._size[3] and job.workers > 0
        if step is not None and step != self._step and (changed or job.state.over or now >= self._next):
            typer.echo(_progress(job))
            self._step, self._next = step, now + _PROGRESS_SECONDS
        self._size = size

    def _news(self) -> Iterator[Event]:
        at = {} if self._cursor is None else {"cursor": self._cursor}
        for page in self._api.pages(EventPage, self._path, **at):
            for event in page.items:
                if event.seq > self._seen:
                    self._seen = event.seq
                    if event.kind not in _SHOWN_OTHERWISE:
                        yield event
            self._cursor = page.next or self._cursor


def _progress(job: Job) -> str:
    """Return one line about the progress. It has at most 80 columns unless the names of metrics are long."""
    progress = job.progress
    words = []
    if progress.get("epoch") is not None:
        words.append(f"epoch {progress['epoch']}" + (f"/{progress['epochs']}" if progress.get("epochs") else ""))
    words.append(f"step {progress['step']}" + (f"/{progress['steps_total']}" if progress.get("steps_total") else ""))
    workers = progress.get("workers")
    if workers:
        words.append("1 worker" if workers == 1 else f"{workers} workers")
    if progress.get("samples_per_second"):
        words.append(f"{progress['samples_per_second']:,.0f} samples/s")
    metrics = {"loss": progress.get("loss"), **(progress.get("metrics") or {})}
    words += [f"{name} {value:.4g}" for name, value in metrics.items() if isinstance(value, int | float)]
    return "  ".join(words)


def follow(api: Session, job: str, wanted: Iterable[str] = STREAMS) -> int:
    """Write the log as it grows and each change of the job's state, until the job ends.

    With all three streams, the lines of steps are left out. Instead, at most every two seconds a line shows the
    progress and the number of workers, and each resize is printed with its cause. Ctrl-C ends the following, not the
    job.

    Args:
        api: the session.
        job: the job's id.
        wanted: the streams, as ``streams`` returns them.

    Returns:
        The exit status for the job's end: 0 finished, 1 error, 130 stopped. Also 130 after Ctrl-C.

    Raises:
        NoAnswer: the API did not answer for a minute.
        CliError: as in ``Session.ask``.
    """
    wanted = tuple(wanted)
    whole = wanted == STREAMS
    log = Log(api, job, wanted, steps=not whole)
    course, before, gone_since = _Course(api, job) if whole else None, None, None
    try:
        while True:
            try:
                now = api.one(Job, f"{OURS}/jobs/{job}")  # before the log is read, so that no last line is missed
                if not now.state.over and now.state is not before:
                    _say(now)
                log.show()
                if course is not None:
                    course.show(now)
            except NoAnswer:
                gone_since = gone_since or time.monotonic()
                if time.monotonic() > gone_since + _PATIENCE_SECONDS:
                    raise
                time.sleep(_PAUSE_SECONDS)
                continue
            gone_since, before = None, now.state
            if now.state.over:
                log.end()
                _say(now)
                if set(wanted) <= set(STREAMS) and (others := other_ranks(now)):
                    typer.echo(others, err=True)
                return EXIT_CODES[now.state]
            time.sleep(_PAUSE_SECONDS)
    except KeyboardInterrupt:
        typer.echo(f"\n{job} goes on; follow it with `edt logs -f {job}`, end it with `edt stop {job}`", err=True)
        return 130


def _say(job: Job) -> None:
    why = output.remark(job)
    typer.echo(f"{job.id} {output.state(job)}{f': {why}' if why else ''}", err=True)
