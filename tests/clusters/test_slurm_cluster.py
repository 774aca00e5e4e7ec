"""A pool over a real Slurm of three machines: what ``SlurmCluster`` asks for, sees, and ends.

In the agent's place runs a program that writes down what it is given; journeys with agents are in
``test_slurm_journeys.py``.
"""

from __future__ import annotations

import contextlib
import json
import pwd
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edt_contract.pools import PoolState, node_token
from edt_provisioner.cluster import ClusterAway
from edt_provisioner.errors import BadSetting
from support.slurm_cluster import SlurmOnThisMachine, has_rest
from support.slurm_nodes import JOIN_TOKEN, SlurmNodes, mode
from support.waiting import until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(120)]
GRACE, KILL_WAIT = 4, 2
USER = "games"
"""A user that every Debian has, and that may do nothing."""
Pool = Callable[..., SlurmNodes]


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmOnThisMachine]:
    with SlurmOnThisMachine(grace=GRACE, kill_wait=KILL_WAIT, jwt=has_rest()) as slurm:
        yield slurm


@pytest.fixture
def pool(slurm: SlurmOnThisMachine) -> Iterator[Pool]:
    """``pool(EDT_…="…")``: a pool of the test's own, in a folder that all users may enter."""
    opened: list[SlurmNodes] = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)

        def made(**environ: str) -> SlurmNodes:
            opened.append(SlurmNodes(slurm, Path(folder), **environ))
            return opened[-1]

        yield made
        for each in opened:
            each.clear()


def test_nodes_are_jobs_of_one_array_each_with_its_own_name_and_token(pool: Pool, slurm: SlurmOnThisMachine) -> None:
    nodes = pool(EDT_SLURM_TIME_LIMIT="10", EDT_SECRET_OF_THE_SERVICE="x")
    assert nodes.create("s-1", "s-2", "s-3") == []
    for name in ("s-1", "s-2", "s-3"):
        nodes.until_started(name)
    assert set(nodes.states()) == {"s-1", "s-2", "s-3"}
    assert len({job.partition("_")[0] for job in nodes.jobs()}) == 1
    begun = time.time()
    for name in ("s-1", "s-2", "s-3"):
        environ = nodes.environment_of(name)
        assert environ["EDT_NAME"] == name
        assert (nodes.records / f"{name}.token").read_text().strip() == node_token(JOIN_TOKEN, name)
        assert abs(float(environ["EDT_ENDS_AT"]) - (begun + 600)) < 30
        assert environ["EDT_LEAVE_SECONDS"] == f"{GRACE - 2}"
        assert "EDT_SECRET_OF_THE_SERVICE" not in environ
        assert (environ["EDT_TEMPORARY"], environ["EDT_HOME"]) == ("true", str(nodes.home))
    assert {mode(path) for path in nodes.tokens()} == {"0o600"}
    shown = slurm.run("scontrol", "show", "job", nodes.jobs()[0])
    assert node_token(JOIN_TOKEN, "s-1") not in shown


def test_a_node_that_is_there_is_not_asked_for_again(pool: Pool) -> None:
    nodes = pool()
    nodes.create("s-1")
    nodes.create("s-1", "s-2")
    assert len(nodes.jobs()) == 2
    nodes.until_started("s-1")
    nodes.create("s-1", "s-2")
    assert len(nodes.jobs()) == 2


def test_a_pending_node_has_slurms_reason(pool: Pool, slurm: SlurmOnThisMachine) -> None:
    nodes = pool()
    for machine in slurm.names:
        slurm.occupy(machine=machine)
    until(lambda: len(slurm.run("squeue", "--noheader", "--states=running").splitlines()) == 3)
    nodes.create("s-1")
    until(lambda: nodes.states()["s-1"].reason.startswith(("Resources: ", "Priority: ")), 30, "Slurm has looked at it")
    assert nodes.state("s-1") == PoolState.PENDING


def test_a_node_that_slurm_refuses_has_slurms_words_and_leaves_nothing(pool: Pool) -> None:
    nodes = pool(EDT_SLURM_PARTITIONS="nosuch")
    (refused,) = nodes.create("s-1")
    assert (refused.node, refused.state) == ("s-1", PoolState.REFUSED)
    assert "invalid partition specified: nosuch" in refused.reason
    assert nodes.states() == {}
    assert nodes.tokens() == []


