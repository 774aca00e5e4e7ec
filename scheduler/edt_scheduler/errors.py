"""The tree of errors that the scheduler raises. Pure; imports nothing of this project.

    SchedulerError
    ├── NotFound
    │   ├── NoSuchJob
    │   ├── NoSuchUser
    │   ├── NoSuchNode
    │   ├── NoSuchImage
    │   ├── NoSuchFramework
    │   ├── NoSuchQueue
    │   ├── NoSuchPool
    │   ├── NoSuchDecision
    │   └── NoSuchToken
    ├── Conflict
    │   ├── UserExists
    │   ├── PasswordChanged
    │   ├── LastAdmin
    │   ├── NodeInUse
    │   ├── NodeNotWanted
    │   ├── PoolInUse
    │   ├── QueueInUse
    │   ├── IllegalTransition
    │   ├── AlreadyLeading
    │   ├── JobOver
    │   ├── NotNow
    │   ├── KeyReused
    │   └── CursorTooOld
    ├── Invalid
    │   ├── SubmissionInvalid
    │   ├── EpochsInvalid
    │   ├── SizeInvalid
    │   ├── PriorityInvalid
    │   ├── QueueInvalid
    │   ├── UserInvalid
    │   ├── TokenInvalid
    │   ├── NodeInvalid
    │   ├── PoolInvalid
    │   ├── ImageInvalid
    │   ├── FrameworkInvalid
    │   ├── ChangeInvalid
    │   ├── KeyInvalid
    │   ├── CursorInvalid
    │   ├── ReportForeign
    │   └── IndexOutOfRange
    ├── NotTheOwner
    ├── Unavailable
    │   ├── DatabaseUnavailable
    │   ├── OutcomeUnknown
    │   └── SubmitExpired
    ├── EnvironmentLocked
    └── HomeUnusable
        ├── HomeForeign
        └── SecretKeyUnusable

Each class has a stable ``code`` and an HTTP ``status``, with which the API answers the error. The code is the class
name in kebab case unless the class sets another one. For a database that is newer than the code,
``edt_migrations.DatabaseTooNew`` is raised: the schema's history is a package of its own.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class PublicError(Exception):
    """An error that users see. ``str()`` is a sentence for people, safe to show."""

    code: str
    """Part of the API: it stays as it is when the class is renamed."""
    status = 500

    def __init_subclass__(cls) -> None:
        if "code" not in cls.__dict__:
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()


class SchedulerError(PublicError):
    """Base of all errors with which the scheduler refuses something."""


class NotFound(SchedulerError):
    """The named thing does not exist, or the viewer may not see it."""

    status = 404


class NoSuchJob(NotFound):
    """The viewer may see no job of this id."""

    def __init__(self, exec_id: str) -> None:
        super().__init__(f"no job {exec_id!r}: it was never submitted, was deleted, or belongs to another user")


class NoSuchUser(NotFound):
    """There is no user of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no user {name!r}: list them with `edt users`")


class NoSuchNode(NotFound):
    """There is no node of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no node {name!r}: list them with `edt nodes`")


class NoSuchImage(NotFound):
    """There is no allowed image of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"image {name!r} is not among those that were allowed: list them with `edt images`")


class NoSuchFramework(NotFound):
    """There is no added framework of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"framework {name[:64]!r} is not among those that were added: list them with `edt frameworks`")


class NoSuchQueue(NotFound):
    """There is no queue of this path."""

    def __init__(self, path: str) -> None:
        super().__init__(f"no queue {path[:128]!r}: list them with `edt queues`")


class NoSuchPool(NotFound):
    """There is no pool of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no pool {name[:64]!r}: list them with `edt pools`")


class NoSuchDecision(NotFound):
    """There is no recorded decision of this number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"no decision {number} is recorded (any more): `edt replay` takes the newest ones")


class NoSuchToken(NotFound):
    """There is no API token of this number, or it is another user's."""

    def __init__(self, number: int) -> None:
        super().__init__(f"no API token {number}: list yours with `edt tokens`")


class NotTheOwner(SchedulerError):
    """The viewer sees this job, but may not change it."""

    status = 403

    def __init__(self, exec_id: str) -> None:
        super().__init__(f"{exec_id} belongs to another user: only that user or an admin may stop or delete it")


class Conflict(SchedulerError):
    """The request is legal at another time, but not in the present state."""

    status = 409


class UserExists(Conflict):
    """A user of this name exists already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"user {name!r} exists already: choose another name, or set a new password")


class PasswordChanged(Conflict):
    """The user's password has changed since the caller read the user."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the password of {name!r} has just been changed, and this came with the old one: use the new one"
        )


class LastAdmin(Conflict):
    """The platform would have no admin without this user."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is the last admin: add another one before removing this one")


class NodeInUse(Conflict):
    """The node cannot be removed: it is not lost, or a job still has a part of an attempt on it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"node {name!r} cannot be removed: {why}")


