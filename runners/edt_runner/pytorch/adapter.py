"""PyTorch behind the engine's flat vectors. Room: runners; knows nn.Module and optimizers.

A leaf of a training tick is laid out as

    gradients | a flag each: there was one | float buffers | a flag each: it changed | integer steps | 1 | sums

in host memory, whatever the device. The single 1 counts the micro-batches that were not empty; sums are
[count, loss x count, metric x count …].
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edt_runner.crash_points import CrashPoint, crash_point
from edt_runner.engine import position
from edt_runner.engine.adapter import State
from edt_runner.engine.schedule import TickKind
from edt_runner.engine.seeds import seed_python
from edt_runner.errors import StateMismatch, UnsupportedState, UsageError
from edt_runner.guarantee import Guarantee
from edt_runner.pytorch import rescaling
from edt_runner.pytorch.buffers import Buffers
from edt_runner.scaling.update import Scaling
from edt_runner.user_files import draft_of

Metric = Callable[[Any, Any], Any]


class TorchAdapter(Guarantee):
    """One model, its optimizer, its loss and its metrics.

    Args:
        model: any module; its parameters may be shared or frozen.
        optimizer: built over the model's parameters; closures are not called.
        loss_function: (outputs, targets) -> mean loss over the micro-batch, a scalar tensor.
        metrics: name -> (outputs, targets) -> mean over the micro-batch.
        device: where the model computes.
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
        self.gradient_size = sum(p.numel() for p in self._parameters)
        for name in self._buffers.refused:
            self.end_guarantee(name, "a complex buffer cannot be combined")

    @property
    def dtype(self) -> torch.dtype:
        """Type of leaves and sums: float64 if any parameter or buffer has it."""
        tensors = [*self._parameters, *self._buffers.floats.values()]
        return torch.float64 if any(t.dtype is torch.float64 for t in tensors) else torch.float32

    # ── layout ────────────────────────────────────────────────────────────────────────────────────────────────
    def size(self, kind: TickKind) -> int:
        if kind is TickKind.VALIDATE:
            return self.width
        return sum(self._sizes)

    @property
    def _sizes(self) -> list[int]:
        buffers = self._buffers
        return [
            self.gradient_size,
            len(self._parameters),
            buffers.float_size,
            len(buffers.floats),
            buffers.integer_size,
            1,
            self.width,
        ]

    def sums(self, kind: TickKind, numbers: Tensor) -> list[float]:
        values: list[float] = self._sums_of(numbers).tolist()
        return values

    def values(self, sums: Sequence[float]) -> dict[str, float]:
        count = sums[0] or 1.0
        return dict(zip(self._names, (value / count for value in sums[1:]), strict=True))

    # ── computing ─────────────────────────────────────────────────────────────────────────────────────────────
    def warm_up(self, batch: Any) -> None:
        leaf = torch.empty(self.size(TickKind.TRAIN), dtype=self.dtype)
        self.micro_batch(batch, 1, 1, 0, leaf)
        self._buffers.restore()
        self._clear_gradients()

    def micro_batch(self, batch: Any, count: int, total: int, seed: int, leaf: Tensor) -> None:
        self.prepare(seed)
        inputs, targets = self._to_device(batch)
        outputs = self.model(inputs)
        loss = self._loss_function(outputs, targets)
        loss.backward()
        self.write_gradients(leaf, count, total)
        self._write_sums(self._sums_of(leaf), count, loss, outputs, targets)

    def prepare(self, seed: int) -> None:
        """Before a micro-batch: the committed buffers, no gradients, training mode, and its random streams."""
        self._buffers.restore()
        self._clear_gradients()
        self.model.train()
        _seed(seed)

    def write_gradients(self, leaf: Tensor, count: int, total: int, *, averages: bool = True) -> None:
        """What forward and backward on ``count`` of a step's ``total`` samples have left in the model: all of ``leaf``
        but its sums. ``averages``: the gradients are of a mean over the samples; else of a sum."""
        crash_point(CrashPoint.ENGINE_BACKWARD, at=position.board.tick, who=position.board.engine)
        gradients, flags, floats, changed, integers, active, _ = torch.split(leaf, self._sizes)
        places = torch.split(gradients, [p.numel() for p in self._parameters])
        for index, (place, parameter) in enumerate(zip(places, self._parameters, strict=True)):
            gradient = parameter.grad
            flags[index] = gradient is not None
            if gradient is None:
                place.zero_()
            else:
                _write_scaled(gradient, count / total if averages else 1.0, place)
        self._buffers.write(floats, changed, integers)
        floats.mul_(count / total)
        active.fill_(1)

    def evaluate(self, batch: Any, count: int, seed: int, leaf: Tensor) -> None:
        self.model.eval()
        _seed(seed)
        with torch.no_grad():
            inputs, targets = self._to_device(batch)
            outputs = self.model(inputs)
            loss = self._loss_function(outputs, targets)
            self._write_sums(leaf, count, loss, outputs, targets)
        self._buffers.restore()

    def apply(self, vector: Tensor) -> bool:
        version = vector._version
        gradients, flags, floats, changed, integers, active, _ = torch.split(vector, self._sizes)
        used = flags.tolist()
        places = torch.split(gradients, [p.numel() for p in self._parameters])
        for index, (place, parameter) in enumerate(zip(places, self._parameters, strict=True)):
            parameter.grad = place.view(parameter.shape).to(parameter.device, parameter.dtype) if used[index] else None
        odd = self._buffers.commit(floats, changed, integers, int(active))
        if odd is not None:
            self.end_guarantee(odd, "an integer buffer that micro-batches move differently")
        self.optimizer.step()
        return vector._version == version  # views of it, the gradients among them, share its count of writes

    @property
    def has_betas(self) -> bool:
        return rescaling.has_betas(self.optimizer)

    def rescaled(self, scaling: Scaling) -> AbstractContextManager[Sequence[float]]:
        return rescaling.rescaled(self.optimizer, scaling)

    def details(self) -> dict[str, float]:
        return {}

    def _sums_of(self, numbers: Tensor) -> Tensor:
        return numbers[-self.width :]

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
                if list(place.shape) != shape or _dtype_name(place.dtype) != dtype:
                    got = f"{_dtype_name(place.dtype)} {list(place.shape)}"
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
        if other:  # its gradient has a place or none in every vector, and a newcomer would have it otherwise
            raise UsageError(
                f"user_callback: a hook has frozen or unfrozen {', '.join(other)}, takes parameters that stay as "
                "they are at train(); a parameter group with lr 0 stands still"
            )
        self._buffers.recommit()
        self._clear_gradients()

    def digest(self) -> str:
        digest = hashlib.sha256()
        for name, tensor in sorted(self.export_state().tensors.items()):
            host = tensor.detach().cpu().contiguous()
            digest.update(f"{name} {_dtype_name(host.dtype)} {list(host.shape)}\n".encode())
            if host.numel():
                digest.update(host.reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

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
        elif value is None or isinstance(value, bool | int | float | str) or _is_plain_sequence(value):
            plain[key] = value
        else:
            raise UnsupportedState(
                f"optimizer state {key!r} is a {type(value).__name__}; an elastic training can carry tensors, "
                "numbers, strings and tuples of them"
            )


def _write_scaled(gradient: Tensor, share: float, place: Tensor) -> None:
    """``place`` = gradient x share, in one pass over memory where it can be; the same bits as in two."""
    if gradient.layout is torch.strided and gradient.dtype is place.dtype and gradient.device == place.device:
        torch.mul(gradient, share, out=place.view(gradient.shape))
    else:
        place.copy_((gradient.to_dense() if gradient.is_sparse else gradient).reshape(-1)).mul_(share)


def _seed(seed: int) -> None:
    seed_python(seed)
    torch.manual_seed(seed)


def _move(value: Any, device: torch.device) -> Any:
    """Tensors inside tuples, lists and dicts to the device."""
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


def _is_plain_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        item is None or isinstance(item, bool | int | float | str) for item in value
    )


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
