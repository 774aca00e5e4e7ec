"""Gradient accumulation with PyTorch: ``runai.ga.torch.optim``."""

from runai.ga.torch import optim

__all__ = ["optim"]
