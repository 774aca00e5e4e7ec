"""Whether a script failed for the reason alone that it is written for Keras 2. Room: runners. Imports no framework.

What Keras 3 says of a name that it no longer has, it also says of a name that never was: such an error counts where
Keras 2, which lies beside it as ``tf_keras``, has the name. The rest are Keras 3's own words for what Keras 2 took.
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

HINT = "this script is written for Keras 2, which it gets when it is submitted with --msd-env TF_USE_LEGACY_KERAS=1"

_MODULE = re.compile(r"(?:tensorflow\.|keras\._tf_keras\.)?keras(?:\.|$)")
"""How names of Keras's public modules begin; ``tf.keras`` shows itself by each of the three."""
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_NO_NAME = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")

_OF_MODELS_AND_LAYERS = frozenset({
    "fit_generator", "evaluate_generator", "predict_generator", "add_update", "get_input_at", "get_output_at",
    "get_input_shape_at", "get_output_shape_at", "input_shape", "output_shape", "input_mask", "output_mask",
    "inbound_nodes", "outbound_nodes", "reset_states", "state_updates", "updates", "metrics_tensors",
})  # fmt: skip
_OF_OPTIMIZERS = frozenset({"lr"})
"""Attributes of Keras 2's objects that those of Keras 3 lack."""

_WORDS = (
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
)
_SAID = re.compile("|".join(_WORDS), re.DOTALL)


def hint(error: BaseException) -> str | None:
    """One sentence, where Keras 2 would have taken what Keras 3 raised this for."""
    if not isinstance(error, (ImportError, AttributeError, TypeError, ValueError, NotImplementedError)):
        return None
    return HINT if _SAID.search(str(error)) or _is_of_keras2(error) else None


def _is_of_keras2(error: BaseException) -> bool:
    text = str(error)
    if found := _NO_MODULE.fullmatch(text):
        return _is_module(found[1])
    if found := _NO_NAME.match(text):
        return _has(found[2], found[1])
    if not isinstance(error, AttributeError) or error.name is None:
        return False
    if found := re.match(r"module '([\w.]+)' has no attribute", text):
        return _has(found[1], error.name)
    kinds = {kind.__name__ for kind in type(error.obj).__mro__ if _MODULE.match(kind.__module__)}
    if "Metric" in kinds:
        return error.name == "reset_states"
    if "BaseOptimizer" in kinds:
        return error.name in _OF_OPTIMIZERS
    return bool(kinds & {"Layer", "Operation"}) and error.name in _OF_MODELS_AND_LAYERS


def _is_module(name: str) -> bool:
    folder = _folder(name)
    return folder is not None and folder.is_dir()


def _has(module: str, name: str) -> bool:
    """Whether Keras 2's public module of that name offers ``name``."""
    folder = _folder(module)
    if folder is None:
        return False
    try:
        text = (folder / "__init__.py").read_text()
    except OSError:
        return False
    return re.search(rf"\bimport (?:\w+ as )?{name}$", text, re.MULTILINE) is not None


def _folder(module: str) -> Path | None:
    """Where Keras 2 keeps what a module of Keras is called by users; None: it is none, or there is no Keras 2."""
    beginning, root = _MODULE.match(module), _keras2()
    if beginning is None or root is None:
        return None
    return root.joinpath(*filter(None, module[beginning.end() :].split(".")))


@cache
def _keras2() -> Path | None:
    spec = importlib.util.find_spec("tf_keras")
    return Path(spec.origin).parent / "api" / "_v2" / "keras" if spec is not None and spec.origin else None
