"""The errors with which a command can end: each has one sentence and an exit status.

CliError              1: the command did not work
├── NotLoggedIn       1: there is no login, or the login has expired
├── NoAnswer          1: the API cannot be reached
├── Refused           1: the API refuses the request; its sentence is the message
└── CannotStart       2: wrong use, or a place where the command cannot work
"""

from __future__ import annotations


class CliError(Exception):
    """The command did not work, for the reason in the message."""

    exit_code = 1


class NotLoggedIn(CliError):
    """There is no login, or the login has expired."""

    def __init__(self, api: str) -> None:
        super().__init__(f"not logged in at {api}, or the login has expired: run `edt login`")


class NoAnswer(CliError):
    """The API cannot be reached."""

    def __init__(self, api: str, error: Exception) -> None:
        why = str(error) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in why:
            super().__init__(
                f"the certificate of {api} is not accepted ({why}): if it is of its own making, "
                "`edt login --ca FILE` or EDT_CA_FILE names a file with it"
            )
            return
        super().__init__(f"no answer from {api} ({why}): is `edt up` running there? EDT_API or --api names another")


class Refused(CliError):
    """The API refuses the request. Its sentence is the message."""


class CannotStart(CliError):
    """Wrong use, or a place where the command cannot work."""

    exit_code = 2
