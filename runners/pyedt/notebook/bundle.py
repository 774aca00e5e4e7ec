"""In the kernel: writes the folder that a job gets: the pickled training, its main.py, and the notebook's own modules.

Classes and functions that cells define go by value (cloudpickle), installed ones by their names. The whole training is
one pickle, so that an optimizer still holds the very parameters of its model. Modules that lie beside the notebook are
copied.
"""

from __future__ import annotations

import copyreg
import io
import json
import mmap
import os
import shutil
import sys
import types
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import cloudpickle  # type: ignore[import-untyped]

from edt_runner.errors import UsageError
from pyedt.notebook import received

Call = tuple[tuple[Any, ...], Mapping[str, Any]]
"""The arguments of a call: by position, and by name."""
_MAIN = '''"""The training of a notebook, in training.pkl beside this file. pyedt wrote both."""

from pyedt.notebook.received import train

train(__file__)
'''
_KERAS = ("keras", "tf_keras")
_NOT_COPIED = shutil.ignore_patterns("__pycache__", ".*", "*.pyc")
_WHAT_CANNOT = (
    "What cannot be sent has to be made inside the function that uses it, such as an open file or a connection inside "
    "datasets_function"
)


def write(folder: Path, model: Any, constructor: Call, train: Call, *, secrets: Collection[str]) -> None:
    """Write the folder of a job.

    Args:
        folder: an empty folder.
        model: the model among the arguments.
        constructor, train: the arguments of ``FabricModel`` and of its ``train()``.
        secrets: tokens that no file of the folder may contain.

    Raises:
        UsageError: something cannot be pickled, a parameter lies on a GPU, or a secret is in the pickle or a module.
    """
    (folder / received.MAIN).write_text(_MAIN)
    manifest = {
        "format": received.FORMAT,
        "python": list(sys.version_info[:2]),
        "packages": {package: received.version_of(package) for package in packages_of(model)},
    }
    (folder / received.MANIFEST).write_text(json.dumps(manifest))
    _copy_modules(folder / received.MODULES)
    training = {
        "constructor": constructor,
        "train": train,
        "hooks": list(_hooks(model)),
        "random": received.random_streams(),
    }
    path = folder / received.PICKLE
    with path.open("wb") as file:
        try:
            pickler = _Pickler(file)
            pickler.dump(_keras_objects(model))
            pickler.dump(training)
            pickler.dump(pickler.named)
        except OSError:
            raise
        except Exception as error:
            raise UsageError(f"{_culprit(constructor, train)}: cannot be sent ({error}). {_WHAT_CANNOT}") from error
    _refuse_secrets(folder, secrets)


def packages_of(model: Any) -> list[str]:
    """Return the packages whose major versions must be the same in kernel and job: those of the model's framework.

    Raises:
        UsageError: it is no model of PyTorch or Keras.
    """
    for package in _KERAS:
        loaded = sys.modules.get(package)
        if loaded is not None and isinstance(model, getattr(loaded, "Model", ())):
            return [package]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return ["torch"]
    raise UsageError(
        f"model: got {type(model).__module__}.{type(model).__qualname__}, takes a torch.nn.Module or a keras.Model"
    )


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles a training. ``named`` then has the notebook's own classes and functions that were met, by their names."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self.named: dict[str, Any] = {}

    def reducer_override(self, obj: Any) -> Any:
        if obj is os.environ:  # by value it would be all of the kernel's variables, with tokens among them
            return getattr, (os, "environ")
        if isinstance(obj, type | types.FunctionType) and obj.__module__ == "__main__":
            name = obj.__qualname__
            if getattr(sys.modules["__main__"], name, None) is obj:
                self.named[name] = obj
        elif (reduced := _torch_reduced(obj)) is not None or (reduced := _keras2_reduced(obj)) is not None:
            return reduced
        return super().reducer_override(obj)


