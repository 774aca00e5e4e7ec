"""Writes the trained model as an ONNX file (``save_to_onnx``), and compares what the file computes with the model.

The driver does this when the training is over. It has the trained weights then, and all slots are given back. A module
of the framework (``frameworks.pytorch.onnx``, ``frameworks.tensorflow.onnx``) writes the file. Here onnxruntime runs it
on two batches of different sizes. The file is put in place if the outputs are the trained model's.

Whatever fails, the job does not: it ends as FINISHED, and one sentence in its log and in its message says why there is
no file.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import io
import logging
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch

from edt_contract.durable import DRAFT_PREFIX, sync
from edt_runner import context
from edt_runner.errors import RunnerError, UsageError
from edt_runner.frameworks.trainable import Samples, Trainable

Array = npt.NDArray[Any]

FILE = "model.onnx"
DATA = f"{FILE}.data"
"""The file beside ``FILE`` that has the weights of a model that is too large for one file."""
SIZES = (2, 3)
"""How many samples the two batches have on which the file is tried. A size of 1 or 0 would be a special case to
torch.export."""
_INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells."""
_BEGUN = f".{FILE}.begun"
"""A file with the number of processes that were killed while they wrote ``FILE``."""
_MOST_KILLED = 2
"""After so many processes that were killed, nobody tries again: the next one would run out of memory, too."""


@dataclass(frozen=True)
class Example:
    """One batch that the trained model has computed.

    Args:
        inputs: the batch, by the names of the file's inputs.
        outputs: what the model returned, by the names of the file's outputs.
        half: whether the model computes with numbers of 16 bits.
    """

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    half: bool = False


class Exporter(Protocol):
    """What a framework's module ``onnx`` has."""

    PACKAGES: Sequence[str]
    """Packages that must be installed, beside onnx and onnxruntime."""

    def export(self, trainable: Any, samples: Samples, folder: Path) -> list[Example]:
        """Write the trained model to ``folder`` / ``FILE``, and compute ``SIZES`` samples with it.

        The model and its weights are afterwards as they were before.

        Raises:
            RunnerError: the model cannot be written as ONNX. The message says why, in words that name the place in the
                user's code if it is known.
            Exception: the libraries raise errors of many kinds.
        """


