"""Nodes, their slots, and how busy these are. Room: api."""

from __future__ import annotations

from edt_api.schemas.base import Page, Shown


class Slot(Shown):
    """One slot of a node, and who holds it."""

    slot: str
    device: str
    label: str
    exec_id: str | None
    """None: free."""
    busy: bool
    leaving: bool
    """Asked back, its process not yet seen gone."""
    owner: str | None = None
    """Whose job holds it; told to that user, and to admins."""
    utilisation: float | None = None
    """0 to 1, of late; None: not known, here and below."""
    memory_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    temperature_c: float | None = None


class Node(Shown):
    """One node."""

    name: str
    host: str
    cores: int
    health: str
    """``up``, ``cordoned``, ``draining`` or ``lost``."""
    health_since: float | None = None
    """None: not known."""
    launcher: str = "process"
    """In what its jobs run: ``process`` or ``docker``."""
    registered_at: float
    seen_at: float
    lease_age_seconds: float = 0.0
    """For how long it has not been heard from, at the moment of this answer."""
    slots: list[Slot]


class NodePage(Page[Node]):
    """Nodes, in the order in which they first came."""


class SlotUsage(Shown):
    """How busy a slot was, in columns of one length, oldest first."""

    time: list[float]
    utilisation: list[float]
    """0 to 1."""
    memory_bytes: list[int | None]
    power_watts: list[float | None]
    temperature_c: list[float | None]


class NodeUsage(Shown):
    """How busy a node's slots were."""

    now: float
    since: float
    until: float
    slots: dict[str, SlotUsage]
