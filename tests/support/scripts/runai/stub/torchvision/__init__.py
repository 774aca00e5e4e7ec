"""As much of torchvision as the scripts beside it use, on images that need no download."""

from torchvision import datasets, transforms

__all__ = ["datasets", "transforms"]
