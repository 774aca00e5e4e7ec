"""Room: runners, agent. What is said about a setting that cannot be used: its name, its value, what would do. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError


def takes(words: str) -> WrapValidator:
    """Whatever is wrong with a value of this type, these words say what would do: ``it is <words>``."""

    def checked(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValueError:  # a ValidationError is one, too
            raise PydanticCustomError("takes", "{words}", {"words": words}) from None

    return WrapValidator(checked)


def complaint(error: ValidationError, arguments: Collection[str]) -> str:
    """The first thing that is wrong, in one sentence. ``arguments``: the settings that came from the command line."""
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"] if isinstance(part, str)]
    name = f"EDT_{'_'.join(path)}".upper()
    if path[0] in arguments:
        name = f"--{path[0].removeprefix('agent_').replace('_', '-')}"
    would_do = first["ctx"]["expected"].replace("'", "") if first["type"] == "literal_error" else first["msg"]
    return f"{name}: {first['input']!r}; it is {would_do}"
