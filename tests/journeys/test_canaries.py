"""Secrets that a platform is given are found nowhere but where they belong: planted, and looked for everywhere."""

from __future__ import annotations

import re
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis

from support.house import EXECS, House
from support.journey import house_in
from support.waiting import until

SCRIPT = """import os, pathlib, time
model = pathlib.Path(os.environ["RESULT_DIR"], "model")
(model / "told").write_text(f"{os.environ['TOKEN']} {os.environ['OTHER']}")
while not (model / "go").exists():
    time.sleep(0.05)
"""


@pytest.fixture
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house_in(tmp_path_factory.mktemp("c"), slots=1) as house:
        yield house


class Overheard:
    """All that passes through the broker, as its MONITOR shows it."""

    def __init__(self, path: Path) -> None:
        self._client = redis.Redis(unix_socket_path=str(path))
        self.lines: list[str] = []
        self._monitor = self._client.monitor()
        self._monitor.__enter__()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            for told in self._monitor.listen():
                self.lines.append(str(told["command"]))
        except (redis.RedisError, OSError, ValueError):
            return  # the broker has ended

    def kept(self) -> bytes:
        """Every key and what it holds."""
        return b"".join(key + (self._client.dump(key) or b"") for key in self._client.keys("*"))


def everywhere(house: House, broker: Overheard, clients: dict[str, httpx.Client], job: str) -> dict[str, bytes]:
    """Place to what can be read there."""
    found = {str(path): path.read_bytes() for path in house.folder.rglob("*") if path.is_file()}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found[str(entry)] = entry.read_bytes()
        except OSError:
            continue  # it has ended
    found["the broker's keys"] = broker.kept()
    found["what passed through the broker"] = "\n".join(broker.lines).encode()
    paths = house.api.get("/api/v1/openapi.json").json()["paths"]
    for user, client in clients.items():
        for path in [path for path, methods in paths.items() if "get" in methods and not path.endswith("/stream")]:
            asked = re.sub(r"\{name\}", house.nodes()[0]["name"], path.replace("{exec_id}", job))
            answer = client.get(asked)
            found[f"GET {asked} as {user}"] = answer.content + repr(answer.headers).encode()
    return found


def places(found: dict[str, bytes], canary: str) -> set[str]:
    return {place for place, content in found.items() if canary.encode() in content}


def test_canaries_are_found_nowhere_but_where_they_belong(house: House) -> None:
    token, other, password = (f"canary-{secrets.token_hex(12)}" for _ in range(3))
    broker = Overheard(house.home / "run" / "valkey.sock")
    house.api.post("/api/v1/users", json={"name": "ana", "password": password}).raise_for_status()
    with httpx.Client(base_url=house.url, auth=("ana", password), timeout=30) as ana:
        ana.post("/api/v1/session", json={"name": "ana", "password": password}).raise_for_status()
        args = f"--exec-start edtPyTorch --model-main x.py --msd-env TOKEN={token} --msd-env 'OTHER={other}'"
        keyed = {"Idempotency-Key": "k-1"}
        files = {"file": ("x.py", SCRIPT.encode())}
        answer = ana.post(EXECS, params={"args": args}, files=files, headers=keyed)
        answer.raise_for_status()
        job = str(answer.json()["id"])
        again = ana.post(
            EXECS, data={"data": f'{{"args": "{args}"}}'}, files=files
        )  # held in the form, not the address
        waits = str(again.json()["id"])
        refused = ana.post(EXECS, params={"args": f"{args} --msd-env EDT_SEED={token}"}, files=files)
        assert refused.status_code == 400 and token not in refused.text
        model = house.home / "jobs" / job / "model"
        until((model / "told").exists, 60, "the script has seen its environment")

        clients = {"admin": house.api, "ana": ana}
        during = everywhere(house, broker, clients, job)
        join = (house.home / "join-token").read_text().strip()
        told = str(model / "told")
        result = {f"GET {EXECS}/{job}/result as {user}" for user in clients}
        for canary in (token, other):
            assert told in places(during, canary), "the search finds what is there"
            assert places(during, canary) <= {told} | result
            assert canary in (model / "told").read_text()
        assert places(during, password) == set()
        assert {Path(place).name for place in places(during, join)} == {"join-token"}
        assert broker.lines, "the broker was listened to"
        assert _environs(house) == 2

        ana.delete(f"{EXECS}/{waits}").raise_for_status()
        assert _environs(house) == 1
        (model / "go").touch()
        until(lambda: house.job(job)["state"] not in {"RUNNING", "PENDING_CRD_SCHEDULER"}, 60, "it is over")
        assert _environs(house) == 0
        after = everywhere(house, broker, clients, job)
        for canary in (token, other):
            assert places(after, canary) <= {told} | result


def _environs(house: House) -> int:
    with sqlite3.connect(f"file:{house.home / 'edt.db'}?mode=ro", uri=True) as bare:
        return int(bare.execute("SELECT count(*) FROM job_environs").fetchone()[0])
