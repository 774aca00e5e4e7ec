"""Gradient accumulation with PyTorch: ``runai.ga.torch.optim``. Room: runners; torch."""

from runai.ga.torch import optim

__all__ = ["optim"]
