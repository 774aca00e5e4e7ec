"""The FabricModel of notebooks, with the arguments of ``fabric_model.FabricModel``."""

from __future__ import annotations

import functools
import inspect
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fabric_model
from edt_runner.errors import UsageError
from pyedt.notebook import bundle, platform, weights
from pyedt.notebook.display import Progress, say
from pyedt.notebook.local import LocalJob

_Real = fabric_model.FabricModel


class FabricModel:
    """A model with its data, loss and optimizer, which a notebook has trained elsewhere.

    The arguments are those of ``fabric_model.FabricModel``. Each ``train()`` is a job of its own.

    Attributes:
        model: the model; after ``train()`` with the trained weights. The optimizer stays as it was.
        job: id of the newest job; None: there was none.
    """

    __signature__ = inspect.signature(_Real)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = _bound("FabricModel()", _Real.__init__, args, kwargs)
        self.model = given["model"]
        bundle.packages_of(self.model)  # refuses what is no model
        self._constructor: bundle.Call = (args, kwargs)
        self.job: str | None = None
        self._local: LocalJob | None = None

    @functools.wraps(_Real.train)
    def train(self, *args: Any, **kwargs: Any) -> None:
        size = platform.Size.of(_bound("train()", _Real.train, args, kwargs))
        place = platform.find()
        say(place.sentence)
        self.job = self._local = None
        package = bundle.packages_of(self.model)[0]
        name = _notebook()
        with tempfile.TemporaryDirectory(prefix="edt-notebook-") as temporary:
            code = Path(temporary) / name
            code.mkdir()
            bundle.write(code, self.model, self._constructor, (args, kwargs), secrets=place.secrets)
            if place.api is None:
                local = LocalJob(name)
                local.train(code, Progress())
                self.job, self._local = local.id, local
                weights.load(local.id, self.model, local.files)
                return
            self.job = platform.train(code, package, size, Progress())
            with platform.files_of(self.job, Path(temporary)) as files:
                weights.load(self.job, self.model, files)

    def download(self, out_dir: str | os.PathLike[str] = ".") -> Path:
        """Write the trained model's files to ``<out_dir>/<job>.zip``, and print where that is.

        Args:
            out_dir: the folder that the file is written to; it is made if there is none.

        Returns:
            The file.

        Raises:
            UsageError: no training has finished.
            NoPlatform: the platform does not give them.
        """
        if self.job is None:
            raise UsageError("download(): called before train(), takes a trained model")
        target = Path(out_dir) / f"{self.job}.zip"
        target.parent.mkdir(parents=True, exist_ok=True)
        if self._local is None:
            platform.fetch(self.job, target)
        else:
            shutil.make_archive(str(target.with_suffix("")), "zip", self._local.files)
        say(f"Save model:  {target}")
        return target


def _bound(call: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return name -> value of a call's arguments.

    Raises:
        TypeError: the function does not take them.
    """
    try:
        return dict(inspect.signature(function).bind(None, *args, **kwargs).arguments)
    except TypeError as error:
        raise TypeError(f"{call}: {error}") from None


def _notebook() -> str:
    """Return a name for the job: that of the notebook, if its server says it."""
    name = Path(os.environ.get("JPY_SESSION_NAME", "")).stem
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:64].strip("-") or "notebook"
