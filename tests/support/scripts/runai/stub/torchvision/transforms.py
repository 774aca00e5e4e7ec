"""From a byte image to a normalised tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor


class Compose:
    """One after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self._transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self._transforms:
            image = transform(image)
        return image


class ToTensor:
    """Bytes, height x width -> 0…1, 1 x height x width."""

    def __call__(self, image: Tensor) -> Tensor:
        return image[None].float() / 255


class Normalize:
    """(x - mean) / standard deviation."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self._mean, self._std = mean[0], std[0]

    def __call__(self, image: Tensor) -> Tensor:
        return (image - self._mean) / self._std
