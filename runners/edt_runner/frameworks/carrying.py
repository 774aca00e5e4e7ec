"""An adapter whose state also has what a user's callbacks remember."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch

from edt_runner.adapter import State
from edt_runner.callbacks.hooks import UserCallbacks
from edt_runner.frameworks.trainable import EngineAdapter

_KEY, _PREFIX = "callbacks", "callback."


class _Carrying:
    """An adapter whose state also has what callbacks remember, beside the framework's own state.

    The callbacks' memory therefore goes wherever the state goes: to joining engines, to engines that are behind, to
    the driver, and into checkpoints. The driver runs no hooks. It keeps the memory that it has received, and sends it
    on. All other methods are the inner adapter's.
    """

    def __init__(self, inner: EngineAdapter, callbacks: UserCallbacks | None) -> None:
        self._inner, self._callbacks = inner, callbacks
        self._record: Mapping[str, Any] | None = None
        self._tensors: dict[str, torch.Tensor] = {}
        """The callbacks' tensors, as received."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def export_state(self) -> State:
        state = self._inner.export_state()
        record, tensors = (self._record, self._tensors) if self._callbacks is None else self._callbacks.export()
        own = {f"{_PREFIX}{name}": tensor for name, tensor in tensors.items()}
        return State({**state.meta, _KEY: record}, {**state.tensors, **own}, state.names)

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Any]:
        self._record = meta.get(_KEY)
        if self._callbacks is not None and self._record is not None:
            self._callbacks.enter()
        own = {name: shape for name, shape in shapes.items() if name.startswith(_PREFIX)}
        places = {name: torch.empty(shape, dtype=getattr(torch, dtype)) for name, (dtype, shape) in own.items()}
        self._tensors = {name.removeprefix(_PREFIX): place for name, place in places.items()}
        inner = self._inner.begin_import(
            {key: value for key, value in meta.items() if key != _KEY},
            {name: shape for name, shape in shapes.items() if name not in own},
        )
        return {**inner, **places}

    def end_import(self) -> None:
        self._inner.end_import()
        if self._callbacks is not None:
            self._callbacks.restore(self._record, self._tensors)


def carrying(inner: EngineAdapter, callbacks: UserCallbacks | None) -> EngineAdapter:
    """An adapter like ``inner`` whose state also has the memory of ``callbacks``.

    Args:
        inner: the framework's adapter.
        callbacks: the engine's callbacks; None in the driver, which only keeps their memory.
    """
    return cast(EngineAdapter, _Carrying(inner, callbacks))
