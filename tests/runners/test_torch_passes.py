"""How losses and metrics of PyTorch trainings are computed, and how a step is taken."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torchmetrics
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import TensorDataset

from edt_runner.errors import NotFinite, StateMismatch, UsageError
from edt_runner.frameworks.finite import judging
from edt_runner.frameworks.options import StepOptions
from edt_runner.frameworks.pytorch.adapter import TorchAdapter
from edt_runner.frameworks.trainable import EngineAdapter
from edt_runner.schedule import StepKind
from edt_runner.training import Training
from fabric_model import FabricModel
from support.sides import carry

CPU = torch.device("cpu")
ROWS = TensorDataset(torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4))


def batch(seed: int, rows: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 3, generator=generator), torch.randint(0, 4, (rows,), generator=generator)


def adapter(
    model: nn.Module | None = None, loss: Any = F.cross_entropy, optimizer: Any = None, **arguments: Any
) -> EngineAdapter:
    """Made of the arguments of the constructor and, by their names, of train()."""
    model = model or net()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.5)
    names = StepOptions.__dataclass_fields__
    options = StepOptions(**{name: arguments.pop(name) for name in list(arguments) if name in names})
    trainable: Any = FabricModel(model, lambda: (ROWS, None), loss, optimizer, **arguments)._trainable
    samples = trainable.samples(ROWS, None, 0, None)
    return trainable.adapter(samples, on_device=False, options=trainable.checked_options(options))


def step(one: EngineAdapter, *batches: Any, counts: Sequence[int] | None = None) -> dict[str, float]:
    counts = counts or [len(targets) for _, targets in batches]
    vectors = []
    for index, (given, count) in enumerate(zip(batches, counts, strict=True)):
        local = torch.zeros(one.size(StepKind.TRAIN), dtype=one.dtype)
        one.micro_batch(given, count, sum(counts), index, local)
        vectors.append(local)
    reduced = torch.stack(vectors).sum(dim=0)
    one.apply(reduced)
    return one.values(one.sums(StepKind.TRAIN, reduced))


def weights(one: EngineAdapter) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in one.export_state().tensors.items() if name.startswith("model.")}


def close(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return all(torch.allclose(one[name], other[name], rtol=1e-5, atol=1e-7) for name in one)


# ── losses ────────────────────────────────────────────────────────────────────────────────────────────────────
LENGTHS = (3, 1, 2, 6)
"""Tokens that count in each row of ``texts``."""


def texts() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(0, 4, (4, 6), generator=generator)
    counts = torch.arange(6) < torch.tensor(LENGTHS)[:, None]
    return {"inputs": torch.randn(4, 6, 3, generator=generator), "labels": torch.where(counts, labels, -100)}


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = net()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.inner(inputs).transpose(1, 2)


def test_a_mean_over_tokens_is_that_of_the_whole_batch_however_it_is_divided() -> None:
    whole, parts = adapter(Words(), loss_reduction="token"), adapter(Words(), loss_reduction="token")
    given = texts()
    loss = step(whole, given, counts=[4])["loss"]
    rows = [{name: value[start:end] for name, value in given.items()} for start, end in ((0, 3), (3, 4))]
    assert step(parts, *rows, counts=[3, 1])["loss"] == pytest.approx(loss, rel=1e-6)
    assert close(weights(whole), weights(parts))
    plain = Words()
    expected = F.cross_entropy(plain(given["inputs"]), given["labels"])
    assert loss == pytest.approx(expected.item(), rel=1e-6)


def test_weighting_by_samples_would_be_another_gradient() -> None:
    given = texts()
    rows = [{name: value[start:end] for name, value in given.items()} for start, end in ((0, 3), (3, 4))]
    tokens, samples = adapter(Words(), loss_reduction="token"), adapter(Words())
    step(tokens, *rows, counts=[3, 1])
    step(samples, *rows, counts=[3, 1])
    assert not close(weights(tokens), weights(samples))


def test_a_micro_batch_without_tokens_adds_nothing() -> None:
    given = texts()
    none = {"inputs": given["inputs"][:1], "labels": torch.full((1, 6), -100)}
    with_none, without = adapter(Words(), loss_reduction="token"), adapter(Words(), loss_reduction="token")
    assert step(with_none, given, none, counts=[4, 1])["loss"] == step(without, given, counts=[4])["loss"]
    assert close(weights(with_none), weights(without))


def test_a_sum_over_samples_is_divided_by_nothing() -> None:
    def total(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="sum")

    summed = adapter(loss=total, loss_reduction="sum", optimizer=None)
    plain = net()
    optimizer = torch.optim.SGD(plain.parameters(), 0.5)
    inputs, targets = (torch.cat(parts) for parts in zip(batch(1, 2), batch(2, 3), strict=True))
    loss = total(plain(inputs), targets)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert step(summed, batch(1, 2), batch(2, 3))["loss"] == pytest.approx(loss.item() / 5, rel=1e-6)
    assert close(weights(summed), {f"model.{name}": value for name, value in plain.state_dict().items()})


class WithLoss(nn.Module):
    """As models of transformers: called by names, returns its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net()

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.inner(inputs)
        return {"logits": logits} if labels is None else {"loss": F.cross_entropy(logits, labels), "logits": logits}