def _torch_reduced(obj: Any) -> Any:
    """Return how an optimizer or a scheduler of PyTorch is pickled; None: it is neither.

    An optimizer's own way leaves out the hooks that were registered with it.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    optimizer = torch.optim.Optimizer
    if isinstance(obj, optimizer) and type(obj).__getstate__ is optimizer.__getstate__:
        kept = {name: value for name, value in vars(obj).items() if name != "step"}  # which a scheduler wraps
        return copyreg.__newobj__, (type(obj),), kept  # type: ignore[attr-defined]
    if isinstance(obj, torch.optim.lr_scheduler.LRScheduler):
        make, arguments, state = obj.__reduce_ex__(4)[:3]
        return make, arguments, state, None, None, received.restore_scheduler
    return None


def _keras2_reduced(obj: Any) -> Any:
    """Return how an optimizer, a metric or a model without weights of Keras 2 is pickled, by its configuration; None:
    it is none of these. Their variables cannot be pickled."""
    keras = sys.modules.get("tf_keras")
    if keras is None or not isinstance(obj, keras.optimizers.Optimizer | keras.metrics.Metric | keras.Model):
        return None
    unbuilt = not isinstance(obj, keras.Model) or not obj.built
    return (type(obj).from_config, (obj.get_config(),)) if unbuilt else None


def _hooks(model: Any) -> Iterator[tuple[Any, list[Any], list[Any]]]:
    """Yield each parameter of a PyTorch model that has hooks, with those on its gradient and those after it. Pickling
    leaves them out.

    Raises:
        UsageError: a parameter or buffer is not in the processor's memory.
    """
    if packages_of(model) != ["torch"]:
        return
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.device.type != "cpu":
            raise UsageError(
                f"model: {name} is on {tensor.device}, takes a model on the processor: call model.cpu(). Each engine "
                "moves it to its own GPU"
            )
    for _, parameter in model.named_parameters():
        before = list((parameter._backward_hooks or {}).values())
        after = list((getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values())
        if before or after:
            yield parameter, before, after


def _keras_objects(model: Any) -> dict[str, dict[str, Any]]:
    """Return package -> name -> class or function that Keras needs to build the model again: those that the notebook
    has registered, its own subclasses of Keras's classes, and its functions that the model uses by their names."""
    (package,) = packages_of(model)
    if package not in _KERAS:
        return {}
    keras, notebook = sys.modules[package], vars(sys.modules["__main__"])
    found = dict(keras.utils.get_custom_objects())
    for name, value in notebook.items():
        if isinstance(value, type) and value.__module__ == "__main__" and any(map(_is_kerass, value.__mro__)):
            found[name] = value
    try:
        used = set(_function_names(keras.saving.serialize_keras_object(model)))
    except Exception:  # Keras cannot describe the model; pickling it says why
        used = set()
    found.update((name, notebook[name]) for name in used & notebook.keys() if callable(notebook[name]))
    return {package: found}


def _is_kerass(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _KERAS


def _function_names(config: Any) -> Iterator[str]:
    """Yield the names of functions in a configuration of Keras."""
    if isinstance(config, Mapping):
        if config.get("class_name") == "function" and isinstance(config.get("config"), str):
            yield config["config"]
        for value in config.values():
            yield from _function_names(value)
    elif isinstance(config, list | tuple):
        for value in config:
            yield from _function_names(value)


def _copy_modules(folder: Path) -> None:
    """Copy the modules and packages that the kernel has imported from its own folder, where a notebook's lie."""
    folder.mkdir()
    here = Path.cwd()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." in name or file is None or name in ("__main__", "__mp_main__"):
            continue
        path = Path(file)
        if path.parent == here and path.suffix == ".py":
            shutil.copy(path, folder / path.name)
        elif path.name == "__init__.py" and path.parent.parent == here:
            shutil.copytree(path.parent, folder / path.parent.name, ignore=_not_copied)


def _not_copied(folder: str, names: list[str]) -> set[str]:
    """Return what of a package is not copied. A link could lead to anything that the user has."""
    return _NOT_COPIED(folder, names) | {name for name in names if Path(folder, name).is_symlink()}


def _culprit(constructor: Call, train: Call) -> str:
    """Return the name of the first argument that cannot be pickled by itself."""
    for arguments, named in (constructor, train):
        for name, value in [*enumerate(arguments), *named.items()]:
            try:
                _Pickler(io.BytesIO()).dump(value)
            except Exception:
                is_named = isinstance(name, str)
                return str(name) if is_named else getattr(value, "__name__", type(value).__name__)
    return "the training"


def _refuse_secrets(folder: Path, secrets: Collection[str]) -> None:
    """Look for tokens in the files of a folder.

    Raises:
        UsageError: there is one.
    """
    for path in folder.rglob("*"):
        if not path.is_file() or not path.stat().st_size or not _has_any(path, secrets):
            continue
        if path == folder / received.PICKLE:
            raise UsageError(
                "the training: your token of the platform is in a variable that it uses, so it would be sent along; "
                "keep it out of what the model, datasets_function and callbacks refer to"
            )
        raise UsageError(
            f"{path.relative_to(folder)}: your token of the platform is in this file beside the notebook, so it would "
            "be sent along; keep it out of the modules and packages that the notebook imports"
        )


def _has_any(path: Path, secrets: Collection[str]) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return any(secret and content.find(secret.encode()) >= 0 for secret in secrets)
