"""Idempotency keys: what a user's request made, kept for a day."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from edt_scheduler.errors import KeyReused
from edt_scheduler.model.idempotency import KEPT_SECONDS, IdempotentRequest
from edt_scheduler.store.tables import idempotency_keys as keys

CREATED_AT = keys.c.created_at


def made(tx: Connection, user_id: int, request: IdempotentRequest, now: float) -> str | None:
    """What this request made when it came before; None: it comes for the first time.

    Raises:
        KeyReused: The key came before with another request.
    """
    row = tx.execute(select(keys).where(keys.c.user_id == user_id, keys.c.key == request.key)).one_or_none()
    if row is None or row.created_at <= now - KEPT_SECONDS:
        return None
    if row.request_sha256 != request.request_sha256:
        raise KeyReused(request.key)
    return str(row.made)


def put(tx: Connection, user_id: int, request: IdempotentRequest, made: str, now: float) -> None:
    """Remember what the request made. Legal if ``made`` has just returned None in the same transaction."""
    tx.execute(delete(keys).where(keys.c.user_id == user_id, keys.c.key == request.key))
    values = {"user_id": user_id, "key": request.key, "request_sha256": request.request_sha256}
    tx.execute(insert(keys).values(**values, made=made, created_at=now))
