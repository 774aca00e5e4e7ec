"""Room: api, CLI. Commands about nodes: list, cordon, uncordon, drain, remove."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from edt_api.schemas import Node, NodePage, Slot
from edt_cli import output
from edt_cli.output import Format, FormatOption
from edt_cli.session import OURS, session

app = typer.Typer(help="Nodes and their slots.", invoke_without_command=True)

_HEALTH_STYLES = {"up": "green", "cordoned": "yellow", "draining": "yellow", "lost": "red"}
_NodeArgument = Annotated[str, typer.Argument(metavar="NODE")]


@app.callback()
def nodes(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """List nodes, their health and who holds their slots."""
    if context.invoked_subcommand is not None:
        return
    with session(context.obj) as api:
        found = [node for page in api.pages(NodePage, f"{OURS}/nodes") for node in page.items]
    if form is Format.JSON:
        output.as_json(found)
        return
    rows = [
        (
            node.name,
            Text(node.health, style=_HEALTH_STYLES.get(node.health, "")),
            f"{sum(slot.busy for slot in node.slots)}/{len(node.slots)}",
            _use(node),
            str(node.cores),
            node.launcher,
            node.host,
            output.span(node.lease_age_seconds),
            ", ".join(_holder(slot) for slot in node.slots),
        )
        for node in found
    ]
    output.table(
        ("NODE", "HEALTH", "BUSY", "USE", "CORES", "LAUNCHER", "HOST", "SEEN", "WHAT"), rows, "No node has registered."
    )


@app.command()
def cordon(context: typer.Context, name: _NodeArgument) -> None:
    """Start nothing new on a node; what runs there goes on."""
    _change(context, name, "cordon")


@app.command()
def uncordon(context: typer.Context, name: _NodeArgument) -> None:
    """Use a node again."""
    _change(context, name, "uncordon")


@app.command()
def drain(context: typer.Context, name: _NodeArgument) -> None:
    """Let everything leave a node; jobs go on elsewhere, or wait."""
    _change(context, name, "drain")


@app.command()
def rm(context: typer.Context, name: _NodeArgument) -> None:
    """Take a lost node from the list. Its history stays, and it may join again."""
    with session(context.obj) as api:
        api.ask("DELETE", f"{OURS}/nodes/{name}")
    typer.echo(f"{name} is removed")


def _change(context: typer.Context, name: str, verb: str) -> None:
    with session(context.obj) as api:
        node = api.read(Node, api.ask("POST", f"{OURS}/nodes/{name}/{verb}"))
    typer.echo(f"{node.name} is {node.health}")


def _use(node: Node) -> str:
    """How busy its slots are, one with the other."""
    known = [slot.utilisation for slot in node.slots if slot.utilisation is not None]
    return f"{100 * sum(known) / len(known):.0f} %" if known else ""


def _holder(slot: Slot) -> str:
    if slot.exec_id is not None:
        return f"{slot.slot}:{slot.exec_id}{' (leaving)' if slot.leaving else ''}"
    return f"{slot.slot}:{'busy' if slot.busy else 'free'}"
