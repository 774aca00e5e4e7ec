"""A home and its database know each other: which two start together, which are refused, and the way out."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url, text

from edt_contract.crash_points import CrashPoint
from edt_migrations import migrate
from edt_scheduler import doctor
from edt_scheduler.decide.leader import lead
from edt_scheduler.errors import HomeForeign
from edt_scheduler.home import lost_found
from edt_scheduler.model.states import Role
from edt_scheduler.operations import accounts
from edt_scheduler.periodic.retention import remove_folders
from edt_scheduler.periodic.sweeping import Leftovers
from edt_scheduler.platform import Platform, open_platform, pairing, prepare
from edt_scheduler.platform.pairing import Known, Sight, judge
from edt_scheduler.settings import Settings
from edt_scheduler.store import home
from edt_scheduler.store.database import Database
from support.databases import SQLITE_FIRST, sqlite_first
from support.dumps import Dump, bare
from support.puppets import Clock, Stage

database_url = sqlite_first()

OLD = Sight(None, None, {1: 2, 2: 0}, {1: Known(2, False), 2: Known(0, False), 3: Known(1, True)}, is_new=False)
"""A home and a database of a release before ids."""


@pytest.mark.parametrize(
    ("sight", "why"),
    [
        (Sight(None, None), None),
        (Sight("a", None), None),
        (Sight("a", "a"), None),
        (Sight("a", "b"), "their ids differ"),
        (Sight(None, "b"), "the home has no id"),
        (Sight("a", None, {1: 0, 2: 3}), "the database is new and the home holds 2 jobs"),
        (OLD, None),
        (replace(OLD, home_id="a"), None),
        (replace(OLD, folders={1: 2, 4: 0}), None),
        (replace(OLD, folders={1: 2, 4: 1}), "the database does not know edt-4 of the home"),
        (
            replace(OLD, folders={1: 1, **dict.fromkeys(range(4, 9), 1)}),
            "the database does not know edt-4, edt-5, edt-6 and 2 more of the home",
        ),
        (replace(OLD, folders={1: 3}), "the home holds later attempts of edt-1 than the database knows"),
        (
            replace(OLD, strangers={1}),
            "the home holds attempts of edt-1 on nodes that the database never gave them",
        ),
        (replace(OLD, folders={}), "the home holds no folder of the database's 2 jobs"),
        (replace(OLD, folders={}, jobs={3: Known(1, True)}), None),
    ],
)
def test_who_belongs_together(sight: Sight, why: str | None) -> None:
    assert judge(sight) == why


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    """Of a home that lies beside its database: a test may remove, copy and replace either."""
    return Settings(home=tmp_path / "home", database_url=database_url, broker_url="")


def lived(settings: Settings) -> Path:
    """A home in which a job has trained; the job's result."""
    platform = open_platform(settings)
    stage = Stage(platform, Clock(), accounts.add_user(platform, "admin", "hash", Role.ADMIN))
    stage.node()
    job = stage.submitted()
    result = job.directory / "model" / "result.pth"
    result.write_text("weights")
    (job.directory / "spool" / "1-n1").mkdir(parents=True)
    (job.directory / "spool" / "1-n1" / "reports.jsonl").write_text('{"kind": "attempt-ended"}\n')
    stage.settle()
    platform.close()
    return result


def opened(settings: Settings) -> Platform:
    platform = open_platform(settings)
    platform.close()
    return platform


def ids(settings: Settings) -> tuple[str | None, str | None]:
    """Of the home and of the database."""
    database = Database(settings.database)
    with database.snapshot() as tx:
        found = pairing.read_id(settings), home.identity(tx)
    database.close()
    return found


def shown(url: str) -> str:
    return make_url(url).render_as_string(hide_password=True)


def test_no_password_of_the_database_is_written_or_said(tmp_path: Path) -> None:
    url = "postgresql://edt:canary-1@host/edt?password=canary-2&sslmode=require"
    place = pairing.database_place(Settings(home=tmp_path, database_url=url))
    assert place == "postgresql://edt:***@host/edt?sslmode=require"


def execute(settings: Settings, *statements: str) -> None:
    database = Database(settings.database)
    with database.transaction() as tx:
        for statement in statements:
            tx.execute(text(statement))
    database.close()


def test_the_first_start_gives_both_one_id_and_the_next_ones_keep_it(settings: Settings) -> None:
    opened(settings)
    first = ids(settings)
    assert first[0] is not None and first[0] == first[1]
    lived(settings)
    opened(settings)
    assert ids(settings) == first


