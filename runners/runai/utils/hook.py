"""Replaces a function of another object temporarily."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Hook:
    """While this is enabled, ``getattr(module, method)`` is ``hook``. As a context manager, it is enabled inside.

    A subclass may define ``__hook__`` instead of passing ``hook``. The original function is in ``__original__``.

    Args:
        module: the object that has the function: a module, a class or an instance.
        method: the function's name.
        hook: called with the original's arguments.
        recursion: whether a call of the function from inside the hook calls the hook again; else it calls the original.
    """

    def __init__(
        self, module: Any, method: str, hook: Callable[..., Any] | None = None, recursion: bool = False
    ) -> None:
        self.module, self.method, self.recursion = module, method, recursion
        self.hook = self.__hook__ if hook is None else hook
        self.__original__: Callable[..., Any] = getattr(module, method)
        self._own = vars(module).get(method) if hasattr(module, "__dict__") else None
        self._inside = False

    def enable(self) -> None:
        setattr(self.module, self.method, self._call)

    def disable(self) -> None:
        """Restore what was there before, such as a static method, or no attribute on an instance whose class has it."""
        if self._own is None and not isinstance(self.module, type) and hasattr(type(self.module), self.method):
            delattr(self.module, self.method)
        else:
            setattr(self.module, self.method, self.__original__ if self._own is None else self._own)

    def __enter__(self) -> Hook:
        self.enable()
        return self

    def __exit__(self, *error: object) -> None:
        self.disable()

    def __hook__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: give hook=, or define __hook__")

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        if self._inside and not self.recursion:
            return self.__original__(*args, **kwargs)
        before, self._inside = self._inside, True
        try:
            return self.hook(*args, **kwargs)
        finally:
            self._inside = before
