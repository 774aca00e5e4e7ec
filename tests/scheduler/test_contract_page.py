"""docs/contract.md names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "contract.md").read_text()
NAMED = sorted(set(re.findall(r"tests/[\w/]+\.py(?:::\w+)+", PAGE)))


def test_every_promise_names_some() -> None:
    for number in range(1, 9):
        (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| **C{number}** |")]
        assert re.search(r"tests/\w+/test_", line)


@pytest.mark.parametrize("name", NAMED)
def test_what_it_names_exists(name: str) -> None:
    path, *inside = name.split("::")
    body: list[ast.stmt] = ast.parse((ROOT / path).read_text()).body
    for part in inside:
        (found,) = [
            each for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef) and each.name == part
        ] or pytest.fail(f"{part} is not in {path}")
        body = found.body
