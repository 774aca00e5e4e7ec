"""How far an accumulating optimizer is, as users and checkpoints see it. Room: runners; torch only for types."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from runai._arguments import usage, whole

if TYPE_CHECKING:
    from runai.ga.torch._accumulating import Accumulating


class Driver(Protocol):
    """Who takes a loop's steps in the optimizer's place; ``optimizer.runai.driver`` holds it."""

    def step(self, optimizer: Accumulating, closure: Any, samples: int | None) -> Any:
        """What ``optimizer.step(closure, samples=samples)`` does and returns. The micro-batch's gradients are in
        ``.grad``; ``optimizer.micro_step`` is what it would have done by itself."""


class State(dict[str, Any]):
    """``optimizer.runai``: micro-batches of one update (``steps``), and those since the beginning (``step``).

    A checkpoint has it at ``state_dict()["state"]["runai"]``. In a cycle under way, that also has the weighted sums of
    gradients by parameter (``gradients``) and their weight (``weight``).
    """

    driver: Driver | None = None

    def __init__(self, steps: int) -> None:
        super().__init__(steps=steps, step=0)

    @property
    def steps(self) -> int:
        return int(self["steps"])

    @steps.setter
    def steps(self, steps: int) -> None:
        """Between two cycles only. The number of updates so far stays what it is."""
        steps = whole("steps", steps)
        if self.within:
            raise usage("steps", steps, f"a change between two updates, not after {self.within} of {self.steps}")
        self["step"] = self.step // self.steps * steps
        self["steps"] = steps

    @property
    def step(self) -> int:
        return int(self["step"])

    @property
    def within(self) -> int:
        """Micro-batches of the cycle under way."""
        return self.step % self.steps

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        # As a class that torch.load(weights_only=True) knows everywhere, also where this package is not imported; its
        # attributes make .steps and .step work on what was loaded, too.
        return OrderedDict, (), {"steps": self.steps, "step": self.step}, None, iter(self.items())

    def __setstate__(self, attributes: Mapping[str, Any]) -> None:
        """Of the original's checkpoints, in which it is an object with these two attributes."""
        self.update(steps=attributes["steps"], step=attributes["step"])


State.__module__ = "runai.ga.torch.optim"  # where the original's checkpoints say that it is
