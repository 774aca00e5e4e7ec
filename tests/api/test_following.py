"""Following a log: whoever asks for what is not there yet may wait for it, however many do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from sqlalchemy import event

from edt_api.job_files import following
from edt_scheduler.operations import accounts, execs
from support.served_api import EXECS, ServedApi
from support.waiting import until

FOLLOWERS = 30


@pytest.fixture
def job(fresh_api: ServedApi) -> str:
    return fresh_api.submit().exec_id


def log_of(api: ServedApi, job: str) -> Path:
    return api.settings.job_directory(job) / "log" / "stdout"


def ask(api: ServedApi, job: str, offset: int, wait: float, user: str = "ana") -> httpx.Response:
    with api.client(user) as client:
        return client.get(f"/api/v1/jobs/{job}/log", params={"offset": offset, "wait": wait})


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is answered because the time is over."""
    monkeypatch.setattr(following, "LONGEST_WAIT_SECONDS", 120.0)


def test_a_question_is_held_until_there_is_more_or_the_file_was_begun_anew(
    fresh_api: ServedApi, job: str, patient: None
) -> None:
    log = log_of(fresh_api, job)
    with ThreadPoolExecutor() as pool:
        held = pool.submit(ask, fresh_api, job, 0, 120)
        log.write_bytes(b"first\n")
        first = held.result()
        assert (first.text, first.headers["edt-log-offset"]) == ("first\n", "6")
        held = pool.submit(ask, fresh_api, job, 6, 120)
        with log.open("ab") as file:
            file.write(b"second\n")
        assert held.result().text == "second\n"
        held = pool.submit(ask, fresh_api, job, 13, 120)
        log.rename(log.with_name("stdout.1"))
        log.write_bytes(b"new\n")
        assert (held.result().text, held.result().headers["edt-log-offset"]) == ("new\n", "4")


def test_nothing_is_answered_when_the_time_is_over(
    fresh_api: ServedApi, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "LONGEST_WAIT_SECONDS", 0.05)
    answer = ask(fresh_api, job, 0, 3600)
    assert (answer.status_code, answer.content, answer.headers["edt-log-offset"]) == (200, b"", "0")
    assert ask(fresh_api, job, 0, -1).status_code == 400


def test_nobody_waits_for_a_job_that_is_over(fresh_api: ServedApi, job: str, patient: None) -> None:
    fresh_api.client("ana").post(f"{EXECS}/{job}/stop")
    assert fresh_api.client("ana").get(f"{EXECS}/{job}").json()["state"] == "KILLED"
    assert ask(fresh_api, job, 0, 120).content == b""


def test_nobody_waits_for_what_is_not_theirs_and_a_job_that_is_removed_is_gone(
    fresh_api: ServedApi, job: str, patient: None
) -> None:
    assert ask(fresh_api, job, 0, 120, user="bob").status_code == 404
    with ThreadPoolExecutor() as pool:
        held = pool.submit(ask, fresh_api, job, 0, 120)
        until_held(fresh_api)
        execs.delete(fresh_api.platform, job, viewer=accounts.user(fresh_api.platform, "admin"))
        log_of(fresh_api, job).write_bytes(b"late\n")
        assert held.result().status_code == 404


def test_many_followers_of_one_log_cost_a_few_looks(fresh_api: ServedApi, job: str, patient: None) -> None:
    """All are answered, and the database is asked for the job a few times, not once for each."""
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "FROM jobs" in statement:
            asked.append(statement)

    engine = fresh_api.platform.database.reading
    with ThreadPoolExecutor(FOLLOWERS) as pool:
        held = [pool.submit(ask, fresh_api, job, 0, 120) for _ in range(FOLLOWERS)]
        until_held(fresh_api, FOLLOWERS)
        event.listen(engine, "before_cursor_execute", note)
        try:
            log_of(fresh_api, job).write_bytes(b"line\n")
            assert {each.result().text for each in held} == {"line\n"}
        finally:
            event.remove(engine, "before_cursor_execute", note)
    assert len(asked) <= FOLLOWERS / 3, asked


def until_held(api: ServedApi, count: int = 1) -> None:
    waiting = api.app.state.following._waiting
    until(lambda: sum(map(len, list(waiting.values()))) >= count)
