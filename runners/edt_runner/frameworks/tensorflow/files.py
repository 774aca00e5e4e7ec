"""Writes the files of a Keras model that a user downloads."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from edt_runner.checkpoints.user_files import draft_of
from edt_runner.frameworks.tensorflow.keras_version import KerasVersion

_CANNOT_WRITE = (NotImplementedError, TypeError, ValueError)
"""Errors that Keras raises for a model that it cannot describe."""


def save(keras: KerasVersion, model: Any, folder: Path, name: str, *, serving: bool) -> None:
    """Write the files that a user downloads: ``name``.keras, and for ``serving`` the SavedModel folder ``name``.

    Each is written completely or not at all. If Keras cannot describe the model, the training must not be lost: its
    weights are written instead, and the reason is printed on standard error.
    """
    path = folder / f"{name}.keras"
    try:
        with draft_of(path) as draft:
            model.save(draft)
    except _CANNOT_WRITE as error:
        weights = folder / f"{name}.weights.h5"
        _print_error(f"{path.name} cannot be written, {weights.name} is instead", error)
        with draft_of(weights) as draft:
            model.save_weights(draft)
    if not serving:
        return
    try:
        with draft_of(folder / name) as draft, _quiet():
            keras.export(model, str(draft))
    except _CANNOT_WRITE as error:
        _print_error(f"the SavedModel {name} cannot be written", error)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide messages in which TensorFlow logs the path of the draft, and how it has renamed its own names."""
    logger = tf.get_logger()
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _print_error(what: str, error: Exception) -> None:
    why = " ".join(str(error).split()).partition(". ")[0]
    print(f"edt: {what}: {why}", file=sys.stderr, flush=True)
