"""Copies between a GPU and host memory beside the training: what they wait for, and what waits for them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from edt_runner import host_copies
from edt_runner.adapter import State
from edt_runner.checkpoints.snapshot import HostCopy
from edt_runner.checkpoints.user_files import Copy
from edt_runner.frameworks.flat import checksums
from edt_runner.frameworks.pytorch import files
from support.late_copies import StandIn
from support.waiting import until

cuda: Any = torch.cuda
TENSORS = {
    "model.a": torch.randn(1234, generator=torch.Generator().manual_seed(0)),
    "model.b": torch.arange(77),
    "model.c": torch.randn(30, 41, generator=torch.Generator().manual_seed(1)).t(),
    "model.d": torch.empty(0, 3),
    "optimizer.0.step": torch.tensor(5.0),
}


def away(tensor: Tensor) -> bool:
    return tensor.is_floating_point()


def test_each_tensor_comes_to_host_memory_whole_through_two_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_copies, "PIECE_BYTES", 512)
    gpu = StandIn(monkeypatch, away)
    found = list(host_copies.in_host_memory(TENSORS.values(), "then"))
    for tensor, expected in zip(found, TENSORS.values(), strict=True):
        assert tensor.is_contiguous() and tensor.dtype == expected.dtype
        assert torch.equal(tensor, expected)
    assert [(each.memory_bytes, each.moments) for each in gpu.made] == [(1024, ["then"])]


def test_what_is_in_host_memory_already_is_not_copied() -> None:
    found = list(host_copies.in_host_memory(TENSORS.values()))
    assert [tensor.data_ptr() for tensor in found[:2]] == [TENSORS["model.a"].data_ptr(), TENSORS["model.b"].data_ptr()]
    assert host_copies.marked(lambda: State({}, TENSORS))().ready is None


def test_checksums_are_those_of_the_same_tensors_in_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = checksums(State({}, TENSORS))
    monkeypatch.setattr(host_copies, "PIECE_BYTES", 512)
    gpu = StandIn(monkeypatch, away)
    assert checksums(host_copies.marked(lambda: State({}, TENSORS))()) == expected
    assert [each.moments for each in gpu.made] == [["now"]]


def test_a_checkpoints_copy_is_there_when_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = StandIn(monkeypatch, away)
    gpu.may_end.clear()
    with ThreadPoolExecutor(1) as pool:
        copying = pool.submit(HostCopy(), host_copies.marked(lambda: State({}, TENSORS))())
        until(lambda: gpu.made, what="the copy has begun")
        assert not copying.done()
        gpu.may_end.set()
        copied = copying.result(30)
    assert all(torch.equal(copied.tensors[name], tensor) for name, tensor in TENSORS.items())
    assert gpu.made[0].moments == ["now"]


# ── on a GPU ────────────────────────────────────────────────────────────────────────────────────────────────────
_CYCLES = 4_000_000_000
"""Of a GPU: two seconds or more."""


def on_gpu() -> dict[str, Tensor]:
    tensors = {name: tensor.cuda() for name, tensor in TENSORS.items()}
    return tensors | {"model.large": torch.randn(3000, 2001, device="cuda").t()}


@pytest.mark.cuda
@pytest.mark.parametrize("what", ["checkpoint", "checksums", "files"])
def test_a_copy_waits_for_no_kernel_that_was_begun_after_the_export(what: str, tmp_path: Path) -> None:
    """And the kernels do not wait for it: they are still under way when it is complete."""
    tensors = on_gpu()
    model = nn.Linear(900, 1100, device="cuda")
    expected = {name: tensor.cpu() for name, tensor in tensors.items()}
    weight = model.weight.detach().cpu()
    copy, export = HostCopy(), host_copies.marked(lambda: State({}, tensors))
    exporter = files.exporter(model, [torch.optim.SGD(model.parameters(), 0.1)])
    for is_measured in (False, True):  # what is only made once, is made in the first round
        exported, files_copy = export(), exporter()
        torch.cuda.synchronize()
        if is_measured:
            cuda._sleep(_CYCLES)
        after = torch.cuda.current_stream().record_event()
        found: list[object] = []

        def run(found: list[object] = found, exported: State = exported, files_copy: Copy = files_copy) -> None:
            if what == "checkpoint":
                found.append(copy(exported))
            else:
                found.append(checksums(exported) if what == "checksums" else files_copy())

        thread = threading.Thread(target=run)  # as in a training: its present stream is the default one
        thread.start()
        thread.join(60)
        if is_measured:
            assert not after.query(), "the copy has waited for the kernel"
    if what == "checkpoint":
        assert isinstance(found[0], State)
        assert all(torch.equal(found[0].tensors[name], tensor) for name, tensor in expected.items())
    elif what == "checksums":
        assert found[0] == checksums(State({}, expected))
    else:
        found[0](tmp_path, "model")  # type: ignore[operator]
        assert torch.equal(torch.load(tmp_path / "model.pth")["weight"], weight)


@pytest.mark.cuda
def test_a_copy_waits_for_the_kernels_before_the_export() -> None:
    tensor = torch.zeros(1 << 20, device="cuda")
    copy = HostCopy()
    copy(State({}, {"a": tensor}))
    cuda._sleep(_CYCLES // 4)
    tensor.fill_(1.0)
    exported = host_copies.marked(lambda: State({}, {"a": tensor}))()
    begun = time.monotonic()
    assert bool((copy(exported).tensors["a"] == 1.0).all())
    assert time.monotonic() - begun > 0.1
