"""``variable_batch_size``: NumPy's numbers, any torch optimizer, and errors in the middle of an update."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import variable_batch_size as vbs
from support.vbs_rank import Training


def test_numbers_of_numpy_are_whole_numbers_and_states_have_none_of_them() -> None:
    whole: Any = np.int64
    sampler = vbs.CustomSampler(dataset_size=whole(66), trace=8, seed=whole(42), minibatch_size=whole(4), verbose=False)
    sgd = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    optimizer = vbs.LinearRuleOptimizer(sgd, sampler, whole(8), whole(100))
    sampler.set_epoch(whole(1))
    optimizer.set_epoch(1)
    assert {type(value) for value in sampler.state_dict().values()} == {int}
    assert type(optimizer.ref_batchsize) is int


@pytest.mark.parametrize("name", ["Adafactor", "ASGD", "RMSprop", "NAdam", "Rprop", "Adagrad"])
def test_every_optimizer_of_torch_takes_the_linear_rule(name: str) -> None:
    if not hasattr(torch.optim, name):
        pytest.skip(f"torch {torch.__version__} has no {name}")
    training = Training(0, 1, inner=getattr(torch.optim, name))
    group = dict(training.optimizer.param_groups[0])
    for _ in training.run(1):
        pass
    assert all(training.optimizer.param_groups[0][key] == group[key] for key in ("lr", "eps", "alpha") if key in group)
    assert np.isfinite(training.seen[-1]).all()


def test_adams_square_root_refuses_an_alpha_that_is_no_moving_average() -> None:
    with pytest.raises(ValueError, match="got ASGD, takes one with moving averages"):
        Training(0, 1, vbs.AdamSquareRootOptimizer, inner=torch.optim.ASGD)


class _Breaks(vbs.CustomOptimizer):
    """Its learning rate is set when the error comes."""

    def adapt_lr(self) -> None:
        self.set_lr([9.0])
        raise ArithmeticError


class _Full(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        raise ArithmeticError


@pytest.mark.parametrize("within", [{"make": _Breaks}, {"inner": _Full}])
def test_an_error_within_an_update_leaves_the_references_learning_rate(within: dict[str, Any]) -> None:
    training = Training(0, 1, trace=16, **within)
    with pytest.raises(ArithmeticError):
        training.finish()
    assert training.optimizer.get_lr() == (0.02,)
