"""``runai.ga.torch.optim``: checkpoints, copies and pickles, also in the middle of a cycle."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from runai.ga.torch import optim


def made(steps: int = 2, **options: Any) -> tuple[Tensor, optim.Accumulating]:
    weight = torch.nn.Parameter(torch.zeros(1))
    return weight, optim.SGD(steps, [weight], lr=1.0, momentum=0.5, **options)


def train(optimizer: Any, *slopes: float) -> float:
    (weight,) = optimizer.param_groups[0]["params"]
    for slope in slopes:
        optimizer.zero_grad()
        (slope * weight).sum().backward()
        optimizer.step()
    value: float = weight.item()
    return value


def stored(value: Any) -> Any:
    """Through a file, read by a loader that runs nothing it finds there."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - just written


def test_c1_21_the_counters_are_attributes_and_in_the_state_dict() -> None:
    _, optimizer = made(3)
    train(optimizer, 1, 1, 1, 1)
    assert (optimizer.runai.steps, optimizer.runai.step) == (3, 4)
    assert optimizer.state_dict()["state"]["runai"] is optimizer.runai
    for loaded in (pickled(optimizer.runai), stored(optimizer.state_dict())["state"]["runai"]):
        assert (loaded.steps, loaded.step) == (3, 4)
        assert (loaded["steps"], loaded["step"]) == (3, 4)


def test_c1_21_weights_only_loading_needs_nothing_of_this_package(tmp_path: Path) -> None:
    _, optimizer = made(3)
    train(optimizer, 1, 1, 1, 1)
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    script = (
        "import sys, torch; state = torch.load('state.pt', weights_only=True)['state']['runai']; "
        "assert 'runai' not in sys.modules; print(state.steps, state.step)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("3 4\n", "")


@pytest.mark.parametrize("before", [0, 1, 2, 3, 5])
def test_a_training_goes_on_from_a_checkpoint_at_any_micro_step(before: int) -> None:
    slopes = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0]
    straight = train(made()[1], *slopes)
    weight, optimizer = made()
    train(optimizer, *slopes[:before])
    state = stored(optimizer.state_dict())
    other, resumed = made()
    with torch.no_grad():
        other.copy_(weight)
    resumed.load_state_dict(state)
    assert resumed.runai.step == before
    assert train(resumed, *slopes[before:]) == straight


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled], ids=["copy", "pickle"])
@pytest.mark.parametrize("before", [1, 2])
def test_c1_23_a_copy_trains_on_by_itself(copied: Any, before: int) -> None:
    weight, optimizer = made(2, reduction="sum", sizes=[2, 1])
    train(optimizer, *[1.0] * before)
    stands = weight.item()
    twin = copied(optimizer)
    assert type(twin) is type(optimizer)
    assert (twin.runai.steps, twin.runai.step, twin.param_groups[0]["momentum"]) == (2, before, 0.5)
    trained = train(twin, 1, 1, 1)
    assert weight.item() == stands
    assert train(optimizer, 1, 1, 1) == trained


def test_the_whole_optimizer_is_saved_and_loaded() -> None:
    _, optimizer = made()
    train(optimizer, 1, 1, 1)
    file = io.BytesIO()
    torch.save(optimizer, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert type(loaded) is type(optimizer)
    assert train(loaded, 1) == train(optimizer, 1)


def test_another_number_of_steps_is_kept_when_a_checkpoint_is_loaded() -> None:
    _, optimizer = made(4)
    train(optimizer, *[1.0] * 8)
    _, other = made(2)
    other.load_state_dict(stored(optimizer.state_dict()))
    assert (other.runai.steps, other.runai.step) == (2, 4)
    assert train(other, 1, 1) == pytest.approx(-(1 + 0.5 * 1.5)), "momentum is the checkpoint's"


def test_another_number_of_steps_within_a_cycle_leaves_the_cycle_out_and_says_so() -> None:
    _, optimizer = made(4)
    train(optimizer, *[1.0] * 6)
    _, other = made(3)
    with pytest.warns(RuntimeWarning, match="after 2 of 4 micro-batches of an update and is loaded for 3 steps"):
        other.load_state_dict(optimizer.state_dict())
    assert (other.runai.step, other.runai.within) == (3, 0)


def test_a_plain_optimizers_checkpoint_begins_a_cycle() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    plain = torch.optim.SGD([weight], lr=1.0, momentum=0.5)
    train(plain, 2)
    _, optimizer = made()
    train(optimizer, 7)
    optimizer.load_state_dict(stored(plain.state_dict()))
    assert optimizer.runai.step == 0
    assert train(optimizer, 1, 1) == -(1 + 0.5 * 2)


def test_a_plain_optimizer_takes_an_accumulating_ones_checkpoint() -> None:
    _, optimizer = made()
    train(optimizer, 2, 2)
    weight = torch.nn.Parameter(torch.zeros(1))
    plain = torch.optim.SGD([weight], lr=1.0, momentum=0.5)
    plain.load_state_dict(stored(optimizer.state_dict()))
    assert train(plain, 1) == -(1 + 0.5 * 2)
    plain.state_dict()


class Theirs:
    """What the original puts into a state dict: a plain object of the class ``runai.ga.torch.optim.State``."""

    def __init__(self, steps: int, step: int) -> None:
        self.steps, self.step = steps, step


Theirs.__module__, Theirs.__qualname__, Theirs.__name__ = "runai.ga.torch.optim", "State", "State"


def as_the_original_writes_it(steps: int, step: int) -> io.BytesIO:
    _, optimizer = made(steps)
    train(optimizer, *[1.0] * step)
    packed, file = optimizer.state_dict(), io.BytesIO()
    packed["state"]["runai"] = Theirs(steps, step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optim, "State", Theirs)
        torch.save(packed, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("weights_only", [True, False])
def test_the_originals_checkpoints_are_read(weights_only: bool) -> None:
    _, optimizer = made(2)
    optimizer.load_state_dict(torch.load(as_the_original_writes_it(2, 4), weights_only=weights_only))
    assert (optimizer.runai.steps, optimizer.runai.step) == (2, 4)
    assert optimizer.state_dict()["state"][0]["momentum_buffer"].item() == 1.5


def test_the_originals_checkpoints_within_a_cycle_lack_its_gradients_which_is_said() -> None:
    _, optimizer = made(2)
    with pytest.warns(RuntimeWarning, match="after 1 of 2 micro-batches of an update and is loaded without its grad"):
        optimizer.load_state_dict(torch.load(as_the_original_writes_it(2, 5), weights_only=True))
    assert (optimizer.runai.step, optimizer.runai.within) == (4, 0)


def test_an_optimizer_takes_its_own_state_within_a_cycle() -> None:
    slopes = [3.0, 1.0, 4.0, 1.0]
    straight = train(made()[1], *slopes)
    optimizer = made()[1]
    train(optimizer, *slopes[:2])
    optimizer.load_state_dict(optimizer.state_dict())
    assert train(optimizer, *slopes[2:]) == straight
