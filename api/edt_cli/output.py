"""How answers look: tables for people, JSON for programs. Touches standard output only."""

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
"""Columns of a terminal that shows tables whole."""
_CUT = frozenset({"NAME", "OWNER"})
"""Columns that a narrow terminal may cut off. The others hold short words and numbers, and are shown whole."""


class Format(enum.StrEnum):
    """What an answer is written as."""

    TABLE = "table"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--output", "-o", help="table, or json for programs.")]


def console() -> Console:
    """Standard output. NO_COLOR is respected; a pipe gets lines that no terminal width cuts. What users wrote is shown
    as it is: brackets are no markup."""
    return Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False, markup=False)


def narrow() -> bool:
    """Whether the terminal is narrow."""
    return console().width < _ROOMY


def sheet(lines: Iterable[tuple[str, str | Text]]) -> None:
    """What there is to say of one thing: a title and a value a line."""
    made = Table.grid(padding=(0, 1))
    made.add_column(style="bold", no_wrap=True, min_width=10)
    made.add_column(overflow="fold")
    for title, value in lines:
        made.add_row(title, value)
    console().print(made)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], empty: str, *, remarks: Sequence[str] | None = None
) -> None:
    """A table without borders, or the sentence for an empty one.

    ``remarks``: a sentence for each row, or "". They are a last column, MESSAGE, where the terminal is wide enough to
    hold the rest beside it, else a line below their row.
    """
    rows = [[cell if isinstance(cell, Text) else _line(cell) for cell in row] for row in rows]
    if not rows:
        console().print(empty)
        return
    out = console()
    beside = remarks is not None and not narrow()
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, no_wrap=column != "WHAT", overflow="ellipsis" if column in _CUT else "fold")
    if beside:
        made.add_column("MESSAGE", overflow="fold")
    for row, remark in zip(rows, remarks or [""] * len(rows), strict=True):
        made.add_row(*row, *([remark] if beside else []))
    if beside or not any(remarks or ()):
        out.print(made)
        return
    # The table is rendered whole, so that its columns stand below each other, and each row's line is followed by what
    # belongs to it.
    head, *lines = out.render_lines(made, pad=False)
    out.print(Segments([*head, Segment.line()]), end="")
    for line, remark in zip(lines, remarks or (), strict=True):
        out.print(Segments([*line, Segment.line()]), end="")
        if remark:
            out.print(Padding(Text(remark, style="dim"), (0, 0, 0, 2)))


def _line(text: str) -> str:
    """Text of a user's as one line."""
    return " ".join(text.split())


def as_json(answer: BaseModel | Sequence[BaseModel]) -> None:
    """The answer as the API gave it, with all its fields."""
    typer.echo(json.dumps(to_jsonable_python(answer), indent=2, ensure_ascii=False))


def state(job: Job) -> Text:
    """A job's state as people read it; PENDING without the name of WMLA's scheduler, and more exact where it holds
    slots already, or where its stop was asked for."""
    if job.status in {"starting", "stopping"}:
        return Text(job.status.upper(), style=_STATE_STYLES[ExecState.PENDING])
    return Text("PENDING" if job.state is ExecState.PENDING else str(job.state), style=_STATE_STYLES[job.state])


def remark(job: Job) -> str:
    """Why a job waits, or what was said of it last."""
    if job.waiting is not None and not job.state.over:
        return job.waiting.reason
    return job.message or ""


def size(count: int) -> str:
    """Bytes in the largest unit that leaves a number above 1."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"


def ago(seconds_since_epoch: float | None) -> str:
    """``3m`` since then."""
    return "" if seconds_since_epoch is None else span(time.time() - seconds_since_epoch)


def span(seconds: float) -> str:
    """A length of time in its largest unit, as kubectl does."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{max(0, int(seconds))}s"
