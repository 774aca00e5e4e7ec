"""Commands for administrators: nodes, container images, users."""

from __future__ import annotations

from collections import Counter
from typing import Annotated
from urllib.parse import quote

import typer
from rich.text import Text

from edt_api.schemas.cluster import (
    MOST_NAME,
    MOST_PASSWORD,
    Image,
    ImagePage,
    Me,
    NewPassword,
    NewUser,
    Node,
    NodePage,
    RoleName,
    Slot,
    User,
    UserPage,
)
from edt_cli import output
from edt_cli.errors import CannotStart
from edt_cli.login import from_stdin, given_password, new_password
from edt_cli.output import Format, FormatOption
from edt_cli.session import OURS, session

nodes_app = typer.Typer(help="Nodes and their slots.", invoke_without_command=True)

_HEALTH_STYLES = {"up": "green", "cordoned": "yellow", "draining": "yellow", "lost": "red"}
_NodeArgument = Annotated[str, typer.Argument(metavar="NODE")]


@nodes_app.callback()
def nodes(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """List nodes, their health and who holds their slots."""
    if context.invoked_subcommand is not None:
        return
    with session(context.obj) as api:
        found = api.items(NodePage, f"{OURS}/nodes")
    if form is Format.JSON:
        output.as_json(found)
        return
    pooled = any(node.pool is not None for node in found)
    rows: list[tuple[str | Text, ...]] = [
        (
            node.name,
            Text(node.health, style=_HEALTH_STYLES.get(node.health, "")),
            f"{sum(slot.busy for slot in node.slots)}/{len(node.slots)}",
            devices(node),
            _utilisation(node),
            str(node.cores),
            node.launcher,
            node.host,
            output.span(node.lease_age_seconds),
            *([_pool(node)] if pooled else []),
            ", ".join(_holder(slot) for slot in node.slots),
        )
        for node in found
    ]
    pool = ["POOL"] if pooled else []
    output.table(
        ("NODE", "HEALTH", "BUSY", "DEVICES", "USE", "CORES", "LAUNCHER", "HOST", "SEEN", *pool, "WHAT"),
        rows,
        "No node has registered.",
    )
    for sentence in (f"{node.name}: {trouble}" for node in found for trouble in troubles(node)):
        output.console().print(Text(sentence, style="red"))
    for node in found:
        if node.leaving_why is not None:
            output.console().print(Text(f"{node.name} leaves: {node.leaving_why}", style="yellow"))


@nodes_app.command()
def cordon(context: typer.Context, name: _NodeArgument) -> None:
    """Start nothing new on a node; what runs there goes on."""
    _change_health(context, name, "cordon")


@nodes_app.command()
def uncordon(context: typer.Context, name: _NodeArgument) -> None:
    """Use a node again."""
    _change_health(context, name, "uncordon")


@nodes_app.command()
def drain(context: typer.Context, name: _NodeArgument) -> None:
    """Let everything leave a node; jobs go on elsewhere, or wait."""
    _change_health(context, name, "drain")


@nodes_app.command("rm")
def remove_node(context: typer.Context, name: _NodeArgument) -> None:
    """Take a lost node from the list. Its history stays, and it may join again."""
    with session(context.obj) as api:
        api.ask("DELETE", f"{OURS}/nodes/{name}")
    typer.echo(f"{name} is removed")


def _change_health(context: typer.Context, name: str, verb: str) -> None:
    with session(context.obj) as api:
        node = api.read(Node, api.ask("POST", f"{OURS}/nodes/{name}/{verb}"))
    typer.echo(f"{node.name} is {node.health}")


def devices(node: Node) -> str:
    """Return how many slots of which device a node has, such as ``2 NVIDIA H200 (141 GB)``."""
    return ", ".join(f"{number} {name}" for name, number in Counter(_device(slot) for slot in node.slots).items())


def _device(slot: Slot) -> str:
    if slot.model is None:
        return "CPU" if slot.device == "cpu" else slot.label
    name = slot.model if slot.mig_profile is None else f"{slot.model} MIG {slot.mig_profile}"
    return f"{name} ({output.size(slot.memory_total_bytes)})" if slot.memory_total_bytes else name


def troubles(node: Node) -> list[str]:
    """Return what is wrong with a node's GPUs, a sentence for each."""
    found = []
    for slot in node.slots:
        if slot.problem is not None:
            found.append(f"GPU {slot.slot} does not answer: {slot.problem}")
        if slot.ecc_errors:
            errors = "1 error" if slot.ecc_errors == 1 else f"{slot.ecc_errors} errors"
            found.append(f"GPU {slot.slot} had {errors} in its memory that could not be corrected")
        if slot.foreign_processes:
            named = ", ".join(f"{each.name or 'a process'} ({each.pid})" for each in slot.foreign_processes)
            found.append(f"GPU {slot.slot} is also used by {named}, of no job")
    return found


def _pool(node: Node) -> str:
    """Return the pool that a node comes from, and the only job that may use it."""
    return f"{node.pool or ''}{f', only {node.only_for}' if node.only_for is not None else ''}"


def _utilisation(node: Node) -> str:
    """Return the mean utilisation of a node's slots."""
    known = [slot.utilisation for slot in node.slots if slot.utilisation is not None]
    return f"{100 * sum(known) / len(known):.0f} %" if known else ""


def _holder(slot: Slot) -> str:
    if slot.exec_id is not None:
        return f"{slot.slot}:{slot.exec_id}{' (leaving)' if slot.leaving else ''}"
    return f"{slot.slot}:{'no answer' if slot.problem is not None else 'busy' if slot.busy else 'free'}"


images_app = typer.Typer(help="Container images that jobs may name.", invoke_without_command=True)

_ImageArgument = Annotated[str, typer.Argument(metavar="IMAGE", help="REGISTRY/NAME:TAG or NAME@DIGEST.")]


@images_app.callback()
def images(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """List the images that jobs may name, and which nodes have them ready."""
    if context.invoked_subcommand is not None:
        return
    with session(context.obj) as api:
        pages = list(api.pages(ImagePage, f"{OURS}/images"))
    found = [image for page in pages for image in page.items]
    if form is Format.JSON:
        output.as_json(found)
        return
    patterns = pages[0].patterns
    rows = [(pattern, "EDT_IMAGES", "", "") for pattern in patterns]
    rows += [(image.name, image.allowed_by, output.ago(image.allowed_at), _readiness(image)) for image in found]
    remarks = [""] * len(patterns) + [_failures(image) for image in found]
    output.table(("IMAGE", "ALLOWED BY", "AGE", "READY"), rows, "Jobs may name no image.", remarks=remarks)


@images_app.command()
def allow(
    context: typer.Context,
    image: _ImageArgument,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Every node that starts containers fetches it before a job comes.")
    ] = False,
) -> None:
    """Let every job name an image. What an admin submits with is allowed by that.

    Again without --everywhere, and nodes need not have it ready any more.
    """
    with session(context.obj) as api:
        # Sent as it was typed: the API checks the name and refuses a wrong one with a sentence.
        answer = api.ask("POST", f"{OURS}/images", json={"name": image, "everywhere": everywhere})
        allowed = api.read(Image, answer)
    fetched = "; nodes that start containers fetch it now, and `edt images` shows which have it" if everywhere else ""
    typer.echo(f"{allowed.name} is allowed{fetched}")


@images_app.command()
def forbid(context: typer.Context, image: _ImageArgument) -> None:
    """Let no new job name an image. Jobs that have it go on."""
    with session(context.obj) as api:
        api.ask("DELETE", f"{OURS}/images/{quote(image)}")
    typer.echo(f"{image} is no longer allowed")


def _readiness(image: Image) -> str:
    if not image.everywhere:
        return ""
    ready = sum(node.done_at is not None and node.error is None for node in image.nodes)
    return f"on {ready} of {len(image.nodes)} node{'' if len(image.nodes) == 1 else 's'}"


def _failures(image: Image) -> str:
    return "; ".join(f"{node.node}: {node.error}" for node in image.nodes if node.error)


users_app = typer.Typer(help="Users of the platform.", invoke_without_command=True)

_UserArgument = Annotated[str, typer.Argument(metavar="USER")]
_StdinOption = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]
_BothStdinOption = Annotated[
    bool,
    typer.Option(
        "--password-stdin",
        help="Read the new password from standard input; for your own, its first line is the current one.",
    ),
]