def test_a_start_that_looks_while_another_one_pairs_them_is_not_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.jobs.mkdir(parents=True)
    migrate(settings.database)
    looks: list[str] = []

    def paired_after_the_first(name: str, look: Callable[..., str | None]) -> Callable[..., str | None]:
        def looked(*given: Any) -> str | None:
            looks.append(name)
            found = look(*given)
            if len(looks) == 1:
                database = Database(settings.database)
                pairing.pair(database, settings, 0.0)
                database.close()
            return found

        return looked

    with bare(settings.database).connect() as connection, monkeypatch.context() as patch:
        patch.setattr(pairing, "read_id", paired_after_the_first("home", pairing.read_id))
        patch.setattr(home, "identity", paired_after_the_first("database", home.identity))
        pairing.check(connection, settings)
    assert len(set(ids(settings))) == 1 and len(looks) > 2


@pytest.fixture(params=SQLITE_FIRST)
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """A home and a database of the last release before ids, with jobs of every kind."""
    url = f"sqlite:///{tmp_path / 'earlier.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_server").create(f"edt_earlier_{uuid.uuid4().hex}")
    dump = Dump.of("0005")
    dump.load(url)
    settings = Settings(home=tmp_path / "home", database_url=url, broker_url="")
    nodes = {node["id"]: node["name"] for node in dump.rows["nodes"]}
    for job in dump.rows["jobs"]:
        if job["deleted_at"] is None:
            ran = [item for item in dump.rows["supervisors"] if item["job_id"] == job["id"]]
            _begun(settings, job["id"], *(f"{item['fence']}-{nodes[item['node_id']]}" for item in ran))
    return settings


def _begun(settings: Settings, number: int, *spools: str) -> Path:
    """A job's folder as its attempts leave it."""
    folder = settings.jobs / f"edt-{number}"
    (folder / "spool").mkdir(parents=True)
    for spool in spools:
        (folder / "spool" / spool / "reports.jsonl").parent.mkdir()
        (folder / "spool" / spool / "reports.jsonl").write_text('{"kind": "attempt-ended"}\n')
    return folder


def test_a_home_and_a_database_of_an_earlier_release_get_one_when_their_jobs_agree(earlier: Settings) -> None:
    folders = sorted(earlier.jobs.iterdir())
    opened(earlier)
    assert len(set(ids(earlier))) == 1 and None not in ids(earlier)
    assert sorted(earlier.jobs.iterdir()) == folders


def test_another_database_of_an_earlier_release_is_refused_before_its_schema_is_touched(earlier: Settings) -> None:
    later = _begun(earlier, 999, "1-n1")
    with pytest.raises(HomeForeign, match="does not know edt-999 of the home"):
        open_platform(earlier)
    with bare(earlier.database).connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == "0005"
    assert later.exists()


def test_a_home_whose_attempts_ran_on_nodes_that_an_earlier_database_never_gave_them_is_refused(
    earlier: Settings,
) -> None:
    shutil.rmtree(earlier.jobs / "edt-4")
    _begun(earlier, 4, "1-beta")  # the database has it on alpha
    with pytest.raises(HomeForeign, match="the home holds attempts of edt-4 on nodes that the database never gave"):
        open_platform(earlier)


def test_what_was_deleted_before_a_home_and_an_earlier_database_were_paired_is_moved_and_not_removed(
    earlier: Settings,
) -> None:
    """Two platforms of one machine number jobs and name nodes alike: the folder may be of another job."""
    result = _begun(earlier, 5, "1-alpha") / "result.pth"  # the database's own edt-5 is over and deleted
    result.write_text("weights")
    platform = open_platform(earlier)
    remove_folders(platform)
    assert result.read_text() == "weights"
    Leftovers(platform).sweep()
    platform.close()
    assert not result.exists()
    assert (earlier.lost_found / "edt-5" / "edt-5" / "result.pth").read_text() == "weights"
    (entry,) = lost_found.entries(earlier)
    assert "deleted before home and database were told of each other" in entry.why


