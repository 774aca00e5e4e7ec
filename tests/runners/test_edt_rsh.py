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
    server.serve(socket.socket(fileno=int(sys.argv[1])), "key", os.environ, ".", float(sys.argv[2]))
    os._exit(0)
os.wait()
"""


class Server:
    """A server of ``edt-rsh`` in processes of its own, in the folder ``folder``."""

    def __init__(self, folder: Path, grace_seconds: float) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        with listener:
            words = [sys.executable, "-c", SERVER, str(listener.fileno()), str(grace_seconds)]
            environ = {**os.environ, "TMPDIR": str(folder)}  # ``close`` leaves folders behind
            self._process = subprocess.Popen(words, cwd=folder, env=environ, pass_fds=[listener.fileno()])
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
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with a grace of 30 s, or of as many as the test names."""
    started = Server(tmp_path, getattr(request, "param", 30.0))
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


def received(sock: socket.socket, kind: Kind, ending: bytes = b"") -> bytes:
    """All data of frames of this kind until they end so."""
    found = b""
    while not (found and found.endswith(ending)):
        of, data = wire.receive(sock, time.monotonic() + 30)
        found += data if of is kind else b""
    return found


def test_input_that_a_command_does_not_read_keeps_nothing_else_waiting(server: Server, tmp_path: Path) -> None:
    line = "echo $$; while [ ! -e go ]; do sleep 0.02; done; echo seen; exec sleep 600"
    with server.command(line) as sock:
        pid = int(received(sock, Kind.OUTPUT, b"\n"))
        for _ in range(3):  # more than a pipe holds
            wire.send(sock, Kind.INPUT, b"x" * wire.PIECE_BYTES)
        (tmp_path / "go").touch()
        assert received(sock, Kind.OUTPUT, b"\n") == b"seen\n"
    until(lambda: processes.start_time(pid) is None, 30, "the command ends with its connection")


def test_the_exit_status_arrives_though_input_was_not_read(server: Server, tmp_path: Path) -> None:
    with server.command("exec <&-; while [ ! -e go ]; do sleep 0.02; done; exit 4") as sock:
        for _ in range(3):
            wire.send(sock, Kind.INPUT, b"x" * wire.PIECE_BYTES)
        (tmp_path / "go").touch()
        wire.send(sock, Kind.INPUT, b"x" * wire.PIECE_BYTES)
        assert received(sock, Kind.EXITED) == b"4"


def test_who_sends_more_input_than_was_taken_loses_its_command(server: Server) -> None:
    with server.command("echo $$; exec sleep 600") as sock:
        pid = int(received(sock, Kind.OUTPUT, b"\n"))
        for _ in range(wire.INPUT_BYTES // wire.PIECE_BYTES + 2):
            wire.send(sock, Kind.INPUT, b"x" * wire.PIECE_BYTES)
        until(lambda: processes.start_time(pid) is None, 30, "the command is ended")


def test_output_that_never_ends_does_not_hold_up_the_end_of_the_command_that_began_it(server: Server) -> None:
    with server.command("yes & exit 3") as sock:
        assert received(sock, Kind.EXITED) == b"3"


def rsh(port: int, *words: str) -> subprocess.Popen[bytes]:
    """The program ``edt-rsh`` with pipes."""
    environ = {**os.environ, wire.WORKERS_VARIABLE: f"worker-1=127.0.0.1:{port}", wire.KEY_VARIABLE: "key"}
    command = [sys.executable, "-m", "edt_runner.rsh.client", "worker-1", *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)


def test_all_input_and_output_arrives_whole(server: Server) -> None:
    data = os.urandom(1 << 20) * 5
    with rsh(server.port, "cat; exit 6") as client_process:
        assert client_process.communicate(data, timeout=60)[0] == data
        assert client_process.returncode == 6


@pytest.mark.timeout(60)
def test_a_client_takes_output_while_nobody_takes_its_input() -> None:
    output = b"x" * wire.PIECE_BYTES
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            listener.setsockopt(socket.SOL_SOCKET, option, 1 << 14)
        with rsh(listener.getsockname()[1], "any") as client_process:
            sock, _ = listener.accept()
            with sock:
                sock.settimeout(30)
                wire.prove(sock, "key", server=True, until=time.monotonic() + 30)
                assert wire.receive(sock, time.monotonic() + 30)[0] is Kind.COMMAND
                assert client_process.stdin
                feeder = threading.Thread(target=_feed, args=(client_process,))
                feeder.start()
                reader = threading.Thread(target=client_process.stdout.read if client_process.stdout else None)
                reader.start()
                for _ in range(200):
                    wire.send(sock, Kind.OUTPUT, output)
                wire.send(sock, Kind.EXITED, b"0")
                assert client_process.wait(30) == 0
            feeder.join(30)
            reader.join(30)


def _feed(client_process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError):
        while client_process.stdin:
            client_process.stdin.write(b"x" * (1 << 20))


STUBBORN = "trap '' TERM; touch ready; while :; do sleep 0.1; done"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("server", [0.3], indirect=True)
@pytest.mark.parametrize(
    "line", [STUBBORN, f'sh -c "{STUBBORN}" & exec sleep 600', f'setsid sh -c "{STUBBORN}" & exec sleep 600']
)
def test_what_a_command_has_started_is_killed_after_the_grace(server: Server, tmp_path: Path, line: str) -> None:
    """Its shell, another process of its group, and one in a session of its own."""
    with server.command(line):
        until((tmp_path / "ready").exists, 30, "it runs")
        below = set(processes.descendants(server.pid))
    began = time.monotonic()
    until(lambda: not below & set(processes.descendants(server.pid)), 15, "nothing is left")
    assert 0.3 <= time.monotonic() - began < 4.5


SAVES = "trap 'sleep 0.3; echo full of output; touch saved; exit' TERM; touch ready; while :; do sleep 0.1; done"


@pytest.mark.parametrize("line", [SAVES, f'setsid sh -c "{SAVES}" & exec sleep 600'])
def test_what_a_command_has_started_can_save_within_the_grace(server: Server, tmp_path: Path, line: str) -> None:
    with server.command(line):
        until((tmp_path / "ready").exists, 30, "it runs")
    until((tmp_path / "saved").exists, 30, "it has saved")


def test_a_command_that_prints_much_while_it_saves_is_not_kept_waiting(server: Server, tmp_path: Path) -> None:
    line = "trap 'head -c 1000000 /dev/zero; touch saved; exit' TERM; touch ready; while :; do sleep 0.1; done"
    with server.command(line):
        until((tmp_path / "ready").exists, 30, "it runs")
    until((tmp_path / "saved").exists, 30, "it has saved")
