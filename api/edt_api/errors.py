"""The errors of the API as one tree.

    ApiError
    ├── ArgumentsInvalid   the ``args`` of a submission
    ├── UploadRefused      a body that is no submission
    ├── ArchiveRefused     an archive that is cut, broken, or leads out of its folder
    ├── TooLarge           more bytes or entries than are taken
    ├── TooManyUploads     a submission beside too many others
    ├── DiskFull           the server's disk is full
    ├── RequestInvalid     a query or a body of another call
    ├── NoResult           nothing to download yet
    ├── ResultsRemoved     nothing to download any more
    ├── NoSuchPage         a path that leads nowhere
    ├── NotAuthenticated   no credential, or one that is not valid
    ├── TooManyLogons      passwords are not looked at for a while
    └── Forbidden          a valid credential that does not suffice
        └── WrongPassword  one's own password may be changed by who knows it

Code and HTTP status of each stand in its class, as those of the scheduler's errors; ``WMLA`` says where WMLA's clients
expect another. Next: http.py, which writes the responses.
"""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from typing import Any

from edt_scheduler.errors import PublicError


class ApiError(PublicError):
    """Base of all errors of the API."""

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is: pickle would make it anew of its message, which is not what most of these are made of."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ArgumentsInvalid(ApiError):
    """An option of ``args`` that cannot be taken: which one, what it got, what it takes."""

    status = 400

    def __init__(self, option: str, got: str, takes: str) -> None:
        super().__init__(f"{option}: got {got}; it takes {takes}")


class UploadRefused(ApiError):
    """A submission's body that cannot be read as one."""

    status = 400


class ArchiveRefused(ApiError):
    """An archive that is refused whole; nothing of it is kept."""

    status = 400

    def __init__(self, why: str, member: str | None = None) -> None:
        super().__init__(f"the upload is refused: {f'{member!r}: ' if member is not None else ''}{why}")
        self.member = member


class TooLarge(ApiError):
    """More than is taken. The message says how much that is."""

    status = 413


class TooManyUploads(ApiError):
    """A submission beside too many others, whose turn did not come in time; ``retry_after``: seconds."""

    status = 429
    retry_after = 10

    def __init__(self, limit: str) -> None:
        super().__init__(
            f"too many submissions at once: the limit is {limit}; send it again in {self.retry_after} seconds"
        )


class DiskFull(ApiError):
    """The server's disk is full; nothing of what was sent is kept."""

    status = 507

    def __init__(self) -> None:
        super().__init__("the server's disk is full: tell its administrator")


class RequestInvalid(ApiError):
    """A parameter or a body that cannot be taken; the message names it."""

    status = 400


class NoResult(ApiError):
    """A job that has nothing to download yet."""

    status = 400


class ResultsRemoved(ApiError):
    """A job whose results, checkpoints and logs were removed because of their age."""

    status = 410


class NoSuchPage(ApiError):
    """A path that leads nowhere."""

    status = 404

    def __init__(self) -> None:
        super().__init__("there is nothing at this path")


class NotAuthenticated(ApiError):
    """No credential, or one that is not valid. Says no more than that."""

    status = 401


class Forbidden(ApiError):
    """A valid credential that does not suffice for this route."""

    status = 403


class WrongPassword(Forbidden):
    """A password is to be changed, and the current one beside it is wrong."""

    def __init__(self) -> None:
        super().__init__("current_password: this is not your current password")


class TooManyLogons(ApiError):
    """No password is looked at now; ``retry_after`` says in how many seconds one is again."""

    status = 429

    def __init__(self, why: str, seconds: int) -> None:
        self.retry_after = max(1, seconds)
        super().__init__(f"{why}: try again in {self.retry_after} second{'s' if self.retry_after > 1 else ''}")


WMLA: Mapping[str, tuple[int, str]] = {"no-such-job": (400, "Cannot find task with given execId.")}
"""Where WMLA's own answer differs. One sentence for unknown, deleted and other users' jobs."""
