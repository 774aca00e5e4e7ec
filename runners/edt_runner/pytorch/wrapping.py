"""Which DistributedDataParallel an optimizer's parameters are in. Room: runners; torch.

Neither parameters nor optimizers know it, so all objects of the process are looked through, which takes some
hundredths of a second.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence

import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel


def in_group() -> bool:
    """Whether this process is one of several of torch.distributed."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def wrapping(parameters: Sequence[Tensor]) -> list[DistributedDataParallel]:
    """Those that hold one of ``parameters``."""
    wanted = {id(parameter) for parameter in parameters}
    if _holding(wanted):
        gc.collect()  # one that nobody uses any more may not have gone yet
    return _holding(wanted)


def _holding(wanted: set[int]) -> list[DistributedDataParallel]:
    return [
        model
        for model in gc.get_objects()
        if issubclass(type(model), DistributedDataParallel) and any(id(each) in wanted for each in model.parameters())
    ]
