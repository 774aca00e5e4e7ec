"""A job's life beyond one run, on real processes: each ends with the bits of one undisturbed training."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from support.gate import GateKeeper
from support.journey import PATIENCE, Job, platform_in, submit, visit
from support.running_platform import EXECS, Platform
from support.training import script

pytestmark = pytest.mark.timeout(300)  # a journey has many stations, and a machine may be busy
_numbers = itertools.count()


@pytest.fixture(scope="module")
def shared_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_in(tmp_path_factory.mktemp("platform")) as platform:
        yield platform


@pytest.fixture
def platform(shared_platform: Platform) -> Iterator[Platform]:
    with visit(shared_platform) as platform:
        yield platform


def ask(job: Job, verb: str, **body: object) -> str:
    """POST what the user wants of a job; return the sentence of the answer."""
    answer = job.platform.api.post(f"/api/v1/jobs/{job.id}/{verb}", json=body or None)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["message"])


def begun_from(job: Job, epochs: int = 6) -> Job:
    """Submit the script of the journey to begin from the checkpoint of ``job``, behind a gate that is open. It finds
    its seed there."""
    platform = job.platform
    gate = GateKeeper(platform.folder / f"gate-begun-{next(_numbers)}")
    options = f"--numWorker 4 --msd-env TEST_GATE={gate.path} --resume-from {job.id}"
    new = Job(platform, platform.submit(script("conv"), options, f"--epochs {epochs}"), gate, gate.path)
    gate.open()
    return new


def test_a_job_is_paused_resumed_stopped_and_gone_on_from(platform: Platform, undisturbed: Callable[..., str]) -> None:
    """The first: 4 → 0 → 2 engines, and stopped. The second has two slots and is given two epochs while it trains. A
    third begins from the first."""
    first = submit(platform, "first", arguments="--epochs 6")
    first.until_slots(4)
    assert "its engines leave at the next step with a checkpoint" in ask(first, "pause")
    first.gate.until(lambda: platform.job(first.id)["waiting"] is not None, PATIENCE, sparing=True)
    paused = platform.job(first.id)
    assert (paused["status"], paused["slots"], paused["waiting"]["blocking"]) == ("paused", 0, "paused")
    second = submit(platform, "second", "--numWorker 2", "--epochs 6")
    second.until_slots(2)
    ask(first, "resume")
    first.until_slots(2)
    assert platform.job(first.id)["attempts"] == 2
    assert "8 epochs in all" in ask(second, "extend", epochs=8)
    second.gate.until(lambda: platform.job(second.id)["attempts"] == 2, PATIENCE, sparing=True)
    second.until_slots(2)
    assert platform.api.post(f"{EXECS}/{first.id}/stop").status_code == 204
    stopped = platform.wait(first.id, "KILLED")
    assert f"--resume-from {first.id}" in stopped["kept"]
    third = begun_from(first)
    begun = platform.wait(third.id, "FINISHED")
    assert (begun["digest"], begun["resumed_from"]) == (undisturbed(6), first.id)
    assert 0 < begun["resumed_step"] <= stopped["checkpoint_step"]
    assert second.finish()["digest"] == undisturbed(8)


@pytest.mark.extended  # its parts: elastic/test_resume, scheduler/test_lives, api/test_lives
def test_a_job_that_is_over_is_extended_by_a_new_one(platform: Platform, undisturbed: Callable[..., str]) -> None:
    first = submit(platform, "first", arguments="--epochs 6")
    first.gate.open()
    assert platform.wait(first.id, "FINISHED")["digest"] == undisturbed(6)
    answer = platform.api.post(f"/api/v1/jobs/{first.id}/extend", json={"epochs": 8})
    assert answer.status_code == 400
    assert "TEST_GATE, EDT_SAMPLE_RECORD, whose values the platform has removed" in answer.json()["detail"]
    environ = {"TEST_GATE": str(first.gate.path), "EDT_SAMPLE_RECORD": str(platform.folder / "samples-extended")}
    headers = {"Idempotency-Key": "extend-it-once"}
    answers = [
        platform.api.post(f"/api/v1/jobs/{first.id}/extend", json={"epochs": 8, "environ": environ}, headers=headers)
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [200, 200]
    (new,) = {answer.json()["job"]["id"] for answer in answers}
    platform.checker.acknowledge(new)
    platform.jobs.append(new)
    ended = platform.wait(new, "FINISHED")
    assert (ended["digest"], ended["resumed_from"], ended["wanted_epochs"]) == (undisturbed(8), first.id, 8)
