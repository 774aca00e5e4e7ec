"""`edt up`: one command and the platform is there; Ctrl-C and nothing of it is left; again, and it goes on."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.running_platform import Platform
from support.tagged import lives
from support.waiting import until

pytestmark = pytest.mark.lane("processes")  # a whole platform

SLEEPS = "import time\nprint('awake', flush=True)\ntime.sleep(600)\n"


def part(platform: Platform, module: str) -> int:
    """pid of the process that `edt up` started for a part."""
    assert platform.up is not None
    of_ours = Path(f"/proc/{platform.up.pid}/task/{platform.up.pid}/children").read_text().split()
    return next(pid for pid, line in platform.processes().items() if str(pid) in of_ours and f" {module}" in line)


@pytest.mark.timeout(300)  # it starts four times, and a machine may be busy
def test_the_platform_stands_mends_itself_goes_and_goes_on(tmp_path):
    platform = Platform(tmp_path, slots=1, EDT_GRACE_SECONDS="600")  # longer than this test may take
    del platform.environ["EDT_ADMIN_PASSWORD"]
    with platform:
        # The first start shows a password, this once.
        [password] = re.findall(r"user admin, password (\S+) \(shown this once\)", platform.log)
        assert f"OpenEDT is at {platform.url}" in platform.log
        assert platform.api.get("/livez").is_success

        # A second one in the same home has no business there.
        second = platform.cli("up", "--home", str(platform.home))
        assert second.returncode == 2
        assert re.fullmatch(r"edt: `edt up` runs already in .*\n", second.stderr)

        # A dead child is started again.
        for name in ("edt_scheduler", "edt_api", "edt_agent"):
            os.kill(part(platform, name), signal.SIGKILL)
        until(lambda: platform.log.count("it starts again") >= 3)
        until(platform.serves, 60)

        # The whole control plane dies: what trains goes on, and is adopted.
        (tmp_path / "main.py").write_text(SLEEPS)
        job = platform.submit(tmp_path / "main.py")
        platform.wait(job, "RUNNING")
        supervisor = until(lambda: platform.supervisor_of(job))
        platform.kill_control_plane()
        assert lives(supervisor)
        platform.start()
        until(lambda: "adopted" in platform.log)
        assert (platform.job(job)["state"], platform.job(job)["attempts"]) == ("RUNNING", 1)
        assert platform.supervisor_of(job) == supervisor

        # Ctrl-C: it leaves, and goes on as the next attempt at the next start.
        assert platform.interrupt(200) == 0
        assert platform.processes() == {}
        platform.start()
        until(lambda: (platform.job(job)["state"], platform.job(job)["attempts"]) == ("RUNNING", 2), 60)
        assert platform.log.count("password") == 1
        assert platform.api.get("/auth/v1/logon", auth=("admin", password)).is_success

        # A second Ctrl-C kills at once, although there is somebody who does not leave.
        os.kill(platform.supervisor_of(job), signal.SIGSTOP)
        platform.up.send_signal(signal.SIGINT)
        until(lambda: platform.log.count("Ctrl-C once more") == 2)
        time.sleep(0.4)  # more than the 0.3 s within which it would be the same Ctrl-C, however slow the machine is
        platform.up.send_signal(signal.SIGINT)
        assert platform.up.wait(60) == 130
        assert platform.processes() == {}


@pytest.mark.parametrize("trouble", ["port", "home", "database"])
def test_where_it_cannot_start_it_says_why_in_one_sentence(tmp_path, trouble):
    home, options, words = tmp_path / "home", [], ""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        if trouble == "port":
            options, words = ["--port", str(server.getsockname()[1])], "is taken"
        elif trouble == "home":
            (tmp_path / "file").write_text("")
            home, words = tmp_path / "file" / "home", "cannot be written"
        else:
            home.mkdir()
            database = sqlite3.connect(home / "edt.db")
            database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
            database.execute("INSERT INTO alembic_version VALUES ('9999')")
            database.commit()
            database.close()
            words = "the database is at schema 9999"
        done = subprocess.run(
            [sys.executable, "-m", "edt_cli", "up", "--home", str(home), *options],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""
