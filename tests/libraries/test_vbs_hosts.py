"""torch_xla's devices and several hosts of them. torch_xla is played by a stand-in: it cannot be installed here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import variable_batch_size as vbs
from variable_batch_size import collective

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def xla(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Two devices on this host, this one the second; the other has ones everywhere."""
    seen = SimpleNamespace(marks=0, reduced=[])

    def all_reduce(kind: str, tensors: list[torch.Tensor], scale: float) -> None:
        seen.reduced.append((kind, len(tensors)))
        for tensor in tensors:
            tensor.add_(1.0).mul_(scale)

    def mesh_reduce(tag: str, data: Any, reduce: Callable[[list[Any]], Any]) -> Any:
        return reduce([data, np.ones_like(data)])

    def sync() -> None:
        seen.marks += 1

    modules = {name: ModuleType(name) for name in ("torch_xla", "torch_xla.core", "torch_xla.core.xla_model")}
    modules["torch_xla.runtime"] = ModuleType("torch_xla.runtime")
    vars(modules["torch_xla"]).update(sync=sync)
    vars(modules["torch_xla.runtime"]).update(global_ordinal=lambda: 1, world_size=lambda: 2)
    vars(modules["torch_xla.core.xla_model"]).update(REDUCE_SUM="sum", all_reduce=all_reduce, mesh_reduce=mesh_reduce)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    yield seen


def test_c2_31_importing_it_says_nothing_and_imports_neither_torch_xla_nor_pandas() -> None:
    words = "import sys, variable_batch_size; print({'torch_xla', 'pandas', 'tensorflow', 'keras'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", words],
        env={"PYTHONPATH": str(REPOSITORY / "runners")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_the_devices_of_torch_xla_are_the_samplers_processes(xla: SimpleNamespace) -> None:
    sampler = vbs.CustomSampler(range(66), 8, minibatch_size=4, verbose=False)
    assert (sampler.rank, sampler.num_replicas) == (1, 2)
    found = collective.collective(torch.device("xla"), 2)
    gradient = torch.tensor([3.0])
    found.add_up([gradient])
    assert gradient.item() == 4.0 and xla.reduced == [("sum", 1)]


def test_the_originals_reductions_work_with_torch_xla(xla: SimpleNamespace) -> None:
    gradients = [torch.tensor([3.0]), torch.tensor([5.0])]
    vbs.all_reduce_tensors(gradients, 0.5)
    assert [gradient.item() for gradient in gradients] == [2.0, 3.0]
    assert vbs.all_reduce_tensors_mesh("norms", np.array([2.0, 4.0]), 0.5).tolist() == [1.5, 2.5]
    collective.mark_step()
    assert xla.marks == 1


def test_of_several_hosts_one_device_each_carries_the_sum(
    xla: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_HOST_WORLD_SIZE", "3")
    monkeypatch.setenv("MY_HOST_ORDINAL", "2")
    assert collective.world() == (5, 6)
    assert collective.Xla().size == 6
    gradient = torch.tensor([3.0])
    vbs.all_reduce_tensors([gradient], 1.0)  # this device is not the first: it takes what the first brings, a one
    assert gradient.item() == 1.0
    assert len(xla.reduced) == 2


def test_c2_31_the_originals_reductions_work_without_torch_xla() -> None:
    gradient = torch.tensor([3.0])
    vbs.all_reduce_tensors([gradient], 0.5)
    assert gradient.item() == 1.5
    assert vbs.all_reduce_tensors_mesh("norms", np.array([2.0]), 0.5).tolist() == [1.0]
    collective.mark_step()


def test_init_group_numbers_the_processes_of_all_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert vbs.init_group(3) == (3, 8)
    monkeypatch.setenv("MY_HOST_ORDINAL", "1")
    monkeypatch.setenv("MY_HOST_WORLD_SIZE", "2")
    monkeypatch.delenv("MY_DIST_ROOT", raising=False)
    assert vbs.init_group(3, cores_per_host=4) == (7, 8)
    with pytest.raises(ValueError, match="MY_DIST_ROOT: got nothing, takes address:port of host 0, for 2 hosts"):
        vbs.init_group(0)