def test_nodes_are_ended_one_by_one_and_what_has_ended_stays_until_it_is_removed(pool: Pool) -> None:
    nodes = pool()
    nodes.create("s-1", "s-2")
    nodes.until_started("s-1")
    nodes.until_started("s-2")
    nodes.leaves_at_term("s-1")
    nodes.cluster.end(["s-1"])
    ended = nodes.until_state("s-1", PoolState.ENDED)
    assert ended.reason == "CANCELLED: it was cancelled"
    assert nodes.state("s-2") == PoolState.RUNNING
    nodes.cluster.end(["s-1"])
    assert set(nodes.states()) == {"s-2"}
    assert [path.name for path in nodes.tokens()] == ["1.token"]
    nodes.reopen()
    assert set(nodes.states()) == {"s-2"}
    assert nodes.create("s-1") == [], "it may be asked for again"
    nodes.until_started("s-1", 2)


def test_a_pending_node_is_ended(pool: Pool, slurm: SlurmOnThisMachine) -> None:
    nodes = pool(EDT_SLURM_OPTIONS="--hold")
    nodes.create("s-1", "s-2")
    assert nodes.until_state("s-2", PoolState.PENDING).reason == "JobHeldUser: its user holds it"
    nodes.cluster.end(["s-2"])
    nodes.until_state("s-2", PoolState.ENDED)
    assert nodes.state("s-1") == PoolState.PENDING


@pytest.mark.parametrize(("status", "reason"), [(0, ""), (3, "FAILED: its script failed")])
def test_a_node_that_has_ended_says_how(pool: Pool, status: int, reason: str) -> None:
    nodes = pool()
    nodes.create("s-1")
    nodes.until_started("s-1")
    nodes.ends_with("s-1", status)
    assert nodes.until_state("s-1", PoolState.ENDED).reason == reason


def test_while_slurmctld_is_away_nothing_is_known_and_what_runs_goes_on(pool: Pool, slurm: SlurmOnThisMachine) -> None:
    nodes = pool(EDT_SLURM_TIMEOUT_SECONDS="1")
    nodes.create("s-1")
    nodes.until_started("s-1")
    slurm.stop_controller()
    try:
        for asked in (nodes.states, lambda: nodes.create("s-2"), lambda: nodes.cluster.end(["s-1"])):
            with pytest.raises(ClusterAway):
                asked()
        seen = nodes.alive_until("s-1")
        until(lambda: nodes.alive_until("s-1") > seen + 0.5, 10, "it goes on")
    finally:
        slurm.start_controller()
    assert nodes.state("s-1") == PoolState.RUNNING
    assert nodes.terms("s-1") == []


def test_the_next_provisioner_knows_the_nodes_and_two_at_once_are_refused(pool: Pool) -> None:
    nodes = pool()
    nodes.create("s-1", "s-2")
    with pytest.raises(BadSetting, match="another provisioner keeps the pool"):
        nodes.open()
    nodes.reopen()
    assert set(nodes.states()) == {"s-1", "s-2"}
    assert nodes.create("s-1", "s-2") == []
    assert len(nodes.jobs()) == 2


def test_jobs_whose_answer_was_lost_are_found_and_none_is_kept_twice(pool: Pool) -> None:
    """As it is where slurmctld took an array, and the answer came too late."""
    nodes = pool()
    nodes.create("s-1")
    nodes.until_started("s-1")
    (file,) = nodes.home.glob("pools/*/*/nodes.json")
    lost = {**json.loads(file.read_text()), "job": None}
    file.write_text(json.dumps(lost))
    assert nodes.create("s-1") == []
    assert len(nodes.jobs()) == 1
    assert json.loads(file.read_text())["job"] is not None

    away = file.with_name("away.json")
    file.rename(away)
    nodes.create("s-1")
    away.rename(file)
    assert len(nodes.jobs()) == 2
    assert set(nodes.states()) == {"s-1"}
    until(lambda: len(nodes.jobs()) == 1, 30, "the other one is cancelled")
    assert nodes.state("s-1") == PoolState.RUNNING


def test_a_node_that_slurm_starts_again_comes_back_as_itself(pool: Pool, slurm: SlurmOnThisMachine) -> None:
    nodes = pool()
    nodes.create("s-1", "s-2")
    nodes.until_started("s-2")
    nodes.leaves_at_term("s-2")
    slurm.run("scontrol", "requeue", nodes.jobs()[1])
    nodes.until_state("s-2", PoolState.PENDING)
    first, second = nodes.until_started("s-2", 2)
    assert (first.split()[0], second.split()[1]) == (second.split()[0], "1")
    assert nodes.until_state("s-2", PoolState.RUNNING)
    assert nodes.environment_of("s-2")["EDT_NAME"] == "s-2"
    assert (nodes.records / "s-2.token").read_text().strip() == node_token(JOIN_TOKEN, "s-2")


