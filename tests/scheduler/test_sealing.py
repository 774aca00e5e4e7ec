"""Environments of jobs at rest: sealed, erased with their job, and what happens without the key."""

from __future__ import annotations

import os
import sqlite3
import stat
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import select, text, update

from edt_contract.reports import ExitKind
from edt_scheduler import doctor
from edt_scheduler.errors import SecretKeyUnusable, SubmissionInvalid
from edt_scheduler.home.secret_key import KeyFile
from edt_scheduler.model.idempotency import IdempotentRequest
from edt_scheduler.model.states import JobState
from edt_scheduler.operations import accounts, agents, execs
from edt_scheduler.platform import Platform, open_platform, prepare, sealing
from edt_scheduler.settings import Settings
from edt_scheduler.store import environs, tables
from support.dumps import Dump, opened
from support.postgres import Postgres
from support.puppets import Stage

SECRET = "canary-of-an-environment"
ENVIRON = {"TOKEN": SECRET, "NAME_THAT_TELLS": "x"}


def rows(platform: Platform) -> list[dict[str, Any]]:
    with platform.database.snapshot() as tx:
        return [dict(row._mapping) for row in tx.execute(select(tables.job_environs))]


def written(platform: Platform) -> str:
    """Every row of every table."""
    with platform.database.snapshot() as tx:
        return "\n".join(
            str(tuple(row)) for table in tables.metadata.sorted_tables for row in tx.execute(select(table))
        )


def spec(stage: Stage, node: str = "n1") -> dict[str, str]:
    (assignment,) = agents.assignments(stage.platform, node).assignments
    return dict(assignment.spec.environ)


def replace_key(platform: Platform, *keys: bytes) -> None:
    platform.secret_key.path.write_bytes(b"# ours\n" + b"".join(key + b"\n" for key in keys))


class TestSealed:
    def test_names_and_values_reach_the_agent_and_lie_in_no_row(self, stage: Stage) -> None:
        stage.node()
        stage.submit(environ=ENVIRON)
        stage.settle(lambda: bool(agents.assignments(stage.platform, "n1").assignments))
        found = written(stage.platform)
        assert SECRET not in found and "NAME_THAT_TELLS" not in found
        assert ENVIRON.items() <= spec(stage).items()

    def test_a_job_without_variables_needs_no_row(self, sqlite_stage: Stage) -> None:
        sqlite_stage.submit()
        assert rows(sqlite_stage.platform) == []

    @pytest.mark.parametrize("end", ["finished", "stopped", "deleted"])
    def test_it_is_erased_as_soon_as_nothing_of_its_job_can_start(self, stage: Stage, end: str) -> None:
        node = stage.node()
        job = stage.submit(environ=ENVIRON)
        stage.settle()
        assert len(rows(stage.platform)) == 1
        if end == "finished":
            node.end((job, 1), ExitKind.FINISHED)
        elif end == "stopped":
            execs.stop(stage.platform, job, viewer=stage.admin)
        else:
            execs.delete(stage.platform, job, viewer=stage.admin)
        assert rows(stage.platform) == []
        agents.assignments(stage.platform, "n1")  # whose supervisor is told to go, without its environment

    def test_one_that_is_copied_to_another_job_ends_that_job_and_nothing_else(self, sqlite_stage: Stage) -> None:
        platform = sqlite_stage.platform
        other, job = sqlite_stage.submit(environ=ENVIRON), sqlite_stage.submit(environ={"A": "b"})
        taken = rows(platform)[0]["sealed"]
        with platform.database.transaction() as tx:
            tx.execute(update(tables.job_environs).where(tables.job_environs.c.job_id == 2).values(sealed=taken))
        sqlite_stage.node()
        sqlite_stage.settle()
        ended = sqlite_stage.job(job)
        assert ended.state is JobState.ERROR and "was sealed for edt-1" in str(ended.message)
        assert sqlite_stage.job(other).fence == 1

    def test_an_error_about_a_value_does_not_repeat_it(self, sqlite_stage: Stage) -> None:
        with pytest.raises(SubmissionInvalid) as refused:
            sqlite_stage.submit(environ={"EDT_SEED": SECRET})
        assert SECRET not in str(refused.value)

    def test_what_stands_for_a_request_cannot_be_guessed_without_the_key(self, sqlite_stage: Stage) -> None:
        keys = sqlite_stage.platform.secret_key.keys()
        sealed, plain = IdempotentRequest.of("k", "args", keyed=keys.keyed), IdempotentRequest.of("k", "args")
        assert sealed == IdempotentRequest.of("k", "args", keyed=keys.keyed) != plain


