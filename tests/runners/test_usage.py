"""A supervisor measures its engines with all that they have started, in a file that others read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_contract import processes
from edt_contract.attempt import USAGE_FILE, AttemptSpec, DesiredSlot
from edt_runner.supervisor.usage import UsageMeter

MOST_OF_IT = 0.35
"""Of the 0.4 s that both have used: the kernel tells user and system time of each in whole hundredths."""
BUSY = """
import os, sys, time
until = time.process_time() + float(sys.argv[1])
helpers = [os.fork() == 0 for _ in range(int(sys.argv[2]))][:1]
while time.process_time() < until:
    pass
os.write(1, b"done\\n")  # whole, whoever else writes
time.sleep(60)
"""


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[str]]:
    """A process with a child, each of which has used a fifth of a second of a core."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY, "0.2", "1"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    for _ in range(2):
        assert process.stdout.readline() == "done\n"
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def spec(folder: Path) -> AttemptSpec:
    return AttemptSpec(
        job="edt-1", fence=1, node="n", framework="pytorch", main="main.py", arguments=(), work_dir="", result_dir="",
        log_dir="", checkpoint_dir="", spool_dir=str(folder), socket="", environ={}, seed=1, max_engines=4, threads=1,
        cores=2, grace_seconds=1, token="t",
    )  # fmt: skip


def test_what_a_process_used_is_its_own_and_its_childrens(busy: subprocess.Popen[str]) -> None:
    used = processes.used_below([busy.pid])[busy.pid]
    assert MOST_OF_IT <= used.cpu_seconds < 2
    assert used.rss_bytes > 2 * 4 * 1024 * 1024, "two interpreters"


def test_a_process_that_is_gone_has_used_nothing_that_could_be_told(busy: subprocess.Popen[str]) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert set(processes.used_below([gone.pid, busy.pid])) == {busy.pid}


def test_where_the_kernel_lists_no_children_they_are_found_by_their_parent(
    busy: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = processes.used_below([busy.pid])[busy.pid]
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: path.name != "children" and exists(path))
    assert processes.used_below([busy.pid])[busy.pid].cpu_seconds == pytest.approx(listed.cpu_seconds, abs=0.1)


def test_the_file_says_of_each_engine_its_slot_and_what_it_has_used(
    tmp_path: Path, busy: subprocess.Popen[str]
) -> None:
    now = time.monotonic()
    UsageMeter(spec(tmp_path)).measure(now, {busy.pid: DesiredSlot(12, "3")})
    written = json.loads((tmp_path / USAGE_FILE).read_text())
    assert written["time"] == now
    assert written["engines"]["12"]["slot"] == "3"
    assert written["engines"]["12"]["cpu_seconds"] >= MOST_OF_IT
    assert sorted(path.name for path in tmp_path.iterdir()) == [USAGE_FILE]


def test_it_is_written_now_and_then_and_once_more_when_the_last_engine_has_gone(
    tmp_path: Path, busy: subprocess.Popen[str]
) -> None:
    meter, file = UsageMeter(spec(tmp_path)), tmp_path / USAGE_FILE
    meter.measure(100.0, {})
    assert not file.exists(), "there was never anything to tell"
    meter.measure(100.0, {busy.pid: DesiredSlot(1, "0")})
    meter.measure(104.9, {busy.pid: DesiredSlot(1, "0")})
    assert json.loads(file.read_text())["time"] == 100.0
    meter.measure(105.0, {})
    assert json.loads(file.read_text()) == {"time": 105.0, "engines": {}}
    meter.measure(200.0, {})
    assert json.loads(file.read_text())["time"] == 105.0


@pytest.mark.timeout(60)
def test_what_a_job_puts_in_its_way_neither_stops_it_nor_leads_it_elsewhere(
    tmp_path: Path, busy: subprocess.Popen[str]
) -> None:
    draft, elsewhere = (tmp_path / USAGE_FILE).with_suffix(".tmp"), tmp_path / "elsewhere"
    os.mkfifo(draft)
    UsageMeter(spec(tmp_path)).measure(1.0, {busy.pid: DesiredSlot(1, "0")})
    draft.unlink()
    draft.symlink_to(elsewhere)
    UsageMeter(spec(tmp_path)).measure(1.0, {busy.pid: DesiredSlot(1, "0")})
    assert not elsewhere.exists()


def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path: Path, busy: subprocess.Popen[str]) -> None:
    UsageMeter(spec(tmp_path / "nowhere")).measure(1.0, {busy.pid: DesiredSlot(1, "0")})
