"""Operations in which all ranks of a group take part, over NCCL between GPUs, and over gloo between processors.

An exact reduction needs two of them, and neither adds anything, so no bit depends on how a library implements them.
NCCL matches operations by their order alone. So all ranks launch the same operations in the same order, from one
thread each.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as _distributed
import torch.distributed.distributed_c10d as _c10d

from edt_runner.comm.connections import OPERATION_TIMEOUT
from edt_runner.comm.streams import HostStream, Stream, stream_on

dist: Any = _distributed  # raw process groups have no type stubs
c10d: Any = _c10d

Wait = Callable[[Any], None]
"""Waits for a work on the host."""


class Collectives(Protocol):
    """The operations of one group. Each is launched by one thread, inside ``stream.launching()``.

    On a GPU they return when the operation is launched, and its result is there for later work of the stream. On
    processors they return when the result is there. All raise RuntimeError if the group is lost.
    """

    name: str
    """``nccl`` or ``gloo``."""
    stream: Stream

    def all_to_all(
        self, wait: Wait, out: torch.Tensor, source: torch.Tensor, out_sizes: Sequence[int], sizes: Sequence[int]
    ) -> None:
        """Send ``sizes[r]`` numbers of ``source`` to each rank r, and receive ``out_sizes[r]`` numbers of rank r.

        Args:
            wait: waits for a work on the host.
            out: tensor of shape (sum of ``out_sizes``,).
            source: tensor of shape (sum of ``sizes``,).
            out_sizes, sizes: how many numbers, by rank; 0 are allowed.
        """

    def all_gather(self, wait: Wait, out: torch.Tensor, rank: int) -> None:
        """Let all ranks have the equal parts of ``out``, of shape (ranks x part,), of which each rank has its own."""

    def all_reduce(self, wait: Wait, tensor: torch.Tensor) -> None:
        """Sum a tensor over all ranks, in place, in an order of the library's."""

    def connect_all(self) -> None:
        """Make all connections that the operations need, which may take some tenths of a second. All ranks do this at
        about the same time, each in a background thread. It is no operation, so it has no place in their order.

        Raises:
            RuntimeError: a rank is lost.
        """

    def abort(self) -> None:
        """End all operations, also those that wait for a lost rank; what they have written is undefined. Any thread may
        call this, more than once. It returns at once."""


class GlooCollectives:
    """Collectives over gloo, on tensors in host memory.

    Args:
        group: a ``ProcessGroupGloo``. Its connections are shut by ``connections``.
    """

    name = "gloo"

    def __init__(self, group: Any) -> None:
        self._group = group
        self.stream: Stream = HostStream()

    def all_to_all(
        self, wait: Wait, out: torch.Tensor, source: torch.Tensor, out_sizes: Sequence[int], sizes: Sequence[int]
    ) -> None:
        options = c10d.AllToAllOptions()
        options.timeout = OPERATION_TIMEOUT
        wait(self._group.alltoall_base(out, source, list(out_sizes), list(sizes), options))

    def all_gather(self, wait: Wait, out: torch.Tensor, rank: int) -> None:
        options = c10d.AllgatherOptions()
        options.timeout = OPERATION_TIMEOUT
        parts = list(torch.chunk(out, self._group.size()))
        wait(self._group.allgather([parts], [parts[rank].clone()], options))

    def all_reduce(self, wait: Wait, tensor: torch.Tensor) -> None:
        options = c10d.AllreduceOptions()
        options.timeout = OPERATION_TIMEOUT
        wait(self._group.allreduce([tensor], options))

    def connect_all(self) -> None:
        """Nothing: they are made."""

    def abort(self) -> None:
        """Nothing: shutting the connections ends gloo's operations."""


