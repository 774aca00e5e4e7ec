"""Commands for API tokens: make one, list them, revoke one."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from edt_api.schemas.cluster import (
    MOST_TOKEN_DAYS,
    USUAL_TOKEN_DAYS,
    ApiToken,
    ApiTokenPage,
    MadeApiToken,
    NewApiToken,
    ScopeName,
)
from edt_cli import output
from edt_cli.errors import CannotStart
from edt_cli.output import Format, FormatOption
from edt_cli.session import OURS, session

tokens_app = typer.Typer(
    help="API tokens for programs: EDT_TOKEN of edt, Bearer or X-Auth-Token of requests.", invoke_without_command=True
)


@tokens_app.callback()
def tokens(context: typer.Context) -> None:
    """API tokens for programs; without a command, list your own."""
    if context.invoked_subcommand is None:
        list_tokens(context)


@tokens_app.command("create")
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What you call it, to know it again in the list.")],
    scope: Annotated[
        ScopeName,
        typer.Option(
            help="read: what changes nothing; submit: also submit jobs, stop and delete your own; "
            "admin: all that your role allows."
        ),
    ] = ScopeName.READ,
    days: Annotated[
        int, typer.Option(min=0, max=MOST_TOKEN_DAYS, help="For how many days it is valid; 0: until it is revoked.")
    ] = USUAL_TOKEN_DAYS,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make an API token and print it, this once. It ends with your password, and is none to log in with."""
    if not 0 < len(name) <= 64:
        raise CannotStart(f"a token's name has 1 to 64 characters, not {len(name)}")
    new = NewApiToken(name=name, scopes=[scope], days=days or None)
    with session(context.obj) as api:
        made = api.read(MadeApiToken, api.ask("POST", f"{OURS}/tokens", json=new.model_dump(mode="json")))
    if form is Format.JSON:
        output.as_json(made)
        return
    typer.echo(made.token)
    until = "until it is revoked" if made.expires_at is None else f"for {output.span(made.expires_at - time.time())}"
    typer.echo(f"Token {made.id} has the scope {scope} and is valid {until}. It is not shown again.", err=True)


@tokens_app.command("list")
def list_tokens(
    context: typer.Context,
    user: Annotated[str | None, typer.Option(help="Whose tokens; for admins.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List API tokens."""
    with session(context.obj) as api:
        found = api.items(ApiTokenPage, f"{OURS}/tokens", **({} if user is None else {"user": user}))
    if form is Format.JSON:
        output.as_json(found)
        return
    rows = [
        (
            str(token.id),
            token.name,
            str(token.scopes[-1]),
            output.ago(token.created_at),
            _left(token),
            output.ago(token.last_used_at) or "never",
        )
        for token in found
    ]
    output.table(("ID", "NAME", "SCOPE", "AGE", "VALID FOR", "LAST USED"), rows, "No tokens.")


@tokens_app.command("revoke")
def revoke(
    context: typer.Context, number: Annotated[int, typer.Argument(metavar="ID", help="Its id in the list.", min=1)]
) -> None:
    """End an API token at once; an admin ends anybody's."""
    with session(context.obj) as api:
        api.ask("DELETE", f"{OURS}/tokens/{number}")
    typer.echo(f"token {number} is revoked")


def _left(token: ApiToken) -> str:
    """Return for how long the token is still valid."""
    if token.expires_at is None:
        return "ever"
    left = token.expires_at - time.time()
    return output.span(left) if left > 0 else "expired"
