"""The logs of the driver and of each engine of a real training, by their numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.journey import platform_in, submit
from support.running_platform import Platform

pytestmark = [pytest.mark.lane("processes"), pytest.mark.timeout(300)]

APPLICATIONS = "/platform/rest/deeplearning/v1/scheduler/applications"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_in(tmp_path_factory.mktemp("platform"), slots=2) as platform:
        yield platform


def test_each_engine_of_a_running_job_is_an_executor_with_a_log_of_its_own(platform: Platform) -> None:
    job = submit(platform, "executors", "--numWorker 2", "--epochs 2")
    job.until_slots(2)
    (application,) = platform.api.get(APPLICATIONS, params={"applicationid": job.id, "state": "RUNNING"}).json()
    assert application["task0"]["node"] == application["task12n"][0]["node"]
    assert [each["state"] for each in application["executors"]] == ["RUNNING", "RUNNING"]
    assert application["gpuslots"] == 2
    job.finish()
    printed = {}
    for process in ("driver", *(f"executor/{each['id']}" for each in application["executors"])):
        path = f"{APPLICATIONS}/{job.id}/{process}/logs"
        printed[process] = platform.api.get(f"{path}/stdout", headers={"Accept": "text/plain"}).text
        last = platform.api.get(f"{path}/stdout", params={"lastlines": 2}).text
        assert printed[process].splitlines()[-2:] == last.splitlines(), process
        assert platform.api.get(f"{path}/stderr").status_code == 200
        assert platform.api.get(f"{path}/launcherlog").text
    assert "START TRAINING" in printed["driver"]
    allocations = sorted(
        platform.api.get(f"/api/v1/jobs/{job.id}/allocations").json()["items"], key=lambda each: each["started_at"]
    )
    for number, each in enumerate(allocations, 1):
        kept = platform.home / "jobs" / job.id / "log" / f"engine-{each['allocation']}.out"
        assert printed[f"executor/{number}"] == kept.read_text() != ""
    assert platform.api.get(f"{APPLICATIONS}/{job.id}/executor/3/logs/stdout").status_code == 404
    platform.checker.assert_sound()
