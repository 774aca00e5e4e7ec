"""In the job: loads what a notebook has sent, and trains it. The main.py that ``bundle`` writes calls ``train``.

Driver and engines run this, each for itself, as they would run a user's script. It looks at the versions first: a
pickle of another Python may be loaded without an error and crash later.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import random
import sys
from collections.abc import Mapping
from functools import wraps
from importlib import metadata
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np

from edt_contract import processes
from edt_runner import context
from edt_runner.errors import UsageError

FORMAT = 1
"""Number of the format of the folder that a notebook sends."""
MAIN, PICKLE, MANIFEST, MODULES = "main.py", "training.pkl", "notebook.json", "modules"
"""Names in that folder: the script, the pickled training, the versions of the kernel's software, and the folder with
the modules that lie beside the notebook."""
KERNEL_VARIABLE = "EDT_NOTEBOOK_KERNEL"
"""pid of the kernel that has started this process; unset in a job of a platform."""


def train(main: str) -> None:
    """Train what the notebook has sent. In an engine the call never returns.

    Args:
        main: path of the script; the other files lie beside it.

    Raises:
        UsageError: this process cannot load what was sent, or an argument of the training is wrong.
    """
    kernel = os.environ.get(KERNEL_VARIABLE)
    if kernel is not None and context.current() is None:
        processes.die_with(int(kernel))
    folder = Path(main).resolve().parent
    manifest = json.loads((folder / MANIFEST).read_text())
    check(manifest)
    for package in manifest["packages"]:
        importlib.import_module(package)
    from fabric_model import FabricModel  # after the framework, which it seeds

    sys.path.insert(0, str(folder / MODULES))
    training = load(folder / PICKLE)
    _continue_random_streams(training["random"])
    arguments, named = training["constructor"]
    model = FabricModel(*arguments, **named)
    arguments, named = training["train"]
    model.train(*arguments, **named)


def check(manifest: Mapping[str, Any]) -> None:
    """Check that this process can load what a kernel has pickled.

    Args:
        manifest: the content of ``MANIFEST``: ``format``, ``python`` as [major, minor], and ``packages``, name ->
            version.

    Raises:
        UsageError: it has another Python, or another major version of a package, or none of it.
    """
    if manifest["format"] != FORMAT:
        raise UsageError(
            f"the notebook's OpenEDT writes format {manifest['format']} and the job's reads {FORMAT}: install the same "
            "version of openedt where the kernel runs and where jobs run"
        )
    here = list(sys.version_info[:2])
    if manifest["python"] != here:
        kernel, job = (".".join(map(str, version)) for version in (manifest["python"], here))
        raise UsageError(
            f"the notebook's kernel has Python {kernel} and the job has Python {job}: a pickle of one cannot be loaded "
            f"by the other. Use a kernel with Python {job}"
        )
    for package, version in manifest["packages"].items():
        found = version_of(package)
        if found is None:
            raise UsageError(f"the notebook's kernel has {package} {version} and the job has none")
        if found.split(".")[0] != version.split(".")[0]:
            raise UsageError(
                f"the notebook's kernel has {package} {version} and the job has {package} {found}: their models cannot "
                "be exchanged. Use a kernel with the job's version"
            )


def version_of(package: str) -> str | None:
    """Return the installed version of a package; None: it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def load(path: Path) -> dict[str, Any]:
    """Load the pickled training, and give the script's module the names that the notebook's classes and functions have,
    so that they are found by them as a script's own are.

    Raises:
        UsageError: it cannot be loaded; the message says what is missing.
    """
    with path.open("rb") as file:
        unpickler = pickle.Unpickler(file)  # noqa: S301  made by the user whose job this is
        try:
            for package, objects in unpickler.load().items():
                importlib.import_module(package).utils.get_custom_objects().update(objects)
            training: dict[str, Any] = unpickler.load()
            script = sys.modules["__main__"]
            for name, value in unpickler.load().items():
                setattr(script, name, value)
        except Exception as error:
            raise UsageError(
                f"the job cannot load what the notebook has sent ({type(error).__name__}: {error}). Modules that lie "
                "beside the notebook and that it has imported go along; all others must be installed where jobs run"
            ) from error
    for parameter, before, after in training["hooks"]:
        for hook in before:
            parameter.register_hook(hook)
        for hook in after:
            parameter.register_post_accumulate_grad_hook(hook)
    return training


def restore_scheduler(scheduler: Any, state: Mapping[str, Any]) -> None:
    """Give a scheduler of PyTorch its attributes. Its optimizer notes its steps again, as since the scheduler was made:
    a scheduler warns if its optimizer does not."""
    vars(scheduler).update(state)
    optimizer = getattr(scheduler, "optimizer", None)
    if optimizer is None or hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return
    step, found = optimizer.step.__func__, ref(optimizer)

    @wraps(step)
    def noted(*arguments: Any, **named: Any) -> Any:
        own: Any = found()
        own._opt_called = True
        return step(own, *arguments, **named)

    noted._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = noted


def random_streams() -> dict[str, Any]:
    """Return the states of the global random generators of Python, NumPy and PyTorch in this process."""
    torch = sys.modules.get("torch")
    streams = {"python": random.getstate(), "numpy": np.random.get_state()}
    return streams if torch is None else {**streams, "torch": torch.get_rng_state().numpy()}


def _continue_random_streams(streams: Mapping[str, Any]) -> None:
    """Go on with the random numbers where the notebook's cell was, as a script would."""
    random.setstate(streams["python"])
    np.random.set_state(streams["numpy"])
    if "torch" in streams:
        import torch

        torch.set_rng_state(torch.from_numpy(streams["torch"]))
