"""Attributes of other objects, for a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_NOTHING = object()


class Attribute:
    """Within the block ``object`` has these attributes; afterwards those that it had before.

    Args:
        object: that takes attributes.
        names: of one, or of several.
        values: as many; the value itself where ``names`` is one name.

    Raises ValueError where there are not as many of both.
    """

    def __init__(self, object: Any, names: str | Sequence[str], values: Any) -> None:  # noqa: A002 - the original's
        pairs = {names: values} if isinstance(names, str) else dict(zip(names, values, strict=True))
        self._object, self._values, self._before = object, pairs, dict[str, Any]()

    def __enter__(self) -> Attribute:
        self._before = {name: getattr(self._object, name, _NOTHING) for name in self._values}
        for name, value in self._values.items():
            setattr(self._object, name, value)
        return self

    def __exit__(self, *error: object) -> None:
        for name, value in self._before.items():
            if value is _NOTHING:
                delattr(self._object, name)
            else:
                setattr(self._object, name, value)


def rename(object: Any, old: str, new: str) -> None:  # noqa: A002 - the original's
    """Attribute ``old`` of ``object`` is called ``new``. Raises AttributeError without one."""
    setattr(object, new, getattr(object, old))
    delattr(object, old)
