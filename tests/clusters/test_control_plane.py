"""The control plane in a real Kubernetes, from deploy/kubernetes: it comes up, and a job trains in pods it asks for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from checker.samples import audit
from support.cluster import run
from support.control_plane import ControlPlane
from support.kubernetes_cluster import Kubernetes

pytestmark = [pytest.mark.kubernetes, pytest.mark.docker, pytest.mark.timeout(600)]
DIGITS = Path(__file__).parents[1] / "compose" / "digits.py"
SAMPLES, EPOCHS = 1437, 4
"""Of that training."""
OVER = {"FINISHED", "ERROR", "KILLED"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """With this checkout's code: of the images that `make system-deps` made, only the last layer is ever old."""
    build = (sys.executable, "deploy/images.py", "--base", "openedt-test/base", "--tag", "test")
    run(*build, "api", "scheduler", "provisioner", "agent", seconds=300, EDT_SKIP_DASHBOARD="1")
    with (
        Kubernetes(tmp_path_factory.mktemp("kubernetes")) as kubernetes,
        ControlPlane(kubernetes, tmp_path_factory.mktemp("plane")) as plane,
    ):
        plane.until_up()
        plane.log_in()
        yield plane


def leaders(plane: ControlPlane) -> list[str]:
    """Pods whose scheduler decides, by what each has said last about it."""
    return [pod for pod in plane.ready("scheduler") if _decides(plane.log(pod))]


def _decides(log: str) -> bool:
    said = [line for line in log.splitlines() if "deciding" in line or "standing by" in line]
    return bool(said) and "INFO edt.scheduler: deciding" in said[-1]


def test_it_migrates_once_and_one_of_two_schedulers_decides(plane: ControlPlane) -> None:
    assert plane.get("job", "openedt-migrate")["status"]["succeeded"] == 1
    assert len(plane.get("pods", component="migrate")) == 1
    plane.until(
        lambda: len(leaders(plane)) == 1 and len(plane.ready("scheduler")) == 2, "one decides, one stands by", 60
    )
    for pod in plane.get("pods", name="openedt"):
        restarts = [each["restartCount"] for each in pod["status"].get("containerStatuses", ())]
        assert not any(restarts), f"{pod['metadata']['name']} was started again: nothing waits by dying"
    pool = plane.ask("/api/v1/pools")["pools"][0]
    assert (pool["name"], pool["kind"], pool["trouble"]) == ("kubernetes", "kubernetes", None)


def test_only_the_provisioner_can_use_kubernetes(plane: ControlPlane) -> None:
    """The admission of service accounts is on, so each pod would be given a token if it did not say otherwise."""
    with_token = {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]
        for pod in plane.get("pods", name="openedt")
        for volume in pod["spec"]["volumes"]
        if "-token-" in volume["name"] or volume["name"].startswith("kube-api-access")
    }
    assert with_token == {"provisioner"}
    who = "--as=system:serviceaccount:openedt:openedt-provisioner"
    for verb, what, may in (("create", "jobs", True), ("get", "secrets", False), ("create", "pods", False)):
        assert plane.may(verb, what, who) is may, (verb, what)
    assert not plane.may("list", "nodes", who)


def test_a_job_trains_in_pods_while_pods_of_the_control_plane_come_and_go(plane: ControlPlane) -> None:
    record = plane.folder / "home" / "samples"
    record.mkdir()
    os.chown(record, 10001, 10001)
    options = "--numWorker 2 --msd-env EDT_SAMPLE_RECORD=/srv/openedt/samples"
    job = plane.submit(DIGITS, options, f"--until finish --epochs {EPOCHS}")

    def workers() -> int:
        found = plane.ask(f"/api/v1/jobs/{job}")
        assert found["state"] not in OVER, found["message"]
        return int(found["workers"] or 0)

    plane.until(lambda: workers() == 2, f"{job} trains on two pods", 120)
    pods = plane.get("pods", component="training")
    assert {pod["metadata"]["labels"]["openedt.io/job"] for pod in pods} == {job}
    assert sorted(pod["spec"]["priorityClassName"] for pod in pods) == ["openedt-growth", "openedt-training"]
    assert {account for pod in pods for account in [pod["spec"]["serviceAccountName"]]} == {"openedt-training"}

    [leader] = leaders(plane)
    plane.delete_pod(leader)
    plane.delete_pod(plane.ready("api")[0])
    plane.until(lambda: leaders(plane) not in ([], [leader]), "the other scheduler decides", 60)
    time.sleep(1)  # it trains on while nobody looks
    assert workers() == 2
    (plane.folder / "data" / "finish").touch()
    plane.until(lambda: plane.ask(f"/api/v1/jobs/{job}")["state"] in OVER, f"{job} is over", 120)

    end = plane.ask(f"/api/v1/jobs/{job}")
    assert (end["state"], end["attempts"]) == ("FINISHED", 1), end["message"]
    assert [str(each) for each in audit(record, SAMPLES, EPOCHS) if each.lost or each.repeated] == []
    plane.until(lambda: plane.get("pods", component="training") == [], "the pods are given back", 150)
    assert plane.get("secrets", component="training") == []


@pytest.mark.extended
def test_an_agents_pod_that_is_replaced_gives_its_trainings_time_to_leave(plane: ControlPlane) -> None:
    plane.api.patch("/api/v1/pools/kubernetes", json={"max_nodes": 0}).raise_for_status()
    plane.kubernetes.kubectl("label", "node", "--all", "openedt.io/dedicated=true")
    plane.until(lambda: plane.ready("agent") != [], "the machine has its agent", 60)
    [pod] = plane.ready("agent")
    job = plane.submit(DIGITS, "--numWorker 2", f"--until replaced --epochs {EPOCHS}")
    plane.until(lambda: plane.ask(f"/api/v1/jobs/{job}")["workers"] == 2, f"{job} trains", 120)

    plane.delete_pod(pod)
    plane.until(lambda: plane.node()["health"] == "draining", "it takes no more jobs", 30)
    assert plane.ask(f"/api/v1/jobs/{job}")["workers"] == 2, "it trains on until half of the time is over"
    plane.until(lambda: plane.ready("agent") not in ([], [pod]), "another pod has taken its place", 90)
    plane.until(lambda: plane.node()["health"] == "up", "the node takes jobs again", 30)
    plane.until(lambda: plane.ask(f"/api/v1/jobs/{job}")["workers"] == 2, f"{job} trains again", 120)
    (plane.folder / "data" / "replaced").touch()
    plane.until(lambda: plane.ask(f"/api/v1/jobs/{job}")["state"] in OVER, f"{job} is over", 120)
    end = plane.ask(f"/api/v1/jobs/{job}")
    assert (end["state"], end["attempts"]) == ("FINISHED", 2), end["message"]
