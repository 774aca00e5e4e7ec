"""The papers that cross the walls."""

from __future__ import annotations

import json

import pytest

from edt_runner.contract import ContractError, Letter, Report, SlotWish, Wish, dump_line, load_line
from support.training import letter_for


def test_a_letter_comes_out_as_it_went_in(tmp_path) -> None:
    letter = letter_for(tmp_path, "conv", "--samples", 3)
    assert Letter.from_json(letter.to_json()) == letter


def test_a_letter_of_another_protocol_is_refused(tmp_path) -> None:
    data = json.loads(letter_for(tmp_path, "conv").to_json()) | {"protocol": 99}
    with pytest.raises(ContractError, match="protocol 99"):
        Letter.from_json(json.dumps(data))


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ContractError, match="'fence' is missing"):
        Wish.from_message({"kind": "wish", "slots": []})


def test_a_wish_comes_out_as_it_went_in_and_unknown_keys_are_dropped() -> None:
    wish = Wish(3, (SlotWish(1, "0"), SlotWish(2, "1", "GPU-1")), "10.0.0.1:99", leaving=(4,))
    assert Wish.from_message({**load_line(dump_line(wish.to_message())), "later": 1}) == wish


def test_a_report_of_unknown_kind_is_refused() -> None:
    with pytest.raises(ContractError, match="unknown kind 'gossip'"):
        Report.from_message({"job": "edt-1", "fence": 1, "node": "n", "seq": 1, "kind": "gossip", "time": 0.0})


def test_a_loss_that_is_no_number_travels_as_null() -> None:
    line = dump_line({"kind": "progress", "loss": float("nan"), "metrics": {"a": [float("inf"), 1.5]}})
    assert load_line(line) == {"kind": "progress", "loss": None, "metrics": {"a": [None, 1.5]}}


@pytest.mark.parametrize("line", [b"{", b"[1]", b"{}", b'{"kind": 3}', b"[" * 200_000, b"\xff"])
def test_a_line_that_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(ContractError):
        load_line(line)
