"""A node's slots, the lease by which a silent node is noticed, and an engine's threads. Pure; clocks are arguments.

A node's ``Intent`` and ``Health`` are in ``states``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SlotSpec:
    """One slot as its agent registers it."""

    slot: str
    """Id on the node, ``0``, ``1`` …"""
    device: str = "cpu"
    """``cpu`` or a GPU's UUID."""
    label: str = ""
    """For people: ``CPU slot``, ``NVIDIA H200``."""


@dataclass
class Leases:
    """Counts silence on the observer's own monotonic clock; two machines' clocks are never compared.

    A node's counter changes whenever it is heard from. Who observes a node for the first time, or has just
    been started, gives it a whole lease before declaring anything.
    """

    lease_seconds: float
    _last: dict[int, tuple[int, float]] = field(default_factory=dict)

    def observe(self, counters: Mapping[int, int], now: float) -> frozenset[int]:
        """Take the counters as read now; the ids of the nodes whose lease has run out."""
        for node in self._last.keys() - counters.keys():
            del self._last[node]
        for node, counter in counters.items():
            if node not in self._last or self._last[node][0] != counter:
                self._last[node] = (counter, now)
        return frozenset(node for node, (_, since) in self._last.items() if now - since > self.lease_seconds)


def threads_per_engine(nodes: Iterable[tuple[int, int]]) -> int:
    """Threads of one micro-batch: the least of cores // slots over (cores, slots) of the nodes, at least 1.

    Fixed at submit, since the number of threads is part of a result's identity.
    """
    return max(1, min((cores // slots for cores, slots in nodes if slots > 0), default=1))
