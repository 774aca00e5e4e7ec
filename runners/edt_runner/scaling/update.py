"""One update of the weights: what a learning-rate rule may look at, and what it answers. Room: runners; pure."""

from __future__ import annotations

from dataclasses import dataclass

DETAILS = ("batch", "learning_rate", "gradient_noise_scale", "gain", "scale_invariant_iterations")
"""What is told of an update beside loss and metrics, by name, as far as it is known: samples; of the first parameter
group; samples; AdaScale's, as the next one."""


@dataclass(frozen=True)
class Update:
    """The update that is about to be made.

    Args:
        batch: its samples, over all engines.
        reference: samples of the batch that the learning rate was chosen for.
        micro_batch: samples of a full micro-batch.
        index: updates before this one.
        samples: samples trained on before this update, over all epochs.
        epoch_samples: samples of one epoch.
    """

    batch: int
    reference: int
    micro_batch: int
    index: int
    samples: int
    epoch_samples: int

    @property
    def scale(self) -> float:
        """k of the papers: how many reference batches it is."""
        return self.batch / self.reference

    @property
    def micro_batches(self) -> float:
        """S of AdaScale: how many full micro-batches it is; not whole where some were not full."""
        return self.batch / self.micro_batch


@dataclass(frozen=True)
class Scaling:
    """How the optimizer takes one step.

    Args:
        lr: factor on the learning rate of every parameter group.
        beta: 1 - beta_i becomes beta x (1 - beta_i), at most 1, for each beta_i of a moving average.
        eps: factor on epsilon.
        groups: factors by parameter group in place of ``lr``, where statistics were taken by group; empty: ``lr``.
        velocity: factor on velocities that hold lr x gradient, this update's ``lr`` over the last one's. No rule sets
            it: it is of whoever applies one, and of no concern to optimizers such as PyTorch's.
    """

    lr: float = 1.0
    beta: float = 1.0
    eps: float = 1.0
    groups: tuple[float, ...] = ()
    velocity: float = 1.0

    def of(self, group: int) -> float:
        """The factor on the learning rate of parameter group number ``group``."""
        return self.groups[group] if self.groups else self.lr

    def betas(self, beta: float) -> float:
        """What ``beta`` becomes."""
        return beta if self.beta == 1.0 else max(0.0, 1.0 - self.beta * (1.0 - beta))
