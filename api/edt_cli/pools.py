"""``edt pools`` and ``edt pool``: nodes that other cluster managers give and take, and those that are waited for."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.text import Text

from edt_api.schemas.pools import AskedNode, Pool, PoolChanged, PoolInfo, Pools
from edt_cli import output
from edt_cli.errors import CannotStart
from edt_cli.output import Format, FormatOption
from edt_cli.session import OURS, session

pool_app = typer.Typer(help="Set and remove pools of nodes.", no_args_is_help=True)

_NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="One of `edt pools`.")]
_SILENT_SECONDS = 30.0
"""A provisioner that is silent for longer is shown in red."""


def pools(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """Show the pools: nodes that Kubernetes or Slurm give and take, and those that are waited for, with the reason."""
    with session(context.obj) as api:
        found = api.one(Pools, f"{OURS}/pools")
    if form is Format.JSON:
        output.as_json(found)
        return
    output.table(
        ("POOL", "KIND", "THERE", "ASKED", "LEAST", "MOST", "SLOTS", "FOR", "PATIENCE", "HEARD", "TROUBLE"),
        [_row(each) for each in found.pools],
        "No pool has registered: start `edt kubernetes` or `edt slurm`.",
    )
    waiting = [(pool, node) for pool in found.pools for node in pool.waiting]
    if waiting:
        output.console().print()
        rows = [_waiting(pool, node) for pool, node in waiting]
        output.table(("NODE", "POOL", "JOB", "STATE", "WAITS", "WHY"), rows, "")
    if more := sum(pool.more for pool in found.pools):
        output.console().print(f"{more} more are waited for.")


def _row(pool: Pool) -> tuple[str | Text, ...]:
    silent = pool.silent_seconds > _SILENT_SECONDS
    return (
        pool.name,
        pool.kind,
        str(pool.there),
        str(pool.asked),
        str(min(pool.min_nodes, pool.max_nodes)),
        str(pool.max_nodes),
        f"{pool.slots} {device(pool)}",
        "one job each" if pool.per_job else "any job",
        f"{pool.patience_seconds:g} s",
        Text(f"{output.span(pool.silent_seconds)} ago", style="red" if silent else ""),
        Text(pool.trouble or "", style="red"),
    )


def device(pool: PoolInfo) -> str:
    """Return what the slots of a pool's nodes are."""
    return pool.model or ("GPU" if pool.device == "gpu" else "CPU")


def _waiting(pool: Pool, node: AskedNode) -> tuple[str, ...]:
    if node.give_up_at is not None:
        return node.node, pool.name, node.job or "", "leaving", "", node.give_up_why or ""
    return node.node, pool.name, node.job or "", node.state, output.span(node.waits_seconds), node.reason


@pool_app.command("set")
def set_pool(
    context: typer.Context,
    name: _NameArgument,
    most: Annotated[int | None, typer.Option("--max", min=0, help="The most nodes.")] = None,
    least: Annotated[int | None, typer.Option("--min", min=0, help="The fewest nodes, idle ones too.")] = None,
    patience: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="A node that does not come in this time is given up.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Set the bounds of a pool, or its patience: what is not said stays. Its provisioner does not change what was set
    here."""
    wanted: dict[str, Any] = {"max_nodes": most, "min_nodes": least, "patience_seconds": patience}
    body = {field: value for field, value in wanted.items() if value is not None}
    if not body:
        raise CannotStart("say what to set: --max, --min or --patience")
    with session(context.obj) as api:
        changed = api.read(PoolChanged, api.ask("PATCH", _of_pool(name), json=body))
    if form is Format.JSON:
        output.as_json(changed.pool)
    else:
        typer.echo(changed.message)


@pool_app.command("remove")
def remove_pool(context: typer.Context, name: _NameArgument) -> None:
    """Remove a pool whose provisioner and nodes have ended."""
    with session(context.obj) as api:
        api.ask("DELETE", _of_pool(name))
    typer.echo(f"pool {name} is removed")


def _of_pool(name: str) -> str:
    return f"{OURS}/pools/{quote(name, safe='')}"
