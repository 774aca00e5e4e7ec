"""The feed of changes: what has changed since a cursor, whoever wrote it.

Triggers write it (``edt_migrations``, 0005). What a reader must not miss is a row that becomes visible late: its
transaction began earlier and committed after the last look. On SQLite there is one writer, so ids are in the order of
commits and a cursor is an id. On PostgreSQL a cursor is the snapshot of the last look, ``xmin:xmax:running``, and new
is whatever that snapshot did not see: nothing is missed or told twice, and nobody waits for a long transaction.

Row 0 is no change: it remembers up to where the feed was pruned.
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
"""A reader that has not looked for so long begins anew. No transaction of ours lasts nearly as long."""

MOST_CHANGES = 5000
"""Who has more than this to catch up with reads everything instead."""

Change = tuple[str, int]
"""Topic and id of the row: ``("job", 7)``."""

_PRUNED = 0
_Condition = ColumnElement[bool] | TextClause


def newest(tx: Connection) -> str:
    """The cursor of this transaction's own view: what it does not see is new."""
    return _dialect(tx).newest(tx)


def since(tx: Connection, cursor: str, until: str | None = None) -> tuple[list[Change], str]:
    """What changed after ``cursor``, and up to ``until`` where that is given; each thing once, in no order.

    Also the cursor to go on with; the same one where nothing has changed. Raises CursorInvalid for what is no
    cursor, CursorTooOld where some of what came after it is not known any more, or never was by this database, or is
    too much.
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
    """The ids of one topic, in order."""
    return sorted(key for told, key in found if told == topic)


def old(tx: Connection) -> bool:
    """Whether ``prune`` has anything to do."""
    return any_row(tx, *_dialect(tx).old)


def prune(tx: Connection, most: int) -> int:
    """Forget what is older than KEPT_SECONDS by the database's own clock, ``most`` of it. Answers how many."""
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
    """The highest number (``order``) that was ever pruned. One that has not been given yet is of the server that a
    dump was taken from, and says nothing here."""
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
        """No number from here on has been given; a dump of this database restores its numbers, too."""
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
    """A cursor is a snapshot: it did not see the transactions ``running``, nor those from ``xmax`` on."""

    order: ColumnElement[Any] = changes.c.xid
    old = _older_than("extract(epoch FROM clock_timestamp())")
    _sees = "pg_visible_in_snapshot(CAST(CAST(xid AS text) AS xid8), CAST(:{0} AS pg_snapshot))"

    def end(self, tx: Connection) -> int:
        """No transaction from here on has begun. A server counts its own, so numbers out of a dump may be higher."""
        return _parted(self.newest(tx))[1]

    def newest(self, tx: Connection) -> str:
        return str(tx.execute(text("SELECT CAST(pg_current_snapshot() AS text)")).scalar_one())

    def check(self, tx: Connection, cursor: str, newest: str) -> None:
        """A snapshot with a higher ``xmax`` than the newest is of another database, or of one since restored."""
        xmin, xmax, running = _parted(cursor)
        pruned = _pruned(tx)
        seen = pruned < xmin or (pruned < xmax and pruned not in running)
        if not seen or xmax > _parted(newest)[1]:
            raise CursorTooOld(cursor)

    def between(self, begin: str, end: str) -> tuple[_Condition, ...]:
        """The first condition says less than the second, and can use the index."""
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
