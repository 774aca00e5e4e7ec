"""What a person can tell the demo, by environment. Room: examples; standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edt_demo.exits import DemoFailed, ExitCode
from edt_demo.frameworks import FRAMEWORKS, Framework

SLOTS = 4
LOGICAL_WORKERS = 4
"""E of the digits training."""
LEAST_ACCURACY = 0.95
SEED = 20
FAULT_STEP = 400
"""The step at which DEMO_FAULT=drop has an engine skip its micro-batch; counted from 0."""


@dataclass(frozen=True)
class Settings:
    """One run of the demo."""

    framework: Framework
    devices: str
    """``cpu``, or ``auto``: GPUs where there are enough of them."""
    fault: bool
    """Have an engine skip a micro-batch, to see that it is noticed."""
    output: Path
    """Where the picture and what was trained go."""


def from_environment(environ: Mapping[str, str], folder: Path) -> Settings:
    """FRAMEWORK=pytorch|tensorflow, DEVICES=auto|cpu, DEMO_FAULT=drop; an empty value is none. The output goes below
    ``folder``."""
    framework = environ.get("FRAMEWORK") or "pytorch"
    if framework not in FRAMEWORKS:
        raise DemoFailed(ExitCode.USAGE, f"FRAMEWORK: got {framework!r}, takes 'pytorch' or 'tensorflow'")
    devices = environ.get("DEVICES") or "cpu"
    if devices not in ("auto", "cpu"):
        raise DemoFailed(ExitCode.USAGE, f"DEVICES: got {devices!r}, takes 'auto' or 'cpu'")
    fault = environ.get("DEMO_FAULT") or ""
    if fault not in ("", "drop"):
        raise DemoFailed(ExitCode.USAGE, f"DEMO_FAULT: got {fault!r}, takes 'drop' or nothing")
    return Settings(FRAMEWORKS[framework], devices, bool(fault), folder / "demo-output")
