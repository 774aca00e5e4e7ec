"""The errors of the API as one tree.

    ApiError
    ├── ArgumentsInvalid   the ``args`` of a submission
    ├── UploadRefused      a body that is not a submission
    ├── ArchiveRefused     an archive that is cut, broken, or leads out of its folder
    ├── TooLarge           more bytes or entries than the API takes
    ├── TooManyUploads     too many submissions at once
    ├── DiskFull           the server's disk is full
    ├── RequestInvalid     a query or a body of another call
    ├── NoResult           the job has nothing to download yet
    ├── ResultsRemoved     the job's files were removed because of their age
    ├── NoSuchPage         a path that the API does not serve
    ├── NoSuchObject       an executor, a plan or another object that does not exist
    ├── OnlyPlan           the resource plan above all others, which nobody can delete
    ├── NotOffered         a call of WMLA's that this platform does not serve
    ├── NotAuthenticated   no credential, or one that is not valid
    ├── TooManyLogons      the API checks no passwords for some time
    └── Forbidden          a valid credential that does not suffice
        └── WrongPassword  a wrong current password, sent to change the caller's own

Each class holds its code and its HTTP status, as the scheduler's errors do. ``WMLA`` lists the errors for which WMLA's
clients expect another status and message. Next: http.py, which writes the responses.
"""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from typing import Any

from edt_scheduler.errors import PublicError


class ApiError(PublicError):
    """Base of all errors of the API."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with its arguments and attributes.

        By default pickle calls the class with the message, but most classes here take other arguments.
        """
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ArgumentsInvalid(ApiError):
    """An option of ``args`` that the API cannot take. The message names the option, what it got and what it takes."""

    status = 400

    def __init__(self, option: str, got: str, takes: str) -> None:
        super().__init__(f"{option}: got {got}; it takes {takes}")


class UploadRefused(ApiError):
    """The body of a submission cannot be read as a submission."""

    status = 400


class ArchiveRefused(ApiError):
    """The API refuses the whole archive and keeps nothing of it."""

    status = 400

    def __init__(self, why: str, member: str | None = None) -> None:
        super().__init__(f"the upload is refused: {f'{member!r}: ' if member is not None else ''}{why}")
        self.member = member


class TooLarge(ApiError):
    """The client sent more than the API takes. The message says how much the API takes."""

    status = 413


class TooManyUploads(ApiError):
    """Too many submissions come at once, and this one did not get its turn in time. ``retry_after`` is in seconds."""

    status = 429
    retry_after = 10

    def __init__(self, limit: str) -> None:
        super().__init__(
            f"too many submissions at once: the limit is {limit}; send it again in {self.retry_after} seconds"
        )


class DiskFull(ApiError):
    """The server's disk is full. The API keeps nothing of what was sent."""

    status = 507

    def __init__(self) -> None:
        super().__init__("the server's disk is full: tell its administrator")


class RequestInvalid(ApiError):
    """The API cannot take a parameter or a body. The message names it."""

    status = 400


class NoResult(ApiError):
    """The job has nothing to download yet."""

    status = 400


class ResultsRemoved(ApiError):
    """The job's results, checkpoints and logs were removed because of their age."""

    status = 410


class NoSuchPage(ApiError):
    """The API serves nothing at this path."""

    status = 404

    def __init__(self) -> None:
        super().__init__("there is nothing at this path")


class NoSuchObject(ApiError):
    """The path names an object that does not exist. The message names it."""

    status = 404


class OnlyPlan(ApiError):
    """The resource plan cannot be deleted: it is above all others."""

    status = 409


class NotOffered(ApiError):
    """The platform does not serve this call of WMLA's. The message says what to do instead."""

    status = 501


class NotAuthenticated(ApiError):
    """The request has no credential, or an invalid one. The message does not say which of the two."""

    status = 401


class Forbidden(ApiError):
    """The credential is valid, but does not suffice for this route."""

    status = 403


class WrongPassword(Forbidden):
    """A user changes their own password, and the current password that they sent with it is wrong."""

    def __init__(self) -> None:
        super().__init__("current_password: this is not your current password")


class TooManyLogons(ApiError):
    """The API checks no passwords now. ``retry_after`` is the time in seconds until it does again."""

    status = 429

    def __init__(self, why: str, seconds: int) -> None:
        self.retry_after = max(1, seconds)
        super().__init__(f"{why}: try again in {self.retry_after} second{'s' if self.retry_after > 1 else ''}")


WMLA: Mapping[str, tuple[int, str]] = {"no-such-job": (400, "Cannot find task with given execId.")}
"""Status and message for each error code for which WMLA's own server answers otherwise.

Unknown jobs, deleted jobs and other users' jobs get the same sentence.
"""
