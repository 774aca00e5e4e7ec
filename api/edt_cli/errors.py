"""What a command can end with besides success: one sentence and an exit status.

CliError              1: it did not work
├── NotLoggedIn       1: no login, or one that has expired
├── NoAnswer          1: the API cannot be reached
├── Refused           1: the API says no; its sentence is ours
└── CannotStart       2: wrong use, or a place where it cannot work
"""

from __future__ import annotations


class CliError(Exception):
    """It did not work, for the reason the message names."""

    exit_code = 1


class NotLoggedIn(CliError):
    """No login, or one that has expired."""

    def __init__(self, api: str) -> None:
        super().__init__(f"not logged in at {api}, or the login has expired: run `edt login`")


class NoAnswer(CliError):
    """The API cannot be reached."""

    def __init__(self, api: str, error: Exception) -> None:
        why = str(error) or type(error).__name__
        super().__init__(f"no answer from {api} ({why}): is `edt up` running there? EDT_API or --api names another")


class Refused(CliError):
    """The API says no, with this sentence."""


class CannotStart(CliError):
    """Wrong use, or a place where it cannot work."""

    exit_code = 2
