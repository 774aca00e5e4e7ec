"""Use cases of users and their tokens.

Passwords arrive hashed, by the API's argon2; tokens are made here, shown once and stored as their SHA-256.
"""

from __future__ import annotations

import re
import secrets
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
TOKEN_BYTES = 32
"""All tokens are equally long: ``dlicmd`` keeps the tail of a longer one that it overwrites."""


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
    """Add a user. Raises UserExists and UserInvalid. Who gets a removed user's name is a new user and owns
    nothing of the old one's.

    ``request``, of the user ``by``: where it has added this user before, that is the answer. Raises KeyReused.
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
    with platform.database.snapshot() as tx:
        return to_views.user(_named(tx, name))


def _named(tx: Connection, name: str) -> Row[Any]:
    row = store.named(tx, name)
    if row is None:
        raise NoSuchUser(name)
    return row


def users(platform: Platform, *, limit: int | None = None, after: int = 0) -> list[UserView]:
    """At most so many of the users by name, from the one whose id is ``after`` (not itself) on; None: all."""
    with platform.database.snapshot() as tx:
        return [to_views.user(row) for row in store.listed(tx, limit, after)]


@retried(if_done=True)
def set_password(platform: Platform, user: UserView, password_hash: str) -> None:
    """Change the password that ``user`` was seen with; every token issued under it ends.

    Raises NoSuchUser, and PasswordChanged where it is another one by now.
    """
    with platform.database.transaction() as tx:
        row = store.get(tx, user.id)
        if row is not None and row.password_hash == password_hash:
            return  # by this same call, which did not learn of it
        store.set_password(tx, _still(user, row), password_hash)


def remove_user(platform: Platform, name: str) -> None:
    """Remove a user and their tokens, and stop their jobs. The last admin stays.

    The user goes first, so that no job comes any more; then the jobs are stopped, some at a time. Where that is broken
    off, or takes long, a periodic task goes on with it.
    """
    _remove(platform, name)
    with suppress(Unavailable):  # the user is removed, which must not be told as a failure
        stop_jobs_of_removed_users(platform)


@retried(if_done=False)
def _remove(platform: Platform, name: str) -> None:
    with platform.database.transaction() as tx:
        row = _named(tx, name)
        if row.role == Role.ADMIN and store.admins(tx) == 1:
            raise LastAdmin(name)
        store.remove(tx, row.id, platform.clock())


@retried(if_done=True)
def issue_token(platform: Platform, user: UserView, lifetime_seconds: float) -> str:
    """A new secret that stands for this user for a while.

    Raises NoSuchUser, and PasswordChanged where the password is no longer the one that ``user`` was seen with: a new
    password ends all tokens of the old one, also those that are made at that moment.
    """
    secret = secrets.token_urlsafe(TOKEN_BYTES)
    with platform.database.transaction() as tx:
        now = platform.clock()
        store.add_token(tx, _still(user, store.get(tx, user.id)), secret, now, now + lifetime_seconds)
    return secret


def _still(user: UserView, row: Row[Any] | None) -> int:
    """The id of a user as they were seen, who is ``row`` now: perhaps removed since, or with another password. Another
    user of the same name is not who was meant.
    """
    if row is None:
        raise NoSuchUser(user.name)
    if row.password_hash != user.password_hash:
        raise PasswordChanged(user.name)
    return user.id


def verify_token(platform: Platform, secret: str) -> UserView | None:
    """The user of a token; None for one that is unknown, revoked or expired."""
    with platform.database.snapshot() as tx:
        row = store.of_token(tx, secret, platform.clock())
    return to_views.user(row) if row is not None else None


@retried(if_done=True)
def revoke_token(platform: Platform, secret: str) -> None:
    """End a token. An unknown one is no error: it is not valid either way."""
    with platform.database.transaction() as tx:
        store.drop_token(tx, secret)
