"""``docs/compared.md`` says of OpenEDT what committed runs measured and what tests show."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "compared.md").read_text()
FIGURES = re.findall(r"^\| (\w+) \| (.+?) \| (.+?) \| ([\d.]+) (.+?) \| `(\w+\.json)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("name", "case", "who", "value", "unit", "file"), FIGURES)
def test_a_figure_is_that_of_a_committed_run(name: str, case: str, who: str, value: str, unit: str, file: str) -> None:
    rows = json.loads((ROOT / "benchmarks" / "results" / file).read_text())["rows"]
    [found] = [row["value"] for row in rows if (row["case"], row["who"], row["unit"]) == (case, who, unit)]
    digits = len(value.replace(".", "").lstrip("0"))
    assert float(f"{found:.{digits}g}") == float(value), name


def test_there_are_figures() -> None:
    assert {name for name, *_ in FIGURES} == {"checkpoint", "crash", "hang", "speed"}


def test_every_example_that_the_page_names_is_there() -> None:
    for example in re.findall(r"`(examples/[\w/]+\.py)`", PAGE):
        assert (ROOT / example).is_file(), example
