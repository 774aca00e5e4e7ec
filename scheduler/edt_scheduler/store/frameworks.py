"""Entries of the framework catalogue that administrators have added."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, delete, func, select

from edt_contract.encoding import from_json_object, to_json_object
from edt_scheduler.model.catalogue import Framework
from edt_scheduler.store.queries import put
from edt_scheduler.store.tables import added_frameworks
from edt_scheduler.views import FrameworkView


def find(tx: Connection, name: str) -> FrameworkView | None:
    """The added entry of this name; None: there is none."""
    row = tx.execute(select(added_frameworks).where(added_frameworks.c.name == name)).one_or_none()
    return _view(row) if row is not None else None


def every(tx: Connection) -> list[FrameworkView]:
    """All added entries, by name."""
    return [_view(row) for row in tx.execute(select(added_frameworks).order_by(added_frameworks.c.name))]


def count(tx: Connection) -> int:
    """How many entries were added."""
    return int(tx.execute(select(func.count()).select_from(added_frameworks)).scalar_one())


def put_entry(tx: Connection, entry: Framework, added_by: str, now: float) -> None:
    """Add an entry, or replace the one of this name."""
    values = {"entry": to_json_object(entry), "added_by": added_by, "added_at": now}
    put(tx, added_frameworks, {"name": entry.name}, values)


def remove(tx: Connection, name: str) -> bool:
    """Remove an entry. False: there was none of this name."""
    return tx.execute(delete(added_frameworks).where(added_frameworks.c.name == name)).rowcount == 1


def _view(row: Row[Any]) -> FrameworkView:
    return FrameworkView(from_json_object(Framework, row.entry), row.added_by, row.added_at)
