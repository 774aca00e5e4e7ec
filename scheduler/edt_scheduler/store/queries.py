"""What queries of several tables have in common.

One statement can hold a limited number of values: 65,535 in PostgreSQL's protocol, 32,766 in SQLite. The number of rows
that a caller asks for is not known here. So a query that names rows one by one is sent chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Row, Table, and_, delete, insert, literal, select, update

from edt_scheduler.store.database import BATCH_ROWS, Database, in_transactions

MOST_NAMED = 5000
"""The most row numbers that one statement names. This leaves room for the statement's other values on
both databases.
"""


def chunks(numbers: Iterable[int]) -> Iterator[list[int]]:
    """Yield each number once, in order, at most MOST_NAMED at a time. Without numbers, yield nothing."""
    wanted = sorted(set(numbers))
    for start in range(0, len(wanted), MOST_NAMED):
        yield wanted[start : start + MOST_NAMED]


def rows_of(tx: Connection, query: Any, column: ColumnElement[Any], numbers: Iterable[int]) -> list[Row[Any]]:
    """The rows of a query in which the column has one of these numbers, chunk after chunk."""
    return [row for chunk in chunks(numbers) for row in tx.execute(query.where(column.in_(chunk)))]


def write_to(tx: Connection, statement: Any, column: Column[Any], numbers: Iterable[int]) -> None:
    """Update or delete the rows in which the column has one of these numbers."""
    for chunk in chunks(numbers):
        tx.execute(statement.where(column.in_(chunk)))


def put(tx: Connection, table: Table, key: Mapping[str, Any], values: Mapping[str, Any], **first: Any) -> None:
    """Write ``values`` into the row with this key. If there is no such row, insert it, with the values in ``first`` as
    well.
    """
    here = and_(*(table.c[name] == value for name, value in key.items()))
    if tx.execute(update(table).where(here).values(**values)).rowcount == 0:
        tx.execute(insert(table).values(**key, **values, **first))


def of_attempt(table: Table, job_id: int, fence: int, node_id: int | None = None) -> ColumnElement[bool]:
    """The condition for rows of one attempt, on one node or on all nodes."""
    attempt = and_(table.c.job_id == job_id, table.c.fence == fence)
    return attempt if node_id is None else and_(attempt, table.c.node_id == node_id)


def any_row(tx: Connection, *conditions: Any) -> bool:
    """Whether a row exists for which all conditions are true."""
    return tx.execute(select(literal(1)).where(*conditions).limit(1)).first() is not None


def few_since(tx: Connection, time: ColumnElement[Any], since: float, most: int, *where: ColumnElement[bool]) -> float:
    """The earliest time from ``since`` on after which at most about ``most`` rows have their ``time``."""
    query = select(time).where(time >= since, *where).order_by(time.desc())
    found: float | None = tx.execute(query.offset(most).limit(1)).scalar()
    return since if found is None else found


def forget_until(database: Database, time: Column[Any], until: float) -> int:
    """Delete the rows whose ``time`` is not after ``until``, oldest first, about BATCH_ROWS in each transaction.

    Returns:
        The number of deleted rows.
    """

    def forget_some(tx: Connection) -> int:
        last = tx.execute(select(time).where(time <= until).order_by(time).offset(BATCH_ROWS - 1).limit(1)).scalar()
        return tx.execute(delete(time.table).where(time <= (until if last is None else last))).rowcount

    return in_transactions(database, lambda tx: any_row(tx, time <= until), forget_some)
