"""Passwords on standard input: what is taken for one, and that none is ever shown in a refusal."""

from __future__ import annotations

import io
import sys

import pytest
from typer.testing import CliRunner

from edt_cli.errors import CannotStart
from edt_cli.login import new_password
from edt_cli.main import app

SECRET = "correct horse " * 100


def edt(*words: str, stdin: str) -> CannotStart:
    error = CliRunner().invoke(app, words, input=stdin).exception
    assert isinstance(error, CannotStart), error
    return error


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_a_line_is_a_password_however_it_ends(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f" with blanks {end}"))
    assert new_password(stdin=True) == " with blanks "


@pytest.mark.parametrize("password", ["seven77", SECRET])
def test_one_that_is_too_short_or_too_long_is_refused_and_not_shown(password: str) -> None:
    error = edt("users", "add", "ada", "--password-stdin", stdin=f"{password}\n")
    assert str(error) == f"a password has 8 to 1024 characters, not {len(password)}"


def test_a_name_that_is_too_long_is_refused_before_a_password_is_read() -> None:
    error = edt("users", "add", "a" * 65, "--password-stdin", stdin=f"{SECRET}\n")
    assert str(error) == "a user's name has 1 to 64 characters, not 65"
