"""What the environment chooses: the framework, the devices, a fault; and the figures of the trainings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edt_demo.exits import DemoFailed, ExitCode

SLOTS = 4
MICRO_BATCHES = 4
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
    """Where the figure and the trained models go."""


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


EXAMPLES = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Framework:
    """A framework and its example script."""

    name: str
    """What FRAMEWORK takes."""
    subject: str
    """What the figure says is trained."""
    submitted_as: str
    """WMLA's name for it."""
    script: Path
    """A folder with ``main.py``."""
    model: str
    """The file, of those that a job saves, that holds the trained weights."""


_PYTORCH = Framework(
    "pytorch",
    "scikit-learn digits",
    "edtPyTorch",
    EXAMPLES / "digits",
    "train/model_epoch_final.pth",
)
_TENSORFLOW = Framework(
    "tensorflow",
    "scikit-learn digits with Keras",
    "edtTensorflow",
    EXAMPLES / "digits_tensorflow",
    "train/model_epoch_final.keras",
)
FRAMEWORKS = {each.name: each for each in (_PYTORCH, _TENSORFLOW)}
