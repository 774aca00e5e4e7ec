"""An optimizer that accumulates, reduces and steps as the trace says."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from edt_runner.errors import UsageError, whole
from edt_runner.frameworks.pytorch.optimizers import in_group, scaled_values, wrapping
from edt_runner.lr_scaling.rules import Rule
from edt_runner.lr_scaling.update import Moments, Norms, Update
from variable_batch_size.collective import Collective, collective, mark_step
from variable_batch_size.gradients import Gradients, Idle
from variable_batch_size.sampler import CustomSampler

KEY = "variable_batch_size"
"""Of our part of a state dict; the rest of it is the inner optimizer's."""


class CustomOptimizer(Optimizer):
    """Steps ``optimizer`` once for each entry of the sampler's trace; in between it accumulates.

    ``step`` is called once for each batch that the sampler yields, after its backward pass. The loss is the mean over
    the batch. ``zero_grad`` need not be called and does nothing: an update's gradients are cleared when it is done.

    It is a torch Optimizer with the inner one's groups and state: learning-rate schedulers take either. Between
    updates the groups have the reference's learning rate; what the rule makes of it holds during the update only.
    All processes begin with the same weights, which is looked at in the first update; no model is wrapped in
    DistributedDataParallel, which would reduce every micro-batch. With a GradScaler, ``scaler.step(optimizer)`` and
    ``scaler.update()`` follow each backward pass; an update with an infinite gradient is left out in all processes.

    Args:
        optimizer: steps once an update.
        sampler: what the batches come from.
        log_steps: rank 0 prints a line every so many updates; None: none.
        reduction: ``mean`` or ``sum`` of the micro-batches' gradients.
        rule: how the learning rate follows the batch; None: ``adapt_lr`` of a subclass says, or it does not.
        ref_batchsize: samples of the batch that the learning rate was chosen for; without: those of a micro-batch.
        measure: measure how noisy the gradients are: ``noise_scale``. It costs one pass over each micro-batch's
            gradients, and memory for one set more of them.
        model: whose buffers (batch statistics) and whose random numbers a pass of a process that has no share of an
            update leaves as they were. Without it they change, as in ETH's library. Its buffers are otherwise each
            process's own, of its own micro-batches.
        process_group: of torch.distributed; None: the default one.
    """

    _step_supports_amp_scaling = True  # a GradScaler leaves it to us: each micro-batch has a scale of its own

    def __init__(
        self,
        optimizer: Optimizer,
        sampler: CustomSampler,
        log_steps: int | None = None,
        reduction: str = "mean",
        *,
        rule: Rule | None = None,
        ref_batchsize: int | None = None,
        measure: bool = True,
        model: nn.Module | None = None,
        process_group: Any = None,
    ) -> None:
        _check(optimizer, sampler, log_steps, reduction, ref_batchsize)
        if isinstance(model, nn.parallel.DistributedDataParallel):
            raise UsageError("model: got DistributedDataParallel, takes the model itself: step() reduces the gradients")
        self.optimizer = optimizer
        groups, state = optimizer.param_groups, optimizer.state
        super().__init__(groups, optimizer.defaults)
        optimizer.param_groups, optimizer.state = groups, state  # the base class began its own
        self.sampler = sampler
        self.log_steps = log_steps
        self.reduction = reduction
        self.rule = rule
        self.ref_batchsize = sampler.minibatch_size if ref_batchsize is None else int(ref_batchsize)
        self.moments = self._new_moments()
        self._gradients = self._new_gradients(measure)
        self._idle = None if model is None else Idle(model, lambda: self.idle)
        self._process_group = process_group
        self._collective: Collective | None = None
        self._updates = self._trained = 0
        self._model_is_seen = False
        self.norms: Norms | None = None
        """What was measured of the last update."""
        self._last: dict[str, float] = {}
        self._begin(0)

    def step(self, closure: Callable[[], Any] | None = None) -> bool:  # type: ignore[override]
        """Count in the gradients of one batch of the sampler; with the last of this process's share of an update,
        reduce and update the weights.

        Args:
            closure: computes the loss and its gradients; called once.

        Returns:
            Whether the weights have changed.

        Raises:
            RuntimeError: the epoch has no further update, ``set_epoch`` was called on the sampler alone, the
                processes are not at the same update, or a DistributedDataParallel reduces each micro-batch.
        """
        self._check_place()
        self._check_model()
        if closure is not None:
            with torch.enable_grad():
                closure()
        share = self.schedule[self.step_index]
        if share:
            self._gradients.add(self._parameters(), getattr(self, "grad_scale", None), getattr(self, "found_inf", None))
        else:
            self._gradients.drop(self._parameters())
            if self._idle is not None:
                self._idle.undo()
        if self.substep_index < len(share) - 1:
            self.substep_index += 1
            return False
        self._update()
        return not self._gradients.overflowed

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, from 0, where the sampler begins it. Call the sampler's ``set_epoch`` as well.

        Micro-batches of an update that is not complete are dropped, with a warning.

        Raises:
            TraceEnded: the trace does not have it.
        """
        if self.substep_index:
            warnings.warn(
                f"set_epoch({epoch}) drops {self.substep_index} micro-batches of update {self.step_index} of epoch "
                f"{self._began[0]}: it was not complete",
                RuntimeWarning,
                stacklevel=2,
            )
        self._begin(epoch)

    def adapt_lr(self) -> None:
        """Set what the coming update takes in the groups, which get back their own values after it. The reduced
        gradients are in ``.grad``. For a rule of one's own, here or as ``rule``."""
        if self.rule is not None:
            scaled = scaled_values(self.optimizer, self.rule.scaling(self._coming(), self.moments))
            for group, values in zip(self.param_groups, scaled, strict=True):
                group.update(values)

    def get_lr(self) -> tuple[Any, ...]:
        """The groups' learning rates: between updates the reference's."""
        return tuple(group["lr"] for group in self.param_groups)

    def set_lr(self, values: Iterable[Any]) -> None:
        for group, value in zip(self.param_groups, values, strict=False):
            group["lr"] = value

    def get_bs(self) -> int:
        """Global batch of the coming update; 0 behind the epoch's last."""
        return self.epochtrace[self.step_index] if self.step_index < len(self.epochtrace) else 0

    @property
    def idle(self) -> bool:
        """Whether this process has no share of the coming update, so that its loss is not to be counted."""
        return self.step_index < len(self.schedule) and not self.schedule[self.step_index]

    @property
    def noise_scale(self) -> float:
        """Gradient noise scale in samples, a running estimate; NaN before the first update of two micro-batches."""
        return self.moments.noise_scale

    def details(self) -> dict[str, float]:
        """Of the last update: batch, learning rate of the first group, gradient noise scale, what the rule has to
        say; empty before the first."""
        return dict(self._last)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing: an update's gradients are cleared when it is done."""

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's, and under a key of our own where the training is, for any number of processes.

        Between two updates' ends it is the end of the earlier: the later one is done anew.
        """
        own = {
            "sampler": {**self.sampler.state_dict(), **self._place()},
            "updates": self._updates,
            "trained": self._trained,
            "moments": self.moments.to_json_object(),
            "rule": None if self.rule is None else {"name": self.rule.name, "state": self.rule.to_json_object()},
        }
        return {**self.optimizer.state_dict(), KEY: own}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was, the sampler as well. One of a plain optimizer leaves the place as it is.

        Raises:
            UsageError: it does not fit the sampler, or is of another rule.
        """
        own = state_dict.get(KEY)
        if own is not None:
            rule = own["rule"]
            name, here = (None if rule is None else rule["name"]), (None if self.rule is None else self.rule.name)
            if name != here:
                raise UsageError(f"state_dict: got the rule {name}, takes {here}, that of this optimizer")
            self.sampler.load_state_dict(own["sampler"])
            self._updates, self._trained = int(own["updates"]), int(own["trained"])
            self.moments.load(own["moments"])
            if self.rule is not None:
                self.rule.load(rule["state"])
            self._begin(self.sampler.epoch)
        self.optimizer.load_state_dict({name: value for name, value in state_dict.items() if name != KEY})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.optimizer.add_param_group(param_group)

    @property  # the inner optimizer replaces both when it loads a state
    def param_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        return self.optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self.optimizer.state = state

    def __getstate__(self) -> dict[str, Any]:
        """Without the hooks, and the process group, which is of this process."""
        kept = {name: value for name, value in self.__dict__.items() if name != "step" and "_hooks" not in name}
        return {**kept, "_process_group": None, "_collective": None, "_idle": None}

    def _new_moments(self) -> Moments:
        return Moments(self.sampler.minibatch_size)

    def _new_gradients(self, measure: bool) -> Gradients:
        return Gradients(measure=measure)

    def _parameters(self) -> list[Sequence[Tensor]]:
        return [group["params"] for group in self.param_groups]

    def _place(self) -> dict[str, int]:
        epoch = self._began[0]
        start = self.sampler.get_epoch_range(epoch)[0]
        return {"epoch": epoch, "position": self.step_index, "trace_start": start}

    def _begin(self, epoch: int) -> None:
        self.epochtrace = self.sampler.get_epochtrace(epoch)
        self.divisors = [batch // self.sampler.minibatch_size for batch in self.epochtrace]
        self.schedule = self.sampler.get_batch_assignments(self.epochtrace)
        self.step_index = self.sampler.first if self.sampler.epoch == epoch else 0
        self._began = (epoch, self.step_index)
        self.substep_index = 0
        self._gradients.drop(self._parameters())

    def _check_place(self) -> None:
        at = (self.sampler.epoch, self.sampler.first)
        if at != self._began:
            raise RuntimeError(
                f"the sampler is in epoch {at[0]} from update {at[1]} on, the optimizer in epoch {self._began[0]} from "
                f"update {self._began[1]} on: call set_epoch({at[0]}) of both"
            )
        if self.step_index >= len(self.epochtrace):
            raise RuntimeError(
                f"step() behind the last update of epoch {at[0]}, which has {len(self.epochtrace)}: call set_epoch "
                "of the sampler and of the optimizer for the next epoch"
            )

    def _check_model(self) -> None:
        """At the first micro-batch, which every process has: later they would wait for one another."""
        if self._model_is_seen:
            return
        if in_group() and wrapping([parameter for group in self._parameters() for parameter in group]):
            raise RuntimeError(
                "the parameters are in a DistributedDataParallel, which reduces every micro-batch, and the processes "
                "have different numbers of them: train the model itself, whose gradients step() reduces"
            )
        self._model_is_seen = True

    def _coming(self) -> Update:
        return Update(
            batch=self.get_bs(),
            reference=self.ref_batchsize,
            micro_batch=self.sampler.minibatch_size,
            index=self._updates,
            samples=self._trained,
            epoch_samples=self.sampler.epoch_samples,
        )

    def _update(self) -> None:
        parameters = self._parameters()
        self.norms = self._gradients.reduce(
            parameters,
            self._processes(parameters),
            count=self.divisors[self.step_index],
            samples=self.epochtrace[self.step_index],
            mean=self.reduction == "mean",
            index=self._updates,
        )
        if self.norms is not None:
            self.moments.add(self.norms)
        if not self._gradients.overflowed:
            self._report(self._take_step())
        self._gradients.drop(parameters)
        self._updates += 1
        self._trained += self.epochtrace[self.step_index]
        self.step_index += 1
        self.substep_index = 0
        if self.sampler.epoch == self._began[0]:
            self.sampler.position = self.step_index
        mark_step()

    def _take_step(self) -> tuple[Any, ...]:
        """The inner optimizer's step. What was set for it is put back, but not what it set itself."""
        before = [dict(group) for group in self.param_groups]
        changed = before  # all of it, if adapt_lr breaks off
        try:
            self.adapt_lr()
            changed = [
                {name: old[name] for name, value in group.items() if name in old and value is not old[name]}
                for group, old in zip(self.param_groups, before, strict=True)
            ]
            used = self.get_lr()
            self.optimizer.step()
        finally:
            for group, values in zip(self.param_groups, changed, strict=True):
                group.update(values)
        return used

    def _processes(self, parameters: Sequence[Sequence[Tensor]]) -> Collective:
        if self._collective is None:
            device = next(parameter for group in parameters for parameter in group).device
            self._collective = collective(device, self.sampler.num_replicas, self._process_group)
        return self._collective

    def _report(self, used: tuple[Any, ...]) -> None:
        rates = tuple(float(rate) for rate in used)
        batch = self.epochtrace[self.step_index]
        self._last = {"batch": float(batch), "learning_rate": rates[0]}
        if self.moments.known:
            self._last["gradient_noise_scale"] = self.moments.noise_scale
        if self.rule is not None:
            self._last.update(self.rule.details())
        if self.log_steps and self.step_index % self.log_steps == 0 and self.sampler.rank == 0:
            noise = f", noise_scale={self.moments.noise_scale:.4g}" if self.moments.known else ""
            print(f"    CustomOptimizer: Step={self.step_index}, bs={batch}, lr={rates}{noise}")


def _check(optimizer: Any, sampler: Any, log_steps: Any, reduction: Any, ref_batchsize: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise UsageError(f"optimizer: got {optimizer!r}, takes a torch optimizer")
    if not isinstance(sampler, CustomSampler):
        raise UsageError(f"sampler: got {sampler!r}, takes a CustomSampler")
    if reduction not in ("mean", "sum"):
        raise UsageError(f"reduction: got {reduction!r}, takes 'mean' or 'sum'")
    for name, value in (("log_steps", log_steps), ("ref_batchsize", ref_batchsize)):
        if value is not None:
            whole(name, value)
