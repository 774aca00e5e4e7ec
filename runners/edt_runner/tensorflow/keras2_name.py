"""``import keras`` where a job asked for Keras 2. Room: runners. Changes what this process may import.

TF_USE_LEGACY_KERAS is TensorFlow's: it makes ``tf.keras`` Keras 2, which lies on the disk as ``tf_keras``. Scripts of
that time also say ``import keras``, and would get Keras 3 beside it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


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
