"""``/api/v1/queues``, what a job can be changed to by ``PATCH /api/v1/jobs/{id}``, and ``/api/v1/decisions``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edt_scheduler.decide.reconcile import look
from edt_scheduler.model.states import Role
from edt_scheduler.operations import accounts
from support.credentials import PASSWORD
from support.puppets import Puppet
from support.served_api import ServedApi, cheap_hasher, served

LINE = "--exec-start edtPyTorch --model-main main.py"
GANG = "--exec-start distPyTorch --model-main main.py"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[ServedApi]:
    with served(tmp_path / "home") as api:
        accounts.add_user(api.platform, "vera", cheap_hasher().hash(PASSWORD), Role.VIEWER)
        yield api


def put(api: ServedApi, path: str, user: str = "admin", **settings: Any) -> Any:
    return api.client(user).put(f"/api/v1/queues/{path}", json=settings)


def tree(api: ServedApi, user: str = "admin") -> dict[str, Any]:
    """The queues by their paths."""
    answer = api.client(user).get("/api/v1/queues")
    assert answer.status_code == 200, answer.text
    return {queue["path"]: queue for queue in answer.json()["queues"]}


def settle(api: ServedApi, node: Puppet) -> None:
    for _ in range(5):
        look(api.platform)
        node.obey()


class TestTheTree:
    def test_there_is_always_a_root(self, stage: ServedApi) -> None:
        (root,) = tree(stage, "ana").values()
        assert {name: root[name] for name in ("path", "name", "parent", "depth", "quota", "limit", "policy")} == {
            "path": "", "name": "root", "parent": None, "depth": 0, "quota": 0, "limit": None, "policy": "efficient",
        }  # fmt: skip

    def test_queues_come_after_those_above_them(self, stage: ServedApi) -> None:
        for path in ("b", "a-b", "a", "a/z", "a/c"):
            assert put(stage, path).status_code == 200
        found = tree(stage)
        assert list(found) == ["", "/a", "/a/c", "/a/z", "/a-b", "/b"]
        assert (found["/a/c"]["name"], found["/a/c"]["parent"], found["/a/c"]["depth"]) == ("c", "/a", 2)

    def test_what_is_left_out_stays_and_null_takes_the_limit_away(self, stage: ServedApi) -> None:
        first = put(stage, "a", quota=2, weight=1.5, limit=4, policy="fifo").json()
        assert first.pop("message") == "/a has a quota of 2, the weight 1.5, at most 4 slots, and shares by fifo"
        assert first == {"path": "/a", "quota": 2, "weight": 1.5, "limit": 4, "policy": "fifo"}
        assert put(stage, "a", quota=3).json() | {"message": ""} == first | {"quota": 3, "message": ""}
        changed = put(stage, "a", limit=None).json()
        assert changed["limit"] is None and changed["message"].endswith("no limit, and shares by fifo")
        assert tree(stage)["/a"]["quota"] == 3

    def test_the_root_can_be_changed_and_gets_its_first_settings_back(self, stage: ServedApi) -> None:
        assert put(stage, "", policy="fifo", limit=8).json()["message"].startswith("the root has")
        assert (tree(stage)[""]["policy"], tree(stage)[""]["limit"]) == ("fifo", 8)
        assert stage.client("admin").delete("/api/v1/queues/").status_code == 204
        assert (tree(stage)[""]["policy"], tree(stage)[""]["limit"]) == ("efficient", None)

    @pytest.mark.parametrize(
        ("path", "settings", "sentence"),
        [
            ("a/b", {}, "path: there is no queue /a above /a/b: make it first"),
            ("-a", {}, "path: got '/-a', takes parts like /research/vision"),
            ("a", {"quota": 5, "limit": 4}, "quota: got 5, takes at most the limit of /a, 4"),
            ("a", {"weight": 0}, "weight: "),
            ("a", {"quota": -1}, "quota: "),
            ("a", {"policy": "random"}, "policy: "),
            ("a", {"share": 1}, "share: "),
        ],
    )
    def test_what_cannot_be_is_refused_by_its_field(
        self, api: ServedApi, path: str, settings: dict[str, Any], sentence: str
    ) -> None:
        answer = put(api, path, **settings)
        assert answer.status_code == 400 and answer.json()["detail"].startswith(sentence), answer.text

    def test_a_queue_with_queues_below_it_stays_and_one_that_is_not_there_is_404(self, stage: ServedApi) -> None:
        put(stage, "a"), put(stage, "a/b")
        refused = stage.client("admin").delete("/api/v1/queues/a")
        assert (refused.status_code, refused.json()["code"]) == (409, "queue-in-use")
        assert stage.client("admin").delete("/api/v1/queues/a/b").status_code == 204
        assert stage.client("admin").delete("/api/v1/queues/a").status_code == 204
        assert stage.client("admin").delete("/api/v1/queues/a").status_code == 404

    def test_everybody_reads_and_admins_change(self, stage: ServedApi) -> None:
        for user in ("ana", "vera"):
            assert put(stage, "a", user).status_code == 403
            assert stage.client(user).delete("/api/v1/queues/a").status_code == 403
            tree(stage, user)


class TestJobsInQueues:
    def test_the_tree_says_who_holds_and_who_waits_and_why(self, stage: ServedApi) -> None:
        put(stage, "a", quota=1), put(stage, "a/b"), put(stage, "c")
        node = Puppet(stage.platform, slots=2, engines=2).join()
        running = stage.submit("ana", f"{LINE} --numWorker 2 --queue a/b")
        settle(stage, node)
        waiting = stage.submit("bob", f"{GANG} --numWorker 3 --queue c --msd-priority 3")
        look(stage.platform)
        found = tree(stage)
        assert {path: (each["used"], each["running"], each["waiting"]) for path, each in found.items()} == {
            "": (2, 1, 1), "/a": (2, 1, 0), "/a/b": (2, 1, 0), "/c": (0, 0, 1),
        }  # fmt: skip
        (ana,) = found["/a/b"]["users"]
        assert (ana["user"], ana["held"], ana["running"]) == ("ana", 2, 1)
        (job,) = found["/c"]["waiting_jobs"]
        assert (job["job"], job["owner"], job["priority"], job["need"]) == (waiting.exec_id, "bob", 3, 3)
        assert job["blocking"] and job["reason"]
        assert running.exec_id not in {each["job"] for queue in found.values() for each in queue["waiting_jobs"]}

    def test_a_user_sees_their_own_and_how_many_others_there_are(self, stage: ServedApi) -> None:
        for user in ("ana", "bob"):
            stage.submit(user, LINE)
        look(stage.platform)
        seen = tree(stage, "bob")[""]
        assert [user["user"] for user in seen["users"]] == ["bob"]
        assert (seen["others"]["users"], seen["others"]["waiting"], seen["waiting"]) == (1, 1, 2)
        assert [job["owner"] for job in seen["waiting_jobs"]] == ["bob"]
        whole = tree(stage, "vera")[""]
        assert ({user["user"] for user in whole["users"]}, whole["others"]["users"]) == ({"ana", "bob"}, 0)

    def test_a_queue_that_is_not_defined_counts_as_the_one_above_and_the_jobs_note_says_so(
        self, stage: ServedApi
    ) -> None:
        put(stage, "research")
        job = stage.submit("ana", f"{LINE} --queue /research/vison").exec_id
        remark = stage.client("ana").get(f"/api/v1/jobs/{job}").json()["remark"]
        assert remark == "there is no queue /research/vison: the job belongs to /research until there is"
        look(stage.platform)
        assert tree(stage)["/research"]["waiting"] == 1
        put(stage, "research/vison")
        assert [each["job"] for each in tree(stage)["/research/vison"]["waiting_jobs"]] == [job]
        stage.client("admin").delete("/api/v1/queues/research/vison")
        assert [each["job"] for each in tree(stage)["/research"]["waiting_jobs"]] == [job]

    def test_where_there_are_no_queues_a_consumer_of_wmlas_clients_is_no_remark(self, stage: ServedApi) -> None:
        job = stage.submit("ana", f"{LINE} --consumer /SampleApplications/EclairsWorkload")
        assert job.remark is None
        assert stage.submit("ana", f"{LINE} --queue /x").remark == (
            "there is no queue /x: the job belongs to the root until there is"
        )


class TestChanges:
    def patch(self, api: ServedApi, job: str, user: str = "ana", **wanted: Any) -> Any:
        return api.client(user).patch(f"/api/v1/jobs/{job}", json=wanted)

    def test_a_running_job_grows_to_its_new_bounds(self, stage: ServedApi) -> None:
        node = Puppet(stage.platform, slots=4, engines=4).join()
        job = stage.submit("ana", f"{LINE} --numWorker 2").exec_id
        settle(stage, node)
        assert stage.client("ana").get(f"/api/v1/jobs/{job}").json()["slots"] == 2
        answer = self.patch(stage, job, min_workers=2, max_workers=4)
        assert answer.json()["message"] == f"{job} has 2 to 4 slots from now on"
        assert (answer.json()["job"]["min_workers"], answer.json()["job"]["max_workers"]) == (2, 4)
        settle(stage, node)
        assert stage.client("ana").get(f"/api/v1/jobs/{job}").json()["slots"] == 4

    def test_a_running_job_gives_back_what_is_more_than_it_may_have(self, stage: ServedApi) -> None:
        node = Puppet(stage.platform, slots=4, engines=4).join()
        job = stage.submit("ana", f"{LINE} --numWorker 4").exec_id
        settle(stage, node)
        self.patch(stage, job, max_workers=2)
        settle(stage, node)
        assert stage.client("ana").get(f"/api/v1/jobs/{job}").json()["slots"] == 2
        resizes = stage.client("ana").get(f"/api/v1/jobs/{job}/resizes").json()["items"]
        assert (resizes[-1]["cause"], resizes[-1]["from_slots"], resizes[-1]["to_slots"]) == ("bounds", 4, 2)

    @pytest.mark.parametrize(
        ("wanted", "sentence"),
        [
            ({"min_workers": 5}, "min_workers: got 5, takes at most the max, 4"),
            ({"min_workers": 3, "max_workers": 2}, "min_workers: got 3, takes at most the max, 2"),
            ({"max_workers": 0}, "max_workers: "),
            ({"priority": 0}, "priority: "),
            ({"slots": 2}, "slots: "),
            ({}, "the body: got nothing to change; it takes min_workers, max_workers and priority"),
        ],
    )
    def test_what_a_job_cannot_be_is_refused_by_its_field(
        self, api: ServedApi, wanted: dict[str, Any], sentence: str
    ) -> None:
        answer = self.patch(api, api.submit("ana", f"{LINE} --numWorker 4").exec_id, **wanted)
        assert answer.status_code == 400 and answer.json()["detail"].startswith(sentence), answer.text

    def test_its_owner_lowers_a_priority_and_an_admin_raises_it(self, api: ServedApi) -> None:
        job = api.submit("ana", f"{LINE} --msd-priority 5").exec_id
        assert self.patch(api, job, priority=3).json()["message"] == f"{job} has the priority 3 from now on"
        assert self.patch(api, job, priority=5).json()["job"]["priority"] == 5
        refused = self.patch(api, job, priority=6)
        assert (refused.status_code, refused.json()["detail"]) == (
            400,
            f"priority: got 6, takes at most 5, with which {job} was submitted; an admin may set a higher one",
        )
        assert self.patch(api, job, "admin", priority=6).json()["job"]["priority"] == 6

    def test_all_of_it_is_changed_or_nothing(self, api: ServedApi) -> None:
        job = api.submit("ana", f"{LINE} --numWorker 4").exec_id
        assert self.patch(api, job, max_workers=2, priority=9).status_code == 400
        assert api.client("ana").get(f"/api/v1/jobs/{job}").json()["max_workers"] == 4
        both = self.patch(api, job, "admin", max_workers=2, priority=9).json()
        assert both["message"] == f"{job} has 1 to 2 slots and the priority 9 from now on"

    def test_a_gang_keeps_its_size_and_another_users_job_is_unknown(self, api: ServedApi) -> None:
        gang = api.submit("ana", f"{GANG} --numWorker 2").exec_id
        refused = self.patch(api, gang, max_workers=3)
        assert (refused.status_code, "is a gang" in refused.json()["detail"]) == (409, True)
        assert self.patch(api, gang, "bob", priority=1).status_code == 404

    def test_a_job_that_is_over_is_409(self, api: ServedApi) -> None:
        job = api.submit("ana", LINE).exec_id
        api.client("ana").post(f"/platform/rest/deeplearning/v1/execs/{job}/stop")
        assert self.patch(api, job, priority=1).json()["code"] == "job-over"


class TestDecisions:
    def test_they_are_listed_newest_first_and_each_comes_out_the_same(self, stage: ServedApi) -> None:
        node = Puppet(stage.platform, slots=3, engines=4).join()
        jobs = [stage.submit("ana", f"{LINE} --numWorker 2").exec_id for _ in range(2)]
        settle(stage, node)
        admin = stage.client("admin")
        found = admin.get("/api/v1/decisions").json()["items"]
        assert [each["id"] for each in found] == sorted((each["id"] for each in found), reverse=True)
        assert {action["job"] for each in found for action in each["actions"]} == set(jobs)
        started = [action for each in found for action in each["actions"] if action["verb"] == "start"]
        assert {(action["job"], action["before"]) for action in started} == {(job, 0) for job in jobs}
        for each in found:
            whole = admin.get(f"/api/v1/decisions/{each['id']}").json()
            assert (whole["same"], whole["differences"]) == (True, [])
            assert {job["id"] for job in whole["state"]["jobs"]} == set(jobs) and whole["plan"]["actions"]

    def test_those_about_one_job_come_in_pages(self, stage: ServedApi) -> None:
        node = Puppet(stage.platform, slots=2, engines=2).join()
        first = stage.submit("ana", f"{LINE} --numWorker 2").exec_id
        settle(stage, node)
        second = stage.submit("ana", f"{LINE} --numWorker 1").exec_id
        settle(stage, node)
        admin = stage.client("admin")
        whole = admin.get("/api/v1/decisions").json()["items"]
        assert len(whole) > 1
        page = admin.get("/api/v1/decisions", params={"limit": 1}).json()
        rest = admin.get("/api/v1/decisions", params={"cursor": page["next"]}).json()
        assert page["items"] + rest["items"] == whole
        about = admin.get("/api/v1/decisions", params={"job": second}).json()["items"]
        assert about == [each for each in whole if second in {action["job"] for action in each["actions"]}]
        assert len(about) < len(whole) and first != second
        assert admin.get("/api/v1/decisions", params={"job": "edt-%"}).json()["items"] == []

    def test_they_are_for_admins(self, api: ServedApi) -> None:
        for path in ("/api/v1/decisions", "/api/v1/decisions/1"):
            assert api.client("ana").get(path).status_code == 403
        assert api.client("admin").get("/api/v1/decisions/1").json()["code"] == "no-such-decision"
