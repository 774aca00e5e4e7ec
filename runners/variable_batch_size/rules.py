"""Optimizers by learning-rate rule, of ``edt_runner.scaling.rules``. Room: runners; torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from torch.optim import Optimizer

from edt_runner.errors import UsageError
from edt_runner.pytorch.rescaling import has_betas
from edt_runner.scaling import rules
from edt_runner.scaling.update import Update
from variable_batch_size.optimizer import CustomOptimizer
from variable_batch_size.sampler import CustomSampler


class RuleOptimizer(CustomOptimizer):
    """By any rule.

    Args:
        optimizer: steps once an update.
        sampler: what the batches come from.
        ref_batchsize: samples of the batch that the learning rate was chosen for.
        log_steps: rank 0 prints a line every so many updates.
        rule: a name, a rule, or a function (batch, reference) -> factor.
        others: as for ``CustomOptimizer``.
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
        """Learning rate of the coming update, of the first group; 0 behind the epoch's last."""
        return self._factor(self.get_bs(), self.ref_batchsize, self.RULE) * float(self.get_lr()[0])

    @staticmethod
    def _factor(batchsize: int, ref_batchsize: int, rule: str) -> float:
        """For rules that look at nothing else."""
        return rules.by_name(rule).scaling(Update(batchsize, ref_batchsize, batchsize, 0, 0, batchsize), None).lr


class LinearRuleOptimizer(_NamedRuleOptimizer):
    """lr x batch / ref_batchsize (arXiv 1706.02677)."""

    RULE = "linear"

    @staticmethod
    def F(ref_lr: float, batchsize: int, ref_batchsize: int) -> float:  # noqa: N802
        """What ``ref_lr`` becomes."""
        return ref_lr * _NamedRuleOptimizer._factor(batchsize, ref_batchsize, "linear")


class RootRuleOptimizer(_NamedRuleOptimizer):
    """lr x sqrt(batch / ref_batchsize) (arXiv 1404.5997)."""

    RULE = "root"

    @staticmethod
    def F(ref_lr: float, batchsize: int, ref_batchsize: int) -> float:  # noqa: N802
        """What ``ref_lr`` becomes."""
        return ref_lr * _NamedRuleOptimizer._factor(batchsize, ref_batchsize, "root")


class ConstantOptimizer(_NamedRuleOptimizer):
    """The learning rate stays as it is, whatever the batch."""

    RULE = "constant"

    @staticmethod
    def F(ref_lr: float, batchsize: int, ref_batchsize: int) -> float:  # noqa: N802
        """What ``ref_lr`` becomes."""
        return ref_lr


ConstantRuleOptimizer = ConstantOptimizer


class AdamSquareRootOptimizer(_NamedRuleOptimizer):
    """For Adam and RMSProp: lr x sqrt(k), 1 - beta x k, eps / sqrt(k), k = batch / ref_batchsize (arXiv 2205.10287)."""

    RULE = "adam-sqrt"


class LinearWarmupRuleOptimizer(RuleOptimizer):
    """The linear rule, where each rise of the batch is gone along over some epochs (arXiv 1706.02677).

    Args:
        warmup_epochs: that a rise takes.
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
        warmup_epochs: that the reference batch takes.
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
    """The linear rule by sums: the micro-batches' gradients are added up, not averaged, and the learning rate is that
    of one micro-batch, ref_lr x minibatch_size / ref_batchsize, so that a velocity weighs updates by their samples.

    The weight decay of every group is ``weight_decay`` times the update's micro-batches, as the gradients are; between
    updates the groups have their own again.

    Args:
        weight_decay: of one micro-batch.
    """

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

    @staticmethod
    def F(ref_lr: float, batchsize: int, ref_batchsize: int) -> float:  # noqa: N802
        """What ``ref_lr`` becomes at a micro-batch of ``batchsize``."""
        return LinearRuleOptimizer.F(ref_lr, batchsize, ref_batchsize)

    def adapt_lr(self) -> None:
        self.set_lr([self.F(rate, self.sampler.minibatch_size, self.ref_batchsize) for rate in self.get_lr()])
        for group in self.param_groups:
            group["weight_decay"] = self.weight_decay * self.divisors[self.step_index]

    def current_lr(self) -> float:
        """Learning rate of each update, of the first group; ETH's library says ref_lr x batch / ref_batchsize here,
        which it does not use."""
        return self.F(float(self.get_lr()[0]), self.sampler.minibatch_size, self.ref_batchsize)
