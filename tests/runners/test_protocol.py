"""Messages between a job's processes: what they say of themselves, and that nothing wrong is read as one."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import types
import typing
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_contract.encoding import ContractError, dump_line, from_json_object, to_json_object
from edt_contract.reports import BODIES, ReportKind
from edt_runner.protocol.channel import PROTOCOL_VERSION, decode
from edt_runner.protocol.data import MetricItem, MicroBatch, RegroupStatus, ReplicaHistory
from edt_runner.protocol.engine_messages import JoinRequest, SurvivorStatus
from edt_runner.protocol.messages import (
    KINDS,
    EngineGone,
    Hello,
    LeaveEngines,
    Message,
    Metrics,
    Progress,
    Resized,
    Role,
    SupervisorIdle,
)

MESSAGES = sorted(KINDS.values(), key=lambda cls: cls.kind)
each_message = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.kind)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)
SENDER_WORDS = {
    Role.ENGINE: "engine|member|survivor|repair source",
    Role.COORDINATOR: "coordinator",
    Role.DRIVER: "driver",
    Role.SUPERVISOR: "supervisor",
}


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    """Any value that a field of this annotation may have."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return JSON
    if origin in (typing.Union, types.UnionType):
        return st.one_of([st.none() if one is types.NoneType else values_of(one) for one in arguments])
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    if origin is Mapping:
        return st.dictionaries(st.text(), values_of(arguments[1]), max_size=3)
    if dataclasses.is_dataclass(annotation):
        hints = typing.get_type_hints(annotation)
        fields = {field.name: values_of(hints[field.name]) for field in dataclasses.fields(annotation)}
        if annotation is Hello:
            fields["version"] = st.just(PROTOCOL_VERSION)
        return st.builds(annotation, **fields)
    if issubclass(annotation, enum.Enum):
        return st.sampled_from(annotation)
    return {
        int: st.integers(),
        float: st.floats(allow_nan=False, allow_infinity=False),
        str: st.text(),
        bool: st.booleans(),
    }[annotation]


def an_example(cls: type[Message]) -> dict[str, Any]:
    """A message of this class as JSON; all that may be left out is there."""
    example = {"kind": cls.kind, **{field.name: plain(hint) for field, hint in fields_of(cls)}}
    return {**example, "version": PROTOCOL_VERSION} if cls is Hello else example


def fields_of(cls: Any) -> list[tuple[dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(cls)
    return [(field, hints[field.name]) for field in dataclasses.fields(cls)]


def plain(annotation: Any) -> Any:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return plain(arguments[0])
    if origin is tuple:
        return [plain(one) for one in arguments if one is not Ellipsis]
    if annotation is Any or origin is Mapping:
        return {}
    if dataclasses.is_dataclass(annotation):
        return {field.name: plain(hint) for field, hint in fields_of(annotation)}
    if issubclass(annotation, enum.Enum):
        return next(iter(annotation)).value
    return annotation(1)


# ── what a message says of itself ─────────────────────────────────────────────────────────────────────────────────
@each_message
def test_a_message_is_frozen_and_says_who_sends_it_when_and_what_answers_it(cls: type[Message]) -> None:
    words = cls.__doc__ or ""
    assert dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert cls.senders and cls.receivers and not words.startswith(f"{cls.__name__}(")
    for sender in cls.senders:
        assert re.search(SENDER_WORDS[sender], words, re.IGNORECASE), f"{cls.__name__} does not name its {sender}"
    assert re.search(r"\bsends?\b|\bwrites\b|\banswer to\b", words), f"{cls.__name__} does not say when it is sent"


@each_message
def test_a_message_names_only_messages_that_there_are(cls: type[Message]) -> None:
    named = set(re.findall(r"``([A-Z][A-Za-z]+)``", cls.__doc__ or ""))
    assert named <= {other.__name__ for other in MESSAGES}


@each_message
def test_a_kind_is_the_name_of_its_class_and_no_field_is_called_so(cls: type[Message]) -> None:
    assert "".join(part.capitalize() for part in cls.kind.split("-")) == cls.__name__
    assert "kind" not in {field.name for field in dataclasses.fields(cls)}


def test_no_two_messages_are_of_one_kind() -> None:
    with pytest.raises(TypeError, match="'join-request'"):
        type("JoinRequest", (Message,), {}, sender=Role.ENGINE, receiver=Role.COORDINATOR)
    assert KINDS["join-request"] is JoinRequest


@pytest.mark.parametrize(("cls", "kind"), [(Progress, ReportKind.PROGRESS), (Resized, ReportKind.RESIZED)])
def test_what_goes_on_as_a_report_has_the_fields_of_that_report(cls: type[Message], kind: ReportKind) -> None:
    assert {field.name for field in dataclasses.fields(cls)} == set(BODIES[kind].fields)


# ── what is read is what was written ──────────────────────────────────────────────────────────────────────────────
@settings(deadline=None, max_examples=300)
@given(st.sampled_from(MESSAGES).flatmap(values_of))
def test_a_message_is_read_as_it_was_written(message: Message) -> None:
    line = dump_line(message)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert decode(line) == message


def test_plain_data_can_be_written_without_a_kind() -> None:
    history = ReplicaHistory(compared=2, ended_where={"engine": 3})
    assert from_json_object(ReplicaHistory, to_json_object(history)) == history
    assert from_json_object(ReplicaHistory, {"compared": 2, "of another release": 1}).compared == 2


def test_what_is_no_number_becomes_null_wherever_it_is() -> None:
    item = MetricItem("train", 1, 4, 1, 2, {"loss": float("nan"), "accuracy": float("inf")}, 0.5)
    read = decode(dump_line(Metrics((item,))))
    assert isinstance(read, Metrics) and read.items[0].metrics == {"loss": None, "accuracy": None}


def test_an_integer_that_stands_for_a_number_stays_one() -> None:
    read = decode(dump_line(Metrics((MetricItem("train", 1, 4, 1, 2, {"correct": 3}, 0.5),))))
    assert isinstance(read, Metrics) and type(read.items[0].metrics["correct"]) is int


# ── what is no message ────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not an object but a list"),
        (b"{}", "no kind"),
        (b'{"kind":1}', "no kind"),
        (b'{"kind":"surprise"}', "unknown kind 'surprise'"),
    ],
)
def test_a_line_that_is_no_message_is_refused_with_a_reason(line: bytes, why: str) -> None:
    with pytest.raises(ContractError, match=why):
        decode(line)


