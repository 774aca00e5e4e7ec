"""The database goes away and comes back: who asks is told so, nothing is lost or done twice, nobody has to be started
again. Real servers, stopped the hard way."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest
from sqlalchemy import event, make_url, text

from edt_api import main
from edt_scheduler.decide.leader import LEADER_LOCK
from edt_scheduler.errors import DatabaseUnavailable, OutcomeUnknown
from edt_scheduler.model.states import Health, JobState, Role
from edt_scheduler.notify.notifier import Notifier
from edt_scheduler.operations import accounts, execs, fleet, history
from edt_scheduler.platform import Platform, open_platform
from edt_scheduler.settings import Settings
from edt_scheduler.store import database as store
from edt_scheduler.store import nodes
from edt_scheduler.store.database import Database, retried
from support.postgres import Postgres
from support.puppets import Clock, Stage
from support.served_api import ARGS, EXECS, ServedApi, served
from support.waiting import until

SCRIPT = {"file": ("main.py", b"print('hello')\n")}


def submit(client: httpx.Client, key: str | None = None, args: str = ARGS) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return client.post(EXECS, params={"args": args}, files=SCRIPT, headers=headers)


def _execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[call-overload]


@contextmanager
def stopped(server: Postgres) -> Iterator[None]:
    """It is down until the block ends, and serves again after it, however that ended."""
    server.stop()
    try:
        yield
    finally:
        until(server.start, 60)


def exist(api: ServedApi) -> list[str]:
    return [job.exec_id for job in execs.jobs(api.platform, viewer=accounts.user(api.platform, "ana"))]


class Wire:
    """A unix socket on the way to a server that is cut when a write transaction commits, if it is told to be.

    Not by just any: an API also says every few seconds that it serves, and clears away notifications.
    """

    def __init__(self, url: str) -> None:
        where = make_url(url)
        self._target = f"{where.query['host']}/.s.PGSQL.5432"
        self._folder = Path(tempfile.mkdtemp(prefix="edt-wire-"))
        self.url = where.update_query_dict({"host": str(self._folder)}).render_as_string(hide_password=False)
        self.cut: str = ""
        """``before``: the next COMMIT does not reach the server; ``after``: its answer does not come back."""
        self.which = b""
        """What the transaction that is meant has said to the server."""
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self._folder / ".s.PGSQL.5432"))
        self._listening.listen(64)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        (self._folder / ".s.PGSQL.5432").unlink()
        self._folder.rmdir()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        with client, server:
            try:
                server.connect(self._target)
                threading.Thread(target=self._back, args=(server, client), daemon=True).start()
                received = b""
                while data := client.recv(1 << 16):
                    received = data if b"BEGIN" in data else received + data
                    meant = b"READ ONLY" not in received and self.which in received
                    how = self.cut if b"COMMIT\0" in data and meant else ""
                    if how:
                        self.cut = ""
                    if how == "before":
                        break
                    if how == "after":
                        client.shutdown(socket.SHUT_RD)
                        self._cut_off = client
                    server.sendall(data)
                    if how == "after":
                        time.sleep(0.2)  # the server has committed
                        break
                server.shutdown(socket.SHUT_RDWR)
                client.shutdown(socket.SHUT_RDWR)
            except OSError:
                """Either end has gone."""

    _cut_off: socket.socket | None = None

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(1 << 16):
                if client is not self._cut_off:
                    client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)
        except OSError:
            """Either end has gone."""


@pytest.fixture
def wire(postgres_url: str) -> Iterator[Wire]:
    wire = Wire(postgres_url)
    yield wire
    wire.close()


@pytest.fixture
def postgres_api(postgres_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(tmp_path / "home", database_url=postgres_url) as api:
        yield api


class TestAServerThatIsRestarted:
    def test_every_answer_is_a_job_or_a_503_and_a_key_makes_one_job_of_many_tries(
        self, postgres_server: Postgres, postgres_api: ServedApi
    ) -> None:
        api, client = postgres_api, postgres_api.client("ana")
        acknowledged: list[str] = []
        odd: list[httpx.Response] = []
        away = 0
        going = True

        def keep_submitting() -> None:
            nonlocal away
            while going:
                key = uuid.uuid4().hex
                while (answer := submit(client, key)).status_code != 200:
                    away += 1
                    if answer.status_code != 503 or "Retry-After" not in answer.headers:
                        odd.append(answer)
                    time.sleep(0.02)
                acknowledged.append(answer.json()["id"])

        def some_more() -> None:
            count = len(acknowledged)
            until(lambda: len(acknowledged) > count + 3)

        users = [threading.Thread(target=keep_submitting) for _ in range(3)]
        for user in users:
            user.start()
        try:
            for _ in range(2):
                some_more()
                with stopped(postgres_server):
                    until(lambda: client.get("/readyz").status_code == 503)
                    assert "does not answer" in client.get("/readyz").json()["database"]
                    until(lambda seen=away: away > seen)
                until(lambda: client.get("/readyz").status_code == 200)
            some_more()
        finally:
            going = False
            for user in users:
                user.join()
        assert odd == []
        assert sorted(acknowledged) == sorted(exist(api))
        assert len(set(acknowledged)) == len(acknowledged)

    def test_sessions_that_the_server_ends_are_opened_again_unnoticed(
        self, postgres: str, postgres_api: ServedApi
    ) -> None:
        client = postgres_api.client("ana")
        name = make_url(postgres_api.settings.database).database
        for _ in range(3):
            assert submit(client).status_code == 200
            _execute(
                postgres,
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "  # noqa: S608
                f"WHERE datname = '{name}'",
            )  # and they are gone, not just told to
        assert len(exist(postgres_api)) == 3

    def test_ours_and_wmlas_surface_both_say_so_in_their_own_words(
        self, postgres_server: Postgres, postgres_api: ServedApi
    ) -> None:
        client = postgres_api.client("ana")
        with stopped(postgres_server):
            ours, wmla = client.get("/api/v1/jobs"), client.get(EXECS)
        assert (ours.status_code, wmla.status_code) == (503, 503)
        assert ours.headers["content-type"] == "application/problem+json"
        assert ours.json()["code"] == "database-unavailable"
        assert wmla.text.startswith("Error 503: the database does not answer")
        assert ours.headers["retry-after"] == wmla.headers["retry-after"] == "1"

    def test_a_start_without_a_database_is_one_sentence(
        self, postgres_server: Postgres, postgres_url: str, tmp_path: Path
    ) -> None:
        with stopped(postgres_server), pytest.raises(DatabaseUnavailable, match="does not answer"):
            open_platform(Settings(home=tmp_path / "home", database_url=postgres_url, broker_url=""))


class TestAConnectionLostDuringCommit:
    @pytest.mark.parametrize("cut", ["before", "after"])
    def test_nobody_knows(self, wire: Wire, cut: str) -> None:
        database = Database(wire.url)
        with pytest.raises(OutcomeUnknown), database.transaction() as tx:
            tx.execute(text("SELECT 1"))
            wire.cut = cut
        with database.transaction() as tx:
            assert tx.execute(text("SELECT 1")).scalar() == 1
        database.close()

    @pytest.mark.parametrize("cut", ["before", "after"])
    def test_a_submit_finds_out_and_is_one_job_with_its_code(self, wire: Wire, tmp_path: Path, cut: str) -> None:
        with served(tmp_path / "home", database_url=wire.url) as api:
            client = api.client("ana")
            submit(client)
            wire.cut, wire.which = cut, b"INSERT INTO jobs"
            answer = submit(client)
            assert wire.cut == ""
            assert answer.status_code == 200, answer.text
            assert len(exist(api)) == 2
            folder = api.settings.job_directory(answer.json()["id"])
            assert (folder / "_submitted_code" / "main.py").read_text() == "print('hello')\n"
            assert list(api.settings.staged.iterdir()) == []

    @pytest.mark.parametrize("cut", ["before", "after"])
    def test_a_stop_is_asked_for_again(self, wire: Wire, tmp_path: Path, cut: str) -> None:
        with served(tmp_path / "home", database_url=wire.url) as api:
            job = api.submit()
            wire.cut, wire.which = cut, b"UPDATE jobs"
            assert api.client("ana").post(f"{EXECS}/{job.exec_id}/stop").status_code == 204
            assert wire.cut == ""
            viewer = accounts.user(api.platform, "ana")
            assert execs.job(api.platform, job.exec_id, viewer=viewer).state is JobState.KILLED
            seqs = [each.seq for each in history.events(api.platform, job.exec_id, viewer=viewer)]
            assert seqs == list(range(1, len(seqs) + 1))

    def test_what_is_not_the_same_when_done_twice_is_left_to_who_asked(self, wire: Wire, tmp_path: Path) -> None:
        with served(tmp_path / "home", database_url=wire.url) as api:
            wire.cut, wire.which = "after", b"INSERT INTO users"
            new = {"name": "carl", "password": "a good password"}
            answer = api.client("admin").post("/api/v1/users", json=new)
            assert wire.cut == ""
            assert (answer.status_code, answer.json()["code"]) == (503, "outcome-unknown")


class TestTryingAgain:
    @pytest.mark.parametrize("code", ["40001", "40P01", "57P01"])
    def test_what_the_server_refused_before_the_commit_is_begun_again(self, postgres_url: str, code: str) -> None:
        database = Database(postgres_url)
        tries = []

        @retried(if_done=False)
        def use_case() -> str:
            with database.transaction() as tx:
                tries.append(1)
                if len(tries) < 3:
                    tx.execute(text(f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $$"))
                return "done"

        assert use_case() == "done"
        assert len(tries) == 3
        database.close()

    def test_a_mistake_of_ours_is_not(self, postgres_url: str) -> None:
        database = Database(postgres_url)
        tries = []

        @retried(if_done=True)
        def use_case() -> None:
            with database.transaction() as tx:
                tries.append(1)
                tx.execute(text("SELECT * FROM nowhere"))

        with pytest.raises(Exception, match="nowhere"):
            use_case()
        assert len(tries) == 1
        database.close()


class TestAWriterThatStandsStill:
    def test_its_session_is_ended_and_the_others_go_on(
        self, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store, "STUCK_SECONDS", 1)
        stopped, other = Database(postgres_url), Database(postgres_url)
        with pytest.raises(DatabaseUnavailable), stopped.transaction() as tx:
            with other.transaction():
                """It has waited for the server to put the first one out."""
            tx.execute(text("SELECT 1"))
        stopped.close()
        other.close()

    def test_who_waits_for_it_is_told_before_long(self, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store, "BUSY_TIMEOUT_SECONDS", 1)
        stopped, other = Database(postgres_url), Database(postgres_url)
        with stopped.transaction(), pytest.raises(DatabaseUnavailable, match="locked"), other.transaction():
            """Not reached."""
        stopped.close()
        other.close()


class TestSQLite:
    @pytest.fixture
    def api(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedApi]:
        """It says once that it serves, and then writes nothing unasked: a write that succeeds takes back that none
        can, and that one needs no room."""
        monkeypatch.setattr(main, "BEAT_SECONDS", 3600.0)
        with served(tmp_path / "home") as api:
            until(lambda: self._beats(api.platform.database))
            yield api

    def _beats(self, database: Database) -> int | None:
        with database.snapshot() as tx:
            return nodes.api_counter(tx)

    def test_while_another_process_holds_the_lock_reading_goes_on_and_writing_is_a_503(
        self, api: ServedApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = api.client("ana")
        with (
            closing(sqlite3.connect(api.settings.home / "edt.db", isolation_level=None)) as other,
            monkeypatch.context() as impatient,
        ):
            other.execute("BEGIN IMMEDIATE")
            impatient.setattr(store, "BUSY_TIMEOUT_SECONDS", 0.3)
            api.platform.database.close()
            self._may_be_read_only(client, "is locked by another process")
            other.execute("ROLLBACK")
        api.platform.database.close()
        self._serves(api, client)

    def test_while_the_disk_is_full_reading_goes_on_and_writing_is_a_503(self, api: ServedApi) -> None:
        with self._full(api.platform.database):
            client = api.client("ana")
            self._may_be_read_only(client, "has no room left on its disk")
            event.remove(api.platform.database.writing, "connect", _no_room)
            api.platform.database.close()
            self._serves(api, client)
            event.listen(api.platform.database.writing, "connect", _no_room)

    @contextmanager
    def _full(self, database: Database) -> Iterator[None]:
        database.close()
        event.listen(database.writing, "connect", _no_room)
        yield
        event.remove(database.writing, "connect", _no_room)

    def _may_be_read_only(self, client: httpx.Client, why: str) -> None:
        refused = submit(client, args=f"{ARGS} --text {'x' * 30_000}")  # more than fits into what is allotted already
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert why in refused.text
        assert client.get(EXECS).json() == []
        ready = client.get("/readyz")
        assert ready.status_code == 503
        assert why in ready.json()["database"]

    def _serves(self, api: ServedApi, client: httpx.Client) -> None:
        assert submit(client).status_code == 200
        assert len(exist(api)) == 1
        assert list(api.settings.staged.iterdir()) == []
        until(lambda: client.get("/readyz").status_code == 200)


def _no_room(connection: sqlite3.Connection, _record: object) -> None:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")


@pytest.fixture
def scheduler(postgres_url: str, tmp_path: Path) -> Iterator[tuple[Stage, subprocess.Popen[str], Callable[[], str]]]:
    """A scheduler's process, the platform that it decides for, and what it has said so far."""
    settings = Settings(home=tmp_path / "home", database_url=postgres_url, broker_url="")
    platform = open_platform(settings)
    admin = accounts.add_user(platform, "admin", "hash", Role.ADMIN)
    log = tmp_path / "log"
    environ = {"EDT_HOME": str(settings.home), "EDT_TICK_SECONDS": "0.2", "EDT_DATABASE_URL": postgres_url}
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "edt_scheduler"], env={**os.environ, "EDT_BROKER_URL": "", **environ}, stderr=output
        )
    yield Stage(platform, Clock(time.time()), admin), process, log.read_text
    process.kill()
    process.wait()
    platform.close()


