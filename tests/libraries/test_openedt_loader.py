"""``openedt.loader`` in a plain process: what the body has at its natural places acts as in a plain loop over whole
batches, and what cannot is refused with the line to write instead."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts, ExponentialLR, LRScheduler, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, TensorDataset

import openedt
from edt_runner.errors import NotFinite, UsageError

SAMPLES, BATCH, EPOCHS, RATE = 37, 10, 2, 0.05
GENERATOR = torch.Generator().manual_seed(3)
INPUTS = torch.randn(SAMPLES, 4, generator=GENERATOR, dtype=torch.float64)
TARGETS = INPUTS.sum(1, keepdim=True) + 0.1 * torch.randn(SAMPLES, 1, generator=GENERATOR, dtype=torch.float64)
ROWS = TensorDataset(INPUTS, TARGETS)
Batches = Iterator[Sequence[Tensor]]


@pytest.fixture(autouse=True)
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDT_CPU_SLOTS", raising=False)
    monkeypatch.setenv("EDT_DEVICES", "cpu")


@dataclass
class Parts:
    """A user's objects, and the loop over them."""

    model: Any
    optimizers: list[Any]
    batches: Any = None
    """What the body iterates over."""

    @property
    def optimizer(self) -> Any:
        return self.optimizers[0]

    def elastic(self, **options: Any) -> Any:
        """An elastic loop of uneven micro-batches."""
        self.batches = openedt.loader(
            ROWS,
            self.model,
            self.optimizers,
            **{"epochs": EPOCHS, "batch_size": BATCH, "device_batch_size": 4, "shuffle": False, **options},
        )
        return self

    def plain(self) -> Any:
        """Whole batches, as a plain script has them."""
        self.batches = [
            (INPUTS[start : start + BATCH], TARGETS[start : start + BATCH])
            for _ in range(EPOCHS)
            for start in range(0, SAMPLES, BATCH)
        ]
        return self


def parts(optimizers: int = 1) -> Parts:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    groups = [model.parameters()] if optimizers == 1 else [model[0].parameters(), model[2].parameters()]
    return Parts(model, [torch.optim.SGD(group, lr=RATE, momentum=0.9) for group in groups])


def loss_of(made: Parts, inputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.mse_loss(made.model(inputs), targets)


def assert_alike(elastic: Parts, plain: Parts) -> None:
    for mine, theirs in zip(elastic.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-13)


# ── the natural lines ─────────────────────────────────────────────────────────────────────────────────────────
def clipping(made: Parts, clip: Callable[[Parts], object]) -> Parts:
    for inputs, targets in made.batches:
        for optimizer in made.optimizers:
            optimizer.zero_grad()
        loss_of(made, inputs, targets).backward()
        clip(made)
        for optimizer in made.optimizers:
            optimizer.step()
    return made


CLIPS: dict[str, Callable[[Parts], object]] = {
    "an imported name": lambda made: clip_grad_norm_(made.model.parameters(), 0.05),
    "by the module": lambda made: torch.nn.utils.clip_grad_norm_(made.model.parameters(), max_norm=0.05),
    "the infinity norm": lambda made: clip_grad_norm_(made.model.parameters(), 0.02, norm_type=float("inf")),
    "values": lambda made: clip_grad_value_(made.model.parameters(), 0.01),
    "a part": lambda made: clip_grad_norm_(made.model[0].parameters(), 0.01),
    "one tensor, then all": lambda made: (
        clip_grad_norm_(made.model[2].weight, 0.01),
        clip_grad_value_(list(made.model.parameters()), 0.005),
    ),
    "a limit that is not reached": lambda made: clip_grad_norm_(made.model.parameters(), 1e6),
}


@pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS.keys())
@pytest.mark.parametrize("optimizers", [1, 2])
def test_a_clip_acts_on_the_gradient_of_the_whole_batch(clip: Callable[[Parts], object], optimizers: int) -> None:
    assert_alike(clipping(parts(optimizers).elastic(), clip), clipping(parts(optimizers).plain(), clip))


