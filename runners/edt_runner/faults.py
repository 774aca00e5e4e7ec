"""Faults committed on purpose, to see that they are noticed. Room: runners; standard library only.

EDT_FAULT=drop:STEP    the engine that has logical worker 0 skips that micro-batch at training step STEP
EDT_FAULT=raise:STEP   it raises there, as user code would
"""

from __future__ import annotations

from edt_runner import environment
from edt_runner.errors import UsageError


def drops(step: int, worker: int) -> bool:
    """Whether the micro-batch of ``worker`` at training step ``step`` is to be skipped. May raise, if told so."""
    fault = environment.fault()
    if fault is None or worker != 0:
        return False
    kind, _, where = fault.partition(":")
    if kind not in ("drop", "raise") or not where.isdigit():
        raise UsageError(f"EDT_FAULT: got {fault!r}, takes 'drop:STEP' or 'raise:STEP'")
    if int(where) != step:
        return False
    if kind == "raise":
        raise RuntimeError(f"EDT_FAULT: raised at step {step}, as told")
    return True
