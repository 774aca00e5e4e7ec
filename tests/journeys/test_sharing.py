"""Jobs share the slots: they grow, make room, and end with the bits of an undisturbed run."""

from __future__ import annotations

import io
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from chaos.choices import Kind
from chaos.victims import hit, of
from checker.violation import Invariant
from edt_demo import sample_record as record
from support.journey import PATIENCE, all_woken, platform_in, submit, visit
from support.running_platform import EXECS, Platform
from support.waiting import until

Undisturbed = Callable[..., str]
pytestmark = pytest.mark.timeout(300)  # a journey has many stations, and a machine may be busy


@pytest.fixture(scope="module")
def shared_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Its agent learns of nothing but by notifications: its timer is minutes away, further than a test may last."""
    folder = tmp_path_factory.mktemp("platform")
    with platform_in(folder, EDT_AGENT_TICK_SECONDS="600", EDT_LEASE_SECONDS="1800") as platform:
        yield platform


@pytest.fixture(scope="module")
def small_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_in(tmp_path_factory.mktemp("platform"), slots=2) as platform:
        yield platform


@pytest.fixture
def small(small_platform: Platform) -> Iterator[Platform]:
    """A platform of two slots."""
    with visit(small_platform) as platform:
        yield platform


def test_a_second_job_gets_half_and_gives_it_back(platform: Platform, undisturbed: Undisturbed) -> None:
    """A: 1 → 4 → 2 → 4; B: 1 → 2. Notifications wake everybody; nothing is lost."""
    expected = undisturbed()
    first = submit(platform, "first")
    first.until_slots(4)
    second = submit(platform, "second", arguments="--epochs 2")
    first.until_slots(2)  # it leaves at a step's boundary, so it is let through first
    second.until_slots(2)
    second.finish()
    first.until_slots(4)
    end = first.finish()
    assert (end["digest"], end["attempts"]) == (expected, 1)
    for audit in record.audit(record.read(first.record), samples=237, epochs=20):
        assert (audit.lost, audit.repeated) == ((), ())

    resizes = all_woken(platform, first, second)
    assert [r["to_slots"] for r in platform.resizes(first.id)][:2] == [1, 4]
    submitted, *others = resizes  # to a node that may be about to ask for the first time
    assert submitted["woken_by"] in {"notification", "start"}
    assert {resize["woken_by"] for resize in others} == {"notification"}
    assert all(resize["woken_at"] >= resize["decided_at"] for resize in resizes)

    answer = platform.api.get(f"{EXECS}/{first.id}/result")
    assert answer.headers["content-disposition"].startswith("attachment;filename=dlpd-model-")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        state = torch.load(io.BytesIO(archive.read("train/model_epoch_final.pth")), weights_only=True)
    assert state["6.weight"].shape == (5, 96)
    log = platform.api.get(f"{EXECS}/{first.id}/log", headers={"Accept": "text/plain"}).text
    assert all(line.startswith("[") and ",\tTimestamp: " in line for line in log.splitlines())


@pytest.mark.extended  # each part by itself: agent/test_notifications, scheduler/test_process
def test_without_a_broker_the_timer_does_the_same(tmp_path: Path, undisturbed: Undisturbed) -> None:
    with platform_in(tmp_path, EDT_AGENT_TICK_SECONDS="0.5") as platform:
        platform.checker.excuse(Invariant.I13)  # nobody takes what is in the outbox
        first = submit(platform, "first")
        first.until_slots(4)
        hold_down_broker(platform)
        second = submit(platform, "second", arguments="--epochs 2")
        first.until_slots(2)  # it leaves at a step's boundary, so it is let through first
        second.until_slots(2)
        second.finish()
        first.until_slots(4)
        assert first.finish()["digest"] == undisturbed()
        later = [r["woken_by"] for r in all_woken(platform, second)]
        assert "timer" in later and set(later) <= {"timer", "notification"}


def hold_down_broker(platform: Platform) -> None:
    """Stop the broker in its tracks: connections stand, nothing answers. Worse than a dead one."""
    [broker] = of(Kind.BROKER, platform)
    hit(broker, signal.SIGSTOP)


def test_stopping_a_job_frees_its_slots_for_the_other(platform: Platform) -> None:
    first, second = (submit(platform, name, arguments="--epochs 6") for name in ("first", "second"))
    # The first may have had all, and leaves at a step's boundary.
    first.gate.until(lambda: platform.job(second.id)["slots"] == 2, PATIENCE)
    second.until_slots(2)
    assert platform.api.post(f"{EXECS}/{first.id}/stop").status_code == 204
    platform.wait(first.id, "KILLED", seconds=40)
    second.until_slots(4)
    second.finish()
    assert platform.job(first.id)["state"] == "KILLED"


@pytest.mark.extended  # what decides it: scheduler/test_decisions
def test_ten_queued_jobs_start_in_the_order_they_came(small: Platform, tmp_path: Path) -> None:
    blocker = submit(small, "blocker", "--numWorker 2")
    blocker.until_slots(2)
    (tmp_path / "main.py").write_text("import time\nprint(time.time())\n")
    jobs = [small.submit(tmp_path / "main.py", "--numWorker 1") for _ in range(10)]
    blocker.until_slots(1)  # it leaves at a step's boundary, so it must be let through some
    for job in jobs:
        small.wait(job, "FINISHED", seconds=90)
    started = [float((small.home / "jobs" / job / "log/driver.out").read_text()) for job in jobs]
    assert started == sorted(started)
    assert small.job(blocker.id)["attempts"] == 1  # it gave one slot and never stopped


@pytest.mark.extended  # what decides it: scheduler/test_plan
def test_a_job_that_does_not_fit_waits_with_a_reason(small: Platform) -> None:
    first = [submit(small, name, "--numWorker 1", "--epochs 2") for name in ("first", "second")]
    for job in first:
        job.until_slots(1)
    last = submit(small, "last", "--numWorker 1", "--epochs 2")
    waiting = until(lambda: small.job(last.id)["waiting"], 60, "a reason")
    assert waiting["blocking"] == "capacity" and "slot" in waiting["reason"]
    assert small.api.get(f"{EXECS}/{last.id}").json()["state"] == "PENDING_CRD_SCHEDULER"
    for job in (*first, last):
        job.finish()
