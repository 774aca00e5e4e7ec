"""Gangs on a whole platform of two nodes: they start whole, end whole, and go on from what they saved."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import zipfile
from collections.abc import Callable, Iterator

import pytest

from support import gangs, journey
from support.cast import cast
from support.gangs import EXAMPLES, add_framework, closed, counting, first_node, learned, spread, typed
from support.journey import platform_in, visit
from support.running_platform import EXECS, Platform
from support.waiting import until

pytestmark = pytest.mark.timeout(300)  # a journey has many stations, and a machine may be busy


@pytest.fixture(scope="module")
def shared_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Two nodes of two CPU slots each."""
    with platform_in(tmp_path_factory.mktemp("platform"), slots=2) as platform:
        platform.add_node("second", 2)
        yield platform


@pytest.fixture
def platform(shared_platform: Platform) -> Iterator[Platform]:
    with visit(shared_platform) as platform:
        yield platform


def begun(job: gangs.GangJob, rank: int = 0) -> list[int]:
    """At which round a rank began, attempt by attempt."""
    return [int(number) for number in re.findall(r"begins at round (\d+)", job.output(rank))]


# ── beside elastic jobs ───────────────────────────────────────────────────────────────────────────────────────────
def test_a_gang_of_three_starts_where_an_elastic_job_holds_all_four_slots_and_gives_them_back(
    platform: Platform, undisturbed: Callable[..., str]
) -> None:
    """The elastic job: 1 → 4 → 1 → 4, and it ends with the digest of an undisturbed training."""
    expected = undisturbed()
    elastic = journey.submit(platform, "elastic")
    elastic.until_slots(4)
    gang = counting(platform, "--numWorker 3")
    elastic.until_slots(1)  # its engines leave at a step's boundary
    gang.until_counting()
    assert gang.nodes() in (sorted([first_node(platform)] * number + ["second"] * (3 - number)) for number in (1, 2))
    assert {each["released_at"] for each in gang.allocations()} == {None}
    elastic.until_slots(1)
    gang.end()
    elastic.until_slots(4)
    end = elastic.finish()
    assert (end["digest"], end["attempts"]) == (expected, 1)
    assert [(resize["from_slots"], resize["to_slots"]) for resize in platform.resizes(gang.id)][:1] == [(0, 3)]

    # Each rank is a process with logs of its own, which users read as WMLA's executors.
    places = [re.match(rf"rank {rank} of 3 on (\S+) begins", gang.executor(rank + 1)) for rank in range(3)]
    assert sorted(place[1] for place in places if place) == gang.nodes()
    assert gang.executor(3, "stderr") == "rank 2 has no trouble\n"
    assert gang.log() == gang.log(logType="outlog") == gang.output(0) == gang.executor(1)
    assert gang.log(logType="errlog") == "rank 0 has no trouble\n"
    assert "rank 0 of 3" in gang.log(logType="outerrlog") and "no trouble" in gang.log(logType="outerrlog")
    [application] = platform.api.get(f"{gangs.APPLICATIONS}?applicationid={gang.id}").json()
    assert (bool(application["task0"]), len(application["task12n"])) == (False, 3)
    answer = platform.api.get(f"{EXECS}/{gang.id}/result")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert json.loads(archive.read("rounds.json"))["world"] == 3


@pytest.mark.extended  # with one elastic job: the test above
def test_two_elastic_jobs_shrink_to_one_slot_each_for_a_gang_of_two(
    platform: Platform, undisturbed: Callable[..., str]
) -> None:
    jobs = [journey.submit(platform, name) for name in ("first", "second")]
    jobs[0].gate.until(lambda: platform.job(jobs[1].id)["slots"] == 2, journey.PATIENCE)
    for job in jobs:
        job.until_slots(2)
    gang = counting(platform, "--numWorker 2")
    for job in jobs:
        job.until_slots(1)
    gang.until_counting()
    gang.end()
    assert [job.finish()["digest"] for job in jobs] == [undisturbed()] * 2
    assert gang.shown()["attempts"] == 1


@pytest.mark.extended  # what decides it: scheduler/test_plan
def test_a_gang_that_does_not_fit_waits_with_the_reason_and_starts_whole_later(platform: Platform) -> None:
    first = counting(platform, "--numWorker 3")
    first.until_counting()
    second = counting(platform, "--numWorker 2")
    waiting = until(lambda: second.shown()["waiting"], 60, "a reason")
    assert "2" in waiting["reason"] and (waiting["need"], waiting["free"]) == (2, 1)
    assert second.allocations() == []
    assert platform.api.get(f"{EXECS}/{second.id}").json()["state"] == "PENDING_CRD_SCHEDULER"
    first.end()
    second.until_counting()
    assert len(second.allocations()) == 2
    second.end()