def test_a_clip_in_the_body_has_the_bits_of_the_argument() -> None:
    inside = clipping(parts().elastic(), lambda made: clip_grad_norm_(made.model.parameters(), 0.05))
    outside = clipping(parts().elastic(clip_grad_norm=0.05), lambda made: None)
    for mine, theirs in zip(inside.model.parameters(), outside.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def scheduled(made: Parts, make: Callable[[Any], Any], *, by_epoch: bool) -> Parts:
    schedulers = [make(optimizer) for optimizer in made.optimizers]
    for index, (inputs, targets) in enumerate(made.batches):
        ends = getattr(made.batches, "ends_epoch", index % 4 == 3)
        loss_of(made, inputs, targets).backward()
        for optimizer, scheduler in zip(made.optimizers, schedulers, strict=True):
            optimizer.step()
            if ends or not by_epoch:
                scheduler.step()
        for optimizer in made.optimizers:
            optimizer.zero_grad()
    return made


SCHEDULERS: dict[str, Callable[[Any], LRScheduler]] = {
    "exponential": lambda optimizer: ExponentialLR(optimizer, 0.7),
    "restarts": lambda optimizer: CosineAnnealingWarmRestarts(optimizer, 3),
    "sequence": lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
        optimizer, [ExponentialLR(optimizer, 0.5), ExponentialLR(optimizer, 0.9)], [3]
    ),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")  # torch's own SequentialLR passes it
@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS.keys())
@pytest.mark.parametrize("by_epoch", [False, True])
def test_a_scheduler_moves_once_for_a_batch_or_an_epoch(make: Callable[[Any], Any], by_epoch: bool) -> None:
    elastic = scheduled(parts(2).elastic(), make, by_epoch=by_epoch)
    assert_alike(elastic, scheduled(parts(2).plain(), make, by_epoch=by_epoch))


def scaling(made: Parts, scaler: Any) -> Parts:
    scheduler = ExponentialLR(made.optimizer, 0.7)
    made.moves = scheduler  # type: ignore[attr-defined]
    for inputs, targets in made.batches:
        made.optimizer.zero_grad()
        scaler.scale(loss_of(made, inputs, targets)).backward()
        scaler.unscale_(made.optimizer)
        clip_grad_norm_(made.model.parameters(), 0.05)
        scaler.step(made.optimizer)
        scaler.update()
        scheduler.step()
    return made


def test_a_gradient_scaler_scales_once_for_the_whole_batch() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    elastic = scaling(parts().elastic(), scaler)
    assert scaler.get_scale() == 2.0**12 and scaler.state_dict()["_growth_tracker"] == 2
    del scaler
    assert_alike(elastic, scaling(parts().plain(), torch.amp.GradScaler("cpu", init_scale=2.0**10)))


def test_a_scale_that_is_too_large_leaves_steps_out_and_moves_no_scheduler() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    made = parts()
    made.model.float()
    made.optimizers = [torch.optim.SGD(made.model.parameters(), lr=1e-6)]
    rows = TensorDataset(INPUTS.float(), TARGETS.float())
    made.batches = openedt.loader(rows, made.model, made.optimizers, epochs=4, batch_size=10, device_batch_size=4)
    scaling(made, scaler)
    left_out = round(127 - torch.tensor(scaler.get_scale()).log2().item())
    assert 0 < left_out < 16
    assert made.moves.last_epoch == 16 - left_out  # type: ignore[attr-defined]


def test_a_gradient_scaler_that_is_switched_off_changes_nothing() -> None:
    elastic = scaling(parts().elastic(), torch.amp.GradScaler("cpu", enabled=False))
    assert_alike(elastic, scaling(parts().plain(), torch.amp.GradScaler("cpu", enabled=False)))


def averaging(made: Parts) -> AveragedModel:
    average = AveragedModel(made.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.6))
    for inputs, targets in made.batches:
        loss_of(made, inputs, targets).backward()
        made.optimizer.step()
        made.optimizer.zero_grad()
        average.update_parameters(made.model)
    return average


