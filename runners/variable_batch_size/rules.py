"""One optimizer class for each learning-rate rule of ``edt_runner.lr_scaling.rules``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from torch.optim import Optimizer

from edt_runner.errors import UsageError
from edt_runner.frameworks.pytorch.optimizers import has_betas
from edt_runner.lr_scaling import rules
from edt_runner.lr_scaling.update import Array, Moments, Update
from variable_batch_size.gradients import Gradients
from variable_batch_size.optimizer import KEY, CustomOptimizer
from variable_batch_size.sampler import CustomSampler


class RuleOptimizer(CustomOptimizer):
    """A ``CustomOptimizer`` with any learning-rate rule.

    Args:
        optimizer: the inner optimizer, which steps once per update.
        sampler: the sampler of the batches.
        ref_batchsize: samples of the batch that the learning rate was chosen for.
        log_steps: rank 0 prints a line each time this many updates are done.
        rule: a rule's name, a rule, or a function (batch, reference) -> factor.
        others: further arguments of ``CustomOptimizer``.

    Raises:
        UsageError: an argument is wrong, or the rule changes betas and the optimizer has none.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        sampler: CustomSampler,
        ref_batchsize: int,
        log_steps: int | None = None,
        *,
        rule: str | rules.Rule | Callable[[int, int], float],
        **others: Any,
    ) -> None:
        made = rules.by_name(rule)
        super().__init__(optimizer, sampler, log_steps, rule=made, ref_batchsize=ref_batchsize, **others)
        if made.changes_betas and not has_betas(optimizer):
            raise UsageError(
                f"optimizer: got {type(optimizer).__name__}, takes one with moving averages, such as Adam or RMSprop, "
                f"for the rule {made.name}"
            )


class _NamedRuleOptimizer(RuleOptimizer):
    RULE: ClassVar[str]

    def __init__(
        self,
        optimizer: Optimizer,
        sampler: CustomSampler,
        ref_batchsize: int,
        log_steps: int | None = None,
        **others: Any,
    ) -> None:
        super().__init__(optimizer, sampler, ref_batchsize, log_steps, rule=self.RULE, **others)

    def current_lr(self) -> float:
        """Learning rate of the coming update, of the first group; 0 after the epoch's last update."""
        return self.F(float(self.get_lr()[0]), self.get_bs(), self.ref_batchsize)

    @classmethod
    def F(cls, ref_lr: float, batchsize: int, ref_batchsize: int) -> float:  # noqa: N802
        """The learning rate for a batch of ``batchsize`` samples, by a rule that depends on nothing else."""
        update = Update(batchsize, ref_batchsize, batchsize, 0, 0, batchsize)
        return ref_lr * rules.by_name(cls.RULE).scaling(update, None).lr


class LinearRuleOptimizer(_NamedRuleOptimizer):
    """lr x batch / ref_batchsize (arXiv 1706.02677)."""

    RULE = "linear"


class RootRuleOptimizer(_NamedRuleOptimizer):
    """lr x sqrt(batch / ref_batchsize) (arXiv 1404.5997)."""

    RULE = "root"


class ConstantOptimizer(_NamedRuleOptimizer):
    """The learning rate does not change with the batch."""

    RULE = "constant"


ConstantRuleOptimizer = ConstantOptimizer


class AdamSquareRootOptimizer(_NamedRuleOptimizer):
    """For Adam and RMSProp: lr x sqrt(k), 1 - beta x k, eps / sqrt(k), k = batch / ref_batchsize (arXiv 2205.10287)."""

    RULE = "adam-sqrt"


class LinearWarmupRuleOptimizer(RuleOptimizer):
    """The linear rule, with a warm-up over some epochs after each rise of the batch (arXiv 1706.02677).

    Args:
        warmup_epochs: passes over the data until a rise is reached.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        sampler: CustomSampler,
        ref_batchsize: int,
        log_steps: int | None = None,
        *,
        warmup_epochs: float = 5.0,
        **others: Any,
    ) -> None:
        rule = rules.LinearWarmup(warmup_epochs)
        super().__init__(optimizer, sampler, ref_batchsize, log_steps, rule=rule, **others)


class LegwOptimizer(RuleOptimizer):
    """lr x sqrt(k) after k times the warm-up epochs, k = batch / ref_batchsize (arXiv 1901.08256).

    Args:
        warmup_epochs: passes over the data that the warm-up takes at the reference batch.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        sampler: CustomSampler,
        ref_batchsize: int,
        log_steps: int | None = None,
        *,
        warmup_epochs: float = 1.0,
        **others: Any,
    ) -> None:
        super().__init__(optimizer, sampler, ref_batchsize, log_steps, rule=rules.Legw(warmup_epochs), **others)


