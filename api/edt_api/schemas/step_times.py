"""Shapes of where the time of a job's steps goes."""

from __future__ import annotations

from pydantic import Field

from edt_api.schemas.jobs import Output


class PhaseSeconds(Output):
    """Seconds a step in each phase. An engine is in one phase at a time, so the sum is the duration of a step."""

    data: float
    """The engine waits for the batch of a micro-batch."""
    forward: float
    """Forward pass and loss."""
    backward: float
    """Backward pass, without ``copies``."""
    copies: float
    """Gradients are scaled, copied and added up in the engine."""
    reduce: float
    """Sums are exchanged with other engines, without ``wait``."""
    wait: float
    """Another engine has not sent yet what this engine needs."""
    apply: float
    """The optimizer's step."""
    other: float
    """Everything else, such as callbacks and checkpoints."""


class MeanTimes(Output):
    """Means over several engines."""

    micro_batches: float
    """Micro-batches a step."""
    seconds: PhaseSeconds
    efficiency: float
    """The share of the time that is forward and backward pass, 0 to 1."""


class EngineTimes(MeanTimes):
    """Means of one engine."""

    rank: int
    allocation: int
    """Number of its allocation, by which logs and events name the engine."""
    node: str | None
    slot: str | None
    slower: float | None
    """By which share of the others' median it takes longer for a micro-batch, if it has done so for some time: 0.4 is
    40 %. None: it has not.
    """


class StepTimes(Output):
    """Where the time of a job's training steps goes: means over some seconds, by the newest report."""

    time: float | None = None
    """When it was reported, on the node's clock; None: it has not been."""
    steps: int = 0
    """How many steps these are."""
    step_seconds: float | None = None
    """How long a step takes."""
    efficiency: float | None = None
    """The share of all engines' time that is forward and backward pass, 0 to 1."""
    engines: list[EngineTimes] = Field(default_factory=list)
    """In rank order."""
    others: int = 0
    """How many engines are not among ``engines``."""
    mean_of_others: MeanTimes | None = None
    waited_for: int | None = None
    """Allocation of the engine that is busy for longest, so that the others wait for it; None: none waits."""
    waited_seconds: float = 0.0
    """By how much it is busy for longer than the median of the others, a step."""
    remarks: list[str] = Field(default_factory=list)
    """A sentence about each engine that has been slower than the others for some time."""
