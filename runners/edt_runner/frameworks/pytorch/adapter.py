"""PyTorch behind the engine's flat vectors.

Vectors have the layout of ``frameworks.flat``. Their sums are [samples, loss x samples, metric x samples, ...].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edt_contract.crash_points import CrashPoint, crash_point
from edt_runner import context
from edt_runner.adapter import State
from edt_runner.checkpoints.user_files import draft_of
from edt_runner.errors import StateMismatch, UnsupportedState, UsageError
from edt_runner.frameworks.flat import FlatAdapter, FlatLayout, flat_dtype, type_name
from edt_runner.frameworks.pytorch import optimizers
from edt_runner.lr_scaling.update import Scaling
from edt_runner.schedule import StepKind
from edt_runner.seeds import seed_python

Metric = Callable[[Any, Any], Any]
_PLAIN = bool | int | float | str | None


class TorchAdapter(FlatAdapter):
    """One model, its optimizer, its loss and its metrics.

    Args:
        model: any module; its parameters may be shared or frozen.
        optimizer: an optimizer of the model's parameters; it is stepped without a closure.
        loss_function: (outputs, targets) -> mean loss over the micro-batch, a scalar tensor on ``device``.
        metrics: name -> (outputs, targets) -> mean over the micro-batch, a number or a scalar tensor.
        device: the device that the model computes on; flat vectors are in host memory in any case.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_function: Callable[[Any, Any], Any],
        metrics: Mapping[str, Metric],
        device: torch.device,
    ) -> None:
        super().__init__()
        self.model = model.to(device)
        self.optimizer = optimizer
        self.optimizer_name = type(optimizer).__qualname__
        self.sums_rows, self.gradient_scale = False, 1.0
        self._names = ("loss", *metrics)
        self.width = 2 + len(metrics)
        self._loss_function, self._metrics, self._device = loss_function, tuple(metrics.values()), device
        _move_optimizer_state(optimizer, device)
        self._all_parameters = dict(model.named_parameters())
        self._parameters = [p for p in self._all_parameters.values() if p.requires_grad]
        self._buffers = Buffers(model)
        tensors = [*self._parameters, *self._buffers.floats.values()]
        self.dtype = flat_dtype(type_name(tensor.dtype) for tensor in tensors)
        """Dtype of flat vectors, local and reduced."""
        self.layout = FlatLayout(
            gradients=[parameter.numel() for parameter in self._parameters],
            present=len(self._parameters),
            floats=self._buffers.float_sizes,
            integers=self._buffers.integer_sizes,
            sums=self.width,
        )
        for name in self._buffers.refused:
            self.end_guarantee(name, "a complex buffer cannot be combined")

    def values(self, sums: Sequence[float]) -> dict[str, float]:
        count = sums[0] or 1.0
        return dict(zip(self._names, (value / count for value in sums[1:]), strict=True))

    # ── computing ─────────────────────────────────────────────────────────────────────────────────────────────
    def warm_up(self, batch: Any) -> None:
        self.micro_batch(batch, 1, 1, 0, torch.empty(self.size(StepKind.TRAIN), dtype=self.dtype))
        self._buffers.restore()
        self._clear_gradients()

    def micro_batch(self, batch: Any, count: int, total: int, seed: int, local: Tensor) -> None:
        self.prepare(seed)
        inputs, targets = self._to_device(batch)
        outputs = self.model(inputs)
        loss = self._loss_function(outputs, targets)
        loss.backward()
        self.write_gradients(local, count, total)
        self._write_sums(local[-self.width :], count, loss, outputs, targets)

    def prepare(self, seed: int) -> None:
        """Prepare a micro-batch: committed buffers, no gradients, training mode, generators seeded with ``seed``."""
        self._buffers.restore()
        self._clear_gradients()
        self.model.train()
        _seed(seed)

    def write_gradients(self, local: Tensor, count: int, total: int, *, averages: bool = True) -> None:
        """Write the gradients and buffers that a micro-batch's forward and backward pass have left in the model.

        Args:
            local: the micro-batch's flat vector; all sections but ``sums`` are written.
            count, total: samples of the micro-batch and of the step.
            averages: whether the gradients are of a mean over the samples; else they are of a sum.
        """
        crash_point(CrashPoint.ENGINE_BACKWARD, at=context.page.offset, who=context.page.engine)
        flat = self.layout.sections(local)
        places = torch.split(flat.gradients, self.layout.gradients)
        for index, (place, parameter) in enumerate(zip(places, self._parameters, strict=True)):
            gradient = parameter.grad
            flat.present[index] = gradient is not None
            if gradient is None:
                place.zero_()
            else:
                _write_scaled(gradient, count / total if averages else 1.0, place)
        self._buffers.write(flat.floats, flat.changed, flat.integers)
        flat.floats.mul_(count / total)
        flat.active.fill_(1)

    def evaluate(self, batch: Any, count: int, seed: int, local: Tensor) -> None:
        self.model.eval()
        _seed(seed)
        with torch.no_grad():
            inputs, targets = self._to_device(batch)
            outputs = self.model(inputs)
            loss = self._loss_function(outputs, targets)
            self._write_sums(local, count, loss, outputs, targets)
        self._buffers.restore()

    def apply(self, reduced: Tensor) -> bool:
        version = reduced._version
        flat = self.layout.sections(reduced)
        used = flat.present.tolist()
        places = torch.split(flat.gradients, self.layout.gradients)
        for index, (place, parameter) in enumerate(zip(places, self._parameters, strict=True)):
            parameter.grad = place.view(parameter.shape).to(parameter.device, parameter.dtype) if used[index] else None
        odd = self._buffers.commit(flat.floats, flat.changed, flat.integers, int(flat.active))
        if odd is not None:
            self.end_guarantee(odd, "an integer buffer that micro-batches move differently")
        self.optimizer.step()
        return reduced._version == version  # gradients are views of ``reduced``; views share its count of writes

    @property
    def has_betas(self) -> bool:
        return optimizers.has_betas(self.optimizer)

    def rescaled(self, scaling: Scaling) -> AbstractContextManager[Sequence[float]]:
        return optimizers.rescaled(self.optimizer, scaling)

    def _write_sums(self, place: Tensor, count: int, loss: Tensor, outputs: Any, targets: Any) -> None:
        place[0] = count
        place[1] = loss.detach() * count
        with torch.no_grad():
            for index, metric in enumerate(self._metrics):
                place[2 + index] = metric(outputs, targets) * count

    def _to_device(self, batch: Any) -> tuple[Any, Any]:
        inputs, targets = batch
        return _move(inputs, self._device), _move(targets, self._device)

    def _clear_gradients(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────
    def export_state(self) -> State:
        tensors: dict[str, Tensor] = {f"model.{name}": p.detach() for name, p in self._all_parameters.items()}
        tensors |= {f"buffer.{name}": b.detach() for name, b in self._buffers.committed.items()}
        groups: list[dict[str, Any]] = []
        plain: dict[str, dict[str, Any]] = {}
        called = {id(p): name for name, p in self._all_parameters.items()}
        names: dict[str, str] = {}
        index = 0
        for number, group in enumerate(self.optimizer.param_groups):
            groups.append({})
            for key, value in group.items():
                if key != "params":
                    self._put(tensors, groups[-1], f"group.{number}.{key}", key, value)
            for parameter in group["params"]:
                plain[str(index)] = {}
                for key, value in self.optimizer.state.get(parameter, {}).items():
                    self._put(tensors, plain[str(index)], f"optimizer.{index}.{key}", key, value)
                    names[f"optimizer.{index}.{key}"] = f"optimizer state {key} of {called.get(id(parameter), index)}"
                index += 1
        return State({"groups": groups, "plain": plain}, tensors, names)

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Tensor]:
        places: dict[str, Tensor] = {f"model.{name}": p.detach() for name, p in self._all_parameters.items()}
        places |= {f"buffer.{name}": b for name, b in self._buffers.committed.items()}
        expected = {name for name in shapes if name.startswith(("model.", "buffer."))}
        if expected != set(places):
            differ = ", ".join(sorted(expected ^ set(places)))
            raise StateMismatch(f"the model of this process has other parameters or buffers: {differ}")
        if len(meta["groups"]) != len(self.optimizer.param_groups):
            raise StateMismatch("the optimizer of this process has another number of parameter groups")
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.optimizer.state.clear()
        for index, parameter in enumerate(parameters):
            if meta["plain"].get(str(index)):
                self.optimizer.state[parameter].update(meta["plain"][str(index)])
        for group, values in zip(self.optimizer.param_groups, meta["groups"], strict=True):
            group.update({key: tuple(v) if isinstance(group.get(key), tuple) else v for key, v in values.items()})
        for name, (dtype, shape) in shapes.items():
            kind, _, rest = name.partition(".")
            if kind in ("model", "buffer"):
                place = places[name]
                if list(place.shape) != shape or type_name(place.dtype) != dtype:
                    got = f"{type_name(place.dtype)} {list(place.shape)}"
                    raise StateMismatch(f"{rest}: {dtype} {shape} in the training, {got} in this process")
                continue
            number, _, key = rest.partition(".")
            places[name] = torch.empty(shape, dtype=getattr(torch, dtype))
            if kind == "group":
                self.optimizer.param_groups[int(number)][key] = places[name]
            else:
                parameter = parameters[int(number)]
                group = next(g for g in self.optimizer.param_groups if any(p is parameter for p in g["params"]))
                if places[name].dim() or group.get("fused") or group.get("capturable"):  # else steps stay on the host
                    places[name] = places[name].to(parameter.device)
                self.optimizer.state[parameter][key] = places[name]
        return places

    def end_import(self) -> None:
        self._buffers.restore()

    def recommit(self) -> None:
        trained = {id(parameter) for parameter in self._parameters}
        other = [n for n, p in self._all_parameters.items() if p.requires_grad is not (id(p) in trained)]
        if other:  # the layout of vectors depends on it, and a joining engine would have another layout
            raise UsageError(
                f"user_callback: a hook has frozen or unfrozen {', '.join(other)}, takes parameters that stay as "
                "they are at train(); a parameter group with lr 0 stands still"
            )
        self._buffers.recommit()
        self._clear_gradients()

    def save_for_user(self, folder: Path, name: str) -> None:
        model = {key: value.detach().cpu() for key, value in self.model.state_dict().items()}
        for path, content in (
            (folder / f"{name}.pth", model),
            (folder / f"{name}_optimizer_state.pth", self.optimizer.state_dict()),
        ):
            with draft_of(path) as draft:
                torch.save(content, draft)

    def _put(self, tensors: dict[str, Tensor], plain: dict[str, Any], name: str, key: str, value: Any) -> None:
        if isinstance(value, Tensor):
            tensors[name] = value.detach()
        elif all(isinstance(item, _PLAIN) for item in (value if isinstance(value, list | tuple) else [value])):
            plain[key] = value
        else:
            raise UnsupportedState(
                f"optimizer state {key!r} is a {type(value).__name__}; an elastic training can carry tensors, "
                "numbers, strings and tuples of them"
            )


