"""The address of the API and the credential for it: from the environment, the stored login, or this machine.

A person types a password, or standard input gives one password in each line.

This module touches one file, ``edt/login.json`` in the XDG configuration folder. Only its owner can read it.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import httpx
import typer

from edt_api.schemas.cluster import LEAST_PASSWORD, MOST_PASSWORD
from edt_api.schemas.jobs import Logon
from edt_cli.errors import CannotStart, CliError, NoAnswer, Refused
from edt_cli.trust import accepted, home_address
from edt_cli.up.home import home_folder
from edt_contract.durable import write_whole


@dataclass(frozen=True)
class Login:
    """A stored login: the API, the user, and the token that the API gave."""

    api: str
    user: str
    token: str
    ca: str | None = None
    """File with the authorities of the API's certificate; None: none was named."""


def api_address(given: str | None) -> str:
    """Return the address of the API.

    The first of these counts: ``--api`` (``given``), EDT_API, the API of the stored login, the `edt up` of this
    machine.
    """
    kept = read_login()
    here = home_address(home_folder())
    # The home's own API may speak TLS now and not have done so at the login, or the other way round.
    known = kept.api if kept is not None and urlsplit(kept.api).netloc != urlsplit(here).netloc else here
    address = given or os.environ.get("EDT_API") or known
    return address.rstrip("/")


def accepted_by(api: str, home: Path | None = None) -> ssl.SSLContext | bool:
    """Return which certificate of this API is accepted, with the file that the login for it names.

    Args:
        api: URL of the API.
        home: the home of this machine; None: the one of the environment.
    """
    kept = read_login()
    return accepted(api, home or home_folder(), kept.ca if kept is not None and kept.api == api else None)


def token_for(api: str) -> str | None:
    """Return EDT_TOKEN, or the stored token of this API; None if there is neither. Tokens of other APIs are
    never used.
    """
    if token := os.environ.get("EDT_TOKEN"):
        return token
    kept = read_login()
    return kept.token if kept is not None and kept.api == api else None


def login(
    context: typer.Context,
    user: Annotated[str, typer.Option("--user", "-u", help="Name of the user.")] = "admin",
    password_stdin: Annotated[bool, typer.Option(help="Read the password from standard input.")] = False,
    ca: Annotated[
        Path | None, typer.Option(help="File with the authority of the API's certificate, or the certificate itself.")
    ] = None,
) -> None:
    """Log in, and keep the token (mode 0600) for the commands that follow."""
    api = api_address(context.obj)
    before = read_login()
    kept = before.ca if before is not None and before.api == api else None
    if ca is not None:
        kept = str(ca.expanduser().absolute())
    verify = accepted(api, home_folder(), kept)
    password = given_password("Password", password_stdin)
    try:
        response = httpx.get(f"{api}/auth/v1/logon", auth=(user, password), timeout=30, verify=verify)
    except httpx.HTTPError as error:
        raise NoAnswer(api, error) from error
    if response.status_code in {401, 403}:
        raise Refused(f"{api} does not accept this password for {user}")
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        raise Refused(response.text.strip().removeprefix("Error 429: "))
    if not response.is_success:
        raise Refused(f"{api} answered {response.status_code}: {response.text.strip()[:200]}")
    answer = Logon.model_validate(response.json())
    path = login_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(path, json.dumps(asdict(Login(api, answer.username, answer.accessToken, kept))) + "\n", mode=0o600)
    typer.echo(f"Logged in at {api} as {answer.username}.")


def logout(context: typer.Context) -> None:
    """End the login: the token is revoked and removed."""
    kept = read_login()
    if kept is None:
        typer.echo("Not logged in.")
        return
    headers = {"Authorization": f"Bearer {kept.token}"}
    verify = accepted_by(kept.api)
    login_file().unlink(missing_ok=True)
    try:
        httpx.post(f"{kept.api}/auth/v1/logoff", headers=headers, timeout=10, verify=verify)
    except httpx.HTTPError as error:
        raise CliError(
            f"logged out here, but {kept.api} was not reached, so the token holds until it expires"
        ) from error
    typer.echo("Logged out.")


def from_stdin(asked_for: bool) -> bool:
    """Whether passwords come from standard input: the user asked for that, or standard input is not a terminal."""
    return asked_for or not sys.stdin.isatty()


def given_password(prompt: str, stdin: bool, *, twice: bool = False) -> str:
    """Return a password: the next line of standard input, or one that is typed without echo.

    Args:
        prompt: text of the prompt.
        stdin: whether the user asked for standard input.
        twice: ask a second time, until both entries are the same.
    """
    if from_stdin(stdin):
        return sys.stdin.readline().rstrip("\r\n")
    return str(typer.prompt(prompt, hide_input=True, confirmation_prompt=twice))


def new_password(stdin: bool) -> str:
    """Return a new password, given like any other.

    Raises:
        CannotStart: the API would not take a password of this length.
    """
    password = given_password("New password", stdin, twice=True)
    if not LEAST_PASSWORD <= len(password) <= MOST_PASSWORD:
        raise CannotStart(f"a password has {LEAST_PASSWORD} to {MOST_PASSWORD} characters, not {len(password)}")
    return password


def login_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "edt" / "login.json"


def read_login() -> Login | None:
    """Return the stored login; None if there is none, or if the file cannot be read as one."""
    try:
        return Login(**json.loads(login_file().read_text()))
    except (OSError, ValueError, TypeError):
        return None
