"""docs/frameworks.md: every entry on it is one that the catalogue takes, and its table has every key."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

from edt_scheduler.model import catalogue

PAGE = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text()
ENTRIES = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_entries_of_the_page_are_accepted() -> None:
    entries = [catalogue.read(tomllib.loads(text)) for text in ENTRIES]
    assert {entry.name for entry in entries} == {"mpi", "torch-2.1", "horovod", "deepspeed", "ray"}


def test_the_page_says_what_each_key_means_and_names_every_built_in_framework() -> None:
    keys = [row.strip("| ").split(" | ")[0] for row in PAGE.splitlines() if row.startswith("| ")]
    assert {each.name for each in fields(catalogue.Framework)} <= set(keys)
    assert all(name in PAGE for name in catalogue.built_in())
