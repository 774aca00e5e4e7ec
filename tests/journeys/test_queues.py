"""Users, queues and priorities on a whole platform: who is entitled to slots gets them, and no training restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from support.cast import cast
from support.gangs import counting
from support.journey import PATIENCE, Job, platform_in, submit, visit
from support.running_platform import Platform
from support.waiting import until

Undisturbed = Callable[..., str]
pytestmark = pytest.mark.timeout(300)  # a journey has many stations, and a machine may be busy
PASSWORD = "a-long-enough-password"


@contextmanager
def as_user(platform: Platform, name: str) -> Iterator[None]:
    """Let a user, who is added if need be, ask the platform."""
    users = {each["name"] for each in platform.api.get("/api/v1/users").json()["items"]}
    if name not in users:
        new = {"name": name, "password": PASSWORD, "role": "user"}
        platform.api.post("/api/v1/users", json=new).raise_for_status()
    admin = platform.api.auth
    platform.api.auth = httpx.BasicAuth(name, PASSWORD)
    try:
        yield
    finally:
        platform.api.auth = admin


def submitted_by(platform: Platform, user: str, options: str, arguments: str = "--epochs 20") -> Job:
    with as_user(platform, user):
        return submit(platform, user, options, arguments)


@contextmanager
def queues(platform: Platform, **quotas: int) -> Iterator[None]:
    """Queues with these quotas, for as long as the block lasts."""
    for name, quota in quotas.items():
        platform.api.put(f"/api/v1/queues/{name}", json={"quota": quota}).raise_for_status()
    try:
        yield
    finally:
        for name in quotas:
            platform.api.delete(f"/api/v1/queues/{name}")


def held(platform: Platform, job: Job) -> int:
    return int(platform.job(job.id)["slots"])


def causes(platform: Platform, job: Job) -> list[tuple[str, int, int]]:
    return [(each["cause"], each["from_slots"], each["to_slots"]) for each in platform.resizes(job.id)]


def test_a_quota_is_lent_while_nobody_wants_it_and_comes_back_at_once(
    platform: Platform, undisturbed: Undisturbed
) -> None:
    """Three users; the borrower: 1 → 4 → 1, and it ends with the digest of an undisturbed training."""
    with queues(platform, research=2, vision=1):
        borrower = submitted_by(platform, "ana", "--numWorker 4 --queue /speech")
        borrower.until_slots(4)
        vision = submitted_by(platform, "bob", "--numWorker 1 --queue /vision", "--epochs 2")
        research = submitted_by(platform, "cyd", "--numWorker 2 --queue /research", "--epochs 2")
        borrower.until_slots(1)
        research.until_slots(2)
        vision.until_slots(1)
        assert "reclaim" in {cause for cause, _, _ in causes(platform, borrower)}
        for job in (vision, research):
            job.finish()
        end = borrower.finish()
    assert (end["attempts"], end["digest"]) == (1, undisturbed())


def test_a_job_of_a_higher_priority_gets_what_it_can_use_and_others_keep_their_least_size(platform: Platform) -> None:
    """A step of each job has four micro-batches: 2 and 2, then 1, 1 and 2."""
    low = [submit(platform, "low", "--numWorker 4") for _ in range(2)]
    for job in low:
        job.until_slots(2)
    high = submit(platform, "high", "--numWorker 4 --msd-priority 9", "--epochs 2")
    for job in low:
        job.until_slots(1)
    high.until_slots(2)
    assert any(("priority", 2, 1) in causes(platform, job) for job in low)
    platform.api.patch(f"/api/v1/jobs/{high.id}", json={"max_workers": 1}).raise_for_status()
    high.until_slots(1)
    assert ("bounds", 2, 1) in causes(platform, high)
    for job in (high, *low):
        job.finish()


@pytest.mark.extended  # what decides it: scheduler/test_plan_queues
def test_a_gang_of_three_waits_behind_nothing_but_what_its_user_is_not_entitled_to(platform: Platform) -> None:
    elastic = submitted_by(platform, "ana", "--numWorker 4")
    elastic.until_slots(4)
    gang = counting(platform, "--numWorker 3")
    elastic.until_slots(1)
    gang.until_counting()
    gang.end()
    elastic.until_slots(4)
    elastic.finish()


@pytest.mark.extended  # a hundred submissions; what decides it: scheduler/test_plan_properties
def test_a_hundred_jobs_of_one_user_leave_half_to_the_one_job_of_another(platform: Platform) -> None:
    many = [submitted_by(platform, "ana", "--numWorker 4") for _ in range(100)]
    until(lambda: sum(held(platform, job) for job in many[:8]) == 4, PATIENCE, "four of them run")
    one = submitted_by(platform, "bob", "--numWorker 4", "--epochs 2")
    for job in many[:8]:
        job.gate.open()
    one.until_slots(2)
    assert sum(held(platform, job) for job in many) <= 2
    one.finish()


# ── drained without a stop ────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_in(tmp_path_factory.mktemp("platform"), slots=2) as platform:
        platform.add_node("second", slots=2)
        yield platform


def test_a_job_whose_only_node_is_drained_trains_on_while_it_moves(
    two_nodes: Platform, undisturbed: Undisturbed
) -> None:
    with visit(two_nodes) as platform:
        job = submit(platform, "job", "--numWorker 2")
        job.until_slots(2)
        home = next(n["name"] for n in platform.nodes() if any(slot["exec_id"] == job.id for slot in n["slots"]))
        [other] = {node["name"] for node in platform.nodes()} - {home}
        platform.api.post(f"/api/v1/nodes/{home}/drain").raise_for_status()
        job.gate.until(lambda: not cast(platform, job.id).named("supervisor", home), PATIENCE)
        assert len(cast(platform, job.id).named("engine", other)) == 2
        job.until_slots(2)
        end = job.finish()
        assert (end["attempts"], end["digest"]) == (1, undisturbed())
        platform.api.post(f"/api/v1/nodes/{home}/uncordon").raise_for_status()
