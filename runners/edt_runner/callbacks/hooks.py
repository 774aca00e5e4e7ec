"""The order in which the runner calls a user's callbacks, and how their memory travels between processes.

A ``UserCallback`` gives each kind of callback the same interface. Before each round of hooks, all engines seed their
random generators alike.

The memory of a callback is part of the training's state. It travels from one process to the same callback of another
process, its twin. The same script made the twin, so only what has changed since must travel, and it travels only as
data (``records``). A value that cannot travel safely is refused with an error that names its attribute. A large array
that the script made before the training, and that no hook has changed, does not travel, because the twin has it too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from edt_runner import seeds
from edt_runner.callbacks.records import MISSING, Reader, Writer, has_state_dict, is_of_the_script
from edt_runner.schedule import Step, StepKind

_NONE: Mapping[str, float] = {}


class UserCallback(Protocol):
    """One callback of a user, whatever class it derives from, or of the platform."""

    inner: Any
    """The user's own callback object, or an object that holds what a callback of the platform remembers."""
    attached: tuple[str, ...]
    """Attributes of ``inner`` that ``attach`` sets."""

    @property
    def has_step_hooks(self) -> bool:
        """Whether it has hooks of single steps, which ``at_step`` calls."""
        return False

    def attach(self, model: Any, optimizer: Any, epochs: int, steps: int) -> None: ...
    def train_begin(self) -> None: ...
    def train_end(self, values: Mapping[str, float]) -> None: ...
    def epoch_begin(self, epoch: int) -> None: ...
    def epoch_end(self, epoch: int, values: dict[str, float], saves: bool) -> None: ...

    def at_step(self, hook: str, index: int | None, values: Mapping[str, float]) -> None:
        """Call a hook of a step, if there is one of this name (``kinds``).

        Args:
            hook: its name.
            index: the step's number in its epoch or validation; None: the hook is one of a whole validation.
            values: means over the steps of this kind so far; none at a beginning.
        """
        return


