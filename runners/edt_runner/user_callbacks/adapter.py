"""An adapter whose state has beside the framework's what a user's callbacks remember. Room: runners; torch.

So it goes wherever the state goes: to newcomers, to engines that are behind, to the driver, into checkpoints. The
driver runs no hooks; it keeps what it was given, to give it on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch

from edt_runner.engine.adapter import State
from edt_runner.trainable import EngineAdapter
from edt_runner.user_callbacks.hooks import UserCallbacks

_KEY, _PREFIX = "callbacks", "callback."


class _Carrying:
    """Everything else is the inner adapter's."""

    def __init__(self, inner: EngineAdapter, callbacks: UserCallbacks | None) -> None:
        self._inner, self._callbacks = inner, callbacks
        self._told: Mapping[str, Any] | None = None
        self._tensors: dict[str, torch.Tensor] = {}
        """As received."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def export_state(self) -> State:
        state = self._inner.export_state()
        told, tensors = (self._told, self._tensors) if self._callbacks is None else self._callbacks.export()
        own = {f"{_PREFIX}{name}": tensor for name, tensor in tensors.items()}
        return State({**state.meta, _KEY: told}, {**state.tensors, **own}, state.names)

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Any]:
        self._told = meta[_KEY]
        if self._callbacks is not None and self._told is not None:
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
            self._callbacks.restore(self._told, self._tensors)


def carrying(inner: EngineAdapter, callbacks: UserCallbacks | None) -> EngineAdapter:
    """``inner`` with the memory of ``callbacks``; None: the driver's, which only keeps it."""
    return cast(EngineAdapter, _Carrying(inner, callbacks))
