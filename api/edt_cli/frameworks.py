"""``edt frameworks``: the framework catalogue, and the entries that an administrator adds to it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from edt_api.schemas.frameworks import Catalogue, CatalogueEntry, ProcessesOf
from edt_cli import output
from edt_cli.errors import CannotStart
from edt_cli.output import Format, FormatOption
from edt_cli.session import OURS, Session, session

frameworks_app = typer.Typer(help="What a job may name as its framework.", invoke_without_command=True)

_NameArgument = Annotated[str, typer.Argument(metavar="NAME")]
_MOST_BYTES = 1 << 20
_RUNS = {
    ProcessesOf.DEVICE: "a process for each slot",
    ProcessesOf.WORKER: "a process for each worker",
    ProcessesOf.JOB: "one process, which starts the others",
}


@frameworks_app.callback()
def frameworks(context: typer.Context) -> None:
    """The framework catalogue; without a command, list it."""
    if context.invoked_subcommand is None:
        list_frameworks(context)


@frameworks_app.command("list")
def list_frameworks(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """List the frameworks that a job may name."""
    with session(context.obj) as api:
        found = _catalogue(api)
    if form is Format.JSON:
        output.as_json(found)
        return
    rows = [
        (
            entry.name,
            "elastic" if entry.elastic else _RUNS[entry.processes],
            str(entry.max_workers or ""),
            entry.image or entry.python_home,
            entry.added_by or "built in",
            entry.description,
        )
        for entry in found
    ]
    output.table(("NAME", "RUNS", "MOST WORKERS", "IN", "ADDED BY", "DESCRIPTION"), rows, "No frameworks.")


@frameworks_app.command()
def show(context: typer.Context, name: _NameArgument) -> None:
    """Show one entry as TOML. A changed copy of it can be added under another name."""
    with session(context.obj) as api:
        found = next((entry for entry in _catalogue(api) if entry.name == name), None)
    if found is None:
        raise CannotStart(f"there is no framework {name}: list them with `edt frameworks`")
    typer.echo(_toml(found))


@frameworks_app.command()
def add(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An entry in TOML, or in JSON if it ends in .json.")],
) -> None:
    """Add an entry to the catalogue, or replace the added entry of its name."""
    entry = _read(file)
    with session(context.obj) as api:
        added = api.read(CatalogueEntry, api.ask("POST", f"{OURS}/frameworks", json=entry))
    typer.echo(f"{added.name} is in the catalogue: edt submit --framework {added.name}")


@frameworks_app.command()
def remove(context: typer.Context, name: _NameArgument) -> None:
    """Remove an added entry. Jobs that have it go on."""
    with session(context.obj) as api:
        api.ask("DELETE", f"{OURS}/frameworks/{quote(name, safe='')}")
    typer.echo(f"{name} is no longer in the catalogue")


def _catalogue(api: Session) -> list[CatalogueEntry]:
    return api.one(Catalogue, f"{OURS}/frameworks").frameworks


def _read(file: Path) -> Any:
    """Return what is in a file.

    Raises:
        CannotStart: the file cannot be read, is too large, is neither TOML nor JSON, or cannot be sent.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise CannotStart(f"{file} cannot be read: {error.strerror or error}") from error
    if len(data) > _MOST_BYTES:
        raise CannotStart(f"{file} is larger than {_MOST_BYTES} bytes, so it is no entry of the catalogue")
    kind = "JSON" if file.suffix == ".json" else "TOML"
    try:
        text = data.decode()
        entry = json.loads(text) if kind == "JSON" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise CannotStart(f"{file} is no {kind}: {error}") from error
    try:
        json.dumps(entry, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:  # TOML has dates, both have infinite numbers
        takes = "it takes texts, whole numbers, true, false, lists and tables"
        raise CannotStart(f"{file} holds a value that an entry cannot have; {takes}: {error}") from error
    return entry


def _toml(entry: CatalogueEntry) -> str:
    """Return the entry as the text of a file. JSON's texts, numbers, truths and lists of texts are TOML's, too."""
    lines = []
    for key, value in entry.model_dump(mode="json", exclude={"added_by", "added_at"}).items():
        if key == "environ":
            pairs = ", ".join(f"{name} = {_value(text)}" for name, text in value.items())
            lines.append(f"environ = {{ {pairs} }}" if pairs else "environ = {}")
        elif value not in ("", []) or key == "name":
            lines.append(f"{key} = {_value(value)}")
    return "\n".join(lines)


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
