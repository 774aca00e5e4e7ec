"""The kinds of callbacks that a user gives, each with the interface of ``hooks.UserCallback``.

Hooks of single steps have Keras's names, for both kinds. ``logs`` are loss and metrics by name, means over all engines
and over the epoch so far, as ``fit`` gives them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

OF_BATCHES = ("on_train_batch_begin", "on_train_batch_end", "on_test_batch_begin", "on_test_batch_end")
"""Hooks of one step: the argument is the number of the step in its epoch, or in its validation, from 0."""
OF_TESTS = ("on_test_begin", "on_test_end")
"""Hooks of a whole validation."""
OLDER = {"on_batch_begin": "on_train_batch_begin", "on_batch_end": "on_train_batch_end"}
"""Older names of hooks -> names now."""


class WmlaCallback:
    """A ``callbacks.Callback``, or any object that has some of its hooks.

    It gets the newest values as its attribute ``metrics``, unless it has an attribute of this name of its own.

    Args:
        inner: the user's object.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self._gets_metrics = "metrics" not in vars(inner)
        self.attached: tuple[str, ...] = ("params", "model", *(("metrics",) if self._gets_metrics else ()))
        found = {new: getattr(inner, old, None) for old, new in OLDER.items()}
        found |= {name: getattr(inner, name, None) or found.get(name) for name in (*OF_BATCHES, *OF_TESTS)}
        self._of_steps: dict[str, Callable[..., Any]] = {name: hook for name, hook in found.items() if callable(hook)}

    @property
    def has_step_hooks(self) -> bool:
        return bool(self._of_steps)

    def attach(self, model: Any, optimizer: Any, epochs: int, steps: int) -> None:
        self.inner.params = {"optimizer": optimizer, "epochs": epochs}
        self.inner.model = model
        self._tell({})

    def _tell(self, values: Mapping[str, float]) -> None:
        if self._gets_metrics:
            self.inner.metrics = dict(values)

    def train_begin(self) -> None:
        self._call("on_train_begin")

    def train_end(self, values: Mapping[str, float]) -> None:
        self._call("on_train_end")

    def epoch_begin(self, epoch: int) -> None:
        self._call("on_epoch_begin", epoch)

    def epoch_end(self, epoch: int, values: dict[str, float], saves: bool) -> None:
        self._tell(values)
        hook = getattr(self.inner, "on_epoch_end", None)
        if hook is not None and _takes(hook, "save_model"):
            hook(epoch, save_model=saves)
        elif hook is not None:
            hook(epoch)

    def at_step(self, hook: str, index: int | None, values: Mapping[str, float]) -> None:
        """The user's hook takes the number of the step, and ``logs`` if it has a parameter for them."""
        found = self._of_steps.get(hook)
        if found is None:
            return
        if hook.endswith("_end"):
            self._tell(values)
        numbers = () if index is None else (index,)
        found(*numbers, **({"logs": dict(values)} if _takes(found, "logs") else {}))

    def _call(self, name: str, *arguments: Any) -> None:
        hook = getattr(self.inner, name, None)
        if hook is not None:
            hook(*arguments)


class KerasCallback:
    """A ``keras.callbacks.Callback`` of Keras 3 or 2, of a kind that ``fabric_model`` accepts.

    Args:
        inner: the user's object.
        own: names of the hooks that it overrides; only they are worth a call after each step.
    """

    attached: tuple[str, ...] = ("params", "model", "_model", "validation_data")

    def __init__(self, inner: Any, own: Iterable[str] = ()) -> None:
        self.inner = inner
        self._of_steps = frozenset(OLDER.get(name, name) for name in own) & {*OF_BATCHES, *OF_TESTS}

    @property
    def has_step_hooks(self) -> bool:
        return bool(self._of_steps)

    def attach(self, model: Any, optimizer: Any, epochs: int, steps: int) -> None:
        self.inner.set_params({"epochs": epochs, "steps": steps, "verbose": 0})
        self.inner.set_model(model)

    def train_begin(self) -> None:
        self.inner.on_train_begin({})

    def train_end(self, values: Mapping[str, float]) -> None:
        self.inner.on_train_end(dict(values))

    def epoch_begin(self, epoch: int) -> None:
        self.inner.on_epoch_begin(epoch, {})

    def epoch_end(self, epoch: int, values: dict[str, float], saves: bool) -> None:
        self.inner.on_epoch_end(epoch, values)  # all callbacks get the same dict, as in Keras; some add values to it

    def at_step(self, hook: str, index: int | None, values: Mapping[str, float]) -> None:
        """Keras's own ``on_train_batch_end`` calls ``on_batch_end``, which older callbacks override."""
        if hook in self._of_steps:
            numbers = () if index is None else (index,)
            getattr(self.inner, hook)(*numbers, dict(values))


def _takes(hook: Callable[..., Any], name: str) -> bool:
    """Whether ``hook`` has a parameter of this name, or takes any keyword."""
    try:
        parameters = inspect.signature(hook).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(parameter.name == name or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
