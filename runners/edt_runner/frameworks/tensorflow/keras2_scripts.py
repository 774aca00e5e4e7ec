"""Recognizes errors of a script that is written for an older release, and says what would help it.

A script that needs Keras 2 may run with Keras 3. Keras 3 raises the same error for a name that it no longer has and for
a name that never existed. Such an error counts if Keras 2, which is installed beside it as ``tf_keras``, has the name.
All other recognized errors are Keras 3's own messages about arguments that Keras 2 accepted.

A script may also use TensorFlow 1's own names, or TensorFlow's private copy of Keras. Neither can be trained here. This
module imports no framework.
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

from edt_runner.frameworks.tensorflow.keras2_names import is_older_module

HINT = "this script is written for Keras 2, which it gets when it is submitted with --msd-env TF_USE_LEGACY_KERAS=1"

OF_TENSORFLOW_1 = "this script is written for TensorFlow 1, and this release runs TensorFlow 2: see tf_upgrade_v2"
OF_THE_PRIVATE_COPY = (
    "tensorflow.python.keras is a private copy inside TensorFlow; import the same names from tensorflow.keras"
)
_OF_TENSORFLOW_1 = frozenset({
    "ConfigProto", "GPUOptions", "Session", "InteractiveSession", "app", "contrib", "flags", "get_default_graph",
    "global_variables_initializer", "layers", "logging", "placeholder", "reset_default_graph", "set_random_seed",
    "get_variable", "variable_scope",
})  # fmt: skip
_PRIVATE_COPY = re.compile(r"\bgot tensorflow\.python\.keras\b")

_MODULE = re.compile(r"(?:tensorflow\.|keras\._tf_keras\.)?keras(?:\.|$)")
"""How names of Keras's public modules begin. ``tf.keras`` uses each of the three forms for itself."""
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_NO_NAME = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")

_OF_MODELS_AND_LAYERS = frozenset({
    "fit_generator", "evaluate_generator", "predict_generator", "add_update", "get_input_at", "get_output_at",
    "get_input_shape_at", "get_output_shape_at", "input_shape", "output_shape", "input_mask", "output_mask",
    "inbound_nodes", "outbound_nodes", "reset_states", "state_updates", "updates", "metrics_tensors",
})  # fmt: skip
"""Attributes that Keras 2's objects have and Keras 3's objects do not; Keras 3's optimizers also have no ``lr``."""

_MESSAGES_OF_KERAS3 = (
    r"is not supported in Keras 3",
    r"Argument\(s\) not recognized: \{.*'(lr|name_scope)':",  # optimizers
    r"Unrecognized keyword arguments passed to \w+: \{.*'(weights|fused|virtual_batch_size|adjustment)':",  # layers
    r"\bTensorFlowTrainer\.\w+\(\) got an unexpected keyword argument '(workers|max_queue_size|use_multiprocessing)'",
    r"\bModelCheckpoint\.__init__\(\) got an unexpected keyword argument 'period'",
    r"\bTensorBoard\.__init__\(\) got an unexpected keyword argument '(write_grads|batch_size)'",
    r"unexpected keyword argument 'use_legacy_optimizer'",
    r"A KerasTensor cannot be used as input to a TensorFlow function",
    r"The filename must end in `\.weights\.h5`",
    r"Invalid filepath extension for saving",
    r"The filepath provided must end in `\.keras`",
    r"Layer `add_(metric|update)\(\)` method is deprecated",
    r"`name` must be passed as a keyword argument",
    r"Argument `name` must be a string and cannot contain character `/`",
    r"L[12]\.__init__\(\) got an unexpected keyword argument 'l'",
    r"add_variable\(\) got multiple values for argument",
    r"Invalid value for argument `reduction`.*Received: reduction=auto",
    r"Argument `input_tensor` must be a KerasTensor",
    r"Invalid value for argument `aggregation`.*VariableAggregation",
    r"Paths are no longer accepted as the `fname` argument",  # load_data(path=…) of keras.datasets
)
_MESSAGE_OF_KERAS3 = re.compile("|".join(_MESSAGES_OF_KERAS3), re.DOTALL)


def hint(error: BaseException) -> str | None:
    """One sentence for the user, if ``error`` was raised for something that an older release accepts; else None."""
    if not isinstance(error, (ImportError, AttributeError, TypeError, ValueError, NotImplementedError)):
        return None
    if _of_tensorflow1(error):
        return OF_TENSORFLOW_1
    if _PRIVATE_COPY.search(str(error)):
        return OF_THE_PRIVATE_COPY
    return HINT if _MESSAGE_OF_KERAS3.search(str(error)) or _is_of_keras2(error) else None


def _of_tensorflow1(error: BaseException) -> bool:
    """Whether a name is missing that TensorFlow 1 had at its top level, or Keras 2 in its backend of that time."""
    text = str(error)
    if found := _NO_MODULE.fullmatch(text):
        return found[1].startswith("tensorflow.contrib")
    found = re.match(r"module '([\w.]+)' has no attribute '(\w+)'", text)
    if found is None or not isinstance(error, AttributeError):
        return False
    module, name = found.groups()
    return (module == "tensorflow" and name in _OF_TENSORFLOW_1) or (
        module.endswith("keras.backend") and name in ("set_session", "get_session", "tensorflow_backend")
    )


def _is_of_keras2(error: BaseException) -> bool:
    text = str(error)
    if found := _NO_MODULE.fullmatch(text):
        folder = _folder(found[1])
        return is_older_module(found[1]) or (folder is not None and folder.is_dir())
    if found := _NO_NAME.match(text):
        return is_older_module(f"{found[2]}.{found[1]}") or _has(found[2], found[1])
    if not isinstance(error, AttributeError) or error.name is None:
        return False
    if found := re.match(r"module '([\w.]+)' has no attribute", text):
        return _has(found[1], error.name)
    kinds = {kind.__name__ for kind in type(error.obj).__mro__ if _MODULE.match(kind.__module__)}
    if "Metric" in kinds:
        return error.name == "reset_states"
    if "BaseOptimizer" in kinds:
        return error.name == "lr"
    return bool(kinds & {"Layer", "Operation"}) and error.name in _OF_MODELS_AND_LAYERS


def _has(module: str, name: str) -> bool:
    """Whether Keras 2's public module ``module`` offers ``name``."""
    folder = _folder(module)
    if folder is None:
        return False
    try:
        text = (folder / "__init__.py").read_text()
    except OSError:
        return False
    return re.search(rf"\bimport (?:\w+ as )?{name}$", text, re.MULTILINE) is not None


def _folder(module: str) -> Path | None:
    """Keras 2's folder for a public module of Keras; None if the module is not Keras's, or Keras 2 is not installed."""
    beginning, root = _MODULE.match(module), _keras2()
    if beginning is None or root is None:
        return None
    return root.joinpath(*filter(None, module[beginning.end() :].split(".")))


@cache
def _keras2() -> Path | None:
    spec = importlib.util.find_spec("tf_keras")
    return Path(spec.origin).parent / "api" / "_v2" / "keras" if spec is not None and spec.origin else None
