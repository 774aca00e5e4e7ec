"""Checks of ``precision`` and of clipping: a Keras model has its types since it was built, and perhaps clips itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edt_runner.errors import UsageError
from edt_runner.frameworks.options import StepOptions
from edt_runner.frameworks.tensorflow.keras_version import KerasVersion

_POLICIES = {"bf16": ("mixed_bfloat16", "bfloat16"), "fp16": ("mixed_float16", "float16")}
_LIMITS = {"clip_grad_norm": ("clipnorm", "global_clipnorm"), "clip_grad_value": ("clipvalue",)}


def check_precision(keras: KerasVersion, model: Any, layers: Iterable[Any], precision: str) -> None:
    """Check that a model computes as ``precision`` says. "fp32" stands for whatever the model was built with.

    Raises:
        UsageError: it does not, and what to write.
    """
    if precision not in _POLICIES:
        return
    wanted, found = _POLICIES[precision], _policies([model, *layers])
    line = f'{keras.keras.__name__}.mixed_precision.set_global_policy("{wanted[0]}")'
    if not found & {*wanted}:
        raise UsageError(
            f"precision: got {precision!r} with a model whose layers were built under {', '.join(sorted(found))}, "
            f"takes 'fp32', or a model that is built after {line}"
        )
    if precision == "fp16" and not keras.scales_loss(model.optimizer):
        raise UsageError(
            f"precision: got 'fp16' with a model whose loss is not scaled, so that small gradients would vanish; takes "
            f"a model that is built after {line}, or a LossScaleOptimizer of {keras.keras.__name__}.mixed_precision"
        )


def _policies(layers: Iterable[Any]) -> set[str]:
    found = (getattr(layer, "dtype_policy", None) for layer in layers)
    return {str(policy.name) for policy in found if policy is not None}


def check_clipping(optimizer: Any, options: StepOptions) -> None:
    """Check that a limit is not given twice: to ``train()`` and to the optimizer.

    Args:
        optimizer: the optimizer; if it scales the loss, the one inside it.
        options: what ``train()`` was asked for.

    Raises:
        UsageError: a limit is given twice.
    """
    for argument, names in _LIMITS.items():
        given = getattr(options, argument)
        for name in names:
            own = getattr(optimizer, name, None)
            if given is not None and own:
                raise UsageError(
                    f"{argument}: got {given:g} with an optimizer whose {name} is {own:g}, takes one of the two: both "
                    "clip the reduced gradient"
                )
