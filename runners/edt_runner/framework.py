"""What the runner asks of a framework before there is a model, and the way to it by name. Room: runners.

Importing this costs nothing, and a framework is only imported when its methods are called: a job in PyTorch never
imports TensorFlow, and a supervisor sets what libraries read at import before any is there. torch itself is in every
process that trains, since it carries the bytes of both.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol, cast

from edt_runner.errors import RunnerError

NAMES = ("pytorch", "tensorflow")


class Framework(Protocol):
    """One framework, as a process needs it before there is a model."""

    name: str

    def warm(self) -> None:
        """Import what children will need, so that they share it. Executes no op and starts no thread: what does
        could not be forked."""

    def enter(self, threads: int, seed: int) -> None:
        """Before user code, in a freshly forked process: threads, seeds, whatever makes results repeatable."""

    def seed(self, seed: int) -> None:
        """Seed the framework's global generators."""

    def gpus(self) -> int:
        """GPUs that this process sees and the framework can use."""

    def explain(self, error: BaseException) -> str | None:
        """One sentence on what ended a user's script, where its own words do not say what would help."""

    def computing(self, *, on_device: bool) -> dict[str, Any]:
        """What this process computes with, as far as it decides the bits of a result; see ``edt_runner.computing``.
        After user code has set what it wants to. ``on_device``: on its first GPU, if it sees one."""

    def versions(self) -> dict[str, str]:
        """By package, for a checkpoint's manifest."""


def by_name(name: str) -> Framework:
    """Raises RunnerError for a framework that this release does not run."""
    if name not in NAMES:
        raise RunnerError(f"framework: got {name!r}, takes {' or '.join(map(repr, NAMES))}")
    return cast(Framework, importlib.import_module(f"edt_runner.{name}.framework").FRAMEWORK)
