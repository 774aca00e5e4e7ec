"""Any process may die: the job goes on, in the same attempt wherever an engine is left, with the same result."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from chaos.choices import Kind
from chaos.victims import of
from edt_demo import sample_record as record
from support.cast import cast, kill_and_await_another
from support.journey import PATIENCE, Job, platform_in, submit, visit
from support.running_platform import Platform
from support.waiting import until

Undisturbed = Callable[..., str]
pytestmark = pytest.mark.timeout(300)  # a journey has many stations, and a machine may be busy


def goes_on(job: Job, steps: int = 3) -> None:
    """Steps are committed, however few are let through at once."""
    at = len({entry.step for entry in record.read(job.record)})
    job.gate.until(lambda: len({entry.step for entry in record.read(job.record)}) >= at + steps, PATIENCE)


def ever_trained(job: Job) -> int:
    """Engines that have had a part in a step, by the files of their own that they write."""
    return sum(path.stat().st_size > 0 for path in job.record.glob("samples-*.jsonl"))


def test_an_engine_that_dies_or_stands_still_is_replaced_and_nobody_else_notices(
    platform: Platform, undisturbed: Undisturbed
) -> None:
    job = submit(platform, "job")
    job.until_slots(4)
    for replaced, number in enumerate((signal.SIGKILL, signal.SIGSTOP), 1):
        before = cast(platform, job.id)
        victim = min(before.engines)
        platform.checker.disturbed()
        os.kill(victim, number)
        goes_on(job)
        job.gate.until(lambda number=4 + replaced: ever_trained(job) == number, PATIENCE)
        after = cast(platform, job.id)
        assert before.engines - after.engines == {victim}
        assert len(after.engines) == 4
        for part in ("driver", "coordinator", "supervisor"):
            assert after.named(part) == before.named(part)
    end = job.finish()
    assert end["attempts"] == 1
    assert end["digest"] == undisturbed()


def test_engines_train_on_while_everything_around_them_dies(platform: Platform, undisturbed: Undisturbed) -> None:
    """Coordinator, driver, agent; then scheduler, API and broker at once."""
    job = submit(platform, "job")
    job.until_slots(4)
    engines = cast(platform, job.id).engines
    for part in ("coordinator", "driver"):
        kill_and_await_another(platform, job.id, part)
        goes_on(job)
    for kinds in ([Kind.AGENT], [Kind.SCHEDULER, Kind.API, Kind.BROKER]):
        platform.checker.disturbed()
        victims = [process.pid for kind in kinds for process in of(kind, platform)]
        assert len(victims) >= len(kinds)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        goes_on(job)
        until(platform.serves, 60, "the platform is back")
    assert cast(platform, job.id).engines == engines
    end = job.finish()
    assert end["attempts"] == 1
    assert end["digest"] == undisturbed()
    out = (platform.home / "jobs" / job.id / "log/driver.out").read_text()
    assert out.count("the code behind train() runs once") == 1


def test_a_job_whose_only_supervisor_dies_goes_on_as_its_next_attempt(
    platform: Platform, undisturbed: Undisturbed
) -> None:
    job = submit(platform, "job")
    job.until_slots(4)
    job.gate.until(lambda: any((platform.home / "jobs" / job.id / "checkpoint").glob("at-*")), PATIENCE)
    os.kill(cast(platform, job.id).one("supervisor"), signal.SIGKILL)
    until(lambda: platform.job(job.id)["attempts"] == 2, 60, "a next attempt")
    job.until_slots(4)
    end = job.finish()
    assert end["attempts"] == 2
    assert end["digest"] == undisturbed()


# ── on two nodes ──────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_in(tmp_path_factory.mktemp("platform"), slots=2) as platform:
        platform.add_node("second", slots=2)
        yield platform


@pytest.fixture
def pair(two_nodes: Platform) -> Iterator[Platform]:
    """A platform of two nodes with two slots each, both of which may be used."""
    with visit(two_nodes) as platform:
        for node in platform.nodes():
            platform.api.post(f"/api/v1/nodes/{node['name']}/uncordon").raise_for_status()
        yield platform


def spanning(platform: Platform) -> tuple[Job, str, str]:
    """A job on two nodes, the name of its home, and that of the other one."""
    job = submit(platform, "job")
    job.until_slots(4)
    names = [node["name"] for node in platform.nodes() if any(slot["exec_id"] == job.id for slot in node["slots"])]
    [home] = [name for name in names if cast(platform, job.id).named("coordinator", name)]
    [other] = set(names) - {home}
    return job, home, other


@pytest.mark.extended  # what decides it: scheduler/test_homes
def test_the_home_of_a_job_is_drained_and_another_node_takes_over(pair: Platform, undisturbed: Undisturbed) -> None:
    job, home, other = spanning(pair)
    stay = cast(pair, job.id).named("engine", other)
    pair.api.post(f"/api/v1/nodes/{home}/drain").raise_for_status()
    job.gate.until(lambda: not cast(pair, job.id).named("supervisor", home), PATIENCE)
    assert cast(pair, job.id).named("engine", other) == stay
    for part in ("driver", "coordinator"):  # a fork bears its parent's name for a moment
        until(lambda part=part: len(cast(pair, job.id).named(part, other)) == 1, what=f"{part} on the other")
    goes_on(job)
    end = job.finish()
    assert end["attempts"] == 1
    assert end["digest"] == undisturbed()


def test_the_home_of_a_job_dies_and_another_node_takes_over(pair: Platform, undisturbed: Undisturbed) -> None:
    job, home, other = spanning(pair)
    stay = cast(pair, job.id).named("engine", other)
    [supervisor] = cast(pair, job.id).named("supervisor", home)
    pair.checker.disturbed()
    os.kill(supervisor, signal.SIGKILL)
    job.gate.until(lambda: bool(cast(pair, job.id).named("driver", other)), PATIENCE)
    goes_on(job)
    assert cast(pair, job.id).named("engine", other) >= stay
    end = job.finish()
    assert end["attempts"] == 1
    assert end["digest"] == undisturbed()


@pytest.mark.extended  # what decides it: scheduler/test_decisions, test_head_nodes
def test_a_drained_node_is_left_by_a_job_that_spans_two_and_taken_again_when_it_is_back(
    pair: Platform, undisturbed: Undisturbed
) -> None:
    """Its engines leave, the job stays on its home. Uncordoned, it gets engines again, in the same attempt."""
    job, _, other = spanning(pair)
    pair.api.post(f"/api/v1/nodes/{other}/drain").raise_for_status()
    job.until_slots(2)
    until(
        lambda: all(s["exec_id"] is None for n in pair.nodes() if n["name"] == other for s in n["slots"]),
        60,
        "the drained node is empty",
    )
    pair.api.post(f"/api/v1/nodes/{other}/uncordon").raise_for_status()
    job.until_slots(4)
    end = job.finish()
    assert end["attempts"] == 1
    assert end["digest"] == undisturbed()
