"""Plain JSON and tensors into the memory of another process's twin. Room: runners; torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edt_runner.errors import StateMismatch
from edt_runner.user_callbacks.kinds import MAPPINGS, MISSING, SEQUENCES, look_up, name_of

_SIMPLE = frozenset(("known", "named", "member", "scalar", "complex", "bytes", "path", "datetime", "date"))


class Reader:
    """One giving. ``read`` returns what shall stand at a place where ``now`` stands."""

    def __init__(self, name: str, known: Sequence[Any], tensors: Mapping[str, torch.Tensor]) -> None:
        self._name, self._known, self._tensors = name, known, tensors
        self._made: dict[str, Any] = {}

    def read(self, node: Any, now: Any, place: str) -> Any:
        if not isinstance(node, dict):
            return node
        ((kind, value),) = node.items()
        if kind == "stays":
            if now is MISSING:
                raise self._mismatch(place)
            self._made[place] = now
            return now
        if kind == "as":
            return self._made[value]
        reading: Callable[[Any, Any, str, str], Any] = (
            self._read_simple
            if kind in _SIMPLE
            else self._read_array
            if kind in ("tensor", "array")
            else self._read_object
            if kind in ("state", "weights", "object")
            else self._read_container
        )
        return reading(kind, value, now, place)

    def _read_simple(self, kind: str, value: Any, now: Any, place: str) -> Any:
        match kind:
            case "known":
                return self._known[value]
            case "named":
                return self._resolve(value, place)
            case "member":
                of = self.read(value[0], type(now), place)
                return of[value[1]]
            case "scalar":
                return np.frombuffer(bytes.fromhex(value[1]), np.dtype(value[0]))[0]
            case "complex":
                return complex(*value)
            case "bytes":
                return bytes.fromhex(value)
            case "path":
                return Path(value)
            case "datetime":
                return datetime.fromisoformat(value)
            case _:
                return date.fromisoformat(value)

    def _read_array(self, kind: str, value: Any, now: Any, place: str) -> Any:
        if kind == "array":
            name, dtype, shape = value
            self._made[place] = self._tensors[name].numpy().view(np.dtype(dtype)).reshape(shape).copy()
            return self._made[place]
        name, on_device, requires_grad, parameter = value
        tensor = self._tensors[name].clone()
        if on_device and torch.cuda.is_available():
            tensor = tensor.cuda()
        if parameter:
            tensor = torch.nn.Parameter(tensor, requires_grad)
        else:
            tensor.requires_grad_(requires_grad)
        self._made[place] = tensor
        return tensor

    def _read_container(self, kind: str, value: Any, now: Any, place: str) -> Any:
        if kind in MAPPINGS:
            return self._read_mapping(kind, value, now, place)
        maxlen, items = value if kind == "deque" else (None, value)
        before = list(now) if isinstance(now, (list, tuple, deque)) else []
        if kind in ("list", "deque"):
            made: Any = [] if kind == "list" else deque(maxlen=maxlen)
            self._made[place] = made
            made.extend(self._items(items, before, place))
            return made
        self._made[place] = SEQUENCES[kind](self._items(items, before, place))
        return self._made[place]

    def _items(self, nodes: Sequence[Any], before: Sequence[Any], place: str) -> Iterator[Any]:
        for index, node in enumerate(nodes):
            yield self.read(node, before[index] if index < len(before) else MISSING, f"{place}[{index}]")

    def _read_mapping(self, kind: str, value: Any, now: Any, place: str) -> Any:
        factory, pairs = value
        made = MAPPINGS[kind]()
        if kind == "default":
            made.default_factory = self.read(factory, getattr(now, "default_factory", MISSING), place)
        self._made[place] = made
        for told, node in pairs:
            key = self.read(told, MISSING, f"{place}.key")
            before = now.get(key, MISSING) if isinstance(now, Mapping) else MISSING
            made[key] = self.read(node, before, f"{place}[{key!r}]")
        return made

    def _read_object(self, kind: str, value: Any, now: Any, place: str) -> Any:
        named, wanted, content = value if kind == "object" else (None, *value)
        if now is MISSING or name_of(type(now)) != wanted:
            if named is None:
                raise self._mismatch(place, wanted)
            of = self._resolve(named, place)
            now = of.__new__(of)
        self._made[place] = now
        if kind == "state":
            now.load_state_dict(self.read(content, now.state_dict(), f"{place}.state_dict()"))
        elif kind == "weights":
            now.set_weights(self.read(content, MISSING, f"{place}.get_weights()"))
        else:
            fields = vars(now)
            found = {key: self.read(node, fields.get(key, MISSING), f"{place}.{key}") for key, node in content}
            fields.clear()
            fields.update(found)
        return now

    def _resolve(self, named: Sequence[str], place: str) -> Any:
        found = look_up(*named)
        if found is MISSING:
            raise self._mismatch(place, ".".join(named))
        return found

    def _mismatch(self, place: str, wanted: str = "") -> StateMismatch:
        return StateMismatch(
            f"user_callback: {self._name}.{place} is {wanted or 'there'} in the training and not in this process; "
            "the script must make the same callbacks in every process"
        )