class NcclCollectives:
    """Collectives over NCCL, on tensors of one GPU.

    Args:
        group: a ``ProcessGroupNCCL`` that is connected.
        device: the GPU.
    """

    name = "nccl"

    def __init__(self, group: Any, device: torch.device) -> None:
        self._group, self._device = group, device
        self.stream: Stream = stream_on(device)
        self._size, self._aborting = group.size(), threading.Lock()

    def all_to_all(
        self, wait: Wait, out: torch.Tensor, source: torch.Tensor, out_sizes: Sequence[int], sizes: Sequence[int]
    ) -> None:
        options = c10d.AllToAllOptions()
        self._group.alltoall_base(out, source, list(out_sizes), list(sizes), options).wait()

    def all_gather(self, wait: Wait, out: torch.Tensor, rank: int) -> None:
        part = len(out) // self._size
        own = out[rank * part : (rank + 1) * part]
        self._group._allgather_base(out, own, c10d.AllgatherOptions()).wait()

    def all_reduce(self, wait: Wait, tensor: torch.Tensor) -> None:
        self._group.allreduce([tensor], c10d.AllreduceOptions()).wait()

    def connect_all(self) -> None:
        """Operations are captured for a graph that is never launched: NCCL connects the ranks for them. (Measured on
        one H200, two ranks: this takes 0.3 to 0.5 s. Without it the first operation does.)

        Raises:
            RuntimeError: a rank is lost, or CUDA does not capture the operations.
        """
        with self.stream.launching():
            stream = torch.cuda.current_stream(self._device)
            out, source = (torch.zeros(self._size, device=self._device) for _ in range(2))
            stream.synchronize()
            with _captured(stream.cuda_stream):
                self.all_to_all(_wait, out, source, [1] * self._size, [1] * self._size)
                self.all_gather(_wait, out, self._group.rank())
                self.all_reduce(_wait, out)

    def abort(self) -> None:
        if self._aborting.acquire(blocking=False):  # never released: it is done once
            threading.Thread(target=self._group.abort, name="edt-abort", daemon=True).start()


@contextmanager
def _captured(stream: int) -> Iterator[None]:
    """A context in which what this thread launches on a CUDA stream is captured, and dropped at the end.

    torch's own CUDAGraph would stop its random generators on all streams meanwhile.

    Raises:
        RuntimeError: CUDA refuses.
    """
    try:
        cuda = ctypes.CDLL(f"libcudart.so.{str(torch.version.cuda).partition('.')[0]}")
    except OSError as error:
        raise RuntimeError(f"operations cannot be captured: {error}") from error
    handle, graph = ctypes.c_void_p(stream), ctypes.c_void_p()
    _check(cuda.cudaStreamBeginCapture(handle, _THREAD_LOCAL))
    try:
        yield
    finally:
        ended = cuda.cudaStreamEndCapture(handle, ctypes.byref(graph))
        if graph:
            cuda.cudaGraphDestroy(graph)
    _check(ended)


_THREAD_LOCAL = 1
"""cudaStreamCaptureModeThreadLocal: other threads may use CUDA as they like."""


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"CUDA error {status} while operations were captured")


_VARIABLES = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",  # torch's watchdog would end the process; a lost rank is ours to handle
    "TORCH_NCCL_ENABLE_MONITORING": "0",  # so would its monitor, if the watchdog is stuck
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
}
_CONNECT_TIMEOUT = timedelta(seconds=10)


def has_nccl() -> bool:
    """Whether this build of torch has NCCL."""
    return bool(dist.is_available() and dist.is_nccl_available())


def set_nccl_variables(interface: str | None) -> None:
    """Set the variables that NCCL and torch read, where the user has not. Called before there are other threads.

    Args:
        interface: name of the network interface for NCCL's own connections; None: NCCL chooses.
    """
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
    if interface:
        os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)


def connect_nccl(store: str, key: str, rank: int, size: int, device: torch.device) -> NcclCollectives:
    """Connect the GPUs of several processes. All of them call this at about the same time, each in a background thread.

    This launches nothing that other ranks wait for on their GPUs, so it may run beside operations of other groups.

    Args:
        store: ``host:port`` of the TCPStore through which the processes find each other.
        key: name of the group in the store; each name is used only once.
        rank: rank of this process.
        size: number of processes.
        device: this process's GPU.

    Raises:
        RuntimeError: NCCL could not connect them, for example because two of them are on one GPU.
    """
    host, _, port = store.rpartition(":")
    client = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=_CONNECT_TIMEOUT)
    _await_all(dist.PrefixStore(f"{key}/here", client), rank, size)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = OPERATION_TIMEOUT
    group = dist.ProcessGroupNCCL(dist.PrefixStore(key, client), rank, size, options)
    group.eager_connect_single_device(device)
    return NcclCollectives(group, device)


def _await_all(store: Any, rank: int, size: int) -> None:
    """Wait until all ranks are here. NCCL itself waits for a rank without a limit.

    Raises:
        RuntimeError: a rank has not come in time.
    """
    store.set(str(rank), "")
    store.wait([str(each) for each in range(size)], _CONNECT_TIMEOUT)


def _wait(work: Any) -> None:
    work.wait(OPERATION_TIMEOUT)
