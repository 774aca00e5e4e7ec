"""The tables of a home, read in one transaction. SQLite and PostgreSQL, by their own drivers; nothing is written."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

Row = Mapping[str, Any]
_TABLES = {
    "jobs": "id",
    "job_events": "job_id, seq",
    "attempts": "job_id, fence",
    "supervisors": "job_id, fence, node_id",
    "allocations": "id",
    "resizes": "id",
    "nodes": "id",
    "slots": "node_id, position",
    "outbox": "id",
}
_JSON = {"data", "arguments", "progress", "waiting"}


class Unreachable(Exception):
    """The database could not be asked just now. That is no violation: it may have been killed a moment ago."""


@dataclass(frozen=True)
class Picture:
    """All rows of one instant."""

    tables: Mapping[str, Sequence[Row]]

    def __getitem__(self, table: str) -> Sequence[Row]:
        return self.tables[table]

    @cached_property
    def jobs(self) -> Mapping[int, Row]:
        return {row["id"]: row for row in self["jobs"]}

    @cached_property
    def nodes(self) -> Mapping[int, Row]:
        return {row["id"]: row for row in self["nodes"]}

    @cached_property
    def events(self) -> Mapping[int, Sequence[Row]]:
        """Each job's history in the order of its numbers."""
        return self._by_job("job_events")

    @cached_property
    def attempts(self) -> Mapping[int, Sequence[Row]]:
        """Each job's attempts, oldest first."""
        return self._by_job("attempts")

    def _by_job(self, table: str) -> Mapping[int, Sequence[Row]]:
        found: dict[int, list[Row]] = defaultdict(list)
        for row in self[table]:
            found[row["job_id"]].append(row)
        return found

    def attempt(self, job: int, fence: int) -> Row | None:
        return next((row for row in self.attempts.get(job, ()) if row["fence"] == fence), None)

    @cached_property
    def open(self) -> Sequence[Row]:
        """Allocations that were not released."""
        return [row for row in self["allocations"] if row["released_at"] is None]


def read(url: str) -> Picture:
    """The picture of this instant. Raises Unreachable."""
    try:
        tables = dict(_sqlite(Path(url.removeprefix("sqlite:///"))) if url.startswith("sqlite") else _postgresql(url))
    except (sqlite3.Error, psycopg.Error) as error:
        raise Unreachable(str(error).strip() or type(error).__name__) from None
    return Picture(tables)


def _sqlite(path: Path) -> Iterator[tuple[str, list[Row]]]:
    if not path.exists():
        raise Unreachable(f"{path} is not there")
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5, isolation_level=None)
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")
        for table, order in _TABLES.items():
            rows = connection.execute(f"SELECT * FROM {table} ORDER BY {order}").fetchall()  # noqa: S608
            yield table, [{name: _value(name, row[name]) for name in row.keys()} for row in rows]  # noqa: SIM118
    finally:
        connection.close()


def _postgresql(url: str) -> Iterator[tuple[str, list[Row]]]:
    plain = "postgresql://" + url.split("://", 1)[1]  # without SQLAlchemy's word for the driver
    with psycopg.connect(plain, connect_timeout=3, row_factory=dict_row) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        for table, order in _TABLES.items():
            query = f"SELECT * FROM {table} ORDER BY {order}"  # noqa: S608
            yield table, connection.execute(query).fetchall()  # type: ignore[call-overload]


def _value(name: str, value: Any) -> Any:
    return json.loads(value) if name in _JSON and isinstance(value, str) else value
