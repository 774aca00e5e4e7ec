"""Journeys over a real Slurm of three machines: jobs grow and shrink over them, and end with the bits of an undisturbed
run, whatever Slurm does to its jobs.

The platform has one slot of its own. All other engines are on Slurm's machines.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from support.journey import platform_in, submit, visit
from support.running_platform import Platform
from support.slurm_cluster import SlurmOnThisMachine
from support.slurm_pool import SlurmPool
from support.waiting import until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
GRACE = 20


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmOnThisMachine]:
    with SlurmOnThisMachine(grace=GRACE, kill_wait=5) as slurm:
        yield slurm


@pytest.fixture(scope="module")
def one_slot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_in(tmp_path_factory.mktemp("platform"), slots=1, one_core=True, EDT_LEASE_SECONDS="6") as platform:
        yield platform


@pytest.fixture(scope="module")
def undisturbed(one_slot: Platform) -> str:
    """The digest of the same training on this platform's own slot alone. A node's cores and slots say how many threads
    an engine has, which is part of what its bits depend on."""
    return str(submit(one_slot, "undisturbed", "--numWorker 1").finish()["digest"])


@pytest.fixture
def platform(one_slot: Platform, slurm: SlurmOnThisMachine) -> Iterator[Platform]:
    with visit(one_slot) as platform:
        yield platform
    slurm.drop_all_jobs()


def test_a_job_grows_over_three_machines_and_leaves_one_that_is_preempted_within_its_grace(
    platform: Platform, slurm: SlurmOnThisMachine, undisturbed: str
) -> None:
    """World sizes 1 → 4 → 3 → 4 → 2. slurmctld is away for a while, and an agent is killed under its step."""
    with SlurmPool(platform, slurm) as pool:
        job = submit(platform, "grows")
        job.until_slots(4)
        assert {pool.machine(node) for node in pool.nodes()} == set(slurm.names)

        slurm.stop_controller()
        until(lambda: "does not answer" in pool.log or "without the cluster manager" in pool.log, 60, "it is noticed")
        job.gate.until(lambda: job.gate.reached() >= 3, 60)
        slurm.start_controller()

        struck = pool.nodes()[0]
        agent = pool.kill_agent(struck)
        until(lambda: "the agent ended by signal 9" in pool.said(struck), 30, f"{agent} is started again")
        assert job.slots() == 4

        leaving = pool.nodes()[0]
        high = slurm.occupy(machine=pool.machine(leaving))
        job.gate.until(lambda: leaving not in pool.nodes(), 60, sparing=True)
        job.until_slots(3)
        until(lambda: slurm.state(high) == "RUNNING", 60, "the job that goes first has the machine")
        assert not any(each["cause"] == "lost" for each in platform.resizes(job.id)), platform.resizes(job.id)
        slurm.run("scancel", high)
        job.until_slots(4)

        pool.set(max_nodes=1)
        job.until_slots(2)
        end = job.finish()
        assert (end["digest"], end["attempts"]) == (undisturbed, 1)
        until(lambda: not pool.nodes(), 60, "nodes of a job that is over leave")
    until(lambda: not slurm.run("squeue", "--noheader"), 60, "and so do their jobs")


@pytest.mark.extended  # test_slurm_cluster, and journeys/test_pools
def test_a_kill_without_grace_is_a_crash_that_costs_a_step_and_a_requeued_node_comes_back_as_itself(
    platform: Platform, slurm: SlurmOnThisMachine, undisturbed: str
) -> None:
    with SlurmPool(platform, slurm, EDT_SLURM_GRACE_SECONDS="0") as pool:
        job = submit(platform, "killed")
        job.until_slots(4)
        killed = pool.nodes()[0]
        number, machine = pool.job(killed), pool.machine(killed)
        slurm.kill_machine(machine)
        job.until_slots(3)
        slurm.start_machine(machine)
        slurm.run("scontrol", "update", f"NodeName={machine}", "State=RESUME", check=False)
        job.until_slots(4)
        if killed in pool.nodes():
            assert pool.job(killed) == number

        again = pool.nodes()[0]
        number = pool.job(again)
        slurm.run("scontrol", "requeue", number)
        job.gate.until(lambda: again not in pool.nodes(), 60, sparing=True)
        job.gate.until(lambda: again in pool.nodes(), 90, sparing=True)
        assert pool.job(again) == number
        job.until_slots(4)
        end = job.finish()
        assert (end["digest"], end["attempts"]) == (undisturbed, 1)


@pytest.mark.extended  # test_slurm_cluster, and journeys/test_pools
def test_what_a_node_waits_for_is_shown_in_slurms_words_and_it_is_given_up(
    platform: Platform, slurm: SlurmOnThisMachine, undisturbed: str
) -> None:
    for machine in slurm.names:
        slurm.occupy(machine=machine)
    with SlurmPool(platform, slurm, EDT_POOL_PATIENCE_SECONDS="8") as pool:
        job = submit(platform, "waits", "--numWorker 2")
        until(lambda: "Resources" in pool.explained(job.id), 30, "the reason is shown")
        until(lambda: "is asked again later" in pool.explained(job.id), 60, "it is given up")
        until(lambda: not slurm.run("squeue", "--noheader", "--partition=low"), 30, "its job is cancelled")
        assert job.finish()["digest"] == undisturbed


@pytest.mark.extended  # journeys/test_pools
def test_idle_nodes_leave_and_cancel_their_jobs_but_for_the_fewest(
    platform: Platform, slurm: SlurmOnThisMachine
) -> None:
    with SlurmPool(platform, slurm, EDT_POOL_MIN_NODES="1", EDT_POOL_IDLE_SECONDS="1") as pool:
        until(lambda: len(pool.nodes()) == 1, 60, "the fewest come without a job")
        job = submit(platform, "uses")
        job.until_slots(4)
        assert len(pool.nodes()) == 3
        job.finish()
        until(lambda: len(pool.nodes()) == 1, 60, "one is left")
        until(lambda: len(slurm.run("squeue", "--noheader").splitlines()) == 1, 30, "and one job")


@pytest.mark.extended
def test_a_provisioner_that_is_killed_costs_no_training(
    platform: Platform, slurm: SlurmOnThisMachine, undisturbed: str
) -> None:
    with SlurmPool(platform, slurm) as pool:
        job = submit(platform, "goes-on")
        job.until_slots(4)
        there = pool.nodes()
        pool.stop(signal.SIGKILL)
        pool.start()
        until(lambda: pool.view()["silent_seconds"] < 2, 30, "it is heard from again")
        assert pool.nodes() == there
        assert len(slurm.run("squeue", "--noheader").splitlines()) == 3
        end = job.finish()
        assert (end["digest"], end["attempts"]) == (undisturbed, 1)


@pytest.mark.extended
def test_a_node_leaves_before_its_time_limit_and_another_comes_in_its_place(
    platform: Platform, slurm: SlurmOnThisMachine, undisturbed: str
) -> None:
    with SlurmPool(platform, slurm, EDT_SLURM_TIME_LIMIT="2", EDT_POOL_MAX_NODES="2") as pool:
        job = submit(platform, "limited", "--numWorker 2")
        job.until_slots(2)
        first = pool.nodes()[0]
        number = pool.job(first)
        job.gate.until(lambda: first not in pool.nodes(), 150, sparing=True)
        # It leaves by itself, or is cancelled once nothing runs there any more; Slurm does not have to end it.
        job.gate.until(lambda: slurm.state(number) in ("COMPLETED", "CANCELLED"), 60, sparing=True)
        job.until_slots(2)
        assert not any(each["cause"] == "lost" for each in platform.resizes(job.id))
        end = job.finish()
        assert (end["digest"], end["attempts"]) == (undisturbed, 1)


@pytest.mark.extended
@pytest.mark.parametrize("cgroups", [True, False])
def test_a_step_leaves_nothing_behind_however_slurm_finds_its_processes(
    one_slot: Platform, cgroups: bool, undisturbed: str
) -> None:
    """Also where Slurm knows only a step's process group, and engines have groups of their own."""
    with (
        SlurmOnThisMachine(grace=GRACE, kill_wait=5, cgroups=cgroups) as slurm,
        visit(one_slot) as platform,
        SlurmPool(platform, slurm) as pool,
    ):
        job = submit(platform, "swept", "--numWorker 2")
        job.until_slots(2)
        node = pool.nodes()[0]
        os.kill(pool.init(node), signal.SIGTERM)
        job.gate.until(lambda: node not in pool.nodes(), 60, sparing=True)
        until(lambda: not platform.processes(EDT_NAME=node), 30, "nothing of it is left")
        job.until_slots(2)
        end = job.finish()
        assert (end["digest"], end["attempts"]) == (undisturbed, 1)
