"""Where one engine sits in one generation, and what is given to the loop to work with. Room: runners; data only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edt_runner.engine.adapter import Adapter, Group, Loader, Plane
from edt_runner.engine.comparing import Comparing
from edt_runner.engine.hooks import Hooks
from edt_runner.engine.link import Link
from edt_runner.engine.record import Recorder
from edt_runner.engine.schedule import Schedule, Tick, TickKind
from edt_runner.engine.snapshot import Snapshots
from edt_runner.engine.telemetry import Telemetry
from edt_runner.engine.widths import Widths


@dataclass(frozen=True)
class Settings:
    """What train() was called with, as far as the loop is concerned. Equal in all processes of a job."""

    schedule: Schedule
    seed: int
    exact: bool
    checkpoint_freq: int
    """The user's own files every so many epochs; 0: only the final ones."""
    model_dir: Path
    widths: Widths
    """Of a tick that so many engines share."""


@dataclass
class Hands:
    """What the loop works with."""

    adapter: Adapter
    plane: Plane
    loader: Loader
    link: Link
    recorder: Recorder
    snapshots: Snapshots
    comparing: Comparing
    worker_log: Callable[[TickKind, dict[str, float], int, int, int], None] | None = None
    """(kind, this engine's values, iteration, epoch, workers) to the user's worker logger."""
    hooks: Hooks | None = None
    """Of the user's callbacks, where there are some."""
    observe_step: Callable[[Tick, int, int, bool], None] | None = None
    """Before each try of a step: (tick, engines that share it, micro-batches of this engine, it leads)."""
    restore: Callable[[int], Mapping[str, Any]] | None = None
    """Makes the newest checkpoint of this position or before the state, and removes those after it; returns what
    belongs to the state besides the adapter's. Raises CheckpointError where there is none."""
    telemetry: Telemetry = field(init=False)

    def __post_init__(self) -> None:
        self.telemetry = Telemetry(self.link, self.adapter.values)


@dataclass(frozen=True)
class Seat:
    """A generation as one of its engines has it."""

    generation: int
    members: tuple[str, ...]
    """In rank order."""
    group: Group
    name: str
    """Of this engine."""

    @property
    def leads(self) -> bool:
        """Whether this engine tells of the training and writes its files."""
        return self.members[0] == self.name
