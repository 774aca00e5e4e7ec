"""A node's slots, the lease after which a silent node is lost, and the threads of an engine. Pure; clocks are
arguments.

A node's ``Intent`` and ``Health`` are in ``states``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


class Device(enum.StrEnum):
    """What an engine computes on. All slots of a node are of one kind."""

    CPU = "cpu"
    GPU = "gpu"

    @classmethod
    def of_slot(cls, device: str) -> Device:
        """The kind of a slot whose device is ``cpu`` or a GPU's UUID."""
        return cls.CPU if device == cls.CPU else cls.GPU


@dataclass(frozen=True)
class SlotSpec:
    """One slot as its agent registers it."""

    slot: str
    """Id on the node, ``0``, ``1`` …"""
    device: str = "cpu"
    """``cpu``, or the UUID of a GPU or a MIG device."""
    label: str = ""
    """A text for people, such as ``CPU slot`` or ``NVIDIA H200``."""
    model: str | None = None
    """Name of the GPU; None for a CPU stand-in, here and below."""
    memory_total_bytes: int | None = None
    """All memory of the GPU or MIG device; None: unknown."""
    compute_capability: str | None = None
    """Such as ``9.0``; None: unknown."""
    mig_profile: str | None = None
    """Such as ``1g.10gb``; None: it is no MIG device."""


@dataclass
class Leases:
    """Measures how long nodes are silent, by the observer's own monotonic clock. Clocks of two machines are never
    compared.

    A node's counter changes whenever the node is heard from. An observer that sees a node for the first time, or that
    was just started, gives the node a whole lease before it takes the node for lost.
    """

    lease_seconds: float
    _last: dict[int, tuple[int, float]] = field(default_factory=dict)

    def observe(self, counters: Mapping[int, int], now: float) -> frozenset[int]:
        """Take the counters as they were read at ``now`` (seconds of a monotonic clock).

        Returns:
            The ids of the nodes whose lease has run out.
        """
        for node in self._last.keys() - counters.keys():
            del self._last[node]
        for node, counter in counters.items():
            if node not in self._last or self._last[node][0] != counter:
                self._last[node] = (counter, now)
        return frozenset(node for node, (_, since) in self._last.items() if now - since > self.lease_seconds)


def threads_per_engine(nodes: Iterable[tuple[int, int]]) -> int:
    """Threads of one micro-batch: the smallest ``cores // slots`` of the nodes, at least 1.

    This number is fixed when a job is submitted, because the number of threads is part of a result's identity.

    Args:
        nodes: (cores, slots) of each node.
    """
    return max(1, min((cores // slots for cores, slots in nodes if slots > 0), default=1))
