"""Nodes, users, jobs, timeline and health; how refusals are written; and that the table of statuses is whole."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from edt_api import errors
from edt_api.errors import WMLA, ApiError
from edt_api.routes import health
from edt_api.schemas import cluster, jobs
from edt_contract.reports import ReportKind
from edt_scheduler import errors as scheduler_errors
from edt_scheduler.decide.reconcile import look
from edt_scheduler.operations.images import ask_for_pulls
from support.credentials import PASSWORD
from support.puppets import Puppet
from support.served_api import ARGS, EXECS, JOIN_TOKEN, ServedApi, served

STATUS = {
    "api-error": 500,
    "arguments-invalid": 400,
    "upload-refused": 400,
    "archive-refused": 400,
    "too-large": 413,
    "too-many-uploads": 429,
    "epochs-invalid": 400,
    "job-over": 409,
    "not-now": 409,
    "disk-full": 507,
    "request-invalid": 400,
    "no-result": 400,
    "results-removed": 410,
    "no-such-page": 404,
    "not-authenticated": 401,
    "forbidden": 403,
    "wrong-password": 403,
    "no-such-token": 404,
    "not-the-owner": 403,
    "token-invalid": 400,
    "index-out-of-range": 416,
    "no-such-object": 404,
    "not-offered": 501,
    "only-plan": 409,
    "too-many-logons": 429,
    "scheduler-error": 500,
    "not-found": 404,
    "no-such-job": 404,
    "no-such-queue": 404,
    "no-such-pool": 404,
    "no-such-decision": 404,
    "queue-invalid": 400,
    "queue-in-use": 409,
    "pool-invalid": 400,
    "pool-in-use": 409,
    "node-not-wanted": 409,
    "size-invalid": 400,
    "priority-invalid": 400,
    "no-such-user": 404,
    "no-such-node": 404,
    "no-such-framework": 404,
    "no-such-image": 404,
    "conflict": 409,
    "user-exists": 409,
    "password-changed": 409,
    "last-admin": 409,
    "node-in-use": 409,
    "illegal-transition": 409,
    "already-leading": 503,
    "idempotency-key-reused": 409,
    "cursor-too-old": 409,
    "cursor-invalid": 400,
    "idempotency-key-invalid": 400,
    "invalid": 400,
    "submission-invalid": 400,
    "user-invalid": 400,
    "node-invalid": 400,
    "framework-invalid": 400,
    "change-invalid": 400,
    "image-invalid": 400,
    "report-foreign": 403,
    "unavailable": 503,
    "database-unavailable": 503,
    "outcome-unknown": 503,
    "submit-expired": 503,
    "home-unusable": 500,
    "home-foreign": 500,
    "secret-key-unusable": 500,
    "environment-locked": 500,
}
"""What the API promises for each code."""


def family(root: type[Exception]) -> set[type[Exception]]:
    return {root} | {each for child in root.__subclasses__() for each in family(child)}


class TestNodes:
    def test_they_are_listed_with_their_slots_and_who_holds_them(self, fresh_api: ServedApi) -> None:
        fresh_api.register("node-a", slots=2)
        job = fresh_api.submit().exec_id
        look(fresh_api.platform)
        (node,) = fresh_api.client("bob").get("/api/v1/nodes").json()["items"]
        shown = cluster.Node.model_validate(node)
        assert (shown.name, shown.health) == ("node-a", "up")
        assert [(slot.slot, slot.exec_id, slot.busy) for slot in shown.slots] == [("0", job, True), ("1", None, False)]
        alone = fresh_api.client("bob").get("/api/v1/nodes/node-a").json()
        assert alone.pop("lease_age_seconds") >= node.pop("lease_age_seconds")
        assert alone == node
        assert "token" not in json.dumps(node)

    def test_an_admin_cordons_drains_and_opens_them_again(self, api: ServedApi) -> None:
        api.register("node-a")
        admin = api.client("admin")
        for verb, after in (("cordon", "cordoned"), ("drain", "draining"), ("uncordon", "up")):
            assert admin.post(f"/api/v1/nodes/node-a/{verb}").json()["health"] == after
        problem = admin.post("/api/v1/nodes/nowhere/drain")
        assert (problem.status_code, problem.json()["code"]) == (404, "no-such-node")


class TestImages:
    def test_an_admin_allows_and_forbids_what_users_may_name(self, fresh_api: ServedApi) -> None:
        admin, ana = fresh_api.client("admin"), fresh_api.client("ana")
        args = {"args": f"{ARGS} --msd-image-name team/own:1"}
        file = {"file": ("main.py", b"print('hello')\n")}
        refused = ana.post(EXECS, params=args, files=file)
        assert refused.status_code == 400 and "edt images allow team/own:1" in refused.text
        assert ana.post("/api/v1/images", json={"name": "team/own:1"}).status_code == 403
        allowed = admin.post("/api/v1/images", json={"name": "docker.io/team/own:1", "everywhere": True})
        assert (allowed.status_code, allowed.json()["name"]) == (201, "team/own:1")
        assert ana.post(EXECS, params=args, files=file).status_code == 200
        page = cluster.ImagePage.model_validate(ana.get("/api/v1/images", params={"limit": 1}).json())
        assert [(image.name, image.allowed_by) for image in page.items] == [("team/own:1", "admin")]
        assert page.patterns == ["openedt/runner-torch:*", "openedt/runner-tensorflow:*"]
        assert admin.delete("/api/v1/images/team/own:1").status_code == 204
        assert admin.delete("/api/v1/images/team/own:1").json()["code"] == "no-such-image"
        assert ana.post(EXECS, params=args, files=file).status_code == 400

    def test_a_node_is_told_what_to_fetch_and_says_what_came_of_it(self, fresh_api: ServedApi) -> None:
        offer = {"name": "node-c", "host": "127.0.0.1", "cores": 2, "boot_id": "b", "incarnation": "i", "slots": []}
        joining = fresh_api.client(token=JOIN_TOKEN)
        token = joining.post("/api/v1/nodes", json={**offer, "launcher": "docker"}).json()["token"]
        node, admin = fresh_api.client(token=token), fresh_api.client("admin")
        admin.post("/api/v1/images", json={"name": "team/own:1", "everywhere": True})
        assert ask_for_pulls(fresh_api.platform) == 1
        assert node.get("/api/v1/nodes/node-c/assignments").json()["images"] == ["team/own:1"]
        report = {"image": "team/own:1", "error": "it cannot be pulled: denied"}
        assert node.post("/api/v1/nodes/node-c/images", json=report).status_code == 204
        [image] = admin.get("/api/v1/images").json()["items"]
        assert image["nodes"][0]["error"] == "it cannot be pulled: denied"


class TestUsers:
    def test_an_admin_adds_lists_and_removes_them(self, api: ServedApi) -> None:
        admin = api.client("admin")
        added = admin.post("/api/v1/users", json={"name": "carl", "password": PASSWORD})
        assert added.status_code == 201
        assert added.json().keys() == {"name", "role", "created_at"}
        assert api.client("carl").get(EXECS).status_code == 200
        assert "carl" in [user["name"] for user in admin.get("/api/v1/users").json()["items"]]
        assert admin.delete("/api/v1/users/carl").status_code == 204
        assert "carl" not in [user["name"] for user in admin.get("/api/v1/users").json()["items"]]

    @pytest.mark.parametrize(
        ("new", "status", "code"),
        [
            ({"name": "ana", "password": PASSWORD}, 409, "user-exists"),
            ({"name": "a b", "password": PASSWORD}, 400, "user-invalid"),
            ({"name": "dora", "password": "short"}, 400, "request-invalid"),
            ({"name": "dora", "password": PASSWORD, "role": "king"}, 400, "request-invalid"),
            ({"name": "dora", "password": PASSWORD, "admin": True}, 400, "request-invalid"),
        ],
    )
    def test_a_wrong_one_is_refused_without_showing_the_password(
        self, api: ServedApi, new: dict[str, object], status: int, code: str
    ) -> None:
        problem = api.client("admin").post("/api/v1/users", json=new)
        assert (problem.status_code, problem.json()["code"]) == (status, code)
        assert str(new["password"]) not in problem.text

    def test_the_last_admin_stays(self, api: ServedApi) -> None:
        problem = api.client("admin").delete("/api/v1/users/admin")
        assert (problem.status_code, problem.json()["code"]) == (409, "last-admin")

    def test_everybody_sets_their_own_password_and_an_admin_anybodys(self, api: ServedApi) -> None:
        admin = api.client("admin")
        admin.post("/api/v1/users", json={"name": "fay", "password": PASSWORD}).raise_for_status()
        path = "/api/v1/users/fay/password"
        assert api.client("bob").put(path, json={"password": "bobs choice"}).status_code == 403
        own = {"password": "fays choice", "current_password": PASSWORD}
        assert api.client("fay").put(path, json=own).status_code == 204
        assert api.client().get(EXECS, auth=("fay", "fays choice")).status_code == 200
        assert admin.put(path, json={"password": PASSWORD}).status_code == 204
        assert api.client("fay").get(EXECS).status_code == 200
        assert admin.put("/api/v1/users/nobody/password", json={"password": PASSWORD}).status_code == 404


class TestJobsAndTime:
    def test_a_job_is_shown_with_why_it_waits(self, fresh_api: ServedApi) -> None:
        job = fresh_api.submit()
        look(fresh_api.platform)
        shown = jobs.Job.model_validate(fresh_api.client("ana").get(f"/api/v1/jobs/{job.exec_id}").json())
        assert shown.state is jobs.ExecState.PENDING
        assert shown.waiting is not None and shown.waiting.blocking == "nodes"
        assert shown.max_workers == 4

    def test_a_job_says_whether_its_result_is_exact_and_wmlas_shape_is_as_it_was(self, fresh_api: ServedApi) -> None:
        node = Puppet(fresh_api.platform, slots=2, engines=2).join()
        client = fresh_api.client("ana")
        job = fresh_api.submit().exec_id
        wire = client.get(f"{EXECS}/{job}").json().keys()
        look(fresh_api.platform)
        node.obey()
        look(fresh_api.platform)
        node.obey()

        def shown() -> tuple[str, str]:
            exactness = client.get(f"/api/v1/jobs/{job}").json()["exactness"]
            return exactness["verdict"], exactness["reason"]

        assert shown() == ("not-compared", "Engines joined at step 5; the engines have not been compared since.")
        node.report((job, 1), ReportKind.REPLICAS_COMPARED, step=9, engines=2, equal=True, reason="epoch")
        assert shown()[0] == "exact"
        difference = "weight fc.bias"
        body = {"what": "engine 2", "why": "another state", "engine": 2, "step": 12, "difference": difference}
        node.report((job, 1), ReportKind.GUARANTEE_ENDED, **body)
        reason = "engine 2: another state (first difference in engine 2 at step 12: weight fc.bias)"
        assert shown() == ("not-exact", reason)
        assert client.get(f"{EXECS}/{job}").json().keys() == wire

    def test_its_history_is_numbered_without_a_gap(self, fresh_api: ServedApi) -> None:
        job = fresh_api.submit()
        look(fresh_api.platform)
        fresh_api.client("ana").post(f"{EXECS}/{job.exec_id}/stop")
        events = fresh_api.client("ana").get(f"/api/v1/jobs/{job.exec_id}/events").json()["items"]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert "KILLED" in events[-1]["message"] or events[-1]["data"].get("after") == "KILLED"

    def test_the_timeline_shows_slots_over_time(self, fresh_api: ServedApi) -> None:
        fresh_api.register("node-a")
        job = fresh_api.submit().exec_id
        look(fresh_api.platform)
        client = fresh_api.client("bob")
        shown = cluster.Timeline.model_validate(client.get("/api/v1/timeline").json())
        assert [(each.exec_id, each.node, each.slot) for each in shown.allocations] == [(job, "node-a", "0")]
        assert [(each.exec_id, each.to_slots) for each in shown.resizes] == [(job, 1)]
        assert client.get("/api/v1/timeline", params={"since": shown.now + 60}).json()["resizes"] == []
        assert client.get("/api/v1/timeline", params={"since": "nan"}).status_code == 400

    def test_a_removed_job_stays_on_the_timeline_and_is_said_to_be_gone(self, fresh_api: ServedApi) -> None:
        fresh_api.register("node-a")
        job = fresh_api.submit().exec_id
        look(fresh_api.platform)
        client = fresh_api.client("ana")
        assert not cluster.Timeline.model_validate(client.get("/api/v1/timeline").json()).jobs[job].removed
        client.delete(f"{EXECS}/{job}")
        shown = cluster.Timeline.model_validate(client.get("/api/v1/timeline").json())
        assert [each.exec_id for each in shown.allocations] == [job]
        assert shown.jobs[job].removed


class TestHealth:
    def test_a_live_and_ready_api_says_so_to_anyone(self, api: ServedApi) -> None:
        assert api.client().get("/livez").json() == {"message": "ok"}
        ready = api.client().get("/readyz")
        assert ready.status_code == 200
        assert ready.json() == {"ready": True, "database": "ok", "migrations": "ok", "broker": "none"}

    @pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
    def test_who_asks_through_a_proxy_is_told_whether_and_not_why(
        self, api: ServedApi, proxied: ServedApi, header: str
    ) -> None:
        for asked in (api, proxied):
            answer = asked.client().get("/readyz", headers={header: "192.0.2.7"})
            assert (answer.status_code, answer.json()) == (200, {"ready": True})

    def test_all_who_ask_at_once_or_soon_after_share_one_look(
        self, api: ServedApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        looks, now = [], [0.0]
        monkeypatch.setattr(
            health, "_database", lambda platform: looks.append(platform) or ("does not answer", "unknown")
        )
        readiness = health.Readiness(api.platform, lambda: now[0])

        async def asked_by_many() -> set[bool]:
            return {each.ready for each in await asyncio.gather(*(readiness.now() for _ in range(20)))}

        for now[0], expected in ((0.0, 1), (0.9, 1), (1.1, 2)):
            assert asyncio.run(asked_by_many()) == {False}
            assert len(looks) == expected
        assert caplog.messages == ["not ready: database does not answer, schema unknown"]

    def test_a_silent_broker_is_told_and_makes_nothing_unready(self, tmp_path: Path) -> None:
        with served(tmp_path / "home", broker_url="redis+socket:///nowhere/valkey.sock") as connected:
            ready = connected.client().get("/readyz")
            assert (ready.status_code, ready.json()["broker"]) == (200, "does not answer")

    def test_a_database_that_a_newer_version_migrated_makes_it_unready(self, fresh_api: ServedApi) -> None:
        with fresh_api.platform.database.transaction() as tx:
            tx.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        fresh_api.app.state.readiness.clock = lambda: math.inf
        ready = fresh_api.client().get("/readyz")
        assert ready.status_code == 503
        assert "9999" in ready.json()["migrations"]

    def test_a_database_with_an_older_schema_makes_it_unready_and_is_left_as_it_is(self, fresh_api: ServedApi) -> None:
        with fresh_api.platform.database.transaction() as tx:
            tx.exec_driver_sql("DELETE FROM alembic_version")
        fresh_api.app.state.readiness.clock = lambda: math.inf
        ready = fresh_api.client().get("/readyz")
        assert ready.status_code == 503
        assert "older" in ready.json()["migrations"]
        with fresh_api.platform.database.snapshot() as tx:
            assert tx.exec_driver_sql("SELECT count(*) FROM alembic_version").scalar_one() == 0

    def test_its_notifier_connects_before_the_first_submit(self, tmp_path: Path) -> None:
        before = set(threading.enumerate())
        with served(tmp_path / "home"):
            new = {thread.name for thread in set(threading.enumerate()) - before}
        assert "notifier" in new, "the first notification would be half a second late"

    def test_a_database_that_is_gone_makes_it_unready(
        self, fresh_api: ServedApi, caplog: pytest.LogCaptureFixture
    ) -> None:
        with fresh_api.platform.database.transaction() as tx:
            tx.exec_driver_sql("ALTER TABLE nodes RENAME TO gone")
        fresh_api.app.state.readiness.clock = itertools.count(1e9, 10.0).__next__  # each look is a new one
        for _ in range(3):
            assert fresh_api.client().get("/readyz").json()["database"] == "does not answer"
        assert fresh_api.client().get("/livez").status_code == 200
        assert health.OK == "ok"
        logged = [each for each in caplog.records if each.getMessage().startswith("not ready")]
        assert [each.exc_info is not None for each in logged] == [True], "why, once"

    def test_a_look_is_a_few_questions_by_a_connection_that_is_open(self, fresh_api: ServedApi) -> None:
        fresh_api.register()
        asked: list[str] = []

        def ask(*facts: object) -> None:
            asked.append(str(facts[2]))

        fresh_api.app.state.readiness.clock = itertools.count(1e9, 10.0).__next__  # each look is a new one

        def connected(*_facts: object) -> None:
            asked.append("another connection")

        fresh_api.client().get("/readyz")
        event.listen(Engine, "before_cursor_execute", ask)
        event.listen(Engine, "connect", connected)
        try:
            assert fresh_api.client().get("/readyz").json()["ready"]
        finally:
            event.remove(Engine, "before_cursor_execute", ask)
            event.remove(Engine, "connect", connected)
        assert "another connection" not in asked
        assert [each for each in asked if "FROM nodes" in each and "LIMIT" in each]
        assert not [each for each in asked if "FROM slots" in each]


class TestRefusals:
    def test_every_refusal_of_both_rooms_has_a_status(self) -> None:
        known = family(ApiError) | family(scheduler_errors.SchedulerError)
        assert {error.code: error.status for error in known} == STATUS
        assert set(WMLA) <= set(STATUS)

    def test_codes_are_not_shared(self) -> None:
        known = [error.code for error in family(ApiError) | family(scheduler_errors.SchedulerError)]
        assert len(known) == len(set(known))

    def test_ours_are_problem_documents_and_wmlas_are_lines_of_text(self, api: ServedApi) -> None:
        client = api.client("ana")
        problem = client.get("/api/v1/jobs/edt-999")
        assert problem.headers["content-type"] == "application/problem+json"
        assert problem.json() == {
            "type": "urn:openedt:error:no-such-job",
            "title": "Not Found",
            "status": 404,
            "detail": "no job 'edt-999': it was never submitted, was deleted, or belongs to another user",
            "instance": "/api/v1/jobs/edt-999",
            "code": "no-such-job",
        }
        text = client.get(f"{EXECS}/edt-999/nothing")
        assert (text.status_code, text.text) == (404, "Error 404: there is nothing at this path\n")
        wrong = client.put(EXECS)
        assert (wrong.status_code, wrong.text) == (405, "Error 405: PUT is not taken here\n")
        assert wrong.headers["allow"] == "DELETE, GET, POST"

    def test_a_bug_of_ours_is_a_500_that_tells_nothing_of_our_insides(
        self, api: ServedApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def breaks(*_: object, **__: object) -> None:
            raise RuntimeError("hush")

        monkeypatch.setattr("edt_scheduler.operations.fleet.nodes", breaks)
        problem = api.client("ana").get("/api/v1/nodes")
        assert problem.status_code == 500
        assert problem.json()["code"] == "internal"
        assert "hush" not in problem.text

    def test_the_description_of_the_api_is_there_for_those_inside(self, api: ServedApi) -> None:
        described = api.client("ana").get("/api/v1/openapi.json").json()["paths"]
        assert EXECS in described and "/api/v1/timeline" in described


class TestSchemas:
    def test_they_are_read_without_a_server_installed(self) -> None:
        code = (
            "import sys, edt_api.schemas;"
            "print([m for m in ('fastapi', 'starlette', 'sqlalchemy', 'celery', 'edt_scheduler') if m in sys.modules])"
        )
        environ = {**os.environ, "PYTHONPATH": str(Path(errors.__file__).parents[1])}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
        assert done.stdout.strip() == "[]"

    def test_importing_the_room_does_nothing(self) -> None:
        before = set(sys.modules)
        importlib.import_module("edt_api")
        assert not {name for name in set(sys.modules) - before if not name.startswith("edt_api")}
