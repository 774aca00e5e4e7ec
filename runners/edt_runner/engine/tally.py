"""Sums of loss and metrics over the epoch so far. Part of what a step commits. Room: runners; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edt_runner.engine.schedule import TickKind


class Tally:
    """Running sums of the current epoch's training and validation.

    Args:
        width: numbers in each.
        data: of ``to_json_object``; None: nothing is counted yet.
    """

    def __init__(self, width: int, data: Mapping[str, Any] | None = None) -> None:
        self._sums = {kind: [0.0] * width for kind in TickKind}
        for kind in TickKind:
            stored = (data or {}).get(kind.value)
            if stored and len(stored) == width:
                self._sums[kind] = [float(value) for value in stored]

    def add(self, kind: TickKind, sums: Sequence[float]) -> None:
        self._sums[kind] = [old + new for old, new in zip(self._sums[kind], sums, strict=True)]

    def reset(self, kind: TickKind) -> None:
        self._sums[kind] = [0.0] * len(self._sums[kind])

    def of(self, kind: TickKind) -> list[float]:
        """The sums so far."""
        return list(self._sums[kind])

    def to_json_object(self) -> dict[str, list[float]]:
        return {kind.value: list(sums) for kind, sums in self._sums.items()}