class TestTheScheduler:
    def test_it_decides_again_when_the_server_is_back_and_loses_no_node_over_it(
        self, scheduler: tuple[Stage, subprocess.Popen[str], Callable[[], str]], postgres_server: Postgres
    ) -> None:
        stage, process, log = scheduler
        stage.node()
        first = stage.submit(workers=1)
        until(lambda: stage.job(first).state is not JobState.SUBMITTED)
        with stopped(postgres_server):
            until(lambda: "standing by: the database does not answer" in log())
        second = stage.submit(workers=1)
        until(lambda: stage.job(second).state is not JobState.SUBMITTED)
        assert process.poll() is None
        assert "Traceback" not in log()
        assert log().count("deciding, every") == 2
        assert fleet.node(stage.platform, "n1").health is Health.UP

    def test_it_notices_that_its_session_was_ended_and_somebody_else_may_decide(
        self, scheduler: tuple[Stage, subprocess.Popen[str], Callable[[], str]], postgres: str
    ) -> None:
        stage, process, log = scheduler
        until(lambda: "deciding" in log())
        name = make_url(stage.platform.settings.database).database
        _execute(
            postgres,
            "SELECT pg_terminate_backend(a.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid) "  # noqa: S608
            f"WHERE l.locktype = 'advisory' AND l.objid = {LEADER_LOCK} AND a.datname = '{name}'",
        )
        until(lambda: "no longer deciding" in log())
        until(lambda: log().count("deciding, every") == 2)
        job = stage.submit()
        until(lambda: stage.job(job).state is not JobState.SUBMITTED)
        assert process.poll() is None
        assert "Traceback" not in log()


def test_notifications_that_cannot_be_read_wait_in_silence(
    postgres_server: Postgres, postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    platform = open_platform(Settings(home=tmp_path / "home", database_url=postgres_url, broker_url=""))
    bells = Notifier(platform.database)
    with stopped(postgres_server):
        bells.notify()
        time.sleep(0.3)
    bells.close()
    Platform(platform.database, bells, platform.settings).close()
    assert "Traceback" not in caplog.text
    assert caplog.records == []
