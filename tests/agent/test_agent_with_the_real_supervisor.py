"""The agent and the supervisor it really starts: warm hand-over, adoption, stop, with a plain script as the job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edt_contract.attempt import USAGE_FILE
from support.small_disk import small_disk
from support.tagged import lives
from support.waiting import until


def start(node) -> None:
    """The agent as `edt up` starts it."""
    settings = {"EDT_AGENT_POLL_SECONDS": "1", "EDT_TAG": node.tag, "EDT_CPU_SLOTS": "2", "EDT_DEVICES": "cpu"}
    words = ["--api", node.api.url, "--home", str(node.home), "--name", node.name]
    with (node.home / "agent.out").open("ab") as output:
        node.agent = subprocess.Popen(
            [sys.executable, "-m", "edt_agent", *words],
            env={**os.environ, **settings},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def hand_in(node, job: str, script: str, **given):
    assignment = node.assignment(job=job, grace_seconds=10, **given)
    folder = Path(assignment.spec.work_dir)
    folder.joinpath("main.py").write_text(script)
    for name in ("log", "checkpoint", "model"):
        folder.joinpath(name).mkdir(exist_ok=True)
    node.api.want(assignment)
    return assignment


def test_scripts_run_are_adopted_are_stopped_and_leave_nothing(node, api):
    start(node)
    hand_in(node, "edt-1", "import os; print('hello from', os.environ['GREETED'])", environ={"GREETED": "a script"})
    until(lambda: "attempt-ended" in api.kinds("edt-1/1"), 60, "the first script is through")
    assert api.last("edt-1/1", "attempt-ended")["kind"] == "finished"
    assert "hello from a script" in (node.home / "jobs" / "edt-1" / "log" / "driver.out").read_text()

    assignment = hand_in(node, "edt-2", "import time; time.sleep(600)")
    until(lambda: "attempt-started" in api.kinds("edt-2/1"), 60)
    used = Path(assignment.spec.spool_dir) / USAGE_FILE
    until(used.exists, what="it measures its engine")
    assert set(json.loads(used.read_text())["engines"]) == {"100"}
    supervisor = api.last("edt-2/1", "attempt-started")["pid"]
    node.signal(signal.SIGKILL)
    start(node)
    until(lambda: "adopted" in node.log)
    hand_in(node, "edt-2", "import time; time.sleep(600)", stop=True)
    until(lambda: "attempt-ended" in api.kinds("edt-2/1"), 60, "the adopted one stops")
    assert api.last("edt-2/1", "attempt-ended")["kind"] == "stopped"
    assert not lives(supervisor)
    assert node.signal(signal.SIGINT) == 0
    until(lambda: not node.processes(), what="no process is left")


@pytest.mark.tmpfs_mount
def test_a_supervisor_that_cannot_begin_on_a_full_disk_is_tried_again_and_why_is_reported_at_once(node, api):
    with small_disk(node.home / "jobs" / "edt-3", 1 << 17) as disk:
        start(node)
        assignment = hand_in(node, "edt-3", "print('never')")
        disk.fill()
        until(lambda: "attempt-ended" in api.kinds("edt-3/1"), 100, "the attempt is given up for now")
        end = api.last("edt-3/1", "attempt-ended")
        assert end["kind"] == "lost"
        assert end["message"] == "its supervisor could not write into its spool folder: is the disk full?"
        assert node.log.count(end["message"]) == 3  # it was tried again, after a pause
        assert "error in OpenEDT" not in node.log and "Traceback" not in node.log
        assert node.agent.poll() is None
        disk.make_room()
        reports = Path(assignment.spec.spool_dir) / "reports.jsonl"
        until(lambda: reports.exists() and "attempt-ended" in reports.read_text(), 30, "they are on disk, too")
        api.drop("edt-3/1")
        assert node.signal(signal.SIGINT) == 0
