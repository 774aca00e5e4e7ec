"""PyTorch behind the engine's flat vectors.

Vectors have the layout of ``frameworks.flat``. Their sums are [samples, weight, loss x weight, sums of metrics ...].
The weight of a loss is the number of samples, or of tokens, that its mean is over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from edt_contract.crash_points import CrashPoint, crash_point
from edt_runner import context
from edt_runner.adapter import State
from edt_runner.checkpoints.user_files import draft_of
from edt_runner.comm.tree_reduction import Sink
from edt_runner.errors import StateMismatch, UsageError
from edt_runner.frameworks.computing import Asked
from edt_runner.frameworks.flat import (
    FlatAdapter,
    FlatLayout,
    Sections,
    flat_dtype,
    is_finite,
    new_vector,
    squared_norm,
    type_name,
)
from edt_runner.frameworks.options import StepOptions
from edt_runner.frameworks.pytorch import FRAMEWORK, compiling
from edt_runner.frameworks.pytorch.batches import Placed, counter_of_tokens, moved
from edt_runner.frameworks.pytorch.buffers import Buffers
from edt_runner.frameworks.pytorch.companions import Companions
from edt_runner.frameworks.pytorch.determinism import determinism
from edt_runner.frameworks.pytorch.gradients import Gradients
from edt_runner.frameworks.pytorch.metrics import MetricSet
from edt_runner.frameworks.pytorch.optimizer_set import OptimizerSet
from edt_runner.frameworks.pytorch.passes import Computed, Passes, TrainSet
from edt_runner.frameworks.pytorch.precision import Precision
from edt_runner.lr_scaling.update import Scaling
from edt_runner.schedule import StepKind
from edt_runner.step_times import Phase, clock

_EPSILON = 1e-6
"""Added to a norm before it is divided by, as in ``torch.nn.utils.clip_grad_norm_``."""
_FIRST_SUMS = 3
_PATTERNS = 16
"""How many patterns of used parameters are kept on the device. Most models have one."""
_COMPANIONS, _PRECISION = "companions", "precision"
_COMPANION = "companion."


class OnHost(NamedTuple):
    """What a step has to know of a reduced vector, in host memory."""

    sections: Sections
    """All but the gradients."""
    own_steps: Tensor | None
    """``Buffers.own_steps``."""
    has_finite_sum: bool | None
    """Whether the sum of all gradients is finite; None: that was not looked at."""


class TorchAdapter(FlatAdapter):
    """One model, its optimizers, its loss and its metrics.

    Args:
        model: any module; its parameters may be shared or frozen.
        optimizers: one optimizer of the model's parameters, or several; they are stepped without a closure.
        asked: how loss and metrics are computed, or only the loss function (outputs, targets) -> mean loss.
        metrics: name -> (outputs, targets) -> mean over the micro-batch or None, or a metric of ``torchmetrics``.
        device: the device that the model computes on; flat vectors are there, too.
        options: what the user asks of passes and steps.
        schedulers: the schedulers that move after each step.
        companions: the further objects whose state belongs to the training's.
        train_set: what WMLA's functions may ask about the training set.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        asked: Asked | Callable[..., Any],
        metrics: Mapping[str, Any],
        device: torch.device,
        options: StepOptions | None = None,
        *,
        schedulers: Sequence[Any] = (),
        companions: Companions | None = None,
        train_set: TrainSet | None = None,
    ) -> None:
        super().__init__()
        asked = asked if isinstance(asked, Asked) else Asked(asked)
        self._options = options or StepOptions()
        self.model = model.to(device)
        members = (optimizers,) if isinstance(optimizers, torch.optim.Optimizer) else optimizers
        self.optimizers = OptimizerSet(members, device)
        self.optimizer_name = self.optimizers.name
        self._device, self._reduction = device, asked.loss_reduction
        self.vector_device = device
        self._copies: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        """The CUDA stream on which batches come to the GPU."""
        self.reads_at_once = device.type != "cpu"
        """Whether what a step has to know of a reduced vector is read by one copy."""
        self._on_host: tuple[Tensor, OnHost] | None = None
        """The last reduced vector on a GPU, and what was read of it."""
        self._present: dict[tuple[bool, ...], Tensor] = {}
        """The section ``present`` for patterns that have occurred."""
        self._count_tokens = asked.token_count or counter_of_tokens(model)
        self._passes = Passes(self.model, members, asked, train_set)
        if self._options.compile:
            self._passes.calls = compiling.compiled(self.model)
        self._metrics = MetricSet(metrics)
        self.precision = Precision(self._options.precision, device)
        self._schedulers, self._companions = schedulers, companions or Companions((), ())
        self._details: dict[str, float] = {}
        self._left_out = False
        self._modules = list(model.modules())
        self._all_parameters = dict(model.named_parameters())
        self._parameters = [p for p in self._all_parameters.values() if p.requires_grad]
        self._buffers = Buffers(model)
        tensors = [*self._parameters, *self._buffers.floats.values()]
        self.dtype = flat_dtype(type_name(tensor.dtype) for tensor in tensors)
        self._gradients = Gradients(self._parameters, self.dtype)
        for name in self._buffers.refused:
            self.end_guarantee(name, "a complex buffer cannot be combined")

    # ── layout ────────────────────────────────────────────────────────────────────────────────────────────────
    @property
    def width(self) -> int:  # type: ignore[override]
        """Length of the section ``sums``. It is final after ``warm_up``."""
        return _FIRST_SUMS + self._metrics.width

    @cached_property
    def layout(self) -> FlatLayout:  # type: ignore[override]
        """The layout of vectors. It is final after ``warm_up``, which finds the metrics that user's steps return."""
        return FlatLayout(
            gradients=[parameter.numel() for parameter in self._parameters],
            present=len(self._parameters),
            floats=self._buffers.float_sizes,
            integers=self._buffers.integer_sizes,
            sums=self.width,
        )

    def loss(self, sums: Sequence[float]) -> float:
        return sums[2] / (sums[1] or 1.0)

    def values(self, sums: Sequence[float]) -> dict[str, float]:
        return {"loss": self.loss(sums) if sums[0] else math.nan, **self._metrics.values(sums[_FIRST_SUMS:])}

    def gradient_weight(self, sums: Sequence[float]) -> float | None:
        return sums[1] if self._reduction == "token" else None

    # ── computing ─────────────────────────────────────────────────────────────────────────────────────────────
    def warm_up(self, batch: Any) -> None:
        determinism.settle(lambda: self._try(batch))

    def _try(self, batch: Any) -> None:
        """Run passes and discard their results."""
        if self._passes.tells:
            self._find_metrics(batch)
        local = new_vector(self.size(StepKind.TRAIN), self.dtype, self._device)
        with self._gradients.trying():
            self.micro_batch(batch, 1, 1, 0, local)
        self._buffers.restore()
        self._gradients.clear()
        if self._options.compile:
            self.evaluate(batch, 1, 0, local[-self.width :])

    def _find_metrics(self, batch: Any) -> None:
        """Find the metrics that the user's functions return, before the layout of vectors is needed."""
        for run, trains in ((self._passes.train, True), (self._passes.validate, False)):
            self.prepare(0)
            self.model.train(trains)
            with determinism.strict(), self.precision.autocast(), torch.set_grad_enabled(trains):
                computed = run(moved(batch, self._device))
            if computed.told:
                self._metrics.add_told(computed.told)
            if not getattr(computed.loss, "requires_grad", False) and self._passes.validates_alike:
                break  # a step that calls backward() itself cannot run without gradients; there may be no test set
        self._buffers.restore()
        self._gradients.clear()

    def placed(self, batch: Any) -> Any:
        """Begin to copy a batch to the model's device, for a later pass. Returns what the pass takes in its place."""
        return batch if self._copies is None else Placed(batch, self._device, self._copies)

    def begin_step(self) -> None:
        self._on_host = None

    def micro_batch(self, batch: Any, count: int, total: int, seed: int, local: Tensor) -> None:
        weight = self._weight(batch, count)
        with determinism.strict():
            computed = self._forward(batch, seed)
            self._backward(computed)
        self.write_gradients(local, self._gradient_share(weight, count, total), count / total)
        if not weight:  # the mean over no tokens is not a number
            self.layout.sections(local).gradients.zero_()
        self._write_sums(local[-self.width :], computed, count, weight)
        self._buffers.restore()  # if the step is left out, whoever reads the model next must not see this pass

    def stream(self, batch: Any, count: int, total: int, seed: int, sink: Sink) -> None:
        weight = self._weight(batch, count)
        share = self._gradient_share(weight, count, total)
        with determinism.strict():
            computed = self._forward(batch, seed)
            if not weight:  # the mean over no tokens is not a number
                self._backward(computed)
                present = [parameter.grad is not None for parameter in self._parameters]
                sink.put_zeros(0, self.gradient_size)
            elif self._gradients.streams and (sink.is_watched or self._gradients.pays):
                with self._gradients.streaming(sink, share) as present:
                    self._backward(computed)
            else:
                self._backward(computed)
                present = self._gradients.put(sink, share)
        crash_point(CrashPoint.ENGINE_BACKWARD, at=context.page.offset, who=context.page.engine)
        rest = new_vector(self.size(StepKind.TRAIN) - self.gradient_size, self.dtype, self._device)
        flat = self.layout.rest(rest)
        self._write_present(flat.present, present)
        self._write_buffers(flat, count / total)
        self._write_sums(flat.sums, computed, count, weight)
        self._buffers.restore()
        sink.put(self.gradient_size, rest)

    def _forward(self, batch: Any, seed: int) -> Computed:
        """Run the forward pass of a micro-batch."""
        self.prepare(seed)
        batch = self.on_device(batch)
        with clock.within(Phase.FORWARD), self.precision.autocast():
            return self._passes.train(batch)

    def on_device(self, batch: Any) -> Any:
        """Return a batch on the model's device, whether it was ``placed`` or not."""
        return batch.arrived() if isinstance(batch, Placed) else moved(batch, self._device)

    def _write_present(self, place: Tensor, present: Sequence[bool]) -> None:
        """Write that section. What comes from host memory would have to wait for a GPU."""
        key = tuple(present)
        if key not in self._present:
            if len(self._present) >= _PATTERNS:
                self._present.clear()
            self._present[key] = torch.tensor(present, dtype=self.dtype, device=self._device)
        place.copy_(self._present[key])

    def _backward(self, computed: Computed) -> None:
        """Run the backward pass, unless a step of the user has done so."""
        if isinstance(computed.loss, Tensor) and computed.loss.requires_grad:
            scale = self.precision.scale
            with clock.within(Phase.BACKWARD):
                torch.autograd.backward(computed.loss * scale if self.precision.scales else computed.loss)
        elif self.precision.scales:
            raise UsageError(
                "precision: got 'fp16' with a step that calls backward() itself, takes one that returns its loss, "
                "because the platform scales the loss; 'bf16' needs no scale"
            )

    def prepare(self, seed: int) -> None:
        """Prepare a micro-batch: committed buffers, no gradients, training mode, generators seeded with ``seed``."""
        self._buffers.restore()
        self._gradients.clear()
        if not all(module.training for module in self._modules):  # ``train`` visits all of them, which takes longer
            self.model.train()
        FRAMEWORK.seed_step(seed)

    def write_gradients(self, local: Tensor, gradient_share: float, share: float) -> None:
        """Write the gradients and buffers that a micro-batch's forward and backward pass have left in the model.

        Args:
            local: the micro-batch's flat vector; all sections but ``sums`` are written.
            gradient_share: the factor on gradients.
            share: the factor on buffers: the micro-batch's share of the step's samples.
        """
        crash_point(CrashPoint.ENGINE_BACKWARD, at=context.page.offset, who=context.page.engine)
        with clock.within(Phase.COPIES):
            flat = self.layout.sections(local)
            self._write_present(flat.present, self._gradients.put(Sink(local, adds=False), gradient_share))
            self._write_buffers(flat, share)

    def _write_buffers(self, flat: Sections, share: float) -> None:
        self._buffers.write(flat.floats, flat.changed, flat.integers)
        flat.floats.mul_(share)
        flat.active.fill_(1)

    def evaluate(self, batch: Any, count: int, seed: int, local: Tensor) -> None:
        self.model.eval()
        FRAMEWORK.seed_step(seed)
        weight = self._weight(batch, count)
        with torch.no_grad(), self.precision.autocast():
            computed = self._passes.validate(self.on_device(batch))
        self._write_sums(local, computed, count, weight)
        self._buffers.restore()

    def _weight(self, batch: Any, count: int) -> int:
        """The number of samples or tokens that the mean of a micro-batch's loss is over. Tokens are counted in host
        memory if the batch comes from there, since a GPU would have to finish all that was launched before."""
        if self._reduction != "token":
            return count
        return int(self._count_tokens(batch.host if isinstance(batch, Placed) else batch))

    def _gradient_share(self, weight: int, count: int, total: int) -> float:
        """The factor on a micro-batch's gradients in its vector."""
        if self._reduction == "token":
            return float(weight)
        return 1.0 if self._reduction == "sum" else count / total

    def _write_sums(self, place: Tensor, computed: Computed, count: int, weight: int) -> None:
        place[0].fill_(count)  # an assignment would copy the number from host memory, which waits for a GPU
        place[1].fill_(weight)
        loss = computed.loss.detach() if isinstance(computed.loss, Tensor) else computed.loss
        place[2] = loss * (1 if self._reduction == "sum" else weight) if weight else 0.0
        own = place[_FIRST_SUMS:]
        if computed.told is None:
            self._metrics.write(own, computed.outputs, computed.targets, count)
        else:
            self._metrics.write_told(own, computed.told, count)

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────
    def on_host(self, reduced: Tensor) -> OnHost:
        """Read what a step has to know of a training step's reduced vector. One copy brings all of it from a GPU."""
        if self._on_host is not None and self._on_host[0] is reduced:
            return self._on_host[1]
        rest, own = reduced[self.gradient_size : sum(self.layout.sizes)], self._buffers.own_steps
        if not self.reads_at_once:
            return OnHost(self.layout.rest(rest), own, None)
        parts = [rest, reduced[: self.gradient_size].sum()[None], *([own.to(self.dtype)] if own is not None else [])]
        host = torch.cat(parts).cpu()
        found = OnHost(
            self.layout.rest(host[: len(rest)]),
            host[len(rest) + 1 :] if own is not None else None,
            math.isfinite(float(host[len(rest)])),
        )
        self._on_host = (reduced, found)
        return found

    def sums(self, kind: StepKind, numbers: Tensor) -> list[float]:
        if kind is StepKind.TRAIN and self._on_host is not None and self._on_host[0] is numbers:
            found: list[float] = self._on_host[1].sections.sums.tolist()
            return found
        return super().sums(kind, numbers)

    def has_finite_gradient(self, reduced: Tensor) -> bool:
        if self.reads_at_once and len(reduced) == self.size(StepKind.TRAIN) and self.on_host(reduced).has_finite_sum:
            return True
        return super().has_finite_gradient(reduced)  # the sum of finite numbers may be too large

    def apply(self, reduced: Tensor) -> bool:
        version = reduced._version
        flat, on_host = self.layout.sections(reduced), self.on_host(reduced)
        if self.precision.scales and not self.has_finite_gradient(reduced):
            self.precision.overflowed()
            self._details, self._left_out = {"loss_scale": self.precision.scale}, True
            return True
        self._left_out = False
        rates = self.optimizers.learning_rates
        gradients = self._finished(flat.gradients, on_host.sections.sums)
        used = on_host.sections.present.tolist()
        self._gradients.set(reduced if gradients is flat.gradients else gradients, used)
        odd = self._buffers.commit(flat, on_host.sections, on_host.own_steps)
        if odd is not None:
            self.end_guarantee(odd, "an integer buffer that micro-batches move differently")
        self.optimizers.step()
        self.optimizers.keep_own(gradients)
        self.precision.stepped()
        for scheduler in self._schedulers:
            scheduler.step()
        if rates and (self._options.lr_scheduler is not None or self._companions.kinds):
            self._details["learning_rate"] = rates[0]
        return reduced._version == version  # gradients are views of ``reduced``; views share its count of writes

    def _finished(self, gradients: Tensor, sums: Tensor) -> Tensor:
        """The gradient of the whole step: divided by what it was weighted with and by the loss's scale, and clipped.

        Clipping acts on this gradient, of which every engine has the same bits, and not on those of micro-batches.

        Args:
            gradients: that section of a reduced vector, which stays as it is.
            sums: that section of it.
        """
        self._details = {"loss_scale": self.precision.scale} if self.precision.scales else {}
        divisor = (self.gradient_weight(sums.tolist()) or 1.0) * self.precision.scale
        if divisor != 1.0:
            gradients = gradients / divisor
        limit, norm_limit = self._options.clip_grad_value, self._options.clip_grad_norm
        if norm_limit is not None:
            norm = math.sqrt(squared_norm(gradients))
            self._details["grad_norm"] = norm
            if norm_limit < norm + _EPSILON:
                gradients = gradients * (norm_limit / (norm + _EPSILON))
        return gradients.clamp(-limit, limit) if limit is not None else gradients

    def details(self) -> dict[str, float]:
        return dict(self._details)

    @property
    def has_betas(self) -> bool:
        return self.optimizers.has_betas

    @property
    def gradient_scale(self) -> float:
        return self.precision.scale

    def absorbs(self, reduced: Tensor) -> bool:
        return self.precision.may_shrink

    @property
    def left_out(self) -> bool:
        return self._left_out

    def carried(self) -> Sequence[Any]:
        return self._companions.objects

    @property
    def learning_rate(self) -> float | None:
        return next(iter(self.optimizers.learning_rates), None)

    def rescaled(self, scaling: Scaling) -> AbstractContextManager[Sequence[float]]:
        return self.optimizers.rescaled(scaling)

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────
    def export_state(self) -> State:
        tensors: dict[str, Tensor] = {f"model.{name}": p.detach() for name, p in self._all_parameters.items()}
        tensors |= {f"buffer.{name}": b.detach() for name, b in self._buffers.committed.items()}
        called = {id(p): name for name, p in self._all_parameters.items()}
        meta, own, names = self.optimizers.export(called)
        records, kept = self._companions.export()
        meta |= {_COMPANIONS: records} if records else {}
        meta |= {_PRECISION: self.precision.to_json_object()} if self.precision.scales else {}
        return State(meta, {**tensors, **own, **{f"{_COMPANION}{name}": t for name, t in kept.items()}}, names)

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Tensor]:
        places: dict[str, Tensor] = {f"model.{name}": p.detach() for name, p in self._all_parameters.items()}
        places |= {f"buffer.{name}": b for name, b in self._buffers.committed.items()}
        expected = {name for name in shapes if name.startswith(("model.", "buffer."))}
        if expected != set(places):
            differ = ", ".join(sorted(expected ^ set(places)))
            raise StateMismatch(f"the model of this process has other parameters or buffers: {differ}")
        for name, place in places.items():
            dtype, shape = shapes[name]
            if list(place.shape) != shape or type_name(place.dtype) != dtype:
                got, rest = f"{type_name(place.dtype)} {list(place.shape)}", name.partition(".")[2]
                raise StateMismatch(f"{rest}: {dtype} {shape} in the training, {got} in this process")
        kept = {name.removeprefix(_COMPANION): shape for name, shape in shapes.items() if name.startswith(_COMPANION)}
        self._incoming = self._companions.begin_import(meta.get(_COMPANIONS) or [], kept)
        if _PRECISION in meta and self.precision.scales:
            self.precision.load(meta[_PRECISION])
        optimizer = {name: shape for name, shape in shapes.items() if name.startswith(("group.", "optimizer."))}
        places |= self.optimizers.begin_import(meta, optimizer)
        return places | {f"{_COMPANION}{name}": place for name, place in self._incoming.items()}

    def end_import(self) -> None:
        self._buffers.restore()
        self._companions.end_import(self._incoming)

    def recommit(self) -> None:
        trained = {id(parameter) for parameter in self._parameters}
        other = [n for n, p in self._all_parameters.items() if p.requires_grad is not (id(p) in trained)]
        if other:  # the layout of vectors depends on it, and a joining engine would have another layout
            raise UsageError(
                f"user_callback: a hook has frozen or unfrozen {', '.join(other)}, takes parameters that stay as "
                "they are at train(); a parameter group with lr 0 stands still"
            )
        self._buffers.recommit()
        self._gradients.clear()

    def is_finite(self) -> bool:
        """Whether all parameters are finite numbers."""
        return all(is_finite(parameter.detach()) for parameter in self._parameters)

    def save_for_user(self, folder: Path, name: str) -> None:
        state = self.model.state_dict().items()  # a module's extra state may be anything
        model = {key: value.detach().cpu() if isinstance(value, Tensor) else value for key, value in state}
        for path, content in (
            (folder / f"{name}.pth", model),
            (folder / f"{name}_optimizer_state.pth", self.optimizers.state_dict()),
        ):
            with draft_of(path) as draft:
                torch.save(content, draft)
