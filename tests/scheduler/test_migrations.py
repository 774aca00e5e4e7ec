"""The schema's history: from empty to what the code expects, on both databases."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import CheckConstraint, create_engine, inspect, make_url, text

from edt_migrations import DatabaseTooNew, at_head, migrate, revisions
from edt_migrations.__main__ import main
from edt_scheduler.store.database import Database
from edt_scheduler.store.tables import metadata
from support.dumps import Dump, contents


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without a table."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    server = make_url(request.getfixturevalue("postgres"))
    engine = create_engine(server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("CREATE DATABASE edt_empty"))
    yield server.set(database="edt_empty").render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(text("DROP DATABASE edt_empty WITH (FORCE)"))
    engine.dispose()


def test_the_steps_from_empty_give_what_the_code_expects(empty_url: str) -> None:
    migrate(empty_url)
    database = Database(empty_url)
    with database.snapshot() as tx:
        context = MigrationContext.configure(tx, opts={"compare_server_default": True})
        assert compare_metadata(context, metadata) == []
        inspector = inspect(tx)
        for table in metadata.sorted_tables:
            expected = {str(c.name) for c in table.constraints if isinstance(c, CheckConstraint)}
            assert {c["name"] for c in inspector.get_check_constraints(table.name)} == expected
    database.close()


def test_migrating_again_changes_no_row(empty_url: str) -> None:
    Dump.of(revisions()[-1]).load(empty_url)
    before = contents(empty_url)
    migrate(empty_url)
    assert contents(empty_url) == before


def test_many_may_migrate_at_once(empty_url: str) -> None:
    failed: list[Exception] = []

    def one() -> None:
        try:
            migrate(empty_url)
        except Exception as error:
            failed.append(error)

    several = [threading.Thread(target=one) for _ in range(4)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()
    assert failed == []


def test_whoever_opens_a_new_database_waits_for_another_that_migrates_it(tmp_path: Path) -> None:
    """SQLite itself would refuse at once: opened for the first time, the database begins to keep a log."""
    migrate(url := f"sqlite:///{tmp_path / 'new.db'}")
    database = Database(url)

    def opened() -> int:
        with database.snapshot() as tx:
            return len(tx.execute(text("SELECT * FROM users")).all())

    with closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as another, ThreadPoolExecutor() as pool:
        another.execute("BEGIN IMMEDIATE")
        opening = pool.submit(opened)
        assert wait([opening], 0.3).not_done, opening.exception()
        another.execute("ROLLBACK")
        assert opening.result() == 0
    database.close()


def test_a_database_newer_than_the_code_is_refused_and_left_as_it_is(
    empty_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    migrate(empty_url)
    database = Database(empty_url)
    with database.transaction() as tx:
        tx.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseTooNew, match="schema 9999"):
        migrate(empty_url)
    assert main([empty_url]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with database.snapshot() as tx:
        assert tx.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == "9999"
    database.close()


def test_what_is_no_database_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"sqlite:///{tmp_path / 'nowhere' / 'edt.db'}"]) == 2
    assert main(["no url at all"]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_looking_at_the_schema_changes_nothing(empty_url: str) -> None:
    assert not at_head(empty_url)
    assert not at_head(empty_url)
    migrate(empty_url)
    assert at_head(empty_url)


def test_a_look_changes_nothing_and_says_whether_the_schema_is_the_newest(
    empty_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--look", empty_url]) == 2
    assert "does not have the newest schema" in capsys.readouterr().err
    assert not at_head(empty_url)
    migrate(empty_url)
    assert main(["--look", empty_url]) == 0


def test_a_look_that_waits_ends_when_somebody_has_migrated(empty_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(main, ["--look", "--wait", "60", empty_url])
        assert not wait([looking], timeout=0.5).done
        migrate(empty_url)
        assert looking.result(30) == 0
    assert capsys.readouterr().err.count("\n") == 1  # said once, however often it has looked


def test_a_database_that_does_not_answer_is_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path / 'later' / 'edt.db'}"
    with ThreadPoolExecutor(1) as pool:
        migrating = pool.submit(main, ["--wait", "60", url])
        assert not wait([migrating], timeout=0.5).done
        (tmp_path / "later").mkdir()
        assert migrating.result(30) == 0
    assert at_head(url)
    assert capsys.readouterr().err.count("\n") == 1
