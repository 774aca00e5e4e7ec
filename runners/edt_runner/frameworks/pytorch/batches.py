"""Micro-batches of any nesting: how samples are stacked, moved to a device, and given to a model and a loss.

A batch is one of

    (inputs, targets)             as most data sets give it; more than two parts: the last is the targets
    a mapping or a dataclass      by name; ``labels`` (or ``label``, ``labels_ids``, ``target``, ``targets``, ``y``) are
                                  the targets
    anything else                 the inputs, without targets

A named tuple is a tuple. Each part may be nested in turn.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from edt_runner.errors import UsageError

TARGET_NAMES = ("labels", "label", "label_ids", "targets", "target", "y")
"""Names under which a batch by names may have its targets; the first that occurs counts."""
IGNORED = -100
"""Targets of this value count in no loss of torch's or of ``transformers``."""


class Call(NamedTuple):
    """What a model is called with, and the targets of the batch."""

    positional: tuple[Any, ...]
    named: Mapping[str, Any]
    targets: Any
    """None: the batch has none."""


def stacked(samples: Sequence[Any]) -> Any:
    """Stack samples as torch's default function does, and dataclasses field by field."""
    first = samples[0]
    if is_record(first):
        names = [field.name for field in dataclasses.fields(first)]
        return dataclasses.replace(first, **{name: stacked([getattr(s, name) for s in samples]) for name in names})
    if isinstance(first, Mapping) and any(map(_holds_record, first.values())):
        return {name: stacked([sample[name] for sample in samples]) for name in first}
    if isinstance(first, tuple | list) and any(map(_holds_record, first)):
        parts = [stacked(list(part)) for part in zip(*samples, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else parts
    return default_collate(list(samples))


def is_record(value: Any) -> bool:
    """Whether a value is a dataclass of the user's. A model's output of ``transformers`` is a mapping instead."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type | Mapping)


def _holds_record(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_record, value.values()))
    if isinstance(value, tuple | list):
        return any(map(_holds_record, value))
    return is_record(value)


def moved(value: Any, device: torch.device) -> Any:
    """Move the tensors inside a batch to the device. Containers keep their types where that is possible."""
    return mapped(value, lambda tensor: _to(tensor, device))


def _to(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor. To a GPU it goes through pinned memory, so that this process need not wait for it."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class Placed:
    """A batch that is being copied to a GPU beside the training.

    Args:
        batch: the batch in host memory.
        device: the GPU.
        stream: the CUDA stream of such copies.
    """

    def __init__(self, batch: Any, device: torch.device, stream: Any) -> None:
        self._device, self.host = device, batch
        with torch.cuda.stream(stream):
            self._batch = moved(batch, device)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record(stream)

    def arrived(self) -> Any:
        """Return the batch on the GPU, for work that the calling thread launches from now on."""
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(self._copied)
        return mapped(self._batch, lambda tensor: _used_on(tensor, stream))


def _used_on(tensor: Tensor, stream: Any) -> Tensor:
    """Let the memory of a tensor be used again only when this stream is done with it."""
    if tensor.is_cuda:
        tensor.record_stream(stream)
    return tensor


def mapped(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """Apply a function to the tensors inside a batch. Containers keep their types where that is possible."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Mapping):
        found = {key: mapped(item, function) for key, item in value.items()}
        if type(value) is dict or not hasattr(value, "update"):
            return found
        value = value.copy() if hasattr(value, "copy") else value  # such as BatchEncoding, which has more than its keys
        value.update(found)
        return value
    if isinstance(value, list | tuple):
        items = [mapped(item, function) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if is_record(value):
        return dataclasses.replace(
            value, **{field.name: mapped(getattr(value, field.name), function) for field in dataclasses.fields(value)}
        )
    return value


def call_of(model: nn.Module, batch: Any, *, keeps_targets: bool) -> Call:
    """Return how ``model`` is called with a batch.

    Args:
        model: the user's model.
        batch: a batch in one of the forms of this module.
        keeps_targets: whether the model computes its own loss, so that it gets the targets, too.
    """
    if is_record(batch):
        batch = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
    if isinstance(batch, Mapping):
        name = next((name for name in TARGET_NAMES if name in batch), None)
        targets = batch[name] if name is not None else None
        named = {key: value for key, value in batch.items() if keeps_targets or key != name}
        return Call((), named, targets)
    if isinstance(batch, tuple | list) and len(batch) > 1:
        *inputs, targets = batch
        if keeps_targets:
            return Call(tuple(batch), {}, targets)
        if len(inputs) == 1 and isinstance(inputs[0], Mapping) and _takes_names(model, inputs[0]):
            return Call((), inputs[0], targets)
        return Call(tuple(inputs), {}, targets)
    return Call((batch[0] if isinstance(batch, tuple | list) and len(batch) == 1 else batch,), {}, None)


def _takes_names(model: nn.Module, inputs: Mapping[str, Any]) -> bool:
    """Whether ``forward`` has a parameter for each name; else it gets the mapping itself."""
    try:
        inspect.signature(model.forward).bind(**inputs)
    except (TypeError, ValueError):
        return False
    return True


def outputs_of(returned: Any) -> Any:
    """What metrics see of a model's output: its ``logits``, if it has them, as outputs of ``transformers`` do."""
    found = getattr(returned, "logits", None)
    return returned if found is None else found


def own_loss(returned: Any) -> Tensor:
    """The loss that a model has computed itself.

    Raises:
        UsageError: there is none in what the model returned.
    """
    found = returned
    if isinstance(returned, Mapping):
        found = returned.get("loss")
    elif hasattr(returned, "loss"):
        found = returned.loss
    elif isinstance(returned, tuple | list) and returned:
        found = returned[0]
    if not isinstance(found, Tensor) or found.dim():
        raise UsageError(
            f"loss_function: got None, but the model returned {type(returned).__name__} without a scalar loss; takes "
            "a function (outputs, targets) -> loss, or a model that returns its loss, which models of transformers do "
            "if a batch has labels"
        )
    return found


def counter_of_tokens(model: nn.Module) -> Callable[[Any], int]:
    """Return the function that counts the tokens of a batch if the user gave none: targets that are not -100.

    A causal language model of ``transformers`` shifts its labels, so the first of each row does not count.
    """
    shifts = "ForCausalLM" in str(getattr(model, "loss_type", None) or type(model).__name__)

    def count(batch: Any) -> int:
        targets = call_of(model, batch, keeps_targets=False).targets
        if not isinstance(targets, Tensor):
            raise UsageError(
                "loss_reduction: got 'token', but the batch has no tensor of targets to count; give token_count, a "
                "function batch -> number of tokens"
            )
        counted = targets[..., 1:] if shifts else targets
        return int((counted != IGNORED).sum())

    return count
