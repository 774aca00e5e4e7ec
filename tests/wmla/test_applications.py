"""Jobs as WMLA's scheduler shows them: applications, records, logs of each process, objects of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from ibm_cloud_sdk_core.authenticators import BasicAuthenticator
from ibm_wmla.wmla_api_v1 import DeepLearningImpactV1, SigAppInstanceDetail, SparkApplicationDetail

from edt_contract.reports import ExitKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.operations import agents
from edt_scheduler.views import JobView, SlotUse
from support.credentials import PASSWORD
from support.puppets import Puppet
from support.removed import job_without_files
from support.served_api import EXECS, ServedApi, served

SCHEDULER = "/platform/rest/deeplearning/v1/scheduler"
ENGINE = f"{SCHEDULER}/engine/applications"
MB = 1 << 20


@dataclass
class Scene:
    """A finished job of ana's, a running one with two engines of which one is gone, a waiting one, and one of bob's."""

    api: ServedApi
    over: JobView
    runs: JobView
    waits: JobView
    bobs: JobView

    def get(self, path: str, user: str = "ana", **params: Any) -> httpx.Response:
        return self.api.client(user).get(f"{SCHEDULER}/{path}", params=params)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with served(tmp_path_factory.mktemp("home")) as api:
        node = Puppet(api.platform, name="node-a", slots=2, engines=2).join()
        over = api.submit(args="--exec-start edtPyTorch --model-main main.py --appName First")
        look(api.platform)
        node.obey()
        node.end((over.exec_id, 1), ExitKind.FINISHED)
        runs = api.submit(args="--exec-start edtPyTorch --numWorker 2 --model-main main.py --appName Second")
        for _ in range(3):
            look(api.platform)
            node.obey()
        key = (runs.exec_id, 1)
        first = min(node.running[key])
        node.gone(key, first, ExitKind.LOST)
        agents.record_usage(api.platform, "node-a", [SlotUse(str(n), 0.75, 100 * MB) for n in range(2)])
        for allocation, text in zip(sorted({first, *node.running[key]}), ("one\ntwo\nthree\n", "zwei"), strict=True):
            (runs.log_dir / f"engine-{allocation}.out").write_text(text)
            (runs.log_dir / f"engine-{allocation}.err").write_text("warned\n")
        (runs.log_dir / "driver.out").write_text("".join(f"line {n}\n" for n in range(50_000)))
        waits, bobs = api.submit(), api.submit("bob")
        yield Scene(api, over, runs, waits, bobs)


class TestApplications:
    def test_they_fit_the_sdks_own_models(self, scene: Scene) -> None:
        client = DeepLearningImpactV1(authenticator=BasicAuthenticator("ana", PASSWORD))
        client.set_service_url(scene.api.url)
        found = client.get_applications(state="RUNNING", sort="-submittedtime", start="0", length="10").get_result()
        (application,) = [SparkApplicationDetail.from_dict(each) for each in found]
        assert (application.applicationid, application.state) == (scene.runs.exec_id, "RUNNING")
        assert application.driver.id == scene.runs.exec_id and application.driver.host == "127.0.0.1"
        assert [each.id for each in application.executors] == ["1", "2"]
        assert [each.state for each in application.executors] == ["ERROR", "RUNNING"]
        assert isinstance(application.apprunduration, float) and isinstance(application.submittedtime, int)
        (instance,) = [SigAppInstanceDetail.from_dict(each) for each in client.get_app_instances().get_result()]
        assert instance.uuid == found[0]["sparkinstancegroupid"]

    def test_a_running_one_says_how_busy_its_slots_are(self, scene: Scene) -> None:
        (found,) = scene.get("applications", applicationid=scene.runs.exec_id).json()
        assert found["task0"]["node"] == "node-a"
        assert [task["name"] for task in found["task12n"]] == ["task12n-1", "task12n-2"]
        assert (found["gpuslots"], found["gpumemused"], found["gpudevutil"]) == (1, {"total": 100.0}, {"total": 75.0})
        assert found == scene.get(f"applications/{scene.runs.exec_id}").json() | {
            name: found[name] for name in ("timestamp", "apprunduration", "driver", "executors")
        }

    def test_one_that_waits_has_no_process(self, scene: Scene) -> None:
        found = scene.get(f"applications/{scene.waits.exec_id}").json()
        assert (found["task0"], found["task12n"], found["executors"]) == (None, [], [])
        assert (found["driver"]["id"], found["endtime"], found["apprunduration"]) == (scene.waits.exec_id, 0, 0.0)

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ({}, ["over", "runs", "waits"]),
            ({"sort": "-submittedtime"}, ["waits", "runs", "over"]),
            ({"sort": "submittedtime", "order": "desc"}, ["waits", "runs", "over"]),
            ({"sort": "-end_time"}, ["over", "runs", "waits"]),
            ({"start": 1}, ["runs", "waits"]),
            ({"start": 1, "length": 1}, ["runs"]),
            ({"state": "RUNNING,LAUNCHING,RECOVERING"}, ["runs"]),
            ({"state": "LAUNCHING"}, []),
            ({"state": ["RUNNING", "FINISHED"]}, ["over", "runs"]),
            ({"applicationname": "Second"}, ["runs"]),
            ({"search": "sec"}, ["runs"]),
            ({"applicationid": "edt-1"}, ["over"]),
            ({"driverid": "edt-2"}, ["runs"]),
            ({"driverid": "edt-2", "applicationid": "edt-1"}, []),
            ({"applicationid": "edt-2", "state": "FINISHED"}, []),
            ({"applicationid": "nonsense"}, []),
            ({"sigId": "openedt", "state": ""}, ["over", "runs", "waits"]),
            ({"sigId": "another"}, []),
        ],
    )
    def test_a_query_chooses_and_sorts(self, scene: Scene, query: dict[str, Any], expected: list[str]) -> None:
        names = [getattr(scene, name).exec_id for name in expected]
        assert [each["applicationid"] for each in scene.get("applications", **query).json()] == names

    @pytest.mark.parametrize(
        ("query", "status", "said"),
        [
            ({"start": 3}, 416, "Error 416: start: got 3, which is beyond the end of the list: it has 3"),
            ({"start": -1}, 400, "start"),
            ({"sort": "colour"}, 400, "sort: got 'colour'; it takes one of id,"),
            ({"sort": "id", "order": "up"}, 400, "asc or desc"),
            ({"state": "HAPPY"}, 400, "state: got 'HAPPY'"),
        ],
    )
    def test_a_wrong_query_is_told_what_is_taken(
        self, scene: Scene, query: dict[str, Any], status: int, said: str
    ) -> None:
        for path in ("applications", "applications/", "engine/applications"):
            answer = scene.get(path, **query)
            assert answer.status_code == status and answer.text.startswith(f"Error {status}: ")
            assert said in answer.text

    def test_everybody_sees_their_own_and_an_admin_all(self, scene: Scene) -> None:
        assert [each["username"] for each in scene.get("applications", "bob").json()] == ["bob"]
        for path in ("applications", "engine/applications"):
            assert len(scene.get(path, "admin").json()) == 4
        theirs = scene.bobs.exec_id
        for path in (
            f"applications/{theirs}",
            f"applications/{theirs}/driver/logs/stdout",
            f"applications/{theirs}/executor/1/logs/stdout",
            f"engine/applications/{theirs}",
        ):
            assert scene.get(path).text == "Error 400: Cannot find task with given execId.\n", path
        assert scene.get("applications", applicationid=theirs).json() == []
        assert scene.api.client("ana").put(f"{SCHEDULER}/applications/{theirs}/stop").status_code == 400
        assert scene.api.client().get(f"{SCHEDULER}/applications").status_code == 401

    def test_a_stop_ends_the_job(self, scene: Scene) -> None:
        job, client = scene.api.submit("bob"), scene.api.client("bob")
        assert client.put(f"{SCHEDULER}/applications/{job.exec_id}/stop").is_success
        assert client.get(f"{EXECS}/{job.exec_id}").json()["state"] == "KILLED"
        client.delete(f"{EXECS}/{job.exec_id}")


class TestRecords:
    def test_a_record_has_seconds_and_numbers(self, scene: Scene) -> None:
        (record,) = scene.get(f"engine/applications/{scene.runs.exec_id}").json()
        assert {name: record[name] for name in ("id", "name", "state", "submit_user", "consumer", "tag")} == {
            "id": scene.runs.exec_id,
            "name": "Second",
            "state": "RUNNING",
            "submit_user": "ana",
            "consumer": "/openedt",
            "tag": "",
        }
        assert 0 < record["submit_time"] <= record["start_time"] and record["end_time"] == 0
        assert (record["used_gpu"], record["used_mem"], record["task12n_num"]) == (1, 100.0, 2)
        assert record["task0_resreq"] == "ngpus=0,mem=0,ncpus=1"
        assert record["task12n_resreq"].startswith("ngpus=1,mem=0,ncpus=")
        assert (record["is_packing"], record["pack_id"], record["kernels"]) == (False, "", [])
        assert len(record["task12n"]) == 2

    def test_a_record_says_what_the_user_asked_for(self, scene: Scene) -> None:
        options = "--msd-priority 7 --msd-pack-id p --workerMemory 8g --driverMemory 512M --workerDeviceNum 2"
        job = scene.api.submit("bob", f"--exec-start edtPyTorch --model-main main.py --numWorker 3 {options}")
        (record,) = scene.get(f"engine/applications/{job.exec_id}", "bob").json()
        assert (record["priority"], record["pack_id"], record["task12n_num"]) == (7, "p", 3)
        assert record["task0_resreq"] == "ngpus=0,mem=512,ncpus=1"
        assert record["task12n_resreq"].startswith("ngpus=2,mem=8192,ncpus=")
        scene.api.client("bob").delete(f"{EXECS}/{job.exec_id}")

    def test_the_list_takes_what_the_command_line_sends(self, scene: Scene) -> None:
        active = "NEW,SUBMITTED,PENDING_JOB_SCHEDULER,PENDING_CRD_SCHEDULER,LAUNCHING,RUNNING,RECOVERING,UNKNOWN"
        found = scene.get("engine/applications", start=0, length=10000, sort="-submit_time", state=active).json()
        assert [each["id"] for each in found] == [scene.waits.exec_id, scene.runs.exec_id]
        assert scene.get("engine/applications/", start=0, state="KILLED").json() == []


class TestLogs:
    def log(self, scene: Scene, path: str, **params: Any) -> httpx.Response:
        return scene.get(f"applications/{scene.runs.exec_id}/{path}", **params)

    def test_each_process_has_its_own(self, scene: Scene) -> None:
        answer = self.log(scene, "executor/1/logs/stdout")
        assert answer.text == "one\ntwo\nthree\n" and answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert self.log(scene, "executor/2/logs/stdout").text == "zwei"
        assert self.log(scene, "executor/2/logs/stderr").text == "warned\n"
        assert self.log(scene, "driver/logs/stdout").text.endswith("line 49999\n")

    @pytest.mark.parametrize("lines", [1, 2, 3, 4, 7000, 49_999, 50_000, 50_001, 2_000_000])
    def test_only_the_last_lines(self, scene: Scene, lines: int) -> None:
        expected = [f"line {n}" for n in range(50_000)][-lines:]
        assert self.log(scene, "driver/logs/stdout", lastlines=lines).text.splitlines() == expected
        assert (
            self.log(scene, "executor/1/logs/stdout", lastlines=lines).text.splitlines()
            == ["one", "two", "three"][-lines:]
        )
        assert self.log(scene, "executor/2/logs/stdout", lastlines=lines).text == "zwei"
        path = f"{EXECS}/{scene.runs.exec_id}/log"
        params = {"logType": "outlog", "lastlines": lines}
        assert scene.api.client("ana").get(path, params=params).text.splitlines() == expected

    def test_the_launchers_log_is_what_the_platform_did(self, scene: Scene) -> None:
        said = self.log(scene, "executor/1/logs/launcherlog").text
        assert "of node-a" in said and said.splitlines()[-1].endswith("the engine's process was seen gone: lost")
        history = self.log(scene, "driver/logs/launcherlog").text.splitlines()
        assert any("SUBMITTED" in line for line in history) and any("attempt 1 runs" in line for line in history)
        assert self.log(scene, "driver/logs/launcherlog", lastlines=2).text.splitlines() == history[-2:]

    def test_what_is_not_there_is_said(self, scene: Scene) -> None:
        answer = self.log(scene, "executor/3/logs/stdout")
        assert answer.status_code == 404
        assert answer.text.startswith(f"Error 404: {scene.runs.exec_id} has no executor '3': it has started 2 so far")
        assert self.log(scene, "driver/logs/nothing").status_code == 400
        assert "'stdout', 'stderr' or 'launcherlog'" in self.log(scene, "driver/logs/nothing").text
        assert self.log(scene, "driver/logs/stdout", lastlines=0).status_code == 400
        assert self.log(scene, "executor/0/logs/stdout").status_code == 400
        assert scene.get(f"applications/{scene.waits.exec_id}/driver/logs/stdout").text == ""

    def test_a_link_in_a_logs_place_leads_nowhere(self, scene: Scene, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("secret\n")
        (scene.over.log_dir / "driver.err").symlink_to(tmp_path / "secret")
        path = f"applications/{scene.over.exec_id}/driver/logs/stderr"
        assert "secret" not in scene.get(path).text + scene.get(path, lastlines=1).text


class TestObjects:
    def test_a_job_is_a_parallel_job(self, scene: Scene) -> None:
        found = scene.get("kubernetesobjects", type="paralleljob", name=scene.runs.exec_id).json()
        assert found["status"]["jobStatus"] == "RUNNING"
        assert found["status"]["jobStartTime"].endswith("Z") and found["status"]["jobPendingReason"] == ""
        groups = {group["metadata"]["name"]: group["spec"] for group in found["spec"]["taskGroups"]}
        assert (groups["task0"]["replica"], groups["task12n"]["replica"]) == (1, 2)
        assert groups["task12n"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
        waiting = scene.get("kubernetesobjects", type="paralleljob", name=scene.waits.exec_id).json()
        assert "jobStartTime" not in waiting["status"]
        assert scene.get("kubernetesobjects", type="paralleljob", name="edt-99").status_code == 400

    def test_lists_hold_the_jobs_that_are_not_over_and_their_processes(self, scene: Scene) -> None:
        jobs = scene.get("kubernetesobjects", type="paralleljob").json()["items"]
        assert [job["metadata"]["name"] for job in jobs] == [scene.runs.exec_id, scene.waits.exec_id]
        pods = scene.get("kubernetesobjects", type="pod").json()["items"]
        names = [f"{scene.runs.exec_id}-task0", f"{scene.runs.exec_id}-task12n-2"]
        assert [pod["metadata"]["name"] for pod in pods] == names
        assert scene.get("kubernetesobjects", type="pod", name=scene.waits.exec_id).json() == {"items": []}
        assert scene.get("kubernetesobjects/", type="service").json() == {"items": []}


def test_of_a_job_whose_files_are_removed_the_platforms_own_log_is_left(fresh_api: ServedApi) -> None:
    job, told = job_without_files(fresh_api)
    client = fresh_api.client("ana")
    for process in ("driver", "executor/1"):
        for log in ("stdout", "stderr"):
            gone = client.get(f"{SCHEDULER}/applications/{job}/{process}/logs/{log}")
            assert (gone.status_code, gone.text) == (410, f"Error 410: {told}\n")
        kept = client.get(f"{SCHEDULER}/applications/{job}/{process}/logs/launcherlog")
        assert kept.status_code == 200 and kept.text
