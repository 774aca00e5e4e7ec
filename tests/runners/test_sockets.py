"""Of this process's connections those of a data plane are found and shut; a user's own are left alone."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from edt_runner.comm import connections
from edt_runner.comm.plane import DataPlane
from support.waiting import until

Pair = tuple[socket.socket, socket.socket]


@contextmanager
def connected(address: str, through: str | None = None) -> Iterator[Pair]:
    """A connection to a server of its own at ``host:port``: (the server's end, the client's). ``through``: the host as
    the client names it."""
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server((host, int(port))))
        client = stack.enter_context(socket.create_connection((through or host, server.getsockname()[1])))
        end, _ = server.accept()
        stack.enter_context(end)
        yield end, client


def is_open(connection: socket.socket) -> bool:
    """Nothing has come, and more may."""
    with contextlib.suppress(BlockingIOError):
        return bool(connection.recv(1, socket.MSG_DONTWAIT))
    return True


@pytest.fixture
def plane() -> Iterator[DataPlane]:
    plane = DataPlane("127.0.0.1", torch.float32, "lo")
    yield plane
    plane.close()


def elsewhere(address: str) -> str:
    """The same port on another address of this machine."""
    return f"127.0.0.2:{address.rpartition(':')[2]}"


def test_a_users_connection_from_the_planes_port_on_another_address_stays_open(plane: DataPlane) -> None:
    with connected(elsewhere(plane.addresses[0])) as (end, client):
        plane.shut([])
        assert is_open(end) and is_open(client)


def test_a_users_connection_to_a_peers_port_on_another_host_stays_open(plane: DataPlane) -> None:
    with connected("127.0.0.2:0") as (end, client):
        plane.shut([f"127.0.0.3:{end.getsockname()[1]}"])
        assert is_open(end) and is_open(client)


@pytest.mark.parametrize("through", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_a_connection_to_a_peer_is_shut_however_its_address_is_written(plane: DataPlane, through: str) -> None:
    with connected("127.0.0.1:0", through) as (end, client):
        plane.shut([f"127.0.0.1:{end.getsockname()[1]}"])
        assert not is_open(client)


def test_a_connection_that_came_in_at_an_own_address_is_shut() -> None:
    with connected("127.0.0.1:0") as (end, client):
        assert connections.shut(own=[f"127.0.0.1:{end.getsockname()[1]}"], peers=[]) == 1
        assert not is_open(end) and is_open(client)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_gloos_connections_are_shut_whoever_has_called_and_without_the_others_addresses(rank: int) -> None:
    """A user's own connection to the other plane's port stays open."""
    planes = [DataPlane("127.0.0.1", torch.float32, "lo") for _ in range(3)]
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with ThreadPoolExecutor(3) as pool:
        address = f"127.0.0.1:{store.port}"
        builds = [pool.submit(each.build, address, "test", number, 3) for number, each in enumerate(planes)]
        groups = [build.result() for build in builds]
    host, _, port = planes[rank - 1].addresses[0].rpartition(":")
    with socket.create_connection((host, int(port))) as own:
        number = connections.shut(own=planes[rank].addresses, peers=[])
        still_open = is_open(own)
    for group, each in zip(groups, planes, strict=True):
        group.close()
        each.close()
    assert number == 2 and still_open


def test_whoever_reads_on_a_connection_that_is_shut_is_woken(plane: DataPlane) -> None:
    with connected("127.0.0.1:0") as (end, client):
        read: list[bytes] = []
        reader = threading.Thread(target=lambda: read.append(client.recv(1)))
        reader.start()
        plane.shut([f"127.0.0.1:{end.getsockname()[1]}"])
        until(lambda: read == [b""], 20)
        reader.join()
