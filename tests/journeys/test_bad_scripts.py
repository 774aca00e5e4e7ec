"""Scripts that raise, and scripts that do not want to go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cast import cast
from support.journey import platform_in
from support.running_platform import EXECS, Platform
from support.tagged import lives
from support.waiting import until

GRACE_SECONDS = 2


@pytest.fixture(scope="module")
def shared_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_in(tmp_path_factory.mktemp("platform"), EDT_GRACE_SECONDS=str(GRACE_SECONDS)) as platform:
        yield platform


def test_a_script_that_raises_is_an_error_with_its_traceback_in_the_error_log(
    platform: Platform, tmp_path: Path
) -> None:
    (tmp_path / "main.py").write_text("print('before')\nraise ValueError('no, this will not do')\n")
    job = platform.submit(tmp_path / "main.py", "--numWorker 2")
    end = platform.wait(job, "ERROR")
    assert end["message"] == "ValueError: no, this will not do"
    log = {
        kind: platform.api.get(f"{EXECS}/{job}/log", params={"logType": kind}, headers={"Accept": "text/plain"}).text
        for kind in ("outlog", "errlog", "outerrlog")
    }
    assert "before" in log["outlog"] and "Traceback" not in log["outlog"]
    assert log["errlog"].count("Traceback") == 1 and "no, this will not do" in log["errlog"]
    assert "before" in log["outerrlog"] and "Traceback" in log["outerrlog"]
    assert platform.api.get(f"{EXECS}/{job}").json()["state"] == "ERROR"


DEAF = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()  # a daemon: in a session of its own, and nobody's child once its parent is gone
    if os.fork() == 0:
        open("daemon", "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
print("deaf", flush=True)
time.sleep(600)
"""


def test_a_script_that_ignores_sigterm_is_killed_after_the_grace(platform: Platform, tmp_path: Path) -> None:
    """Contract C5: no process is left when the grace and 10 s are over, daemons included."""
    (tmp_path / "main.py").write_text(DEAF)
    job = platform.submit(tmp_path / "main.py", "--numWorker 1")
    out = platform.home / "jobs" / job / "log/driver.out"
    until(lambda: out.exists() and "deaf" in out.read_text(), 60, "the script runs")
    [daemon] = (platform.home / "jobs" / job).rglob("daemon")
    players = {each.pid for each in cast(platform, job).processes} | {int(daemon.read_text())}
    assert platform.supervisor_of(job) in players
    platform.api.post(f"{EXECS}/{job}/stop").raise_for_status()
    acknowledged = time.monotonic()
    until(lambda: not any(map(lives, players)), 60, "all of it is gone")
    assert time.monotonic() - acknowledged < GRACE_SECONDS + 10
    platform.wait(job, "KILLED")
    assert not cast(platform, job).processes
    assert all(slot["exec_id"] is None for node in platform.nodes() for slot in node["slots"])
