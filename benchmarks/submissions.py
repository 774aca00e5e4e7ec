"""What people ask of the API: how many submissions, reads and followed logs it manages, beside a bare server.

  submit   archives of 20 kB (gzip, four files in a folder), taken durably, by 8 clients of four users
  GET one  one job by its id; the same clients
  list     the first 20 jobs; the same clients
  lag      300 followers of one log, into which four lines a second are written: from the writing of a line until a
           follower has it, as the dashboard follows logs

The bare server (_bare_server.py) is FastAPI and SQLAlchemy with nothing around them: it takes the same body with
UploadFile, writes the archive to a file as it is, syncs file and folder, inserts a row and commits it durably. Ours,
``python -m edt_api``, finds out who asks, unpacks the archive within its limits, and stores the job's files and row.
One process each, on the same disk and the same kind of database, asked in turns; the median of the turns counts. The
clients are threads of a process of their own, whose connections stay open. PostgreSQL is one server on this machine
with its own defaults for durability.

At the end the jobs are counted: each answer 200 is one. Then the API's memory is looked at: its own resident bytes, and
what it and its child processes hold together, where shared pages count once.
"""

from __future__ import annotations

import base64
import io
import json
import multiprocessing
import random
import re
import select
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests", "api", "scheduler", "runners", "migrations")]

import _memory  # noqa: E402
import _report  # noqa: E402

PASSWORD = "a password for benchmarks"  # noqa: S105
EXECS = "/platform/rest/deeplearning/v1/execs"
ARGS = "--exec-start edtPyTorch --numWorker 4 --model-dir model --model-main main.py"
USERS = ("ana", "bob", "cy", "dee")
CLIENTS = 8
FOLLOWERS = 300
LISTED = 20
LINES_A_SECOND = 4
LEAST_RATIO, MOST_LAG_SECONDS, MOST_MIB = 0.5, 1.0, 300.0
OURS, BARE = "OpenEDT", "bare FastAPI"
_PAUSE_SECONDS, _HELD_SECONDS = 0.3, 5.0
"""As the dashboard follows: how soon it asks again after an answer, and how long the API may hold a question."""
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: chunked", re.IGNORECASE)


