"""Why a job waits, a dry run and what if, as clients ask for them: whole answers, what is not named, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from edt_api.schemas import answers as shapes
from edt_api.schemas.queues import QueuePolicy
from edt_scheduler.answers import changes, verdicts, whatif, why
from edt_scheduler.decide.reconcile import look
from edt_scheduler.plan.queues import Sharing
from support.credentials import PASSWORD
from support.puppets import Puppet
from support.served_api import ServedApi, served

GANG = "--exec-start distPyTorch --numWorker {} --model-main main.py"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    """One with a viewer, ``vera``, and a node of four slots, all of which a gang of ana's holds. Bob's waits."""
    with served(tmp_path_factory.mktemp("home")) as opened:
        new = {"name": "vera", "password": PASSWORD, "role": "viewer"}
        opened.client("admin").post("/api/v1/users", json=new).raise_for_status()
        nodes: list[Puppet] = []
        for name, slots in (("n1", 4), ("shut", 2)):
            nodes.append(Puppet(opened.platform, name, slots, peers=nodes).join())
        opened.client("admin").post("/api/v1/nodes/shut/cordon").raise_for_status()
        opened.submit("ana", GANG.format(4))
        for _ in range(3):
            look(opened.platform)
            for node in nodes:
                node.obey()
        opened.submit("bob", GANG.format(2))
        for _ in range(3):
            look(opened.platform)
        yield opened


def explanation(api: ServedApi, user: str, job: str) -> dict[str, Any]:
    answer = api.client(user).get(f"/api/v1/jobs/{job}/explanation")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ask(client: httpx.Client, *wanted: dict[str, Any]) -> httpx.Response:
    return client.post("/api/v1/what-if", json={"changes": list(wanted)})


class TestAnExplanation:
    def test_it_names_the_rule_what_blocks_the_job_each_node_and_what_would_start_it(self, api: ServedApi) -> None:
        found = explanation(api, "admin", "edt-2")
        assert found["phase"] == "waiting"
        waits = found["waits"]
        assert (waits["rank"], waits["waiting"], waits["need"], waits["free"]) == (1, 1, 2, 0)
        assert waits["rule"]
        assert [(each["job"], each["slots"], each["nodes"]) for each in waits["by"]] == [("edt-1", 4, ["n1"])]
        assert {each["node"]: each["verdict"] for each in found["nodes"]["items"]} == {"n1": "full", "shut": "cordoned"}
        commands = {each["change"]["kind"]: each["command"] for each in found["changes"]}
        assert commands["node-opened"] == "edt nodes uncordon shut"
        assert commands["job-stopped"] == "edt stop edt-1"
        assert commands["more-slots"] == ""
        assert found["expected"]["start"] > found["at"]
        assert found["expected"]["guessed"] == 2
        assert "no past estimates yet" in found["expected"]["sentence"]

    def test_its_owner_is_not_told_which_jobs_of_others_block_it_and_gets_only_their_own_commands(
        self, api: ServedApi
    ) -> None:
        found = explanation(api, "bob", "edt-2")
        assert found["waits"]["by"] == []
        assert found["waits"]["hidden"] == {"jobs": 1, "slots": 4}
        assert "edt-1" not in str(found)
        commands = {each["change"]["kind"]: each["command"] for each in found["changes"]}
        assert "job-stopped" not in commands
        assert commands["node-opened"] == ""

    def test_a_viewer_sees_it_and_gets_no_commands(self, api: ServedApi) -> None:
        found = explanation(api, "vera", "edt-2")
        assert [each["job"] for each in found["waits"]["by"]] == ["edt-1"]
        assert {each["command"] for each in found["changes"]} == {""}

    def test_of_a_running_job_it_says_why_it_has_so_many(self, api: ServedApi) -> None:
        found = explanation(api, "ana", "edt-1")
        assert found["phase"] == "running"
        assert found["waits"] is None
        assert (found["holds"]["slots"], found["holds"]["next"]["rule"]) == (4, "gang")

    def test_a_job_of_somebody_else_is_not_there_and_one_that_is_over_says_so(self, fresh_api: ServedApi) -> None:
        job = fresh_api.submit("ana").exec_id
        path = f"/api/v1/jobs/{job}/explanation"
        assert fresh_api.client("bob").get(path).status_code == 404
        assert "has not looked at it yet" in fresh_api.client("ana").get(path).json()["sentence"]
        fresh_api.client("ana").post(f"/platform/rest/deeplearning/v1/execs/{job}/stop").raise_for_status()
        look(fresh_api.platform)
        over = fresh_api.client("ana").get(path).json()
        assert (over["phase"], over["waits"], over["expected"]) == ("over", None, None)


class TestWhatIf:
    def test_a_node_more_starts_the_job_that_waits(self, api: ServedApi) -> None:
        found = ask(api.client("admin"), {"kind": "more-slots", "slots": 2}).json()
        assert [(each["job"], each["effect"]) for each in found["jobs"]] == [("edt-2", "starts")]
        assert found["after"]["slots"] == found["before"]["slots"] + 2
        assert found["assumed"] == ["there is a further node with 2 slots"]

    def test_others_jobs_are_counted(self, api: ServedApi) -> None:
        found = ask(api.client("ana"), {"kind": "more-slots", "slots": 2}).json()
        assert (found["jobs"], found["hidden"]) == ([], {"starts": 1})

    def test_a_viewer_and_a_token_that_reads_may_ask(self, api: ServedApi) -> None:
        assert ask(api.client("vera"), {"kind": "node-less", "node": "n1"}).status_code == 200
        made = api.client("ana").post("/api/v1/tokens", json={"name": "reads", "scopes": ["read"]})
        token = made.json()["token"]
        assert ask(api.client(token=token), {"kind": "node-opened", "node": "shut"}).status_code == 200

    @pytest.mark.parametrize(
        ("wanted", "status", "named"),
        [
            ({"kind": "node-less", "node": "n9"}, 400, "n9"),
            ({"kind": "job", "job": "edt-1", "priority": 3}, 404, "edt-1"),
            ({"kind": "job-stopped", "job": "edt-999"}, 404, "edt-999"),
            ({"kind": "job-resumed", "job": "edt-2"}, 400, "not paused"),
            ({"kind": "more-slots", "slots": 0}, 400, "slots"),
            ({"kind": "queue", "queue": "/a", "policy": "best"}, 400, "policy"),
            ({"kind": "sunshine"}, 400, "kind"),
            ({"kind": "new-job", "max": 2, "min": 3}, 400, "min"),
        ],
    )
    def test_what_cannot_be_asked_is_refused_by_name(
        self, api: ServedApi, wanted: dict[str, Any], status: int, named: str
    ) -> None:
        answer = ask(api.client("bob"), wanted)
        assert answer.status_code == status, answer.text
        assert named in answer.json()["detail"]

    def test_every_kind_of_change_is_taken(self, api: ServedApi) -> None:
        whole = {"quota": 2, "limit": 3, "weight": 2.0, "policy": "fifo"}
        assert (
            ask(
                api.client("admin"),
                {"kind": "more-slots", "slots": 2, "device": "gpu", "model": "a100", "containers": True},
                {"kind": "node-opened", "node": "shut"},
                {"kind": "job", "job": "edt-2", "max": 4, "priority": 2, "device": "any", "models": ["A100"]},
                {"kind": "queue", "queue": "/a", **whole},
                {"kind": "new-job", "max": 4, "min": 2, "queue": "/a", "device": "cpu", "models": ["h100"]},
                {"kind": "job-stopped", "job": "edt-1"},
            )
            .json()["assumed"][3]
            .startswith("queue /a has a quota of 2 slots")
        )


class TestADryRun:
    def run(self, api: ServedApi, user: str, args: str) -> httpx.Response:
        answer: httpx.Response = api.client(user).post("/api/v1/dry-run", json={"args": args})
        return answer

    def test_it_says_when_the_job_would_start_and_stores_nothing(self, api: ServedApi) -> None:
        before = api.client("ana").get("/api/v1/jobs").json()["total"]
        found = self.run(api, "ana", GANG.format(3)).json()
        assert (found["kind"], found["max"], found["starts"], found["slots"]) == ("gang", 3, False, 0)
        assert found["explained"]["job"] == "new"
        assert found["explained"]["waits"]["rank"] == 2
        assert found["explained"]["waits"]["hidden"]["jobs"] + len(found["explained"]["waits"]["by"]) >= 1
        assert "edt-2" not in str(found)
        assert api.client("ana").get("/api/v1/jobs").json()["total"] == before

    def test_it_is_refused_as_the_submission_would_be(self, api: ServedApi) -> None:
        assert self.run(api, "ana", "--exec-start nothing").status_code == 400
        assert "--numWorker" in self.run(api, "ana", GANG.format(0)).json()["detail"]
        assert self.run(api, "vera", GANG.format(1)).status_code == 403

    def test_where_there_is_room_it_names_the_node(self, fresh_api: ServedApi) -> None:
        Puppet(fresh_api.platform, "n1", 4).join()
        found = self.run(fresh_api, "ana", GANG.format(3)).json()
        assert (found["starts"], found["slots"], found["nodes"]) == (True, 3, {"n1": 3})


def test_the_shapes_have_the_words_of_the_plan() -> None:
    assert [*shapes.Verdict] == [*verdicts.Verdict]
    assert [*shapes.WhyNotMore] == [*why.WhyNotMore]
    assert [*shapes.Effect] == [*whatif.Effect]
    assert [*QueuePolicy] == [*Sharing]
    for name in ("MoreSlots", "NodeLess", "NodeOpened", "JobWith", "JobStopped", "JobResumed", "QueueWith"):
        fields = getattr(shapes, name).model_fields
        assert fields.keys() == {"kind", *getattr(changes, name).__dataclass_fields__} - {"kind"} | {"kind"}
        assert fields["kind"].annotation.__args__ == (getattr(changes, name).kind,)
