"""100,000 jobs of one user, before a real API process on each database: its list, its pages, deleting them all."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from edt_scheduler.operations import accounts, execs
from edt_scheduler.platform import Platform, open_platform
from edt_scheduler.settings import Settings
from support.api_process import serving
from support.postgres import Postgres
from support.seeded import crowd

JOBS = 100_000
PASSWORD = "a password for many"
EXECS = "/platform/rest/deeplearning/v1/execs"
MOST_MEGABYTES = 60
"""So much more than before may the process hold while it writes a list of 50 MB. Its interpreter keeps what it needs
for one batch, of each thread that has written one."""


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def crowded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("crowd") / "home"
    if request.param == "sqlite":
        yield from _crowded(Settings(home=home))
        return
    with Postgres() as server:
        yield from _crowded(Settings(home=home, database_url=server.create("crowd")))


def _crowded(settings: Settings) -> Iterator[Platform]:
    platform = open_platform(settings)
    yield platform
    platform.close()


def megabytes(pid: int) -> int:
    """The most memory that a process has had since its high-water mark was reset."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


def reset(pid: int) -> int:
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return megabytes(pid)


@pytest.mark.extended
@pytest.mark.timeout(900)
def test_a_hundred_thousand_jobs_are_listed_paged_and_deleted(crowded: Platform) -> None:
    environ = {"EDT_ADMIN_PASSWORD": PASSWORD, "EDT_DATABASE_URL": crowded.settings.database_url}
    with (
        serving(crowded.settings.home, **environ) as (process, url),
        httpx.Client(base_url=url, auth=("admin", PASSWORD), trust_env=False, timeout=600) as client,
    ):
        assert client.get(EXECS).json() == []  # it has begun, and made its first user
        crowd(crowded.database, time.time(), "admin", JOBS, waiting=200)
        few = client.get(EXECS, params={"limit": 3}).content
        assert few == json.dumps(json.loads(few), separators=(",", ":"), ensure_ascii=False).encode()

        before, length, jobs = reset(process.pid), 0, 0
        with client.stream("GET", EXECS) as answer:
            assert answer.status_code == 200
            for piece in answer.iter_bytes():
                length, jobs = length + len(piece), jobs + piece.count(b'"submissionId"')
        assert length > 40_000_000
        assert megabytes(process.pid) - before < MOST_MEGABYTES
        assert JOBS - 10 < jobs <= JOBS  # a name that is cut in two between pieces is not counted

        listed = client.get(EXECS, params={"sort_by": "appName:desc"}).json()
        assert len({job["id"] for job in listed}) == JOBS
        names = [job["appName"] for job in listed]
        assert names == sorted(names, reverse=True)

        page = client.get("/api/v1/jobs", params={"limit": 500}).json()
        assert (len(page["items"]), page["total"], page["items"][0]["id"]) == (500, JOBS, f"edt-{JOBS}")

        assert client.delete(EXECS).status_code == 204
        assert client.get(EXECS).json() == []
    admin = accounts.user(crowded, "admin")
    assert execs.delete_all(crowded, viewer=admin) == 0
