"""What survives what: control plane, everything. Each test starts again what it has killed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from edt_demo import sample_record as record
from support.cast import cast
from support.journey import PATIENCE, submit
from support.running_platform import Platform
from support.tagged import lives
from support.waiting import until

Undisturbed = Callable[..., str]
pytestmark = pytest.mark.timeout(300)  # a journey has many stations, and a machine may be busy


def steps(folder: Path) -> int:
    return len({entry.step for entry in record.read(folder)})


def test_a_dead_control_plane_does_not_stop_a_training_and_the_next_adopts_it(
    platform: Platform, undisturbed: Undisturbed
) -> None:
    """SIGKILL to edt up and its children: engine pids stay, steps go on, the next edt up adopts them."""
    job = submit(platform, "job")
    job.until_slots(4)
    before = cast(platform, job.id).engines
    assert len(before) == 4
    adopted = platform.log.count("adopted")
    platform.kill_control_plane()
    assert all(lives(pid) for pid in before)
    at = steps(job.record)
    job.gate.allow(job.gate.allowed + 5)
    until(lambda: steps(job.record) >= at + 3, 60, "steps go on without a control plane")
    platform.start()
    until(lambda: platform.log.count("adopted") > adopted, 60, "the agent adopts")
    assert cast(platform, job.id).engines == before
    end = job.finish()
    assert end["attempts"] == 1
    assert end["digest"] == undisturbed()


def test_a_job_resumes_after_everything_was_killed_in_mid_epoch(platform: Platform, undisturbed: Undisturbed) -> None:
    job = submit(platform, "job")
    job.until_slots(4)
    job.gate.until(lambda: steps(job.record) >= 20, PATIENCE)  # an epoch has 15 steps: there is a checkpoint, and more
    platform.kill_everything()
    platform.start()
    job.until_slots(4)
    end = job.finish()
    assert end["attempts"] == 2
    assert end["digest"] == undisturbed()
    for audit in record.audit(record.read(job.record), samples=237, epochs=20):
        assert (audit.lost, audit.repeated) == ((), ())


def test_ctrl_c_leaves_checkpoints_and_no_process_and_the_next_start_goes_on(
    platform: Platform, undisturbed: Undisturbed
) -> None:
    job = submit(platform, "job")
    job.until_slots(4)
    assert platform.up is not None
    platform.up.send_signal(signal.SIGINT)
    # They leave at a step's boundary.
    job.gate.until(lambda: platform.up is None or platform.up.poll() is not None, PATIENCE)
    assert platform.up.returncode == 0
    assert platform.processes() == {}
    assert "killed" not in platform.errors(job.id)
    assert any((platform.home / "jobs" / job.id / "checkpoint").glob("at-*"))
    platform.start()
    end = job.finish()
    assert end["attempts"] == 2
    assert end["digest"] == undisturbed()
