"""A node: its health, and the lease by which a silent one is noticed. Room: scheduler. Pure; clocks are arguments.

Two things are known of a node and kept apart: what its administrator wants of it (``Intent``, stored) and
whether it is heard from (``lost``, observed). ``health`` folds them into what the planner reads.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


class Intent(enum.StrEnum):
    """What the administrator wants of a node."""

    OPEN = "open"  # take work
    CORDONED = "cordoned"  # nothing new; what runs there stays
    DRAINING = "draining"  # nothing new, and what runs there leaves


class Health(enum.StrEnum):
    """What the planner may do with a node."""

    UP = "up"  # new engines may start there
    CORDONED = "cordoned"  # engines stay, none start
    DRAINING = "draining"  # engines leave, none start
    LOST = "lost"  # not heard from within its lease: its engines are gone for planning


def health(intent: Intent, *, lost: bool) -> Health:
    """A lost node is lost, whatever is wanted of it."""
    if lost:
        return Health.LOST
    return Health.UP if intent is Intent.OPEN else Health(intent.value)


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
