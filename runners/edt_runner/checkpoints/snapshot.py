"""Copies a training's state to host memory and writes recovery checkpoints in the background.

Between two steps a thread begins to copy the state. Parameters do not change before the end of the next step, so the
thread copies while that step computes. Code that changes the parameters calls ``wait_copied()`` first. The copy is
then written to disk, which may take longer. Only one checkpoint is under way at a time, so there is one copy in
memory. Copying, hashing and writing whole tensors releases the interpreter's lock, so the training thread is not
blocked.

The user's files are written in the background, too (``user_files``). Until they are on disk no checkpoint of a later
state begins: a job that starts again continues from their epoch's end or before, and writes them again.

torch's tensors carry the state of every framework.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from edt_contract.durable import News, Outage, reason
from edt_runner import host_copies
from edt_runner.adapter import Adapter, State
from edt_runner.errors import UnsupportedState

_AGAIN_SECONDS = 1.0


class BackgroundFiles(Protocol):
    """Files that are written in the background. ``UserFiles`` has these methods."""

    @property
    def under_way(self) -> bool: ...

    def wait_copied(self) -> None: ...

    def finish(self) -> None: ...


class Snapshots:
    """Begins, waits for and finishes recovery checkpoints. Only the training thread calls its methods.

    Args:
        interval_seconds: seconds between the beginnings of two checkpoints.
        export: returns the state by reference. The training thread calls it between two steps, since a pass may move
            what the model holds and put it back.
        copy: copies what ``export`` returned. Another thread calls it, while the state does not change.
        write: (offset, sums of the epoch, copy) -> None; writes the checkpoint durably, in another thread.
        note: called, by any thread, with a sentence for the user: once when checkpoints begin to fail because of the
            disk, once when they succeed again, and for each other failure. A full disk does not end the training.
        clock: monotonic seconds.
        patience: seconds for which ``write_now`` tries again if the disk does not take the checkpoint.
        sleep: waits for a number of seconds.
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
        self._files: BackgroundFiles | None = None
        self._lacks_room = False
        """Whether the disk did not take the last checkpoint."""
        self._outage = Outage("recovery checkpoints", self._tell, clock=clock)
        self._next = clock() + interval_seconds
        self._thread: threading.Thread | None = None
        self._copied = threading.Event()
        self._copied.set()
        self._waiting: tuple[int, Mapping[str, Any]] | None = None
        """Offset and sums of a checkpoint that was forced while another one was under way. The state is still that of
        this offset."""

    def go_behind(self, files: BackgroundFiles) -> None:
        """Begin no checkpoint while these files are being written, and wait for their copies, too."""
        self._files = files

    def due(self) -> bool:
        """Whether the interval has passed since the last checkpoint began, and neither one nor files are under way."""
        return self._clock() >= self._next and not self._busy

    def begin(self, offset: int, metric_sums: Mapping[str, Any], *, force: bool = False) -> None:
        """Begin a checkpoint if one is due, or if ``force``. Called between two steps.

        If another checkpoint is under way, ``force`` makes the next one due at once. The first call that finds none
        under way begins it, with the state of that time.

        Args:
            offset: how far the training is in its schedule.
            metric_sums: sums of the epoch.
            force: begin one before the interval has passed.
        """
        if self._busy:
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
        """Wait until a copy that is under way is complete. Call this before the state changes."""
        self._copied.wait()
        if self._files is not None:
            self._files.wait_copied()
        self._waiting = None  # the state is about to change; ``_next`` makes another checkpoint due

    def finish(self) -> None:
        """Wait until the checkpoint and the files that are under way are on disk. Also writes a checkpoint that was
        forced in the meantime."""
        if self._files is not None:
            self._files.finish()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._waiting is not None:
            offset, metric_sums = self._waiting
            self._note_start()
            self._work(offset, metric_sums, self._export_state(offset))

    def write_now(self, offset: int, metric_sums: Mapping[str, Any]) -> None:
        """Write a checkpoint of the present state.

        Returns when the checkpoint is on disk, when the disk has refused it for ``patience`` seconds, or when it has
        failed for another reason than the disk.
        """
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
    def _busy(self) -> bool:
        return self.under_way or (self._files is not None and self._files.under_way)

    @property
    def under_way(self) -> bool:
        """Whether a checkpoint is being copied or written."""
        return self._thread is not None and self._thread.is_alive()

    def _export_state(self, offset: int) -> list[Any]:
        """Export the state as a list of one element; an empty list if the export failed, which is noted.

        The copying thread pops the element: while a reference to a variable exists, TensorFlow copies the variable
        before it writes.
        """
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
        """Note that there is no checkpoint, whatever the error is; the training continues without it."""
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
"""Names of tensor types in safetensors files."""


class HostCopy:
    """Copies states to host memory, and uses the same memory for each copy.

    The next call overwrites what the last call returned. Memory for tensors of a GPU is pinned if the machine allows
    that.
    """

    def __init__(self) -> None:
        self._places: dict[str, Tensor] = {}

    def __call__(self, state: State) -> State:
        """Copy a state. Tensors of a GPU are copied beside the kernels of the present step, and are copied when this
        returns."""
        tensors = state.tensors
        self._places = {name: self._place(name, tensor) for name, tensor in tensors.items()}
        away = [tensor for tensor in tensors.values() if host_copies.is_away(tensor)]
        side = host_copies.side_stream(away[0].device, "checkpoints") if away else None
        if side is not None:
            side.after(state.ready or host_copies.moment(away))
        with torch.no_grad():
            for name, tensor in tensors.items():
                if side is not None and host_copies.is_away(tensor):
                    side.copy(self._places[name], tensor)
                else:
                    self._places[name].copy_(tensor)
        if side is not None:
            side.mark().synchronize()
        return State(state.meta, self._places)

    def _place(self, name: str, tensor: Tensor) -> Tensor:
        place = self._places.get(name)
        if place is not None and place.shape == tensor.shape and place.dtype == tensor.dtype:
            return place
        if host_copies.is_away(tensor):
            return host_copies.pinned(tensor.shape, tensor.dtype)
        return torch.empty(tensor.shape, dtype=tensor.dtype)


def write_state(path: Path, state: State) -> str:
    """Write the tensors of a state, which are in host memory, to one safetensors file.

    Returns:
        The file's SHA-256, hexadecimal.

    Raises:
        UnsupportedState: a tensor is of a type that safetensors does not have.
        OSError: the disk did not take the file.
    """
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for piece in _pieces(state):
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def read_state(
    path: Path,
    adapter: Adapter,
    meta: Mapping[str, Any],
    edit: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda tensors: tensors,
) -> None:
    """Fill ``adapter`` with a state from disk.

    Args:
        path: a file that ``write_state`` has written.
        adapter: receives the state.
        meta: ``State.meta`` of that state.
        edit: is given the tensors by name, and returns those that are taken.

    Raises:
        StateMismatch: the model or optimizer of this process is made differently.
    """
    from safetensors.torch import load_file

    tensors = edit(load_file(path))
    shapes = {name: [str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in tensors.items()}
    for name, place in adapter.begin_import(meta, shapes).items():
        with torch.no_grad():
            place.copy_(tensors[name])
    adapter.end_import()


def _pieces(state: State) -> Iterator[bytes | memoryview]:
    """The file's bytes, in pieces. The tensors of the widest types come first, so that all tensors are aligned."""
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