class TestWithoutTheKey:
    def test_a_job_waits_and_says_for_which_key_and_others_go_on(self, stage: Stage) -> None:
        platform = stage.platform
        locked, other = stage.submit(environ=ENVIRON), stage.submit()
        right = platform.secret_key.path.read_bytes().strip()
        missing = platform.secret_key.keys().ids[0]
        replace_key(platform, Fernet.generate_key())
        stage.node()
        stage.settle()
        waiting = stage.job(locked).waiting
        assert waiting is not None and waiting.blocking == "key"
        assert missing in waiting.reason and platform.secret_key.keys().ids[0] in waiting.reason
        assert str(platform.secret_key.path) in waiting.reason
        assert stage.job(other).fence == 1
        replace_key(platform, Fernet.generate_key(), right)  # put back as a second line, while everything runs
        stage.settle()
        assert stage.job(locked).fence == 1

    def test_what_runs_of_it_is_left_alone_and_can_still_be_stopped(self, sqlite_stage: Stage) -> None:
        sqlite_stage.node()
        job = sqlite_stage.submit(environ=ENVIRON)
        sqlite_stage.settle()
        replace_key(sqlite_stage.platform, Fernet.generate_key())
        platform = replace(sqlite_stage.platform)  # the API was started again, and has never read the old key
        assignments = agents.assignments(platform, "n1")
        assert assignments.assignments == () and assignments.locked == ((job, 1),)
        execs.stop(platform, job, viewer=sqlite_stage.admin)
        assignments = agents.assignments(platform, "n1")
        assert [each.desired.stop for each in assignments.assignments] == [True] and assignments.locked == ()

    def test_the_start_says_which_jobs(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        settings = Settings(home=tmp_path / "home", broker_url="")
        Dump.of("0011").load(self._placed(settings))
        prepare(settings)
        assert "edt-2 cannot start" in caplog.text and "0f1e2d3c4b5a" in caplog.text

    def _placed(self, settings: Settings) -> str:
        settings.home.mkdir()
        (settings.home / "home-id").write_text("6f1c2a58-0d1e-4b7c-9a42-7c1d5e8f9b01\n")
        return settings.database

    def test_a_row_that_is_damaged_keeps_nothing_from_starting_and_no_other_from_being_sealed(
        self, stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sealing, "CHUNK", 2)
        platform, table = stage.platform, tables.job_environs
        for _ in range(5):
            stage.submit(environ=ENVIRON)
        with platform.database.transaction() as tx:
            tx.execute(update(table).where(table.c.job_id.in_([1, 2, 4])).values(sealed="gAAAA"))
        replace_key(platform, Fernet.generate_key(), platform.secret_key.path.read_bytes().strip())
        keys = platform.secret_key.keys()
        assert sealing.seal_all(platform.database, keys) == 2
        assert {row["job_id"] for row in rows(platform) if row["key_id"] == keys.ids[0]} == {3, 5}
        logged = [message for message in caplog.messages if "is damaged" in message]
        assert [message.split()[3] for message in logged] == ["edt-1", "edt-2", "edt-4"]


class TestTheFile:
    @pytest.mark.parametrize("held", ["", "not a key\n", None])
    def test_while_it_cannot_be_used_the_keys_that_were_read_go_on_counting(
        self, stage: Stage, caplog: pytest.LogCaptureFixture, held: str | None
    ) -> None:
        platform, path = stage.platform, stage.platform.secret_key.path
        right = path.read_bytes()
        stage.node()
        job = stage.submit(environ=ENVIRON)
        if held is None:
            path.unlink()
        else:
            path.write_text(held)
        stage.settle()
        assert stage.job(job).fence == 1 and ENVIRON.items() <= spec(stage).items()
        stage.submit(environ=ENVIRON)
        logged = [message for message in caplog.messages if "the keys count that were read before" in message]
        assert len(logged) == 1 and str(path) in logged[0]
        with caplog.at_level("INFO"):
            path.write_bytes(right)
            platform.secret_key.keys()
        assert f"the secret key {path} can be used again" in caplog.messages

    def test_who_is_opened_has_read_it_and_needs_it_no_more(self, tmp_path: Path) -> None:
        platform = open_platform(Settings(home=tmp_path / "home", broker_url=""))
        platform.secret_key.path.write_text("")
        assert len(platform.secret_key.keys().ids) == 1
        platform.close()

    def test_a_node_that_fetches_its_list_waits_for_no_file_of_the_home(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        platform, looks = stage.platform, list[str]()
        stage.node()
        stage.submit(environ=ENVIRON)
        stage.settle()
        for name in ("stat", "lstat", "open", "scandir", "listdir"):
            does = getattr(os, name)

            def noted(path: Any, *given: Any, does: Any = does, **named: Any) -> Any:
                if str(path).startswith(str(platform.settings.home)):
                    looks.append(str(path))
                return does(path, *given, **named)

            monkeypatch.setattr(os, name, noted)
        assert spec(stage)["TOKEN"] == SECRET
        assert looks == []
        with platform.database.transaction() as tx:  # sealed by another process, with a key that was added meanwhile
            added = Fernet.generate_key()
            replace_key(platform, added, platform.secret_key.path.read_bytes().strip())
            environs.seal(tx, 1, {"TOKEN": "new"}, KeyFile(platform.settings).keys())
        looks.clear()
        assert spec(stage)["TOKEN"] == "new" and str(platform.secret_key.path) in looks
        looks.clear()
        assert spec(stage)["TOKEN"] == "new" and looks == []

    def test_it_is_made_once_by_whoever_comes_first_for_this_user_alone(self, tmp_path: Path) -> None:
        settings = Settings(home=tmp_path, broker_url="")
        with ThreadPoolExecutor(8) as pool:
            found = set(pool.map(lambda _: KeyFile(settings).keys().ids, range(8)))
        assert len(found) == 1
        assert stat.S_IMODE((tmp_path / "secret-key").stat().st_mode) == 0o600
        assert [path.name for path in tmp_path.iterdir()] == ["secret-key"]

    def test_one_that_is_named_is_never_made(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EDT_SECRET_KEY_FILE", str(tmp_path / "elsewhere"))
        with pytest.raises(SecretKeyUnusable, match="elsewhere cannot be used: No such file"):
            KeyFile(Settings(home=tmp_path, broker_url="")).keys()

    @pytest.mark.parametrize("held", ["", "# none\n", "not a key\n", "c2hvcnQ=\n"])
    def test_what_is_no_key_is_refused_without_being_shown(self, tmp_path: Path, held: str) -> None:
        (tmp_path / "secret-key").write_text(held)
        with pytest.raises(SecretKeyUnusable) as refused:
            KeyFile(Settings(home=tmp_path, broker_url="")).keys()
        assert "c2hvcnQ" not in str(refused.value) and "not a key" not in str(refused.value)

    def test_after_a_new_key_all_is_sealed_anew_and_the_old_one_is_needed_no_longer(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("EDT_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("EDT_BROKER_URL", "")
        platform = open_platform(Settings())
        stage = Stage(platform, lambda: 0.0, accounts.add_user(platform, "admin", "hash"))  # type: ignore[arg-type]
        stage.submit(environ=ENVIRON)
        old, new = platform.secret_key.path.read_bytes().strip(), Fernet.generate_key()
        before = platform.secret_key.keys().ids[0]
        replace_key(platform, new, old)
        assert doctor.main(["--seal"]) == 0
        output = capsys.readouterr().out
        assert "1 environment sealed anew" in output and f"needs {before} no longer" in output
        replace_key(platform, new)
        stage.node()
        stage.settle()
        assert spec(stage)["TOKEN"] == SECRET
        platform.close()


class TestLooking:
    def test_it_counts_what_the_newest_key_has_not_sealed_and_names_keys_that_nothing_needs(
        self, sqlite_stage: Stage
    ) -> None:
        platform = sqlite_stage.platform
        sqlite_stage.submit(environ=ENVIRON)
        old, new = platform.secret_key.path.read_bytes().strip(), Fernet.generate_key()
        before = platform.secret_key.keys().ids[0]
        replace_key(platform, new, old)
        ids = list(platform.secret_key.keys().ids)
        shown = {"file": str(platform.secret_key.path), "ids": ids, "sealed": 1, "problem": None}
        assert doctor.look(platform.settings)["secret_key"] == {**shown, "older": 1, "unneeded": []}
        sealing.seal_all(platform.database, platform.secret_key.keys())
        assert doctor.look(platform.settings)["secret_key"] == {**shown, "older": 0, "unneeded": [before]}

    def test_a_key_that_is_not_there_is_named_and_never_made(
        self, tmp_path: Path, sqlite_stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self._problem(Settings(home=tmp_path / "new", broker_url="")) is None, "the first start makes it"
        assert not (tmp_path / "new").exists()
        platform = sqlite_stage.platform
        sqlite_stage.submit(environ=ENVIRON)
        platform.secret_key.path.unlink()
        named = f"the secret key {platform.secret_key.path} cannot be used: No such file"
        assert named in str(self._problem(platform.settings))
        monkeypatch.setenv("EDT_HOME", str(platform.settings.home))
        monkeypatch.setenv("EDT_DATABASE_URL", platform.settings.database)
        assert doctor.main(["--seal"]) == 2 and named in capsys.readouterr().err
        assert not platform.secret_key.path.exists()

    def _problem(self, settings: Settings) -> object:
        found = doctor.look(settings)["secret_key"]
        assert isinstance(found, dict)
        return found["problem"]


class TestEarlierReleases:
    def test_their_rows_are_sealed_and_nothing_is_left_in_the_files_of_sqlite(self, tmp_path: Path) -> None:
        settings = Settings(home=tmp_path / "home", broker_url="")
        settings.home.mkdir()
        (settings.home / "home-id").write_text("6f1c2a58-0d1e-4b7c-9a42-7c1d5e8f9b01\n")
        Dump.of("0010").load(settings.database)
        with sqlite3.connect(settings.home / "edt.db") as bare:  # what a running platform leaves behind: freed pages
            bare.execute("UPDATE jobs SET environ = json_object('TOKEN', ?) WHERE id = 2", (SECRET * 900,))
            bare.commit()
            bare.execute("UPDATE jobs SET environ = json_object('TOKEN', ?) WHERE id = 2", (SECRET,))
        bare.close()
        assert SECRET.encode() in self._files(settings)
        prepare(settings)
        found = self._files(settings)
        assert SECRET.encode() not in found and b"s3cret" not in found
        platform = open_platform(settings)
        keys = platform.secret_key.keys()
        assert {row["job_id"]: row["key_id"] for row in rows(platform)} == {2: keys.ids[0], 3: keys.ids[0]}
        (listed,) = (a for a in agents.assignments(platform, "alpha").assignments if a.spec.job == "edt-3")
        assert listed.spec.environ["TOKEN"] == "s3cret"
        platform.close()

    def test_their_rows_are_sealed_and_nothing_is_left_in_the_files_of_postgresql(
        self, postgres_server: Postgres, tmp_path: Path
    ) -> None:
        url = postgres_server.create(f"edt_{uuid.uuid4().hex}")
        settings = Settings(home=tmp_path / "home", broker_url="", database_url=url)
        settings.home.mkdir()
        (settings.home / "home-id").write_text("6f1c2a58-0d1e-4b7c-9a42-7c1d5e8f9b01\n")
        Dump.of("0010").load(url)
        assert self._lies_in_the_files_of(url, ["jobs"])
        prepare(settings)
        assert not self._lies_in_the_files_of(url, ["jobs", "job_environs"])
        platform = open_platform(settings)
        assert "s3cret" not in written(platform)
        assert [row["job_id"] for row in rows(platform)] == [3]
        platform.close()

    def _lies_in_the_files_of(self, url: str, names: list[str]) -> bool:
        with opened(url) as connection:
            connection.execute(text("CHECKPOINT"))
            look = text("SELECT position('s3cret'::bytea IN pg_read_binary_file(pg_relation_filepath(:name)))")
            return any(connection.execute(look, {"name": name}).scalar_one() for name in names)

    def _files(self, settings: Settings) -> bytes:
        return b"".join(path.read_bytes() for path in settings.home.glob("edt.db*"))
