"""How the gradients of several processes are added up. Room: runners; torch, and torch_xla where it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from variable_batch_size import hosts

_BUCKET_BYTES = 32 * 1024 * 1024
"""Gradients are added up in pieces of this size: the memory that it takes beside them."""


class Collective(Protocol):
    """The processes of a training."""

    size: int

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Put into each tensor its sum over all processes. All call it with the same shapes."""


class Alone:
    """One process."""

    size = 1

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        pass


class Group:
    """A process group of torch.distributed: gloo, NCCL."""

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self.size = dist.get_world_size(group)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            dist.all_reduce(flat, group=self._group)
            start = 0
            for tensor in bucket:
                tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
                start += tensor.numel()


class Xla:
    """torch_xla: the devices of this host, and further hosts as ``hosts`` ties them."""

    def __init__(self) -> None:
        self.size = hosts.xla_world()[1] * hosts.host_count()

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        hosts.all_reduce_tensors(list(tensors), 1.0)


def world() -> tuple[int, int]:
    """(rank, processes): the process group's, torch_xla's, or (0, 1)."""
    if dist.is_available() and dist.is_initialized() and hosts.host_count() == 1:
        return dist.get_rank(), dist.get_world_size()
    if hosts.xla_is_loaded():
        rank, size = hosts.xla_world()
        return rank + hosts.host_ordinal() * size, size * hosts.host_count()
    return 0, 1


def collective(device: torch.device, processes: int, group: Any = None) -> Collective:
    """What adds up for ``processes`` processes with parameters on ``device``.

    Raises:
        RuntimeError: there are not that many processes to add up with.
    """
    found: Collective
    if device.type == "xla":
        found = Xla()
    elif dist.is_available() and dist.is_initialized():
        found = Group(group)
    else:
        found = Alone()
    if found.size != processes:
        raise RuntimeError(
            f"the sampler deals out to {processes} processes, and {found.size} can add up their gradients: give it "
            "num_replicas and rank of the process group, or call torch.distributed.init_process_group first"
        )
    return found


def _buckets(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Tensors of one kind and place, as many as fit, in an order that is the same in every process."""
    buckets: list[list[Tensor]] = []
    open_ones: dict[tuple[torch.dtype, torch.device], int] = {}
    filled: dict[tuple[torch.dtype, torch.device], int] = {}
    for tensor in tensors:
        kind = (tensor.dtype, tensor.device)
        size = tensor.numel() * tensor.element_size()
        if kind not in open_ones or filled[kind] + size > _BUCKET_BYTES:
            open_ones[kind], filled[kind] = len(buckets), 0
            buckets.append([])
        buckets[open_ones[kind]].append(tensor)
        filled[kind] += size
    return buckets