def asked(**flags: object) -> str:
    """Return the name of the argument by which the user asks for an ONNX file; empty: there is none.

    Args:
        flags: name -> value of all arguments that do.

    Raises:
        UsageError: a value is neither True nor False.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise UsageError(f"{name}: got {value!r}, takes True or False")
    return next((name for name, value in flags.items() if value), "")


def missing(argument: str, framework: str) -> list[str]:
    """Say before the training which packages are missing, in at most one sentence.

    Args:
        argument: name of the user's argument; empty: the user wants no file.
        framework: name of the job's framework.
    """
    if not argument:
        return []
    found = _missing_packages(_exporter(framework))
    return [f"{argument}: {FILE} will not be written, because {_not_installed(found)}."] if found else []


def write(argument: str, trainable: Trainable, samples: Samples, folder: Path) -> None:
    """Write ``FILE``, and print what became of it on standard error.

    Args:
        argument: name of the user's argument.
        trainable: the training, which is over. This process's model has the trained weights.
        samples: the training's data.
        folder: the folder of the user's files.
    """
    for name in (FILE, DATA):
        (folder / name).unlink(missing_ok=True)  # the file of an earlier run has other weights
    exporter = _exporter(trainable.framework.name)
    _say(f"edt: {FILE} is being written.")
    begun = time.monotonic()
    try:
        with _counted(folder), _quietly(), _generators_kept():
            described, difference = _write(exporter, trainable, samples, folder)
    except KeyboardInterrupt:
        _say(f"edt: Stopped; {FILE} is not written. The model's other files are complete.")
        raise SystemExit(_INTERRUPTED) from None
    except Exception as error:  # the model is trained, so its job may not fail here
        context.remark = f"{argument}: {FILE} is not written, because {_why(error)}"
        _say(f"edt: {context.remark}. The model's other files are complete.")
        return
    sizes = " and of ".join(map(str, SIZES))
    _say(
        f"edt: {FILE} is written ({described}) in {time.monotonic() - begun:.0f} s. In onnxruntime its outputs for "
        f"batches of {sizes} differ from the trained model's by at most {difference:.1e}."
    )


def _write(exporter: Exporter, trainable: Trainable, samples: Samples, folder: Path) -> tuple[str, float]:
    """Write, check and put in place. Returns the names and shapes of inputs and outputs, and the largest difference."""
    found = _missing_packages(exporter)
    if found:
        raise RunnerError(_not_installed(found))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=DRAFT_PREFIX, dir=folder) as draft:
        examples = exporter.export(trainable, samples, Path(draft))
        gc.collect()  # onnxruntime takes memory for the weights once more
        result = check(Path(draft) / FILE, examples)
        for name in (DATA, FILE):  # whoever sees FILE can read it
            path = Path(draft) / name
            if path.exists():
                sync(path)
                path.replace(folder / name)
        sync(folder)
    return result


# ── comparing ─────────────────────────────────────────────────────────────────────────────────────────────────────
_RELATIVE, _ABSOLUTE = 1e-3, 1e-5
"""How far a value may be off: ``_RELATIVE`` of itself, and ``_ABSOLUTE`` of the largest value of its output (or of 1).
onnxruntime adds and multiplies in another order than the framework, and fuses operations, so each float32 operation
may differ by 1e-7 of its result, and that grows with the model's depth. A wrong export is off by far more: a BatchNorm
in training mode, dropout that is not switched off or a missing layer move outputs by some percent."""
_HALF = 50.0
"""By how much more values may be off in a model that computes with numbers of 16 bits. These have 8 to 11 bits of
precision instead of 24, and one value in the middle of a sum may already be off by a thousandth."""


def check(path: Path, examples: Sequence[Example]) -> tuple[str, float]:
    """Check a file, and compare what it computes with what the trained model has computed.

    Args:
        path: the ONNX file.
        examples: batches of different sizes.

    Returns:
        The names and shapes of the file's inputs and outputs, as text, and the largest difference of any value.

    Raises:
        RunnerError: the file computes something else.
        Exception: the file is no valid ONNX file, or onnxruntime cannot run it.
    """
    onnx: Any = importlib.import_module("onnx")
    onnxruntime: Any = importlib.import_module("onnxruntime")
    onnx.checker.check_model(str(path))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # then it starts no threads
    options.log_severity_level = 4  # it writes to the process's standard error, past Python
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    largest = 0.0
    for example in examples:
        _check_shapes(session, example)
        given = {place.name: example.inputs[place.name] for place in session.get_inputs()}
        results = session.run(list(example.outputs), given)
        for (name, expected), found in zip(example.outputs.items(), results, strict=True):
            largest = max(largest, _difference(name, expected, np.asarray(found), half=example.half))
    inputs, outputs = (", ".join(map(_described, places)) for places in (session.get_inputs(), session.get_outputs()))
    return f"{inputs} -> {outputs}", largest


def _check_shapes(session: Any, example: Example) -> None:
    """Check that the file takes a batch of this size."""
    for place in session.get_inputs():
        shape = example.inputs[place.name].shape
        if any(isinstance(fixed, int) and fixed != size for fixed, size in zip(place.shape, shape, strict=True)):
            raise RunnerError(
                f"the model's code fixes the shape of input {place.name!r} at {place.shape}, so that the file would "
                f"not take {list(shape)}"
            )


def _difference(name: str, expected: Array, found: Array, *, half: bool) -> float:
    """Return the largest difference of two arrays. ``half``: the model computes with numbers of 16 bits.

    Raises:
        RunnerError: they differ by more than the order of additions explains.
    """
    if expected.shape != found.shape:
        raise RunnerError(
            f"onnxruntime computes output {name!r} of shape {list(found.shape)} where the trained model computes "
            f"{list(expected.shape)}"
        )
    if not expected.size:
        return 0.0
    kind = expected.dtype.kind
    factor = 0.0 if kind in "biu" else _HALF if half else 1.0
    number = np.complex128 if kind == "c" else np.float64
    ours, theirs = expected.astype(number), found.astype(number)
    scale = max(1.0, float(np.abs(ours[np.isfinite(ours)]).max(initial=0.0)))
    equal = np.isclose(theirs, ours, rtol=_RELATIVE * factor, atol=_ABSOLUTE * factor * scale, equal_nan=True)
    apart = np.abs(theirs - ours)[np.isfinite(ours) & np.isfinite(theirs)]
    largest = float(apart.max(initial=0.0))
    if not equal.all():
        raise RunnerError(
            f"onnxruntime computes another result than the trained model: {int((~equal).sum())} of {equal.size} values "
            f"of output {name!r} differ, by up to {largest:.3g}, where the largest value is "
            f"{float(np.abs(ours[np.isfinite(ours)]).max(initial=0.0)):.3g}"
        )
    return largest


def _described(place: Any) -> str:
    return f"{place.name} {list(place.shape)}".replace("'", "")


# ── around it ─────────────────────────────────────────────────────────────────────────────────────────────────────
def _exporter(framework: str) -> Exporter:
    return cast(Exporter, importlib.import_module(f"edt_runner.frameworks.{framework}.onnx"))


def _missing_packages(exporter: Exporter) -> list[str]:
    wanted = ("onnx", "onnxruntime", *exporter.PACKAGES)
    return [name for name in wanted if name not in sys.modules and importlib.util.find_spec(name) is None]


def _not_installed(packages: Sequence[str]) -> str:
    verb = "is" if len(packages) == 1 else "are"
    return f"{' and '.join(packages)} {verb} not installed: pip install 'openedt[onnx]'"


def _why(error: Exception) -> str:
    """The reason in one sentence, without a full stop."""
    first = " ".join(str(error).partition("\n\n")[0].split())[:400].rstrip(".")
    return first if isinstance(error, RunnerError) else f"{type(error).__name__}: {first}".rstrip(": ")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _counted(folder: Path) -> Iterator[None]:
    """Count processes that are killed inside the block, in a file.

    Raises:
        RunnerError: too many were killed before this one.
    """
    path = folder / _BEGUN
    try:
        killed = int(path.read_text())
    except (OSError, ValueError):
        killed = 0
    try:
        if killed >= _MOST_KILLED:
            raise RunnerError(f"{killed} processes that wrote it were killed; perhaps memory is short")
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(str(killed + 1))
        yield
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Hide what the libraries log, print and warn of while they try what a model allows. Errors are raised as ever."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _generators_kept() -> Iterator[None]:
    """Let the global random generators be as before, so that the rest of the script computes as without the file."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
