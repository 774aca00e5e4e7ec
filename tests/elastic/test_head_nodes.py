"""The head node of an attempt runs coordinator and driver. It may be drained or lost: another node takes its place."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from edt_contract import processes
from edt_contract.attempt import DesiredState
from edt_contract.reports import ReportKind
from edt_demo import sample_record as record
from edt_runner.launch.supervisor_client import SupervisorClient
from support.baselines import Baselines
from support.nursery import Nursery
from support.training import SCRIPTS, Elastic, spec_for
from support.waiting import until

CONV = ("conv", "--loaders", 1)


@pytest.fixture
def digest(baselines: Baselines) -> str:
    return baselines.digest(*CONV)


@contextmanager
def two_nodes(nursery: Nursery, folder: Path) -> Iterator[tuple[Elastic, SupervisorClient]]:
    """Engine 1 on the head node, engine 2 on another one, both training."""
    head = spec_for(folder / "job", *CONV)
    other = spec_for(folder / "job", *CONV, node="there", spool_dir=str(folder / "there"))
    with Elastic(head, nursery.start) as training, SupervisorClient(other, nursery.start) as there:
        training.settle([1])
        there.hold([2], coordinator=address_of(training.supervisor))
        training.await_ready([2])
        training.gate.until(lambda: training.happened(ReportKind.ENGINE_JOINED, allocation=2), sparing=True)
        yield training, there


def address_of(supervisor: SupervisorClient) -> str:
    return str(supervisor.until(lambda report: report.kind is ReportKind.COORDINATOR_AT).body["address"])


def parts(supervisor: SupervisorClient) -> dict[str, int]:
    """Name to pid of what a supervisor has forked."""
    found = {}
    for pid in processes.descendants(supervisor.process.pid):
        with suppress(OSError):  # it has ended meanwhile
            found[Path(f"/proc/{pid}/comm").read_text().strip()] = pid
    return found


def steps(training: Elastic) -> int:
    return training.gate.reached()


@contextmanager
def stopped(supervisor: SupervisorClient) -> Iterator[None]:
    """A supervisor reads nothing, while what it has forked goes on."""
    os.kill(supervisor.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(supervisor.process.pid, signal.SIGCONT)


def all_go_on_under_the_successor(training: Elastic, there: SupervisorClient, digest: str) -> None:
    """Both engines train to the end, and none waits for another until a supervisor finds that it waits too long."""
    until(lambda: "edt-coordinator" not in parts(training.supervisor), 60)
    began = time.monotonic()
    training.gate.open()
    end = there.ended()
    seconds = time.monotonic() - began
    sizes = [report.body["workers"] for report in there.reports if report.kind is ReportKind.PROGRESS]
    lost = [r.body for r in there.reports if r.kind is ReportKind.RESIZED and r.body["lost"]]
    assert (end["kind"], end["whole"], end["digest"]) == ("finished", True, digest)
    assert set(sizes) == {2} and not lost
    assert seconds < 40  # not the minute after which a silent engine is missed
    assert training.supervisor.ended()["whole"] is False


def test_a_successor_takes_coordinator_and_driver_over_before_the_old_head_node_goes(
    nursery: Nursery, tmp_path: Path, digest: str
) -> None:
    with two_nodes(nursery, tmp_path) as (training, there):
        there.hold([2])  # it is the head node from here on
        address = address_of(there)
        training.supervisor.set_desired(DesiredState(1, (), address, leaving=(1,)))
        training.gate.until(training.over, sparing=True)
        end = training.supervisor.ended()
        assert (end["kind"], end["whole"]) == ("left", False)
        training.gate.open()
        end = there.ended()
        pauses = [r.body for r in there.reports if r.kind is ReportKind.RESIZED and r.body["left"] == [1]]
    assert (end["kind"], end["whole"], end["digest"]) == ("finished", True, digest)
    assert pauses, "the leave was a planned one"
    audits = record.audit(record.read(training.sample_record), samples=237, epochs=2)
    assert [(audit.lost, audit.repeated) for audit in audits] == [((), ()), ((), ())]


def test_a_head_node_that_the_platform_cannot_reach_is_succeeded_all_the_same(
    nursery: Nursery, tmp_path: Path, digest: str
) -> None:
    """It reads in the shared folder that another node is the head node; its engine goes on there."""
    with two_nodes(nursery, tmp_path) as (training, there):
        there.hold([2])
        address_of(there)
        until(lambda: "edt-coordinator" not in parts(training.supervisor), 60)
        training.gate.open()
        end = there.ended()
        sizes = [report.body["workers"] for report in there.reports if report.kind is ReportKind.PROGRESS]
        lost = [r.body for r in there.reports if r.kind is ReportKind.RESIZED and r.body["lost"]]
        assert training.supervisor.ended()["whole"] is False
    assert (end["kind"], end["whole"], end["digest"]) == ("finished", True, digest)
    assert set(sizes) == {2} and not lost


def test_a_head_node_that_reads_late_of_its_successor_takes_no_engine_for_lost(
    nursery: Nursery, tmp_path: Path, digest: str
) -> None:
    """Its coordinator still runs when the supervisor of engine 2 has left it, and the engines are still connected."""
    with two_nodes(nursery, tmp_path) as (training, there):
        with stopped(training.supervisor):
            there.hold([2])
            address_of(there)
            time.sleep(2.5)  # the shared file is read once a second
        all_go_on_under_the_successor(training, there, digest)
        logs = [(Path(spool) / "supervisor.log").read_text() for spool in (training.spec.spool_dir, tmp_path / "there")]
    assert "regroup" not in "".join(logs)


def test_a_regroup_that_the_coordinator_of_a_head_node_beyond_reach_began_is_begun_anew_by_its_successor(
    nursery: Nursery, tmp_path: Path, digest: str
) -> None:
    """Engine 1 stands at the gate, called to a regroup without engine 2, when it connects to the successor. Otherwise
    engine 2 might wait for it in the next reduction: the old coordinator had forgotten the address at which the two may
    be connected, so engine 1 may leave the group without shutting that connection."""
    with two_nodes(nursery, tmp_path) as (training, there):
        training.gate.allow(training.gate.allowed + 1)  # engine 2 computes nothing in its first step, and is not held
        training.gate.close()
        logs = [Path(spool) / "supervisor.log" for spool in (training.spec.spool_dir, tmp_path / "there")]
        with stopped(training.supervisor):
            there.hold([2])
            address_of(there)
            until(lambda: "regroup 1 of engines 1\n" in logs[0].read_text(), what="the old coordinator misses engine 2")
        until(lambda: "regroup 2 of engines 1, 2\n" in logs[1].read_text(), what="the new one calls both at once")
        all_go_on_under_the_successor(training, there, digest)


def test_the_head_node_dies_and_the_engines_elsewhere_go_on_under_another(
    nursery: Nursery, tmp_path: Path, digest: str
) -> None:
    with two_nodes(nursery, tmp_path) as (training, there):
        training.supervisor.kill()
        there.hold([2])
        address_of(there)
        training.gate.open()
        end = there.ended()
    assert (end["kind"], end["whole"], end["digest"]) == ("finished", True, digest)


def test_another_node_dies_and_its_engines_are_missed_at_once(nursery: Nursery, tmp_path: Path, digest: str) -> None:
    with two_nodes(nursery, tmp_path) as (training, there):
        there.kill()
        training.gate.open()
        end = training.supervisor.ended()
        (lost,) = [body for body in training.kinds(ReportKind.RESIZED) if body["lost"]]
    assert (end["kind"], end["digest"]) == ("finished", digest)
    assert lost["lost"] == [2] and lost["pause_seconds"] < 20  # not the minute that a silent one is given


def test_the_coordinator_dies_and_another_node_finds_its_successor(
    nursery: Nursery, tmp_path: Path, digest: str
) -> None:
    with two_nodes(nursery, tmp_path) as (training, there):
        os.kill(parts(training.supervisor)["edt-coordinator"], signal.SIGKILL)
        there.hold([2, 3], coordinator=address_of(training.supervisor))
        training.await_ready([3])
        training.gate.until(lambda: training.happened(ReportKind.ENGINE_JOINED, allocation=3), sparing=True)
        end = training.finish()
        assert not [body for body in training.kinds(ReportKind.RESIZED) if body["lost"]]
        assert there.ended()["kind"] == "finished"
    assert (end["kind"], end["digest"]) == ("finished", digest)


@pytest.mark.extended  # it waits for ten seconds; what is decided then: runners/test_rounds
def test_a_successor_without_any_engine_that_has_the_weights_does_not_begin_anew(
    nursery: Nursery, tmp_path: Path
) -> None:
    """Within one attempt a step has one content: what comes after is the next attempt's."""
    with attempt_on(nursery, tmp_path) as training:
        training.settle([1])
    with SupervisorClient(
        spec_for(tmp_path / "job", *CONV, node="there", spool_dir=str(tmp_path / "there")), nursery.start
    ) as b:
        b.hold([2])
        end = b.ended(60)
    assert (end["kind"], end["whole"]) == ("lost", True)
    assert not [report for report in b.reports if report.kind is ReportKind.ENGINE_JOINED]


