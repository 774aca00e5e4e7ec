"""What the front door refuses, as one tree, and the HTTP status of every refusal. Room: api. Pure.

    ApiError
    ├── ArgumentsInvalid   the ``args`` of a submission
    ├── UploadRefused      a body that is no submission
    ├── ArchiveRefused     an archive that is cut, broken, or leads out of its folder
    ├── TooLarge           more bytes or entries than are taken
    ├── TooManyUploads     a submission beside too many others
    ├── NoRoom             the server's disk is full
    ├── RequestInvalid     a query or a body of another call
    ├── NoResult           nothing to download yet
    ├── ResultsRemoved     nothing to download any more
    ├── NoSuchPage         a path that leads nowhere
    ├── NotAuthenticated   no credential, or one that is not valid
    ├── TooManyLogons      passwords are not looked at for a while
    └── Forbidden          a valid credential that does not open this door
        └── WrongPassword  one's own password may be changed by who knows it

``STATUS`` is the one table from a ``code``, ours or the scheduler's, to an HTTP status; ``WMLA`` says where
WMLA's clients expect another. Next: answers.py, which writes the responses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """Base of everything this room refuses. ``str()`` is a sentence for people, safe to show."""

    code = "api-error"

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is: pickle would make it anew of its message, which is not what most of these are made of."""
        return _as_it_was, (type(self), self.args, self.__dict__)


def _as_it_was(kind: type[ApiError], args: tuple[Any, ...], said: dict[str, Any]) -> ApiError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(said)
    return error


class ArgumentsInvalid(ApiError):
    """An option of ``args`` that cannot be taken: which one, what it got, what it takes."""

    code = "arguments-invalid"

    def __init__(self, option: str, got: str, takes: str) -> None:
        super().__init__(f"{option}: got {got}; it takes {takes}")
        self.option = option


class UploadRefused(ApiError):
    """A submission's body that cannot be read as one."""

    code = "upload-refused"


class ArchiveRefused(ApiError):
    """An archive that is refused whole; nothing of it is kept."""

    code = "archive-refused"

    def __init__(self, why: str, member: str | None = None) -> None:
        super().__init__(f"the upload is refused: {f'{member!r}: ' if member is not None else ''}{why}")
        self.member = member


class TooLarge(ApiError):
    """More than is taken. The message says how much that is."""

    code = "too-large"


class TooManyUploads(ApiError):
    """A submission beside too many others, whose turn did not come in time; ``retry_after``: seconds."""

    code = "too-many-uploads"
    retry_after = 10

    def __init__(self, limit: str) -> None:
        super().__init__(
            f"too many submissions at once: the limit is {limit}; send it again in {self.retry_after} seconds"
        )


class NoRoom(ApiError):
    """The server's disk is full; nothing of what was sent is kept."""

    code = "no-room"

    def __init__(self) -> None:
        super().__init__("there is no room left on the server's disk: tell its administrator")


class RequestInvalid(ApiError):
    """A parameter or a body that cannot be taken; the message names it."""

    code = "request-invalid"


class NoResult(ApiError):
    """A job that has nothing to download yet."""

    code = "no-result"


class ResultsRemoved(ApiError):
    """A job whose results, checkpoints and logs were removed because of their age."""

    code = "results-removed"


class NoSuchPage(ApiError):
    """A path that leads nowhere."""

    code = "no-such-page"

    def __init__(self) -> None:
        super().__init__("there is nothing at this path")


class NotAuthenticated(ApiError):
    """No credential, or one that is not valid. Says no more than that."""

    code = "not-authenticated"


class Forbidden(ApiError):
    """A valid credential that does not open this door."""

    code = "forbidden"


class WrongPassword(Forbidden):
    """A password is to be changed, and the current one beside it is wrong."""

    code = "wrong-password"

    def __init__(self) -> None:
        super().__init__("current_password: this is not your current password")


class TooManyLogons(ApiError):
    """No password is looked at now; ``retry_after`` says in how many seconds one is again."""

    code = "too-many-logons"

    def __init__(self, why: str, seconds: int) -> None:
        self.retry_after = max(1, seconds)
        super().__init__(f"{why}: try again in {self.retry_after} second{'s' if self.retry_after > 1 else ''}")


STATUS: Mapping[str, int] = {
    "api-error": 500,
    "arguments-invalid": 400,
    "upload-refused": 400,
    "archive-refused": 400,
    "too-large": 413,
    "too-many-uploads": 429,
    "no-room": 507,
    "request-invalid": 400,
    "no-result": 400,
    "results-removed": 410,
    "no-such-page": 404,
    "not-authenticated": 401,
    "forbidden": 403,
    "wrong-password": 403,
    "too-many-logons": 429,
    "scheduler-error": 500,
    "not-found": 404,
    "no-such-job": 404,
    "no-such-user": 404,
    "no-such-node": 404,
    "no-such-image": 404,
    "conflict": 409,
    "user-exists": 409,
    "password-changed": 409,
    "last-admin": 409,
    "node-in-use": 409,
    "illegal-transition": 409,
    "already-leading": 503,
    "idempotency-key-reused": 409,
    "cursor-too-old": 409,
    "cursor-invalid": 400,
    "idempotency-key-invalid": 400,
    "invalid": 400,
    "submission-invalid": 400,
    "user-invalid": 400,
    "node-invalid": 400,
    "image-invalid": 400,
    "report-foreign": 403,
    "unavailable": 503,
    "database-unavailable": 503,
    "outcome-unknown": 503,
    "submit-expired": 503,
    "home-unusable": 500,
    "home-foreign": 500,
    "secret-key-unusable": 500,
    "environment-locked": 500,
}
"""Code to status. A code that is missing here is a 500, and a test holds the table against both trees."""

WMLA: Mapping[str, tuple[int, str]] = {"no-such-job": (400, "Cannot find task with given execId.")}
"""Where WMLA's own answer differs. One sentence for unknown, deleted and other users' jobs."""
