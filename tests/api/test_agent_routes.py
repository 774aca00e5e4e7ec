"""What an agent says and asks: registration, assignments by long poll, reports; with the real scheduler behind."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx
import pytest

from edt_api.routes import agents
from edt_contract.attempt import Assignment
from edt_contract.encoding import to_json_object
from edt_contract.reports import BATCH_BYTES, BATCH_REPORTS, Report, ReportKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.operations import fleet
from support.served_api import ARGS, JOIN_TOKEN, ServedApi, served

OFFER: dict[str, Any] = {
    "name": "node-x",
    "host": "127.0.0.1",
    "cores": 4,
    "boot_id": "boot",
    "incarnation": "life",
    "slots": [{"slot": "0", "device": "cpu", "label": "CPU stand-in 0"}],
    "of_a_newer_version": 1,
}

HELD_SECONDS = 60.0


class Node:
    """One node as the API sees it. Its client waits for 20 s."""

    def __init__(self, api: ServedApi, name: str, slots: int = 2) -> None:
        self.name = name
        self.path = f"/api/v1/nodes/{name}"
        self.http = api.client(token=api.register(name, slots))

    def assignments(self, **query: Any) -> tuple[int, list[Assignment]]:
        response = self.http.get(f"{self.path}/assignments", params=query)
        assert response.status_code == 200, response.text
        body = response.json()
        return body["version"], [Assignment.from_json_object(each) for each in body["assignments"]]

    def report(self, *reports: Report) -> httpx.Response:
        return self.http.post(f"{self.path}/reports", json=[to_json_object(report) for report in reports])


def report(
    node: str, seq: int, kind: ReportKind = ReportKind.ATTEMPT_STARTED, job: str = "edt-1", **body: Any
) -> Report:
    return Report(job, 1, node, seq, kind, 1.0, body)


class TestRegistration:
    def test_a_node_gets_a_token_of_its_own_and_the_name_of_its_queue(self, api: ServedApi) -> None:
        response = api.client(token=JOIN_TOKEN).post("/api/v1/nodes", json=OFFER)
        assert response.status_code == 201
        body = response.json()
        assert (body["node"], body["queue"], body["broker_url"]) == ("node-x", "node.node-x", None)
        assert body["token"] not in {JOIN_TOKEN, ""}

    @pytest.mark.parametrize(
        "wrong",
        [
            {"name": "../up"}, {"name": ""}, {"name": "n" * 64}, {"cores": 0}, {"cores": "many"}, {"slots": 3},
            {"host": ""}, {"slots": [{"slot": "0"}, {"slot": "0"}]}, {"slots": [{"device": "cpu"}]},
        ],
    )  # fmt: skip
    def test_a_wrong_offer_is_refused_by_name(self, api: ServedApi, wrong: dict[str, Any]) -> None:
        response = api.client(token=JOIN_TOKEN).post("/api/v1/nodes", json={**OFFER, **wrong})
        assert response.status_code == 400
        assert response.headers["content-type"] == "application/problem+json"
        assert next(iter(wrong)) in response.json()["detail"]

    def test_nodes_are_told_of_the_broker_where_there_is_one(self, tmp_path: Any) -> None:
        with served(tmp_path / "home", broker_url="redis+socket:///nowhere/valkey.sock") as connected:
            body = connected.client(token=JOIN_TOKEN).post("/api/v1/nodes", json=OFFER).json()
            assert body["broker_url"] == "redis+socket:///nowhere/valkey.sock"


class TestAssignments:
    @pytest.fixture(autouse=True)
    def _held_longer_than_its_client_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A question that is held for nothing fails; how fast a machine is does not matter."""
        monkeypatch.setattr(agents, "LONGEST_WAIT_SECONDS", HELD_SECONDS)

    def test_what_the_scheduler_decided_arrives_as_spec_and_desired(self, fresh_api: ServedApi) -> None:
        node = Node(fresh_api, "node-a")
        before, none = node.assignments(woken_by="start")
        assert none == []
        job = fresh_api.submit(args=f"{ARGS} --msd-env K=hush -- -x 1")
        look(fresh_api.platform)
        version, (assignment,) = node.assignments(woken_by="notification")
        assert version != before
        spec, desired = assignment.spec, assignment.desired
        assert (spec.job, spec.node, spec.main) == (job.exec_id, "node-a", "main.py")
        assert spec.arguments == ("-x", "1")
        assert spec.environ["K"] == "hush"
        assert [slot.slot for slot in desired.slots] == ["0"]
        (resize,) = fresh_api.client("ana").get(f"/api/v1/jobs/{job.exec_id}/resizes").json()["items"]
        assert resize["woken_by"] == "notification"

    def test_a_question_is_held_until_there_is_something_new(self, fresh_api: ServedApi) -> None:
        node = Node(fresh_api, "node-a")
        version, _ = node.assignments()
        answers: list[tuple[int, list[Assignment]]] = []
        asking = threading.Thread(target=lambda: answers.append(node.assignments(after=version, wait=HELD_SECONDS)))
        asking.start()
        asking.join(0.3)
        assert asking.is_alive()
        fresh_api.submit()
        look(fresh_api.platform)
        asking.join()
        ((newer, (assignment,)),) = answers
        assert newer != version
        assert assignment.spec.job == "edt-1"

    def test_a_question_behind_the_times_is_answered_at_once(self, api: ServedApi) -> None:
        node = Node(api, "node-a")
        version, _ = node.assignments()
        node.assignments(after=version - 1, wait=HELD_SECONDS)
        node.assignments(after=version, wait=0)

    def test_a_question_that_waits_in_vain_is_answered_when_its_time_is_over(self, api: ServedApi) -> None:
        node = Node(api, "node-a")
        version, _ = node.assignments()
        started = time.monotonic()
        assert node.assignments(after=version, wait=0.4)[0] == version
        assert time.monotonic() - started > 0.35

    def test_many_questions_that_wait_take_no_thread_from_others(self, api: ServedApi) -> None:
        nodes = [Node(api, f"waiting-{n}") for n in range(45)]  # more than there are worker threads
        versions = [node.assignments()[0] for node in nodes]
        asking = [
            threading.Thread(target=node.assignments, kwargs={"after": version, "wait": HELD_SECONDS})
            for node, version in zip(nodes, versions, strict=True)
        ]
        for thread in asking:
            thread.start()
        assert api.client("ana").get("/api/v1/nodes").status_code == 200
        api.app.state.stopping.set()  # as on SIGTERM: those who wait are answered at once
        try:
            for thread in asking:
                thread.join()
        finally:
            api.app.state.stopping.clear()

    def test_being_asked_is_the_nodes_heartbeat(self, api: ServedApi) -> None:
        node = Node(api, "node-a")
        before = fleet.node(api.platform, "node-a").seen_at
        node.assignments()
        assert fleet.node(api.platform, "node-a").seen_at > before

    @pytest.mark.parametrize("query", ["after=x", "wait=-1", "wait=nan", "wait=inf"])
    def test_a_wrong_question_is_refused(self, api: ServedApi, query: str) -> None:
        node = Node(api, "node-a")
        response = node.http.get(f"{node.path}/assignments?{query}")
        assert response.status_code == 400
        assert query.partition("=")[0] in response.json()["detail"]


