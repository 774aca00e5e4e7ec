"""How the gradients of several processes are added up: of a process group, and of torch_xla's devices.

With torch_xla there is one process per device, and several hosts are tied by gloo: on each host the process of ordinal
0 belongs to a group of all hosts. The environment says where: MY_HOST_ORDINAL, MY_HOST_WORLD_SIZE, MY_DIST_ROOT
(address:port of host 0).
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
"""Gradients are added up in pieces of this size: the memory that it takes beside them."""


class Collective:
    """The processes of a training; here it is one."""

    size = 1

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Put into each tensor its sum over all processes. All call it with the same shapes."""


class Group(Collective):
    """A process group of torch.distributed: gloo, NCCL."""

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
    """torch_xla: the devices of this host, and further hosts as ``init_group`` ties them."""

    def __init__(self) -> None:
        self.size = xla_world()[1] * host_count()

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        all_reduce_tensors(list(tensors), 1.0)


def world() -> tuple[int, int]:
    """(rank, processes): the process group's, torch_xla's, or (0, 1)."""
    if dist.is_available() and dist.is_initialized() and host_count() == 1:
        return dist.get_rank(), dist.get_world_size()
    if xla_is_loaded():
        rank, size = xla_world()
        return rank + host_ordinal() * size, size * host_count()
    return 0, 1


def collective(device: torch.device, processes: int, group: Any = None) -> Collective:
    """What adds up for ``processes`` processes with parameters on ``device``.

    Raises:
        RuntimeError: there are not that many processes to add up with.
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
    """Tensors of one kind and place, as many as fit, in an order that is the same in every process."""
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
    return int(os.environ.get("MY_HOST_ORDINAL", "0"))


def host_count() -> int:
    return int(os.environ.get("MY_HOST_WORLD_SIZE", "1"))


def init_group(local_ordinal: int, cores_per_host: int = 8) -> tuple[int, int]:
    """Tie the hosts together; to be called in each process before training.

    Args:
        local_ordinal: this process's number on its host, from 0.
        cores_per_host: processes of each host.

    Returns:
        This process's number over all hosts, and how many there are.

    Raises:
        UsageError: there are several hosts and MY_DIST_ROOT is not set.
    """
    if host_count() > 1 and local_ordinal == 0:
        root = os.environ.get("MY_DIST_ROOT")
        if not root:
            raise UsageError(f"MY_DIST_ROOT: got nothing, takes address:port of host 0, for {host_count()} hosts")
        dist.init_process_group("gloo", init_method=f"tcp://{root}", rank=host_ordinal(), world_size=host_count())
    return cores_per_host * host_ordinal() + local_ordinal, cores_per_host * host_count()


def all_reduce_tensors(tensors: Sequence[Tensor], scale: float) -> None:
    """Add up over this host's devices and over the hosts, in place, and multiply by ``scale``.

    Without torch_xla over the process group, without one there is nothing to add.
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
    """Add up a number or an array in host memory over this host's processes, times ``scale``. ``tag`` names the
    reduction; all processes give the same."""
    if xla_is_loaded():
        return scale * _xla_model().mesh_reduce(tag, data, sum)
    if dist.is_available() and dist.is_initialized():
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, data)
        return scale * sum(gathered[1:], gathered[0])
    return scale * data


def xla_is_loaded() -> bool:
    """Whether this process works with torch_xla: it has imported it."""
    return "torch_xla" in sys.modules


def xla_world() -> tuple[int, int]:
    """This process's ordinal on its host's devices, and how many there are."""
    try:
        runtime = importlib.import_module("torch_xla.runtime")
        return int(runtime.global_ordinal()), int(runtime.world_size())
    except (ImportError, AttributeError):  # torch_xla before 2.1
        xm = _xla_model()
        return int(xm.get_ordinal()), int(xm.xrt_world_size())


def mark_step() -> None:
    """Have torch_xla execute what it has recorded; without it nothing is to be done."""
    if not xla_is_loaded():
        return
    torch_xla = importlib.import_module("torch_xla")
    if hasattr(torch_xla, "sync"):
        torch_xla.sync()
    else:
        _xla_model().mark_step()


def _over_hosts(xm: Any, tensors: Sequence[Tensor]) -> None:
    """Ordinal 0 adds up over the hosts; the others take it from there: they add zeros to its sum."""
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