_ROLES = "admin: sees every job, runs nodes and users; viewer: sees every job, changes nothing."


@users_app.callback()
def users(context: typer.Context) -> None:
    """Users of the platform; without a command, list them."""
    if context.invoked_subcommand is None:
        list_users(context)


@users_app.command("ls")
def list_users(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """List users."""
    with session(context.obj) as api:
        found = api.items(UserPage, f"{OURS}/users")
    if form is Format.JSON:
        output.as_json(found)
        return
    rows = [(user.name, str(user.role), output.ago(user.created_at)) for user in found]
    output.table(("USER", "ROLE", "AGE"), rows, "No users.")


@users_app.command("add")
def add_user(
    context: typer.Context,
    name: _UserArgument,
    role: Annotated[
        RoleName,
        typer.Option(help=_ROLES),
    ] = RoleName.USER,
    password_stdin: _StdinOption = False,
) -> None:
    """Add a user."""
    if not 0 < len(name) <= MOST_NAME:
        raise CannotStart(f"a user's name has 1 to {MOST_NAME} characters, not {len(name)}")
    new = NewUser(name=name, password=new_password(password_stdin), role=role)
    with session(context.obj) as api:
        user = api.read(User, api.ask("POST", f"{OURS}/users", json=new.model_dump(mode="json")))
    typer.echo(f"{user.name} is added as {user.role}")


@users_app.command("rm")
def remove_user(context: typer.Context, name: _UserArgument) -> None:
    """Remove a user; their jobs are stopped."""
    with session(context.obj) as api:
        api.ask("DELETE", f"{OURS}/users/{name}")
    typer.echo(f"{name} is removed")


@users_app.command()
def passwd(context: typer.Context, name: _UserArgument, password_stdin: _BothStdinOption = False) -> None:
    """Set a user's password; all logins of the user end. Your own needs the current one first: asked for, or the first
    line of standard input.
    """
    with session(context.obj) as api:
        own = api.one(Me, f"{OURS}/me").name == name
        current, password = _own_and_new(password_stdin) if own else (None, new_password(password_stdin))
        new = NewPassword(password=password, current_password=current)
        api.ask("PUT", f"{OURS}/users/{name}/password", json=new.model_dump(mode="json", exclude_none=True))
    typer.echo(f"{name} has a new password{': log in again with `edt login`' if own else ''}")


def _own_and_new(stdin: bool) -> tuple[str, str]:
    """Return the user's own current password and the new one.

    Raises:
        CannotStart: one of the two is missing, or its length is not allowed.
    """
    current = given_password("Current password", stdin)
    if len(current) > MOST_PASSWORD:
        raise CannotStart(f"a password has at most {MOST_PASSWORD} characters, not {len(current)}")
    try:
        return current, new_password(stdin)
    except CannotStart as error:
        if not from_stdin(stdin):
            raise
        wanted = "standard input: give your current password on the first line, the new one on the second"
        raise CannotStart(f"{wanted}; {error}") from None
