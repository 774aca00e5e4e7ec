"""A training's state copied to host memory, written as a safetensors file, and read back. torch's tensors carry the
state of every framework.

Copying, hashing and writing whole tensors releases the interpreter's lock, so the thread that trains goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edt_runner.adapter import Adapter, State
from edt_runner.errors import UnsupportedState

_PIECE_BYTES = 16 * 1024 * 1024
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Types of tensors as safetensors writes them."""


class HostCopy:
    """Copies states to host memory, the same memory each time. What a call returned is overwritten by the next call.
    Memory for tensors of a CUDA device is pinned where the machine allows that."""

    def __init__(self) -> None:
        self._places: dict[str, Tensor] = {}
        self._stream: torch.cuda.Stream | None = None

    def __call__(self, state: State) -> State:
        self._places = {name: self._place(name, tensor) for name, tensor in state.tensors.items()}
        on_device = next((tensor.device for tensor in state.tensors.values() if tensor.is_cuda), None)
        if on_device is None:
            self._copy(state)
        else:
            self._copy_beside_the_training(state, on_device)
        return State(state.meta, self._places)

    def _place(self, name: str, tensor: Tensor) -> Tensor:
        place = self._places.get(name)
        if place is not None and place.shape == tensor.shape and place.dtype == tensor.dtype:
            return place
        if tensor.is_cuda:
            try:
                return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            except RuntimeError:
                pass  # no more memory may be pinned here: the copy takes longer
        return torch.empty(tensor.shape, dtype=tensor.dtype)

    def _copy(self, state: State) -> None:
        with torch.no_grad():
            for name, tensor in state.tensors.items():
                self._places[name].copy_(tensor, non_blocking=True)

    def _copy_beside_the_training(self, state: State, device: torch.device) -> None:
        """On a stream of its own, so that the kernels of the step that has begun need not wait for it."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream):
            self._copy(state)
        self._stream.synchronize()


def write_state(path: Path, state: State) -> str:
    """Write the tensors of a state, which are in host memory, as one safetensors file.

    Returns:
        The file's SHA-256, hexadecimal.

    Raises:
        UnsupportedState: a tensor is of a type that safetensors does not have.
        OSError: the disk does not take it.
    """
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for piece in _pieces(state):
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def read_state(path: Path, adapter: Adapter, meta: Mapping[str, Any]) -> None:
    """Fill ``adapter`` with the tensors of a file that ``write_state`` has written, and with ``State.meta`` of that
    state."""
    from safetensors.torch import load_file

    tensors = load_file(path)
    shapes = {name: [str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in tensors.items()}
    for name, place in adapter.begin_import(meta, shapes).items():
        with torch.no_grad():
            place.copy_(tensors[name])
    adapter.end_import()


def _pieces(state: State) -> Iterator[bytes | memoryview]:
    """The file's bytes. The tensors of the widest types come first, so that all are aligned."""
    tensors = sorted(state.tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, object] = {}
    end = 0
    for name, tensor in tensors:
        if tensor.dtype not in _NAMES:
            raise UnsupportedState(f"{name} is {tensor.dtype}, which a checkpoint cannot hold")
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, tensor in tensors:
        if tensor.numel():
            data = memoryview(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
            for start in range(0, len(data), _PIECE_BYTES):
                yield data[start : start + _PIECE_BYTES]
