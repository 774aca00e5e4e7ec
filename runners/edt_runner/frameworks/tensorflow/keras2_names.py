"""Gives a script that has asked for Keras 2 the names and arguments of Keras 2's whole time.

TF_USE_LEGACY_KERAS is a variable of TensorFlow: it makes ``tf.keras`` Keras 2, which is installed as ``tf_keras``.
Three things of older scripts need more than that:

* ``import keras`` would import Keras 3; here it means ``tf_keras``.
* Modules such as ``keras.layers.core`` and ``keras.utils.np_utils`` were public until Keras 2.4. What they held is in
  the packages above them, so their names mean those packages.
* ``Adam(lr=0.01, decay=1e-6)`` was correct until Keras 2.10. ``tf_keras`` ignores ``lr`` and refuses ``decay``, and
  names its ``legacy`` optimizers as the ones that take both. Here such a call makes the legacy optimizer.

This module imports no framework until it is asked to.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from edt_contract.keras2 import package_now

_SPELLINGS_OF_LR = frozenset({"lr", "decay"})


def is_older_module(name: str) -> bool:
    """Whether ``name`` was a public module of Keras 2 and is none of ``tf_keras``."""
    return _package_now(name) is not None


def call_it_keras() -> None:
    """From now on, ``keras`` is ``tf_keras``, with its older modules, in this process and in the processes it forks.

    Does nothing if ``keras`` has been imported already, because objects of it may be in use.
    """
    if "keras" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


def accept_lr() -> None:
    """From now on, an optimizer of ``tf_keras`` that is given ``lr`` or ``decay`` is made as its legacy version."""
    optimizers = importlib.import_module("tf_keras").optimizers
    older = {
        getattr(optimizers, name): kind
        for name, kind in vars(optimizers.legacy).items()
        if isinstance(kind, type) and name != "Optimizer"
    }

    def make(kind: type, *given: Any, **named: Any) -> Any:
        if kind in older and not _SPELLINGS_OF_LR.isdisjoint(named):
            return older[kind](*given, **named)  # its own __init__ has run, and Python calls no other one
        return object.__new__(kind)

    optimizers.Optimizer.__new__ = make


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root = fullname.partition(".")[0]
        if root not in ("keras", "tf_keras"):
            return None
        now = _package_now(fullname)
        if now is not None:
            return ModuleSpec(fullname, _Loader(now))
        if root == "tf_keras":
            return None
        if importlib.util.find_spec(_real(fullname)) is None:
            # Returning None would let other finders load a file from the folder of tf_keras a second time.
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return ModuleSpec(fullname, _Loader(_real(fullname)))


class _Loader(Loader):
    """Loads the module of another name, and leaves that module unchanged."""

    def __init__(self, real: str) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._real)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own  # importlib has replaced it by the alias's


def _package_now(name: str) -> str | None:
    """The package of ``tf_keras`` that has the names of an older module; None if ``name`` is no older module."""
    root, _, inner = name.partition(".")
    found = package_now(inner) if root in ("keras", "tf_keras") else None
    return f"tf_keras.{found}" if found is not None else None


def _real(name: str) -> str:
    return "tf_" + name
