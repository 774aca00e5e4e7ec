"""Corners of PyTorch alone; what all adapters promise is in test_adapters."""

from __future__ import annotations

from typing import Any

import pytest

from edt_runner.errors import UnsupportedState
from support.sides import PyTorch, carry, step

SIDE = PyTorch()


def test_what_a_script_has_changed_in_an_optimizers_groups_is_carried() -> None:
    first, second = _adapter("decaying"), _adapter("decaying")
    step(first, SIDE.batch(1))
    first.optimizers.param_groups[0]["weight_decay"] = 0.01
    carry(first, second)
    for adapter in (first, second):
        step(adapter, SIDE.batch(2))
    assert first.digest() == second.digest()
    assert second.optimizers.param_groups[0]["weight_decay"] == 0.01


def test_optimizer_state_that_cannot_travel_is_named() -> None:
    adapter = _adapter("adam")
    step(adapter, SIDE.batch())
    next(iter(adapter.optimizers.members[0].state.values()))["history"] = object()
    with pytest.raises(UnsupportedState, match="'history' is a object"):
        adapter.export_state()


def test_batch_normalization_counts_one_batch_a_step() -> None:
    adapter = SIDE.adapter("normed")
    step(adapter, SIDE.batch(1), SIDE.batch(2))
    assert int(SIDE.state(adapter)["0/num_batches_tracked"]) == 1


def _adapter(optimizer: str) -> Any:
    return SIDE.adapter("linear", optimizer)
