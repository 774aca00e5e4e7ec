"""However busy all other threads are, nodes are heard and credentials are looked at."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from anyio import to_thread

from edt_api import concurrency
from edt_api.main import ROUTERS
from edt_scheduler.operations import fleet
from edt_scheduler.platform import Platform
from edt_scheduler.store.database import READING
from support.served_api import JOIN_TOKEN, ServedApi, served

ASKING = (concurrency.lookups, concurrency.agents, concurrency.uploads, concurrency.files, concurrency.bulk)
"""Pools whose threads ask the database."""
OFFER = {"name": "n", "host": "127.0.0.1", "cores": 2, "boot_id": "boot", "incarnation": "life", "slots": []}
NODES = {  # what a node says, and how it is answered
    ("GET", "/api/v1/nodes/node-a/assignments"): {},
    ("POST", "/api/v1/nodes/node-a/reports"): {"json": []},
    ("POST", "/api/v1/nodes/node-a/usage"): {"json": {"slots": []}},
    ("POST", "/api/v1/nodes/node-a/images"): {"json": {"image": "python:3.11", "error": ""}},
    ("POST", "/api/v1/nodes/node-a/leaving"): {"json": {"why": "idle", "if_idle": True}},
}


@contextmanager
def busy(api: ServedApi, *pools: concurrency.Pool | concurrency.Processes) -> Iterator[None]:
    """The server's shared threads are all taken, and all that these pools have."""

    async def take() -> Callable[[], None]:
        taken = []
        for limiter in (to_thread.current_default_thread_limiter(), *(pool.limiter for pool in pools)):
            for _ in range(int(limiter.total_tokens)):
                holder = object()
                limiter.acquire_on_behalf_of_nowait(holder)
                taken.append((limiter, holder))

        def give_back() -> None:
            for limiter, holder in taken:
                limiter.release_on_behalf_of(holder)

        return give_back

    give_back = asyncio.run_coroutine_threadsafe(take(), api.loop).result(10)
    try:
        yield
    finally:
        api.loop.call_soon_threadsafe(give_back)


def test_nodes_are_heard_while_everything_else_is_busy(api: ServedApi) -> None:
    node = api.client(token=api.register())
    joining = api.client(token=JOIN_TOKEN)
    with busy(
        api, concurrency.passwords, concurrency.unpacking, concurrency.uploads, concurrency.files, concurrency.bulk
    ):
        assert joining.post("/api/v1/nodes", json=OFFER).status_code == 201
        for (method, path), body in NODES.items():
            assert node.request(method, path, **body).is_success, path


def test_a_person_waits_while_the_shared_threads_are_busy_and_is_served_then(api: ServedApi) -> None:
    """So the test above has filled them indeed."""
    client = api.client("ana")
    with busy(api), pytest.raises(httpx.ReadTimeout):
        client.get("/api/v1/nodes", timeout=httpx.Timeout(10, read=0.3))
    assert client.get("/api/v1/nodes").status_code == 200


def test_what_is_asked_here_is_all_that_nodes_say() -> None:
    routes = {
        (method, route.path.replace("{name}", "node-a"))
        for router in ROUTERS
        for route in router.routes
        for method in route.methods
        if route.endpoint.__module__ == "edt_api.routes.agents"
    }
    assert routes == {*NODES, ("POST", "/api/v1/nodes")}


def test_a_thread_finds_a_connection_at_once() -> None:
    assert sum(pool.most for pool in ASKING) + concurrency.SHARED <= READING["pool_size"] + READING["max_overflow"]


def test_the_shared_threads_are_as_many_as_are_counted_on(api: ServedApi) -> None:
    async def total() -> float:
        return to_thread.current_default_thread_limiter().total_tokens

    assert asyncio.run_coroutine_threadsafe(total(), api.loop).result(10) == concurrency.SHARED


def test_an_api_that_ends_waits_for_the_thread_that_records_its_beat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection would stay open."""
    at_work, given_back = threading.Event(), threading.Event()

    def slow(platform: Platform) -> None:
        with platform.database.snapshot():
            at_work.set()
            time.sleep(0.3)
        given_back.set()

    monkeypatch.setattr(fleet, "beat", slow)
    with served(tmp_path / "home"):
        assert at_work.wait(10)
    assert given_back.is_set()
