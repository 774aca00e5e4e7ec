"""``docs/compared.md`` says of OpenEDT what committed runs measured and what tests show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

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


DECISION = "docs/decisions/0042-shares-go-by-worth-within-entitlements.md"
WHO = {"ours, told": "ours", "ours, not": "ours-unknown", "AFS-L": "afs", "Tiresias": "tiresias", "Optimus": "optimus"}
WHO |= {"OpenEDT": "ours", "lower bound": "bound", "what no policy": "bound"}


def simulated(case: str, who: str) -> dict[str, Any]:
    rows = json.loads((ROOT / "benchmarks" / "results" / "scheduler_traces.json").read_text())["rows"]
    (found,) = [row for row in rows if (row["case"], row["who"]) == (case, who)]
    return dict(found)


@pytest.mark.parametrize("page", ["docs/compared.md", DECISION, "README.md"])
def test_times_of_simulated_workloads_are_those_of_the_committed_run(page: str) -> None:
    text = (ROOT / page).read_text()
    lines = re.findall(r"^\| ([\w-][^|]*) \| (\d{4}(?:; \d{4})?) \| (\d{4}(?:; \d{4})?) \|$", text, re.MULTILINE)
    assert lines
    for name, *cells in lines:
        (who,) = [who for begin, who in WHO.items() if name.startswith(begin)]
        for load, cell in zip(("0.5", "1.0"), cells, strict=True):
            policies = [who, f"{who}-unknown"][: len(cell.split("; "))]
            means = [f"{simulated(f'load {load}, mean JCT', policy)['value']:.0f}" for policy in policies]
            assert "; ".join(means) == cell, name


@pytest.mark.parametrize("page", ["docs/compared.md", DECISION])
def test_ratios_to_pollux_are_those_of_the_committed_run(page: str) -> None:
    text = (ROOT / page).read_text()
    lines = re.findall(
        r"^\| .* \| (0\.\d{3})(?:;| \|) (0\.\d{3}) \| (0\.\d{3})(?:;| \|) (0\.\d{3}) \|$", text, re.MULTILINE
    )
    assert len(lines) == 2
    for work, cells in zip(("known", "unknown"), lines, strict=True):
        runs = [
            simulated(f"load {load}, adaptive, work {work}, beside", "Pollux, published") for load in ("0.5", "1.0")
        ]
        assert cells == tuple(f"{number:.3f}" for row in runs for number in (row["value"], max(row["runs"])))


def test_what_resizes_cost_and_the_worst_ratio_in_the_decision_are_those_of_the_committed_run() -> None:
    text = (ROOT / DECISION).read_text()
    for name, who in (("known", "ours"), ("unknown", "ours-unknown")):
        lost = [simulated(f"load {load}, GPU-seconds lost to resizes", who)["value"] for load in ("0.5", "1.0")]
        assert f"| GPU-seconds lost to resizes, work {name} | {lost[0]:.2f} % | {lost[1]:.2f} % |" in text
    worst = [simulated(f"load {load}, worst rho", "ours")["value"] for load in ("0.5", "1.0")]
    assert f"| worst finish-time ratio | {worst[0]:.2f} | {worst[1]:.2f} |" in text


def test_there_are_figures() -> None:
    assert {name for name, *_ in FIGURES} == {"checkpoint", "crash", "hang", "scheduler", "speed"}


def test_every_example_that_the_page_names_is_there() -> None:
    for example in re.findall(r"`(examples/[\w/]+\.py)`", PAGE):
        assert (ROOT / example).is_file(), example
