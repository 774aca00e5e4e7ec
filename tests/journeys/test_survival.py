"""What survives what: control plane, everything. Each test starts again what it has killed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from edt_runner.engine import record
from support.cast import cast
from support.house import House
from support.journey import PATIENCE, submit
from support.tagged import lives
from support.waiting import until

Undisturbed = Callable[..., str]
pytestmark = pytest.mark.timeout(300)  # a journey has many stations, and a machine may be busy


def steps(folder: Path) -> int:
    return len({entry.step for entry in record.read(folder)})


def test_a_dead_control_plane_does_not_stop_a_training_and_the_next_adopts_it(
    house: House, undisturbed: Undisturbed
) -> None:
    """SIGKILL to edt up and its children: engine pids stay, steps go on, the next edt up adopts them."""
    job = submit(house, "job")
    job.until_slots(4)
    before = cast(house, job.id).engines
    assert len(before) == 4
    adopted = house.log.count("adopted")
    house.kill_control_plane()
    assert all(lives(pid) for pid in before)
    at = steps(job.record)
    job.gate.allow(job.gate.allowed + 5)
    until(lambda: steps(job.record) >= at + 3, 60, "steps go on without a control plane")
    house.start()
    until(lambda: house.log.count("adopted") > adopted, 60, "the agent adopts")
    assert cast(house, job.id).engines == before
    end = job.finish()
    assert end["attempts"] == 1
    assert end["digest"] == undisturbed()


def test_a_job_resumes_after_everything_was_killed_in_mid_epoch(house: House, undisturbed: Undisturbed) -> None:
    job = submit(house, "job")
    job.until_slots(4)
    job.gate.until(lambda: steps(job.record) >= 20, PATIENCE)  # an epoch has 15 steps: there is a checkpoint, and more
    house.kill_everything()
    house.start()
    job.until_slots(4)
    end = job.finish()
    assert end["attempts"] == 2
    assert end["digest"] == undisturbed()
    for audit in record.audit(record.read(job.record), samples=237, epochs=20):
        assert (audit.lost, audit.repeated) == ((), ())


def test_ctrl_c_leaves_checkpoints_and_no_process_and_the_next_start_goes_on(
    house: House, undisturbed: Undisturbed
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
    assert end["digest"] == undisturbed()
