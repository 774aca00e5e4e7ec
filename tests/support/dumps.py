"""Small databases of every schema that was ever merged, with rows of every kind: ``tests/scheduler/dumps/v0003.json``.

A migration comes with the dump of the schema that it makes:

    PYTHONPATH=tests .venv/bin/python -m support.dumps

loads the newest dump, migrates it, and writes what came of it beside the others. Then rows are added by hand for what
is new (tests/scheduler/test_dumps.py says what lacks: a table without rows, a column that is always or never null).
A dump once merged is never edited, as little as the migration that it belongs to.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, LargeBinary, MetaData, Table, create_engine, insert, inspect, select, text
from sqlalchemy.pool import NullPool

from edt_migrations import database_url, migrate, revisions
from edt_scheduler.store.tables import metadata

FOLDER = Path(__file__).parents[1] / "scheduler" / "dumps"

MADE_BY_MIGRATIONS = frozenset({"alembic_version", "job_transitions"})
"""Tables whose rows are part of the schema."""
EMPTY = frozenset({"purges"})
"""Tables that no transaction may leave a row in."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Dump:
    """All rows of a database of one schema, by table; columns that hold JSON hold what the text says. In a dump's file
    bytes are hexadecimal."""

    revision: str
    rows: Mapping[str, Sequence[Row]]

    @classmethod
    def of(cls, revision: str) -> Dump:
        tables = json.loads(_path(revision).read_text())
        rows = {
            name: [_read(name, dict(zip(table["columns"], row, strict=True))) for row in table["rows"]]
            for name, table in tables.items()
        }
        return cls(revision, rows)

    def write(self) -> Path:
        """One row a line, so that a change of it can be read."""
        tables = []
        for name, rows in self.rows.items():
            columns = list(rows[0]) if rows else [column.name for column in metadata.tables[name].columns]
            lines = ",\n".join("   " + json.dumps(list(row.values()), default=bytes.hex) for row in rows)
            tables.append(f'"{name}": {{\n  "columns": {json.dumps(columns)},\n  "rows": [\n{lines}\n  ]}}')
        path = _path(self.revision)
        path.write_text("{\n" + ",\n".join(tables) + "\n}\n")
        return path

    def load(self, url: str) -> None:
        """Make the database at ``url``, which is empty, one of this schema with these rows, as a restored backup is:
        rows first, then the triggers. Foreign keys hold; numbers that the database gives go on above those here."""
        migrate(url, to=self.revision)
        with opened(url) as connection:
            tables = reflected(connection)
            with _without_triggers(connection, list(tables)):
                for name, rows in self.rows.items():
                    if rows:
                        connection.execute(insert(tables[name]), list(rows))
            if connection.dialect.name == "sqlite":
                assert connection.execute(text("PRAGMA foreign_key_check")).all() == []
            else:
                _number_on(connection, tables)


@contextmanager
def opened(url: str) -> Iterator[Connection]:
    """One transaction of the bare database, committed at the end."""
    engine = bare(url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def bare(url: str) -> Engine:
    """An engine without any setting of the store's."""
    return create_engine(database_url(url), poolclass=NullPool)


def reflected(connection: Connection) -> dict[str, Table]:
    """The tables that rows lie in, as the database has them, each behind those that it refers to."""
    found = MetaData()
    found.reflect(connection)
    known = {(table.name, column.name): column.type for table in metadata.sorted_tables for column in table.columns}
    for table in found.sorted_tables:
        for (
            column
        ) in table.columns:  # SQLite does not say of a number that it is a truth, nor of a text that it is JSON
            column.type = known.get((table.name, column.name), column.type)
    return {table.name: table for table in found.sorted_tables if table.name not in MADE_BY_MIGRATIONS | EMPTY}


def contents(url: str) -> dict[str, list[Row]]:
    """All rows by table, in the order of their keys."""
    with opened(url) as connection:
        return {
            name: [dict(row._mapping) for row in connection.execute(select(table).order_by(*table.primary_key))]
            for name, table in reflected(connection).items()
        }


@contextmanager
def _without_triggers(connection: Connection, tables: Sequence[str]) -> Iterator[None]:
    if connection.dialect.name == "postgresql":
        for name in tables:
            connection.execute(text(f"ALTER TABLE {name} DISABLE TRIGGER USER"))
        yield
        for name in tables:
            connection.execute(text(f"ALTER TABLE {name} ENABLE TRIGGER USER"))
        return
    triggers = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")).all()
    for trigger in triggers:
        connection.execute(text(f"DROP TRIGGER {trigger.name}"))
    yield
    for trigger in triggers:
        connection.exec_driver_sql(trigger.sql)


def _number_on(connection: Connection, tables: Mapping[str, Table]) -> None:
    for name in tables:
        if "id" in {column["name"] for column in inspect(connection).get_columns(name)}:
            connection.execute(
                text(
                    f"SELECT setval(sequence, (SELECT max(id) FROM {name})) "  # noqa: S608
                    f"FROM pg_get_serial_sequence('{name}', 'id') AS sequence "
                    f"WHERE sequence IS NOT NULL AND EXISTS (SELECT 1 FROM {name})"
                )
            )


def _read(table: str, row: Row) -> Row:
    known = metadata.tables.get(table)
    columns = known.columns if known is not None else ()
    held = {column.name for column in columns if isinstance(column.type, LargeBinary)}
    return {name: bytes.fromhex(value) if name in held else value for name, value in row.items()}


def _path(revision: str) -> Path:
    return FOLDER / f"v{revision}.json"


def main() -> int:
    """Write the dump of the newest schema, if there is none."""
    newest = revisions()[-1]
    if _path(newest).exists():
        sys.stderr.write(f"{_path(newest)} is there already, and a dump is never edited once it is merged\n")
        return 1
    before = Dump.of(next(revision for revision in reversed(revisions()) if _path(revision).exists()))
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/edt.db"
        before.load(url)
        migrate(url)
        rows = contents(url)
    fed = {row["id"] for row in before.rows.get("changes", ())}
    rows["changes"] = [row for row in rows["changes"] if row["id"] in fed]  # the migration's own bear today's time
    print(f"{Dump(newest, rows).write()} is written; add rows for what is new in it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
