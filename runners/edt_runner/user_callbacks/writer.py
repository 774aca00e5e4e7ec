"""One object's memory into plain JSON and tensors. Room: runners; torch."""

from __future__ import annotations

import enum
import functools
import hashlib
import io
import random
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from edt_runner.errors import UsageError
from edt_runner.user_callbacks.kinds import (
    MAPPINGS,
    MISSING,
    SEQUENCES,
    is_of_the_script,
    name_of,
    named_by,
    tells_itself,
)

_PLAIN = (bool, int, float, str)
_LARGE_BYTES = 1 << 20
_FUNCTIONS = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    functools.partial,
    np.ufunc,
)
_RANDOM = (
    random.Random,
    np.random.Generator,
    np.random.RandomState,
    np.random.BitGenerator,
    torch.Generator,
)


class Writer:
    """One look at everything.

    Args:
        name: of the object, for errors.
        known: see ``Memory``.
        settled: what furniture and objects must still be, by place; None: anything goes.
        brought: digests of large arrays that need not be told, by place.
        content: attributes by name, or an object that tells itself.
    """

    def __init__(
        self,
        name: str,
        known: Sequence[Any],
        settled: Mapping[str, Any] | None,
        brought: Mapping[str, str],
        content: Any,
    ) -> None:
        self._name, self._settled, self._brought = name, settled, brought
        self._known = {id(part): index for index, part in enumerate(known)}
        self._lent = _memory_of(known)
        self._seen: dict[int, str] = {}
        self._alive: list[Any] = []
        """Of which ids were taken: no other object may come to the same one meanwhile."""
        self.met: dict[str, Any] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.large: dict[str, str] = {}
        """Digests of large arrays, by place."""
        self.told = self._write(content)

    def _write(self, content: Any) -> Any:
        if not isinstance(content, dict):
            return {"itself": self._node(content.state_dict(), "state_dict()")}
        return [[attribute, self._node(value, attribute)] for attribute, value in content.items()]

    def _node(self, value: Any, place: str) -> Any:
        if value is None or type(value) in _PLAIN:
            return value
        if id(value) in self._known:
            return {"known": self._known[id(value)]}
        if isinstance(value, _FUNCTIONS):
            return self._function(value, place)
        simple = self._immutable(value, place)
        if simple is not None:
            return simple
        if id(value) in self._seen:
            return {"as": self._seen[id(value)]}
        self._seen[id(value)] = place
        self._alive.append(value)
        for told in (self._array, self._container, self._object):
            node = told(value, place)
            if node is not None:
                return node
        return self._furniture(value, place)

    def _immutable(self, value: Any, place: str) -> Any:
        if type(value) is bytes:
            return {"bytes": value.hex()}
        if type(value) is complex:
            return {"complex": [value.real, value.imag]}
        if isinstance(value, PurePath):
            return {"path": str(value)}
        if type(value) in (datetime, date):
            return {type(value).__name__: value.isoformat()}
        if isinstance(value, enum.Enum):
            return {"member": [self._function(type(value), place), value.name]}
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            return {"scalar": [value.dtype.str, value.tobytes().hex()]}
        return None

    def _array(self, value: Any, place: str) -> Any:
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided or value.is_quantized:
                raise self._refusal(place, "is a sparse or quantized tensor", "keep a dense one")
            self._refuse_lent(value.data_ptr() if value.numel() else 0, place)
            if self._is_brought(place, value.nbytes, lambda: _bytes_of(value)):
                return {"stays": None}
            self.tensors[place] = value.detach()
            return {"tensor": [place, value.is_cuda, value.requires_grad, isinstance(value, torch.nn.Parameter)]}
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject or type(value) is not np.ndarray:
                raise self._refusal(place, f"is an array of {value.dtype}", "keep a list, or an array of numbers")
            self._refuse_lent(value.__array_interface__["data"][0] if value.size else 0, place)
            flat = np.array(value, order="C").reshape(-1).view(np.uint8)
            if self._is_brought(place, value.nbytes, lambda: flat):
                return {"stays": None}
            self.tensors[place] = torch.from_numpy(flat)
            return {"array": [place, value.dtype.str, list(value.shape)]}
        return None

    def _is_brought(self, place: str, size: int, content: Callable[[], npt.NDArray[np.uint8]]) -> bool:
        """Whether it is large, and the script's own in every process."""
        if size < _LARGE_BYTES:
            return False
        self.large[place] = hashlib.sha256(content().tobytes()).hexdigest()
        return self._brought.get(place) == self.large[place]

    def _container(self, value: Any, place: str) -> Any:
        for kind, exact in SEQUENCES.items():
            if type(value) is exact:
                return {kind: [self._node(item, f"{place}[{index}]") for index, item in enumerate(value)]}
        if type(value) is deque:
            items = [self._node(item, f"{place}[{index}]") for index, item in enumerate(value)]
            return {"deque": [value.maxlen, items]}
        for kind, exact in MAPPINGS.items():
            if type(value) is exact:
                factory = self._node(getattr(value, "default_factory", None), f"{place}.default_factory")
                pairs = [[self._node(k, f"{place}.key"), self._node(v, f"{place}[{k!r}]")] for k, v in value.items()]
                return {kind: [factory, pairs]}
        if isinstance(value, (list, tuple, dict, set, frozenset, deque)):
            raise self._refusal(
                place, f"is a {name_of(type(value))}, a container of a kind of its own", "keep a plain one"
            )
        return None

    def _object(self, value: Any, place: str) -> Any:
        if isinstance(value, _RANDOM):
            raise self._refusal(place, "is a random generator", "use the global one, which is seeded before each hook")
        if isinstance(value, Iterator) and not isinstance(value, io.IOBase):
            raise self._refusal(place, "is an iterator, which does not tell how far it has come", "keep the number")
        if tells_itself(value):
            kind = self._same_kind(value, place, makes=False)
            return {"state": [kind, self._node(value.state_dict(), f"{place}.state_dict()")]}
        if _is_callable(value, "assign", "numpy"):
            raise self._refusal(place, "is a variable of its own", "keep its value, as an array or a number")
        if _is_callable(value, "get_weights", "set_weights"):
            kind = self._same_kind(value, place, makes=False)
            return {"weights": [kind, self._node(value.get_weights(), f"{place}.get_weights()")]}
        if not is_of_the_script(type(value)):
            return None
        if not all(is_of_the_script(kind) for kind in type(value).__mro__[:-1]) or not hasattr(value, "__dict__"):
            raise self._refusal(
                place,
                f"is a {name_of(type(value))}, which builds on a library's class or has __slots__",
                "give that class state_dict() and load_state_dict(state)",
            )
        kind = self._same_kind(value, place, makes=named_by(type(value)) is not None)
        fields = [[key, self._node(item, f"{place}.{key}")] for key, item in vars(value).items()]
        return {"object": [named_by(type(value)), kind, fields]}

    def _same_kind(self, value: Any, place: str, *, makes: bool) -> str:
        """The kind of an object, which a twin must have at this place already, unless it ``makes`` it by its class."""
        kind = name_of(type(value))
        self.met[place] = value
        if self._settled is not None and not makes:
            before = self._settled.get(place, MISSING)
            if before is MISSING or name_of(type(before)) != kind:
                raise self._refusal(place, f"became a {kind}", "make it in on_train_begin, which every engine runs")
        return kind

    def _function(self, value: Any, place: str) -> Any:
        self.met[place] = value
        if self._settled is None or self._settled.get(place, MISSING) is value:
            named = named_by(value)
            return {"named": named} if named is not None else {"stays": None}
        named = named_by(value)
        if named is None:
            raise self._refusal(
                place, "became another function or class, made in a hook", "keep what it is made of instead"
            )
        return {"named": named}

    def _furniture(self, value: Any, place: str) -> Any:
        self.met[place] = value
        if self._settled is not None and self._settled.get(place, MISSING) is not value:
            raise self._refusal(
                place,
                f"became a {name_of(type(value))}, which cannot be told to an engine that joins later",
                "make it in on_train_begin, which every engine runs",
            )
        return {"stays": None}

    def _refuse_lent(self, address: int, place: str) -> None:
        if any(start <= address < end for start, end in self._lent):
            raise self._refusal(place, "is a view of the model's or the optimizer's own memory", "keep a copy")

    def _refusal(self, place: str, what: str, instead: str) -> UsageError:
        where = self._name if place.startswith("state_dict()") else f"{self._name}.{place}"
        return UsageError(f"user_callback: {where} {what}; {instead}")


def _memory_of(known: Sequence[Any]) -> list[tuple[int, int]]:
    """Where the model's tensors lie, as far as they are torch's."""
    storages = [part.untyped_storage() for part in known if isinstance(part, torch.Tensor) and part.numel()]
    return [(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in storages]


def _bytes_of(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    flat: npt.NDArray[np.uint8] = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat


def _is_callable(value: Any, *names: str) -> bool:
    return all(callable(getattr(value, name, None)) for name in names)
