"""Sets attributes of other objects temporarily."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_NOTHING = object()


class Attribute:
    """A context in which ``object`` has these attributes. Afterwards it has the attributes that it had before.

    Args:
        object: an object whose attributes can be set.
        names: the name of one attribute, or names of several.
        values: as many values as there are names; if ``names`` is one name, the value itself.

    Raises:
        ValueError: there are not as many values as names.
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
    """Rename the attribute ``old`` of ``object`` to ``new``.

    Raises:
        AttributeError: ``object`` has no attribute ``old``.
    """
    setattr(object, new, getattr(object, old))
    delattr(object, old)
