"""No list of ``/api/v1`` comes whole: each is cut into pages, and a client goes on by cursor."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event

from edt_api.http import MOST, cursor_of
from edt_api.main import create_app
from edt_api.settings import Settings
from edt_scheduler.decide.reconcile import look
from edt_scheduler.operations import accounts, fleet
from edt_scheduler.store.tables import slots
from support.paging import every
from support.served_api import ServedApi

OURS = "/api/v1/"


@pytest.fixture(scope="module")
def openapi() -> dict[str, Any]:
    return create_app(Settings.model_construct()).openapi()


def gets(openapi: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every GET route of /api/v1, and what is declared of it."""
    ours = {path: methods for path, methods in openapi["paths"].items() if path.startswith(OURS)}
    return {path: methods["get"] for path, methods in ours.items() if "get" in methods}


def answered(openapi: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any]:
    """The schema of its answer; empty: none is declared."""
    schema = operation["responses"]["200"].get("content", {}).get("application/json", {}).get("schema", {})
    name = schema.get("$ref", "").rpartition("/")[2]
    return dict(openapi["components"]["schemas"][name] if name else schema)


def test_no_route_declares_an_array_as_its_answer(openapi: dict[str, Any]) -> None:
    assert len(gets(openapi)) > 15
    arrays = [path for path, operation in gets(openapi).items() if answered(openapi, operation).get("type") == "array"]
    assert arrays == []


def test_what_has_items_is_a_page_with_a_limit_and_a_cursor(openapi: dict[str, Any]) -> None:
    pages = {
        path: operation
        for path, operation in gets(openapi).items()
        if "items" in answered(openapi, operation).get("properties", {})
    }
    assert {f"{OURS}nodes", f"{OURS}users", f"{OURS}jobs/{{exec_id}}/logs"} <= set(pages)
    for path, operation in pages.items():
        asked = {each["name"]: each["schema"] for each in operation["parameters"]}
        assert asked["limit"]["maximum"] <= MOST and asked["limit"]["default"] <= MOST, path
        assert "cursor" in asked and "next" in answered(openapi, operation)["properties"], path


def test_no_route_answers_an_array(openapi: dict[str, Any], fresh_api: ServedApi) -> None:
    named = {"exec_id": fresh_api.submit().exec_id, "name": "node-a", "number": "1"}
    node, admin = fresh_api.client(token=fresh_api.register("node-a")), fresh_api.client("admin")
    look(fresh_api.platform)  # which records the first decision
    arrays, answers = [], 0
    for path in gets(openapi):
        client = node if path.endswith("/assignments") else admin
        with client.stream("GET", path.format(**named)) as answer:
            assert answer.is_success, path
            if "json" in answer.headers["content-type"]:
                answers += 1
                answer.read()
                if isinstance(answer.json(), list):
                    arrays.append(path)
    assert arrays == [] and answers > 10


class TestNodes:
    def test_they_come_in_pages_and_each_once(self, fresh_api: ServedApi) -> None:
        for name in ("node-c", "node-a", "node-b"):
            fresh_api.register(name)
        client = fresh_api.client("ana")
        page = client.get("/api/v1/nodes", params={"limit": 2}).json()
        assert [node["name"] for node in page["items"]] == ["node-c", "node-a"] and page["next"]
        assert [node["name"] for node in every(client, "/api/v1/nodes", limit=2)] == ["node-c", "node-a", "node-b"]
        assert client.get("/api/v1/nodes", params={"limit": 3}).json()["next"] is None

    def test_a_page_reads_no_slots_of_other_nodes(self, fresh_api: ServedApi) -> None:
        for name in ("node-a", "node-b", "node-c"):
            fresh_api.register(name, slots=8)
        asked: list[Any] = []

        def note(_c: Any, _x: Any, statement: str, parameters: Any, *_: Any) -> None:
            if f"FROM {slots.name}" in statement:
                asked.append(parameters)

        event.listen(fresh_api.platform.database.reading, "before_cursor_execute", note)
        found = fleet.nodes(fresh_api.platform, limit=1, after=1)
        event.remove(fresh_api.platform.database.reading, "before_cursor_execute", note)
        assert ([node.name for node in found], asked) == (["node-b"], [(2,)])

    def test_a_node_that_is_removed_between_two_pages_shifts_nothing(self, fresh_api: ServedApi) -> None:
        for name in ("node-a", "node-b", "node-c"):
            fresh_api.register(name)
        client = fresh_api.client("ana")
        page = client.get("/api/v1/nodes", params={"limit": 2}).json()
        with fresh_api.platform.database.transaction() as tx:
            tx.exec_driver_sql("UPDATE nodes SET lost_at = 1 WHERE name = 'node-b'")
        fleet.remove_node(fresh_api.platform, "node-b")
        rest = client.get("/api/v1/nodes", params={"cursor": page["next"]}).json()
        assert [node["name"] for node in rest["items"]] == ["node-c"]


class TestUsers:
    def test_they_come_by_name_in_pages_also_behind_one_who_was_removed(self, fresh_api: ServedApi) -> None:
        admin = fresh_api.client("admin")
        assert [user["name"] for user in every(admin, "/api/v1/users", limit=2)] == ["admin", "ana", "bob"]
        page = admin.get("/api/v1/users", params={"limit": 2}).json()
        accounts.remove_user(fresh_api.platform, "ana")
        rest = admin.get("/api/v1/users", params={"cursor": page["next"]}).json()
        assert [user["name"] for user in rest["items"]] == ["bob"]


class TestLogFiles:
    def test_they_come_in_pages_and_each_once(self, api: ServedApi) -> None:
        job = api.submit()
        job.log_dir.mkdir(parents=True, exist_ok=True)
        for name in (
            "driver.err",
            "stdout",
            *(f"engine-{number}.{end}" for number in (2, 10) for end in ("out", "err")),
        ):
            (job.log_dir / name).write_text(name)
        listed = every(api.client("ana"), f"/api/v1/jobs/{job.exec_id}/logs", limit=2)
        assert [file["stream"] for file in listed] == [
            "elog", "err", "engine-2.out", "engine-2.err", "engine-10.out", "engine-10.err",
        ]  # fmt: skip


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/api/v1/users", "/api/v1/jobs/{job}/logs"])
def test_a_cursor_of_another_list_and_a_limit_too_large_are_refused(api: ServedApi, path: str) -> None:
    admin = api.client("admin")
    where = path.format(job=api.submit().exec_id)
    for asked in ({"cursor": cursor_of("jobs", 1)}, {"limit": MOST + 1}):
        problem = admin.get(where, params=asked)
        assert problem.status_code == 400 and problem.json()["detail"].startswith(next(iter(asked)))
