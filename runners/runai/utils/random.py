"""Random arguments for tests. Nothing here is secret."""

from __future__ import annotations

import random as _random
import string as _string
from collections.abc import Sequence

choice = _random.choice


def number(a: int = 10, b: int = 100) -> int:
    """A random whole number from ``a`` to ``b``, both included."""
    return _random.randint(a, b)  # noqa: S311


def string(length: int = 5, chars: Sequence[str] | None = None) -> str:
    """A random string of ``length`` characters out of ``chars``; None: printable ASCII without blanks."""
    return "".join(_random.choices(chars or _string.ascii_letters + _string.digits + _string.punctuation, k=length))  # noqa: S311


def strings(count: int | None = None) -> list[str]:
    """``count`` random strings; None: two to ten."""
    return [string() for _ in range(number(2, 10) if count is None else count)]


def shape() -> tuple[int, ...]:
    """A random shape with two to four dimensions, each of size two to five."""
    return tuple(number(2, 5) for _ in range(number(2, 4)))
