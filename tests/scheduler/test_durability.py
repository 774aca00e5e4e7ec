"""What was committed is on disk: the settings of the connections that API and scheduler really write through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url, text

from edt_scheduler.platform import open_platform
from edt_scheduler.settings import Settings
from edt_scheduler.store.database import Database
from support.served_api import served

FULL = 2
"""SQLite's own word for synchronous=FULL."""


@contextmanager
def of_the_api(home: Path, url: str) -> Iterator[Database]:
    """The database as a serving API holds it."""
    with served(home, database_url=url) as api:
        yield api.platform.database


@contextmanager
def of_the_scheduler(home: Path, url: str) -> Iterator[Database]:
    """The database as ``python -m edt_scheduler`` opens it."""
    with closing(open_platform(Settings(home=home, database_url=url, broker_url=""))) as platform:
        yield platform.database


either = pytest.mark.parametrize("opened", [of_the_api, of_the_scheduler])
Opened = Callable[[Path, str], AbstractContextManager[Database]]


def answers(database: Database, question: str) -> set[object]:
    """What connections answer: one that writes and three that read beside it, each another one of the pool."""
    with ExitStack() as stack:
        connections = [stack.enter_context(database.transaction())]
        connections += [stack.enter_context(database.snapshot()) for _ in range(3)]
        return {connection.execute(text(question)).scalar_one() for connection in connections}


@either
def test_sqlite_waits_for_the_disk_at_every_commit_and_keeps_a_log(opened: Opened, tmp_path: Path) -> None:
    with opened(tmp_path / "home", "") as database:
        assert answers(database, "PRAGMA synchronous") == {FULL}
        assert answers(database, "PRAGMA journal_mode") == {"wal"}
        assert answers(database, "PRAGMA foreign_keys") == {1}


@either
@pytest.mark.parametrize(("server", "ours"), [("off", "on"), ("on", "on"), ("remote_write", "remote_write")])
def test_postgresql_waits_for_the_disk_even_where_the_server_says_that_it_need_not(
    opened: Opened, server: str, ours: str, postgres_url: str, tmp_path: Path
) -> None:
    """Where an administrator asks for more than the disk, that stands."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {make_url(postgres_url).database} SET synchronous_commit = {server}")
    with opened(tmp_path / "home", postgres_url) as database:
        assert answers(database, "SHOW synchronous_commit") == {ours}
        database.close()  # as after an outage: other connections
        assert answers(database, "SHOW synchronous_commit") == {ours}