@pytest.mark.extended  # test_slurm_journeys
def test_a_preempted_node_has_the_partitions_grace(pool: Pool, slurm: SlurmOnThisMachine) -> None:
    """One leaves within it and is over; the other one does not, is killed, and waits to be started again."""
    nodes = pool()
    nodes.create("s-1", "s-2")
    nodes.until_started("s-1")
    nodes.until_started("s-2")
    nodes.leaves_at_term("s-1")
    high = [slurm.occupy(machine=machine) for machine in slurm.names]
    until(lambda: nodes.terms("s-1") and nodes.terms("s-2"), 30, "both are told")
    assert nodes.until_state("s-1", PoolState.ENDED).reason == ""
    assert nodes.state("s-2") == PoolState.RUNNING
    nodes.until_state("s-2", PoolState.PENDING, 60)
    assert nodes.alive_until("s-2") - nodes.terms("s-2")[0] >= GRACE - 0.5
    slurm.run("scancel", *high)
    nodes.until_started("s-2", 2, 60)


def test_a_signal_to_the_batch_shell_alone_reaches_the_step(pool: Pool, slurm: SlurmOnThisMachine) -> None:
    nodes = pool()
    nodes.create("s-1")
    nodes.until_started("s-1")
    nodes.leaves_at_term("s-1")
    slurm.run("scancel", "--batch", "--signal=TERM", *nodes.jobs())
    nodes.until_state("s-1", PoolState.ENDED)
    assert len(nodes.terms("s-1")) == 1


def test_a_node_of_a_machine_that_fails_waits_to_be_started_again(pool: Pool, slurm: SlurmOnThisMachine) -> None:
    nodes = pool(EDT_SLURM_OPTIONS=f"--nodelist={slurm.names[2]}")
    nodes.create("s-1")
    nodes.until_started("s-1")
    slurm.kill_machine(slurm.names[2])
    nodes.until_state("s-1", PoolState.PENDING)
    slurm.start_machine(slurm.names[2])
    slurm.run("scontrol", "update", f"NodeName={slurm.names[2]}", "State=RESUME", check=False)
    nodes.until_started("s-1", 2)


def test_what_an_administrator_names_is_asked_for(pool: Pool, slurm: SlurmOnThisMachine, tmp_path: Path) -> None:
    prologue = tmp_path / "prologue.sh"
    prologue.write_text("export OF_THE_PROLOGUE='a b'\n")
    nodes = pool(
        EDT_SLURM_CPUS="2",
        EDT_SLURM_MEMORY="100M",
        EDT_SLURM_PROLOGUE=str(prologue),
        EDT_SLURM_OPTIONS="--nice=7 --mail-type=NONE",
        EDT_SLURM_GRACE_SECONDS="0",
        EDT_SLURM_SRUN_OPTIONS="--label",
        EDT_POOL_SLOTS="2",
    )
    nodes.create("s-1")
    nodes.until_started("s-1")
    environ = nodes.environment_of("s-1")
    assert (environ["OF_THE_PROLOGUE"], environ["EDT_LEAVE_SECONDS"]) == ("a b", "0")
    assert "EDT_ENDS_AT" not in environ
    shown = slurm.run("scontrol", "show", "job", nodes.jobs()[0])
    for fact in ("Nice=7", "NumCPUs=2", "MinMemoryNode=100M", "Requeue=1", "NumNodes=1", "Comment=OpenEDT,"):
        assert fact in shown, shown
    offer = nodes.cluster.offer()
    assert (offer.kind, offer.per_job, offer.slots) == ("slurm", False, 2)
    assert "the service's user root" in offer.note


