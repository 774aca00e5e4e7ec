"""Room: api, CLI. Commands about users: list, add, remove, set a password."""

from __future__ import annotations

from typing import Annotated

import typer

from edt_api.schemas import Me, NewPassword, NewUser, RoleName, User, UserPage
from edt_api.schemas.users import MOST_NAME, MOST_PASSWORD
from edt_cli import output, passwords
from edt_cli.errors import CannotStart
from edt_cli.output import Format, FormatOption
from edt_cli.session import OURS, session

app = typer.Typer(help="Users of the platform.", invoke_without_command=True)

_NameArgument = Annotated[str, typer.Argument(metavar="USER")]
_StdinOption = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]
_BothStdinOption = Annotated[
    bool,
    typer.Option(
        "--password-stdin",
        help="Read the new password from standard input; for your own, its first line is the current one.",
    ),
]


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
    if not 0 < len(name) <= MOST_NAME:
        raise CannotStart(f"a user's name has 1 to {MOST_NAME} characters, not {len(name)}")
    new = NewUser(name=name, password=passwords.new(password_stdin), role=role)
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
def passwd(context: typer.Context, name: _NameArgument, password_stdin: _BothStdinOption = False) -> None:
    """Set a user's password; all logins of the user end. Your own needs the current one first: asked for, or the first
    line of standard input.
    """
    with session(context.obj) as api:
        own = api.one(Me, f"{OURS}/me").name == name
        current, password = _own_and_new(password_stdin) if own else (None, passwords.new(password_stdin))
        new = NewPassword(password=password, current_password=current)
        api.ask("PUT", f"{OURS}/users/{name}/password", json=new.model_dump(mode="json", exclude_none=True))
    typer.echo(f"{name} has a new password{': log in again with `edt login`' if own else ''}")


def _own_and_new(stdin: bool) -> tuple[str, str]:
    """One's current password and the new one. Raises CannotStart where one of them is missing."""
    current = passwords.given("Current password", stdin)
    if len(current) > MOST_PASSWORD:
        raise CannotStart(f"a password has at most {MOST_PASSWORD} characters, not {len(current)}")
    try:
        return current, passwords.new(stdin)
    except CannotStart as error:
        if not passwords.from_stdin(stdin):
            raise
        wanted = "standard input: give your current password on the first line, the new one on the second"
        raise CannotStart(f"{wanted}; {error}") from None