def attempt_on(nursery: Nursery, folder: Path) -> Elastic:
    return Elastic(spec_for(folder / "job", *CONV), nursery.start)


def test_an_exception_on_the_head_node_does_not_end_a_training_that_goes_on_elsewhere(
    nursery: Nursery, tmp_path: Path
) -> None:
    script = tmp_path / "main.py"
    here = "import os\nfrom edt_runner import context\n"
    loss = (
        "def loss(outputs, targets):\n"
        "    if context.current().name == '1' and os.path.exists('raise'):\n"
        "        raise RuntimeError('this GPU has fallen off the bus')\n"
        "    return F.cross_entropy(outputs, targets)\n\n\nnet ="
    )
    text = (SCRIPTS / "conv.py").read_text().replace("net =", loss, 1).replace("    F.cross_entropy,", "    loss,")
    script.write_text(text.replace("import argparse", here + "import argparse", 1))
    head = spec_for(tmp_path / "job", script, "--epochs", 6, grace_seconds=0.5)
    other = spec_for(tmp_path / "job", script, "--epochs", 6, node="there", spool_dir=str(tmp_path / "there"))
    with Elastic(head, nursery.start) as training, SupervisorClient(other, nursery.start) as there:
        training.settle([1])
        there.hold([2], coordinator=address_of(training.supervisor))
        training.await_ready([2])
        training.gate.until(lambda: training.happened(ReportKind.ENGINE_JOINED, allocation=2), sparing=True)
        (tmp_path / "job" / "raise").touch()
        training.gate.until(lambda: training.happened(ReportKind.ENGINE_GONE, allocation=1))
        reported = len(training.kinds(ReportKind.PROGRESS))
        training.gate.until(lambda: len(training.kinds(ReportKind.PROGRESS)) > reported)
        training.hold([])  # as a platform does, whose scheduler has closed that allocation
        time.sleep(1.0)  # more than its grace: nothing is counted against a training that goes on
        assert not training.over()
        end = training.finish()
        (gone,) = training.kinds(ReportKind.ENGINE_GONE)
    assert end["kind"] == "finished"
    assert (gone["kind"], gone["message"]) == ("script-error", "RuntimeError: this GPU has fallen off the bus")
