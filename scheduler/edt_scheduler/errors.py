"""What the scheduler's room refuses, as one tree. Room: scheduler. Pure; imports nothing of ours.

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

Each class has a stable ``code``; HTTP statuses live in the API. A database newer than the code is
``edt_migrations.DatabaseTooNew``: the schema's history is a room of its own.
"""

from __future__ import annotations

from typing import NamedTuple


class SchedulerError(Exception):
    """Base of everything this room refuses. ``str()`` is a sentence for people."""

    code = "scheduler-error"


class NotFound(SchedulerError):
    """What was named does not exist, or is not the viewer's to see."""

    code = "not-found"


class NoSuchJob(NotFound):
    """Cannot find a job of this id among those the viewer may see."""

    code = "no-such-job"

    def __init__(self, exec_id: str) -> None:
        super().__init__(f"no job {exec_id!r}: it was never submitted, was deleted, or belongs to another user")
        self.exec_id = exec_id


class NoSuchUser(NotFound):
    """Cannot find a user of this name."""

    code = "no-such-user"

    def __init__(self, name: str) -> None:
        super().__init__(f"no user {name!r}: list them with `edt users`")
        self.name = name


class NoSuchNode(NotFound):
    """Cannot find a node of this name."""

    code = "no-such-node"

    def __init__(self, name: str) -> None:
        super().__init__(f"no node {name!r}: list them with `edt nodes`")
        self.name = name


class NoSuchImage(NotFound):
    """Cannot find an allowed image of this name."""

    code = "no-such-image"

    def __init__(self, name: str) -> None:
        super().__init__(f"image {name!r} is not among those that were allowed: list them with `edt images`")
        self.name = name


class Conflict(SchedulerError):
    """Legal at another time, not in the present state."""

    code = "conflict"


class UserExists(Conflict):
    """A user of this name is there already."""

    code = "user-exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"user {name!r} exists already: choose another name, or set a new password")
        self.name = name


class PasswordChanged(Conflict):
    """A user's password is another one than the one by which this was asked for."""

    code = "password-changed"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the password of {name!r} has just been changed, and this came with the old one: use the new one"
        )
        self.name = name


class LastAdmin(Conflict):
    """Removing this user would leave nobody who can administer the platform."""

    code = "last-admin"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is the last admin: add another one before removing this one")
        self.name = name


class NodeInUse(Conflict):
    """A node that cannot be removed: it is there, or a job counts on its coming back."""

    code = "node-in-use"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"node {name!r} cannot be removed: {why}")
        self.name = name


class IllegalTransition(Conflict):
    """A job's state may not move this way."""

    code = "illegal-transition"

    def __init__(self, before: str, after: str) -> None:
        super().__init__(f"a job in state {before} cannot become {after}")
        self.before = before
        self.after = after


class AlreadyLeading(Conflict):
    """Another scheduler of the same home or database decides already."""

    code = "already-leading"

    def __init__(self, where: str) -> None:
        super().__init__(f"another scheduler decides for {where} already: one is enough, this one waits or ends")
        self.where = where


class KeyReused(Conflict):
    """An Idempotency-Key that came before, with another request."""

    code = "idempotency-key-reused"

    def __init__(self, key: str) -> None:
        super().__init__(
            f"Idempotency-Key: {key!r} came before with another request; send the same one again, or a new key"
        )
        self.key = key


class CursorTooOld(Conflict):
    """A place in the feed of changes after which not everything is known any more, or that is none of this database."""

    code = "cursor-too-old"

    def __init__(self, cursor: str) -> None:
        super().__init__(f"cursor: what came after {cursor[:64]!r} is not known any more; read everything, begin anew")
        self.cursor = cursor


class Invalid(SchedulerError):
    """A value that cannot be taken. ``field`` names it."""

    code = "invalid"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class SubmissionInvalid(Invalid):
    """A job that cannot be taken as it was submitted."""

    code = "submission-invalid"


