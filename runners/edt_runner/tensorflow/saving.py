"""The files that a user takes away: ``.keras`` and SavedModel. Room: runners; writes under the user's folder."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from edt_runner.tensorflow.generation import Generation
from edt_runner.user_files import draft_of


def save(keras: Generation, model: Any, folder: Path, name: str, *, serving: bool) -> None:
    """``name``.keras, and for ``serving`` the SavedModel folder ``name``, each whole or not there.

    A model that Keras cannot describe is no reason to lose a training: its weights are written instead, and why is
    said on standard error.
    """
    path = folder / f"{name}.keras"
    try:
        with draft_of(path) as draft:
            model.save(draft)
    except (NotImplementedError, TypeError, ValueError) as error:
        weights = folder / f"{name}.weights.h5"
        _tell(f"{path.name} cannot be written, {weights.name} is instead: {_first_sentence(error)}")
        with draft_of(weights) as draft:
            model.save_weights(draft)
    if serving:
        _try(lambda: _export(keras, model, folder / name), f"the SavedModel {name} cannot be written")


def _export(keras: Generation, model: Any, place: Path) -> None:
    with draft_of(place) as draft, _quiet():
        keras.export(model, str(draft))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """TensorFlow tells where it has written what is about to be renamed, and what its own names become."""
    logger = tf.get_logger()
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _try(write: Callable[[], None], otherwise: str) -> None:
    try:
        write()
    except (NotImplementedError, TypeError, ValueError) as error:
        _tell(f"{otherwise}: {_first_sentence(error)}")


def _first_sentence(error: Exception) -> str:
    return " ".join(str(error).split()).partition(". ")[0]


def _tell(text: str) -> None:
    print(f"edt: {text}", file=sys.stderr, flush=True)
