"""Words that a database would stumble over are refused, or known to nobody. Over PostgreSQL: SQLite takes them all."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_api.http import cursor_of
from support.credentials import PASSWORD
from support.postgres import Postgres
from support.served_api import ServedApi, served


@pytest.fixture(scope="module")
def on_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    with Postgres() as server:
        home: Path = tmp_path_factory.mktemp("home")
        with served(home, database_url=server.create("odd")) as api:
            api.register("node-a")
            api.submit("ana")
            yield api


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/jobs?q=%00",
        "/api/v1/jobs?owner=a%00b",
        "/api/v1/jobs?framework=%00",
        "/api/v1/nodes/%00",
        "/api/v1/nodes/%00/usage",
        "/api/v1/stream?after=1:100:50,40",
    ],
)
def test_an_address_that_names_what_nothing_can_be_called_is_refused(on_postgres: ServedApi, path: str) -> None:
    answer = on_postgres.client("ana").get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert on_postgres.client().get(path).status_code == 401


def test_a_name_with_a_nul_is_nobodys(on_postgres: ServedApi) -> None:
    signed_in = on_postgres.client().post("/api/v1/session", json={"name": "ana\0", "password": PASSWORD})
    basic = base64.b64encode(f"ana\0:{PASSWORD}".encode()).decode()
    shown = on_postgres.client().get("/api/v1/me", headers={"Authorization": f"Basic {basic}"})
    assert (signed_in.status_code, shown.status_code) == (401, 401)


def test_a_cursor_behind_everything_that_a_list_can_hold_is_its_end(on_postgres: ServedApi) -> None:
    for listed in ("events", "resizes", "allocations"):
        cursor = cursor_of(listed, 2**63 - 1)
        page = on_postgres.client("ana").get(f"/api/v1/jobs/edt-1/{listed}", params={"cursor": cursor})
        assert page.json() == {"items": [], "next": None}, listed
