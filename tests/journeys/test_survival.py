"""What survives what: control plane, everything, a drained node."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from edt_runner.engine import record
from support.cast import cast
from support.house import House
from support.journey import PATIENCE, house_in, submit, undisturbed
from support.nursery import Nursery
from support.tagged import lives
from support.waiting import until

pytestmark = pytest.mark.timeout(300)  # a journey has many stations, and a machine may be busy


def steps(folder: Path) -> int:
    return len({entry.step for entry in record.read(folder)})


def test_a_dead_control_plane_does_not_stop_a_training_and_the_next_adopts_it(
    house: House, nursery: Nursery, tmp_path: Path
) -> None:
    """SIGKILL to edt up and its children: engine pids stay, steps go on, the next edt up adopts them."""
    job = submit(house, "job")
    job.until_slots(4)
    before = cast(house, job.id).engines
    assert len(before) == 4
    house.kill_control_plane()
    assert all(lives(pid) for pid in before)
    at = steps(job.record)
    job.gate.allow(job.gate.allowed + 5)
    until(lambda: steps(job.record) >= at + 3, 60, "steps go on without a control plane")
    house.start()
    until(lambda: "adopted" in house.log, 60, "the agent adopts")
    assert cast(house, job.id).engines == before
    end = job.finish()
    assert end["attempts"] == 1
    assert end["digest"] == undisturbed(nursery, tmp_path / "undisturbed")


def test_a_job_resumes_after_everything_was_killed_in_mid_epoch(house: House, nursery: Nursery, tmp_path: Path) -> None:
    job = submit(house, "job")
    job.until_slots(4)
    job.gate.until(lambda: steps(job.record) >= 20, PATIENCE)  # an epoch has 15 steps: there is a checkpoint, and more
    house.kill_everything()
    house.start()
    job.until_slots(4)
    end = job.finish()
    assert end["attempts"] == 2
    assert end["digest"] == undisturbed(nursery, tmp_path / "undisturbed")
    for audit in record.audit(record.read(job.record), samples=237, epochs=20):
        assert (audit.lost, audit.repeated) == ((), ())


def test_ctrl_c_leaves_checkpoints_and_no_process_and_the_next_start_goes_on(
    house: House, nursery: Nursery, tmp_path: Path
) -> None:
    job = submit(house, "job")
    job.until_slots(4)
    assert house.up is not None
    house.up.send_signal(signal.SIGINT)
    # They leave at a step's boundary.
    job.gate.until(lambda: house.up is None or house.up.poll() is not None, PATIENCE)
    assert house.up.returncode == 0
    assert house.processes() == {}
    assert "killed" not in house.errors(job.id)
    assert any((house.home / "jobs" / job.id / "checkpoint").glob("at-*"))
    house.start()
    end = job.finish()
    assert end["attempts"] == 2
    assert end["digest"] == undisturbed(nursery, tmp_path / "undisturbed")


def test_a_drained_node_is_left_by_a_job_that_spans_two_and_taken_again_when_it_is_back(
    tmp_path: Path, nursery: Nursery
) -> None:
    """Two agents on one machine; the second is drained: its engines leave, the job stays on the first. Uncordoned,
    it gets engines again, in the same attempt."""
    with house_in(tmp_path, slots=2) as house:
        job = submit(house, "job")
        job.until_slots(2)  # its home is the first node
        house.add_node("second", slots=2)
        job.until_slots(4)
        home = {node["name"]: node for node in house.nodes()}
        spanned = {name for name, node in home.items() if any(slot["exec_id"] == job.id for slot in node["slots"])}
        assert spanned == set(home)
        house.api.post("/api/v1/nodes/second/drain").raise_for_status()
        job.until_slots(2)
        until(
            lambda: all(s["exec_id"] is None for n in house.nodes() if n["name"] == "second" for s in n["slots"]),
            60,
            "the drained node is empty",
        )
        house.api.post("/api/v1/nodes/second/uncordon").raise_for_status()
        job.until_slots(4)
        end = job.finish()
        assert end["attempts"] == 1
        assert end["digest"] == undisturbed(nursery, tmp_path / "undisturbed")