class UserCallbacks:
    """All callbacks of one engine.

    What callbacks change and remember is part of the state that the adapter exports. The state after n steps is the
    state after all hooks that belong before step n.

    Args:
        callbacks: the callbacks, in the order in which they are called.
        model, optimizer: the objects that hooks see.
        model_parts: parts of both, in an order that is the same in every process.
        epochs, steps: number of epochs of the training, and of steps of one epoch.
        seed: the training's seed.
        seed_framework: seeds the framework's global generators.
        ran: called after hooks have run, because they may have changed the model.
    """

    def __init__(
        self,
        callbacks: Sequence[UserCallback],
        model: Any,
        optimizer: Any,
        model_parts: Sequence[Any],
        *,
        epochs: int,
        steps: int,
        seed: int,
        seed_framework: Callable[[int], None],
        ran: Callable[[], None],
    ) -> None:
        self._callbacks, self._model = callbacks, model
        self._seed, self._seed_framework, self._ran = seed, seed_framework, ran
        self._memories = [
            Memory(callback.inner, type(callback.inner).__name__, model_parts, callback.attached)
            for callback in callbacks
        ]
        self._epochs = epochs
        self._ended: int | None = None
        """The epoch that would follow, if the training has ended: with its last epoch, or because a hook asked."""
        self._initial = [memory.export() for memory in self._memories]
        """What each callback remembers before any hook."""
        self._entered = False
        self._begun = False
        self.has_step_hooks = any(callback.has_step_hooks for callback in callbacks)
        """Whether ``end_step`` is to be called after each step."""
        self.stopped = False
        """Whether a callback has ended the training at the end of an epoch."""
        self._asked = False
        """Whether a hook of a step has asked for that. The training ends when the epoch ends."""
        for callback in callbacks:
            callback.attach(model, optimizer, epochs, steps)

    # ── hooks ─────────────────────────────────────────────────────────────────────────────────────────────────
    def enter(self) -> None:
        """Run the ``on_train_begin`` hooks, unless they have run.

        Called before this process receives a state on which hooks have run. That state then overwrites what the
        hooks change here.
        """
        if not self._entered:
            self._train_begin()

    def begin(self) -> None:
        """Run the hooks that belong before the next step, unless the received state already has them.

        Called after a state has been received. The hooks run if that state is the driver's state of offset 0, or the
        last state of a training that goes on with more epochs.
        """
        if self._begun:
            if self._ended is not None and self._ended < self._epochs and not self.stopped:
                self._epoch_begin(self._ended)
                self._ended = None
                self._finish()
            return
        if self._entered:  # it had begun, and was sent back before any engine relied on it
            for memory, (record, tensors) in zip(self._memories, self._initial, strict=True):
                memory.restore(record, tensors)
        self._train_begin()
        self._epoch_begin(0)
        self._begun = True
        self._finish()

    def end_step(self, step: Step, values: Mapping[str, float]) -> None:
        """Run the hooks that belong between a step and the next step of the same epoch.

        Called only if ``has_step_hooks``, and before ``end_epoch`` if the step ends its epoch.

        Args:
            step: the step that ends, of a training or of a validation.
            values: means over all engines and over the steps of its kind in its epoch so far.
        """
        trains = step.kind is StepKind.TRAIN
        kind = "train" if trains else "test"
        self._seed_for(seeds.hook_seed(-1 - 2 * step.epoch - trains, step.index))
        self._at_step(f"on_{kind}_batch_end", step.index, values)
        if not step.last:
            self._at_step(f"on_{kind}_batch_begin", step.index + step.advance)
        elif not trains:
            self._at_step("on_test_end", None, values)
        elif not step.ends_epoch:  # a validation follows
            self._at_step("on_test_begin", None)
            self._at_step("on_test_batch_begin", 0)
        self._asked = self._is_asked_to_stop
        self._ran()

    def _at_step(self, hook: str, index: int | None, values: Mapping[str, float] = _NONE) -> None:
        for callback in self._callbacks:
            callback.at_step(hook, index, values)

    @property
    def _is_asked_to_stop(self) -> bool:
        stop = getattr(self._model, "stop_training", False)
        return not callable(stop) and bool(stop)  # NumPy's True is another object than Python's

    def end_epoch(self, epoch: int, values: Mapping[str, float], *, last: bool, saves: bool) -> None:
        """Run the hooks that belong between the last step of an epoch and the next step.

        Args:
            epoch: the epoch that ends, 0-based.
            values: means over all engines; those of the validation are named ``val_…``.
            last: no epoch follows.
            saves: the user's model files are written after this epoch.
        """
        self._seed_for(2 * epoch + 2)
        shared = dict(values)
        for callback in self._callbacks:
            callback.epoch_end(epoch, shared, saves)
        self._asked = self.stopped = self._is_asked_to_stop
        if last or self.stopped:
            for callback in self._callbacks:
                callback.train_end(shared)
            self._ended = epoch + 1
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
            memory.freeze()

    def _epoch_begin(self, epoch: int) -> None:
        self._seed_for(2 * epoch + 1)
        for callback in self._callbacks:
            callback.epoch_begin(epoch)
        self._at_step("on_train_batch_begin", 0)

    def _seed_for(self, place: int) -> None:
        """Seed the generators for a round of hooks. A PyTorch model is in evaluation mode then, whatever this engine
        has computed last."""
        seed = seeds.hook_seed(self._seed, place)
        seeds.seed_python(seed)
        self._seed_framework(seed)
        if isinstance(self._model, torch.nn.Module):
            self._model.eval()

    def _finish(self) -> None:
        self._ran()
        self._remembered()  # what cannot travel is refused here, and not when an engine joins

    def _remembered(self) -> tuple[list[Any], dict[str, torch.Tensor]]:
        """What each callback remembers now. Steps may change it, too: a callback may hold a scheduler."""
        records: list[Any] = []
        tensors: dict[str, torch.Tensor] = {}
        for index, memory in enumerate(self._memories):
            record, own = memory.export()
            records.append(record)
            tensors |= {f"{index}.{place}": tensor for place, tensor in own.items()}
        return records, _ordered(tensors)

    # ── what they remember ────────────────────────────────────────────────────────────────────────────────────
    def export(self) -> tuple[dict[str, Any] | None, dict[str, torch.Tensor]]:
        """What the callbacks remember.

        Returns:
            Plain JSON, or None if no hook has run on this state; and tensors by name.
        """
        if not self._begun:
            return None, {}
        own = {"stopped": self.stopped, "asked": self._asked, "ended": self._ended}
        records, tensors = self._remembered()
        return {"records": records, **own}, tensors

    def restore(self, record: Mapping[str, Any] | None, tensors: Mapping[str, torch.Tensor]) -> None:
        """Make the callbacks remember what ``export`` of another process has returned.

        Raises:
            StateMismatch: this process has made other callbacks than that one.
        """
        self._begun = record is not None
        if record is None:
            return
        records = record.get("records", record.get("told"))  # an earlier release's name
        self.stopped = bool(record["stopped"])
        self._asked = bool(record.get("asked", False))  # an earlier release had no hooks of steps
        self._ended = record.get("ended")
        if self._asked:
            self._model.stop_training = True
        for index, (memory, one) in enumerate(zip(self._memories, records, strict=True)):
            start = f"{index}."
            own = {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}
            memory.restore(one, own)