def _write_scaled(gradient: Tensor, share: float, place: Tensor) -> None:
    """Write gradient x share to ``place``, in one pass over memory if possible. Two passes would give the same bits."""
    if gradient.layout is torch.strided and gradient.dtype is place.dtype and gradient.device == place.device:
        torch.mul(gradient, share, out=place.view(gradient.shape))
    else:
        place.copy_((gradient.to_dense() if gradient.is_sparse else gradient).reshape(-1)).mul_(share)


def _seed(seed: int) -> None:
    seed_python(seed)
    torch.manual_seed(seed)


def _move(value: Any, device: torch.device) -> Any:
    """Move tensors inside tuples, lists and dicts to the device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: _move(item, device) for key, item in value.items()}
    if isinstance(value, list | tuple):
        moved = [_move(item, device) for item in value]
        return type(value)(*moved) if hasattr(value, "_fields") else type(value)(moved)
    return value


def _move_optimizer_state(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    for state in optimizer.state.values():
        for key, value in state.items():
            if isinstance(value, Tensor) and value.dim():
                state[key] = value.to(device)


class Buffers:
    """A model's buffers: state that a forward pass changes. Micro-batches are combined, and the result is committed.

    A buffer is known by its place in the model, since forward may put another tensor there.

    Every micro-batch starts from the committed values. A float buffer (a running mean) becomes the weighted mean of
    the values that the micro-batches left in it; if none of them changed it, it keeps its bits. An integer buffer (a
    count of batches) moves once, by the difference that every micro-batch made; all must have made the same
    difference.
    """

    def __init__(self, model: nn.Module) -> None:
        self._places: dict[str, tuple[nn.Module, str]] = {}
        self._tensors: dict[str, Tensor] = {}
        self.refused: list[str] = []
        """Names of buffers that cannot be combined."""
        for name, buffer in model.named_buffers():
            owner, _, key = name.rpartition(".")
            if buffer.is_complex():
                self.refused.append(name)
            else:
                self._places[name] = (model.get_submodule(owner), key)
                self._tensors[name] = buffer
        self.committed = {name: b.detach().clone() for name, b in self._tensors.items()}
        self.floats = {name: b for name, b in self.committed.items() if b.is_floating_point()}
        self.integers = {name: b for name, b in self.committed.items() if not b.is_floating_point()}
        self.float_sizes = [b.numel() for b in self.floats.values()]
        self.integer_sizes = [b.numel() for b in self.integers.values()]
        self._own_steps: Tensor | None = None

    def restore(self) -> None:
        """Copy the committed values into the model."""
        with torch.no_grad():
            for name, (owner, key) in self._places.items():
                owner._buffers[key] = self._tensors[name]
                self._tensors[name].copy_(self.committed[name])

    def recommit(self) -> None:
        """Commit the values that are in the model now."""
        for name, committed in self.committed.items():
            committed.copy_(self._now(name))
        self.restore()

    def write(self, floats: Tensor, changed: Tensor, integers: Tensor) -> None:
        """Write what this forward pass made of the buffers into sections of a flat vector (``frameworks.flat``)."""
        with torch.no_grad():
            for index, (name, part) in enumerate(zip(self.floats, torch.split(floats, self.float_sizes), strict=True)):
                now = self._now(name)
                changed[index] = not torch.equal(now, self.committed[name])
                part.copy_(now.reshape(-1))
            if self.integers:
                steps = [self._now(name).long() - self.committed[name].long() for name in self.integers]
                self._own_steps = torch.cat([step.reshape(-1).cpu() for step in steps])
                integers.copy_(self._own_steps)

    def commit(self, floats: Tensor, changed: Tensor, integers: Tensor, active: int) -> str | None:
        """Commit these sections of a reduced vector, which are sums over ``active`` micro-batches.

        Returns:
            The names of integer buffers, if not all micro-batches moved them alike; else None.
        """
        odd: str | None = None
        flags = changed.tolist()
        for index, (name, part) in enumerate(zip(self.floats, torch.split(floats, self.float_sizes), strict=True)):
            if flags[index]:
                self.committed[name].copy_(part.view(self.committed[name].shape))
        if self.integers and active:
            steps = torch.round(integers.double() / active).long()
            if self._own_steps is not None and not torch.equal(self._own_steps * active, integers.long()):
                odd = ", ".join(self.integers)
            for name, part in zip(self.integers, torch.split(steps, self.integer_sizes), strict=True):
                committed = self.committed[name]
                moved = committed.long() + part.view(committed.shape).to(committed.device)
                committed.copy_(moved.to(committed.dtype))
        self.restore()
        return odd

    def _now(self, name: str) -> Tensor:
        owner, key = self._places[name]
        tensor = owner._buffers[key]
        assert tensor is not None
        return tensor.detach()
