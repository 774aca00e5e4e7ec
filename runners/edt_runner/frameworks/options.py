"""What a user asks of the passes and of the optimizer's steps, beside model, loss and optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StepOptions:
    """Keyword arguments of ``train()`` that a framework's adapter carries out. ``fabric_model`` has checked them.

    Args:
        clip_grad_norm: the most L2 norm of the step's reduced gradient over all parameters; a longer gradient is scaled
            down. None: no limit.
        clip_grad_value: the most absolute value of each number of the reduced gradient. None: no limit.
        precision: "fp32", "bf16" or "fp16": the type in which passes compute where the framework allows it. Weights,
            reduced gradients and optimizer state keep their own types.
        compile: whether the model is compiled.
        lr_scheduler: a learning-rate scheduler of the framework, a function that makes one of the optimizer, or a list
            of these. None: the platform moves no learning rate.
        lr_scheduler_interval: "epoch" or "step": when ``lr_scheduler`` moves.
        lr_scheduler_metric: name of the metric that a scheduler such as ReduceLROnPlateau gets.
    """

    clip_grad_norm: float | None = None
    clip_grad_value: float | None = None
    precision: str = "fp32"
    compile: bool = False
    lr_scheduler: Any = None
    lr_scheduler_interval: str = "epoch"
    lr_scheduler_metric: str = "val_loss"