def test_a_new_database_is_refused_in_one_sentence_and_nothing_is_lost(
    settings: Settings, tmp_path: Path, postgres_url: str
) -> None:
    """From SQLite to PostgreSQL, from PostgreSQL to another one, and a file that somebody removed."""
    result = lived(settings)
    new = f"sqlite:///{tmp_path / 'new.db'}" if settings.database.startswith("sqlite") else postgres_url
    moved = [postgres_url] if settings.database.startswith("sqlite") else [f"sqlite:///{tmp_path / 'other.db'}"]
    for url in {new, *moved} - {settings.database}:
        with pytest.raises(HomeForeign) as refused:
            open_platform(settings.model_copy(update={"database_url": url}))
        message = str(refused.value)
        assert "\n" not in message and "`edt doctor --adopt`" in message
        assert f"EDT_HOME {settings.home} (id {ids(settings)[0]}, of {shown(settings.database)})" in message
        assert f"the database {shown(url)} (no id)" in message
        assert "the database is new and the home holds 1 job" in message
    assert result.read_text() == "weights"
    opened(settings)


def test_another_homes_database_is_refused_by_both_ids(settings: Settings, tmp_path: Path) -> None:
    lived(settings)
    other = Settings(home=tmp_path / "other", database_url=f"sqlite:///{tmp_path / 'other.db'}", broker_url="")
    lived(other)
    mixed = settings.model_copy(update={"database_url": other.database_url})
    with pytest.raises(HomeForeign, match="their ids differ") as refused:
        open_platform(mixed)
    message = str(refused.value)
    assert f"(id {ids(settings)[0]}, of " in message and f"(id {ids(other)[1]}, of {other.home})" in message


def test_an_empty_home_is_refused_where_the_database_knows_another(settings: Settings, tmp_path: Path) -> None:
    """A share that is not mounted, for one."""
    lived(settings)
    with pytest.raises(HomeForeign, match="the home has no id"):
        open_platform(settings.model_copy(update={"home": tmp_path / "empty"}))


