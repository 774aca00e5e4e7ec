"""The form of the output: tables for people, JSON for programs. Touches standard output only."""

from __future__ import annotations

import enum
import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from edt_api.schemas.jobs import ExecState, Job

_STATE_STYLES = {
    ExecState.SUBMITTED: "dim",
    ExecState.PENDING: "yellow",
    ExecState.RUNNING: "cyan",
    ExecState.FINISHED: "green",
    ExecState.KILLED: "magenta",
    ExecState.ERROR: "red",
}
_WIDE = 200
_ROOMY = 120
"""From this number of columns on, a terminal shows tables whole."""
_CUT = frozenset({"NAME", "OWNER", "METRIC"})
"""Columns that may be cut off in a narrow terminal. The other columns hold short words and numbers and are shown
whole.
"""

_SENTENCES = frozenset({"WHAT", "WHY"})
"""Columns of sentences, which a narrow terminal shows on several lines."""


class Format(enum.StrEnum):
    """The form in which an answer is written."""

    TABLE = "table"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--output", "-o", help="table, or json for programs.")]


def console() -> Console:
    """Return a console on standard output.

    NO_COLOR is respected. Lines in a pipe are not cut to the width of a terminal. Text of users is shown as it is:
    brackets in it are no markup.
    """
    return Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False, markup=False)


def narrow() -> bool:
    """Whether the terminal has fewer columns than a whole table needs."""
    return console().width < _ROOMY


def sheet(lines: Iterable[tuple[str, str | Text]]) -> None:
    """Print the properties of one thing: a title and a value in each line."""
    made = Table.grid(padding=(0, 1))
    made.add_column(style="bold", no_wrap=True, min_width=10)
    made.add_column(overflow="fold")
    for title, value in lines:
        made.add_row(title, value)
    console().print(made)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], empty: str, *, remarks: Sequence[str] | None = None
) -> None:
    """Print a table without borders, or the sentence ``empty`` if there are no rows.

    Args:
        columns: titles of the columns.
        rows: the cells of each row.
        empty: sentence for an empty table.
        remarks: a sentence for each row, or "". They form a last column, MESSAGE, if the terminal is wide enough.
            Otherwise each stands on a line below its row.
    """
    rows = [[cell if isinstance(cell, Text) else _line(cell) for cell in row] for row in rows]
    if not rows:
        console().print(empty)
        return
    out = console()
    beside = remarks is not None and not narrow()
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, no_wrap=column not in _SENTENCES, overflow="ellipsis" if column in _CUT else "fold")
    if beside:
        made.add_column("MESSAGE", overflow="fold")
    for row, remark in zip(rows, remarks or [""] * len(rows), strict=True):
        made.add_row(*row, *([remark] if beside else []))
    if beside or not any(remarks or ()):
        out.print(made)
        return
    # The table is rendered whole, so that its columns are aligned. Then each row's line is printed, and its remark
    # below it.
    head, *lines = out.render_lines(made, pad=False)
    out.print(Segments([*head, Segment.line()]), end="")
    for line, remark in zip(lines, remarks or (), strict=True):
        out.print(Segments([*line, Segment.line()]), end="")
        if remark:
            out.print(Padding(Text(remark, style="dim"), (0, 0, 0, 2)))


def _line(text: str) -> str:
    """Return a user's text as one line."""
    return " ".join(text.split())


def as_json(answer: BaseModel | Sequence[BaseModel]) -> None:
    """Print the answer as the API gave it, with all its fields."""
    typer.echo(json.dumps(to_jsonable_python(answer), indent=2, ensure_ascii=False))


def state(job: Job) -> Text:
    """Return a job's state as people read it.

    PENDING is shown without the name of WMLA's scheduler. A pending job that holds slots already is shown as starting,
    a paused one as pausing or paused, and a job that was asked to stop as stopping.
    """
    if job.status in {"starting", "pausing", "paused", "stopping"}:
        return Text(job.status.upper(), style=_STATE_STYLES[ExecState.PENDING])
    return Text("PENDING" if job.state is ExecState.PENDING else str(job.state), style=_STATE_STYLES[job.state])


def remark(job: Job) -> str:
    """Return why a job waits, or the job's last message."""
    if job.waiting is not None and not job.state.over:
        return job.waiting.reason
    return job.message or ""


def size(count: int) -> str:
    """Return a number of bytes in the largest unit whose value is at least 1."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"


def ago(seconds_since_epoch: float | None) -> str:
    """Return the time that has passed since then, such as ``3m``; "" for None."""
    return "" if seconds_since_epoch is None else span(time.time() - seconds_since_epoch)


def span(seconds: float) -> str:
    """Return a duration (seconds) in the largest unit that gives at least 2, as kubectl does."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{max(0, int(seconds))}s"
