"""Makes the Services of a test's Kubernetes reachable, as kube-proxy would: it listens at the address of each Service
and passes connections on to pods that are ready, in turn.

``python -m support.service_proxy KUBECONFIG`` does so until it is killed. Needs root: the addresses become this
machine's own.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx

_LOOK_SECONDS = 0.3
_CONNECT_SECONDS = 2.0
_CHUNK = 1 << 16

Place = tuple[str, int]


def routes(services: Mapping[str, Any], endpoints: Mapping[str, Any]) -> dict[Place, list[Place]]:
    """Cluster address and port of each Service to those of its pods that are ready, from what the API server lists."""
    ready: dict[tuple[str, str, str], list[Place]] = {}
    for each in endpoints["items"]:
        for subset in each.get("subsets") or ():
            for port in subset.get("ports") or ():
                key = each["metadata"]["namespace"], each["metadata"]["name"], port.get("name", "")
                ready.setdefault(key, []).extend((one["ip"], port["port"]) for one in subset.get("addresses") or ())
    found = {}
    for each in services["items"]:
        if each["spec"].get("clusterIP") in {None, "", "None"}:
            continue
        for port in each["spec"]["ports"]:
            key = each["metadata"]["namespace"], each["metadata"]["name"], port.get("name", "")
            found[each["spec"]["clusterIP"], port["port"]] = ready.get(key, [])
    return found


class ServiceProxy:
    """Keeps one listener for each port of each Service."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._http = httpx.AsyncClient(
            base_url=cluster["server"],
            headers={"Authorization": f"Bearer {user['token']}"},
            verify=False,  # noqa: S501  the test's own server, on this machine
            trust_env=False,
            timeout=5,
        )
        self._pods: dict[Place, list[Place]] = {}
        self._turn: dict[Place, Iterator[int]] = {}
        self._servers: list[asyncio.Server] = []
        self._serving: set[asyncio.Task[None] | None] = set()  # asyncio itself keeps no reference to them

    async def run(self) -> None:
        while True:
            with suppress(httpx.HTTPError, KeyError, ValueError):  # the API server is away: the old routes stay
                services = (await self._http.get("/api/v1/services")).json()
                self._pods.update(routes(services, (await self._http.get("/api/v1/endpoints")).json()))
            for place in self._pods.keys() - self._turn.keys():
                await _own(place[0])
                self._turn[place] = itertools.count()
                self._servers.append(await asyncio.start_server(partial(self._serve, place), *place))
            await asyncio.sleep(_LOOK_SECONDS)

    async def _serve(self, to: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._serving.add(task)
        with suppress(OSError, TimeoutError):
            if pods := self._pods[to]:
                place = pods[next(self._turn[to]) % len(pods)]
                inner = await asyncio.wait_for(asyncio.open_connection(*place), _CONNECT_SECONDS)
                await asyncio.gather(_pass_on(reader, inner[1]), _pass_on(inner[0], writer))
        writer.close()
        self._serving.discard(task)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        return
    writer.close()


async def _own(address: str) -> None:
    """Make an address one of this machine."""
    command = ("ip", "route", "replace", "local", f"{address}/32", "dev", "lo")
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0


def forget(network: str) -> None:
    """Take this machine's addresses of a network such as ``198.18.20.0/24`` away again."""
    subprocess.run(["ip", "route", "flush", "table", "local", "root", network], check=True)


if __name__ == "__main__":
    asyncio.run(ServiceProxy(Path(sys.argv[1])).run())
