"""API, scheduler and agent die at every place that has a name, and jobs come through: submitted, run and finished,
submitted and stopped. Real processes, a real database of each kind, stand-ins for the training."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from checker.watch import Checker, Watch
from edt_contract.crash_points import CrashPoint
from support import restarter
from support.credentials import PASSWORD
from support.databases import SQLITE_FIRST
from support.ports import free_port
from support.served_api import ARGS, EXECS
from support.tagged import bearers, kill_bearers
from support.waiting import until

SLOTS = 4
OVER = {"FINISHED", "KILLED", "ERROR"}
NOT_NOW = {429, 503}
"""429: requests that this user has given up are still being worked on."""
SECONDS = 240.0
"""For everything; quiet machines need a tenth of it."""

POINTS = {
    part: [point.value for point in CrashPoint if point.name.startswith(f"{part.upper()}_")]
    for part in ("api", "scheduler", "agent")
}


class Platform:
    """A home whose parts die as told and are started again; a user of it who does not give up."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.home, self.tag = folder / "home", uuid.uuid4().hex
        self.database_url = database_url
        self.marks = folder / "marks"
        self._deaths = folder / "deaths"
        self._deaths.touch()
        port = free_port()
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", auth=("admin", PASSWORD), timeout=20)
        self.home.mkdir(exist_ok=True)
        (self.home / "join-token").write_text("join-me\n")
        common = {
            "EDT_HOME": str(self.home),
            "EDT_BROKER_URL": "",
            "EDT_DATABASE_URL": database_url,
            "EDT_CRASH_DIR": str(self.marks),
        }
        own = {
            "api": {"EDT_PORT": str(port), "EDT_ADMIN_PASSWORD": PASSWORD},
            "scheduler": {"EDT_TICK_SECONDS": "0.2"},
            "agent": {
                "EDT_API": f"http://127.0.0.1:{port}",
                "EDT_NAME": "n1",
                "EDT_TAG": self.tag,
                "EDT_WARM": "0",
                "EDT_DEVICES": "cpu",
                "EDT_CPU_SLOTS": str(SLOTS),
                "EDT_AGENT_TICK_SECONDS": "0.2",
                "EDT_AGENT_POLL_SECONDS": "0.5",
            },
        }
        environs = {name: {**common, **own[name], "EDT_CRASH": ",".join(POINTS[name])} for name in own}
        self._restarter: subprocess.Popen[bytes] = restarter.start(environs, self._deaths)

    def close(self) -> None:
        self._restarter.kill()
        self._restarter.wait()
        kill_bearers(self.tag)
        self._client.close()

    @property
    def died_at(self) -> set[str]:
        return {path.name for path in self.marks.glob("*")}

    @property
    def deaths(self) -> list[str]:
        """How each part that ended has ended, ``api -9``."""
        return self._deaths.read_text().splitlines()

    def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Ask until there is an answer other than: not now."""
        deadline = time.monotonic() + 120
        while True:
            try:
                answer = self._client.request(method, path, **request)
                if answer.status_code not in NOT_NOW:
                    assert answer.is_success, answer.text
                    return answer
                said: object = answer.text
            except httpx.TransportError as error:
                said = error
            assert time.monotonic() < deadline, f"no answer for two minutes: {said!r}"
            time.sleep(0.05)

    def submit(self) -> str:
        files = {"file": ("main.py", b"print('hello')\n")}
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return str(self.ask("POST", EXECS, params={"args": ARGS}, files=files, headers=headers).json()["id"])

    def job(self, job: str) -> dict[str, Any]:
        return dict(self.ask("GET", f"/api/v1/jobs/{job}").json())

    def reaches(self, job: str, *states: str) -> dict[str, Any]:
        deadline = time.monotonic() + 120
        while (now := self.job(job))["state"] not in states:
            assert now["state"] not in OVER, now
            assert time.monotonic() < deadline, now
            time.sleep(0.1)
        return now

    def life(self, ends: str) -> str:
        """One job from its submit to this end."""
        job = self.submit()
        running = self.reaches(job, "RUNNING")
        if ends == "FINISHED":
            Path(running["work_dir"], "finish").touch()
        else:
            self.ask("POST", f"{EXECS}/{job}/stop")
        self.reaches(job, ends)
        return job


@pytest.fixture(params=SQLITE_FIRST)
def platform(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Platform]:
    url = "" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    opened = Platform(tmp_path, url)
    yield opened
    opened.close()


@pytest.mark.timeout(480)
def test_every_job_comes_through_whatever_dies_wherever(platform: Platform) -> None:
    checker = Checker(platform.home, platform.tag, platform.database_url)
    until(lambda: (platform.home / "edt.db").exists() or platform.database_url, 30)
    platform.ask("GET", "/readyz")
    unknown = platform.home / "jobs" / "edt-999"
    unknown.mkdir()
    (unknown / "result.pth").write_text("weights")
    deadline = time.monotonic() + SECONDS
    wanted = {point for points in POINTS.values() for point in points}
    jobs: list[str] = []
    with Watch(checker):
        while platform.died_at != wanted:
            assert time.monotonic() < deadline, f"nothing came to {wanted - platform.died_at}"
            with ThreadPoolExecutor(3) as users:
                lives = [users.submit(platform.life, ends) for ends in ("FINISHED", "KILLED", "FINISHED")]
                for life in lives:
                    jobs.append(life.result())
                    checker.acknowledge(jobs[-1])
        until(lambda: not bearers(platform.tag, EDT_NODE="n1"), 30, "no process is left")
        until(lambda: all(slot["exec_id"] is None for slot in _slots(platform)), 30, "every slot is free")
    checker.settle(30)
    checker.assert_sound()
    assert checker.polls > 3
    assert (platform.home / "lost+found" / "edt-999" / "edt-999" / "result.pth").read_text() == "weights"
    listed = [job["id"] for job in platform.ask("GET", "/api/v1/jobs").json()["items"]]
    assert sorted(listed) == sorted(jobs), "every acknowledged job exists, once, and no other does"
    for job in jobs:
        events = platform.ask("GET", f"/api/v1/jobs/{job}/events").json()["items"]
        seqs = [event["seq"] for event in events]
        assert seqs == list(range(1, len(seqs) + 1))
    assert sorted(platform.deaths) == sorted(f"{part} -9" for part, points in POINTS.items() for _ in points)


def _slots(platform: Platform) -> list[dict[str, Any]]:
    return [slot for node in platform.ask("GET", "/api/v1/nodes").json()["items"] for slot in node["slots"]]
