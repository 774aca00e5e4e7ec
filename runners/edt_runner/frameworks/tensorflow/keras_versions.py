"""Which version of Keras a model belongs to."""

from __future__ import annotations

from typing import Any

from edt_runner.frameworks.tensorflow.keras2_version import Keras2
from edt_runner.frameworks.tensorflow.keras3_version import Keras3
from edt_runner.frameworks.tensorflow.keras_version import KerasVersion


def keras_version_of(model: Any) -> KerasVersion:
    """Import the version of Keras that ``model`` belongs to.

    Raises:
        UsageError: Keras does not compute with TensorFlow here.
    """
    is_keras2 = any(kind.__module__.partition(".")[0] == "tf_keras" for kind in type(model).__mro__)
    return Keras2() if is_keras2 else Keras3()
