"""Support for scripts that are written for Keras 2.

``hint`` recognizes errors of a script that needs Keras 2 but runs with Keras 3. ``call_it_keras`` makes ``keras`` mean
Keras 2 for a script that has asked for it. This module imports no framework.

Keras 3 raises the same error for a name that it no longer has and for a name that never existed. Such an error counts
if Keras 2, which is installed beside it as ``tf_keras``, has the name. All other recognized errors are Keras 3's own
messages about arguments that Keras 2 accepted.

TF_USE_LEGACY_KERAS is a variable of TensorFlow: it makes ``tf.keras`` Keras 2, which is installed as ``tf_keras``.
Scripts of that time may also contain ``import keras``, which would import Keras 3; ``call_it_keras`` gives them Keras
2.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

HINT = "this script is written for Keras 2, which it gets when it is submitted with --msd-env TF_USE_LEGACY_KERAS=1"

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
)
_MESSAGE_OF_KERAS3 = re.compile("|".join(_MESSAGES_OF_KERAS3), re.DOTALL)


def hint(error: BaseException) -> str | None:
    """One sentence for the user, if Keras 3 raised ``error`` for something that Keras 2 accepts; else None."""
    if not isinstance(error, (ImportError, AttributeError, TypeError, ValueError, NotImplementedError)):
        return None
    return HINT if _MESSAGE_OF_KERAS3.search(str(error)) or _is_of_keras2(error) else None


def _is_of_keras2(error: BaseException) -> bool:
    text = str(error)
    if found := _NO_MODULE.fullmatch(text):
        folder = _folder(found[1])
        return folder is not None and folder.is_dir()
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


def call_it_keras() -> None:
    """From now on, ``keras`` is ``tf_keras`` in this process and in the processes that it forks.

    Does nothing if ``keras`` has been imported already, because objects of it may be in use.
    """
    if "keras" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "keras":
            return None
        if importlib.util.find_spec(_real(fullname)) is None:
            # Returning None would let other finders load a file from the folder of tf_keras a second time.
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return ModuleSpec(fullname, _Loader())


class _Loader(Loader):
    """Loads the module of the other name, and leaves that module unchanged."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(_real(spec.name))
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own  # importlib has replaced it by the alias's


def _real(name: str) -> str:
    return "tf_" + name
