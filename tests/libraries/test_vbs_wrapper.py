"""``variable_batch_size``: its optimizers as torch Optimizers: logs, closures, copies, groups, scalers, checkpoints."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim.lr_scheduler import StepLR

import variable_batch_size as vbs
from support import regression
from support.vbs_rank import Training

CLOSE = {"rtol": 0.0, "atol": 1e-12}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_current_lr_is_the_coming_updates() -> None:
    training = Training(0, 1)
    assert training.optimizer.current_lr() == 0.02  # type: ignore[attr-defined]
    for _ in training.run(1):
        pass
    assert training.optimizer.current_lr() == 0.0, "behind the last"  # type: ignore[attr-defined]


def test_it_logs_every_so_many_updates(capsys: pytest.CaptureFixture[str]) -> None:
    training = Training(0, 1, log_steps=2, measure=False)
    for _ in training.run(1):
        pass
    assert capsys.readouterr().out.splitlines() == [
        "    CustomOptimizer: Step=0, bs=8, lr=(0.02,)",
        "    CustomOptimizer: Step=2, bs=16, lr=(0.04,)",
        "    CustomOptimizer: Step=4, bs=8, lr=(0.02,)",
    ]


def test_a_closure_computes_the_gradients() -> None:
    training, seen = Training(0, 1), []
    for indices in training.sampler:

        def closure(indices: list[int] = indices) -> torch.Tensor:
            loss = ((training.inputs[indices] @ training.weights - training.targets[indices]) ** 2).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        if training.optimizer.step(closure):
            seen.append(training.weights.tolist())
    np.testing.assert_allclose(seen, regression.sgd(lambda batch: batch / 8)[:5], **CLOSE)


def test_it_can_be_pickled_and_copied_with_a_scheduler_on_it() -> None:
    training = Training(0, 1)
    StepLR(training.optimizer, 1)
    for _ in training.run(1):
        pass
    pickled = pickle.loads(pickle.dumps(training.optimizer))  # noqa: S301
    for other in (pickled, copy.deepcopy(training.optimizer)):
        assert other.details() == training.optimizer.details()
        assert other.param_groups[0]["params"][0].tolist() == training.weights.tolist()
        other.sampler.set_epoch(1)
        other.set_epoch(1)
        assert other.step() is False


def test_a_model_whose_passes_are_watched_can_be_copied_and_saved() -> None:
    model = torch.nn.BatchNorm1d(3)
    sampler = vbs.CustomSampler(range(16), 8, minibatch_size=4, num_replicas=4, rank=3, verbose=False)
    optimizer = vbs.ConstantOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), sampler, 4, model=model)
    assert optimizer.idle
    copied = pickle.loads(pickle.dumps(copy.deepcopy(model)))  # noqa: S301
    copied(torch.ones(4, 3))
    assert copied.num_batches_tracked.item() == 1


def test_groups_can_be_added_and_hooks_are_called() -> None:
    training, called = Training(0, 1), []
    other = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    training.optimizer.add_param_group({"params": [other], "lr": 0.5})
    assert training.optimizer.get_lr() == (0.02, 0.5)
    training.optimizer.register_step_post_hook(lambda *_: called.append(1))
    for indices in training.sampler:
        (((training.inputs[indices] @ training.weights) ** 2).mean() + other.sum()).backward()
        training.optimizer.zero_grad()
        training.optimizer.step()
    assert len(called) == 14
    assert other.tolist() == pytest.approx([-0.5 * (1 + 1 + 2 + 2 + 1)] * 2)


def test_what_an_inner_optimizer_keeps_in_its_groups_stays() -> None:
    class Counting(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            super().step(closure)
            self.param_groups[0]["updates"] = self.param_groups[0].get("updates", 0) + 1

    training = Training(0, 1, inner=Counting).finish()
    assert training.optimizer.param_groups[0]["updates"] == 18


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"optimizer": "sgd"}, "optimizer: got 'sgd', takes a torch optimizer"),
        ({"sampler": [1]}, r"sampler: got \[1\], takes a CustomSampler"),
        ({"reduction": "max"}, "reduction: got 'max', takes 'mean' or 'sum'"),
        ({"log_steps": 0}, "log_steps: got 0"),
        ({"ref_batchsize": 0}, "ref_batchsize: got 0"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], words: str) -> None:
    training = Training(0, 1)
    with pytest.raises(ValueError, match=words):
        vbs.CustomOptimizer(**{"optimizer": training.optimizer.optimizer, "sampler": training.sampler, **arguments})


@pytest.mark.parametrize("measure", [True, False])
def test_a_grad_scaler_may_change_its_scale_after_each_micro_batch(measure: bool) -> None:
    training = Training(0, 1, measure=measure)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    seen, changed = [], []
    for number, indices in enumerate(training.sampler):
        loss = ((training.inputs[indices] @ training.weights - training.targets[indices]) ** 2).mean()
        scaler.scale(loss * float("inf") if number == 4 else loss).backward()
        changed.append(scaler.step(training.optimizer))
        scaler.update()
        if changed[-1]:
            seen.append(training.weights.tolist())
    assert "".join("FT"[bool(each)] for each in changed) == "FTFTFFFFFFFTFT", "the third update is left out"
    expected = regression.sgd(lambda batch: batch / 8)
    np.testing.assert_allclose(seen[:2], expected[:2], rtol=0, atol=1e-12)
    assert len(seen) == 4 and np.isfinite(seen).all()


def test_sparse_gradients_are_measured_and_applied() -> None:
    table = torch.nn.Embedding(5, 2, sparse=True)
    sampler = vbs.CustomSampler(range(16), 8, minibatch_size=4, verbose=False)
    optimizer = vbs.ConstantOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), sampler, 4)
    before = table.weight.detach().clone()
    for _ in sampler:
        table(torch.tensor([1, 1, 3])).sum().backward()
        optimizer.step()
    torch.testing.assert_close(before - table.weight, torch.tensor([[0, 0], [4, 4], [0, 0], [2, 2], [0, 0.0]]))
    assert optimizer.noise_scale == pytest.approx(0, abs=1e-6)


def test_a_state_is_plain_enough_for_weights_only() -> None:
    file = io.BytesIO()
    torch.save(Training(0, 1, vbs.LegwOptimizer).finish().optimizer.state_dict(), file)
    file.seek(0)
    assert torch.load(file, weights_only=True)["variable_batch_size"]["rule"]["name"] == "legw"


@pytest.mark.cuda
def test_on_a_gpu_the_weights_are_the_loops() -> None:
    training, seen = Training(0, 1), []
    inputs, targets = training.inputs.cuda(), training.targets.cuda()
    weights = torch.zeros(3, dtype=torch.float64, device="cuda", requires_grad=True)
    optimizer = vbs.LinearRuleOptimizer(torch.optim.SGD([weights], lr=0.02), training.sampler, 8)
    for epoch in range(5):
        training.sampler.set_epoch(epoch)
        optimizer.set_epoch(epoch)
        for indices in training.sampler:
            ((inputs[indices] @ weights - targets[indices]) ** 2).mean().backward()
            if optimizer.step():
                seen.append(weights.tolist())
    np.testing.assert_allclose(seen, regression.sgd(lambda batch: batch / 8), **CLOSE)
    assert optimizer.noise_scale > 0
