"""`edt up`: one command and the platform is there; Ctrl-C and nothing of it is left; again, and it goes on."""

from __future__ import annotations

import json
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

from support.house import House
from support.tagged import lives
from support.waiting import until

SLEEPS = "import time\nprint('awake', flush=True)\ntime.sleep(600)\n"


def script(folder: Path, text: str, name: str = "main.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def part(house: House, module: str) -> int:
    """pid of the newest process that runs a module."""
    return max(pid for pid, line in house.processes().items() if line.endswith(module) or f"-m {module} " in line)


def test_the_house_stands_mends_itself_and_goes_with_all_it_started(tmp_path):
    with House(tmp_path, slots=2) as house:
        assert f"OpenEDT is at {house.url}" in house.log
        assert house.api.get("/livez").is_success
        assert [node["health"] for node in house.nodes()] == ["up"]
        assert house.processes().keys() >= {part(house, "edt_scheduler"), part(house, "edt_agent")}

        # One a home.
        second = subprocess.run(
            [sys.executable, "-m", "edt_cli", "up", "--home", str(house.home)],
            env=house.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 2
        assert re.fullmatch(r"edt: `edt up` runs already in .*\n", second.stderr)

        # A dead child is started again.
        for name in ("edt_scheduler", "edt_api", "edt_agent"):
            os.kill(part(house, name), signal.SIGKILL)
        until(lambda: house.log.count("it starts again") == 3)
        until(house._serves, 30)

        # Ctrl-C: a job that runs leaves, and goes on with the next start.
        job = house.submit(script(tmp_path, SLEEPS))
        house.wait(job, "RUNNING")
        started = time.monotonic()
        assert house.interrupt() == 0
        assert time.monotonic() - started < 45
        assert house.processes() == {}

        house.start()
        until(lambda: house.job(job)["attempts"] == 2, 30, "the job goes on as its second attempt")
        assert house.job(job)["state"] == "RUNNING"

        # A second Ctrl-C kills at once.
        house.up.send_signal(signal.SIGINT)
        time.sleep(0.3)
        started = time.monotonic()
        house.up.send_signal(signal.SIGINT)
        assert house.up.wait(10) == 130
        assert time.monotonic() - started < 3
        assert house.processes() == {}


def test_what_trains_survives_the_death_of_the_whole_control_plane(tmp_path):
    with House(tmp_path, slots=2) as house:
        job = house.submit(script(tmp_path, SLEEPS))
        house.wait(job, "RUNNING")
        [before] = [pid for pid in house.supervisors() if Path(f"/proc/{pid}/comm").read_text() == "edt-supervisor\n"][
            :1
        ]
        house.kill_control_plane()
        assert lives(before)
        house.start()
        assert house.job(job)["state"] == "RUNNING"
        assert house.job(job)["attempts"] == 1
        assert lives(before)
        house.cli("login", stdin="a password for tests\n")
        assert house.cli("stop", job).returncode == 0
        house.wait(job, "KILLED")
        until(lambda: not lives(before))


def test_the_first_start_shows_a_password_once(tmp_path):
    house = House(tmp_path)
    del house.environ["EDT_ADMIN_PASSWORD"]
    try:
        house.start(ready=False)
        shown = until(lambda: re.search(r"user admin, password (\S+) \(shown this once\)", house.log), 60)
        password = shown.group(1)
        logon = house.api.get("/auth/v1/logon", auth=("admin", password))
        assert logon.is_success and logon.json()["role"] == "Admin"
        assert house.interrupt() == 0
        house.start(ready=False)
        until(lambda: house.log.count("OpenEDT is at") == 2, 60)
        assert house.log.count("password") == 1
        assert house.api.get("/auth/v1/logon", auth=("admin", password)).is_success
    finally:
        house.__exit__(None, None, None)


@pytest.mark.parametrize("trouble", ["port", "home", "database", "host"])
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
        elif trouble == "host":
            options, words = ["--host", "192.0.2.1"], "--host 192.0.2.1"
        else:
            home.mkdir()
            with sqlite3.connect(home / "edt.db") as database:
                database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
                database.execute("INSERT INTO alembic_version VALUES ('9999')")
            database.close()
            words = "the database is at schema 9999"
        done = subprocess.run(
            [sys.executable, "-m", "edt_cli", "up", "--home", str(home), *options],
            env={**os.environ, "EDT_DEVICES": "cpu"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_settings_of_the_house_are_seen_by_no_job(tmp_path):
    with House(tmp_path, slots=1) as house:
        seen = "import json, os\nprint(json.dumps(dict(os.environ)))\n"
        job = house.submit(script(tmp_path, seen))
        house.wait(job, "FINISHED")
        environ = json.loads((house.home / "jobs" / job / "log" / "driver.out").read_text().splitlines()[0])
        told = {name for name in environ if name.startswith("EDT_")}
        assert told.isdisjoint(
            {"EDT_ADMIN_PASSWORD", "EDT_JOIN_TOKEN", "EDT_BROKER_URL", "EDT_DATABASE_URL", "EDT_HOME"}
        )
        assert "a password for tests" not in str(environ)
