"""Whether nodes are heard while people keep the front door busy: heartbeats, submits and logons, alone and in a crowd.

  heartbeat   what an agent asks and says: its assignments, reports, a sample of its slots; of four nodes, five times a
              second each
  submit      a script of a few lines, by two users, once a second each
  logon       a token for the right password, twice a second

Each is asked at an instant that was planned beforehand, and measured from that instant: who has to wait for an answer
sends the next one late, and that counts too. "longest silence" is the longest time between two heartbeats of a node
that were answered. Everything is the worst of all runs.

"alone" is nothing but these. The crowd beside them is 20 clients of four users that upload archives of 500 kB, one
after the other, and 20 that guess passwords. Each guess is of another name and comes from another address, so no limit
spares the server the work: the benchmark fails unless guesses are answered 401 and uploads taken until its end. The
crowd lives in a process of its own, as the clients do that are measured; it gives way to them and to the server, since
it stands for people at other machines. What it is refused (429) it tries again as it is told to, at the latest after a
second. A real API and a real scheduler stand on the same machine, on SQLite or, by --database postgresql, on
PostgreSQL; the nodes are cordoned, so no job starts.
"""

from __future__ import annotations

import base64
import http.client
import io
import itertools
import json
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests", "api", "scheduler", "runners", "migrations")]

import _report  # noqa: E402

PASSWORD = "a password for benchmarks"  # noqa: S105
JOIN_TOKEN = "join the benchmark"  # noqa: S105
EXECS = "/platform/rest/deeplearning/v1/execs"
ARGS = "--exec-start edtPyTorch --numWorker 4 --model-main main.py"
NODES, UPLOADERS, GUESSERS = 4, 20, 20
USERS = ("ana", "bob", "cy", "dee", "eve")
CHANCE = random.Random(1)  # noqa: S311 - of a benchmark
TARGET_MILLISECONDS = 200.0
SHARES = {"p50": 0.5, "p99": 0.99}
WARM_UP = 2
"""Seconds."""
ALONE, CROWDED = "alone", "in the crowd"


class Client:
    """One connection that stays open, as an agent's does."""

    def __init__(self, port: int, authorization: str, address: str | None = None) -> None:
        self._port = port
        self._headers = {"Authorization": authorization} | ({"X-Forwarded-For": address} if address else {})
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> tuple[int, Any]:
        """Status and, for JSON, body. A connection that was closed is opened anew."""
        headers = self._headers | ({"Content-Type": kind} if body is not None else {})
        try:
            self._line.request(method, path, body, headers)
            answer = self._line.getresponse()
        except (http.client.HTTPException, OSError):
            self._line.close()
            self._line = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
            return 0, None
        text = answer.read()
        is_json = "json" in (answer.headers["content-type"] or "")
        return answer.status, json.loads(text) if is_json and text else answer.headers.get("retry-after")

    def close(self) -> None:
        self._line.close()


def basic(name: str, password: str = PASSWORD) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def form(name: str, file: bytes) -> tuple[bytes, str]:
    """A submission's body, and its Content-Type."""
    head = f'--edt\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return head.encode() + file + b"\r\n--edt--\r\n", "multipart/form-data; boundary=edt"


def archive() -> bytes:
    """Some code with half a megabyte beside it that does not get smaller."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in (("main.py", b"print('hello')\n"), ("data.bin", CHANCE.randbytes(500_000))):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


@contextmanager
def platform(folder: Path, database: str) -> Iterator[int]:
    """The API and the scheduler over a home of their own; the API's port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("EDT_")},
        "PYTHONPATH": ":".join(str(ROOT / room) for room in ("api", "scheduler", "runners", "migrations")),
        "EDT_HOME": str(folder / "home"),
        "EDT_PORT": str(port),
        "EDT_DATABASE_URL": database,
        "EDT_ADMIN_PASSWORD": PASSWORD,
        "EDT_JOIN_TOKEN": JOIN_TOKEN,
        "EDT_FORWARDED_ALLOW_IPS": "127.0.0.1",  # the guessers come from many addresses
    }
    with (folder / "log").open("w") as log, ExitStack() as running:
        for part in ("edt_api", "edt_scheduler"):
            process = subprocess.Popen([sys.executable, "-m", part], env=environ, stdout=log, stderr=log)
            running.callback(process.wait)
            running.callback(process.terminate)
            until = time.monotonic() + 60
            while part == "edt_api" and Client(port, "").ask("GET", "/readyz")[0] != 200:
                assert process.poll() is None and time.monotonic() < until, (folder / "log").read_text()
                time.sleep(0.1)
        admin = Client(port, basic("admin"))
        for name in USERS:
            told(admin, "POST", "/api/v1/users", {"name": name, "password": PASSWORD})
        yield port


