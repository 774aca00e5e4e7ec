"""Fixtures of the scheduler's tests: both databases, a platform in a folder of its own, a clock that stands still."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from edt_migrations import migrate
from edt_scheduler.model.states import Role
from edt_scheduler.notify.notifier import Notifier
from edt_scheduler.operations import accounts
from edt_scheduler.platform import Platform
from edt_scheduler.settings import Settings
from edt_scheduler.store.database import Database
from support.broker import start_valkey
from support.postgres import Postgres
from support.puppets import Clock, Stage


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A real PostgreSQL server, which a test may stop, if it starts it again."""
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres(postgres_server: Postgres) -> str:
    """The URL of a migrated database ``template_edt`` on it, from which others are copied."""
    url = postgres_server.create("template_edt")
    migrate(url)
    return url


@pytest.fixture
def postgres_url(postgres: str) -> Iterator[str]:
    """A migrated, empty database."""
    maintenance = make_url(postgres).set(database="postgres").render_as_string(hide_password=False)
    name = f"edt_{uuid.uuid4().hex}"
    with psycopg.connect(maintenance, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template_edt")
    yield make_url(postgres).set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(maintenance, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "edt.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(tmp_path: Path, migrated_sqlite: Path) -> str:
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(migrated_sqlite, home / "edt.db")
    return f"sqlite:///{home / 'edt.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A migrated, empty database of each kind."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    return url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    """A platform on each database, with an admin and no broker."""
    yield from _staged(database_url, tmp_path / "home")


@pytest.fixture
def sqlite_stage(sqlite_url: str, tmp_path: Path) -> Iterator[Stage]:
    """A platform on SQLite, where the database makes no difference."""
    yield from _staged(sqlite_url, tmp_path / "home")


def _staged(url: str, home: Path) -> Iterator[Stage]:
    settings = Settings(home=home, database_url=url, broker_url="")
    for folder in (settings.jobs, settings.staged, settings.home / "run"):
        folder.mkdir(parents=True, exist_ok=True)
    database, clock = Database(url), Clock()
    platform = Platform(database, Notifier(database, clock=clock), settings, clock)
    platform.secret_key.keys()
    yield Stage(platform, clock, accounts.add_user(platform, "admin", "hash", Role.ADMIN))
    platform.close()


@pytest.fixture
def valkey() -> Iterator[str]:
    """The URL of a real broker of this test's own."""
    folder = Path(tempfile.mkdtemp(prefix="edt-vk-"))
    socket = folder / "s"
    process = start_valkey(socket)
    yield f"redis+socket://{socket}"
    process.kill()
    process.wait()
    shutil.rmtree(folder)
