"""Checks of what a user gave: each error names the argument, what it got and what it takes. Room: runners; pure."""

from __future__ import annotations

import operator

from edt_runner.errors import UsageError


def usage(name: str, got: object, takes: str) -> UsageError:
    """The one form of these errors; a ValueError."""
    return UsageError(f"{name}: got {got!r}, takes {takes}")


def whole(name: str, value: object, takes: str = "a whole number, at least 1") -> int:
    """``value`` as an int of at least 1. Integers of NumPy and the like pass; bool, floats and strings do not."""
    if isinstance(value, bool):
        raise usage(name, value, takes)
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # whatever has no __index__ is refused
    except TypeError:
        raise usage(name, value, takes) from None
    if number < 1:
        raise usage(name, value, takes)
    return number
