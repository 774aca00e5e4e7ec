"""Room: api, CLI. Passwords as people type them, or as standard input gives them, a line each. Touches no file."""

from __future__ import annotations

import sys

import typer

from edt_api.schemas.users import LEAST_PASSWORD, MOST_PASSWORD
from edt_cli.errors import CannotStart


def from_stdin(asked_for: bool) -> bool:
    """Whether standard input gives it: that was asked for, or nobody sits there who could type."""
    return asked_for or not sys.stdin.isatty()


def given(prompt: str, stdin: bool, *, twice: bool = False) -> str:
    """A password: the next line of standard input, or typed without being shown. ``twice``: until both are the same."""
    if from_stdin(stdin):
        return sys.stdin.readline().rstrip("\r\n")
    return str(typer.prompt(prompt, hide_input=True, confirmation_prompt=twice))


def new(stdin: bool) -> str:
    """The same, of a password that is to be set. Raises CannotStart for one that the API would not take."""
    password = given("New password", stdin, twice=True)
    if not LEAST_PASSWORD <= len(password) <= MOST_PASSWORD:
        raise CannotStart(f"a password has {LEAST_PASSWORD} to {MOST_PASSWORD} characters, not {len(password)}")
    return password
