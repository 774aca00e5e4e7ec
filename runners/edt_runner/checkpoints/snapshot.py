"""A training's state in host memory and in a safetensors file, and recovery checkpoints of it in the background.

Between two steps a thread begins to copy the state. Parameters stand still until the end of the next step, so the copy
is made while that step computes; whoever changes them calls ``wait_copied()`` first. Writing the copy to disk takes as
long as it takes. Only one is under way at a time, so there is one copy in memory. Copying, hashing and writing whole
tensors releases the interpreter's lock, so the thread that trains goes on.

torch's tensors carry the state of every framework.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edt_contract.durable import News, Outage, reason
from edt_runner.adapter import Adapter, State
from edt_runner.errors import UnsupportedState

_AGAIN_SECONDS = 1.0


class Snapshots:
    """Begins, waits for and finishes recovery checkpoints. All methods belong to the thread that trains.

    Args:
        interval_seconds: between the beginnings of two.
        export: the state by reference; called between two steps by the thread that trains, since a pass may move what
            the model holds and put it back.
        copy: of what ``export`` returned, in another thread, while the state stands still.
        write: (offset, sums of the epoch, copy) -> writes it durably, in another thread.
        note: called with a sentence for the user when a checkpoint could not be written, once, and once more when
            checkpoints are written again; by any thread. A full disk costs the checkpoint, not the training.
        clock: monotonic seconds.
        patience: seconds for which ``write_now`` tries again where the disk does not take it.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        interval_seconds: float,
        export: Callable[[], Any],
        copy: Callable[[Any], Any],
        write: Callable[[int, Mapping[str, Any], Any], None],
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        patience: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._interval, self._export, self._copy, self._write = interval_seconds, export, copy, write
        self._note, self._clock = note, clock
        self._patience, self._sleep = patience, sleep
        self._lacks_room = False
        """Whether the disk did not take the last one."""
        self._outage = Outage("recovery checkpoints", self._tell, clock=clock)
        self._next = clock() + interval_seconds
        self._thread: threading.Thread | None = None
        self._copied = threading.Event()
        self._copied.set()
        self._waiting: tuple[int, Mapping[str, Any]] | None = None
        """One that was forced while another was under way; its state has not changed yet."""

    def due(self) -> bool:
        """Whether the interval has passed since the last began, and none is under way."""
        return self._clock() >= self._next and not self.under_way

    def begin(self, offset: int, metric_sums: Mapping[str, Any], *, force: bool = False) -> None:
        """Between two steps: begin a checkpoint if one is due, or if ``force``. If another is under way, a forced one
        makes the next due at once: the first call that finds none under way begins it, of the state at that time."""
        if self.under_way:
            if force:
                self._waiting = (offset, metric_sums)
                self._next = self._clock()
            return
        if not force and not self.due():
            return
        self._note_start()
        exported = self._export_state(offset)
        if not exported:
            return
        self._copied.clear()
        self._thread = threading.Thread(
            target=self._work, args=(offset, metric_sums, exported), name="checkpoint", daemon=True
        )
        self._thread.start()

    def wait_copied(self) -> None:
        """Called before the state changes: wait until it has been copied, if it is being copied."""
        self._copied.wait()
        self._waiting = None  # its state is about to change; ``_next`` makes another one due

    def finish(self) -> None:
        """Wait until the checkpoint that was begun is on disk."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._waiting is not None:
            offset, metric_sums = self._waiting
            self._note_start()
            self._work(offset, metric_sums, self._export_state(offset))

    def write_now(self, offset: int, metric_sums: Mapping[str, Any]) -> None:
        """Write one of the state as it is and return when it is on disk, when there was no room for too long, or when
        something else than the disk is in the way."""
        deadline = self._clock() + self._patience
        while True:
            self._waiting = (offset, metric_sums)
            self.finish()
            if not self._lacks_room or self._clock() >= deadline:
                return
            self._sleep(_AGAIN_SECONDS)

    def _note_start(self) -> None:
        self._waiting = None
        self._next = self._clock() + self._interval

    @property
    def under_way(self) -> bool:
        """One is being copied or written."""
        return self._thread is not None and self._thread.is_alive()

    def _export_state(self, offset: int) -> list[Any]:
        """[the state], which the copying thread pops: while a reference is held, TensorFlow copies a variable before it
        writes. Empty if the export failed, which is noted."""
        try:
            return [self._export()]
        except Exception as error:
            self._no_checkpoint(offset, error)
            return []

    def _work(self, offset: int, metric_sums: Mapping[str, Any], exported: list[Any]) -> None:
        self._lacks_room = False
        if not exported:
            return
        try:
            try:
                copy = self._copy(exported.pop())
            finally:
                self._copied.set()
            self._write(offset, metric_sums, copy)
            self._outage.worked()
        except OSError as error:
            self._lacks_room = True
            self._outage.failed(f"{reason(error)} (at offset {offset})")
        except Exception as error:
            self._no_checkpoint(offset, error)

    def _no_checkpoint(self, offset: int, error: Exception) -> None:
        """Whatever it is, the training goes on without this checkpoint."""
        self._note(f"no recovery checkpoint at offset {offset}: {str(error) or type(error).__name__}")

    def _tell(self, news: News) -> None:
        again = f"; the training goes on, and it is tried again every {self._interval:g} s" if news.error else ""
        self._note(f"{news}{again}")


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