class TestReports:
    @pytest.fixture
    def running(self, fresh_api: ServedApi) -> Node:
        """A node with edt-1 handed out to it."""
        node = Node(fresh_api, "node-a")
        fresh_api.submit()
        look(fresh_api.platform)
        node.assignments()
        return node

    def test_they_are_taken_in_order_and_once(self, fresh_api: ServedApi, running: Node) -> None:
        first = report("node-a", 1, pid=4711)
        assert running.report(first).json() == {"acked": {"edt-1/1": 1}}
        assert running.report(first).json() == {"acked": {"edt-1/1": 1}}
        behind_a_gap = report("node-a", 3, ReportKind.ENGINES_KNOWN, engines=4, steps_total=10, epochs=2)
        assert running.report(behind_a_gap).json() == {"acked": {"edt-1/1": 1}}
        progress = report("node-a", 2, ReportKind.PROGRESS, step=1, steps_total=10, loss=0.5, workers=1)
        assert running.report(progress, behind_a_gap).json() == {"acked": {"edt-1/1": 3}}
        job = fresh_api.client("ana").get("/api/v1/jobs/edt-1").json()
        assert (job["state"], job["engines"], job["progress"]["loss"]) == ("RUNNING", 4, 0.5)

    def test_a_validation_with_values_that_are_no_numbers_is_taken_and_shown_as_json(
        self, fresh_api: ServedApi, running: Node
    ) -> None:
        metrics = {"loss": float("nan"), "r2": float("-inf"), "accuracy": 0.5}
        validated = report("node-a", 1, ReportKind.VALIDATED, step=3, epoch=1, samples=96, metrics=metrics)
        kept = report("node-a", 2, ReportKind.BEST_KEPT, metric="val_accuracy", value=0.5, mode="max", file="best.pth")
        assert running.report(validated, kept).json() == {"acked": {"edt-1/1": 2}}
        job = fresh_api.client("ana").get("/api/v1/jobs/edt-1").json()
        assert job["validation"]["metrics"] == {"val_loss": None, "val_r2": None, "val_accuracy": 0.5}
        assert job["best"] == {"val_accuracy": {"value": 0.5, "epoch": 1, "step": 3}}
        assert (job["best_model"]["file"], job["best_model"]["mode"], job["best_model"]["epoch"]) == (
            "best.pth",
            "max",
            None,
        )
        assert job["main_metric"] == {"name": "val_r2", "value": None}
        curve = fresh_api.client("ana").get("/api/v1/jobs/edt-1/metrics").json()
        assert curve["validation"] == {
            "step": [3], "epoch": [1], "time": [1.0], "total": 1,
            "metrics": {"val_loss": [None], "val_r2": [None], "val_accuracy": [0.5]},
        }  # fmt: skip

    def test_of_an_attempt_that_nobody_knows_all_is_waved_through(self, running: Node) -> None:
        assert running.report(report("node-a", 7, job="edt-77")).json() == {"acked": {"edt-77/1": 7}}
        assert running.report().json() == {"acked": {}}

    def test_a_report_of_another_node_is_refused(self, running: Node) -> None:
        response = running.report(report("node-b", 1))
        assert response.status_code == 403
        assert response.json()["code"] == "report-foreign"

    @pytest.mark.parametrize(
        "body",
        [
            b"", b"{", b"{}", b"[1]", b'[{"job": "edt-1"}]', b'[{"job": 1}]', b"[" * 5000, b"\xff",
            json.dumps([to_json_object(report("node-a", 1)) | {"kind": "dance"}]).encode(),
            json.dumps([to_json_object(report("node-a", 1)) | {"seq": 0}]).encode(),
            json.dumps([to_json_object(report("node-a", 1)) | {"seq": 1.5}]).encode(),
            json.dumps([to_json_object(report("node-a", 1)) | {"body": []}]).encode(),
            json.dumps([to_json_object(report("node-a", 1)) | {"time": "now"}]).encode(),
        ],
    )  # fmt: skip
    def test_what_is_no_list_of_reports_is_refused(self, api: ServedApi, body: bytes) -> None:
        node = Node(api, "node-a")
        response = node.http.post(f"{node.path}/reports", content=body)
        assert response.status_code == 400
        assert response.json()["detail"].startswith("reports")

    def test_too_many_or_too_long_reports_are_refused(self, api: ServedApi) -> None:
        node = Node(api, "node-a")
        assert node.report(*(report("node-a", 1) for _ in range(BATCH_REPORTS + 1))).status_code == 413
        assert node.report(report("node-a", 1, text="x" * BATCH_BYTES)).status_code == 413

    def test_a_node_that_is_unknown_is_told_so_that_it_registers_again(self, api: ServedApi) -> None:
        response = api.client(token="of an earlier life").get("/api/v1/nodes/node-a/assignments")
        assert response.status_code == 401