@each_message
def test_a_missing_field_is_named_or_has_a_default(cls: type[Message]) -> None:
    for field in dataclasses.fields(cls):
        data = {name: value for name, value in an_example(cls).items() if name != field.name}
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            with pytest.raises(ContractError, match=f"^{cls.kind}: field '{field.name}' is missing$"):
                decode(json.dumps(data))
        else:
            decode(json.dumps(data))


@each_message
def test_a_field_of_the_wrong_type_is_named(cls: type[Message]) -> None:
    for field in dataclasses.fields(cls):
        example = an_example(cls)
        wrong: Any = 1.5 if isinstance(example[field.name], dict | list | str) else "1"
        with pytest.raises(ContractError, match=f"^{cls.kind}: {field.name} is .*, takes "):
            decode(json.dumps({**example, field.name: wrong}))


@each_message
def test_a_key_that_nobody_knows_is_ignored(cls: type[Message]) -> None:
    assert decode(json.dumps({**an_example(cls), "of another release": [1]})) == decode(json.dumps(an_example(cls)))


@pytest.mark.parametrize(
    ("message", "change", "why"),
    [
        (LeaveEngines(("1", "2")), {"engines": ["1", 2]}, r"engines\[1\] is an integer, takes a string"),
        (EngineGone("1"), {"micro_batch": {"offset": 1}}, "micro_batch: field 'index' is missing"),
        (EngineGone("1"), {"micro_batch": {"offset": True, "index": 1}}, "offset is a boolean, takes an integer"),
        (EngineGone("1", MicroBatch(1, 2)), {"engine": None}, "engine is null, takes a string"),
        (
            SurvivorStatus(1, RegroupStatus(3, True), "a:1"),
            {"status": {"offset": 3, "has_reduced": True, "summed": [[1, 2, 3]]}},
            r"status: summed\[0\] has 3 items, takes 2",
        ),
        (Hello(1, Role.ENGINE, "secret"), {"role": "stoker"}, "role is 'stoker', takes one of 'agent'"),
        (Metrics(()), {"items": [{"phase": "train"}]}, r"items\[0\]: field 'step' is missing"),
    ],
    ids=lambda value: value.kind if isinstance(value, Message) else "",
)
def test_what_is_wrong_deep_inside_is_named_by_its_way(message: Message, change: dict[str, Any], why: str) -> None:
    with pytest.raises(ContractError, match=why) as raised:
        decode(json.dumps({**json.loads(dump_line(message)), **change}))
    assert str(raised.value).startswith(f"{message.kind}: ")


@pytest.mark.parametrize("version", [PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1], ids=["older", "newer"])
def test_a_hello_of_another_version_is_refused(version: int) -> None:
    hello = Hello(version, Role.ENGINE, "secret", "7")
    with pytest.raises(ContractError, match=f"hello: version is {version}, this process reads"):
        decode(dump_line(hello))


def test_a_message_without_fields_is_its_kind_alone() -> None:
    assert dump_line(SupervisorIdle()) == b'{"kind":"supervisor-idle"}\n'
