"""The file that says who hosts an attempt lies where the job itself could write: it may hold anything."""

from __future__ import annotations

import json
import selectors
from pathlib import Path

import pytest

from edt_runner.supervisor.contact import HOME_FILE, Contact
from edt_runner.supervisor.engines import Engines
from support.training import letter_for


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (json.dumps({"fence": 1, "node": "there", "address": "there:1"}), "there:1"),
        (json.dumps({"fence": 2, "node": "there", "address": "there:1"}), None),
        ('{"fence": 1}', None),
        ("[1]", None),
        ("not JSON", None),
        ("", None),
        ("[" * 100_000, None),
    ],
)
def test_what_cannot_be_read_names_no_home(tmp_path: Path, text: str, address: str | None) -> None:
    letter = letter_for(tmp_path, "conv")
    home = Path(letter.checkpoint_dir) / HOME_FILE
    home.parent.mkdir(parents=True)
    home.write_text(text)
    with selectors.DefaultSelector() as selector:
        engines = Engines(letter, selector, list)
        contact = Contact(letter, selector, list, engines, obey=lambda message: None, alone=lambda: None)
        assert contact._read_home() == address
