"""Which generation of Keras a model is of. Room: runners; imports the one that it is."""

from __future__ import annotations

from typing import Any

from edt_runner.tensorflow.generation import Generation


def is_keras2(thing: Any) -> bool:
    """Whether a class of ``tf_keras`` is among its types. Imports nothing."""
    return any(kind.__module__.partition(".")[0] == "tf_keras" for kind in type(thing).__mro__)


def generation_of(model: Any) -> Generation:
    """Raises UsageError where Keras computes with another library than TensorFlow."""
    if is_keras2(model):
        from edt_runner.tensorflow.keras2 import Keras2

        return Keras2()
    from edt_runner.tensorflow.keras3 import Keras3

    return Keras3()
