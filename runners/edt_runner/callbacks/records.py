"""Turns the memory of one object into plain JSON and tensors, and writes these into its twin in another process.

Nothing is pickled. An object that two attributes share is shared in the twin, too. Each attribute is one of

    data        None, numbers, strings, bytes, arrays, tensors, paths, times, members of enumerations, and lists,
                tuples, dicts, sets and deques of all these
    an object   with ``state_dict`` and ``load_state_dict`` (a scheduler, a module), with ``get_weights`` and
                ``set_weights`` (a Keras layer), or of a class that the script defines, attribute by attribute
    known       a part of the model or the optimizer; these travel separately
    resource    anything else: a function, a logger, an open file. A resource does not travel, so an attribute must
                still hold the resource that it held when the memory was frozen. Only a function or class of a module
                may be replaced by another such function or class
"""

from __future__ import annotations

import enum
import functools
import hashlib
import io
import random
import sys
import sysconfig
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from edt_runner.errors import StateMismatch, UsageError

SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque}
MAPPINGS: dict[str, Any] = {"dict": dict, "ordered": OrderedDict, "counter": Counter, "default": defaultdict}


class _Codec(NamedTuple):
    """Recognizes values of one immutable type, writes them as plain JSON, and reads them back."""

    takes: Callable[[Any], bool]
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


_IMMUTABLE: Mapping[str, _Codec] = {
    "bytes": _Codec(lambda value: type(value) is bytes, bytes.hex, bytes.fromhex),
    "complex": _Codec(
        lambda value: type(value) is complex, lambda value: [value.real, value.imag], lambda parts: complex(*parts)
    ),
    "path": _Codec(lambda value: isinstance(value, PurePath), str, Path),
    "datetime": _Codec(lambda value: type(value) is datetime, datetime.isoformat, datetime.fromisoformat),
    "date": _Codec(lambda value: type(value) is date, date.isoformat, date.fromisoformat),
    "scalar": _Codec(
        lambda value: isinstance(value, np.generic) and not value.dtype.hasobject,
        lambda value: [value.dtype.str, value.tobytes().hex()],
        lambda parts: np.frombuffer(bytes.fromhex(parts[1]), np.dtype(parts[0]))[0],
    ),
}
MISSING: Any = object()
_LIBRARIES = (
    *(sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(__file__).resolve().parents[2]),  # OpenEDT's own folder, wherever it is installed
)
_BASES = ("pyedt.callbacks", "keras.src.callbacks.callback", "tf_keras.src.callbacks")
"""Modules of base classes for a user's own classes. These bases keep all that they remember in attributes."""


def has_state_dict(value: Any) -> bool:
    """Whether the object describes its own state by ``state_dict`` and ``load_state_dict``."""
    return _is_callable(value, "state_dict", "load_state_dict")


def is_of_the_script(kind: type) -> bool:
    """Whether the class is defined in the user's own code, and neither in a library nor in the interpreter."""
    if kind.__module__ in _BASES:
        return True
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind.__module__ == "__main__" or (file is not None and not file.startswith(_LIBRARIES))


def named_by(value: Any) -> list[str] | None:
    """[module, qualified name], if every process that has run the same script finds ``value`` by them; else None."""
    named = [getattr(value, "__module__", None) or "", getattr(value, "__qualname__", None) or ""]
    if isinstance(value, np.ufunc):
        named = ["numpy", value.__name__]
    return named if all(named) and look_up(*named) is value else None


def look_up(module: str, qualified: str) -> Any:
    """The object of that name, or ``MISSING`` if there is none or its module has not been imported."""
    found: Any = sys.modules.get(module, MISSING)
    for part in qualified.split("."):
        found = getattr(found, part, MISSING)
    return found


