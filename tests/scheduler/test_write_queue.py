"""Writers wait in one line; who only reads does not wait for them."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from edt_api.access import tokens
from edt_scheduler.errors import DatabaseUnavailable
from edt_scheduler.operations import accounts, execs
from edt_scheduler.store import database as store
from edt_scheduler.store.database import WRITER_LOCK, Database, WriteQueue
from support.databases import SQLITE_FIRST
from support.puppets import Stage
from support.served_api import EXECS, ServedApi, served
from support.waiting import until

WRITERS = 30
"""Fewer than the API has threads for people's requests: those that are left answer."""
AT_ONCE, PATIENCE = 10.0, 60
"""Seconds: what takes less has not waited for the lock; so long waits who does."""


@contextmanager
def held(url: str) -> Iterator[None]:
    """Somebody else holds the writer's lock."""
    where = make_url(url)
    if where.get_backend_name() == "sqlite":
        with closing(sqlite3.connect(str(where.database), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
    else:
        with psycopg.connect(url) as session:
            session.execute("SELECT pg_advisory_xact_lock(%s)", [WRITER_LOCK])
            yield
            session.rollback()


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(tmp_path / "home", database_url=database_url) as opened:
        yield opened


def seconds(do: Callable[[], object]) -> float:
    begun = time.monotonic()
    do()
    return time.monotonic() - begun


def test_while_writers_wait_tokens_lists_and_livez_answer_at_once(
    api: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "BUSY_TIMEOUT_SECONDS", PATIENCE)
    job = api.submit()
    token = tokens.issue(api.platform, accounts.user(api.platform, "ana"), 60)
    reader = api.client(token=token)
    with ThreadPoolExecutor(WRITERS) as pool:
        with held(api.settings.database):
            viewer = accounts.user(api.platform, "ana")
            stops = [pool.submit(execs.stop, api.platform, job.exec_id, viewer=viewer) for _ in range(WRITERS)]
            line = api.platform.database.write_queue
            until(lambda: line.waiting >= WRITERS - 1)
            for path in ("/livez", EXECS, "/api/v1/jobs", f"/api/v1/jobs/{job.exec_id}/events"):
                assert seconds(lambda path=path: reader.get(path).raise_for_status()) < AT_ONCE, path  # type: ignore[misc]
            assert seconds(lambda: tokens.user_of(api.platform, token)) < AT_ONCE
            assert line.waiting >= WRITERS - 1
        assert {stop.result().exec_id for stop in stops} == {job.exec_id}


def test_who_waits_for_longer_than_is_allowed_is_told_so_wherever_it_stands_in_the_line(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "BUSY_TIMEOUT_SECONDS", 1)

    def write() -> str:
        try:
            with database.transaction():
                return "written"
        except DatabaseUnavailable as error:
            return str(error)

    assert write() == "written"
    with held(database_url), ThreadPoolExecutor(4) as pool:
        results = [write.result() for write in [pool.submit(write) for _ in range(4)]]
    assert all("nothing was changed" in each for each in results)
    assert any("locked by another process" in each for each in results)
    assert write() == "written"


def test_what_was_waited_in_the_line_is_not_waited_at_the_database_once_more(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.transaction():
        """Connected: whoever connects while a lock is held may wait for it then."""
    monkeypatch.setattr(store, "BUSY_TIMEOUT_SECONDS", PATIENCE)

    @contextmanager
    def nearly_over(patience: float, *, urgent: bool) -> Iterator[float]:
        assert patience == PATIENCE
        yield 0.01

    def write() -> None:
        with pytest.raises(DatabaseUnavailable, match="locked by another process"), database.transaction():
            """Not reached."""

    with held(database_url):
        monkeypatch.setattr(database.write_queue, "turn", nearly_over)
        assert seconds(write) < AT_ONCE


def test_each_has_its_turn_in_the_order_in_which_it_came() -> None:
    write_queue, served_, threads = WriteQueue(), [], []

    def take(number: int) -> None:
        with write_queue.turn(30):
            served_.append(number)

    with write_queue.turn(1):
        for number in range(5):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            until(lambda number=number: write_queue.waiting == number + 1)  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert served_ == list(range(5))


def test_who_is_urgent_goes_before_all_others_four_times_in_a_row() -> None:
    nodes = [f"node {number}" for number in range(6)]
    write_queue, served_, threads = WriteQueue(), [], []

    def take(name: str) -> None:
        with write_queue.turn(30, urgent=name.startswith("node")):
            served_.append(name)

    with write_queue.turn(1):
        for number, name in enumerate(("ana", "bob", *nodes), start=1):
            threads.append(threading.Thread(target=take, args=(name,)))
            threads[-1].start()
            until(lambda number=number: write_queue.waiting == number)  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert served_ == [*nodes[:4], "ana", *nodes[4:], "bob"]


def test_who_gives_up_keeps_nobody_waiting() -> None:
    write_queue = WriteQueue()
    with write_queue.turn(1):
        with pytest.raises(DatabaseUnavailable, match="asked too much at once"), write_queue.turn(0.01):
            """Not reached."""
        assert write_queue.waiting == 0
    with write_queue.turn(0.01) as left:
        assert left <= 0.01


@pytest.mark.parametrize("database_url", SQLITE_FIRST, indirect=True)
def test_a_process_whose_threads_always_write_lets_another_one_write_soon(stage: Stage, database_url: str) -> None:
    over, other = threading.Event(), Database(database_url)

    def write() -> None:
        while not over.is_set():
            with stage.platform.database.transaction():
                time.sleep(0.002)

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write) for _ in range(4)]

        def one() -> None:
            with other.transaction():
                pass

        waited = [seconds(one) for _ in range(5)]
        over.set()
        for writer in writers:
            writer.result()
    other.close()
    assert max(waited) < AT_ONCE
