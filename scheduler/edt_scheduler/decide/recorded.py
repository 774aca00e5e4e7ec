"""A decision as bytes: state and plan as compact JSON, without loss, and what comes of the same state now. Pure.

A record holds every field that differs from its default, under the field's name. So a record of an older version can be
read after a field was added, and what a later version has removed is left out.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import time
import types
import typing
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.state import Job, Plan, State

_SPEED = 1
"""zlib's level: ten times as fast as the best one, and a tenth larger."""
MOST_DIFFERENCES = 50
_INFINITY = float("inf")


@dataclass(frozen=True)
class Replay:
    """What comes of a recorded state now."""

    plan: Plan
    differences: tuple[str, ...]
    """What differs from the recorded plan, in sentences; empty: nothing."""
    seconds: float
    """How long planning took."""


def packed(value: State | Plan) -> bytes:
    """A state or a plan as bytes."""
    return zlib.compress(_text(to_json(value)).encode(), _SPEED)


class Recorder:
    """Packs decisions, and keeps the JSON of what the next decision names again: most jobs are the same then."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[Job, str]] = {}

    def packed(self, state: State, decided: Plan) -> tuple[bytes, bytes, list[tuple[str, str, int, int, str]]]:
        """A decision's state and plan as bytes, and its actions in short."""
        jobs = {job.id: self._job(job) for job in state.jobs}
        self._jobs = jobs
        head = _text(to_json(dataclasses.replace(state, jobs=())))
        others = f',"jobs":[{",".join(text for _, text in jobs.values())}]}}' if jobs else "}"
        actions = [(each.job, each.verb.value, each.before, each.after, each.cause.value) for each in decided.actions]
        return zlib.compress(f"{head[:-1]}{others}".encode(), _SPEED), packed(decided), actions

    def _job(self, job: Job) -> tuple[Job, str]:
        known = self._jobs.get(job.id)
        return known if known is not None and known[0] is job else (job, _text(to_json(job)))


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def unpacked(data: bytes) -> dict[str, Any]:
    """The JSON object of these bytes."""
    found: dict[str, Any] = json.loads(zlib.decompress(data))
    return found


def state_of(data: bytes) -> State:
    """The state that was packed."""
    return typing.cast(State, from_json(State, unpacked(data)))


def plan_of(data: bytes) -> Plan:
    """The plan that was packed."""
    return typing.cast(Plan, from_json(Plan, unpacked(data)))


def replay(state: bytes, decided: bytes) -> Replay:
    """Plan a recorded state again, and compare what comes of it with the recorded plan.

    Args:
        state: the packed state.
        decided: the packed plan.
    """
    again, before = state_of(state), plan_of(decided)
    begun = time.perf_counter()
    now = plan(again)
    seconds = time.perf_counter() - begun
    return Replay(now, tuple(differences(before, now))[:MOST_DIFFERENCES], seconds)


def differences(before: Plan, now: Plan) -> list[str]:
    """What two plans of one state do differently, in sentences."""
    found = []
    for job in dict.fromkeys((*before.alloc, *now.alloc)):
        held = before.alloc.get(job, {}), now.alloc.get(job, {})
        if dict(held[0]) != dict(held[1]):
            found.append(f"{job} gets {_slots(held[0])} in the record, and {_slots(held[1])} now")
    acted = {each.job: each for each in before.actions}, {each.job: each for each in now.actions}
    for job in dict.fromkeys((*acted[0], *acted[1])):
        one, other = acted[0].get(job), acted[1].get(job)
        if one is None or other is None:
            what = (other or one).verb if (other or one) is not None else ""  # type: ignore[union-attr]
            found.append(f"{what} of {job} is {'only in the record' if other is None else 'not in the record'}")
        elif one != other:
            changed = [name for name in _names(type(one)) if getattr(one, name) != getattr(other, name)]
            found += [
                f"{name} of {job}: {getattr(one, name)!s} in the record, {getattr(other, name)!s} now"
                for name in changed
            ]
    for name in ("head_nodes", "until_joined", "gives", "takes", "explain"):
        was, is_now = getattr(before, name), getattr(now, name)
        for job in dict.fromkeys((*was, *is_now)):
            if was.get(job) != is_now.get(job):
                found.append(f"{name} of {job}: {was.get(job)} in the record, {is_now.get(job)} now")
    for name in ("asks", "give_ups"):
        if getattr(before, name) != getattr(now, name):
            found.append(f"{name}: {getattr(before, name)} in the record, {getattr(now, name)} now")
    return found


