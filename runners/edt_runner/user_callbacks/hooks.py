"""The order in which a user's callbacks are called, and what they remember between. Room: runners; torch in name only.

Each kind of callback is brought to one form by a ``UserCallback``. The random generators are seeded alike in all
engines before each round of hooks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from edt_runner.engine import seeds
from edt_runner.user_callbacks.memory import Memory


class UserCallback(Protocol):
    """One callback, whatever it derives from."""

    inner: Any
    """What the user gave."""
    given: tuple[str, ...]
    """Its attributes that are set by ``attach``."""

    def attach(self, model: Any, optimizer: Any, epochs: int, steps: int) -> None: ...
    def train_begin(self) -> None: ...
    def train_end(self, values: Mapping[str, float]) -> None: ...
    def epoch_begin(self, epoch: int) -> None: ...
    def epoch_end(self, epoch: int, values: dict[str, float], saves: bool) -> None: ...


class WmlaCallback:
    """A ``callbacks.Callback``, or anything that has some of its hooks."""

    given: tuple[str, ...] = ("params", "model")

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def attach(self, model: Any, optimizer: Any, epochs: int, steps: int) -> None:
        self.inner.params = {"optimizer": optimizer, "epochs": epochs}
        self.inner.model = model

    def train_begin(self) -> None:
        self._call("on_train_begin")

    def train_end(self, values: Mapping[str, float]) -> None:
        self._call("on_train_end")

    def epoch_begin(self, epoch: int) -> None:
        self._call("on_epoch_begin", epoch)

    def epoch_end(self, epoch: int, values: dict[str, float], saves: bool) -> None:
        hook = getattr(self.inner, "on_epoch_end", None)
        if hook is not None and _takes(hook, "save_model"):
            hook(epoch, save_model=saves)
        elif hook is not None:
            hook(epoch)

    def _call(self, name: str, *arguments: Any) -> None:
        hook = getattr(self.inner, name, None)
        if hook is not None:
            hook(*arguments)


class KerasCallback:
    """A ``keras.callbacks.Callback``, of Keras 3 or 2, one of those that ``fabric_model`` lets through."""

    given: tuple[str, ...] = ("params", "model", "_model", "validation_data")

    def __init__(self, inner: Any) -> None:
        self.inner = inner

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
        self.inner.on_epoch_end(epoch, values)  # one dict for all, as Keras has it: some add to it


class UserCallbacks:
    """All callbacks of one engine. See ``engine.hooks.Hooks``.

    Args:
        callbacks: in the order in which they are called.
        model, optimizer: what hooks see.
        known: parts of both, in an order that is the same in every process.
        epochs, steps: of the training; steps of one epoch.
        seed: of the training.
        seed_framework: seeds the framework's global generators.
        ran: called after hooks have run: the model may be another.
    """

    def __init__(
        self,
        callbacks: Sequence[UserCallback],
        model: Any,
        optimizer: Any,
        known: Sequence[Any],
        *,
        epochs: int,
        steps: int,
        seed: int,
        seed_framework: Callable[[int], None],
        ran: Callable[[], None],
    ) -> None:
        self._callbacks, self._model = callbacks, model
        self._seed, self._seed_framework, self._ran = seed, seed_framework, ran
        self._memories = [_memory(callback, known) for callback in callbacks]
        self._made = [memory.take() for memory in self._memories]
        """What they remember before any hook."""
        self._entered = False
        self._begun = False
        self._stopped = False
        self._told: list[Any] = []
        self._tensors: dict[str, torch.Tensor] = {}
        for callback in callbacks:
            callback.attach(model, optimizer, epochs, steps)

    @property
    def stopped(self) -> bool:
        return self._stopped

    # ── hooks ─────────────────────────────────────────────────────────────────────────────────────────────────
    def enter(self) -> None:
        """This process is about to be given a state that has hooks behind it: whatever they would change is about to be
        overwritten."""
        if not self._entered:
            self._train_begin()

    def begin(self) -> None:
        if self._begun:
            return
        if self._entered:  # it had begun, and was sent back before anybody counted on it
            for memory, (told, tensors) in zip(self._memories, self._made, strict=True):
                memory.give(told, tensors)
        self._train_begin()
        self._epoch_begin(0)
        self._begun = True
        self._finish()

    def end_epoch(self, epoch: int, values: Mapping[str, float], *, last: bool, saves: bool) -> None:
        self._seed_for(2 * epoch + 2)
        shared = dict(values)
        for callback in self._callbacks:
            callback.epoch_end(epoch, shared, saves)
        asked = getattr(self._model, "stop_training", False)
        self._stopped = not callable(asked) and bool(asked)  # NumPy has a True of its own
        if last or self._stopped:
            for callback in self._callbacks:
                callback.train_end(shared)
        else:
            self._epoch_begin(epoch + 1)
        self._finish()

    def _train_begin(self) -> None:
        self._entered = True
        if hasattr(self._model, "stop_training"):
            self._model.stop_training = False
        self._seed_for(0)
        for callback in self._callbacks:
            callback.train_begin()
        for memory in self._memories:
            memory.settle()

    def _epoch_begin(self, epoch: int) -> None:
        self._seed_for(2 * epoch + 1)
        for callback in self._callbacks:
            callback.epoch_begin(epoch)

    def _seed_for(self, place: int) -> None:
        seed = seeds.hook_seed(self._seed, place)
        seeds.seed_python(seed)
        self._seed_framework(seed)

    def _finish(self) -> None:
        self._ran()
        self._told, self._tensors = [], {}
        for index, memory in enumerate(self._memories):
            told, tensors = memory.take()
            self._told.append(told)
            self._tensors |= {f"{index}.{place}": tensor for place, tensor in tensors.items()}
        self._tensors = _ordered(self._tensors)

    # ── what they remember ────────────────────────────────────────────────────────────────────────────────────
    def export(self) -> tuple[dict[str, Any] | None, dict[str, torch.Tensor]]:
        """Plain JSON and tensors; None: no hook has run on this state."""
        if not self._begun:
            return None, {}
        return {"told": self._told, "stopped": self._stopped}, self._tensors

    def restore(self, told: Mapping[str, Any] | None, tensors: Mapping[str, torch.Tensor]) -> None:
        """The opposite."""
        self._begun = told is not None
        if told is None:
            return
        self._told, self._stopped, self._tensors = told["told"], bool(told["stopped"]), _ordered(tensors)
        for index, (memory, one) in enumerate(zip(self._memories, self._told, strict=True)):
            start = f"{index}."
            own = {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}
            memory.give(one, own)


def _memory(callback: UserCallback, known: Sequence[Any]) -> Memory:
    return Memory(callback.inner, type(callback.inner).__name__, known, but_not=callback.given)


def _ordered(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Alike in all engines, whatever order an object got its attributes in: several send a state together."""
    return dict(sorted(tensors.items()))


def _takes(hook: Callable[..., Any], name: str) -> bool:
    """Whether it has a parameter of this name, or takes any."""
    try:
        parameters = inspect.signature(hook).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(parameter.name == name or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
