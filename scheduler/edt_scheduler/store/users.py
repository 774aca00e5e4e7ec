"""Users and their tokens. Passwords and tokens are stored only as hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from edt_scheduler.store.queries import rows_of
from edt_scheduler.store.tables import api_tokens, tokens, users

EXPIRES_AT = tokens.c.expires_at


def fingerprint(secret: str) -> str:
    """SHA-256 of a random secret, in hexadecimal. The secret is long enough that it needs no salt and no stretching."""
    return hashlib.sha256(secret.encode()).hexdigest()


def add(tx: Connection, name: str, role: str, password_hash: str, now: float) -> None:
    """Insert a user. A removed user of the same name is another user and keeps what they own."""
    tx.execute(insert(users).values(name=name, role=role, password_hash=password_hash, created_at=now))


def named(tx: Connection, name: str) -> Row[Any] | None:
    """The user of this name, unless removed."""
    return tx.execute(select(users).where(users.c.name == name, users.c.removed_at.is_(None))).one_or_none()


def get(tx: Connection, user_id: int) -> Row[Any] | None:
    """A user who was not removed."""
    return tx.execute(select(users).where(users.c.id == user_id, users.c.removed_at.is_(None))).one_or_none()


def there(tx: Connection, ids: Collection[int]) -> set[int]:
    """Those of these users who were not removed."""
    return {row.id for row in rows_of(tx, select(users.c.id).where(users.c.removed_at.is_(None)), users.c.id, ids)}


def listed(tx: Connection, limit: int | None = None, after: int = 0) -> list[Row[Any]]:
    """At most ``limit`` users who were not removed, by name, behind the user with the id ``after``, who
    may be removed.
    """
    query = select(users).where(users.c.removed_at.is_(None)).order_by(users.c.name).limit(limit)
    if after:
        query = query.where(users.c.name > select(users.c.name).where(users.c.id == after).scalar_subquery())
    return list(tx.execute(query))


def admins(tx: Connection) -> int:
    query = select(func.count()).where(users.c.role == "admin", users.c.removed_at.is_(None))
    return int(tx.execute(query).scalar_one())


def set_password(tx: Connection, user_id: int, password_hash: str) -> None:
    """Set a user's password hash, and end all tokens of the user, API tokens too."""
    tx.execute(update(users).where(users.c.id == user_id).values(password_hash=password_hash))
    _end_tokens(tx, user_id)


def remove(tx: Connection, user_id: int, now: float) -> None:
    """Remove a user's password, tokens and API tokens. The row stays, because jobs and history refer to it."""
    tx.execute(update(users).where(users.c.id == user_id).values(removed_at=now, password_hash=""))
    _end_tokens(tx, user_id)


def _end_tokens(tx: Connection, user_id: int) -> None:
    for table in (tokens, api_tokens):
        tx.execute(delete(table).where(table.c.user_id == user_id))


def add_token(tx: Connection, user_id: int, secret: str, now: float, expires_at: float) -> None:
    """Store a token's hash, unless it is stored already."""
    secret_sha256 = fingerprint(secret)
    if tx.execute(select(tokens.c.id).where(tokens.c.secret_sha256 == secret_sha256)).first() is None:
        tx.execute(
            insert(tokens).values(user_id=user_id, secret_sha256=secret_sha256, created_at=now, expires_at=expires_at)
        )


def of_token(tx: Connection, secret: str, now: float) -> Row[Any] | None:
    """The user whose token this is, while it is valid."""
    query = (
        select(users)
        .join(tokens)
        .where(tokens.c.secret_sha256 == fingerprint(secret), tokens.c.expires_at > now)
        .where(users.c.removed_at.is_(None))
    )
    return tx.execute(query).one_or_none()


def drop_token(tx: Connection, secret: str) -> None:
    tx.execute(delete(tokens).where(tokens.c.secret_sha256 == fingerprint(secret)))
