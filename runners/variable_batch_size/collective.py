"""Adds up the gradients of several processes: those of a process group, or those of torch_xla's devices.

With torch_xla there is one process per device, and gloo connects several hosts. On each host, the process of ordinal 0
belongs to a group of all hosts. Environment variables describe the hosts: MY_HOST_ORDINAL, MY_HOST_WORLD_SIZE,
MY_DIST_ROOT (address:port of host 0).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from edt_runner.errors import UsageError

_BUCKET_BYTES = 32 * 1024 * 1024
"""The most bytes of gradients that are added up at once. The sum needs as much additional memory."""


class Collective:
    """The processes of a training. This base class stands for a single process."""

    size = 1

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all processes. All processes call this with the same shapes."""


class Group(Collective):
    """A process group of torch.distributed, with gloo or NCCL."""

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self.size = dist.get_world_size(group)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            dist.all_reduce(flat, group=self._group)
            for tensor, total in zip(bucket, torch.split(flat, [tensor.numel() for tensor in bucket]), strict=True):
                tensor.copy_(total.view_as(tensor))


class Xla(Collective):
    """The devices of this host under torch_xla, and those of further hosts that ``init_group`` has connected."""

    def __init__(self) -> None:
        self.size = xla_world()[1] * host_count()

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        all_reduce_tensors(list(tensors), 1.0)


def world() -> tuple[int, int]:
    """(rank, number of processes) of the process group or of torch_xla; (0, 1) if there is neither."""
    if dist.is_available() and dist.is_initialized() and host_count() == 1:
        return dist.get_rank(), dist.get_world_size()
    if xla_is_loaded():
        rank, size = xla_world()
        return rank + host_ordinal() * size, size * host_count()
    return 0, 1


def collective(device: torch.device, processes: int, group: Any = None) -> Collective:
    """The collective that adds up the gradients of a training.

    Args:
        device: the device of the parameters.
        processes: the number of processes.
        group: a process group of torch.distributed; None: the default group.

    Raises:
        RuntimeError: the collective has another number of processes.
    """
    found = Collective()
    if device.type == "xla":
        found = Xla()
    elif dist.is_available() and dist.is_initialized():
        found = Group(group)
    if found.size != processes:
        raise RuntimeError(
            f"the sampler deals out to {processes} processes, and {found.size} can add up their gradients: give it "
            "num_replicas and rank of the process group, or call torch.distributed.init_process_group first"
        )
    return found


def _buckets(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Groups of tensors of one dtype and device, as many as fit, in an order that is the same in every process."""
    buckets: list[list[Tensor]] = []
    newest: dict[tuple[torch.dtype, torch.device], tuple[list[Tensor], int]] = {}
    for tensor in tensors:
        kind = (tensor.dtype, tensor.device)
        size = tensor.numel() * tensor.element_size()
        bucket, filled = newest.get(kind, ([], 0))
        if not bucket or filled + size > _BUCKET_BYTES:
            bucket, filled = [], 0
            buckets.append(bucket)
        bucket.append(tensor)
        newest[kind] = (bucket, filled + size)
    return buckets


def host_ordinal() -> int:
    """This host's number, from 0."""
    return int(os.environ.get("MY_HOST_ORDINAL", "0"))


def host_count() -> int:
    """Number of hosts."""
    return int(os.environ.get("MY_HOST_WORLD_SIZE", "1"))


def init_group(local_ordinal: int, cores_per_host: int = 8) -> tuple[int, int]:
    """Connect the hosts. Call this in each process before training.

    Args:
        local_ordinal: this process's number on its host, from 0.
        cores_per_host: number of processes of each host.

    Returns:
        This process's number over all hosts, and the number of processes of all hosts.

    Raises:
        UsageError: there are several hosts, and MY_DIST_ROOT is not set.
    """
    if host_count() > 1 and local_ordinal == 0:
        root = os.environ.get("MY_DIST_ROOT")
        if not root:
            raise UsageError(f"MY_DIST_ROOT: got nothing, takes address:port of host 0, for {host_count()} hosts")
        dist.init_process_group("gloo", init_method=f"tcp://{root}", rank=host_ordinal(), world_size=host_count())
    return cores_per_host * host_ordinal() + local_ordinal, cores_per_host * host_count()


def all_reduce_tensors(tensors: Sequence[Tensor], scale: float) -> None:
    """Add tensors up over this host's devices and over the hosts, in place, and multiply them by ``scale``.

    Without torch_xla they are added up over the process group. Without a process group they are only multiplied.
    """
    if not xla_is_loaded():
        if dist.is_available() and dist.is_initialized():
            for tensor in tensors:
                dist.all_reduce(tensor)
        for tensor in tensors:
            tensor.mul_(scale)
        return
    xm = _xla_model()
    xm.all_reduce(xm.REDUCE_SUM, list(tensors), scale=scale)
    if host_count() > 1:
        _over_hosts(xm, tensors)


def all_reduce_tensors_mesh(tag: str, data: Any, scale: float = 1.0) -> Any:
    """Add up a number or an array in host memory over this host's processes, and multiply the sum by ``scale``.

    Args:
        tag: a name for the reduction, the same in all processes.
        data: the number or array.
        scale: the factor.

    Returns:
        The sum times ``scale``.
    """
    if xla_is_loaded():
        return scale * _xla_model().mesh_reduce(tag, data, sum)
    if dist.is_available() and dist.is_initialized():
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, data)
        return scale * sum(gathered[1:], gathered[0])
    return scale * data


def xla_is_loaded() -> bool:
    """Whether this process works with torch_xla, which is the case if it has imported torch_xla."""
    return "torch_xla" in sys.modules


def xla_world() -> tuple[int, int]:
    """This process's ordinal among its host's devices, and their number."""
    try:
        runtime = importlib.import_module("torch_xla.runtime")
        return int(runtime.global_ordinal()), int(runtime.world_size())
    except (ImportError, AttributeError):  # torch_xla before 2.1
        xm = _xla_model()
        return int(xm.get_ordinal()), int(xm.xrt_world_size())


def mark_step() -> None:
    """Let torch_xla execute what it has recorded. Without torch_xla this does nothing."""
    if not xla_is_loaded():
        return
    torch_xla = importlib.import_module("torch_xla")
    if hasattr(torch_xla, "sync"):
        torch_xla.sync()
    else:
        _xla_model().mark_step()


def _over_hosts(xm: Any, tensors: Sequence[Tensor]) -> None:
    """Add up over the hosts. Ordinal 0 does this; the host's other processes then get its sum by adding zeros to it."""
    if xla_world()[0] == 0:
        mark_step()
        for tensor in tensors:
            there = tensor.cpu()
            dist.all_reduce(there)
            tensor.copy_(there)
    else:
        for tensor in tensors:
            tensor.fill_(0.0)
    xm.all_reduce(xm.REDUCE_SUM, list(tensors), scale=1.0)


def _xla_model() -> Any:
    return importlib.import_module("torch_xla.core.xla_model")
