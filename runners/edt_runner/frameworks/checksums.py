"""What an engine's replica of the training is, as one short text for each setting and each tensor.

Equal replicas have equal texts. A setting, and a tensor of one number, is given as its value, so that a difference can
be read; every other tensor by a checksum of its bytes. Hyperparameters come first: where they differ, the weights are
about to, and the cause is what a user needs to see.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from edt_runner.adapter import State

Entry = tuple[str, str]
"""(what it is called, its value or its checksum)"""

_LANES, _ROWS = 1024, 64
"""Words beside each other, and rows that are folded at a time: 512 KiB stay in a core's cache for both passes."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MOST_TEXT = 80
"""Characters of a value that is shown as it is."""


def checksums(state: State) -> list[Entry]:
    """Of everything in ``state``, in the same order in every engine: settings, then what an optimizer keeps in single
    numbers, then the other tensors. Tensors on a device are copied to the host, one after the other."""
    entries = [(_setting(path), _text(value)) for path, value in _leaves(state.meta, ())]
    tensors = [(name, tensor, state.names.get(name) or _tensor(name)) for name, tensor in state.tensors.items()]
    tensors.sort(key=lambda item: not _is_number_of_optimizer(item[0], item[1]))
    return entries + [(called, _of_tensor(tensor)) for _, tensor, called in tensors]


def digest_of(state: State) -> str:
    """SHA-256 over names, types, shapes and bytes of all tensors of ``state``, hexadecimal: 64 digits."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.tensors.items()):
        host = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {str(host.dtype).removeprefix('torch.')} {list(host.shape)}\n".encode())
        if host.numel():
            digest.update(bytes_of(host).data)
    return digest.hexdigest()


def checksum(data: npt.NDArray[np.uint8]) -> str:
    """16 hexadecimal digits over bytes: they are folded, row by row, into 1024 words that depend on the order of the
    rows, and those are hashed. Ten times as fast as a cryptographic hash of all of it (about 15 GB/s a core): made to
    find accidents, not forgeries."""
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
            folded ^= np.bitwise_xor.reduce(block, axis=0)
        digest.update(folded.tobytes())
    digest.update(data[whole:].tobytes())
    return digest.hexdigest()


def bytes_of(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """Those of a tensor, in host memory, without a copy where it lies there in order."""
    flat: npt.NDArray[np.uint8] = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat


def _of_tensor(tensor: Any) -> str:
    host = tensor.detach().cpu().contiguous()
    kind = str(host.dtype).removeprefix("torch.")
    if host.numel() == 1:
        return repr(host.reshape(-1)[0].item())
    if not host.numel():
        return f"{kind} {list(host.shape)}"
    data = bytes_of(host)
    if data.__array_interface__["data"][0] % 8:  # words are read where they lie
        data = data.copy()
    return f"{kind} {list(host.shape)} {checksum(data)}"


def _is_number_of_optimizer(name: str, tensor: Any) -> bool:
    return name.startswith(("group.", "optimizer.")) and tensor.numel() == 1


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, value) of all plain values; a list of such (an optimizer's betas) is one value."""
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
