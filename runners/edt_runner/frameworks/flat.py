"""The flat vector that one micro-batch adds to a step's reduction, as the adapters of both frameworks lay it out.

A micro-batch of a training step writes one vector of one dimension. The vector of a PyTorch model is on the device that
the model computes on; that of a Keras model is in host memory. The step's reduction is the sum of the vectors of all
its micro-batches. The sections, in this order:

    section     numbers                            what a micro-batch writes there
    gradients   those of all trained parameters    gradient x the micro-batch's share of the step
    present     one per parameter, or none         1 if the parameter has a gradient
    floats      those of all float state           value after forward x share
    changed     one per tensor of float state      1 if forward has changed the tensor
    integers    those of all integer state         difference that forward has made
    active      1                                  1; the sum is the number of micro-batches that had samples
    sums        ``width`` of the adapter           samples, loss x samples, then values that metrics are computed from

A micro-batch of an evaluation step writes only ``sums``. State is what forward changes beside gradients: buffers in
PyTorch, variables that are not trained in Keras. All numbers are float32, or float64 if the model has any float64.

``checksums`` describes a state by one short text per setting and per tensor. Equal replicas have equal texts. The text
of a setting, or of a tensor of one number, is its value, so that a user can read a difference. The text of any other
tensor is a checksum of its bytes. Hyperparameters come first: if they differ, the weights will soon differ too, and
the user needs to see the cause.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edt_runner.adapter import State
from edt_runner.callbacks.records import bytes_of
from edt_runner.comm.buckets import Bucket, buckets_of
from edt_runner.comm.tree_reduction import HOST, Sink
from edt_runner.host_copies import in_host_memory
from edt_runner.schedule import StepKind


class Sections(NamedTuple):
    """The sections of a flat vector: tensors of one dimension, of torch or of TensorFlow."""

    gradients: Any
    present: Any
    floats: Any
    changed: Any
    integers: Any
    active: Any
    sums: Any


@dataclass(frozen=True)
class FlatLayout:
    """The layout of a training step's vector.

    Args:
        gradients: numbers of each trained parameter.
        present: length of the section of that name.
        floats: numbers of each tensor of float state.
        integers: numbers of each tensor of integer state.
        sums: length of the section of that name.
    """

    gradients: list[int]
    present: int
    floats: list[int]
    integers: list[int]
    sums: int

    @cached_property
    def sizes(self) -> Sections:
        """The length of each section."""
        floats, integers = sum(self.floats), sum(self.integers)
        return Sections(sum(self.gradients), self.present, floats, len(self.floats), integers, 1, self.sums)

    def sections(self, flat: Any, split: Callable[[Any, list[int]], Any] = torch.split) -> Sections:
        """The sections of ``flat``. They are views if ``split`` is torch's; ``tf.split`` copies."""
        return Sections(*split(flat, list(self.sizes)))

    def rest(self, flat: Tensor) -> Sections:
        """The sections of a vector without its gradients, as views."""
        return Sections(flat[:0], *torch.split(flat, list(self.sizes)[1:]))


def flat_dtype(types: Iterable[str]) -> torch.dtype:
    """The dtype of flat vectors.

    Args:
        types: names of the dtypes of the model's tensors, as NumPy names them.

    Returns:
        float64 if a tensor has it, else float32.
    """
    return torch.float64 if "float64" in types else torch.float32


def new_vector(length: int, dtype: torch.dtype, device: torch.device = HOST) -> Tensor:
    """A flat vector of shape (length,) on a device. Its contents are undefined."""
    return torch.empty(length, dtype=dtype, device=device)