class UserInvalid(Invalid):
    """A user that cannot be stored: name or role."""

    code = "user-invalid"


class NodeInvalid(Invalid):
    """A node that cannot be registered: name, slots or cores."""

    code = "node-invalid"


class ImageInvalid(Invalid):
    """What is no name of a container image."""

    code = "image-invalid"


class KeyInvalid(Invalid):
    """An Idempotency-Key that cannot be stored."""

    code = "idempotency-key-invalid"


class CursorInvalid(Invalid):
    """A place in the feed of changes that can be none."""

    code = "cursor-invalid"

    def __init__(self, cursor: str) -> None:
        super().__init__("cursor", f"{cursor[:64]!r} is none of ours")
        self.cursor = cursor


class ReportForeign(Invalid):
    """A report that another node's supervisor wrote."""

    code = "report-foreign"


class Unavailable(SchedulerError):
    """Not now; the same request will do later."""

    code = "unavailable"
    passing = True
    """Whether it is worth trying again at once."""

    @property
    def retry_after(self) -> int:
        """Seconds after which asking again makes sense."""
        return 1 if self.passing else 5


class DatabaseUnavailable(Unavailable):
    """The database cannot serve just now. Nothing was written."""

    code = "database-unavailable"

    def __init__(self, how: str, *, passing: bool) -> None:
        super().__init__(f"the database {how}: nothing was changed, try again in a moment")
        self.passing = passing


class OutcomeUnknown(Unavailable):
    """The connection was lost while the database committed: it is done, or it is not."""

    code = "outcome-unknown"

    def __init__(self) -> None:
        super().__init__("the database went away while it wrote: look whether this was done before you try again")


class SubmitExpired(Unavailable):
    """A submit whose number was given up before its job was written. There is no job of it."""

    code = "submit-expired"

    def __init__(self) -> None:
        super().__init__(
            "this submit took longer than an hour, or the database's machine failed meanwhile: no job was made of it, "
            "send it again"
        )


class HomeUnusable(SchedulerError):
    """EDT_HOME cannot be used."""

    code = "home-unusable"

    def __init__(self, home: str, why: str) -> None:
        super().__init__(f"EDT_HOME {home} cannot be used: {why}")
        self.home = home


class SecretKeyUnusable(HomeUnusable):
    """The file with the key under which environments of jobs are sealed cannot be used."""

    code = "secret-key-unusable"

    def __init__(self, path: str, why: str) -> None:
        SchedulerError.__init__(
            self,
            f"the secret key {path} cannot be used: {why}; EDT_SECRET_KEY_FILE names its file, else it is secret-key "
            "in the home",
        )
        self.home = path


class EnvironmentLocked(SchedulerError):
    """A job's environment cannot be opened."""

    code = "environment-locked"

    def __init__(self, exec_id: str, why: str, *, unknown_key: bool = False) -> None:
        super().__init__(f"the environment of {exec_id} cannot be read: {why}")
        self.why = why
        self.unknown_key = unknown_key
        """Whether a key that is put into the file opens it."""


class Side(NamedTuple):
    """A home or a database, as the other does not know it."""

    place: str
    """Path, or URL without a password."""
    id: str | None
    other: str
    """The place that it belongs to; "" where it does not say."""

    def told(self, other: str) -> str:
        of = f", of {self.other}" if self.other not in {"", other} else ""
        return f"{self.place} ({f'id {self.id}' if self.id is not None else 'no id'}{of})"


class HomeForeign(HomeUnusable):
    """EDT_HOME and the database do not belong together."""

    code = "home-foreign"

    def __init__(self, home: Side, database: Side, why: str) -> None:
        SchedulerError.__init__(
            self,
            f"EDT_HOME {home.told(database.place)} and the database {database.told(home.place)} do not belong "
            f"together, {why}: start with two that do, or have these two belong together from now on with "
            "`edt doctor --adopt`, which deletes nothing",
        )
        self.home = home.place