def test_a_model_may_return_its_own_loss() -> None:
    own, usual = adapter(WithLoss(), loss=None), adapter()
    inputs, labels = batch(1)
    assert step(own, {"inputs": inputs, "labels": labels}, counts=[4])["loss"] == step(usual, (inputs, labels))["loss"]


def test_a_model_without_a_loss_is_told_of_loss_function() -> None:
    with pytest.raises(UsageError, match="loss_function: got None, but the model returned Tensor"):
        step(adapter(nn.Bilinear(3, 4, 2), loss=None), (torch.zeros(4, 3), torch.zeros(4, 4)))


def test_inputs_by_names_are_given_by_names() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, *, left: Tensor, right: Tensor) -> Tensor:
            return self.inner(left + right)  # type: ignore[no-any-return]

    inputs, targets = batch(1)
    named = step(adapter(Two()), ({"left": inputs, "right": torch.zeros(4, 3)}, targets))
    assert named["loss"] == step(adapter(), (inputs, targets))["loss"]


def test_several_inputs_and_the_targets_last() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return self.inner(left + right)  # type: ignore[no-any-return]

    inputs, targets = batch(1)
    found = step(adapter(Sum()), (inputs, torch.zeros(4, 3), targets), counts=[4])
    assert found["loss"] == step(adapter(), (inputs, targets))["loss"]


def test_a_step_of_ones_own_tells_its_metrics_by_name() -> None:
    def own(model: nn.Module, given: Any) -> dict[str, Any]:
        inputs, targets = given
        outputs = model(inputs)
        return {"loss": F.cross_entropy(outputs, targets), "peak": outputs.max()}

    one, usual = adapter(loss=None, training_step=own), adapter()
    one.warm_up(batch(0, 2))
    found = step(one, batch(1), batch(2))
    assert found["loss"] == step(usual, batch(1), batch(2))["loss"] and one.digest() == usual.digest()
    assert set(found) == {"loss", "peak"}


def test_a_step_that_calls_backward_itself_is_taken_as_it_is() -> None:
    def own(model: nn.Module, given: Any) -> Tensor:
        loss = F.cross_entropy(model(given[0]), given[1])
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    one, usual = adapter(loss=None, training_step=own), adapter()
    one.warm_up(batch(0, 2))
    step(one, batch(1))
    step(usual, batch(1))
    assert one.digest() == usual.digest()
    with pytest.raises(UsageError, match=r"validation_step: got None with a training_step that calls backward\(\)"):
        one.evaluate(batch(2), 4, 0, torch.empty(one.width, dtype=one.dtype))


@pytest.mark.parametrize(
    ("returns", "words"),
    [
        (lambda model, given: None, "training_step: returned NoneType, takes a scalar loss"),
        (lambda model, given: model(given[0]), r"training_step: returned a tensor of shape \(4, 4\)"),
        (lambda model, given: {"acc": 1.0}, "training_step: returned a dict of acc, takes"),
    ],
)
def test_what_a_step_returns_is_checked(returns: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        step(adapter(loss=None, training_step=returns), batch(1))


def test_a_step_must_not_take_the_optimizers_step() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.5)

    def own(called: nn.Module, given: Any) -> Tensor:
        optimizer.step()
        return F.cross_entropy(called(given[0]), given[1])

    with pytest.raises(UsageError, match=r"training_step: calls optimizer.step\(\)"):
        step(adapter(model, None, optimizer, training_step=own), batch(1))


# ── metrics ───────────────────────────────────────────────────────────────────────────────────────────────────
def test_there_is_no_accuracy_where_outputs_are_no_class_scores() -> None:
    model = nn.Linear(3, 1)
    found = step(adapter(model, F.mse_loss), (torch.zeros(4, 3), torch.zeros(4, 1)))
    assert set(found) == {"loss"}


