"""An adapter that judges each training step before it is taken: are its loss and its gradient finite numbers?

The judgement is made on the reduced vector, which all engines hold, so all engines judge alike. In half precision a
gradient may overflow because the loss's scale is too large; the framework's adapter leaves such a step out itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from torch import Tensor

from edt_runner.adapter import State
from edt_runner.errors import NotFinite
from edt_runner.frameworks.flat import squared_norm
from edt_runner.frameworks.trainable import EngineAdapter
from edt_runner.schedule import StepKind

_KEY = "skipped_steps"


class _Judging:
    """An adapter that takes only finite steps. All other methods are the inner adapter's."""

    def __init__(self, inner: EngineAdapter, *, skips: bool) -> None:
        self._inner, self._skips, self._skipped = inner, skips, 0
        self._left_out = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def apply(self, reduced: Tensor) -> bool:
        finite = self._inner.has_finite_gradient(reduced)
        loss = self._inner.loss(self._inner.sums(StepKind.TRAIN, reduced))
        self._left_out = False
        if (finite and math.isfinite(loss)) or self._inner.absorbs(reduced):
            return self._inner.apply(reduced)
        if not self._skips:
            norm = math.sqrt(squared_norm(reduced[: self._inner.gradient_size]))
            raise NotFinite(loss, norm, self._inner.learning_rate)
        self._skipped += 1
        self._left_out = True
        return True

    @property
    def left_out(self) -> bool:
        return self._left_out or self._inner.left_out

    def details(self) -> dict[str, float]:
        own = {_KEY: float(self._skipped)} if self._skipped else {}
        return {**self._inner.details(), **own}

    def export_state(self) -> State:
        state = self._inner.export_state()
        return replace(state, meta={**state.meta, _KEY: self._skipped})

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Any]:
        self._skipped = int(meta.get(_KEY, 0))
        return self._inner.begin_import({key: value for key, value in meta.items() if key != _KEY}, shapes)


def judging(inner: EngineAdapter, on_nonfinite: str) -> EngineAdapter:
    """An adapter like ``inner`` that does with a step that is not finite what ``on_nonfinite`` says.

    Args:
        inner: the adapter.
        on_nonfinite: "stop": ``apply`` raises NotFinite, and the state stays as it was. "skip": the step is left out.
            "continue": the step is taken.
    """
    if on_nonfinite == "continue":
        return inner
    return cast(EngineAdapter, _Judging(inner, skips=on_nonfinite == "skip"))
