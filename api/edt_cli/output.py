"""Room: api, CLI. How answers look: tables for people, JSON for programs. Touches standard output only."""

from __future__ import annotations

import enum
import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from edt_api.schemas import ExecState

_STATE_STYLES = {
    ExecState.SUBMITTED: "dim",
    ExecState.PENDING: "yellow",
    ExecState.RUNNING: "cyan",
    ExecState.FINISHED: "green",
    ExecState.KILLED: "magenta",
    ExecState.ERROR: "red",
}
_WIDE = 200


class Format(enum.StrEnum):
    """What an answer is written as."""

    TABLE = "table"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--output", "-o", help="table, or json for programs.")]


def console() -> Console:
    """Standard output. NO_COLOR is respected; a pipe gets lines that no terminal width cuts."""
    return Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], empty: str) -> None:
    """A table without borders, or the sentence for an empty one."""
    rows = list(rows)
    if not rows:
        console().print(empty)
        return
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, no_wrap=column not in {"MESSAGE", "WHAT"}, overflow="fold")
    for row in rows:
        made.add_row(*row)
    console().print(made)


def as_json(answer: BaseModel | Sequence[BaseModel]) -> None:
    """The answer as the API gave it, with all its fields."""
    data = (
        answer.model_dump(mode="json") if isinstance(answer, BaseModel) else [a.model_dump(mode="json") for a in answer]
    )
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))


def state(value: ExecState) -> Text:
    """A state as people read it; PENDING without the name of WMLA's scheduler."""
    return Text("PENDING" if value is ExecState.PENDING else str(value), style=_STATE_STYLES[value])


def ago(seconds_since_epoch: float | None) -> str:
    """``3m`` since then."""
    return "" if seconds_since_epoch is None else span(time.time() - seconds_since_epoch)


def span(seconds: float) -> str:
    """A length of time in its largest unit, as kubectl does."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{max(0, int(seconds))}s"
