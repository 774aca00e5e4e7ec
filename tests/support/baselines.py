"""Undisturbed trainings: what one engine alone ends with, which others must equal. Each is trained once a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from edt_contract.attempt import AttemptSpec
from support.nursery import Nursery
from support.training import Elastic, spec_for


class Baselines:
    """Trainings by script, arguments, framework and whatever else their specs differ in.

    Args:
        nursery: starts them.
        folder: makes a folder that outlives the session's tests.
    """

    def __init__(self, nursery: Nursery, folder: Callable[[], Path]) -> None:
        self._nursery, self._folder = nursery, folder
        self._found: dict[tuple[str, ...], tuple[Elastic, dict[str, Any]]] = {}

    def training(self, script: str, *arguments: object, **changes: Any) -> Elastic:
        """The training itself, which has ended: its reports, logs and files."""
        return self._of(script, arguments, changes)[0]

    def digest(self, script: str, *arguments: object, **changes: Any) -> str:
        """SHA-256 over parameters, buffers and optimizer state at its end."""
        return str(self._of(script, arguments, changes)[1]["digest"])

    def _of(
        self, script: str, arguments: tuple[object, ...], changes: dict[str, Any]
    ) -> tuple[Elastic, dict[str, Any]]:
        key = (script, *map(str, arguments), *(f"{name}={changes[name]}" for name in sorted(changes)))
        if key not in self._found:
            spec: AttemptSpec = spec_for(self._folder(), script, *arguments, **changes)
            with Elastic(spec, self._nursery.start) as training:
                training.settle([1])
                end = training.finish()
            assert end["kind"] == "finished", end
            self._found[key] = training, end
        return self._found[key]
