"""Attempt specs, desired states, reports and lines come out of JSON as they went in."""

from __future__ import annotations

import json
import re

import pytest

from edt_contract.attempt import AttemptSpec, DesiredSlot, DesiredState
from edt_contract.encoding import ContractError, dump_line, dumps, from_json_object, load_line, to_json_object
from edt_contract.reports import Report
from support.training import spec_for


def test_a_spec_comes_out_as_it_went_in(tmp_path) -> None:
    spec = spec_for(tmp_path, "conv", "--samples", 3)
    assert AttemptSpec.from_json_object(to_json_object(spec)) == spec


def test_a_spec_of_another_protocol_is_refused(tmp_path) -> None:
    data = json.loads(dumps(spec_for(tmp_path, "conv"))) | {"protocol": 99}
    with pytest.raises(ContractError, match="protocol 99"):
        AttemptSpec.from_json_object(data)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ContractError, match="'fence' is missing"):
        from_json_object(DesiredState, {"kind": "desired-state", "slots": []})


def test_a_desired_state_comes_out_as_it_went_in_and_unknown_keys_are_dropped() -> None:
    desired = DesiredState(3, (DesiredSlot(1, "0"), DesiredSlot(2, "1", "GPU-1")), "10.0.0.1:99", leaving=(4,))
    assert from_json_object(DesiredState, {**load_line(dump_line(desired)), "later": 1}) == desired


@pytest.mark.parametrize("kind", ["gossip", [], {}])
def test_a_report_of_unknown_kind_is_refused(kind: object) -> None:
    with pytest.raises(ContractError, match=re.escape(f"unknown kind {kind!r}")):
        Report.from_message({"job": "edt-1", "fence": 1, "node": "n", "seq": 1, "kind": kind, "time": 0.0})


def test_a_loss_that_is_no_number_travels_as_null() -> None:
    line = dump_line({"kind": "progress", "loss": float("nan"), "metrics": {"a": [float("inf"), 1.5]}})
    assert load_line(line) == {"kind": "progress", "loss": None, "metrics": {"a": [None, 1.5]}}


@pytest.mark.parametrize("line", [b"{", b"[1]", b"{}", b'{"kind": 3}', b"[" * 200_000, b"\xff"])
def test_a_line_that_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(ContractError):
        load_line(line)
