"""``edt events``: the history of a job. What happened when, and why: its states, attempts, resizes and losses."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from edt_api.schemas.jobs import Event, Job, Resize, ResizePage
from edt_cli import output
from edt_cli.follow import EventReader, until_over
from edt_cli.jobs import JobArgument
from edt_cli.output import Format, FormatOption
from edt_cli.session import OURS, Session, session

SEPARATOR = " · "
_CHECKPOINT, _RESIZE = "checkpointed", "resize"
_MOST_UNMEASURED = 4
"""The pauses of so many of the newest resizes are asked for again. Some are never measured."""
_WHAT = {
    _CHECKPOINT: "checkpoint",
    "attempt": "attempt ended",
    "capped": "held back",
    "corrupted": "wrong bits",
    "engines-known": "engines known",
    "guarantee-ended": "no longer exact",
    "head-node": "head node",
    "pull-failed": "join failed",
    "replicas-compared": "compared",
    "reports-left-out": "reports left out",
    "results-removed": "files removed",
    "stop-requested": "stop asked for",
    "waiting": "waits",
}
"""What the kinds of events are called, as far as that is not their name."""


class Happening(Event):
    """An event; of a resize with its pause and its step, as far as they are known."""

    resize: Resize | None = None
    like: int = 0
    """So many checkpoints came right before this one, and are left out of the table."""

    @property
    def measured(self) -> bool:
        """Whether the pause of the resize is known."""
        return self.resize is not None and self.resize.pause_seconds is not None


def events(
    context: typer.Context,
    job_id: JobArgument,
    follow_it: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until it is over; end with its status.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show a job's history, newest last: states, attempts, resizes with cause and pause, losses.

    Of checkpoints in a row the last one is shown. With --follow and -o json each event is a line, and a resize comes
    again once its pause is known.
    """
    with session(context.obj) as api:
        if follow_it:
            raise typer.Exit(_follow(api, job_id, form))
        api.one(Job, f"{OURS}/jobs/{job_id}")  # an unknown id is refused here, with our own sentence
        history = list(_History(api, job_id).news())
    if form is Format.JSON:
        output.as_json(history)
        return
    rows = [(_when(each.time), _what(each), _why(each)) for each in _folded(history)]
    output.table(("TIME", "EVENT", "WHY"), rows, f"Nothing has happened to {job_id} yet.")


def _follow(api: Session, job_id: str, form: Format) -> int:
    """Print events as they come, until the job is over; returns its exit status."""
    history, before, seen = _History(api, job_id), "", 0

    def show(job: Job) -> None:
        nonlocal before, seen
        for each in history.news():
            when, what, why = each.time, _what(each), _why(each)
            if each.seq <= seen and each.resize is not None:  # its pause has become known
                when, what = each.resize.first_step_at or when, _workers(each.resize)
                why = _effect(each.resize)
            if form is Format.JSON:
                typer.echo(each.model_dump_json())
            elif not before == each.kind == _CHECKPOINT:  # of checkpoints in a row the first
                typer.echo(f"{_when(when)}  {what:<16}  {why}".rstrip())
            before, seen = each.kind, max(seen, each.seq)

    try:
        return until_over(api, job_id, show)[1]
    except KeyboardInterrupt:
        return 130


class _History:
    """Reads what happened to a job. The API gives the resizes' causes as events, and their pauses as resizes."""

    def __init__(self, api: Session, job_id: str) -> None:
        self._api, self._path = api, f"{OURS}/jobs/{job_id}/resizes"
        self._events = EventReader(api, job_id)
        self._unmeasured: list[Event] = []
        """Resizes that were yielded without a pause."""

    def news(self) -> Iterator[Happening]:
        """Yield what is new: events, and resizes again whose pause has become known."""
        found = list(self._events.news())
        resized = [event for event in found if event.kind == _RESIZE]
        if not resized and not self._unmeasured:
            resizes: dict[tuple[float, Any], Resize] = {}
        else:
            listed = self._api.items(ResizePage, self._path)
            resizes = {(each.decided_at, each.to_slots): each for each in listed}
        for event in (*self._unmeasured, *found):
            happening = Happening(**vars(event), resize=resizes.get((event.time, event.data.get("to"))))
            if event in found or happening.measured:
                yield happening
            if event.kind == _RESIZE:
                self._note(event, measured=happening.measured)

    def _note(self, event: Event, *, measured: bool) -> None:
        self._unmeasured = [each for each in self._unmeasured if each.seq != event.seq][-_MOST_UNMEASURED:]
        if not measured and event.data.get("from") and event.data.get("to"):  # no training stands still for others
            self._unmeasured.append(event)


def _folded(history: Iterable[Happening]) -> list[Happening]:
    """Of checkpoints in a row only the last one, with their number."""
    lines: list[Happening] = []
    for each in history:
        if lines and each.kind == lines[-1].kind == _CHECKPOINT:
            each.like = lines.pop().like + 1
        lines.append(each)
    return lines


def _when(seconds: float) -> str:
    """Return a time of today as ``14:30:05``, another one with its date."""
    then = time.localtime(seconds)
    today = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", then)


def _what(event: Event) -> str:
    match event.kind:
        case "state":
            return str(event.data.get("after", event.message))
        case "resize":
            return event.message.partition(":")[0]
        case kind:
            return _WHAT.get(kind, kind)


def _why(event: Happening) -> str:
    """Return the rest of what an event tells."""
    message = event.message
    if event.kind == "state":
        return "" if message.upper() == event.data.get("after") else message
    if event.kind == _CHECKPOINT:
        return message.removeprefix("checkpoint ") + (f", {event.like} before it" if event.like else "")
    if event.kind != _RESIZE:
        return message
    words = [message.partition(": ")[2]]
    if event.resize is not None and event.resize.workers is not None:
        words.append(f"{_workers(event.resize)} {_effect(event.resize)}")
    return SEPARATOR.join(words)


def _workers(resize: Resize) -> str:
    return "1 worker" if resize.workers == 1 else f"{resize.workers} workers"


def _effect(resize: Resize) -> str:
    """Return from where on a training has its new size, and what the change cost."""
    words = [f"from step {resize.step} on"]
    if resize.pause_seconds is not None:
        words.append(f"paused {resize.pause_seconds:.2g} s")
    if resize.recomputed:
        words.append(f"{resize.recomputed} micro-batch{'' if resize.recomputed == 1 else 'es'} computed again")
    return SEPARATOR.join(words)
