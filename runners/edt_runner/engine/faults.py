"""Faults that an engine makes on purpose, so that tests see whether they are noticed."""

from __future__ import annotations

from typing import Any

from edt_runner import environment
from edt_runner.errors import UsageError

_TAKES = "'drop:STEP', 'raise:STEP', 'flip:STEP:ENGINE' or 'flips:STEP:ENGINE'"


class Faults:
    """The faults of one engine, as ``EDT_FAULT`` asks for them. STEP is a number of committed training steps.

    ``drop:STEP``: the engine that has micro-batch 0 skips it at that training step. ``raise:STEP``: the engine raises
    RuntimeError, as user code would. ``flip:STEP:ENGINE``: in its first try of that step, or of the next one where no
    step begins there, the engine flips one bit in the local of each micro-batch that it computes.
    ``flips:STEP:ENGINE``: it does so from that step on, always.

    Args:
        engine: name of this engine.

    Raises:
        UsageError: EDT_FAULT has another form.
    """

    def __init__(self, engine: str) -> None:
        self._kind, self._step, self._engine, self._tried = "", -1, engine, False
        fault = environment.fault()
        if fault is None:
            return
        self._kind, *rest = fault.split(":")
        if len(rest) != {"drop": 1, "raise": 1, "flip": 2, "flips": 2}.get(self._kind) or not rest[0].isdigit():
            raise UsageError(f"EDT_FAULT: got {fault!r}, takes {_TAKES}")
        self._step = int(rest[0])
        if len(rest) == 2 and rest[1] != engine:
            self._kind = ""

    def drops(self, training_step: int, micro_batch: int) -> bool:
        """Return whether this micro-batch should be skipped.

        Raises:
            RuntimeError: EDT_FAULT asks for it at this step.
        """
        if micro_batch != 0 or training_step != self._step or self._kind not in ("drop", "raise"):
            return False
        if self._kind == "raise":
            raise RuntimeError(f"EDT_FAULT: raised at step {training_step}, as EDT_FAULT says")
        return True

    def flips(self, training_step: int) -> bool:
        """Return whether a bit of this step's locals should be flipped."""
        if self._kind == "flips":
            return training_step >= self._step
        return self._kind == "flip" and training_step >= self._step and not self._tried

    def tried(self, training_step: int) -> None:
        """A try of a training step has ended."""
        self._tried = self._tried or training_step >= self._step


def flip(local: Any) -> None:
    """Flip one bit of the first number of a torch tensor, in its upper half."""
    number = local[:1].cpu().numpy()
    number.view("uint8")[number.itemsize // 2] ^= 1
    local[:1] = local.new_tensor(number)
