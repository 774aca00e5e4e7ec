"""Gangs as the API shows them: their records, their processes by rank, and a log of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from edt_api.job_files import logs
from edt_contract.reports import ExitKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.model.jobs import DefaultLog
from edt_scheduler.operations import accounts, agents, execs
from edt_scheduler.views import JobView, SlotUse
from support.puppets import Puppet
from support.served_api import EXECS, ServedApi, served

SCHEDULER = "/platform/rest/deeplearning/v1/scheduler"
CONDUCTOR = "/platform/rest/conductor/v1/instances/openedt/applications"
MB = 1 << 20


@dataclass
class Scene:
    """Ana's jobs. ``gang``: two workers of two slots, each on a node of its own; rank 1 of its four has ended.
    ``threads``: one worker with one process for both of its slots. ``waits`` needs three slots at once.
    """

    api: ServedApi
    gang: JobView
    threads: JobView
    waits: JobView

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self.api.client("ana").get(path, params=params)

    def application(self, job: JobView) -> Any:
        return self.get(f"{SCHEDULER}/applications/{job.exec_id}").json()

    def log(self, **params: Any) -> str:
        return self.get(f"{EXECS}/{self.gang.exec_id}/log", **params).text


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with served(tmp_path_factory.mktemp("home")) as api:
        nodes = [Puppet(api.platform, name=name, slots=slots) for name, slots in (("node-b", 3), ("node-a", 3))]
        for node in nodes:
            node.peers = nodes
            node.join()

        def settle() -> None:
            for _ in range(3):
                look(api.platform)
                for node in nodes:
                    node.obey()

        gang = api.submit(args="--exec-start distPyTorch --numWorker 2 --workerDeviceNum 2 --model-main main.py")
        settle()
        for rank in range(4):
            (gang.log_dir / f"rank-{rank}.out").write_text("".join(f"rank {rank}, line {line}\n" for line in range(3)))
            (gang.log_dir / f"rank-{rank}.err").write_text(f"rank {rank} warned\n")
        nodes.append(Puppet(api.platform, name="node-d", slots=2, peers=nodes).join())
        threads = api.submit(args="--exec-start PyTorch --workerDeviceNum 2 --model-main main.py")
        settle()
        key = (gang.exec_id, 1)
        head = next(node for node in nodes if 1 in node.running[key])
        head.gone(key, sorted(head.running[key])[1], ExitKind.FINISHED)
        agents.record_usage(api.platform, "node-d", [SlotUse(str(n), 0.75, 100 * MB) for n in range(2)])
        waits = api.submit(args="--exec-start distPyTorch --numWorker 9 --model-main main.py")
        look(api.platform)
        yield Scene(api, gang, threads, waits)


class TestRecords:
    def test_an_exec_is_not_elastic_and_keeps_the_name_of_its_framework(self, scene: Scene) -> None:
        found = scene.get(f"{EXECS}/{scene.gang.exec_id}").json()
        assert (found["elastic"], found["framework"], found["numWorker"]) == (False, "distPyTorch", 2)
        assert found["state"] == "RUNNING"

    def test_an_application_has_no_task0_and_an_executor_for_each_rank(self, scene: Scene) -> None:
        found = scene.application(scene.gang)
        assert (found["task0"], found["driver"]["coresused"]) == (None, 0.0)
        assert [each["id"] for each in found["executors"]] == ["1", "2", "3", "4"]
        assert [each["state"] for each in found["executors"]] == ["RUNNING", "FINISHED", "RUNNING", "RUNNING"]
        assert len({task["node"] for task in found["task12n"][:2]}) == 1
        assert len({task["node"] for task in found["task12n"]}) == 2
        assert (found["slots"], found["demandslots"]) == (3, 0), "what is free again is not asked for again"

    def test_one_that_waits_asks_for_all_of_its_slots(self, scene: Scene) -> None:
        found = scene.application(scene.waits)
        assert (found["executors"], found["slots"], found["demandslots"]) == ([], 0, 9)

    def test_a_process_with_several_slots_is_one_executor_as_busy_as_all_of_them(self, scene: Scene) -> None:
        found = scene.application(scene.threads)
        assert len(found["executors"]) == 1
        assert (found["gpudevutil"], found["gpumemused"]) == ({"total": 150.0}, {"total": 200.0})

    def test_a_record_says_what_a_worker_asks_for(self, scene: Scene) -> None:
        (found,) = scene.get(f"{SCHEDULER}/engine/applications/{scene.gang.exec_id}").json()
        assert found["task12n_resreq"].startswith("ngpus=2,mem=0,")
        assert (found["task12n_num"], len(found["task12n"]), found["used_gpu"]) == (2, 4, 3)

    def test_kubernetes_objects_have_a_pod_for_each_process_that_is_there(self, scene: Scene) -> None:
        found = scene.get(f"{SCHEDULER}/kubernetesobjects", type="pod", name=scene.threads.exec_id).json()
        (pod,) = found["items"]
        assert pod["metadata"]["name"] == f"{scene.threads.exec_id}-task12n-1"
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
        job = scene.get(f"{SCHEDULER}/kubernetesobjects", type="paralleljob", name=scene.gang.exec_id).json()
        assert [group["metadata"]["name"] for group in job["spec"]["taskGroups"]] == ["task12n"]

    def test_our_own_record_names_kind_size_and_ranks(self, scene: Scene) -> None:
        found = scene.get(f"/api/v1/jobs/{scene.gang.exec_id}").json()
        assert (found["kind"], found["processes"], found["min_workers"], found["max_workers"]) == ("gang", 4, 4, 4)
        assert found["exactness"]["verdict"] == "not-applicable"
        threads = scene.get(f"/api/v1/jobs/{scene.threads.exec_id}").json()
        assert (threads["kind"], threads["processes"], threads["max_workers"]) == ("gang", 1, 2)
        waits = scene.get(f"/api/v1/jobs/{scene.waits.exec_id}").json()
        assert waits["waiting"]["need"] == 9

    def test_the_timeline_and_the_nodes_tell_gangs_from_elastic_jobs(self, scene: Scene) -> None:
        assert scene.get("/api/v1/timeline").json()["jobs"][scene.gang.exec_id]["kind"] == "gang"
        nodes = {node["name"]: node for node in scene.get("/api/v1/nodes").json()["items"]}
        assert [slot["kind"] for slot in nodes["node-d"]["slots"]] == ["gang", "gang"]
        free = [slot["kind"] for node in nodes.values() for slot in node["slots"] if not slot["busy"]]
        assert free and set(free) == {None}


class TestRanks:
    def test_each_has_its_node_its_slots_and_how_it_ended(self, scene: Scene) -> None:
        items = scene.get(f"/api/v1/jobs/{scene.gang.exec_id}/ranks").json()["items"]
        assert [each["rank"] for each in items] == [0, 1, 2, 3]
        assert [each["kind"] for each in items] == [None, "finished", None, None]
        assert items[1]["ended_at"] is not None
        assert [each["slots"] for each in items] == [["0"], ["1"], ["0"], ["1"]]
        (threads,) = scene.get(f"/api/v1/jobs/{scene.threads.exec_id}/ranks").json()["items"]
        assert (threads["node"], threads["slots"]) == ("node-d", ["0", "1"])

    def test_they_come_in_pages(self, scene: Scene) -> None:
        path = f"/api/v1/jobs/{scene.gang.exec_id}/ranks"
        first = scene.get(path, limit=3).json()
        rest = scene.get(path, limit=3, cursor=first["next"]).json()
        assert [each["rank"] for each in first["items"] + rest["items"]] == [0, 1, 2, 3]
        assert rest["next"] is None

    def test_one_that_waits_has_none(self, scene: Scene) -> None:
        assert scene.get(f"/api/v1/jobs/{scene.waits.exec_id}/ranks").json() == {"items": [], "next": None}


RANK_0 = "rank 0, line 0\nrank 0, line 1\nrank 0, line 2\n"


class TestLogs:
    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            ({}, RANK_0),
            ({"logType": "outlog"}, RANK_0),
            ({"logType": "errlog"}, "rank 0 warned\n"),
            ({"logType": "outerrlog"}, RANK_0 + "rank 0 warned\n"),
            ({"lastlines": 1}, "rank 0, line 2\n"),
        ],
    )
    def test_the_log_of_a_gang_is_that_of_rank_0(self, scene: Scene, asked: dict[str, Any], expected: str) -> None:
        assert scene.log(**asked) == expected

    def test_where_the_metric_lines_are_the_usual_log_they_come_if_the_script_wrote_any(self, scene: Scene) -> None:
        job = replace(scene.gang, default_log=DefaultLog.STEPS)
        assert "".join(logs.text(job, "")) == RANK_0
        elog = scene.gang.log_dir / "stdout"
        elog.write_text("[now] Train,\tLoss: 1\n")
        try:
            assert "".join(logs.text(job, "")) == elog.read_text()
            assert scene.log() == RANK_0
        finally:
            elog.unlink()

    def test_each_executor_has_the_log_of_its_rank(self, scene: Scene) -> None:
        for path in (f"{SCHEDULER}/applications/{scene.gang.exec_id}/executor/3/logs/stdout",):
            assert scene.get(path).text.startswith("rank 2, line 0\n")
            assert scene.get(path, lastlines=1).text == "rank 2, line 2\n"
        conductor = f"{CONDUCTOR}/{scene.gang.exec_id}"
        assert scene.get(f"{conductor}/4/logs/stderr/download").text == "rank 3 warned\n"
        assert scene.get(f"{conductor}/logs/stdout/download").text == RANK_0
        launcher = scene.get(f"{SCHEDULER}/applications/{scene.gang.exec_id}/executor/2/logs/launcherlog").text
        assert "the process of rank 1 was seen gone: finished" in launcher
        assert scene.get(f"{SCHEDULER}/applications/{scene.gang.exec_id}/executor/5/logs/stdout").status_code == 404

    def test_the_list_names_a_file_for_each_rank_and_each_can_be_followed(self, scene: Scene) -> None:
        path = f"/api/v1/jobs/{scene.gang.exec_id}"
        names = [each["stream"] for each in scene.get(f"{path}/logs").json()["items"]]
        assert names == [f"rank-{rank}.{stream}" for rank in range(4) for stream in ("out", "err")]
        assert scene.get(f"{path}/log", stream="rank-2.out", offset=15).text == "rank 2, line 1\nrank 2, line 2\n"
        assert scene.get(f"{path}/log", stream="out").text == RANK_0
        assert scene.get(f"{path}/log", stream="rank-00.out").status_code == 400

    def test_a_follower_reads_on_where_a_ranks_file_was_turned_over(self, scene: Scene) -> None:
        file = scene.gang.log_dir / "rank-3.out"
        path, before = f"/api/v1/jobs/{scene.gang.exec_id}/log", file.read_bytes()
        file.rename(file.with_name("rank-3.out.1"))
        file.write_bytes(b"new\n")
        try:
            rest = scene.get(path, stream="rank-3.out", offset=30)
            assert (rest.text, rest.headers["edt-log-offset"]) == ("rank 3, line 2\n", "0")
            assert scene.get(path, stream="rank-3.out", offset=0).text == "new\n"
        finally:
            file.with_name("rank-3.out.1").unlink()
            file.write_bytes(before)


def test_the_error_log_of_a_gang_says_which_rank_failed_where_rank_0_wrote_no_error(fresh_api: ServedApi) -> None:
    node = Puppet(fresh_api.platform, slots=2).join()
    node.peers = [node]
    job = fresh_api.submit(args="--exec-start distPyTorch --numWorker 2 --model-main main.py")
    for _ in range(2):
        look(fresh_api.platform)
        node.obey()
    node.end((job.exec_id, 1), ExitKind.SCRIPT_ERROR, message="rank 1: ValueError: no such file")
    look(fresh_api.platform)
    seen = execs.job(fresh_api.platform, job.exec_id, viewer=accounts.user(fresh_api.platform, "ana"))
    answer = fresh_api.client("ana").get(f"{EXECS}/{job.exec_id}/log", params={"logType": "errlog"})
    assert (seen.state.wire, answer.text) == ("ERROR", "rank 1: ValueError: no such file\n")
