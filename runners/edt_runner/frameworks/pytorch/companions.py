"""State of a training that is in neither the model nor its optimizers: schedulers, averages of weights, and whatever
else the optimizer's hooks hold.

These objects are found: schedulers that are bound to one of the optimizers, and objects with ``state_dict`` and
``load_state_dict`` that hooks of the optimizers refer to. Every process runs the same script, so every process finds
the same objects in the same order. What they hold travels with the training's state.
"""

from __future__ import annotations

import functools
import gc
import json
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from edt_runner.callbacks.hooks import Memory
from edt_runner.callbacks.records import has_state_dict, is_of_the_script
from edt_runner.errors import StateMismatch

_DEPTH = 4
"""How many references are followed from a hook."""


class Companions:
    """The objects, and what they remember.

    Args:
        objects: the objects, in an order that is the same in every process.
        model_parts: parts of the model and the optimizers, as ``Memory`` takes them.
    """

    def __init__(self, objects: Sequence[Any], model_parts: Sequence[Any]) -> None:
        self._objects = list(objects)
        self._memories = [Memory(each, type(each).__name__, model_parts) for each in self._objects]
        self._records: list[Any] = []

    @property
    def objects(self) -> list[Any]:
        return list(self._objects)

    @property
    def kinds(self) -> list[str]:
        """The class of each object."""
        return [type(each).__qualname__ for each in self._objects]

    def export(self) -> tuple[list[Any], dict[str, Tensor]]:
        """Return what the objects remember: plain JSON for each, and tensors by name, which are not copied."""
        records: list[Any] = []
        tensors: dict[str, Tensor] = {}
        for index, memory in enumerate(self._memories):
            record, own = memory.export()
            records.append([type(self._objects[index]).__qualname__, record])
            tensors |= {f"{index}.{place}": tensor for place, tensor in own.items()}
        return records, dict(sorted(tensors.items()))

    def begin_import(self, records: Sequence[Any], shapes: Mapping[str, Any]) -> dict[str, Tensor]:
        """Take the plain part of a state, and return tensors by name to which its tensors are to be written.

        Raises:
            StateMismatch: this process has other objects.
        """
        kinds = [kind for kind, _ in records]
        if kinds != self.kinds:
            raise StateMismatch(
                f"beside model and optimizer, the training has the state of {', '.join(kinds) or 'nothing'}, this "
                f"process that of {', '.join(self.kinds) or 'nothing'}; every process must make the same schedulers "
                "and averages before train()"
            )
        self._records = [record for _, record in records]
        return {name: torch.empty(shape, dtype=getattr(torch, dtype)) for name, (dtype, shape) in shapes.items()}

    def end_import(self, tensors: Mapping[str, Tensor]) -> None:
        """Make the objects remember the state, whose tensors are filled now."""
        for index, (memory, record) in enumerate(zip(self._memories, self._records, strict=True)):
            start = f"{index}."
            own = {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}
            memory.restore(record, own)


def found(optimizers: Sequence[torch.optim.Optimizer], given: Iterable[Any], model_parts: Sequence[Any]) -> list[Any]:
    """Find the objects whose state travels with a training.

    Args:
        optimizers: the user's optimizers.
        given: schedulers that the user has given; they come first.
        model_parts: parts of the model and the optimizers, which are no companions.
    """
    objects = list(given)
    known = {id(each) for each in (*objects, *model_parts)}
    schedulers = sorted(schedulers_of(optimizers), key=lambda each: _key(each, optimizers))
    for each in (*schedulers, *_held_by_hooks(optimizers)):
        if id(each) not in known:
            known.add(id(each))
            objects.append(each)
    return objects


def schedulers_of(optimizers: Sequence[torch.optim.Optimizer]) -> list[LRScheduler]:
    """All schedulers of this process that are bound to one of the optimizers.

    Optimizers do not refer to their schedulers, so this looks through all objects of the process, which takes some
    hundredths of a second.
    """
    own = {id(optimizer) for optimizer in optimizers}
    gc.collect()  # one that the script has dropped may still exist, but not in every process
    return [
        each
        for each in gc.get_objects()
        if issubclass(type(each), LRScheduler) and id(getattr(each, "optimizer", None)) in own
    ]


def _key(scheduler: LRScheduler, optimizers: Sequence[torch.optim.Optimizer]) -> tuple[int, str, str]:
    """An order of schedulers that is the same in every process, which has made them alike."""
    number = next(number for number, optimizer in enumerate(optimizers) if optimizer is scheduler.optimizer)
    return (
        number,
        type(scheduler).__qualname__,
        json.dumps(scheduler.state_dict(), sort_keys=True, default=_without_address),
    )


def _without_address(value: Any) -> str:
    return type(value).__qualname__


def _held_by_hooks(optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[Any]:
    """Objects with a state that the optimizers' step hooks refer to, in the order of the hooks."""
    for optimizer in optimizers:
        state: Any = optimizer  # torch has no public list of its hooks
        for hook in (*state._optimizer_step_pre_hooks.values(), *state._optimizer_step_post_hooks.values()):
            yield from _reachable(hook, set(), _DEPTH)


def _reachable(value: Any, seen: set[int], depth: int) -> Iterator[Any]:
    """Objects with a state to which ``value`` refers, directly or through at most ``depth`` other objects."""
    if id(value) in seen or depth < 0:
        return
    seen.add(id(value))
    if isinstance(value, torch.optim.Optimizer | types.ModuleType | type):
        return
    if isinstance(value, nn.Module) or has_state_dict(value):
        yield value
        return
    for part in _parts(value):
        yield from _reachable(part, seen, depth - 1)


def _parts(value: Any) -> Iterable[Any]:
    """What a function, a container or an object of the script refers to."""
    if isinstance(value, types.FunctionType):
        return [*_captured(value), *(value.__globals__.get(name) for name in value.__code__.co_names)]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return value
    return vars(value).values() if is_of_the_script(type(value)) and hasattr(value, "__dict__") else ()


def _captured(function: types.FunctionType) -> Iterator[Any]:
    """The variables of outer functions that a function uses, as far as they have values."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the cell is empty
            continue
