"""Nodes that have networks of their own, and a router between them that can be told to drop what two of them say.

Network namespaces: needs root, or what root may. Nothing is reset: packets just do not arrive.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

VARIABLE = "TEST_NETNS"
"""In a spec's environment: the namespace in which the nursery starts that supervisor."""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def why_not() -> str:
    """Why there can be no such networks here; empty: there can."""
    try:
        with Networks(["a"]):
            return ""
    except FileNotFoundError:
        return "there is no `ip` command"
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not allowed: {error.stderr.strip()}"


def enter(environ: Mapping[str, str]) -> None:
    """This process, which has one thread, goes into the namespace that ``environ`` names, if it does."""
    name = environ.get(VARIABLE)
    if name is None:
        return
    with Path(f"/run/netns/{name}").open() as place:
        if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), 0):
            raise OSError(ctypes.get_errno(), f"setns {name}")


class Networks:
    """One namespace a node, each connected to the router only. A context manager."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._prefix = f"edt{os.getpid()}"
        self._places = {node: index for index, node in enumerate(nodes)}
        self._router = f"{self._prefix}-router"
        self._cut: set[tuple[str, str]] = set()

    def __enter__(self) -> Networks:
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def name(self, node: str) -> str:
        return f"{self._prefix}-{node}"

    def address(self, node: str) -> str:
        return f"10.231.{self._places[node]}.2"

    def environ(self, node: str) -> dict[str, str]:
        """For a spec to that node. Nobody resolves names there, so that shall not take long."""
        return {VARIABLE: self.name(node), "GLOO_SOCKET_IFNAME": "", "RES_OPTIONS": "timeout:1 attempts:1"}

    def cut(self, one: str, other: str) -> None:
        """Nothing that one says reaches the other any more."""
        for source, target in ((one, other), (other, one)):
            self._rule("add", source, target)
            self._cut.add((source, target))

    def heal(self) -> None:
        for source, target in self._cut:
            self._rule("del", source, target)
        self._cut.clear()

    def _rule(self, action: str, source: str, target: str) -> None:
        words = ("from", self.address(source), "to", self.address(target), "blackhole")
        _ip("-n", self._router, "rule", action, *words)

    def _build(self) -> None:
        _ip("netns", "add", self._router)
        for node, place in self._places.items():
            name, gateway = self.name(node), f"10.231.{place}.1"
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
            peer = ("peer", "name", f"to-{node}", "netns", self._router)
            _ip("-n", name, "link", "add", "net0", "type", "veth", *peer)
            _ip("-n", name, "addr", "add", f"{self.address(node)}/30", "dev", "net0")
            _ip("-n", self._router, "addr", "add", f"{gateway}/30", "dev", f"to-{node}")
            _ip("-n", name, "link", "set", "net0", "up")
            _ip("-n", self._router, "link", "set", f"to-{node}", "up")
            _ip("-n", name, "route", "add", "default", "via", gateway)
        _ip("netns", "exec", self._router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")

    def _remove(self) -> None:
        for name in (*map(self.name, self._places), self._router):
            with contextlib.suppress(subprocess.CalledProcessError, FileNotFoundError):
                _ip("netns", "del", name)
