"""Sums of loss and metrics over the epoch so far. Part of what a step commits. Room: runners; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edt_runner.engine.schedule import TickKind


class Tally:
    """Running sums [count, loss, metrics …] of the current epoch's training and validation."""

    def __init__(self, names: Sequence[str], data: Mapping[str, Any] | None = None) -> None:
        self.names = tuple(names)
        width = 2 + len(self.names)
        self._sums = {kind: [0.0] * width for kind in TickKind}
        for kind in TickKind:
            stored = (data or {}).get(kind.value)
            if stored and len(stored) == width:
                self._sums[kind] = [float(value) for value in stored]

    def add(self, kind: TickKind, sums: Sequence[float]) -> None:
        self._sums[kind] = [old + new for old, new in zip(self._sums[kind], sums, strict=True)]

    def reset(self, kind: TickKind) -> None:
        self._sums[kind] = [0.0] * len(self._sums[kind])

    def means(self, kind: TickKind) -> dict[str, float]:
        """Means over the samples counted so far, by name."""
        return means(self.names, self._sums[kind])

    def to_json_object(self) -> dict[str, list[float]]:
        return {kind.value: list(sums) for kind, sums in self._sums.items()}


def means(names: Sequence[str], sums: Sequence[float]) -> dict[str, float]:
    """{"loss": …, name: …} from [count, loss sum, metric sums …]."""
    count = sums[0] or 1.0
    return dict(zip(("loss", *names), (value / count for value in sums[1:]), strict=True))
