"""Gradients that DistributedDataParallel has left to each process. Room: runners; torch.

Its usual backward pass averages a micro-batch's gradients over the processes. Within ``no_sync()`` it does not; torch
then expects them in ``.grad``, from where the next pass without ``no_sync()`` takes them along. Here they are in a
cycle's sums by then, so those are averaged at the update. What was averaged before is alike everywhere and stays.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from edt_runner.pytorch.wrapping import in_group, wrapping


class Neighbours:
    """Of one optimizer's parameters in one cycle."""

    def __init__(self) -> None:
        self._models: list[weakref.ref[DistributedDataParallel]] | None = None
        self._left: dict[int, Any] = {}
        """Process group by parameter's place, of the models some of whose passes were not averaged."""

    def note(self, parameters: Sequence[Tensor]) -> None:
        """After a micro-batch's backward pass: whether its gradients are this process's own."""
        if not in_group():
            return
        for model in self._wrapping(parameters):
            if not model.require_forward_param_sync:  # its last forward pass was within no_sync()
                own = {id(parameter) for parameter in model.parameters()}
                places = (place for place, parameter in enumerate(parameters) if id(parameter) in own)
                self._left.update(dict.fromkeys(places, model.process_group))

    def average(self, sums: dict[int, Tensor], parameters: Sequence[Tensor]) -> None:
        """Into ``sums``, by place, their averages over the processes, which all come here at the same update."""
        for place, group in sorted(self._left.items()):
            parameter = parameters[place]
            there = parameter.new_tensor(float(place in sums))
            dist.all_reduce(there, group=group)
            if not there.item():
                continue  # used by nobody
            total = sums.get(place)
            total = parameter.detach().new_zeros(parameter.shape) if total is None else total
            total = total.to_dense() if total.is_sparse else total.contiguous()
            dist.all_reduce(total, group=group)
            sums[place] = total.div_(dist.get_world_size(group))
        self._left = {}

    def forget(self) -> None:
        self._left = {}

    def _wrapping(self, parameters: Sequence[Tensor]) -> list[DistributedDataParallel]:
        """Looked for once."""
        known = [] if self._models is None else [model for model in (found() for found in self._models) if model]
        if self._models is None or len(known) < len(self._models):  # one is gone, and there may be another
            known = wrapping(parameters)
            self._models = [weakref.ref(model) for model in known]
        return known