@pytest.mark.extended  # what decides it: scheduler/test_plan
def test_a_worker_of_two_slots_is_never_split_between_nodes(platform: Platform) -> None:
    gang = counting(platform, "--numWorker 2 --workerDeviceNum 2")
    gang.until_counting()
    gang.end()
    place = [json.loads((gang.folder / f"environment-{rank}.json").read_text()) for rank in range(4)]
    assert [(each["NODE_RANK"], each["LOCAL_RANK"], each["LOCAL_WORLD_SIZE"]) for each in place] == [
        (str(worker), str(index), "2") for worker in range(2) for index in range(2)
    ]
    assert place[0]["MSD_POD_NAME"] == place[1]["MSD_POD_NAME"] != place[2]["MSD_POD_NAME"]
    assert {(each["WMLA_NWORKER"], each["WMLA_WORKER_NDEVICE"]) for each in place} == {("2", "2")}
    assert {each["DLI_IS_ELASTIC"] for each in place} == {"false"}


# ── what ends a gang ──────────────────────────────────────────────────────────────────────────────────────────────
def test_the_death_of_one_rank_ends_the_gang_and_a_restart_goes_on_from_what_was_saved(platform: Platform) -> None:
    gang = counting(platform, "--numWorker 3 --maxRestarts 1")
    for attempt in (1, 2):
        saved = gang.until_counting()
        assert gang.shown()["attempts"] == attempt
        gang.kill(2)
        if attempt == 1:
            until(lambda: gang.shown()["attempts"] == 2, 60, "a second attempt")
            until(lambda: len(begun(gang)) == 2, 60, "rank 0 has begun again")
    assert begun(gang)[0] == 0 and begun(gang)[1] >= 3
    end = gang.wait("ERROR", seconds=60)
    assert end["message"].startswith("rank 2 was killed by signal 9 (SIGKILL)")
    assert end["attempts"] == 2
    assert saved > begun(gang)[1]
    until(lambda: all(each["released_at"] for each in gang.allocations(2)), 30, "all slots are free")
    assert gang.log(logType="errlog").count("no trouble") == 2, "a later attempt adds to the logs"


def test_a_drained_node_lets_a_gang_save_and_start_again_on_the_other_node(platform: Platform) -> None:
    with closed(platform, first_node(platform), "cordon"):  # so that it begins on the second one
        gang = counting(platform, "--numWorker 2")
        gang.until_counting()
        assert gang.nodes() == ["second"] * 2
    with closed(platform, "second"):
        until(lambda: len(begun(gang)) == 2, 60, "it has begun again")
        gang.until_counting()
        assert gang.nodes(2) == [first_node(platform)] * 2
        end = gang.end()
    left = re.findall(r"leaves after round (\d+)", gang.output())
    assert [int(number) for number in left] == begun(gang)[1:]
    assert end["attempts"] == 2
    assert {each["kind"] for each in gang.allocations()} == {"left"}


@pytest.mark.extended  # of one node with all ranks: the test above
def test_the_drain_of_one_of_two_nodes_moves_the_whole_gang(platform: Platform) -> None:
    gang = counting(platform, "--numWorker 2 --workerDeviceNum 2")
    gang.until_counting()
    with closed(platform, "second"):
        until(lambda: gang.shown()["state"] == "PENDING_CRD_SCHEDULER", 60, "it waits for the other node")
        until(lambda: all(each["released_at"] for each in gang.allocations()), 30, "it holds nothing meanwhile")
        waiting = until(lambda: gang.shown()["waiting"], 30, "a reason")
        assert waiting["need"] == 4
    until(lambda: len(begun(gang)) == 2, 60, "it has begun again")
    gang.until_counting()
    assert gang.end()["attempts"] == 2
    assert begun(gang)[1] > 0


@pytest.mark.extended
@pytest.mark.parametrize("node", ["first", "second"])
def test_a_killed_supervisor_costs_an_attempt_and_no_restart(platform: Platform, node: str) -> None:
    gang = counting(platform, "--numWorker 2 --workerDeviceNum 2")
    gang.until_counting()
    name = first_node(platform) if node == "first" else "second"
    [supervisor] = cast(platform, gang.id).named("supervisor", name)
    platform.checker.disturbed()
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: len(begun(gang)) == 2, 90, "it has begun again")
    gang.until_counting()
    assert gang.end()["attempts"] == 2
    assert begun(gang)[1] >= 3