def test_metrics_of_torchmetrics_are_those_of_all_samples() -> None:
    metrics = {
        "f1": torchmetrics.F1Score(task="multiclass", num_classes=4, average="macro"),
        "each": torchmetrics.Recall(task="multiclass", num_classes=4, average=None),
    }
    one = adapter(metrics=copy.deepcopy(metrics))
    found = step(one, batch(1, 4), batch(2, 3))
    inputs, targets = (torch.cat(parts) for parts in zip(batch(1, 4), batch(2, 3), strict=True))
    outputs = net()(inputs)
    assert found["f1"] == pytest.approx(float(metrics["f1"](outputs, targets)), rel=1e-6)
    assert [found[f"each_{index}"] for index in range(4)] == pytest.approx(metrics["each"](outputs, targets).tolist())


def test_a_metric_whose_states_do_not_add_up_is_refused() -> None:
    with pytest.raises(UsageError, match=r"keeps \w+, which engines cannot add up"):
        adapter(metrics=[torchmetrics.AUROC(task="multiclass", num_classes=4)])


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────
def test_clipping_acts_on_the_gradient_of_the_whole_step() -> None:
    clipped, plain = adapter(clip_grad_norm=0.1), net()
    optimizer = torch.optim.SGD(plain.parameters(), 0.5)
    inputs, targets = (torch.cat(parts) for parts in zip(batch(1), batch(2), strict=True))
    F.cross_entropy(plain(inputs), targets).backward()  # type: ignore[no-untyped-call]
    norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
    optimizer.step()
    step(clipped, batch(1), batch(2))
    assert close(weights(clipped), {f"model.{name}": value for name, value in plain.state_dict().items()})
    assert clipped.details()["grad_norm"] == pytest.approx(float(norm), rel=1e-5)


def test_values_are_clipped_after_they_are_summed() -> None:
    one = adapter(clip_grad_value=0.001)
    before = weights(one)
    step(one, batch(1), batch(2))
    moves = [(weights(one)[name] - before[name]).abs().max() for name in before]
    assert float(max(moves)) == pytest.approx(0.5 * 0.001, rel=1e-3)


def test_a_step_whose_gradient_overflows_halves_the_scale_and_moves_no_schedule() -> None:
    def huge(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.float(), targets) * 1e36

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
    one = adapter(model, huge, optimizer, precision="fp16", lr_scheduler=schedule, lr_scheduler_interval="step")
    step(one, batch(1))
    assert one.details()["loss_scale"] == 2.0**15 and schedule.last_epoch == 0


def test_the_scale_is_divided_out_of_the_gradient() -> None:
    half, bits = adapter(precision="fp16"), adapter(precision="bf16")
    full = adapter()
    for one in (half, bits, full):
        step(one, batch(1), batch(2))
    for name, value in weights(full).items():
        assert torch.allclose(weights(half)[name], value, atol=2e-3)
        assert torch.allclose(weights(bits)[name], value, atol=2e-2)
    assert half.digest() != full.digest()


def test_several_optimizers_step_together_and_travel_together() -> None:
    def made() -> EngineAdapter:
        model = net()
        parts = list(model.parameters())
        return adapter(model, optimizer=[torch.optim.Adam(parts[:2], 0.1), torch.optim.SGD(parts[2:], 0.1, 0.9)])

    one, other = made(), made()
    step(one, batch(1))
    carry(one, other)
    for each in (one, other):
        step(each, batch(2))
    assert one.digest() == other.digest()


def test_a_parameter_belongs_to_one_optimizer() -> None:
    model = net()
    both = [torch.optim.SGD(model.parameters(), 0.1), torch.optim.Adam(model.parameters(), 0.1)]
    with pytest.raises(UsageError, match="optimizer: got 4 parameters in two optimizers"):
        adapter(model, optimizer=both)


