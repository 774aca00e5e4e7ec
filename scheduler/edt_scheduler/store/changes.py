"""The feed of changes: what has changed since a cursor, by any writer.

Triggers write the feed (``edt_migrations``, 0005). A reader must not miss a row that becomes visible late, because its
transaction began before the reader's last look and committed after it. SQLite has one writer, so ids are in the order
of commits, and a cursor is an id. On PostgreSQL a cursor is the snapshot of the last look, ``xmin:xmax:running``.
Everything that this snapshot did not see is new. So no change is missed or returned twice, and no reader waits for a
long transaction.

Row 0 is not a change. It stores up to where the feed was pruned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Connection, TextClause, delete, func, select, text

from edt_scheduler.errors import CursorInvalid, CursorTooOld
from edt_scheduler.store.queries import any_row, put
from edt_scheduler.store.tables import changes

KEPT_SECONDS = 600.0
"""For how many seconds a change is kept. A reader that has not looked for longer must begin anew. No transaction of
this project lasts nearly as long.
"""

MOST_CHANGES = 5000
"""The most changes that one answer may have. A reader that has missed more reads everything instead."""

Change = tuple[str, int]
"""Topic and id of the changed row: ``("job", 7)``."""

_PRUNED = 0
_Condition = ColumnElement[bool] | TextClause


def newest(tx: Connection) -> str:
    """The cursor of this transaction's view. Everything that this view does not see comes after the cursor."""
    return _dialect(tx).newest(tx)


def since(tx: Connection, cursor: str, until: str | None = None) -> tuple[list[Change], str]:
    """What changed after ``cursor``, and not after ``until`` if this is given. Each thing comes once, in no order.

    Returns:
        The changes as topic and id, and the cursor for the next call. The cursor is the same if nothing has changed.

    Raises:
        CursorInvalid: The text is not a cursor.
        CursorTooOld: Changes after the cursor are forgotten, the cursor is not of this database, or there are more than
            MOST_CHANGES.
    """
    feed = _dialect(tx)
    end = feed.newest(tx)
    feed.check(tx, cursor, end)
    if until is not None:
        feed.check(tx, until, end)
        end = until
    query = select(changes.c.topic, changes.c.key).where(changes.c.id != _PRUNED, *feed.between(cursor, end))
    found = [(row.topic, row.key) for row in tx.execute(query.distinct().limit(MOST_CHANGES + 1))]
    if len(found) > MOST_CHANGES:
        raise CursorTooOld(cursor)
    return found, end if found else cursor


def of(found: Iterable[Change], topic: str) -> list[int]:
    """The ids of the changed rows of one topic, in order."""
    return sorted(key for told, key in found if told == topic)


def old(tx: Connection) -> bool:
    """Whether ``prune`` has anything to do."""
    return any_row(tx, *_dialect(tx).old)


def prune(tx: Connection, most: int) -> int:
    """Delete at most ``most`` changes that are older than KEPT_SECONDS by the database's clock. Returns how many."""
    feed = _dialect(tx)
    found = tx.execute(select(changes.c.id, feed.order).where(*feed.old).order_by(feed.order).limit(most)).all()
    if not found:
        return 0
    end = feed.end(tx)
    last = max((order for _, order in found if order < end), default=None)
    forgotten = tx.execute(delete(changes).where(changes.c.id.in_([id_ for id_, _ in found]))).rowcount
    if last is not None:
        marker = {"key": max(last, _pruned(tx)), "time": 0.0}
        put(tx, changes, {"id": _PRUNED}, marker, xid=0, topic="pruned")
    return forgotten


def _pruned(tx: Connection) -> int:
    """The highest ``order`` number that was ever pruned; 0: none.

    A number that this server has not given yet comes from the server of a restored dump, and counts as 0.
    """
    told: int = tx.execute(select(changes.c.key).where(changes.c.id == _PRUNED)).scalar_one_or_none() or 0
    return told if told < _dialect(tx).end(tx) else 0


def _dialect(tx: Connection) -> _OnSqlite | _OnPostgresql:
    return _OnPostgresql() if tx.dialect.name == "postgresql" else _OnSqlite()


def _older_than(clock: str) -> tuple[_Condition, ...]:
    return changes.c.id != _PRUNED, text(f"time < {clock} - {KEPT_SECONDS}")


class _OnSqlite:
    """A cursor is the id of the newest row that was seen."""

    order: ColumnElement[Any] = changes.c.id
    old = _older_than("(julianday('now') - 2440587.5) * 86400.0")

    def end(self, tx: Connection) -> int:
        """A number that is higher than all numbers given so far. A restored dump also restores this
        database's numbers.
        """
        return 1 << 62

    def newest(self, tx: Connection) -> str:
        return str(max(tx.execute(select(func.max(changes.c.id))).scalar_one() or 0, _pruned(tx)))

    def check(self, tx: Connection, cursor: str, newest: str) -> None:
        if not re.fullmatch(r"\d{1,18}", cursor):
            raise CursorInvalid(cursor)
        if not _pruned(tx) <= int(cursor) <= int(newest):
            raise CursorTooOld(cursor)

    def between(self, begin: str, end: str) -> tuple[_Condition, ...]:
        return changes.c.id > int(begin), changes.c.id <= int(end)


class _OnPostgresql:
    """A cursor is a snapshot. It did not see the transactions in ``running``, nor those from ``xmax`` on."""

    order: ColumnElement[Any] = changes.c.xid
    old = _older_than("extract(epoch FROM clock_timestamp())")
    _sees = "pg_visible_in_snapshot(CAST(CAST(xid AS text) AS xid8), CAST(:{0} AS pg_snapshot))"

    def end(self, tx: Connection) -> int:
        """The first transaction number that has not begun. Each server counts anew, so a dump may contain higher
        numbers.
        """
        return _parted(self.newest(tx))[1]

    def newest(self, tx: Connection) -> str:
        return str(tx.execute(text("SELECT CAST(pg_current_snapshot() AS text)")).scalar_one())

    def check(self, tx: Connection, cursor: str, newest: str) -> None:
        """Refuse a snapshot whose ``xmax`` is above the newest: it is of another database, or of this one before a
        restore.
        """
        xmin, xmax, running = _parted(cursor)
        pruned = _pruned(tx)
        seen = pruned < xmin or (pruned < xmax and pruned not in running)
        if not seen or xmax > _parted(newest)[1]:
            raise CursorTooOld(cursor)

    def between(self, begin: str, end: str) -> tuple[_Condition, ...]:
        """The first condition is weaker than the second, but it can use the index."""
        return (
            changes.c.xid >= _parted(begin)[0],
            text(f"NOT {self._sees.format('begin')}").bindparams(begin=begin),
            text(self._sees.format("end")).bindparams(end=end),
        )


def _parted(snapshot: str) -> tuple[int, int, frozenset[int]]:
    match = re.fullmatch(r"(\d{1,18}):(\d{1,18}):((?:\d{1,18},)*\d{1,18})?", snapshot)
    if match is None:
        raise CursorInvalid(snapshot)
    xmin, xmax, running = match.groups(default="")
    numbers = [int(number) for number in running.split(",") if number]
    if not 1 <= int(xmin) <= int(xmax) or numbers != sorted(numbers):
        raise CursorInvalid(snapshot)
    if numbers and not int(xmin) <= numbers[0] <= numbers[-1] < int(xmax):
        raise CursorInvalid(snapshot)
    return int(xmin), int(xmax), frozenset(numbers)