def type_name(dtype: torch.dtype) -> str:
    """The name of a dtype: ``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


class FlatAdapter:
    """What the adapters of both frameworks share: flat vectors, and a list of what ended the exactness guarantee.

    A subclass sets ``width``, ``layout`` and ``dtype``.
    """

    width: int
    """Length of the section ``sums``."""
    layout: FlatLayout
    dtype: torch.dtype
    """Dtype of flat vectors."""
    vector_device = HOST
    """The device of flat vectors."""

    def __init__(self) -> None:
        self._endings: dict[str, str] = {}
        self._reported = 0
        self._buckets: tuple[Bucket, ...] = ()

    def size(self, kind: StepKind) -> int:
        """How many numbers a vector of a step of this kind has."""
        return self.width if kind is StepKind.VALIDATE else sum(self.layout.sizes)

    def buckets(self, kind: StepKind) -> Sequence[Bucket]:
        """The pieces in which a vector of a step of this kind is reduced, in their order."""
        length = self.size(kind)
        if kind is StepKind.VALIDATE:
            return ((0, length),)
        if not self._buckets or self._buckets[-1][1] != length:
            self._buckets = buckets_of(self.layout.gradients, length, self.dtype.itemsize)
        return self._buckets

    def begin_step(self) -> None:
        pass

    def placed(self, batch: Any) -> Any:
        return batch

    def micro_batch(self, batch: Any, count: int, total: int, seed: int, local: Tensor) -> None:
        raise NotImplementedError

    def stream(self, batch: Any, count: int, total: int, seed: int, sink: Sink) -> None:
        """Do what ``micro_batch`` does, and give the whole vector to ``sink`` at its end."""
        with sink.whole() as vector:
            self.micro_batch(batch, count, total, seed, vector)

    @property
    def gradient_size(self) -> int:
        """How many numbers the section ``gradients`` has. It is the first section of a training step's vector."""
        return int(self.layout.sizes.gradients)

    def sums(self, kind: StepKind, numbers: Tensor) -> list[float]:
        """The section ``sums`` of a vector, which is local or reduced."""
        values: list[float] = numbers[-self.width :].tolist()
        return values

    def has_finite_gradient(self, reduced: Tensor) -> bool:
        return is_finite(reduced[: self.gradient_size])

    def details(self) -> dict[str, float]:
        return {}

    def carried(self) -> Sequence[Any]:
        return ()

    def export_state(self) -> State:
        raise NotImplementedError

    def digest(self) -> str:
        """SHA-256 of names, types, shapes and bytes of the state, as hexadecimal digits."""
        digest = hashlib.sha256()
        named = dict(sorted(self.export_state().tensors.items()))
        for name, host in zip(named, in_host_memory(named.values()), strict=True):
            digest.update(f"{name} {type_name(host.dtype)} {list(host.shape)}\n".encode())
            if host.numel():
                digest.update(bytes_of(host).data)
        return digest.hexdigest()

    def end_guarantee(self, what: str, why: str) -> None:
        """Note that the result is no longer exact because of ``what``. Only the first reason for it is kept."""
        self._endings.setdefault(what, why)

    def take_warnings(self) -> list[tuple[str, str]]:
        """(what, why) of everything that has ended the guarantee since the last call."""
        news = list(self._endings.items())[self._reported :]
        self._reported = len(self._endings)
        return news


# ── norms ─────────────────────────────────────────────────────────────────────────────────────────────────────
_ROW = 2048
"""How many numbers are squared and added at a time. With so few numbers, BLAS uses one thread only; otherwise the last
bits of the sum would depend on the number of threads."""
_ROWS = 512
"""How many rows are looked at together. So few bytes are converted to float64 at once."""
_DEVICE_NUMBERS = 1 << 24
"""How many numbers are converted to float64 at once on a GPU."""
_LEAST = 2.0**-90
"""The least sum of a row's squares in float32. With a lesser one, squares may have become 0."""


def squared_norm(numbers: Tensor) -> float:
    """The squared L2 norm of a vector, on processors and on GPUs always summed in the same order.

    On a GPU squares are added in float64. On a processor the squares of a row are added in float32, in one pass over
    memory. This rounds the sum of a row by about 1e-7, and the sum of many rows by far less. Rows whose numbers are too
    large or too small for squares in float32 are added in float64, and so are the rows of all vectors that are not
    float32. The sums of rows are added in float64.
    """
    if numbers.device.type != "cpu":
        parts = [_folded(part.double().square_()) for part in torch.split(numbers.detach(), _DEVICE_NUMBERS)]
        return float(_folded(torch.cat(parts))) if parts else 0.0
    flat = numbers.detach().numpy()
    whole = len(flat) // _ROW * _ROW
    rows, rest = flat[:whole].reshape(-1, _ROW), flat[whole:].astype(np.float64)
    with np.errstate(all="ignore"):  # numbers that are too large for float32 are no mistake here
        sums = [_squares(rows[start : start + _ROWS]) for start in range(0, len(rows), _ROWS)]
        return float(np.sum(np.concatenate([*sums, np.dot(rest, rest)[None]])))


def _folded(numbers: Tensor) -> Tensor:
    """The sum of numbers, of shape (1,), in an order that is the same on all GPUs: the second half is added to the
    first, and so on. The numbers are overwritten."""
    length = len(numbers)
    while length > 1:
        half = (length + 1) // 2
        numbers[: length - half].add_(numbers[half:length])
        length = half
    return numbers[:1]


