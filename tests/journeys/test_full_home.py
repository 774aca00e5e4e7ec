"""The disk of the whole platform is full: its database, its uploads, its jobs' folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edt_demo import sample_record as record
from support.journey import Job, platform_in, submit
from support.running_platform import EXECS
from support.small_disk import small_disk
from support.waiting import until

pytestmark = [pytest.mark.timeout(300), pytest.mark.tmpfs_mount]
ROOM = 16 << 20


def steps(job: Job) -> int:
    return len({entry.step for entry in record.read(job.record)})


@pytest.mark.extended  # each part by itself: elastic/test_full_disks, api/test_full_disk
def test_a_training_goes_on_submits_are_refused_and_afterwards_all_goes_on_by_itself(
    undisturbed: Callable[..., str], tmp_path: Path
) -> None:
    with small_disk(tmp_path / "home", ROOM) as disk, platform_in(tmp_path, 2, EDT_AGENT_TICK_SECONDS="1") as platform:
        job = submit(platform, "job", "--numWorker 2")
        job.until_slots(2)
        disk.fill()
        before = steps(job)
        job.gate.allow(job.gate.allowed + 10)
        until(lambda: steps(job) >= before + 10, 60, "steps go on over the full disk")
        refused = platform.api.post(
            EXECS, params={"args": "--exec-start edtPyTorch"}, files={"file": ("a", b"#" * 99_999)}
        )
        assert refused.status_code in {503, 507}
        assert "disk is full" in refused.text or "no room left on its disk" in refused.text
        assert [each["id"] for each in platform.api.get(EXECS).json()] == [job.id]
        assert platform.api.get(f"/api/v1/jobs/{job.id}").status_code == 200
        job.gate.allow(job.gate.allowed + 10)
        until(lambda: steps(job) >= before + 20, 60, "they still go on")
        assert platform.up is not None and platform.up.poll() is None
        assert " ended (" not in platform.log  # no part had to be started again
        disk.make_room()
        assert list((platform.home / "staged").iterdir()) == []
        end = job.finish()
        assert (end["state"], end["attempts"]) == ("FINISHED", 1)
        assert end["digest"] == undisturbed()
        other = submit(platform, "other", "--numWorker 1", "--epochs 1")
        assert other.finish()["state"] == "FINISHED"
        assert "Traceback" not in platform.log
