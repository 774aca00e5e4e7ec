"""docker-compose.yml, brought up for real: a job from outside finishes in it, whoever runs it; nothing stays behind."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster import EXECS, SLOTS, Cluster, eventually, run

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]
DIGITS = Path(__file__).with_name("digits.py")
SECRETS = ("postgres-password", "valkey-password", "admin-password", "join-token", "secret-key")
AGENTS = {"process": "agent", "docker": "agent-docker"}
OVER = {"FINISHED", "ERROR", "KILLED"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """With this checkout's code: of the images that `make system-deps` made, only the last layer is ever old."""
    build = (sys.executable, "deploy/images.py", "--base", "openedt-test/base", "--tag", "test")
    run(*build, "api", "scheduler", "agent", seconds=240, EDT_SKIP_DASHBOARD="1")
    with Cluster() as cluster:
        yield cluster


def start(cluster: Cluster, name: str, epochs: int) -> str:
    """A training that is slow until ``finish``."""
    return cluster.submit(DIGITS, f"--numWorker {SLOTS}", f"--until {name} --epochs {epochs}")


def until_slots(cluster: Cluster, job: str, count: int) -> None:
    eventually(lambda: cluster.job(job)["workers"] == count, f"{job} trains on {count}")


def finish(cluster: Cluster, name: str, job: str) -> None:
    (cluster.data / name).touch()
    eventually(lambda: cluster.job(job)["state"] in OVER, f"{job} is over")


@pytest.mark.parametrize("launcher", [pytest.param("process", marks=pytest.mark.extended), "docker"])
def test_a_job_from_outside_makes_room_for_another_and_grows_again(cluster: Cluster, launcher: str) -> None:
    cluster.use(launcher)
    first = start(cluster, f"{launcher}-first", epochs=6)
    until_slots(cluster, first, 2)
    second = start(cluster, f"{launcher}-second", epochs=4)
    until_slots(cluster, second, 1)
    until_slots(cluster, first, 1)
    # While both run, in containers of their own where the launcher makes such.
    inspected = json.dumps(cluster.inspected())
    finish(cluster, f"{launcher}-second", second)
    until_slots(cluster, first, 2)
    finish(cluster, f"{launcher}-first", first)

    for job in (first, second):
        end = cluster.job(job)
        assert (end["state"], end["attempts"]) == ("FINISHED", 1)
        assert end["progress"]["metrics"]["accuracy"] > 0.3
    assert cluster.resizes(first)[:4] == [(0, 1), (1, 2), (2, 1), (1, 2)]
    answer = cluster.api.get(f"{EXECS}/{first}/result")
    assert answer.status_code == 200 and answer.content.startswith(b"PK")
    assert [name for name in SECRETS if cluster.secret(name) in inspected] == []
    cluster.compose("stop", AGENTS[launcher], profile=launcher)


def test_its_parts_are_healthy_and_may_do_no_more_than_they_must(cluster: Cluster) -> None:
    cluster.use("docker")
    containers = cluster.containers()
    assert containers.pop("migrate")["State"]["ExitCode"] == 0
    containers.pop("agent", None)  # where it was started, it was stopped
    eventually(
        lambda: (
            {
                container["State"]["Health"]["Status"]
                for container in cluster.containers().values()
                if container["State"]["Running"]
            }
            == {"healthy"}
        ),
        "all are healthy",
    )
    for name, container in containers.items():
        host = container["HostConfig"]
        assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and not host["Privileged"], name
        assert host["SecurityOpt"] == ["no-new-privileges:true"] and host["PidsLimit"] and host["Memory"], name
        if name != "postgres":  # which leaves root by itself
            assert container["Config"]["User"].partition(":")[0] not in {"", "0", "root"}, name
    published = {name: container["NetworkSettings"]["Ports"] for name, container in containers.items()}
    outside = {name for name, ports in published.items() for hosts in ports.values() for host in hosts or ()}
    assert outside == {"api", "valkey"}
    refused = run("docker", "exec", containers["valkey"]["Id"], "valkey-cli", "ping")
    assert refused.startswith("NOAUTH")


@pytest.mark.extended  # what is refused then: scheduler/test_pairing
def test_down_with_its_volume_leaves_only_results_and_a_new_database_takes_none(
    cluster: Cluster,
) -> None:
    cluster.use("docker")
    job = start(cluster, "never", epochs=1000)
    until_slots(cluster, job, 2)
    cluster.down()
    for label in cluster.marks():
        for kind in ("container", "network", "volume"):
            assert cluster.left(kind, label) == []
    assert (cluster.home / "jobs" / job / "checkpoint" / "latest").exists()

    # The next database is another one: refused, and the result is still there when it is taken all the same.
    with pytest.raises(AssertionError):
        cluster.compose("up", "-d", profile="")
    output = cluster.compose("logs", "--no-color", "migrate", profile="")
    assert f"EDT_HOME {cluster.home} (id " in output and "the database is new" in output
    doctor = ("run", "--rm", "-T", "--no-deps", "scheduler", "edt_cli", "doctor")
    cluster.compose(*doctor, "--adopt", "--yes", profile="")
    cluster.compose("up", "-d", profile="")
    eventually(cluster.serves, "the API is ready")
    look = ("exec", "-T", "api", "python", "-m", "edt_cli", "--api", "http://127.0.0.1:9280", "doctor", "-o", "json")
    seen = json.loads(cluster.compose(*look, profile=""))
    assert seen["api"]["ready"] and seen["home_id"] == seen["database_id"]
    assert job in {entry["job"] for entry in seen["lost_found"]}
    assert (cluster.home / "lost+found" / job / job / "checkpoint" / "latest").exists()