class LinearRuleMomentumOptimizer(CustomOptimizer):
    """The linear rule with sums: the micro-batches' gradients are added up instead of averaged.

    The learning rate is that of one micro-batch, ref_lr x minibatch_size / ref_batchsize, so a velocity weighs updates
    by their samples. During an update, the weight decay of every group is ``weight_decay`` times the update's number of
    micro-batches, as the gradients are. Between updates the groups have their own weight decay.

    Args:
        weight_decay: weight decay of one micro-batch.
    """

    F = LinearRuleOptimizer.F
    """The learning rate for a micro-batch of ``batchsize`` samples."""

    def __init__(
        self,
        optimizer: Optimizer,
        sampler: CustomSampler,
        ref_batchsize: int,
        weight_decay: float = 1e-4,
        log_steps: int | None = None,
        **others: Any,
    ) -> None:
        super().__init__(optimizer, sampler, log_steps, "sum", ref_batchsize=ref_batchsize, **others)
        self.weight_decay = weight_decay

    def adapt_lr(self) -> None:
        self.set_lr([self.F(rate, self.sampler.minibatch_size, self.ref_batchsize) for rate in self.get_lr()])
        for group in self.param_groups:
            group["weight_decay"] = self.weight_decay * self.divisors[self.step_index]

    def current_lr(self) -> float:
        """Learning rate of each update, of the first group. ETH's library returns ref_lr x batch / ref_batchsize here,
        but does not use that value."""
        return self.F(float(self.get_lr()[0]), self.sampler.minibatch_size, self.ref_batchsize)


class AdaScaleOptimizer(CustomOptimizer):
    """lr x minibatch_size / ref_batchsize x gain, 1 <= gain <= S micro-batches, by parameter group (arXiv 2007.05105).

    ``scale_invariant_iterations`` adds up the gains: the training so far is worth this number of updates of one
    micro-batch. In the paper, learning-rate schedules and the end of the training follow this sum; the number of
    updates then follows the batch.

    Args:
        optimizer: the inner optimizer, which steps once per update.
        sampler: the sampler of the batches.
        log_steps: rank 0 prints a line each time this many updates are done.
        ref_batchsize: samples of the batch that the learning rate was chosen for.
        compat: ``True``: use the gains of ETH's library: its averages (``Moments``) over its norms, in which the first
            micro-batch of an update is measured as the difference from the previous update's sum.
            ``"averages"``: use its averages over correct norms.
        others: further arguments of ``CustomOptimizer``.

    Raises:
        UsageError: an argument is wrong.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        sampler: CustomSampler,
        log_steps: int | None = None,
        ref_batchsize: int = 32,
        *,
        compat: bool | str = False,
        **others: Any,
    ) -> None:
        if compat not in (False, True, "averages"):
            raise UsageError(f"compat: got {compat!r}, takes True, False or 'averages'")
        if others.get("measure") is False:
            raise UsageError("measure: got False, takes True: the gain is measured")
        self.compat = compat
        self._gains: tuple[float, ...] = ()
        super().__init__(optimizer, sampler, log_steps, rule=self._new_rule(), ref_batchsize=ref_batchsize, **others)

    def gain(self) -> tuple[float, ...]:
        """Gains of the last update, by parameter group; 1 before the first update."""
        return self._gains or (1.0,) * len(self.param_groups)

    def current_lr(self) -> tuple[float, ...]:
        """Learning rates with the last update's gain, by parameter group."""
        first = self.sampler.minibatch_size / self.ref_batchsize
        power = float(self._scale_rule.parameters["power"])
        pairs = zip(self.get_lr(), self.gain(), strict=True)
        return tuple(float(rate) * float(first * gain) ** power for rate, gain in pairs)

    def adapt_lr(self) -> None:
        super().adapt_lr()
        gains = self.moments.gain(self.divisors[self.step_index])
        self._gains = tuple(np.broadcast_to(gains, len(self.param_groups)).tolist())

    @property
    def scale_invariant_iterations(self) -> float:
        """tau: the sum of all gains, each a mean over parameter groups."""
        return self._scale_rule.scale_invariant_iterations

    @property
    def accum_grad_sqr(self) -> Array:
        """Sum over the last update's micro-batches of the squared norms of their gradients, by parameter group."""
        return np.zeros(len(self.param_groups)) if self.norms is None else self.norms.mean_square * self.norms.count

    @property
    def grad_sqr_avg(self) -> Array:
        """Running estimate of the squared norm of the true gradient, by parameter group."""
        return self.moments.square

    @property
    def grad_var_avg(self) -> Array:
        """Running estimate of the variance of a micro-batch's gradient, by parameter group."""
        return self.moments.variance

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state[KEY]["gains"] = list(self._gains)
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        if KEY in state_dict:
            self._gains = tuple(state_dict[KEY]["gains"])

    @property
    def _scale_rule(self) -> rules.AdaScale:
        assert isinstance(self.rule, rules.AdaScale)
        return self.rule

    def _new_rule(self) -> rules.AdaScale:
        return rules.AdaScale(base="micro_batch")

    def _new_moments(self) -> Moments:
        return Moments(self.sampler.minibatch_size, compat=bool(self.compat))

    def _new_gradients(self, measure: bool) -> Gradients:
        return Gradients(measure=measure, differences=self.compat is True)


class AdamScaleOptimizer(AdaScaleOptimizer):
    """AdaScale's factor to the power of one half, for Adam and similar optimizers."""

    def _new_rule(self) -> rules.AdaScale:
        return rules.AdamScale(base="micro_batch")