def _ordered(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Sort tensors by name. Several engines may send one state together, so all engines need the same order."""
    return dict(sorted(tensors.items()))


_CHANGEABLE = (list, dict, set, deque, np.ndarray, torch.Tensor)


class Memory:
    """What one object remembers: its attributes, or its ``state_dict()`` if it has one.

    Args:
        owner: the object, of any class.
        name: what error messages call the object.
        model_parts: parts of the model and the optimizer, in an order that is the same in every process.
        but_not: names of attributes that do not travel, because the runner sets them.
    """

    def __init__(self, owner: Any, name: str, model_parts: Sequence[Any], but_not: Sequence[str] = ()) -> None:
        self._owner, self._name, self._model_parts, self._but_not = owner, name, model_parts, frozenset(but_not)
        if not has_state_dict(owner):
            _take_over(owner)
        self._frozen: dict[str, Any] | None = None
        """Resources and objects by place, which must not be replaced; None before ``freeze``."""
        self._unchanged: Mapping[str, str] = self._writer(None).digests
        """Digests, by place, of large arrays that the script made and no hook has changed."""

    def freeze(self) -> None:
        """From now on the object's resources must not be replaced."""
        self._frozen = None
        self._frozen = self._writer(self._unchanged).references

    def export(self) -> tuple[Any, dict[str, torch.Tensor]]:
        """Return what the object remembers now, as JSON, and its tensors, which are not copied.

        Raises:
            UsageError: a value cannot travel; the message names its attribute.
        """
        writer = self._writer(self._unchanged)
        self._note_changed(writer.tensors)
        return writer.record, writer.tensors

    def restore(self, record: Any, tensors: Mapping[str, torch.Tensor]) -> None:
        """Make the object remember what its twin in another process has exported.

        Raises:
            StateMismatch: this process's object is made differently from the twin.
        """
        self._note_changed(tensors)
        reader = Reader(self._name, self._model_parts, tensors)
        if isinstance(record, dict):
            own = self._owner.state_dict()
            self._owner.load_state_dict(reader.read(record["itself"], own, "state_dict()"))
            return
        content = vars(self._owner)
        found = {attribute: reader.read(node, content.get(attribute, MISSING), attribute) for attribute, node in record}
        for attribute in set(content) - set(found) - self._but_not:
            del content[attribute]
        content.update(found)

    def _note_changed(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Note large arrays that have changed. From then on every engine sends them, because a twin that is behind may
        have an older value."""
        self._unchanged = {place: digest for place, digest in self._unchanged.items() if place not in tensors}

    def _writer(self, unchanged: Mapping[str, str] | None) -> Writer:
        return Writer(self._name, self._model_parts, self._frozen, unchanged, self._content())

    def _content(self) -> Any:
        if has_state_dict(self._owner):
            return self._owner
        return {name: value for name, value in vars(self._owner).items() if name not in self._but_not}


def _take_over(owner: Any) -> None:
    """Copy values of class attributes that a hook may change in place, such as ``losses = []``, to the object."""
    for kind in filter(is_of_the_script, type(owner).__mro__):
        for name, value in vars(kind).items():
            if isinstance(value, _CHANGEABLE) and not name.startswith("__"):
                vars(owner).setdefault(name, value)
