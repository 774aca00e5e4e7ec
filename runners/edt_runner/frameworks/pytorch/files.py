"""Writes the files of a PyTorch model that a user downloads, from a copy, while the training goes on.

They are the same files that ``TorchAdapter.save_for_user`` writes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edt_runner import host_copies
from edt_runner.checkpoints.user_files import Copy, Save, draft_of


def exporter(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> Callable[[], Copy]:
    """Make what ``UserFiles`` calls at the end of an epoch.

    Parameters and the optimizer's tensors are copied in another thread, since only a step changes them. A forward pass
    changes buffers, and anything else may change too, so this is copied at once.
    """

    def export() -> Copy:
        state = model.state_dict(keep_vars=True)
        now: dict[Any, Any] = {}
        weights = {
            key: value if isinstance(value, nn.Parameter) else _copied(value, now) for key, value in state.items()
        }
        states = [_without_tensors(optimizer.state_dict()) for optimizer in optimizers]
        ready = host_copies.moment(value for value in weights.values() if isinstance(value, Tensor))
        return partial(_copy, weights, states[0] if len(states) == 1 else states, ready)

    return export


def _copy(weights: Mapping[str, Any], states: Any, ready: Any) -> Save:
    with torch.no_grad(), host_copies.beside(ready):
        known: dict[Any, Any] = {}
        model = {key: _copied(value, known) for key, value in weights.items()}
        return partial(_save, model, _copied(states, known))


def _save(model: Mapping[str, Any], states: Any, folder: Path, name: str) -> None:
    for path, content in ((folder / f"{name}.pth", model), (folder / f"{name}_optimizer_state.pth", states)):
        with draft_of(path) as draft:
            torch.save(content, draft)


def _without_tensors(value: Any) -> Any:
    """The value with tensors by reference, and copies of everything else."""
    if isinstance(value, Tensor):
        return value
    if type(value) is dict:
        return {key: _without_tensors(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_without_tensors, value))
    return copy.deepcopy(value)


def _copied(value: Any, known: dict[Any, Any]) -> Any:
    """The value with copies of its tensors in host memory. Tensors that share memory do so in the copy: a file holds
    tied weights once.

    Args:
        value: tensors, perhaps in dicts, lists and tuples.
        known: copies that were made before, by what they are copies of.
    """
    if isinstance(value, Tensor):
        return _copied_tensor(value.detach(), known)
    if type(value) is dict:
        return {key: _copied(part, known) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(part, known) for part in value)
    return copy.deepcopy(value)


def _copied_tensor(tensor: Tensor, known: dict[Any, Any]) -> Tensor:
    if type(tensor) is not Tensor or tensor.layout is not torch.strided or tensor.is_quantized:
        return tensor.clone().cpu()
    storage = tensor.untyped_storage()
    place = (storage.data_ptr(), storage.nbytes(), storage.device)
    if place not in known:
        untyped: Any = storage
        known[place] = untyped.clone() if storage.device.type == "cpu" else untyped.cpu()
    made = torch.empty(0, dtype=tensor.dtype)
    made.set_(known[place], tensor.storage_offset(), tensor.size(), tensor.stride())
    return made