def _slots(held: Mapping[str, int]) -> str:
    return ", ".join(f"{number} on {node}" for node, number in sorted(held.items())) or "nothing"


def to_json(value: Any) -> Any:
    """A dataclass of the plan as JSON. Fields that have their default are left out. Mappings with tuples as keys become
    lists of pairs.
    """
    kind: Any = type(value)
    return _writer(kind)(value)


def from_json(kind: Any, value: Any) -> Any:
    """What ``to_json`` has made JSON of.

    Args:
        kind: the type that is wanted: a dataclass, or a type that occurs in one.
        value: the JSON.
    """
    return _reader(kind)(value)


_NOTHING = object()
_Function = Callable[[Any], Any]


@cache
def _writer(kind: Any) -> _Function:
    """The function that makes JSON of a value of this type."""
    return _writes(kind) or _same


def _same(value: Any) -> Any:
    return value


@cache
def _writes(kind: Any) -> _Function | None:
    """The same; None: the value is JSON as it is."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        (real,) = (each for each in inside if each is not type(None))
        return _writes_some(_writes(real))
    if origin is frozenset:
        return sorted
    if origin is tuple:
        return _writes_tuple(inside)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        write = _writer(inside[1])
        if typing.get_origin(inside[0]) is tuple:
            return lambda value: [[list(key), write(item)] for key, item in value.items()]
        return lambda value: {key: write(item) for key, item in value.items()}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _writes_fields(kind)
    if isinstance(kind, type) and issubclass(kind, tuple):
        return list  # a NamedTuple of plain values
    return _finite if kind is float else None


def _writes_some(write: _Function | None) -> _Function | None:
    return None if write is None else lambda value: None if value is None else write(value)


def _writes_tuple(inside: Sequence[Any]) -> _Function:
    if len(inside) == 2 and inside[1] is Ellipsis:
        write = _writes(inside[0])
        return list if write is None else lambda value: [write(each) for each in value]
    parts = [_writer(each) for each in inside]
    return lambda value: [write(each) for write, each in zip(parts, value, strict=True)]


def _writes_fields(kind: type) -> _Function:
    hints = typing.get_type_hints(kind)
    fields = [(each.name, _default(each), _writes(hints[each.name])) for each in dataclasses.fields(kind)]

    def write(value: Any) -> dict[str, Any]:
        held = vars(value)
        found = {}
        for name, default, write_field in fields:
            item = held[name]
            if item is not default and item != default:
                found[name] = item if write_field is None else write_field(item)
        return found

    return write


def _default(field: dataclasses.Field[Any]) -> Any:
    """The default of a field; of a field without one something that nothing equals."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else _NOTHING


def _finite(value: float) -> float | str:
    """A number, or ``inf``, which JSON has no word for."""
    return str(value) if value in (_INFINITY, -_INFINITY) else value


def _names(kind: type) -> list[str]:
    return [each.name for each in dataclasses.fields(kind)]


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """The function that reads JSON of this type."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _reader(inside[0])
    if origin in (types.UnionType, typing.Union):
        (real,) = (each for each in inside if each is not type(None))
        read = _reader(real)
        return lambda value: None if value is None else read(value)
    if origin is tuple:
        if len(inside) == 2 and inside[1] is Ellipsis:
            read = _reader(inside[0])
            return lambda value: tuple(read(each) for each in value)
        parts = [_reader(each) for each in inside]
        return lambda value: tuple(read(each) for read, each in zip(parts, value, strict=True))
    if origin is frozenset:
        read = _reader(inside[0])
        return lambda value: frozenset(read(each) for each in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        read_key, read = _reader(inside[0]), _reader(inside[1])
        return lambda value: {
            read_key(key): read(item) for key, item in (value if isinstance(value, list) else value.items())
        }
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        readers = {each.name: _reader(hints[each.name]) for each in dataclasses.fields(kind)}
        return lambda value: kind(**{name: readers[name](item) for name, item in value.items() if name in readers})
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind
    if isinstance(kind, type) and issubclass(kind, tuple):
        return lambda value: kind(*value)
    if kind is float:
        return float  # of "inf", too
    return lambda value: value
