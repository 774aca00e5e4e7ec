"""The files of a PyTorch model that are written from a copy are those that are written from the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edt_runner.frameworks.pytorch.adapter import TorchAdapter
from edt_runner.frameworks.pytorch.files import exporter

FILES = ("model_epoch_1.pth", "model_epoch_1_optimizer_state.pth")


class Net(nn.Module):
    """Tied weights, a buffer that forward moves, and a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 4, bias=False)
        self.last.weight = self.first.weight
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.norm(self.first(x)))
        return found


class Named(Net):
    """A state with a part that is no tensor."""

    names: tuple[list[str], ...] = (["a"],)

    def get_extra_state(self) -> Any:
        return {"names": self.names[0]}

    def set_extra_state(self, state: Any) -> None: ...


def trained(kind: type[Net] = Net) -> tuple[Net, list[torch.optim.Optimizer]]:
    torch.manual_seed(0)
    net = kind()
    groups: list[dict[str, Any]] = [{"params": net.first.parameters()}, {"params": net.norm.parameters(), "lr": 0.5}]
    optimizer = torch.optim.AdamW(groups)
    step(net, optimizer)
    return net, [optimizer]


def step(net: Net, optimizer: torch.optim.Optimizer) -> None:
    net(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()


def read(folder: Path) -> list[Any]:
    return [torch.load(folder / name, weights_only=False) for name in FILES]


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, Tensor):
        return type(ours) is type(theirs) and ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    if isinstance(ours, dict):
        return list(ours) == list(theirs) and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list | tuple):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs)


def written_late(net: Net, optimizers: list[torch.optim.Optimizer], folder: Path, between: Callable[[], None]) -> None:
    """Write the files after ``between``, which runs before the copy as forward passes may."""
    copy = exporter(net, optimizers)()
    between()
    save = copy()
    step(net, optimizers[0])
    save(folder, "model_epoch_1")


def test_a_copy_is_what_the_model_was_even_if_passes_and_steps_follow(tmp_path: Path) -> None:
    net, optimizers = trained()
    adapter = TorchAdapter(net, optimizers[0], nn.functional.mse_loss, {}, torch.device("cpu"))
    adapter.save_for_user(tmp_path / "model", "model_epoch_1")

    def passes() -> None:
        net(torch.randn(8, 4))  # moves the running mean
        optimizers[0].param_groups[0]["lr"] = 9.0

    written_late(net, optimizers, tmp_path / "copy", passes)
    assert same(read(tmp_path / "copy"), read(tmp_path / "model"))


def test_tied_weights_are_in_the_file_once_as_when_the_model_is_written(tmp_path: Path) -> None:
    net, optimizers = trained()
    written_late(net, optimizers, tmp_path, lambda: None)
    weights = read(tmp_path)[0]
    assert weights["first.weight"].data_ptr() == weights["last.weight"].data_ptr()


def test_several_optimizers_are_a_list(tmp_path: Path) -> None:
    net, [first] = trained()
    second = torch.optim.SGD([net.frozen], 0.1)
    written_late(net, [first, second], tmp_path, lambda: None)
    states = read(tmp_path)[1]
    assert [len(state["param_groups"]) for state in states] == [2, 1]


def test_what_is_no_tensor_is_copied_at_once(tmp_path: Path) -> None:
    net, optimizers = trained(Named)
    assert isinstance(net, Named)
    written_late(net, optimizers, tmp_path, lambda: net.names[0].append("between"))
    assert read(tmp_path)[0]["_extra_state"] == {"names": ["a"]}
