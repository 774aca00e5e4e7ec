"""What a node's agent says and is told. Room: api."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from edt_api.schemas.base import Shown, Told


class SlotOffer(Told):
    """One slot as its agent registers it."""

    slot: Annotated[str, Field(min_length=1, max_length=64)]
    device: Annotated[str, Field(min_length=1, max_length=256)] = "cpu"
    label: Annotated[str, Field(max_length=256)] = ""


class NodeOffer(Told):
    """A node that registers. Its credential is the join token."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    host: Annotated[str, Field(min_length=1, max_length=255)]
    cores: Annotated[int, Field(ge=1, le=65536)]
    boot_id: Annotated[str, Field(min_length=1, max_length=64)]
    incarnation: Annotated[str, Field(min_length=1, max_length=64)]
    slots: Annotated[list[SlotOffer], Field(max_length=1024)]
    launcher: Annotated[str, Field(pattern=r"^[a-z-]{1,32}$")] = "process"
    """In what it runs jobs: ``process``, ``docker`` or ``docker-fixed``, whose containers keep the GPUs they began
    with."""
    alone: bool = False
    """Its engines and those of other nodes cannot reach each other: its containers have a network of their own."""


class Registered(Shown):
    """What a node gets for registering."""

    node: str
    token: str
    """The node's own credential from now on; an earlier one of this name has ended."""
    queue: str
    """Celery queue on which it is rung."""
    broker_url: str | None
    """None: nobody rings, ask by long poll."""


class Assignments(Shown):
    """What a node should be running: ``edt_runner.contract.Assignment`` objects as JSON."""

    version: int
    assignments: list[dict[str, Any]]
    images: list[str] = Field(default_factory=list)
    """Container images that it should have ready before a job needs them."""


class PulledIn(Told):
    """What became of an image that a node was asked for."""

    image: Annotated[str, Field(min_length=1, max_length=255)]
    error: Annotated[str, Field(max_length=4096)] = ""
    """Why the node cannot get it; "": it is there."""


class ReportIn(Told):
    """``edt_runner.contract.Report`` with its types looked at."""

    job: Annotated[str, Field(min_length=1, max_length=64)]
    fence: Annotated[int, Field(ge=1, le=2**31 - 1)]
    node: Annotated[str, Field(min_length=1, max_length=63)]
    seq: Annotated[int, Field(ge=1, le=2**62)]
    kind: Annotated[str, Field(min_length=1, max_length=64)]
    time: Annotated[float, Field(allow_inf_nan=False)]
    body: dict[str, Any] = Field(default_factory=dict)


class Acked(Shown):
    """How far the reports of each attempt are taken: ``{"edt-7/2": 41}``."""

    acked: dict[str, int]


class SlotSample(Told):
    """How busy one slot was since the sample before."""

    slot: Annotated[str, Field(min_length=1, max_length=64)]
    utilisation: Annotated[float, Field(ge=0, le=1)]
    memory_bytes: Annotated[int, Field(ge=0, lt=1 << 62)] | None = None
    memory_total_bytes: Annotated[int, Field(ge=0, lt=1 << 62)] | None = None
    power_watts: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    temperature_c: Annotated[float, Field(allow_inf_nan=False)] | None = None


class UsageIn(Told):
    """How busy a node's slots were; its time is that of its arrival."""

    slots: Annotated[list[SlotSample], Field(max_length=1024)]
