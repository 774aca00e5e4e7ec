"""Room: api, CLI. Commands about users: list, add, remove, set a password."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from edt_api.schemas import Me, NewPassword, NewUser, RoleName, User, UserPage
from edt_cli import output
from edt_cli.errors import CannotStart
from edt_cli.output import Format, FormatOption
from edt_cli.session import OURS, session

app = typer.Typer(help="Users of the platform.", invoke_without_command=True)

_LEAST = 8
_NameArgument = Annotated[str, typer.Argument(metavar="USER")]
_StdinOption = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]


@app.callback()
def users(context: typer.Context) -> None:
    """Users of the platform; without a command, list them."""
    if context.invoked_subcommand is None:
        ls(context)


@app.command()
def ls(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """List users."""
    with session(context.obj) as api:
        found = [user for page in api.pages(UserPage, f"{OURS}/users") for user in page.items]
    if form is Format.JSON:
        output.as_json(found)
        return
    rows = [(user.name, str(user.role), output.ago(user.created_at)) for user in found]
    output.table(("USER", "ROLE", "AGE"), rows, "No users.")


@app.command()
def add(
    context: typer.Context,
    name: _NameArgument,
    role: Annotated[RoleName, typer.Option(help="admin sees every job and runs nodes and users.")] = RoleName.USER,
    password_stdin: _StdinOption = False,
) -> None:
    """Add a user."""
    new = NewUser(name=name, password=_password(password_stdin), role=role)
    with session(context.obj) as api:
        user = api.read(User, api.ask("POST", f"{OURS}/users", json=new.model_dump(mode="json")))
    typer.echo(f"{user.name} is added as {user.role}")


@app.command()
def rm(context: typer.Context, name: _NameArgument) -> None:
    """Remove a user; their jobs are stopped."""
    with session(context.obj) as api:
        api.ask("DELETE", f"{OURS}/users/{name}")
    typer.echo(f"{name} is removed")


@app.command()
def passwd(context: typer.Context, name: _NameArgument, password_stdin: _StdinOption = False) -> None:
    """Set a user's password; all logins of the user end. Your own needs the current one first: asked for, or the first
    line of standard input.
    """
    with session(context.obj) as api:
        own = api.one(Me, f"{OURS}/me").name == name
        current = _current(password_stdin) if own else None
        new = NewPassword(password=_password(password_stdin), current_password=current)
        api.ask("PUT", f"{OURS}/users/{name}/password", json=new.model_dump(mode="json", exclude_none=True))
    typer.echo(f"{name} has a new password{': log in again with `edt login`' if own else ''}")


def _current(from_stdin: bool) -> str:
    if from_stdin or not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    return str(typer.prompt("Current password", hide_input=True))


def _password(from_stdin: bool) -> str:
    if from_stdin or not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = str(typer.prompt("New password", hide_input=True, confirmation_prompt=True))
    if len(password) < _LEAST:
        raise CannotStart(f"a password has at least {_LEAST} characters")
    return password
