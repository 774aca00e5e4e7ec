"""The seeds of a process without a platform. Importing this module imports no framework."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from edt_contract.frameworks import FRAMEWORKS
from edt_runner import context, environment, frameworks, seeds

_seeded: list[str] = []
"""The name of the module whose import has seeded this process."""


def seed_at_import(module: str) -> None:
    """Seed a plain process when a user imports ``module``, unless another module of ours has done it.

    Only the first import seeds. A later one may be hidden in a call, and would replace seeds that the user has set.
    """
    if not _seeded:
        _seeded.append(module)
        seed_plain_process()
        if context.current() is None and "torch" not in sys.modules:
            sys.meta_path.insert(0, _TorchIsSeeded())


def seed_plain_process() -> None:
    """Seed Python, NumPy and the frameworks in a process without a supervisor, and leave its GPU memory to engines.

    The seeds are those that a supervisor gives its children. Called when ``fabric_model`` is imported, before the user
    builds a model. Engines and driver then see the same data, and a run can be repeated. User code that sets its own
    seed runs later and takes effect. A framework that is not imported yet is not imported here; Keras draws the seeds
    of its layers from Python's generator.
    """
    if context.current() is not None:
        return
    # TensorFlow would reserve the whole first GPU for this process's model, but an engine must compute there.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    seed = seeds.process_seed(environment.seed())
    seeds.seed_python(seed)
    for framework in FRAMEWORKS.values():
        if framework.package in sys.modules:
            frameworks.by_name(framework.name).seed(seed)


class _TorchIsSeeded(MetaPathFinder):
    """Seeds torch as soon as the script has imported it: torch begins with another random seed in each process."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            frameworks.by_name("pytorch").seed(seeds.process_seed(environment.seed()))

        loader.exec_module = exec_module
        return spec
