"""The optimizers of a training as one: their steps, and their state as plain JSON and tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from edt_runner.errors import StateMismatch, UnsupportedState
from edt_runner.frameworks.pytorch import optimizers
from edt_runner.lr_scaling.update import Scaling

_PLAIN = bool | int | float | str | None


class OptimizerSet:
    """One optimizer or several, which take each step together. Groups and parameters are counted over all of them.

    Args:
        members: the user's optimizers.
        device: the device that the model computes on.
    """

    def __init__(self, members: Sequence[torch.optim.Optimizer], device: torch.device) -> None:
        self.members = tuple(members)
        for optimizer in self.members:
            for state in optimizer.state.values():
                for key, value in state.items():
                    if isinstance(value, Tensor) and value.dim():
                        state[key] = value.to(device)

    @property
    def name(self) -> str:
        """The classes of the optimizers."""
        return ", ".join(type(optimizer).__qualname__ for optimizer in self.members)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all optimizers, in order."""
        return [group for optimizer in self.members for group in optimizer.param_groups]

    @property
    def has_betas(self) -> bool:
        return any(map(optimizers.has_betas, self.members))

    @property
    def learning_rates(self) -> list[float]:
        """The learning rate of each parameter group that has one."""
        return [float(group["lr"]) for group in self.param_groups if "lr" in group]

    def step(self) -> None:
        for optimizer in self.members:
            optimizer.step()

    def keep_own(self, lent: Tensor) -> None:
        """Copy what optimizers have kept of the memory of ``lent``, which will be used again. torch's own keep
        nothing of it."""
        memory = lent.untyped_storage().data_ptr()
        for optimizer in self.members:
            if type(optimizer).__module__.startswith("torch.optim"):
                continue
            for state in optimizer.state.values():
                for key, value in state.items():
                    if isinstance(value, Tensor) and value.untyped_storage().data_ptr() == memory:
                        state[key] = value.clone()

    @contextlib.contextmanager
    def rescaled(self, scaling: Scaling) -> Iterator[Sequence[float]]:
        """A context in which all optimizers have scaled hyperparameters; yields their learning rates by group."""
        with contextlib.ExitStack() as stack:
            first, rates = 0, []
            for optimizer in self.members:
                groups = scaling.groups[first : first + len(optimizer.param_groups)]
                own = Scaling(scaling.lr, scaling.beta, scaling.eps, groups, scaling.velocity)
                rates += stack.enter_context(optimizers.rescaled(optimizer, own))
                first += len(optimizer.param_groups)
            yield rates

    def state_dict(self) -> Any:
        """The state as the user gets it: that of the optimizer, or a list if there are several."""
        found = [optimizer.state_dict() for optimizer in self.members]
        return found[0] if len(found) == 1 else found

    # ── as part of the training's state ───────────────────────────────────────────────────────────────────────
    def export(self, called: Mapping[int, str]) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, str]]:
        """Return the state by reference.

        Args:
            called: id of a parameter -> the name by which the user knows it.

        Returns:
            Plain JSON, tensors by name, and for some tensors the name by which the user knows them.

        Raises:
            UnsupportedState: the state holds something that is neither plain nor a tensor.
        """
        groups: list[dict[str, Any]] = []
        plain: dict[str, dict[str, Any]] = {}
        tensors: dict[str, Tensor] = {}
        names: dict[str, str] = {}
        for index, (optimizer, _, parameter) in enumerate(self._parameters()):
            plain[str(index)] = {}
            for key, value in optimizer.state.get(parameter, {}).items():
                _put(tensors, plain[str(index)], f"optimizer.{index}.{key}", key, value)
                names[f"optimizer.{index}.{key}"] = f"optimizer state {key} of {called.get(id(parameter), index)}"
        for number, group in enumerate(self.param_groups):
            groups.append({})
            for key, value in group.items():
                if key != "params":
                    _put(tensors, groups[-1], f"group.{number}.{key}", key, value)
        return {"groups": groups, "plain": plain}, tensors, names

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> dict[str, Tensor]:
        """Take the plain part of a state, and return tensors by name to which its tensors are to be written.

        Args:
            meta: the plain JSON of ``export``.
            shapes: name -> [dtype, shape] of the tensors of ``export``.

        Raises:
            StateMismatch: the optimizers of this process have other parameter groups.
        """
        if len(meta["groups"]) != len(self.param_groups):
            raise StateMismatch("the optimizer of this process has another number of parameter groups")
        for optimizer in self.members:
            optimizer.state.clear()
        parameters = list(self._parameters())
        for index, (optimizer, _, parameter) in enumerate(parameters):
            if meta["plain"].get(str(index)):
                optimizer.state[parameter].update(meta["plain"][str(index)])
        for group, values in zip(self.param_groups, meta["groups"], strict=True):
            group.update({key: tuple(v) if isinstance(group.get(key), tuple) else v for key, v in values.items()})
        places: dict[str, Tensor] = {}
        for name, (dtype, shape) in shapes.items():
            kind, _, rest = name.partition(".")
            number, _, key = rest.partition(".")
            place = torch.empty(shape, dtype=getattr(torch, dtype))
            if kind == "group":
                self.param_groups[int(number)][key] = place
            else:
                optimizer, group, parameter = parameters[int(number)]
                if place.dim() or group.get("fused") or group.get("capturable"):  # else steps stay on the host
                    place = torch.empty_like(parameter, dtype=place.dtype) if place.shape == parameter.shape else place
                    place = place.to(parameter.device)
                optimizer.state[parameter][key] = place
            places[name] = place
        return places

    def _parameters(self) -> Iterator[tuple[torch.optim.Optimizer, dict[str, Any], Any]]:
        """Every parameter with its optimizer and its group, in order."""
        for optimizer in self.members:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    yield optimizer, group, parameter


def _put(tensors: dict[str, Tensor], plain: dict[str, Any], name: str, key: str, value: Any) -> None:
    if isinstance(value, Tensor):
        tensors[name] = value.detach()
    elif all(isinstance(item, _PLAIN) for item in (value if isinstance(value, list | tuple) else [value])):
        plain[key] = value
    else:
        raise UnsupportedState(
            f"optimizer state {key!r} is a {type(value).__name__}; an elastic training can carry tensors, "
            "numbers, strings and tuples of them"
        )
