"""2,000 jobs on 128 slots: an answer takes a handful of statements and holds a page, however much there is. What it
costs in seconds is measured by ``benchmarks/dashboard.py``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from support.seeded import Past, seed
from support.served_api import ServedApi, served

MOST_STATEMENTS = 16
"""Those by which the guard finds out who asks, and those that open and close transactions, among them."""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    with served(tmp_path_factory.mktemp("home")) as api:
        seed(api.platform.database, time.time(), Past(jobs=2000, nodes=16, slots=8, spells=10))
        yield api


def answer_of(many: ServedApi, client: httpx.Client, path: str, **params: Any) -> Any:
    """The answer, for which the database was asked few things: not one for each row."""
    asked: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        asked.append(statement)

    event.listen(many.platform.database.reading, "before_cursor_execute", note)
    try:
        answer = client.get(path if path.startswith("/") else f"/api/v1/{path}", params=params)
    finally:
        event.remove(many.platform.database.reading, "before_cursor_execute", note)
    assert answer.status_code == 200, answer.text
    assert len(asked) <= MOST_STATEMENTS, asked
    return answer.json()


@pytest.mark.parametrize("user", ["admin", "ana"])
def test_a_page_of_jobs(many: ServedApi, user: str) -> None:
    client = many.client(user)
    for params in ({}, {"state": "FINISHED", "limit": 100}, {"q": "bert"}, {"q": "edt-19"}):
        page = answer_of(many, client, "jobs", **params)
        assert len(page["items"]) == min(100, page["total"])
    assert page["total"] > 50
    last = answer_of(many, client, "jobs", limit=500)
    following = answer_of(many, client, "jobs", limit=100, cursor=last["next"])
    assert len(following["items"]) == 100
    assert not {job["id"] for job in last["items"]} & {job["id"] for job in following["items"]}


def test_the_timeline_of_an_hour_and_of_everything(many: ServedApi) -> None:
    client = many.client("ana")
    hour = answer_of(many, client, "timeline", since=time.time() - 3600)
    assert 100 < len(hour["allocations"]) < 5000
    everything = answer_of(many, client, "timeline")
    assert len(everything["allocations"]) == 19_940


def test_a_jobs_own_pages_and_the_nodes(many: ServedApi) -> None:
    client = many.client("admin")
    for path in (
        "jobs/edt-1990/metrics",
        "jobs/edt-1990/events",
        "jobs/edt-1990/resizes",
        "nodes",
        "nodes/node-01/usage",
    ):
        assert answer_of(many, client, path)


@pytest.mark.parametrize("path", ["applications", "engine/applications"])
def test_wmlas_lists_with_the_processes_of_each_job(many: ServedApi, path: str) -> None:
    at = {"start": 1700, "length": 200, "sort": "-submit_time"}
    found = answer_of(many, many.client("admin"), f"/platform/rest/deeplearning/v1/scheduler/{path}", **at)
    assert len(found) == 200
    assert sum(len(job["task12n"]) for job in found) > 200