class NodeNotWanted(Conflict):
    """The node was asked for, and is not wanted any more. Its agent must end."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"node {name!r} is not wanted any more: {why}")


class PoolInUse(Conflict):
    """The pool cannot be removed while its provisioner or one of its nodes is there."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"pool {name!r} cannot be removed: {why}")


class QueueInUse(Conflict):
    """The queue cannot be removed while there are queues below it."""

    def __init__(self, path: str, below: str) -> None:
        super().__init__(f"queue {path} has queues below it: remove {below} first")


class IllegalTransition(Conflict):
    """A job's state may not change in this way."""

    def __init__(self, before: str, after: str) -> None:
        super().__init__(f"a job in state {before} cannot become {after}")


class JobOver(Conflict):
    """The job is over, so that what was asked of it cannot be done any more."""

    def __init__(self, exec_id: str, state: str, what: str) -> None:
        super().__init__(f"{exec_id} is over ({state}): {what}")


class NotNow(Conflict):
    """The job is not over, but what was asked of it does not fit what it does now."""

    def __init__(self, exec_id: str, why: str) -> None:
        super().__init__(f"{exec_id} {why}")


class AlreadyLeading(Conflict):
    """Another scheduler already decides for the same home or database."""

    status = 503

    def __init__(self, where: str) -> None:
        super().__init__(f"another scheduler decides for {where} already: one is enough, this one waits or ends")


class KeyReused(Conflict):
    """The Idempotency-Key was used before, with another request."""

    code = "idempotency-key-reused"

    def __init__(self, key: str) -> None:
        super().__init__(
            f"Idempotency-Key: {key!r} came before with another request; send the same one again, or a new key"
        )


class CursorTooOld(Conflict):
    """The feed cannot list all changes after this cursor: some are forgotten, or the cursor is of another database."""

    def __init__(self, cursor: str) -> None:
        super().__init__(f"cursor: what came after {cursor[:64]!r} is not known any more; read everything, begin anew")


class Invalid(SchedulerError):
    """The value is not accepted. ``field`` names it."""

    status = 400

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class SubmissionInvalid(Invalid):
    """The job is not accepted as it was submitted."""


class EpochsInvalid(Invalid):
    """The job cannot have so many epochs."""


class SizeInvalid(Invalid):
    """The job cannot have this least or largest number of slots."""


class PriorityInvalid(Invalid):
    """The job cannot have this priority."""


class QueueInvalid(Invalid):
    """There can be no such queue, or it cannot have such numbers."""


class UserInvalid(Invalid):
    """The user's name or role is not accepted."""


class TokenInvalid(Invalid):
    """The API token cannot be made: its name or scope is not accepted, or its user has too many."""


class NodeInvalid(Invalid):
    """The node cannot be registered: its name, slots or cores are not accepted."""


class PoolInvalid(Invalid):
    """There can be no such pool, or it cannot have such numbers."""


class ImageInvalid(Invalid):
    """The text is not the name of a container image."""


class FrameworkInvalid(Invalid):
    """The entry cannot stand in the framework catalogue. ``field`` is the key that has to be changed."""


class ChangeInvalid(Invalid):
    """A change that somebody asks "what if" about names something that is not there, or asks for what cannot be."""


class KeyInvalid(Invalid):
    """The Idempotency-Key cannot be stored."""

    code = "idempotency-key-invalid"


class CursorInvalid(Invalid):
    """The text is not a cursor of the feed of changes."""

    def __init__(self, cursor: str) -> None:
        super().__init__("cursor", f"{cursor[:64]!r} is none of ours")


class ReportForeign(Invalid):
    """The report was written by a supervisor of another node."""

    status = 403


class IndexOutOfRange(Invalid):
    """A list has no item at the place from which it was to be read."""

    status = 416

    def __init__(self, start: int, total: int) -> None:
        super().__init__("start", f"got {start}, which is beyond the end of the list: it has {total}, numbered from 0")


class Unavailable(SchedulerError):
    """The request cannot be served now; the same request can succeed later."""

    status = 503
    passing = True
    """Whether a new try makes sense at once."""

    @property
    def retry_after(self) -> int:
        """Seconds to wait before the next try."""
        return 1 if self.passing else 5


class DatabaseUnavailable(Unavailable):
    """The database cannot serve at the moment. Nothing was written."""

    def __init__(self, how: str, *, passing: bool) -> None:
        super().__init__(f"the database {how}: nothing was changed, try again in a moment")
        self.passing = passing


class OutcomeUnknown(Unavailable):
    """The connection was lost while the database committed: the change was written, or it was not."""

    def __init__(self) -> None:
        super().__init__("the database went away while it wrote: look whether this was done before you try again")


class SubmitExpired(Unavailable):
    """The submit's number was given up before its job was written. The submit made no job."""

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
    """The file with the key that seals the environments of jobs cannot be used."""

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
        """Whether the environment can be opened once the missing key is added to the file."""


class Side(NamedTuple):
    """A home or a database, described for the error message of HomeForeign."""

    place: str
    """Path, or URL without a password."""
    id: str | None
    other: str
    """The place of the database or home that this side belongs to; "": it names none."""

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