def bytes_of(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """The bytes of a tensor, in host memory. There is no copy if the tensor is contiguous in host memory."""
    flat: npt.NDArray[np.uint8] = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat


def name_of(kind: type) -> str:
    """The name of a class, for messages and for comparison."""
    module = "" if kind.__module__ in ("__main__", "builtins") else f"{kind.__module__}."
    return module + kind.__qualname__


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
    """Writes one record of everything that an object remembers.

    Args:
        name: the object's name in error messages.
        model_parts: parts of the model and the optimizer, as in ``Memory``.
        frozen: resources and objects that must not have been replaced, by place; None: any may be replaced.
        unchanged: digests of large arrays that need not travel, by place; None: find the digests of all.
        content: the attributes by name, or an object with ``state_dict``.

    Raises:
        UsageError: a value cannot travel; the message names its attribute.
    """

    def __init__(
        self,
        name: str,
        model_parts: Sequence[Any],
        frozen: Mapping[str, Any] | None,
        unchanged: Mapping[str, str] | None,
        content: Any,
    ) -> None:
        self._name, self._frozen, self._unchanged = name, frozen, unchanged
        self._model_parts = {id(part): index for index, part in enumerate(model_parts)}
        storages = [part.untyped_storage() for part in model_parts if isinstance(part, torch.Tensor) and part.numel()]
        self._model_memory = [(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in storages]
        """Address ranges of the model's tensors, as far as they are torch tensors."""
        self._seen: dict[int, str] = {}
        self._alive: list[Any] = []
        """Objects whose ids are noted. Keeping them prevents that another object gets the same id."""
        self.references: dict[str, Any] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.digests: dict[str, str] = {}
        """Digests of the object's large arrays, by place: of all, or of those that may be unchanged."""
        if isinstance(content, dict):
            self.record: Any = [[attribute, self._node(value, attribute)] for attribute, value in content.items()]
        else:
            self.record = {"itself": self._node(content.state_dict(), "state_dict()")}

    def _node(self, value: Any, place: str) -> Any:
        if value is None or type(value) in _PLAIN:
            return value
        if id(value) in self._model_parts:
            return {"known": self._model_parts[id(value)]}
        if isinstance(value, _FUNCTIONS):
            return self._reference(value, place)
        if isinstance(value, enum.Enum):
            return {"member": [self._reference(type(value), place), value.name]}
        for kind, codec in _IMMUTABLE.items():
            if codec.takes(value):
                return {kind: codec.write(value)}
        if id(value) in self._seen:
            return {"as": self._seen[id(value)]}
        self._seen[id(value)] = place
        self._alive.append(value)
        for write in (self._array, self._container, self._object):
            node = write(value, place)
            if node is not None:
                return node
        return self._reference(value, place)

    def _array(self, value: Any, place: str) -> Any:
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided or value.is_quantized:
                raise self._refusal(place, "is a sparse or quantized tensor", "keep a dense one")
            self._refuse_model_memory(value.data_ptr() if value.numel() else 0, place)
            if self._is_unchanged(place, value.nbytes, lambda: bytes_of(value)):
                return {"stays": None}
            self.tensors[place] = value.detach()
            return {"tensor": [place, value.is_cuda, value.requires_grad, isinstance(value, torch.nn.Parameter)]}
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject or type(value) is not np.ndarray:
                raise self._refusal(place, f"is an array of {value.dtype}", "keep a list, or an array of numbers")
            self._refuse_model_memory(value.__array_interface__["data"][0] if value.size else 0, place)
            flat = np.array(value, order="C").reshape(-1).view(np.uint8)
            if self._is_unchanged(place, value.nbytes, lambda: flat):
                return {"stays": None}
            self.tensors[place] = torch.from_numpy(flat)
            return {"array": [place, value.dtype.str, list(value.shape)]}
        return None

    def _is_unchanged(self, place: str, size: int, content: Callable[[], npt.NDArray[np.uint8]]) -> bool:
        """Whether the array is large and still as the script made it, which it is in every process then."""
        if size < _LARGE_BYTES or (self._unchanged is not None and place not in self._unchanged):
            return False
        self.digests[place] = hashlib.sha256(content().tobytes()).hexdigest()
        return self._unchanged is not None and self._unchanged[place] == self.digests[place]

    def _container(self, value: Any, place: str) -> Any:
        for kind, exact in SEQUENCES.items():
            if type(value) is exact:
                items = [self._node(item, f"{place}[{index}]") for index, item in enumerate(value)]
                return {kind: [value.maxlen, items] if exact is deque else items}
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
        if has_state_dict(value):
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
        """The name of an object's class. The twin must have an object of this class at this place, unless ``makes``,
        which means that the twin can make one.

        Raises:
            UsageError: a hook has put an object of another class here.
        """
        kind = name_of(type(value))
        self.references[place] = value
        if self._frozen is not None and not makes:
            before = self._frozen.get(place, MISSING)
            if before is MISSING or name_of(type(before)) != kind:
                raise self._refusal(place, f"became a {kind}", "make it in on_train_begin, which every engine runs")
        return kind

    def _reference(self, value: Any, place: str) -> Any:
        """Write a function or class by its name, if other processes can find it by that name; anything else is a
        resource.

        Raises:
            UsageError: a hook has replaced the resource.
        """
        self.references[place] = value
        function = isinstance(value, _FUNCTIONS)
        named = named_by(value) if function else None
        if named is not None:
            return {"named": named}
        if self._frozen is not None and self._frozen.get(place, MISSING) is not value:
            what = f"became a {name_of(type(value))}, which cannot be told to an engine that joins later"
            instead = "make it in on_train_begin, which every engine runs"
            if function:
                what, instead = "became another function or class, made in a hook", "keep what it is made of instead"
            raise self._refusal(place, what, instead)
        return {"stays": None}

    def _refuse_model_memory(self, address: int, place: str) -> None:
        if any(start <= address < end for start, end in self._model_memory):
            raise self._refusal(place, "is a view of the model's or the optimizer's own memory", "keep a copy")

    def _refusal(self, place: str, what: str, instead: str) -> UsageError:
        where = self._name if place.startswith("state_dict()") else f"{self._name}.{place}"
        return UsageError(f"user_callback: {where} {what}; {instead}")


def _is_callable(value: Any, *names: str) -> bool:
    return all(callable(getattr(value, name, None)) for name in names)


class Reader:
    """Restores one record. ``read`` returns the new value of a place whose present value is ``now``.

    Args:
        name: the object's name in error messages.
        model_parts: parts of the model and the optimizer, as in ``Memory``.
        tensors: the record's tensors, by name.
    """

    def __init__(self, name: str, model_parts: Sequence[Any], tensors: Mapping[str, torch.Tensor]) -> None:
        self._name, self._model_parts, self._tensors = name, model_parts, tensors
        self._made: dict[str, Any] = {}

    def read(self, node: Any, now: Any, place: str) -> Any:
        """Read one value of the record.

        Args:
            node: the value, as ``Writer`` has written it.
            now: the present value, or ``MISSING``.
            place: the value's place in the object, for error messages.

        Returns:
            The new value.

        Raises:
            StateMismatch: this process has no such object or function.
        """
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
        if kind in _IMMUTABLE:
            return _IMMUTABLE[kind].read(value)
        match kind:
            case "known":
                return self._model_parts[value]
            case "named":
                return self._resolve(value, place)
            case "member":
                return self.read(value[0], type(now), place)[value[1]]
            case "tensor" | "array":
                return self._read_array(kind, value, place)
            case "state" | "weights" | "object":
                return self._read_object(kind, value, now, place)
            case _:
                return self._read_container(kind, value, now, place)

    def _read_array(self, kind: str, value: Any, place: str) -> Any:
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
        for key_node, node in pairs:
            key = self.read(key_node, MISSING, f"{place}.key")
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