def test_an_average_of_the_weights_takes_each_update_once() -> None:
    elastic, plain = averaging(parts().elastic()), averaging(parts().plain())
    for mine, theirs in zip(elastic.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-13)
    assert int(elastic.n_averaged) == int(plain.n_averaged) == 8


def taking_turns(made: Parts) -> Parts:
    """Two losses, an optimizer for each; the second loss leaves gradients in the first one's parameters, too. The
    second optimizer steps at every second update."""
    first, second = made.optimizers
    for index, (inputs, targets) in enumerate(made.batches):
        hidden = made.model[1](made.model[0](inputs))
        outputs = made.model[2](hidden)
        update = getattr(made.batches, "step", index)
        first.zero_grad()
        hidden.square().mean().backward(retain_graph=True)
        first_gradients = [parameter.grad.clone() for parameter in made.model[0].parameters()]
        if isinstance(made.batches, list):
            pending = first_gradients
        else:
            first.step()
        if update % 2 == 0:
            second.zero_grad()
            nn.functional.mse_loss(outputs, targets).backward()
            second.step()
        if isinstance(made.batches, list):  # the optimizers of an elastic loop take their steps together
            for parameter, gradient in zip(made.model[0].parameters(), pending, strict=True):
                parameter.grad = gradient
            first.step()
    return made


def test_each_optimizer_takes_the_gradients_of_its_own_step() -> None:
    assert_alike(taking_turns(parts(2).elastic()), taking_turns(parts(2).plain()))


def test_a_hook_of_the_optimizer_gets_the_gradient_of_the_whole_batch() -> None:
    def made_with(hooked: Parts) -> Parts:
        def noise(optimizer: Any, *ignored: Any) -> None:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad.sign_()

        hooked.optimizer.register_step_pre_hook(noise)
        return clipping(hooked, lambda made: None)

    assert_alike(made_with(parts().elastic()), made_with(parts().plain()))


# ── what the loop tells ───────────────────────────────────────────────────────────────────────────────────────
def validated(model: nn.Module, batch: Sequence[Tensor]) -> dict[str, Any]:
    inputs, targets = batch
    outputs = model(inputs)
    return {"loss": nn.functional.mse_loss(outputs, targets), "near": (outputs - targets).abs().lt(1).double().mean()}


def test_the_loss_is_known_without_a_report_and_the_validation_is_over_its_whole_set() -> None:
    made, seen = parts(), []
    made.elastic(validation=ROWS, validation_step=validated, epochs=3)
    for inputs, targets in made.batches:
        seen.append(dict(made.batches.metrics))
        made.optimizer.zero_grad()
        loss_of(made, inputs, targets).backward()
        made.optimizer.step()
    assert seen[0] == {} and {*seen[-1]} == {"loss", "val_loss", "val_near"}
    with torch.no_grad():
        expected = validated(made.model, (INPUTS, TARGETS))
    assert made.batches.metrics["val_loss"] == pytest.approx(float(expected["loss"]), rel=1e-9)
    assert made.batches.metrics["val_near"] == pytest.approx(float(expected["near"]), rel=1e-9)
    assert 0 < made.batches.metrics["val_loss"] < made.batches.metrics["loss"] < seen[-1]["loss"] * 1.5


def test_recomputed_activations_do_not_count_as_losses() -> None:
    """The last part's output is one number, as a loss is."""

    def trained(forward: Callable[[nn.Module, Tensor], Tensor]) -> Parts:
        made = parts().elastic(device_batch_size=1)
        for inputs, targets in made.batches:
            made.optimizer.zero_grad()
            nn.functional.mse_loss(forward(made.model, inputs.requires_grad_()), targets).backward()
            made.optimizer.step()
        return made

    again = trained(lambda model, inputs: checkpoint(model, inputs, use_reentrant=True))
    plain = trained(lambda model, inputs: model(inputs))
    assert again.batches.metrics == plain.batches.metrics


def test_early_stopping_ends_the_loop() -> None:
    made = parts().elastic(
        epochs=9, validation=ROWS, early_stopping=2, validation_step=lambda model, batch: torch.ones(())
    )
    clipping(made, lambda made: None)
    assert (made.batches.epoch, made.batches.step) == (3, 12)