def _squares(rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The sum of squares of each row, of shape (rows,)."""
    if rows.dtype != np.float32:
        return _dots(rows.astype(np.float64))
    sums = _dots(rows).astype(np.float64)
    odd = ~((sums >= _LEAST) & (sums < np.inf))
    if odd.any():
        sums[odd] = _dots(rows[odd].astype(np.float64))
    return sums


def _dots(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The dot product of each row with itself: a call of BLAS for each."""
    found: npt.NDArray[Any] = np.matmul(rows[:, None, :], rows[:, :, None]).reshape(-1)
    return found


def is_finite(numbers: Tensor) -> bool:
    """Whether no number of a tensor is infinite or NaN. Reads the tensor once, unless the sum of finite numbers is too
    large."""
    return math.isfinite(float(numbers.sum())) or bool(torch.isfinite(numbers).all())


# ── checksums ─────────────────────────────────────────────────────────────────────────────────────────────────
Entry = tuple[str, str]
"""(name, value or checksum)"""

_LANES, _ROWS = 1024, 64
"""Words per row, and rows that are folded at a time. 512 KiB stay in a core's cache for both passes."""
_HALF = np.uint64(32)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MOST_TEXT = 80
"""The most characters of a value that is shown as it is."""


def checksums(state: State) -> list[Entry]:
    """Names and checksums of everything in ``state``, in the same order in every engine.

    Settings come first, then single numbers of the optimizer, then the other tensors. Tensors on a GPU are copied
    to the host, one after the other, beside the training.
    """
    entries = [(_setting(path), _text(value)) for path, value in _leaves(state.meta, ())]
    tensors = [(name, tensor, state.names.get(name) or _tensor(name)) for name, tensor in state.tensors.items()]
    tensors.sort(key=lambda item: not _is_number_of_optimizer(item[0], item[1]))
    hosts = in_host_memory((tensor for _, tensor, _ in tensors), state.ready)
    return entries + [(called, _of_tensor(host)) for (_, _, called), host in zip(tensors, hosts, strict=True)]


def checksum(data: npt.NDArray[np.uint8]) -> str:
    """Checksum of bytes, as 16 hexadecimal digits.

    The bytes are folded, row by row, into 1024 words that depend on the order of the rows; then these words are hashed.
    This is ten times as fast as a cryptographic hash of all bytes (about 15 GB/s per core). It finds accidents, not
    forgeries.
    """
    digest = hashlib.blake2b(str(len(data)).encode(), digest_size=8)
    row = _LANES * 8
    whole = len(data) // row * row
    if whole:
        rows = data[:whole].view(np.uint64).reshape(-1, _LANES)
        folded = np.zeros(_LANES, np.uint64)
        for start in range(0, len(rows), _ROWS):
            block = rows[start : start + _ROWS]
            folded += np.add.reduce(block, axis=0)
            folded *= _MULTIPLIER
            crossed = np.bitwise_xor.reduce(block, axis=0)
            folded ^= crossed << _HALF | crossed >> _HALF  # not at its own place, where it may undo the sum's change
        digest.update(folded.tobytes())
    digest.update(data[whole:].tobytes())
    return digest.hexdigest()


def _of_tensor(host: Tensor) -> str:
    kind = type_name(host.dtype)
    if host.numel() == 1:
        return repr(host.reshape(-1)[0].item())
    if not host.numel():
        return f"{kind} {list(host.shape)}"
    data = bytes_of(host)
    if data.__array_interface__["data"][0] % 8:  # ``checksum`` reads words of 8 bytes, which must be aligned
        data = data.copy()
    return f"{kind} {list(host.shape)} {checksum(data)}"


def _is_number_of_optimizer(name: str, tensor: Any) -> bool:
    return name.startswith(("group.", "optimizer.")) and tensor.numel() == 1


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, value) of all plain values. A list of plain values, such as an optimizer's betas, counts as one value."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _leaves(value[key], (*path, str(key)))
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, str(index)))
    else:
        yield path, value


def _text(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    if len(text) <= _MOST_TEXT:
        return text
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _setting(path: tuple[str, ...]) -> str:
    match path:
        case ("groups", number, key):
            return f"optimizer setting {key} of group {number}"
        case ("settings", *keys):
            return f"optimizer setting {'.'.join(keys)}"
        case ("plain", number, key):
            return f"optimizer state {key} of parameter {number}"
        case _:
            return ".".join(path)


def _tensor(name: str) -> str:
    match name.split(".", 2):
        case ("model", *rest):
            return f"parameter {'.'.join(rest)}"
        case ("group", number, key):
            return _setting(("groups", number, key))
        case ("optimizer", number, key):
            return _setting(("plain", number, key))
        case ("buffer", *rest):
            return f"buffer {'.'.join(rest)}"
        case _:
            return name
