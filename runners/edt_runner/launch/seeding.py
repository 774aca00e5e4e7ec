"""The seeds of a process without a platform. Importing this module imports no framework."""

from __future__ import annotations

import os
import sys

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
