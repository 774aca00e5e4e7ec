"""torch's optimizers with one update per ``steps`` micro-batches.

    optimizer = runai.ga.torch.optim.Adam(4, model.parameters(), lr=1e-3)       # or
    optimizer = runai.ga.torch.optim.Optimizer(optimizer, 4)
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss_function(model(inputs), targets).backward()
        optimizer.step()                    # each fourth call updates

``reduction="mean"``, the default, is right for a loss that is a mean over its micro-batch, as torch's losses are. The
update is then that of one batch with all the samples, whatever ``steps`` is. The original adds up the micro-batches'
gradients. This makes the update ``steps`` times as large, so that the number of GPUs changes the training. It is right
for a loss with ``reduction="sum"``, and ``reduction="sum"`` here does the same.

If micro-batches have different sizes, call ``optimizer.step(samples=len(inputs))``, or give
``sizes=runai.elastic.sizes`` if the sizes are known beforehand. If an epoch ends within a cycle, the next epoch
continues the cycle; ``optimizer.flush()`` updates with the micro-batches so far. With a GradScaler, call
``scaler.step(optimizer)`` and ``scaler.update()`` after each micro-batch; a micro-batch whose gradients overflow is not
counted. Under DistributedDataParallel, all micro-batches but a cycle's last may run within ``no_sync()``; the gradients
that it does not average are averaged at the update.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from edt_runner.errors import UsageError, usage
from runai.ga.torch._cycle import Cycle, Driver, State


class Accumulating(torch.optim.Optimizer):
    """The methods that are added to an optimizer's class.

    ``accumulating(SGD)`` is a subclass of SGD with the same name. An optimizer becomes accumulating by a change of its
    class. It keeps its state, its parameter groups, its hooks and its constructor's arguments. A scheduler that was
    built for it before still works.

    Step hooks (``register_step_pre_hook``) run at updates only, when ``.grad`` holds the whole cycle's gradient. This
    is the place to clip it.
    """

    _runai: Cycle

    @property
    def runai(self) -> State:
        """Progress of the accumulation: ``.steps`` and ``.step``."""
        return self._runai.state

    def step(self, closure: Callable[[], Any] | None = None, *, samples: int | None = None) -> Any:
        """Take one micro-batch's gradients. Every ``steps``-th call updates the parameters.

        Args:
            closure: computes the loss and the gradients; called once in each call.
            samples: samples of this micro-batch, if sizes differ; a mean loss then weighs all samples alike.

        Returns:
            The closure's loss. Without a closure, the result of the update, or None if there was no update.

        Raises:
            UsageError: some steps of one update have ``samples`` and others do not.
        """
        self._opt_called = True  # schedulers read this and warn of loops that never step
        driver = self.runai.driver
        if driver is not None:
            return driver.step(self, closure, samples)
        return self.micro_step(closure, samples)

    step.hooked = True  # type: ignore[attr-defined]  # torch: hooks belong to the update, the base class's step
    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]  # torch: schedulers need not patch it

    def micro_step(self, closure: Callable[[], Any] | None, samples: int | None, *, last: bool | None = None) -> Any:
        """``step`` without a driver. ``last``: whether an update follows; None: if this is the cycle's last."""
        cycle, loss, result = self._runai, None, None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        cycle.take(self._parameters(), samples)
        if cycle.state.within == cycle.state.steps - 1 if last is None else last:
            result = self.update(loss, with_closure=closure is not None)
        else:
            cycle.state["step"] += 1
        return loss if closure is not None else result

    def flush(self) -> bool:
        """Update with the micro-batches of an incomplete cycle, and begin another cycle. A mean is over these only.

        Call this at the end of an epoch or of the training. Without it, the next epoch's micro-batches continue the
        cycle.

        Returns:
            Whether there was an update; there is none at the beginning of a cycle.
        """
        if not self.runai.within:
            return False
        self.update()
        return True

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear ``.grad``. Gradients of the cycle's earlier micro-batches stay, because they are not in ``.grad``."""
        self._runai.keeps_tensors = not set_to_none
        if self.runai.within:
            self._runai.clear(self._parameters())
        elif set_to_none:
            super().zero_grad()
        else:
            super().zero_grad(set_to_none=False)

    def update(self, loss: Any = None, *, with_closure: bool = False) -> Any:
        """Update with the cycle's micro-batches. A driver calls this with a whole cycle's gradient in ``.grad``.

        Args:
            loss: the loss that a closure has returned.
            with_closure: whether there was a closure; the update then gets one, too.
        """
        self._runai.put_back(self._parameters())
        result = super().step(lambda: loss) if with_closure else super().step()
        self.runai["step"] += self.runai.steps - self.runai.within
        return result

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    # ── GradScaler ────────────────────────────────────────────────────────────────────────────────────────────
    @property
    def _step_supports_amp_scaling(self) -> bool:
        """False: fused kernels that unscale gradients would see sums of several scales, so the scaler unscales them."""
        return False

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, value: bool) -> None: ...

    # ── checkpoints ───────────────────────────────────────────────────────────────────────────────────────────
    def state_dict(self) -> dict[str, Any]:
        packed = super().state_dict()
        packed["state"]["runai"] = self._runai.export()
        return packed

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the state of any optimizer, accumulating (also the original's) or not. ``steps`` does not change."""
        saved = dict(state_dict["state"].get("runai") or {})  # a copy, because it may be this optimizer's own dict
        plain = {key: value for key, value in state_dict["state"].items() if key != "runai"}
        super().load_state_dict({**state_dict, "state": plain})
        self._runai.restore(saved, self._parameters())

    def __getstate__(self) -> dict[str, Any]:
        cycle = self._runai
        own = {"state": dict(cycle.export()), "reduction": cycle.reduction, "sizes": cycle.sizes}
        return {**super().__getstate__(), "_runai": own}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        own = state.get("_runai")
        super().__setstate__({key: value for key, value in state.items() if key != "_runai"})
        if own is not None:
            self._runai = Cycle(own["state"]["steps"], own["reduction"], own["sizes"])
            self._runai.restore(own["state"], self._parameters())

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return _bare, (type(self).__bases__[1],), self.__getstate__()


@functools.cache
def accumulating(base: Any) -> Any:
    """The accumulating subclass of ``base``, which is an optimizer's class."""
    names = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    return type(base.__name__, (Accumulating, base), names)


def _bare(base: Any) -> Any:
    """An accumulating optimizer of class ``base`` without state, for copies and pickles."""
    bare = base.__new__(base)
    bare._patch_step_function()  # torch: gives the class's step its hooks, which constructors normally do
    bare.__class__ = accumulating(base)
    return bare


def Optimizer(  # noqa: N802 - the original's name
    optimizer: torch.optim.Optimizer, steps: int, *, reduction: str = "mean", sizes: Sequence[int] | None = None
) -> Accumulating:
    """Make ``optimizer`` update once in ``steps`` calls of its ``step``. The object itself is changed and returned.

    Args:
        optimizer: any torch optimizer but LBFGS; its state stays.
        steps: micro-batches of an update, at least 1.
        reduction: ``mean`` or ``sum``, as the module's docstring explains.
        sizes: samples of each of the ``steps`` micro-batches; None: all count alike.

    Raises:
        UsageError: (a ValueError) an argument is wrong.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"optimizer: got {optimizer!r}, takes a torch.optim.Optimizer")
    if isinstance(optimizer, Accumulating):
        raise UsageError(
            "optimizer: got one that accumulates already; takes the optimizer in it, or change .runai.steps"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UsageError(
            "optimizer: got LBFGS, which computes its loss anew several times in an update; accumulate in its closure"
        )
    cycle = Cycle(steps, reduction, sizes)
    patched = vars(optimizer).get("step")
    if patched is not None:
        if not hasattr(patched, "_wrapped_by_lr_sched"):
            raise usage(
                "optimizer", patched, "an optimizer whose step was not replaced; accumulate first, then replace it"
            )
        del optimizer.step
    wrapped: Any = optimizer
    wrapped.__class__ = accumulating(wrapped.__class__)
    wrapped._runai = cycle
    result: Accumulating = wrapped
    return result


def _named(name: str) -> Callable[..., Accumulating]:
    """A function ``(steps, *arguments of torch.optim.<name>, reduction=, sizes=, **its options)``."""
    kind: Callable[..., torch.optim.Optimizer] = getattr(torch.optim, name)

    def build(
        steps: int, *args: Any, reduction: str = "mean", sizes: Sequence[int] | None = None, **options: Any
    ) -> Accumulating:
        return Optimizer(kind(*args, **options), steps, reduction=reduction, sizes=sizes)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"``Optimizer(torch.optim.{name}(*args, **options), steps, reduction=, sizes=)``."
    return build


Adadelta = _named("Adadelta")
Adagrad = _named("Adagrad")
Adam = _named("Adam")
AdamW = _named("AdamW")
Adamax = _named("Adamax")
ASGD = _named("ASGD")
NAdam = _named("NAdam")
RAdam = _named("RAdam")
RMSprop = _named("RMSprop")
Rprop = _named("Rprop")
SGD = _named("SGD")
SparseAdam = _named("SparseAdam")

__all__ = [
    "ASGD",
    "SGD",
    "Accumulating",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Driver",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "State",
]

if hasattr(torch.optim, "Adafactor"):  # since torch 2.5
    Adafactor = _named("Adafactor")
    __all__ += ["Adafactor"]
if hasattr(torch.optim, "Muon"):  # since torch 2.9
    Muon = _named("Muon")
    __all__ += ["Muon"]

torch.serialization.add_safe_globals([State])  # the original's checkpoints contain it
