"""edt-rsh: what it takes from its command line, and what it lets pass only with the key."""

from __future__ import annotations

import socket
import threading

import pytest

from edt_runner.rsh import client, wire
from edt_runner.rsh.wire import Kind, WireError


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
            sock.settimeout(10)
            try:
                wire.prove(sock, key, server=server)
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
            wire.prove(ours, "key", server=False)
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
