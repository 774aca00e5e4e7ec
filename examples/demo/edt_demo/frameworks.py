"""What is trained, in either framework: the same pictures, the same promises. Room: examples; standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Framework:
    """One of them."""

    name: str
    """What FRAMEWORK takes."""
    subject: str
    """What the picture says is trained."""
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