def copied(settings: Settings, folder: Path) -> Settings:
    """The same home with a copy of its database as it is now, which is what restoring a dump leads to."""
    url = make_url(settings.database)
    if url.get_backend_name() == "sqlite":
        with (
            closing(sqlite3.connect(str(url.database))) as source,
            closing(sqlite3.connect(folder / "copy.db")) as copy,
        ):
            source.backup(copy)
        return settings.model_copy(update={"database_url": f"sqlite:///{folder / 'copy.db'}"})
    copy_url = url.set(database=f"{url.database}_copy")
    maintenance = url.set(database="postgres").render_as_string(hide_password=False)
    with psycopg.connect(maintenance, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {copy_url.database} TEMPLATE {url.database}")  # type: ignore[call-overload]
    return settings.model_copy(update={"database_url": copy_url.render_as_string(hide_password=False)})


def test_an_older_dump_of_its_own_database_loses_no_job_and_gives_no_number_twice(
    settings: Settings, tmp_path: Path
) -> None:
    first = lived(settings)
    older = copied(settings, tmp_path)
    platform = open_platform(settings)
    second = Stage(platform, Clock(), accounts.user(platform, "admin")).submitted()
    (second.directory / "model" / "result.pth").write_text("later")
    platform.close()

    platform = open_platform(older)
    assert Stage(platform, Clock(), accounts.user(platform, "admin")).submit() == "edt-3"
    Leftovers(platform).sweep()
    platform.close()
    assert first.read_text() == "weights"
    assert (settings.lost_found / "edt-2" / "edt-2" / "model" / "result.pth").read_text() == "later"


def test_a_start_that_dies_between_the_two_ids_is_made_good_by_the_next(settings: Settings) -> None:
    done = start("edt_scheduler", settings, EDT_CRASH=CrashPoint.HOME_ID)
    assert done.returncode == -signal.SIGKILL
    assert ids(settings)[0] is not None and ids(settings)[1] is None
    opened(settings)
    assert len(set(ids(settings))) == 1


def start(module: str, settings: Settings, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environ = {"EDT_HOME": str(settings.home), "EDT_DATABASE_URL": settings.database, "EDT_BROKER_URL": "", **environ}
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    [("edt_scheduler",), ("edt_api",), ("edt_api", "--ensure-admin"), ("edt_migrations",), ("edt_cli", "up")],
    ids=" ".join,
)
def test_every_process_that_starts_says_the_same_and_ends_with_2(tmp_path: Path, words: tuple[str, ...]) -> None:
    settings = Settings(home=tmp_path / "home", database_url="", broker_url="")
    result = lived(settings)
    for file in settings.home.glob("edt.db*"):
        file.unlink()
    done = start(words[0], settings.model_copy(update={"database_url": ""}), *words[1:], EDT_DATABASE_URL="")
    assert done.returncode == 2, done.stderr
    (message,) = done.stderr.splitlines()
    assert "do not belong together" in message and "`edt doctor --adopt`" in message
    assert result.exists()


def _die(*_: object) -> None:
    raise KeyboardInterrupt


class TestAdopting:
    @pytest.fixture
    def refused(self, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
        """A home with a job's result, and a database that is new."""
        lived(settings)
        new = settings.model_copy(update={"database_url": f"sqlite:///{tmp_path / 'new.db'}"})
        migrate(new.database)
        monkeypatch.setenv("EDT_HOME", str(new.home))
        monkeypatch.setenv("EDT_DATABASE_URL", new.database)
        return new

    def test_it_moves_the_folders_and_both_start_under_a_new_id(
        self, refused: Settings, settings: Settings, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = ids(settings)
        assert doctor.main(["--adopt"]) == 0
        assert "1 job folder moved to" in capsys.readouterr().out
        platform = open_platform(refused)
        stage = Stage(platform, Clock(), accounts.add_user(platform, "admin", "hash", Role.ADMIN))
        assert stage.submit() == "edt-2"
        platform.close()
        moved = refused.lost_found / "edt-1" / "edt-1" / "model" / "result.pth"
        assert moved.read_text() == "weights"
        assert before[0] not in ids(refused)
        with pytest.raises(HomeForeign, match="their ids differ"):
            open_platform(settings)

    def test_a_copy_of_its_own_keeps_the_folders_that_it_knows(
        self, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        result = lived(settings)
        shutil.copytree(settings.jobs / "edt-1", settings.jobs / "edt-2")
        execute(settings, "UPDATE home SET home_id = 'of an older dump'")
        monkeypatch.setenv("EDT_HOME", str(settings.home))
        monkeypatch.setenv("EDT_DATABASE_URL", settings.database)
        assert doctor.main(["--adopt", "--keep-jobs"]) == 0
        opened(settings)
        assert result.exists()
        assert [entry.name for entry in lost_found.entries(settings)] == ["edt-2"]

    def test_what_belongs_together_already_is_left_as_it_is(
        self, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        result = lived(settings)
        before = ids(settings)
        monkeypatch.setenv("EDT_HOME", str(settings.home))
        monkeypatch.setenv("EDT_DATABASE_URL", settings.database)
        assert doctor.main(["--adopt"]) == 0
        assert ids(settings) == before and result.exists()

    def test_a_database_for_which_a_scheduler_decides_is_not_even_migrated(
        self, earlier: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (earlier.home / "run").mkdir()
        monkeypatch.setenv("EDT_HOME", str(earlier.home))
        monkeypatch.setenv("EDT_DATABASE_URL", earlier.database)
        with lead(earlier):
            assert doctor.main(["--adopt"]) == 2
        assert "a scheduler decides for this home or this database" in capsys.readouterr().err
        with bare(earlier.database).connect() as connection:
            assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == "0005"

    def test_looking_tells_what_is_the_matter_and_makes_nothing(
        self, refused: Settings, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert doctor.main([]) == 1
        seen = json.loads(capsys.readouterr().out)
        assert seen["home"] == str(refused.home) and "do not belong together" in seen["problem"]
        assert (seen["home_id"], seen["database_id"]) == (ids(refused)[0], None)

    def test_a_file_that_is_no_database_yet_is_neither_made_nor_adopted(
        self, refused: Settings, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Whoever types it without the platform's EDT_DATABASE_URL means another one."""
        file = Path(refused.database.removeprefix("sqlite:///"))
        file.unlink()
        assert doctor.main(["--adopt"]) == 2
        assert f"there is no database {refused.database}" in capsys.readouterr().err
        assert doctor.main([]) == 1
        assert "no database yet" in json.loads(capsys.readouterr().out)["problem"]
        assert not file.exists() and (refused.jobs / "edt-1").exists()

    def test_one_that_dies_before_the_homes_id_leaves_the_home_to_its_own_database(
        self, refused: Settings, settings: Settings
    ) -> None:
        database = Database(refused.database)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(pairing, "_write_id", _die)
            pairing.adopt(database, refused, 0.0)
        database.close()
        with pytest.raises(HomeForeign, match="their ids differ"):
            open_platform(refused)
        opened(settings)


def test_a_start_that_finds_home_and_database_in_order_waits_for_no_writer(stage: Stage) -> None:
    settings = stage.platform.settings
    prepare(settings)
    with stage.platform.database.transaction(), ThreadPoolExecutor(1) as starting:
        starting.submit(prepare, settings).result(timeout=20)