def archive() -> bytes:
    """A folder with a script, two modules and data that does not get smaller; 20 kB."""
    chance = random.Random(1)  # noqa: S311 - of a benchmark
    files = {
        "model/main.py": b"import network\n\nprint(network.layers)\n" * 20,
        "model/network.py": b"layers = [64, 64, 10]\n" * 40,
        "model/utilities/__init__.py": b'"""Things that the script needs."""\n',
        "model/data.bin": chance.randbytes(19_300),
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def submission(path: str, headers: str) -> bytes:
    """A whole request."""
    disposition = 'Content-Disposition: form-data; name="file"; filename="model.tar"'
    body = f"--edt\r\n{disposition}\r\n\r\n".encode() + archive() + b"\r\n--edt--\r\n"
    kind = f"Content-Type: multipart/form-data; boundary=edt\r\nContent-Length: {len(body)}\r\n"
    return f"POST {path}?{urlencode({'args': ARGS})} HTTP/1.1\r\nHost: localhost\r\n{headers}{kind}\r\n".encode() + body


def question(path: str, headers: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode()


class Line:
    """A connection that stays open. It costs the client next to nothing, so that the two cores are the server's."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._came = b""

    def ask(self, request: bytes) -> tuple[int, bytes, bytes]:
        """Status, headers and body."""
        self.socket.sendall(request)
        while (answer := self.answered()) is None:
            pass
        return answer

    def answered(self) -> tuple[int, bytes, bytes] | None:
        """What one more read completes; None: not all of the answer is there yet."""
        piece = self.socket.recv(1 << 18)
        assert piece, "the server has closed the connection"
        self._came += piece
        head, end, rest = self._came.partition(b"\r\n\r\n")
        if not end:
            return None
        chunked = _CHUNKED.search(head)
        if chunked:
            if not rest.endswith(b"0\r\n\r\n"):
                return None
        elif len(rest) < int(_LENGTH.search(head)[1]):  # type: ignore[index]  # both servers say it
            return None
        self._came = b""
        return int(head[9:12]), head, _joined(rest) if chunked else rest


def _joined(chunks: bytes) -> bytes:
    """The body of an answer that came in chunks."""
    whole = b""
    while chunks:
        length, _, chunks = chunks.partition(b"\r\n")
        whole, chunks = whole + chunks[: int(length, 16)], chunks[int(length, 16) + 2 :]
    return whole


def rate(port: int, requests: Sequence[bytes], seconds: float) -> tuple[float, int]:
    """Answers a second, and their number. Each request is asked again and again on a connection of its own; in a
    process of the clients."""
    counts = [0] * len(requests)
    lines = [Line(port) for _ in requests]
    begun = time.perf_counter()

    def client(number: int) -> None:
        while time.perf_counter() < begun + seconds:
            status, _, body = lines[number].ask(requests[number])
            assert status == 200, body
            counts[number] += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for line in lines:
        line.socket.close()
    return sum(counts) / (time.perf_counter() - begun), sum(counts)


@dataclass
class _Follower:
    line: Line
    offset: int = 0
    ask_at: float = 0.0
    """When it asks next; infinity: it waits for its answer."""


def lags(port: int, path: str, headers: str, seconds: float) -> list[float]:
    """Seconds from the writing of each line, whose text is that instant, until each follower had it; in a process of
    the clients."""
    found: list[float] = []
    waiting = select.poll()
    followers: dict[int, _Follower] = {}
    begun = time.time()
    for number in range(FOLLOWERS):
        follower = _Follower(Line(port), ask_at=begun + number / FOLLOWERS)
        followers[follower.line.socket.fileno()] = follower
        waiting.register(follower.line.socket, select.POLLIN)
    while (now := time.time()) < begun + seconds:
        for follower in followers.values():
            if follower.ask_at <= now:
                asked = f"{path}?stream=elog&offset={follower.offset}&wait={_HELD_SECONDS:g}"
                follower.line.socket.sendall(question(asked, headers))
                follower.ask_at = float("inf")
        for descriptor, _ in waiting.poll(5):
            follower = followers[descriptor]
            answer = follower.line.answered()
            if answer is None:
                continue
            came = time.time()
            status, head, body = answer
            assert status == 200, body
            follower.offset = int(re.search(rb"edt-log-offset: (\d+)", head)[1])  # type: ignore[index]
            follower.ask_at = came + _PAUSE_SECONDS
            found += [came - float(text) for text in body.split() if float(text) > begun + 2.0]
    return found


@dataclass
class Server:
    """A server under test, and how to ask it."""

    port: int
    pid: int
    submissions: Sequence[bytes]
    """One for each client."""
    reads: Callable[[str], Sequence[bytes]]
    """By "GET one" and "list"."""


@contextmanager
def ours(folder: Path, url: str) -> Iterator[tuple[Server, str]]:
    """The API over a home of its own, and the header of the first user."""
    from support import api_process

    with api_process.serving(folder / "home", EDT_DATABASE_URL=url, EDT_ADMIN_PASSWORD=PASSWORD) as (process, address):
        port = int(address.rpartition(":")[2])
        admin = Line(port)
        for name in USERS:
            body = json.dumps({"name": name, "password": PASSWORD})
            head = (
                f"POST /api/v1/users HTTP/1.1\r\nHost: localhost\r\n{_basic('admin')}Content-Type: application/json\r\n"
            )
            assert admin.ask(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())[0] == 201
        tokens = [_token(Line(port), name) for name in USERS]
        headers = [f"Authorization: Bearer {tokens[number % len(tokens)]}\r\n" for number in range(CLIENTS)]

        def reads(what: str) -> Sequence[bytes]:
            path = {"GET one": f"{EXECS}/edt-{{}}", "list": f"{EXECS}?limit={LISTED}"}[what]
            asked = []
            for header in headers:
                _, _, body = Line(port).ask(question(f"{EXECS}?limit=1", header))
                first = json.loads(body)[0]["id"]
                asked.append(question(path.format(first.removeprefix("edt-")), header))
            return asked

        yield Server(port, process.pid, [submission(EXECS, header) for header in headers], reads), headers[0]


def _basic(name: str) -> str:
    return f"Authorization: Basic {base64.b64encode(f'{name}:{PASSWORD}'.encode()).decode()}\r\n"


def _token(line: Line, name: str) -> str:
    status, _, body = line.ask(question("/auth/v1/logon", _basic(name)))
    assert status == 200, body
    return str(json.loads(body)["accessToken"])


@contextmanager
def bare(folder: Path, url: str) -> Iterator[Server]:
    (folder / "bare").mkdir()
    command = [sys.executable, str(Path(__file__).with_name("_bare_server.py")), str(folder / "bare"), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            asked = {"GET one": question("/execs/1", ""), "list": question(f"/execs?limit={LISTED}", "")}
            yield Server(port, process.pid, [submission("/execs", "")] * CLIENTS, lambda what: [asked[what]] * CLIENTS)
        finally:
            process.kill()


@contextmanager
def databases(kind: str, folder: Path) -> Iterator[tuple[str, str]]:
    """URLs of two new databases: ours and the bare server's."""
    if kind == "SQLite":
        yield "", f"sqlite:///{folder / 'bare.db'}"
        return
    import psycopg

    from support.postgres import Postgres

    with Postgres() as server:
        urls = server.create("ours"), server.create("bare")
        with psycopg.connect(urls[0], autocommit=True) as connection:  # tests do without
            connection.execute("ALTER SYSTEM SET fsync = on")
            connection.execute("SELECT pg_reload_conf()")
            time.sleep(1)
            assert connection.execute("SHOW fsync").fetchone() == ("on",)
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        yield urls[0], urls[1].replace("postgresql:", "postgresql+psycopg:")


@dataclass
class Figures:
    """Runs by case and participant."""

    runs: dict[tuple[str, str, str], list[float]]

    def add(self, case: str, who: str, unit: str, value: float) -> None:
        self.runs.setdefault((case, who, unit), []).append(value)

    def rows(self) -> list[_report.Row]:
        return [_report.row(case, who, unit, found) for (case, who, unit), found in self.runs.items()]


def measure(
    kind: str, clients: ProcessPoolExecutor, turns: int, seconds: float, followed: float, found: Figures
) -> None:
    """All cases on one kind of database."""
    with tempfile.TemporaryDirectory(prefix="edt-bench-") as name:
        folder = Path(name)
        with (
            databases(kind, folder) as (our_url, bare_url),
            ours(folder, our_url) as (our, header),
            bare(folder, bare_url) as other,
        ):
            servers = {OURS: our, BARE: other}
            taken = 0
            for what in ("submit", "GET one", "list"):
                for who, server in servers.items():  # caches are warm, and processes are there
                    asked = server.submissions if what == "submit" else server.reads(what)
                    taken += clients.submit(rate, server.port, asked, 2.0).result()[1] * (
                        what == "submit" and who == OURS
                    )
                for _ in range(turns):
                    for who, server in servers.items():
                        asked = server.submissions if what == "submit" else server.reads(what)
                        per_second, count = clients.submit(rate, server.port, asked, seconds).result()
                        found.add(f"{what}, {kind}", who, "1/s", per_second)
                        taken += count * (what == "submit" and who == OURS)
                ratio = statistics.median(found.runs[f"{what}, {kind}", OURS, "1/s"]) / statistics.median(
                    found.runs[f"{what}, {kind}", BARE, "1/s"]
                )
                print(f"{what}, {kind}: {ratio:.2f} of the bare server's", file=sys.stderr, flush=True)
            for number in range(1, taken + 1):
                assert (folder / "home" / "jobs" / f"edt-{number}" / "_submitted_code" / "model" / "main.py").is_file()
            follow(kind, folder, our, header, clients, followed, found)
            found.add(f"resident, {kind}", OURS, "MiB", _memory.resident(our.pid) / _memory.MIB)
            found.add(f"with its children, {kind}", OURS, "MiB", _memory.own(_memory.family(our.pid)) / _memory.MIB)


def follow(
    kind: str, folder: Path, our: Server, header: str, clients: ProcessPoolExecutor, seconds: float, found: Figures
) -> None:
    """A log is written for so long, and followed."""
    job = json.loads(Line(our.port).ask(our.submissions[0])[2])["id"]
    log = folder / "home" / "jobs" / job / "log" / "stdout"
    log.touch()
    following = clients.submit(lags, our.port, f"/api/v1/jobs/{job}/log", header, seconds)
    with log.open("a") as lines:
        while not following.done():
            time.sleep(1 / LINES_A_SECOND)
            print(f"{time.time():.6f}", file=lines, flush=True)
    late = sorted(following.result())
    for what, share in (("p50", 0.5), ("p99", 0.99)):
        found.add(f"lag {what} of {FOLLOWERS} followers, {kind}", OURS, "s", late[int(share * len(late))])


def main() -> None:
    parser = _report.arguments(__doc__)
    parser.add_argument("--database", choices=("SQLite", "PostgreSQL"), action="append", help="both, if not given")
    options = parser.parse_args()
    turns, seconds, followed = (3, 2.0, 10.0) if options.quick else (9, 5.0, 30.0)
    found = Figures({})
    kinds: Sequence[str] = options.database or ("SQLite", "PostgreSQL")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as clients:
        for kind in kinds:
            measure(kind, clients, turns, seconds, followed, found)
    rows = found.rows()
    value = {(row.case, row.who): row.value for row in rows}
    targets = []
    for kind in kinds:
        times = value[f"submit, {kind}", BARE] / value[f"submit, {kind}", OURS]
        claim = f"a bare server's submissions for each of ours, {kind}"
        targets.append(_report.Target(claim, 1 / LEAST_RATIO, times, "times", times <= 1 / LEAST_RATIO))
        for what in ("p50", "p99"):
            late = value[case := f"lag {what} of {FOLLOWERS} followers, {kind}", OURS]
            targets.append(_report.Target(case, MOST_LAG_SECONDS, late, "s", late <= MOST_LAG_SECONDS))
        for what in (f"resident, {kind}", f"with its children, {kind}"):
            mib = value[what, OURS]
            targets.append(_report.Target(what, MOST_MIB, mib, "MiB", mib <= MOST_MIB))
    _report.finish("submissions", rows, targets, options.json)


if __name__ == "__main__":
    main()
