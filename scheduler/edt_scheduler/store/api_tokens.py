"""API tokens of users. Only their SHA-256 is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select, update

from edt_scheduler.store.tables import api_tokens, users
from edt_scheduler.store.users import fingerprint

EXPIRES_AT = api_tokens.c.expires_at

_SHOWN: tuple[ColumnElement[Any], ...] = (
    api_tokens.c.id,
    api_tokens.c.user_id,
    users.c.name.label("owner"),
    api_tokens.c.name,
    api_tokens.c.scope,
    api_tokens.c.created_at,
    api_tokens.c.expires_at,
    api_tokens.c.last_used_at,
)


def add(
    tx: Connection, user_id: int, name: str, scope: str, secret: str, now: float, expires_at: float | None
) -> Row[Any]:
    """Store a token's hash, unless it is stored already; return the token's row."""
    secret_sha256 = fingerprint(secret)
    of_secret = select(*_SHOWN).join_from(api_tokens, users).where(api_tokens.c.secret_sha256 == secret_sha256)
    found = tx.execute(of_secret).one_or_none()
    if found is not None:
        return found
    tx.execute(
        insert(api_tokens).values(
            user_id=user_id,
            name=name,
            scope=scope,
            secret_sha256=secret_sha256,
            created_at=now,
            expires_at=expires_at,
        )
    )
    return tx.execute(of_secret).one()


def get(tx: Connection, number: int) -> Row[Any] | None:
    return tx.execute(select(*_SHOWN).join_from(api_tokens, users).where(api_tokens.c.id == number)).one_or_none()


def of_user(tx: Connection, user_id: int, limit: int | None = None, after: int = 0) -> list[Row[Any]]:
    """At most ``limit`` tokens of this user, oldest first, with numbers above ``after``."""
    query = select(*_SHOWN).join_from(api_tokens, users)
    query = query.where(api_tokens.c.user_id == user_id, api_tokens.c.id > after)
    return list(tx.execute(query.order_by(api_tokens.c.id).limit(limit)))


def owner(tx: Connection, secret: str, now: float) -> Row[Any] | None:
    """The user whose token this is, while it is valid, with the token's number and scope; None: it is not valid."""
    query = (
        select(users, api_tokens.c.id.label("token_id"), api_tokens.c.scope)
        .join_from(users, api_tokens)
        .where(api_tokens.c.secret_sha256 == fingerprint(secret), users.c.removed_at.is_(None))
        .where(api_tokens.c.expires_at.is_(None) | (api_tokens.c.expires_at > now))
    )
    return tx.execute(query).one_or_none()


def drop(tx: Connection, number: int) -> None:
    tx.execute(delete(api_tokens).where(api_tokens.c.id == number))


def used(tx: Connection, times: Mapping[int, float]) -> None:
    """Note when tokens were last used, by number. A later time that is stored already stays."""
    for number, at in sorted(times.items()):
        earlier = api_tokens.c.last_used_at.is_(None) | (api_tokens.c.last_used_at < at)
        tx.execute(update(api_tokens).where(api_tokens.c.id == number, earlier).values(last_used_at=at))
