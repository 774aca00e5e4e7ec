"""Writes dataclasses as JSON objects, one a line, and reads them with all checks. Sockets and files use this format.

Assignments, reports and the messages between the processes of a job are written in this way. NaN and infinities, which
JSON does not have, become null. The reader checks each value against the annotation of its field, ignores unknown keys,
and uses a field's default if the field is missing.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

_T = TypeVar("_T")
_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "an integer", float: "a number"}


class ContractError(ValueError):
    """The data that were read are not valid: no JSON object, an unknown kind, a missing field, a field of the wrong
    type, or another protocol's version. The error's text names the field, if a field is wrong."""


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────
def dumps(value: Any) -> str:
    """Write JSON data or a dataclass as compact JSON.

    Raises:
        TypeError: a part of the value is of a type that JSON does not have.
    """
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain)
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)


def dump_line(message: Any) -> bytes:
    """Write a JSON object, or a dataclass that has a ``kind``, as a line with a newline at its end.

    Raises:
        TypeError: a part of the message is of a type that JSON does not have.
    """
    fields = message if isinstance(message, Mapping) else {"kind": message.kind, **vars(message)}
    return dumps(fields).encode() + b"\n"


def to_json_object(value: Any) -> dict[str, Any]:
    """Turn a dataclass into a JSON object.

    Raises:
        TypeError: a part of it is of a type that JSON does not have.
    """
    found: dict[str, Any] = json.loads(dumps(value))
    return found


def _plain(value: Any) -> Any:
    """Turn a dataclass or a mapping, which ``json`` cannot write, into a dict."""
    if dataclasses.is_dataclass(value):
        return vars(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _finite(value: Any) -> Any:
    """The same value with null for NaN and infinities; a diverged loss is one example."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return _finite(vars(value)) if dataclasses.is_dataclass(value) else value


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────
def load_object(text: str | bytes) -> dict[str, Any]:
    """Read a JSON object from text.

    Raises:
        ContractError: the text is not a JSON object.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ContractError(f"not an object but {_name(data)}")
    return data


def load_line(line: str | bytes) -> dict[str, Any]:
    """Read the message on one line.

    Raises:
        ContractError: the line is not a JSON object, or its ``kind`` is not a string.
    """
    data = load_object(line)
    if not isinstance(data.get("kind"), str):
        raise ContractError("a message has no kind")
    return data


def from_json_object(cls: type[_T], data: Mapping[str, Any], where: str = "") -> _T:
    """Turn a JSON object, as ``to_json_object`` makes it, into a dataclass.

    Args:
        cls: the dataclass.
        data: the JSON object.
        where: name of the object in an error; "": the name of the class.

    Raises:
        ContractError: a field is missing, or of the wrong type.
    """
    found: _T = _read(cls, data, where or cls.__name__)
    return found


def _read(wanted: Any, value: Any, where: str) -> Any:
    """Turn a JSON value into a value of the type ``wanted``. ``where``: name of the value in an error."""
    if wanted is Any or type(value) is wanted:
        return value
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (option for option in arguments if option is not types.NoneType)
        return None if value is None else _read(inner, value, where)
    if origin is tuple:
        items = _expect(list, value, where)
        each = arguments[:1] * len(items) if arguments[-1] is Ellipsis else arguments
        if len(items) != len(each):
            raise ContractError(f"{where} has {len(items)} items, takes {len(each)}")
        return tuple(
            _read(one, item, f"{where}[{index}]") for index, (one, item) in enumerate(zip(each, items, strict=True))
        )
    if origin is Mapping:
        items = _expect(dict, value, where)
        return {key: _read(arguments[1], item, f"{where}[{key!r}]") for key, item in items.items()}
    if dataclasses.is_dataclass(wanted):
        return _read_object(wanted, _expect(dict, value, where), where)
    if wanted in _NAMES:
        return _expect(wanted, value, where)
    try:
        return wanted(value)  # a member of an enumeration
    except ValueError:
        choices = ", ".join(repr(member.value) for member in wanted)
        raise ContractError(f"{where} is {str(value)[:100]!r}, takes one of {choices}") from None


def _read_object(cls: Any, data: Mapping[str, Any], where: str) -> Any:
    types_of, needed = _fields(cls)
    for name in needed:
        if name not in data:
            raise ContractError(f"{where}: field {name!r} is missing")
    return cls(
        **{name: _read(wanted, data[name], f"{where}: {name}") for name, wanted in types_of.items() if name in data}
    )


@cache
def _fields(cls: Any) -> tuple[dict[str, Any], list[str]]:
    """Types of a dataclass's fields by name, and the names of fields without a default."""
    hints, fields = typing.get_type_hints(cls), dataclasses.fields(cls)
    missing = dataclasses.MISSING
    needed = [field.name for field in fields if field.default is missing and field.default_factory is missing]
    return {field.name: hints[field.name] for field in fields}, needed


def _expect(wanted: type, value: Any, where: str) -> Any:
    if type(value) is wanted or (wanted is float and type(value) is int):  # a boolean does not count as an integer
        return value
    raise ContractError(f"{where} is {_name(value)}, takes {_NAMES[wanted]}")


def _name(value: Any) -> str:
    """Name of a JSON value's type, in JSON's words."""
    return "null" if value is None else _NAMES.get(type(value), type(value).__name__)
