"""What the scheduler refuses, as one tree. Pure; imports nothing of ours.

    SchedulerError
    ├── NotFound
    │   ├── NoSuchJob
    │   ├── NoSuchUser
    │   ├── NoSuchNode
    │   └── NoSuchImage
    ├── Conflict
    │   ├── UserExists
    │   ├── PasswordChanged
    │   ├── LastAdmin
    │   ├── NodeInUse
    │   ├── IllegalTransition
    │   ├── AlreadyLeading
    │   ├── KeyReused
    │   └── CursorTooOld
    ├── Invalid
    │   ├── SubmissionInvalid
    │   ├── UserInvalid
    │   ├── NodeInvalid
    │   ├── ImageInvalid
    │   ├── KeyInvalid
    │   ├── CursorInvalid
    │   └── ReportForeign
    ├── Unavailable
    │   ├── DatabaseUnavailable
    │   ├── OutcomeUnknown
    │   └── SubmitExpired
    ├── EnvironmentLocked
    └── HomeUnusable
        ├── HomeForeign
        └── SecretKeyUnusable

Each class has a stable ``code``, its name in kebab case unless it says another, and the HTTP ``status`` with which the
API answers it. A database newer than the code is
``edt_migrations.DatabaseTooNew``: the schema's history is a package of its own.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class PublicError(Exception):
    """An error that users see. ``str()`` is a sentence for people, safe to show."""

    code: str
    """Part of the API: it stays as it is when the class gets another name."""
    status = 500

    def __init_subclass__(cls) -> None:
        if "code" not in cls.__dict__:
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()


class SchedulerError(PublicError):
    """Base of everything the scheduler refuses."""


class NotFound(SchedulerError):
    """What was named does not exist, or is not the viewer's to see."""

    status = 404


class NoSuchJob(NotFound):
    """Cannot find a job of this id among those the viewer may see."""

    def __init__(self, exec_id: str) -> None:
        super().__init__(f"no job {exec_id!r}: it was never submitted, was deleted, or belongs to another user")


class NoSuchUser(NotFound):
    """Cannot find a user of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no user {name!r}: list them with `edt users`")


class NoSuchNode(NotFound):
    """Cannot find a node of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no node {name!r}: list them with `edt nodes`")


class NoSuchImage(NotFound):
    """Cannot find an allowed image of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"image {name!r} is not among those that were allowed: list them with `edt images`")


class Conflict(SchedulerError):
    """Legal at another time, not in the present state."""

    status = 409


class UserExists(Conflict):
    """A user of this name is there already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"user {name!r} exists already: choose another name, or set a new password")


class PasswordChanged(Conflict):
    """A user's password is another one than the one by which this was asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the password of {name!r} has just been changed, and this came with the old one: use the new one"
        )


class LastAdmin(Conflict):
    """Removing this user would leave nobody who can administer the platform."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is the last admin: add another one before removing this one")


class NodeInUse(Conflict):
    """A node that cannot be removed: it is there, or a job counts on its coming back."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"node {name!r} cannot be removed: {why}")


class IllegalTransition(Conflict):
    """A job's state may not move this way."""

    def __init__(self, before: str, after: str) -> None:
        super().__init__(f"a job in state {before} cannot become {after}")


class AlreadyLeading(Conflict):
    """Another scheduler of the same home or database decides already."""

    status = 503

    def __init__(self, where: str) -> None:
        super().__init__(f"another scheduler decides for {where} already: one is enough, this one waits or ends")


class KeyReused(Conflict):
    """An Idempotency-Key that came before, with another request."""

    code = "idempotency-key-reused"

    def __init__(self, key: str) -> None:
        super().__init__(
            f"Idempotency-Key: {key!r} came before with another request; send the same one again, or a new key"
        )


class CursorTooOld(Conflict):
    """A place in the feed of changes after which not everything is known any more, or that is none of this database."""

    def __init__(self, cursor: str) -> None:
        super().__init__(f"cursor: what came after {cursor[:64]!r} is not known any more; read everything, begin anew")


class Invalid(SchedulerError):
    """A value that cannot be taken. ``field`` names it."""

    status = 400

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class SubmissionInvalid(Invalid):
    """A job that cannot be taken as it was submitted."""


class UserInvalid(Invalid):
    """A user that cannot be stored: name or role."""


class NodeInvalid(Invalid):
    """A node that cannot be registered: name, slots or cores."""


class ImageInvalid(Invalid):
    """What is no name of a container image."""


class KeyInvalid(Invalid):
    """An Idempotency-Key that cannot be stored."""

    code = "idempotency-key-invalid"


class CursorInvalid(Invalid):
    """A place in the feed of changes that can be none."""

    def __init__(self, cursor: str) -> None:
        super().__init__("cursor", f"{cursor[:64]!r} is none of ours")


class ReportForeign(Invalid):
    """A report that another node's supervisor wrote."""

    status = 403


class Unavailable(SchedulerError):
    """Not now; the same request will do later."""

    status = 503
    passing = True
    """Whether it is worth trying again at once."""

    @property
    def retry_after(self) -> int:
        """Seconds after which asking again makes sense."""
        return 1 if self.passing else 5


class DatabaseUnavailable(Unavailable):
    """The database cannot serve just now. Nothing was written."""

    def __init__(self, how: str, *, passing: bool) -> None:
        super().__init__(f"the database {how}: nothing was changed, try again in a moment")
        self.passing = passing


class OutcomeUnknown(Unavailable):
    """The connection was lost while the database committed: it is done, or it is not."""

    def __init__(self) -> None:
        super().__init__("the database went away while it wrote: look whether this was done before you try again")


class SubmitExpired(Unavailable):
    """A submit whose number was given up before its job was written. There is no job of it."""

    def __init__(self) -> None:
        super().__init__(
            "this submit took longer than an hour, or the database's machine failed meanwhile: no job was made of it, "
            "send it again"
        )


class HomeUnusable(SchedulerError):
    """EDT_HOME cannot be used."""

    def __init__(self, home: str, why: str) -> None:
        super().__init__(f"EDT_HOME {home} cannot be used: {why}")


class SecretKeyUnusable(HomeUnusable):
    """The file with the key under which environments of jobs are sealed cannot be used."""

    def __init__(self, path: str, why: str) -> None:
        SchedulerError.__init__(
            self,
            f"the secret key {path} cannot be used: {why}; EDT_SECRET_KEY_FILE names its file, else it is secret-key "
            "in the home",
        )


class EnvironmentLocked(SchedulerError):
    """A job's environment cannot be opened."""

    def __init__(self, exec_id: str, why: str, *, unknown_key: bool = False) -> None:
        super().__init__(f"the environment of {exec_id} cannot be read: {why}")
        self.unknown_key = unknown_key
        """Whether a key that is put into the file opens it."""


class Side(NamedTuple):
    """A home or a database, as the other does not know it."""

    place: str
    """Path, or URL without a password."""
    id: str | None
    other: str
    """The place that it belongs to; "" where it does not say."""

    def shown(self, other: str) -> str:
        of = f", of {self.other}" if self.other not in {"", other} else ""
        return f"{self.place} ({f'id {self.id}' if self.id is not None else 'no id'}{of})"


class HomeForeign(HomeUnusable):
    """EDT_HOME and the database do not belong together."""

    def __init__(self, home: Side, database: Side, why: str) -> None:
        SchedulerError.__init__(
            self,
            f"EDT_HOME {home.shown(database.place)} and the database {database.shown(home.place)} do not belong "
            f"together, {why}: start with two that do, or have these two belong together from now on with "
            "`edt doctor --adopt`, which deletes nothing",
        )
