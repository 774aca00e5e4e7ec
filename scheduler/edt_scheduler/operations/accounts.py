"""Use cases of users and their tokens.

The API hashes passwords with argon2 and makes tokens before it passes them on. Tokens are stored as their SHA-256.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Row

from edt_scheduler.errors import LastAdmin, NoSuchUser, PasswordChanged, Unavailable, UserExists, UserInvalid
from edt_scheduler.model.idempotency import IdempotentRequest
from edt_scheduler.model.states import Role
from edt_scheduler.operations.execs import stop_jobs_of_removed_users
from edt_scheduler.platform import Platform
from edt_scheduler.store import idempotency, to_views
from edt_scheduler.store import users as store
from edt_scheduler.store.database import retried
from edt_scheduler.views import UserView

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


@retried(if_done=False)
def add_user(
    platform: Platform,
    name: str,
    password_hash: str,
    role: Role = Role.USER,
    *,
    by: UserView | None = None,
    request: IdempotentRequest | None = None,
) -> UserView:
    """Add a user. A user who gets the name of a removed user is a new user and owns nothing of the removed one.

    Args:
        by: The user who asks for it.
        request: The request of the user ``by``. If it has added this user before, that user is the answer.

    Raises:
        UserExists: A user of this name exists.
        UserInvalid: The name is not allowed.
        KeyReused: The Idempotency-Key came before with another request.
    """
    if not NAME.fullmatch(name):
        raise UserInvalid("name", f"{name!r}: letters, digits and _ . @ -, at most 64, not beginning with . @ -")
    with platform.database.transaction() as tx:
        now = platform.clock()
        asking = store.get(tx, by.id) if by is not None else None
        before = idempotency.made(tx, asking.id, request, now) if asking is not None and request is not None else None
        if before is None:
            if store.named(tx, name) is not None:
                raise UserExists(name)
            store.add(tx, name, role, password_hash, now)
            if asking is not None and request is not None:
                idempotency.put(tx, asking.id, request, name, now)
        return to_views.user(_named(tx, name))


def user(platform: Platform, name: str) -> UserView:
    """The user of this name. Raises NoSuchUser."""
    with platform.database.snapshot() as tx:
        return to_views.user(_named(tx, name))


def _named(tx: Connection, name: str) -> Row[Any]:
    row = store.named(tx, name)
    if row is None:
        raise NoSuchUser(name)
    return row


def users(platform: Platform, *, limit: int | None = None, after: int = 0) -> list[UserView]:
    """At most ``limit`` users by name, behind the user whose id is ``after``; None: all of them."""
    with platform.database.snapshot() as tx:
        return [to_views.user(row) for row in store.listed(tx, limit, after)]


@retried(if_done=True)
def set_password(platform: Platform, user: UserView, password_hash: str) -> None:
    """Change the password of ``user``. Every token that was issued under the old password ends.

    Raises:
        NoSuchUser: The user was removed.
        PasswordChanged: The password has changed since ``user`` was read.
    """
    with platform.database.transaction() as tx:
        row = store.get(tx, user.id)
        if row is not None and row.password_hash == password_hash:
            return  # an earlier try of this call has set it, and its answer was lost
        store.set_password(tx, same_user(user, row), password_hash)


def remove_user(platform: Platform, name: str) -> None:
    """Remove a user and their tokens, and stop their jobs. The last admin cannot be removed.

    The user is removed first, so that they cannot submit more jobs. Then the jobs are stopped, some at a time. If that
    is interrupted or takes long, a periodic task stops the rest.

    Raises:
        NoSuchUser: No user has this name.
        LastAdmin: The user is the last admin.
    """
    _remove(platform, name)
    with suppress(Unavailable):  # the user is removed: the caller must not see a failure
        stop_jobs_of_removed_users(platform)


@retried(if_done=False)
def _remove(platform: Platform, name: str) -> None:
    with platform.database.transaction() as tx:
        row = _named(tx, name)
        if row.role == Role.ADMIN and store.admins(tx) == 1:
            raise LastAdmin(name)
        store.remove(tx, row.id, platform.clock())


@retried(if_done=True)
def add_token(platform: Platform, user: UserView, secret: str, expires_at: float) -> None:
    """Store a token of this user, of which only the SHA-256 is kept.

    A new password ends all tokens of the old one, including a token that is made at the same moment.

    Args:
        platform: The open platform.
        user: The user, as they were when their password was checked.
        secret: The token. It must be random enough that nobody can guess it from its SHA-256.
        expires_at: Until when it is valid, in seconds since the epoch.

    Raises:
        NoSuchUser: The user was removed.
        PasswordChanged: The password has changed since ``user`` was read.
    """
    with platform.database.transaction() as tx:
        store.add_token(tx, same_user(user, store.get(tx, user.id)), secret, platform.clock(), expires_at)


def same_user(user: UserView, row: Row[Any] | None) -> int:
    """The user's id, if ``row`` still has the password with which ``user`` was read.

    ``row`` is looked up by id, so another user of the same name is never taken for this one.

    Raises:
        NoSuchUser: The user was removed.
        PasswordChanged: The password has changed since ``user`` was read.
    """
    if row is None:
        raise NoSuchUser(user.name)
    if row.password_hash != user.password_hash:
        raise PasswordChanged(user.name)
    return user.id


def verify_token(platform: Platform, secret: str) -> UserView | None:
    """The user of a token; None: the token is unknown, revoked or expired."""
    with platform.database.snapshot() as tx:
        row = store.of_token(tx, secret, platform.clock())
    return to_views.user(row) if row is not None else None


@retried(if_done=True)
def revoke_token(platform: Platform, secret: str) -> None:
    """End a token. An unknown token is no error, because it is not valid anyway."""
    with platform.database.transaction() as tx:
        store.drop_token(tx, secret)
