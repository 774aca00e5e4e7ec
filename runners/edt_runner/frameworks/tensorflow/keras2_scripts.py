"""Scripts that are written for Keras 2: a hint for one that runs with Keras 3, and ``keras`` for one that asked for 2.

Imports no framework. What Keras 3 says of a name that it no longer has, it also says of a name that never was: such an
error counts where Keras 2, which lies beside it as ``tf_keras``, has the name. The rest are Keras 3's own messages
about what Keras 2 took.

TF_USE_LEGACY_KERAS is TensorFlow's: it makes ``tf.keras`` Keras 2, which lies on the disk as ``tf_keras``. Scripts of
that time also say ``import keras``, and would get Keras 3 beside it; ``call_it_keras`` gives them Keras 2.
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
"""How names of Keras's public modules begin; ``tf.keras`` shows itself by each of the three."""
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_NO_NAME = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")

_OF_MODELS_AND_LAYERS = frozenset({
    "fit_generator", "evaluate_generator", "predict_generator", "add_update", "get_input_at", "get_output_at",
    "get_input_shape_at", "get_output_shape_at", "input_shape", "output_shape", "input_mask", "output_mask",
    "inbound_nodes", "outbound_nodes", "reset_states", "state_updates", "updates", "metrics_tensors",
})  # fmt: skip
"""Attributes of Keras 2's objects that those of Keras 3 lack; optimizers lack ``lr``."""

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
    """One sentence, where Keras 2 would have taken what Keras 3 raised this for."""
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


def call_it_keras() -> None:
    """From now on ``keras`` is ``tf_keras``, in this process and those it forks. Does nothing where ``keras`` has been
    imported: its objects are about."""
    if "keras" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "keras":
            return None
        if importlib.util.find_spec(_real(fullname)) is None:
            # Not None: others would look for a file in the folder of tf_keras, and load it a second time.
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return ModuleSpec(fullname, _Loader())


class _Loader(Loader):
    """Gives the module of the other name, and leaves it as it was."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(_real(spec.name))
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own  # importlib has put the alias's there


def _real(name: str) -> str:
    return "tf_" + name
