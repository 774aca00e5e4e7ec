"""Copies of a PyTorch state: they stand still while the training goes on, and safetensors reads their file."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from edt_runner.adapter import State
from edt_runner.checkpoints.snapshot import HostCopy, Snapshots, read_state, write_state
from edt_runner.errors import UnsupportedState
from edt_runner.frameworks.pytorch.adapter import TorchAdapter
from edt_runner.host_copies import marked
from edt_runner.schedule import StepKind

CPU = torch.device("cpu")


def training(device: torch.device = CPU, width: int = 64) -> TorchAdapter:
    model = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    adapter = TorchAdapter(model, optimizer, lambda outputs, targets: ((outputs - targets) ** 2).mean(), {}, device)
    step(adapter, width, device)
    return adapter


def step(adapter: TorchAdapter, width: int = 64, device: torch.device = CPU) -> None:
    leaf = torch.empty(adapter.size(StepKind.TRAIN), device=device)
    adapter.micro_batch((torch.randn(4, width), torch.randn(4, 1)), 4, 4, 0, leaf)
    adapter.apply(leaf)


def test_what_changes_after_the_copy_does_not_show_in_the_checkpoint(tmp_path: Path) -> None:
    """The disk is held up until ten more steps are done."""
    adapter, copy_may_be_written = training(), threading.Event()

    def write(offset: int, metric_sums: Mapping[str, Any], state: State) -> None:
        assert copy_may_be_written.wait(60)
        write_state(tmp_path / "state", state)

    notes: list[str] = []
    snapshots = Snapshots(10.0, adapter.export_state, HostCopy(), write, notes.append)
    expected = adapter.digest()
    snapshots.begin(1, {}, force=True)
    for _ in range(10):
        snapshots.wait_copied()
        step(adapter)
    copy_may_be_written.set()
    snapshots.finish()
    assert not notes and adapter.digest() != expected
    other = training()
    read_state(tmp_path / "state", other, adapter.export_state().meta)
    assert other.digest() == expected


def test_the_memory_of_one_copy_serves_the_next() -> None:
    adapter = training()
    copy = HostCopy()
    first = {name: tensor.data_ptr() for name, tensor in copy(adapter.export_state()).tensors.items()}
    step(adapter)
    second = copy(adapter.export_state()).tensors
    assert {name: tensor.data_ptr() for name, tensor in second.items()} == first
    assert torch.equal(second["model.0.weight"], adapter.model[0].weight)
    own = {tensor.data_ptr() for tensor in adapter.export_state().tensors.values()}
    assert own.isdisjoint(first.values())


def test_state_that_comes_later_or_changes_its_shape_gets_memory_of_its_own() -> None:
    tensors = {"a": torch.ones(2)}
    copy, state = HostCopy(), State({}, tensors)
    assert list(copy(state).tensors) == ["a"]
    tensors |= {"a": torch.ones(3), "b": torch.zeros(())}
    found = copy(state).tensors
    assert torch.equal(found["a"], torch.ones(3)) and found["b"].shape == ()
    del tensors["a"]
    assert list(copy(state).tensors) == ["b"]


def test_every_type_and_layout_is_read_back_by_safetensors(tmp_path: Path) -> None:
    tensors = {
        str(dtype): torch.arange(5).to(dtype)
        for dtype in (
            *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
            *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
            *(torch.uint64, torch.uint32, torch.uint16, torch.float8_e4m3fn, torch.float8_e5m2),
        )
    }
    tensors |= {
        "scalar": torch.tensor(3.0),
        "empty": torch.empty(0, 4),
        "transposed": torch.randn(4, 3).t(),
        "channels last": torch.randn(1, 3, 4, 4).to(memory_format=torch.channels_last),
    }
    copied = HostCopy()(State({}, tensors))
    for name, state in (("copied", copied), ("as it is", State({}, tensors))):
        digest = write_state(tmp_path / name, state)
        assert digest == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        found = load_file(tmp_path / name)
        assert set(found) == set(tensors)
        for key, tensor in tensors.items():
            assert found[key].dtype == tensor.dtype and found[key].shape == tensor.shape
            assert torch.equal(
                found[key].reshape(-1).view(torch.uint8), tensor.contiguous().reshape(-1).view(torch.uint8)
            )


def test_a_state_without_tensors_is_a_file_too(tmp_path: Path) -> None:
    write_state(tmp_path / "state", State({}, {}))
    assert load_file(tmp_path / "state") == {}


def test_a_type_that_no_checkpoint_can_hold_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedState, match=r"optimizer\.0\.phase is torch\.complex64"):
        write_state(tmp_path / "state", State({}, {"optimizer.0.phase": torch.zeros(2, dtype=torch.complex64)}))


@pytest.mark.cuda
def test_on_a_gpu_the_copy_is_of_the_boundary_although_the_step_has_begun() -> None:
    device = torch.device("cuda:0")
    adapter = training(device, width=2048)
    snapshots = Snapshots(10.0, marked(adapter.export_state), copy := HostCopy(), lambda *_: None, pytest.fail)
    for offset in range(5):
        expected = {name: tensor.cpu().clone() for name, tensor in adapter.export_state().tensors.items()}
        snapshots.begin(offset, {}, force=True)
        leaf = torch.empty(adapter.size(StepKind.TRAIN), device=device)
        adapter.micro_batch((torch.randn(4, 2048), torch.randn(4, 1)), 4, 4, 0, leaf)
        snapshots.wait_copied()
        adapter.apply(leaf)
        snapshots.finish()
        found = copy._places
        assert all(place.is_pinned() for name, place in found.items() if name.startswith("model."))
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