# ── schedules and other state ─────────────────────────────────────────────────────────────────────────────────
def with_hooks() -> tuple[EngineAdapter, Any, Any]:
    """An optimizer whose hooks move a schedule and an average of the weights."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    schedule, average = lr_scheduler.StepLR(optimizer, 2, 0.5), AveragedModel(model)

    def after(*ignored: Any) -> None:
        schedule.step()
        average.update_parameters(model)

    optimizer.register_step_post_hook(after)
    return adapter(model, optimizer=optimizer), schedule, average


def test_what_hooks_hold_travels_with_the_state() -> None:
    one, schedule, average = with_hooks()
    other, twin, copied = with_hooks()
    for seed in range(3):
        step(one, batch(seed))
    carry(one, other)
    assert twin.last_epoch == schedule.last_epoch == 3
    for seed in range(3, 6):
        for each in (one, other):
            step(each, batch(seed))
    assert one.digest() == other.digest() and twin.get_last_lr() == schedule.get_last_lr()
    pairs = zip(average.parameters(), copied.parameters(), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs)


def test_a_process_that_has_made_other_schedulers_cannot_take_the_state() -> None:
    one, _, _ = with_hooks()
    with pytest.raises(StateMismatch, match="the training has the state of StepLR, AveragedModel, this process"):
        carry(one, adapter())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lr_scheduler": 3}, "lr_scheduler: got int, takes a scheduler"),
        ({"lr_scheduler": lr_scheduler.StepLR}, "lr_scheduler: got the class StepLR"),
        (
            {"lr_scheduler": lr_scheduler.StepLR(torch.optim.SGD(net().parameters(), 0.1), 1)},
            "lr_scheduler: got a scheduler of another optimizer",
        ),
        (
            {"lr_scheduler": lr_scheduler.ReduceLROnPlateau, "lr_scheduler_interval": "step"},
            "lr_scheduler: got the class ReduceLROnPlateau",
        ),
        (
            {
                "lr_scheduler": [functools.partial(lr_scheduler.ReduceLROnPlateau, factor=0.5)],
                "lr_scheduler_interval": "step",
            },
            r"lr_scheduler\[0\]: got ReduceLROnPlateau with lr_scheduler_interval='step'",
        ),
    ],
)
def test_what_is_no_scheduler_of_the_optimizer_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        adapter(**changes)


def test_a_scheduler_that_never_moved_is_named_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    kept = lr_scheduler.CosineAnnealingLR(optimizer, 10)
    FabricModel(model, lambda: (ROWS, None), F.cross_entropy, optimizer)._trainable.finish()
    assert "CosineAnnealingLR was made with the optimizer and has never moved" in capsys.readouterr().err
    assert kept.last_epoch == 0


# ── steps that are not finite ─────────────────────────────────────────────────────────────────────────────────
def exploding(on_nonfinite: str) -> EngineAdapter:
    return judging(adapter(loss=lambda outputs, targets: outputs.sum() * math.inf), on_nonfinite)


def test_a_step_that_is_not_finite_raises_and_changes_nothing() -> None:
    one = exploding("stop")
    before = one.digest()
    with pytest.raises(NotFinite, match=r"loss (inf|-inf|nan), gradient norm (inf|nan), learning rate 0.5"):
        step(one, batch(1))
    assert one.digest() == before


def test_a_step_that_is_not_finite_is_skipped_and_counted() -> None:
    one = exploding("skip")
    before = weights(one)
    step(one, batch(1))
    assert close(weights(one), before) and one.details()["skipped_steps"] == 1.0
    other = exploding("skip")
    carry(one, other)
    step(other, batch(1))
    assert other.details()["skipped_steps"] == 2.0


def test_a_step_that_is_not_finite_is_taken_if_the_user_says_so() -> None:
    one = exploding("continue")
    step(one, batch(1))
    assert not one.is_finite()


def test_a_plain_adapter_takes_a_loss_function() -> None:
    model = net()
    one = TorchAdapter(model, torch.optim.SGD(model.parameters(), 0.5), F.cross_entropy, {}, CPU)
    usual = adapter()
    step(one, batch(1))
    step(usual, batch(1))
    assert one.digest() == usual.digest()


# ── what watches validations ──────────────────────────────────────────────────────────────────────────────────
def test_a_validation_of_no_samples_has_no_loss() -> None:
    one = adapter()
    assert math.isnan(one.values([0.0] * one.width)["loss"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"early_stopping": 3},
            r"EarlyStopping of val_loss \(min, 0\) needs val_loss, but the training has no validation",
        ),
        ({"keep_best": "val_accuracy"}, r"KeepBest of val_accuracy \(max, 0\) needs val_accuracy"),
        ({"lr_scheduler": lr_scheduler.ReduceLROnPlateau}, "lr_scheduler: got the class"),
        (
            {"lr_scheduler": functools.partial(lr_scheduler.ReduceLROnPlateau, factor=0.5)},
            "EpochSchedule of 1 needs val_loss",
        ),
    ],
)
def test_what_needs_validations_is_refused_without_a_test_set(
    changes: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(request: Any) -> None:
        Training(request, 1, 0)

    monkeypatch.setattr("fabric_model.model.train", begin)
    model = net()
    wanted = FabricModel(model, lambda: (ROWS, None), F.cross_entropy, torch.optim.SGD(model.parameters(), 0.5))
    with pytest.raises(UsageError, match=words):
        wanted.train(1, 4, 1, **changes)


def test_a_rule_does_not_go_with_a_sum() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    summed = FabricModel(model, lambda: (ROWS, None), F.cross_entropy, optimizer, loss_reduction="sum")
    with pytest.raises(UsageError, match="lr_rule: got a rule with loss_reduction='sum'"):
        summed.train(1, 4, 1, lr_rule="linear", batch_scaling="per_engine")