@pytest.mark.parametrize("way", ["sudo", "jwt"])
def test_jobs_of_the_trainings_owner_are_that_users(pool: Pool, slurm: SlurmOnThisMachine, way: str) -> None:
    if way == "jwt" and not has_rest():
        pytest.skip("slurmrestd or Slurm's plugin for JSON web tokens is not installed")
    with slurm.rest() if way == "jwt" else contextlib.nullcontext("") as url:
        rest = {"EDT_SLURM_REST": url, "EDT_SLURM_TIME_LIMIT": "10"} if url else {}
        nodes = pool(EDT_SLURM_AS_USER=way, EDT_SLURM_USERS=f"ann={USER}", EDT_SLURM_GRACE_SECONDS="10", **rest)
        assert nodes.cluster.offer().per_job
        assert nodes.create("s-1", "s-2", user="ann", job="edt-7") == []
        for name in ("s-1", "s-2"):
            nodes.until_started(name)
            assert (nodes.records / f"{name}.token").read_text().strip() == node_token(JOIN_TOKEN, name)
        assert set(slurm.run("squeue", "--noheader", "--format=%u").split()) == {USER}
        assert "for edt-7" in slurm.run("squeue", "--noheader", "--Format=comment:100")
        for path in nodes.tokens():
            assert (pwd.getpwuid(path.stat().st_uid).pw_name, mode(path)) == (USER, "0o600")
            other = subprocess.run(["runuser", "-u", "nobody", "--", "cat", path], capture_output=True, check=False)
            assert other.returncode != 0
        assert nodes.create("s-1", user="ann", job="edt-7") == []
        assert len(nodes.jobs()) == 2
        nodes.leaves_at_term("s-1")
        nodes.leaves_at_term("s-2")
        nodes.cluster.end(["s-2"])
        nodes.until_state("s-2", PoolState.ENDED)
        nodes.cluster.end(["s-2"])
        assert len(nodes.terms("s-2")) == 1, "it was asked to leave"
        assert {name: state.state for name, state in nodes.states().items()} == {"s-1": PoolState.RUNNING}
        refused = nodes.create("s-3", user="nobody-knows-her") + nodes.create("s-4", user="root")
        assert [each.state for each in refused] == [PoolState.REFUSED] * 2
        assert "EDT_SLURM_USERS" in refused[0].reason and "root" in refused[1].reason
        nodes.cluster.end(["s-1"])
        nodes.until_state("s-1", PoolState.ENDED)


def test_a_slurmrestd_that_gives_no_answer_says_nothing_of_the_nodes(pool: Pool, slurm: SlurmOnThisMachine) -> None:
    """slurmrestd away, a token that Slurm does not take, slurmctld away."""
    if not has_rest():
        pytest.skip("slurmrestd or Slurm's plugin for JSON web tokens is not installed")
    token = slurm.folder / "token"
    token.write_text(slurm.run("scontrol", "token", f"username={USER}", "lifespan=600"))
    with slurm.rest() as url:
        nodes = pool(
            EDT_SLURM_AS_USER="jwt", EDT_SLURM_REST=url, EDT_SLURM_TOKEN_COMMAND=f"cat {token}", EDT_POOL="by-rest"
        )
        assert nodes.create("s-1", user=USER, job="edt-7") == []
        nodes.until_started("s-1")
        nodes.leaves_at_term("s-1")
        token.write_text("SLURM_JWT=none-of-slurms")
        nodes.reopen()
        with pytest.raises(ClusterAway) as caught:
            nodes.states()
        assert "none-of-slurms" not in str(caught.value)
    with pytest.raises(ClusterAway, match="slurmrestd does not answer"):
        nodes.states()


@pytest.mark.extended
@pytest.mark.timeout(240)
def test_a_time_limit_ends_a_node_when_it_was_told(pool: Pool) -> None:
    nodes = pool(EDT_SLURM_TIME_LIMIT="1")
    nodes.create("s-1")
    nodes.until_started("s-1")
    ends = float(nodes.environment_of("s-1")["EDT_ENDS_AT"])
    assert nodes.until_state("s-1", PoolState.ENDED, 180).reason == "TIMEOUT: its time limit was over"
    assert nodes.terms("s-1")[0] >= ends - 2


@pytest.mark.extended
def test_a_slurmctld_that_has_lost_its_jobs_has_ended_them(pool: Pool, slurm: SlurmOnThisMachine) -> None:
    nodes = pool()
    nodes.create("s-1")
    nodes.until_started("s-1")
    slurm.stop_controller()
    slurm.start_controller("-c")
    assert nodes.until_state("s-1", PoolState.ENDED).reason == "Slurm does not know its job any more"
    nodes.cluster.end(["s-1"])
    assert nodes.states() == {}


@pytest.mark.extended
@pytest.mark.parametrize("cgroups", [True, False])
def test_a_partition_without_grace_leaves_a_node_no_more_than_killwait(cgroups: bool, tmp_path: Path) -> None:
    with SlurmOnThisMachine(grace=0, kill_wait=3, cgroups=cgroups) as slurm:
        nodes = SlurmNodes(slurm, tmp_path)
        nodes.create("s-1")
        nodes.until_started("s-1")
        assert nodes.environment_of("s-1")["EDT_LEAVE_SECONDS"] == "1"
        for machine in slurm.names:
            slurm.occupy(machine=machine)
        nodes.until_state("s-1", PoolState.PENDING, 60)
        assert 1 <= nodes.alive_until("s-1") - nodes.terms("s-1")[0] < 10
        nodes.clear()
