"""An optimizer that accumulates, reduces and steps according to a trace of batch sizes."""

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
"""Key of this optimizer's part of a state dict; the rest is the inner optimizer's."""


class CustomOptimizer(Optimizer):
    """Steps ``optimizer`` once for each entry of the sampler's trace, and accumulates gradients in between.

    Call ``step`` once for each batch that the sampler yields, after its backward pass. The loss is the mean over the
    batch. ``zero_grad`` need not be called and does nothing, because an update clears its gradients at its end.

    This is a torch Optimizer with the inner optimizer's groups and state, so learning-rate schedulers accept either.
    Between updates the groups have the learning rate for the reference batch; the rule changes it during an update
    only. All processes must begin with the same weights, which the first update checks. The model must not be wrapped
    in DistributedDataParallel, which would reduce every micro-batch. With a GradScaler, call
    ``scaler.step(optimizer)`` and ``scaler.update()`` after each backward pass; an update with an infinite gradient is
    left out in all processes.

    Args:
        optimizer: the inner optimizer, which steps once per update.
        sampler: the sampler of the batches.
        log_steps: rank 0 prints a line each time this many updates are done; None: it prints nothing.
        reduction: ``mean`` or ``sum`` of the micro-batches' gradients.
        rule: the learning-rate rule; None: ``adapt_lr`` of a subclass sets the learning rate, or it does not change.
        ref_batchsize: samples of the batch that the learning rate was chosen for; None: those of a micro-batch.
        measure: measure the noise of the gradients (``noise_scale``). This costs one pass over each micro-batch's
            gradients, and memory for another set of gradients.
        model: the model whose buffers (batch statistics) and random numbers are restored after a pass of a process
            that has no share of an update. Without it such a pass changes them, as in ETH's library. Otherwise each
            process's buffers follow its own micro-batches.
        process_group: a group of torch.distributed; None: the default group.

    Raises:
        UsageError: (a ValueError) an argument is wrong.
    """

    _step_supports_amp_scaling = True  # a GradScaler then does not unscale: each micro-batch has its own scale

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
        optimizer.param_groups, optimizer.state = groups, state  # the base class has replaced them by its own
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
        """Norms of the last update's gradients; None if they were not measured."""
        self._last: dict[str, float] = {}
        self._begin(0)

    def step(self, closure: Callable[[], Any] | None = None) -> bool:  # type: ignore[override]
        """Add the gradients of one batch of the sampler.

        With the last batch of this process's share of an update, the gradients are reduced and the weights updated.

        Args:
            closure: computes the loss and its gradients; called once.

        Returns:
            Whether the weights have changed.

        Raises:
            RuntimeError: the epoch has no further update, ``set_epoch`` was only called on the sampler, the processes
                are at different updates, or a DistributedDataParallel reduces each micro-batch.
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
        """Begin an epoch, from 0, at the update at which the sampler begins it. Call the sampler's ``set_epoch``, too.

        Micro-batches of an incomplete update are discarded, with a warning.

        Raises:
            TraceEnded: the trace does not have this epoch.
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
        """Set the hyperparameters of the coming update in the groups. They are restored after the update.

        The reduced gradients are in ``.grad``. Override this method, or pass ``rule``, for another learning-rate rule.
        """
        if self.rule is not None:
            scaled = scaled_values(self.optimizer, self.rule.scaling(self._coming(), self.moments))
            for group, values in zip(self.param_groups, scaled, strict=True):
                group.update(values)

    def get_lr(self) -> tuple[Any, ...]:
        """The groups' learning rates; between updates, those for the reference batch."""
        return tuple(group["lr"] for group in self.param_groups)

    def set_lr(self, values: Iterable[Any]) -> None:
        for group, value in zip(self.param_groups, values, strict=False):
            group["lr"] = value

    def get_bs(self) -> int:
        """Samples of the global batch of the coming update; 0 after the epoch's last update."""
        return self.epochtrace[self.step_index] if self.step_index < len(self.epochtrace) else 0

    @property
    def idle(self) -> bool:
        """Whether this process has no share of the coming update, so that its loss must not be counted."""
        return self.step_index < len(self.schedule) and not self.schedule[self.step_index]

    @property
    def noise_scale(self) -> float:
        """Running estimate of the gradient noise scale, in samples; NaN before the first update with two
        micro-batches."""
        return self.moments.noise_scale

    def details(self) -> dict[str, float]:
        """Values of the last update: batch, learning rate of the first group, gradient noise scale, and those of the
        rule. Empty before the first update."""
        return dict(self._last)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Does nothing: an update clears its gradients at its end."""

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's state, and under ``KEY`` the place of the training, for any number of processes.

        If an update has begun, the state is that of the end of the previous update; the begun update will be repeated.
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
        """Continue where ``state_dict`` was, the sampler too. A plain optimizer's state leaves the place unchanged.

        Raises:
            UsageError: the state does not fit the sampler, or has another rule.
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

    @property  # the inner optimizer replaces groups and state when it loads a state
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
        """Leave out the hooks and the process group, which belong to this process."""
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
        """Check for DistributedDataParallel at the first micro-batch, which every process has. With a later check,
        processes might wait for each other."""
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
        """Take the inner optimizer's step. Values that were set for the step are restored, but not those that the inner
        optimizer itself has set.

        Returns:
            The learning rates of the step, by parameter group.
        """
        before = [dict(group) for group in self.param_groups]
        changed = before  # restore all values if adapt_lr raises
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
