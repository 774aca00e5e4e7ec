"""`edt doctor`: what it shows of a home, and the way out where home and database do not belong together."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from edt_scheduler.operations import accounts
from edt_scheduler.platform import open_platform
from edt_scheduler.settings import Settings
from support.ports import free_port
from support.puppets import Clock, Stage
from support.running_platform import Platform
from support.tagged import lives
from support.typed import Done, edt
from support.waiting import until

pytestmark = pytest.mark.lane("processes")  # a whole platform

SLEEPS = """
import os, time
open(os.environ["RESULT_DIR"] + "/model/result.pth", "w").write("weights")
print("awake", flush=True)
time.sleep(600)
"""


@pytest.mark.extended  # each step by itself: scheduler/test_pairing, test_homes
@pytest.mark.timeout(300)
def test_a_new_database_is_refused_and_adopted_while_a_job_still_runs_and_no_result_is_lost(
    tmp_path: Path,
) -> None:
    with Platform(tmp_path, slots=1) as platform:
        platform.asserts = False  # the checker misses jobs that the new database does not know
        (tmp_path / "main.py").write_text(SLEEPS)
        job = platform.submit(tmp_path / "main.py")
        folder = platform.home / "jobs" / job
        until((folder / "model" / "result.pth").exists, 60)
        supervisor = until(lambda: platform.supervisor_of(job))
        platform.kill_control_plane()
        for file in platform.home.glob("edt.db*"):
            file.unlink()

        refused = platform.cli("up", "--home", str(platform.home))
        assert refused.returncode == 2
        (message,) = refused.stderr.splitlines()
        assert f"EDT_HOME {platform.home} (id " in message and "`edt doctor --adopt`" in message
        assert lives(supervisor) and folder.exists()

        looked = platform.cli("doctor", "--home", str(platform.home))
        assert looked.returncode == 1
        assert "do not belong together" in looked.stdout and "no answer" in looked.stdout
        unasked = platform.cli("doctor", "--home", str(platform.home), "--adopt")
        assert (unasked.returncode, folder.exists()) == (2, True)

        adopted = platform.cli("doctor", "--home", str(platform.home), "--adopt", "--yes")
        assert adopted.returncode == 0, adopted.stderr
        assert "1 job folder moved to" in adopted.stdout
        assert not lives(supervisor) and not folder.exists()

        platform.start()
        found = platform.cli("doctor", "--home", str(platform.home), "-o", "json")
        assert found.returncode == 0, found.stderr
        seen = json.loads(found.stdout)
        assert seen["home_id"] == seen["database_id"] and seen["api"]["ready"]
        assert [entry["job"] for entry in seen["lost_found"]] == [job]
        moved = platform.home / "lost+found" / job / job
        assert (moved / "model" / "result.pth").read_text() == "weights"
        assert "they belong together" in (output := platform.cli("doctor", "--home", str(platform.home)).stdout)
        assert "an administrator gave the home another database" in output
        assert platform.submit(tmp_path / "main.py") != job
        under_way = platform.cli(
            "doctor", "--home", str(platform.home), "--adopt", "--yes", EDT_DATABASE_URL="sqlite:///x.db"
        )
        assert (under_way.returncode, under_way.stderr) == (
            1,
            f"edt: an API serves at {platform.url}: stop the platform before you change what belongs to it\n",
        )

        assert (
            platform.cli("doctor", "--home", str(platform.home), "--empty-lost-found", "--only", "edt-77").returncode
            == 1
        )
        assert moved.exists()
        emptied = platform.cli("doctor", "--home", str(platform.home), "--empty-lost-found", "--yes")
        assert emptied.returncode == 0, emptied.stderr
        assert not moved.parent.exists()


def test_it_says_where_the_secret_key_lies_and_what_it_opens_and_seals_with_the_newest(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDT_")}
    environ = {**kept, "EDT_BROKER_URL": "", "EDT_API": f"http://127.0.0.1:{free_port()}", "NO_COLOR": "1"}

    def doctor(*words: str) -> Done:
        return edt(["doctor", "--home", str(tmp_path / "home"), *words], environ, tmp_path)

    with closing(open_platform(Settings(home=tmp_path / "home", broker_url=""))) as platform:
        Stage(platform, Clock(), accounts.add_user(platform, "ana", "hash")).submit(environ={"TOKEN": "canary"})
        file, old = platform.secret_key.path, platform.secret_key.path.read_text()
        before = platform.secret_key.keys().ids[0]
        file.write_text(f"{Fernet.generate_key().decode()}\n")
        wrong = doctor().stdout
        assert f"secret key  {file}" in wrong and f"1 sealed environment needs the key {before}, which {file}" in wrong

        file.write_text(f"{file.read_text()}{old}")
        sealed = doctor("--seal")
        assert sealed.returncode == 0 and f"needs {before} no longer" in sealed.stdout, sealed.stderr
        shown = doctor().stdout
        newest = platform.secret_key.keys().ids[0]
        assert f"newest key {newest}; it fits the database, 1 environment sealed; {before} may be taken out" in shown
        assert "canary" not in wrong + sealed.stdout + shown and old.strip() not in wrong + sealed.stdout + shown