def test_a_plateau_lowers_the_learning_rate() -> None:
    made = parts()
    scheduler = ReduceLROnPlateau(made.optimizer, factor=0.5, patience=0)
    made.elastic(epochs=4, validation=ROWS, validation_step=lambda model, batch: torch.ones(()), lr_scheduler=scheduler)
    clipping(made, lambda made: None)
    assert made.optimizer.param_groups[0]["lr"] == RATE * 0.5**3


class Ended(openedt.Callback):
    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_epoch_end(self, epoch: int) -> None:
        self.losses.append(self.metrics["loss"])


def test_callbacks_run_at_ends_of_epochs() -> None:
    callback = Ended()
    made = clipping(parts().elastic(user_callback=callback, epochs=3), lambda made: None)
    assert len(callback.losses) == 3 and callback.losses[-1] == made.batches.metrics["loss"]


class Row(NamedTuple):
    values: dict[str, Tensor]
    targets: Tensor


class Nested(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Row:
        return Row({"inputs": INPUTS[index]}, TARGETS[index])


def test_batches_of_any_nesting_come_to_the_body() -> None:
    nested, flat = parts(), clipping(parts().elastic(), lambda made: None)
    loop = openedt.loader(
        Nested(), nested.model, nested.optimizer, epochs=EPOCHS, batch_size=BATCH, device_batch_size=4, shuffle=False
    )
    for batch in loop:
        nested.optimizer.zero_grad()
        loss_of(nested, batch.values["inputs"], batch.targets).backward()
        nested.optimizer.step()
    assert_alike(nested, flat)


def test_a_mean_over_tokens_weights_all_tokens_alike() -> None:
    lengths = torch.randint(1, 6, (SAMPLES,), generator=torch.Generator().manual_seed(2))
    rows = TensorDataset(INPUTS, torch.where(torch.arange(5) < lengths[:, None], 1, -100))

    def trained(**options: Any) -> Any:
        torch.manual_seed(1)
        model = nn.Linear(4, 10, dtype=torch.float64)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        loop = openedt.loader(rows, model, optimizer, epochs=1, batch_size=BATCH, loss_reduction="token", **options)
        for inputs, targets in loop:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs).view(-1, 2), targets.reshape(-1)).backward()
            optimizer.step()
        return Parts(model, [])

    assert_alike(trained(device_batch_size=3), trained(device_batch_size=BATCH))


def test_after_the_loop_torch_is_itself_again() -> None:
    before = [
        clip_grad_norm_,
        torch.nn.utils.clip_grad_norm_,
        torch.nn.utils.clip_grad.clip_grad_value_,
        torch.autograd.backward,
        torch.amp.GradScaler.step,
        LRScheduler.step,
        CosineAnnealingWarmRestarts.step,
    ]
    made = scheduled(parts().elastic(), SCHEDULERS["restarts"], by_epoch=False)
    after = [
        clip_grad_norm_,
        torch.nn.utils.clip_grad_norm_,
        torch.nn.utils.clip_grad.clip_grad_value_,
        torch.autograd.backward,
        torch.amp.GradScaler.step,
        LRScheduler.step,
        CosineAnnealingWarmRestarts.step,
    ]
    assert all(one is other for one, other in zip(before, after, strict=True))
    loss_of(made, INPUTS, TARGETS).backward()
    assert float(clip_grad_norm_(made.model.parameters(), 1e-3)) > 1e-3
    norm = torch.cat([parameter.grad.reshape(-1) for parameter in made.model.parameters()]).norm()
    assert float(norm) == pytest.approx(1e-3, rel=1e-2)


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────────
def body(change: Callable[[Parts], object], made: Parts | None = None, **options: Any) -> None:
    made = made or parts()
    clipping(made.elastic(**options), change)


def each_gradient(change: Callable[[Any], object]) -> Callable[[Parts], None]:
    def changed(made: Parts) -> None:
        for parameter in made.model.parameters():
            change(parameter)

    return changed


def replaced(parameter: Any) -> None:
    parameter.grad = 0.5 * parameter.grad