def told(client: Client, method: str, path: str, body: Any = None) -> Any:
    """The answer; a refusal is an error."""
    status, answer = client.ask(method, path, None if body is None else json.dumps(body).encode())
    assert 200 <= status < 300, f"{method} {path}: {status} {answer}"
    return answer


def registered(port: int) -> list[tuple[str, Client]]:
    """Nodes of four slots, and the clients that speak for them."""
    found = []
    for number in range(NODES):
        name = f"node-{number}"
        slots = [{"slot": str(slot), "device": "cpu", "label": "CPU"} for slot in range(4)]
        offer = {"name": name, "host": "127.0.0.1", "cores": 4, "boot_id": "b", "incarnation": "i", "slots": slots}
        token = told(Client(port, f"Bearer {JOIN_TOKEN}"), "POST", "/api/v1/nodes", offer)["token"]
        told(Client(port, basic("admin")), "POST", f"/api/v1/nodes/{name}/cordon")
        found.append((name, Client(port, f"Bearer {token}")))
    return found


class Measured:
    """Milliseconds by what was asked, from the planned instant to the answer; and what was refused."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {"heartbeat": [], "submit": [], "logon": []}
        self.refused: Counter[str] = Counter()
        self.silence = 0.0
        """Milliseconds, of the node that was not heard for longest."""

    def one(self, what: str, planned: float, ask: Callable[[], tuple[int, Any]]) -> bool:
        """Whether it was answered."""
        status, _ = ask()
        self.times[what].append(1000 * (time.perf_counter() - planned))
        answered = 200 <= status < 300
        if not answered:
            self.refused[f"{what} {status}"] += 1
        return answered

    def at(self, what: str, share: float) -> float:
        ordered = sorted(self.times[what])
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def figures(self) -> dict[str, float]:
        found = {f"{what} {name}": self.at(what, share) for what in self.times for name, share in SHARES.items()}
        return {**found, "longest silence": self.silence}


def measure(port: int, nodes: list[tuple[str, Client]], seconds: float) -> Measured:
    """Everybody who is measured, for so long."""
    found = Measured()
    usage = json.dumps({"slots": [{"slot": str(slot), "utilisation": 0.5, "memory_bytes": 7} for slot in range(4)]})
    script = form("main.py", b"print('hello')\n")
    begin = time.perf_counter()

    def every(pause: float, what: str, *asked: Callable[[], tuple[int, Any]]) -> Iterator[None]:
        """Yields after each answer."""
        planned = begin + CHANCE.uniform(0, pause)  # not all at the same instant
        for ask in itertools.cycle(asked):
            if planned > begin + seconds:
                return
            time.sleep(max(0.0, planned - time.perf_counter()))
            if found.one(what, planned, ask):
                yield
            planned += pause

    def heartbeats(name: str, client: Client) -> None:
        path = f"/api/v1/nodes/{name}"
        heard = begin
        for _ in every(
            0.2,
            "heartbeat",
            lambda: client.ask("GET", f"{path}/assignments"),
            lambda: client.ask("POST", f"{path}/reports", b"[]"),
            lambda: client.ask("POST", f"{path}/usage", usage.encode()),
        ):
            now = time.perf_counter()
            found.silence, heard = max(found.silence, 1000 * (now - heard)), now

    def submits(user: str) -> None:
        client = Client(port, basic(user))
        deque(every(1.0, "submit", lambda: client.ask("POST", f"{EXECS}?{urlencode({'args': ARGS})}", *script)), 0)

    def logons() -> None:
        client = Client(port, basic("admin"))
        deque(every(0.5, "logon", lambda: client.ask("GET", "/auth/v1/logon")), 0)

    threads = [threading.Thread(target=heartbeats, args=node) for node in nodes]
    threads += [threading.Thread(target=submits, args=(user,)) for user in ("admin", "eve")]
    threads.append(threading.Thread(target=logons))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def crowd(port: int, begun: Any, over: Any, counts: Any) -> None:
    """Uploaders and guessers, in a process of their own, until ``over``; what they were answered in each whole second
    goes to ``counts``."""
    os.nice(5)
    answers: dict[int, Counter[str]] = defaultdict(Counter)
    body, kind = form("code.tgz", archive())
    start = time.monotonic()

    def answered(what: str, status: int, after: Any) -> None:
        answers[int(time.monotonic() - start)][f"{what} {status}"] += 1
        if status == 429:
            over.wait(min(1.0, float(after or 1)))

    def upload(user: str) -> None:
        client = Client(port, basic(user))
        while not over.is_set():
            answered("upload", *client.ask("POST", f"{EXECS}?{urlencode({'args': ARGS})}", body, kind))

    def guess() -> None:
        while not over.is_set():
            address = f"10.{CHANCE.randrange(256)}.{CHANCE.randrange(256)}.{CHANCE.randrange(1, 255)}"
            client = Client(port, basic(f"user-{CHANCE.random()}", "a guess"), address)
            answered("guess", *client.ask("GET", "/auth/v1/logon"))
            client.close()

    threads = [threading.Thread(target=upload, args=(USERS[number % 4],)) for number in range(UPLOADERS)]
    threads += [threading.Thread(target=guess) for _ in range(GUESSERS)]
    for thread in threads:
        thread.start()
    begun.set()
    for thread in threads:
        thread.join()
    counts.put({second: dict(found) for second, found in answers.items()})


@contextmanager
def crowded(port: int) -> Iterator[dict[int, dict[str, int]]]:
    """The crowd is there until the block ends; what it was answered, second by second, is known then."""
    context = multiprocessing.get_context("spawn")
    begun, over, counts = context.Event(), context.Event(), context.Queue()
    process = context.Process(target=crowd, args=(port, begun, over, counts))
    process.start()
    answers: dict[int, dict[str, int]] = {}
    try:
        assert begun.wait(60), "the crowd did not come"
        yield answers
    finally:
        over.set()
        answers.update(counts.get(timeout=120))
        process.join()


def still_at_work(answers: dict[int, dict[str, int]], seconds: float) -> None:
    """Raises AssertionError unless guesses were looked at and uploads taken in every five seconds of a run."""
    for first in range(WARM_UP, int(seconds), 5):
        some = Counter[str]()
        for second in range(first, first + 5):
            some.update(answers.get(second, {}))
        assert some["guess 401"] and some["upload 200"], f"from second {first} on the crowd was answered {dict(some)}"


def main() -> None:
    parser = _report.arguments(__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    options = parser.parse_args()
    times, seconds = (1, 10.0) if options.quick else (3, 30.0)
    runs: dict[tuple[str, str], list[float]] = {}
    answers: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edt-bench-")))
        url = ""
        if options.database == "postgresql":
            from support.postgres import Postgres

            url = stack.enter_context(Postgres()).create("front_door")
        port = stack.enter_context(platform(folder, url))
        nodes = registered(port)
        measure(port, nodes, 2.0)  # connections and caches are there
        for _ in range(times):
            alone = measure(port, nodes, seconds)
            with crowded(port) as answered:
                time.sleep(WARM_UP)
                beside = measure(port, nodes, seconds)
            still_at_work(answered, seconds)
            for second in answered.values():
                answers.update(second)
            refused += beside.refused
            for who, found in ((ALONE, alone), (CROWDED, beside)):
                for what, value in found.figures().items():
                    runs.setdefault((what, who), []).append(value)
    print(f"the crowd was answered: {', '.join(f'{what}: {number}' for what, number in sorted(answers.items()))}")
    if refused:
        print(f"refused beside it: {', '.join(f'{what}: {number}' for what, number in sorted(refused.items()))}")
    rows = [_report.Row(case, who, max(found), "ms", found) for (case, who), found in runs.items()]
    worst = next(row.value for row in rows if (row.case, row.who) == ("heartbeat p99", CROWDED))
    met = worst < TARGET_MILLISECONDS and not any(what.startswith("heartbeat") for what in refused)
    claim = f"p99 of heartbeats beside {UPLOADERS} uploads and {GUESSERS} guesses, {options.database}"
    target = _report.Target(claim, TARGET_MILLISECONDS, worst, "ms", met)
    _report.finish("front_door", rows, [target], options.json)


if __name__ == "__main__":
    main()
