"""edt-rsh: what it takes from its command line, and what it lets pass only with the key."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_contract import processes
from edt_runner.rsh import client, wire
from edt_runner.rsh.wire import Kind, WireError
from support.waiting import until

SERVER = """
import os, socket, sys
from edt_runner.rsh import server
from edt_contract import processes
processes.adopt_orphans()  # as the supervisor
server._MOST_UNPROVED = 4
if os.fork() == 0:
    server.serve(socket.socket(fileno=int(sys.argv[1])), "key", os.environ, ".")
    os._exit(0)
os.wait()
"""


class Server:
    """A server of ``edt-rsh`` in processes of its own, in the folder ``folder``."""

    def __init__(self, folder: Path) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        with listener:
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVER, str(listener.fileno())], cwd=folder, pass_fds=[listener.fileno()]
            )
        [self.pid] = until(lambda: processes.descendants(self._process.pid), 30, "the server")

    def connect(self) -> socket.socket:
        """A connection that has proved nothing."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def command(self, line: str) -> socket.socket:
        """A connection over which a command runs."""
        sock = self.connect()
        wire.prove(sock, "key", server=False, until=time.monotonic() + 30)
        wire.send(sock, Kind.COMMAND, line.encode())
        sock.settimeout(30)
        return sock

    def handlers(self) -> int:
        """Number of its processes that handle connections."""
        return sum(_parent(pid) == self.pid for pid in processes.descendants(self.pid))

    def close(self) -> None:
        for pid in [*processes.descendants(self._process.pid), self._process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


def _parent(pid: int) -> int:
    fields = processes.stat_fields(pid)
    return int(fields[1]) if fields else 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path)
    yield started
    started.close()


@pytest.mark.parametrize(
    ("arguments", "name", "words"),
    [
        (["worker-1", "orted", "-x"], "worker-1", ["orted", "-x"]),
        (["-x", "worker-1", "date"], "worker-1", ["date"]),
        (["-l", "me", "-oBatchMode=yes", "-p", "22", "worker-2", "date", "-u"], "worker-2", ["date", "-u"]),
        (["--", "ada@worker-1", "date"], "worker-1", ["date"]),
    ],
)
def test_it_takes_a_worker_and_a_command_and_ignores_options_of_ssh(
    arguments: list[str], name: str, words: list[str]
) -> None:
    assert client.parse(arguments) == (name, words)


@pytest.mark.parametrize("arguments", [[], ["worker-1"], ["-l", "me", "worker-1"]])
def test_without_a_command_it_tells_how_it_is_used(arguments: list[str]) -> None:
    with pytest.raises(ValueError, match="usage"):
        client.parse(arguments)


def test_it_finds_workers_by_name() -> None:
    environ = {wire.WORKERS_VARIABLE: "worker-1=10.0.0.1:700 worker-2=[::1]:800"}
    assert client.find("worker-1", environ) == ("10.0.0.1", 700)
    assert client.find("worker-2", environ) == ("::1", 800)
    with pytest.raises(KeyError, match="worker-1, worker-2"):
        client.find("worker-3", environ)


def both_prove(key_of_server: str, key_of_client: str) -> list[str]:
    """Who accepted the other."""
    ends = socket.socketpair()
    accepted: list[str] = []

    def side(sock: socket.socket, key: str, *, server: bool) -> None:
        with sock:
            try:
                wire.prove(sock, key, server=server, until=time.monotonic() + 10)
                accepted.append("server" if server else "client")
            except (WireError, OSError):
                pass

    other = threading.Thread(target=side, args=(ends[0], key_of_server), kwargs={"server": True})
    other.start()
    side(ends[1], key_of_client, server=False)
    other.join(10)
    return sorted(accepted)


def test_both_sides_accept_each_other_by_the_key_alone() -> None:
    assert both_prove("key", "key") == ["client", "server"]
    assert both_prove("key", "another") == []


def test_a_proof_of_one_side_is_none_of_the_other() -> None:
    """Who sends back what it got proves nothing."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for sock in (ours, theirs):
            sock.settimeout(10)

        def echo() -> None:
            for size in (32, 32):
                theirs.sendall(wire.receive_exactly(theirs, size))

        thread = threading.Thread(target=echo)
        thread.start()
        with pytest.raises(WireError, match="key"):
            wire.prove(ours, "key", server=False, until=time.monotonic() + 10)
        thread.join(10)


@pytest.mark.parametrize("data", [b"", b"\x09\0\0\0\0", b"\x01\xff\xff\xff\xff", b"\x01\0\0\0\x05abc"])
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(data)
        theirs.close()
        with pytest.raises(WireError):
            wire.receive(ours)


def test_frames_arrive_whole() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(theirs, Kind.OUTPUT, b"x" * 1000)
        wire.send(theirs, Kind.EXITED, b"0")
        assert [wire.receive(ours), wire.receive(ours)] == [(Kind.OUTPUT, b"x" * 1000), (Kind.EXITED, b"0")]


def test_who_sends_slowly_does_not_get_more_time_to_prove_the_key() -> None:
    ours, theirs = socket.socketpair()
    done = threading.Event()

    def trickle() -> None:
        while not done.wait(0.05):
            theirs.sendall(b"x")

    thread = threading.Thread(target=trickle)
    thread.start()
    began = time.monotonic()
    with ours, theirs, pytest.raises(OSError, match=r"in time|timed out"):
        try:
            wire.prove(ours, "key", server=True, until=began + 0.5)
        finally:
            done.set()
            thread.join(10)
    assert time.monotonic() - began < 1.4, "32 bytes would take 1.6 s"


def test_strangers_get_few_processes_and_do_not_limit_who_knows_the_key(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        commands = [stack.enter_context(server.command("sleep 600")) for _ in range(6)]
        until(lambda: server.handlers() == len(commands), 30, "more commands than strangers get processes")
        strangers = [stack.enter_context(server.connect()) for _ in range(10)]
        until(lambda: server.handlers() == len(commands) + 4, 30, "four strangers are handled")
        time.sleep(0.2)
        assert server.handlers() == len(commands) + 4
        for stranger in strangers:
            stranger.close()
        with server.command("exit 3") as sock:
            assert wire.receive(sock, time.monotonic() + 30) == (Kind.EXITED, b"3")