@pytest.mark.extended
def test_a_lost_node_costs_an_attempt_and_the_gang_starts_again_on_the_other(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("platform")
    with platform_in(folder, slots=2, EDT_LEASE_SECONDS="6") as platform:
        agent, first = platform.add_node("second", 2), first_node(platform)
        with closed(platform, first, "cordon"):
            gang = counting(platform, "--numWorker 2")
            gang.until_counting()
        of_the_node = [each.pid for each in cast(platform, gang.id).processes if each.node == "second"]
        platform.checker.disturbed()
        for pid in (agent.pid, *of_the_node):
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(begun(gang)) == 2, 90, "it has begun again")
        gang.until_counting()
        assert gang.nodes(2) == [first] * 2
        assert gang.end()["attempts"] == 2
        assert "attempt 1 ended: lost, node second was not heard from" in gang.events()


@pytest.mark.extended  # what stops it: elastic/test_gangs
def test_a_stop_gives_all_ranks_the_time_to_save(platform: Platform) -> None:
    gang = counting(platform, "--numWorker 4")
    gang.until_counting()
    assert platform.api.post(f"{EXECS}/{gang.id}/stop").status_code == 204
    gang.wait("KILLED", seconds=60)
    assert ["leaves after round" in gang.output(rank) for rank in range(4)] == [True] * 4
    assert not any(cast(platform, gang.id).processes)


@pytest.mark.extended
def test_a_dead_control_plane_does_not_stop_a_gang_and_the_next_adopts_it(platform: Platform) -> None:
    gang = counting(platform, "--numWorker 3")
    before = gang.until_counting()
    pids = [gang.pids(rank) for rank in range(3)]
    platform.kill_control_plane()
    until(lambda: gang.rounds() > before + 10, 30, "it counts on without a control plane")
    platform.revive()
    until(platform.serves, 60, "the platform serves")
    until(lambda: {node["health"] for node in platform.nodes()} == {"up"}, 60, "both nodes are up")
    assert [gang.pids(rank) for rank in range(3)] == pids
    assert gang.end()["attempts"] == 1


# ── the examples, as their pages say ──────────────────────────────────────────────────────────────────────────────
on_one_and_two_nodes = pytest.mark.parametrize(("workers", "devices"), [(2, 1), (2, 2)], ids=["one node", "two nodes"])
"""Two workers of one slot are on one node, and two of two slots on two, for each node has two slots."""


@pytest.mark.extended  # torchrun without a platform: elastic/test_gangs
@on_one_and_two_nodes
def test_torchrun_of_the_example_starts_a_process_for_each_slot(platform: Platform, workers: int, devices: int) -> None:
    job = typed(
        platform,
        f"edt submit examples/torchrun --framework distPyTorch -n {workers} --gpus-per-worker {devices} "
        "--user-cmd -- bash train.sh --epochs 5",
    )
    job.finish(200)
    assert spread(job) == devices
    learned(job)
    ranks = re.findall(r"rank (\d) of (\d) begins", "".join(job.output(worker) for worker in range(workers)))
    world = workers * devices
    assert sorted(ranks) == [(str(rank), str(world)) for rank in range(world)]
    assert (job.folder / "model" / "model.pt").is_file()


@pytest.fixture(scope="module")
def framework_mpi(shared_platform: Platform) -> None:
    """The entry of the example stands in the catalogue."""
    add_framework(shared_platform, EXAMPLES / "mpirun" / "mpi.toml")


@pytest.mark.extended  # mpirun without a platform: elastic/test_gangs
@on_one_and_two_nodes
def test_mpirun_of_the_example_starts_a_rank_for_each_slot(
    platform: Platform, framework_mpi: None, workers: int, devices: int
) -> None:
    job = typed(
        platform,
        f"edt submit examples/mpirun/train.py --framework mpi -n {workers} --gpus-per-worker {devices} -- --epochs 5",
    )
    job.finish(200)
    assert spread(job) == devices
    learned(job)
    world = workers * devices
    ranks = re.findall(r"rank (\d) of (\d) begins", job.log())
    assert sorted(ranks) == [(str(rank), str(world)) for rank in range(world)]
    assert "slope 2.9" in job.log() or "slope 3.0" in job.log()
    assert (job.folder / "model" / "line.pt").is_file()