@pytest.mark.parametrize(
    "change",
    [
        each_gradient(lambda parameter: parameter.grad.mul_(0.5)),
        each_gradient(lambda parameter: parameter.grad.data.clamp_(-0.001, 0.001)),
        each_gradient(lambda parameter: parameter.grad.numpy().__imul__(0.5)),
        each_gradient(replaced),
        lambda made: torch.nn.utils.clip_grads_with_norm_(made.model.parameters(), 0.01, torch.ones(())),
        lambda made: (made.model[0].bias.grad.zero_(), loss_of(made, INPUTS, TARGETS).backward()),
    ],
    ids=["in place", "data", "numpy", "replaced", "in two steps", "between two passes"],
)
def test_other_changes_of_gradients_are_refused_with_what_to_write(change: Callable[[Parts], object]) -> None:
    with pytest.raises(UsageError, match=r"clip_grad_norm=…\).*register_step_pre_hook\(function\)"):
        body(change)


def moved_early(made: Parts) -> None:
    made.optimizer.step()
    clip_grad_norm_(made.model.parameters(), 1.0)


@pytest.mark.parametrize(
    "change, error",
    [
        (lambda made: print(f"{clip_grad_norm_(made.model.parameters(), 1.0):.3f}"), "logged as grad_norm"),
        (lambda made: clip_grad_norm_(made.model.parameters(), 1.0) > 3, "logged as grad_norm"),
        (lambda made: clip_grad_norm_(made.model.parameters(), 1.0, norm_type=1), "norm_type=1, takes 2.0 or inf"),
        (lambda made: clip_grad_norm_(made.model.parameters(), 0), "got 0.0, takes a number above 0"),
        (lambda made: clip_grad_norm_(torch.ones(1, requires_grad=True), 1.0), "takes those of the model"),
        (moved_early, "called after optimizer.step"),
        (lambda made: torch.optim.SGD(made.model.parameters(), lr=1.0).step(), "changed parameters"),
        (lambda made: ExponentialLR(made.optimizer, 0.5).step(), "made in the body"),
    ],
    ids=["printed", "compared", "another norm", "no limit", "others", "too late", "another optimizer", "new scheduler"],
)
def test_a_line_that_cannot_act_is_refused(change: Callable[[Parts], object], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        body(change)


def test_a_clip_beside_the_argument_is_refused() -> None:
    with pytest.raises(UsageError, match="takes one of them"):
        body(lambda made: clip_grad_value_(made.model.parameters(), 1.0), clip_grad_norm=1.0)


def test_a_scheduler_that_was_given_must_not_be_stepped_and_a_plateau_never() -> None:
    made = parts()
    scheduler = ExponentialLR(made.optimizer, 0.5)
    with pytest.raises(UsageError, match="given as lr_scheduler=, takes one of the two"):
        body(lambda made: scheduler.step(), made, lr_scheduler=scheduler)
    made = parts()
    plateau = ReduceLROnPlateau(made.optimizer)
    with pytest.raises(UsageError, match="lr_scheduler=scheduler, lr_scheduler_metric='val_loss'"):
        body(lambda made: plateau.step(1.0), made)
    made = parts()
    restarts = CosineAnnealingWarmRestarts(made.optimizer, 3)
    with pytest.raises(UsageError, match=r"got an epoch, takes step\(\)"):
        body(lambda made: restarts.step(0.25), made)


def test_a_condition_that_differs_between_micro_batches_is_refused() -> None:
    made = parts()
    scheduler, calls = ExponentialLR(made.optimizer, 0.5), iter(range(100))
    with pytest.raises(UsageError, match="such as one on loader"):
        body(lambda made: scheduler.step() if next(calls) % 2 else None, made)


def test_a_scaler_is_used_for_the_whole_batch() -> None:
    scaler = torch.amp.GradScaler("cpu")

    def without(made: Parts) -> None:
        made.optimizer.zero_grad()
        scaler.scale(loss_of(made, INPUTS, TARGETS)).backward()

    with pytest.raises(UsageError, match=r"takes scaler.scale\(loss\).backward\(\) and scaler.step\(optimizer\)"):
        body(without)
    with pytest.raises(UsageError, match=r"takes scaler.unscale_\(optimizer\) before it"):
        body(lambda made: (without(made), clip_grad_norm_(made.model.parameters(), 1.0)))
    with pytest.raises(UsageError, match=r"takes update\(\) in the body"):
        body(lambda made: scaler.update(2.0))


@pytest.mark.parametrize("step", [0, 2])
@pytest.mark.parametrize("scaler", [False, True], ids=["plain", "beside a scaler that is not used"])
def test_an_infinite_loss_ends_the_loop_and_says_where(step: int, scaler: bool) -> None:
    unused = torch.amp.GradScaler("cpu", enabled=scaler)
    made = parts().elastic()
    with pytest.raises(NotFinite, match=rf"step {step + 1} \(epoch 1\): loss inf"):
        for inputs, targets in made.batches:
            factor = float("inf") if made.batches.step == step else 1.0
            made.optimizer.zero_grad()
            (factor * loss_of(made, inputs, targets)).backward()
            made.optimizer.step()
    del unused


@pytest.mark.parametrize(
    "changes, error",
    [
        ({"dataset": DataLoader(ROWS)}, r"dataset: got .*DataLoader, takes the data set in it \(loader.dataset\)"),
        ({"dataset": iter([])}, "dataset: got .*, takes a map-style"),
        ({"model": 3}, "model: got 3, takes a torch.nn.Module"),
        ({"optimizer": []}, "optimizer: got an empty list"),
        ({"optimizer": "sgd"}, "optimizer: got 'sgd'"),
        ({"epochs": 0}, "epochs: got 0"),
        ({"batch_size": 2.5}, "batch_size: got 2.5"),
        ({"device_batch_size": 0}, "device_batch_size: got 0"),
        ({"metrics": "accuracy"}, "metrics: got 'accuracy', takes a list of names"),
        ({"validation": ROWS}, "validation_step: got None with validation"),
        ({"validation_step": validated}, "validation: got None with validation_step"),
        ({"early_stopping": 3}, "validation: got None, takes a data set, with early_stopping"),
        ({"lr_scheduler": 0.1}, "lr_scheduler: got float"),
        ({"clip_grad_norm": -1}, "clip_grad_norm: got -1"),
        ({"loss_reduction": "mean"}, "loss_reduction: got 'mean'"),
        ({"token_count": len}, "token_count: got a value"),
        ({"on_nonfinite": "no"}, "on_nonfinite: got 'no'"),
        ({"worker_logger_callback": 1}, "worker_logger_callback: got 1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_arguments_are_named(changes: dict[str, Any], error: str) -> None:
    made = parts()
    given = {"dataset": ROWS, "model": made.model, "optimizer": made.optimizer, "epochs": 1, "batch_size": 8}
    with pytest.raises(UsageError, match=error):
        openedt.loader(**{**given, **changes})


def test_the_import_brings_no_framework_and_has_the_other_classes() -> None:
    script = (
        "import sys, openedt; assert not {'torch', 'tensorflow', 'keras'} & set(sys.modules); "
        "from fabric_model import FabricModel; from callbacks import Callback, LoggerCallback; "
        "assert openedt.FabricModel is FabricModel; "
        "assert (openedt.Callback, openedt.LoggerCallback) == (Callback, LoggerCallback); "
        "assert set(openedt.__all__) <= set(dir(openedt))"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize("first, then", [("openedt", "torch"), ("torch", "openedt")])
def test_the_import_seeds_torch_whichever_comes_first(first: str, then: str) -> None:
    script = (
        f"import {first}; import {then}; import random, numpy; openedt.FabricModel, openedt.loader; "
        "print(torch.rand(1).item(), random.random(), numpy.random.rand())"
    )
    runs = [
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60, capture_output=True, text=True).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1] != ""


def test_a_seed_of_the_script_is_kept() -> None:
    script = (
        "import openedt, torch; torch.manual_seed(5); openedt.FabricModel, openedt.loader; found = torch.rand(1); "
        "torch.manual_seed(5); assert torch.equal(found, torch.rand(1))"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
