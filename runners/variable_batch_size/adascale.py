"""AdaScale: the learning rate follows the gain that the gradients' noise allows. Room: runners; torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch.optim import Optimizer

from edt_runner.errors import UsageError
from edt_runner.scaling import rules
from edt_runner.scaling.moments import Array, Moments
from variable_batch_size.gradients import Gradients
from variable_batch_size.optimizer import KEY, CustomOptimizer
from variable_batch_size.sampler import CustomSampler


class AdaScaleOptimizer(CustomOptimizer):
    """lr x minibatch_size / ref_batchsize x gain, 1 <= gain <= S micro-batches, by parameter group (arXiv 2007.05105).

    ``scale_invariant_iterations`` adds up the gains: how many updates of one micro-batch the training is worth so far.
    Where schedules and the end of the training follow it, the number of updates follows the batch as the paper wants.

    Args:
        optimizer: steps once an update.
        sampler: what the batches come from.
        log_steps: rank 0 prints a line every so many updates.
        ref_batchsize: samples of the batch that the learning rate was chosen for.
        compat: ``True``: the gains of ETH's library: its averages (``Moments``) over its norms, where the first
            micro-batch of an update is measured as the difference from the sum of the update before.
            ``"averages"``: its averages over right norms.
        others: as for ``CustomOptimizer``.
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
        """Of the last update, by parameter group; 1 before the first."""
        return self._gains or (1.0,) * len(self.param_groups)

    def current_lr(self) -> tuple[float, ...]:
        """Learning rates at the last update's gain, by parameter group."""
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
        """tau: the sum of all gains, the mean over parameter groups."""
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
    """AdaScale's factor to the power of one half, for Adam and its like."""

    def _new_rule(self) -> rules.AdaScale:
        return rules.AdamScale(base="micro_batch")
