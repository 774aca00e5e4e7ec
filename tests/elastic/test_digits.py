"""The examples learn: handwritten digits, on engines that come and go."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from edt_contract.reports import ReportKind
from support.training import Elastic, with_pytorch_first

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = {"pytorch": EXAMPLES / "digits" / "main.py", "tensorflow": EXAMPLES / "digits_tensorflow" / "main.py"}


@pytest.mark.timeout(300)  # it learns in seconds, where nobody else computes
@with_pytorch_first
def test_digits_that_no_engine_has_seen_are_recognised(attempt: Callable[..., Elastic], framework: str) -> None:
    with attempt(SCRIPTS[framework], "--epochs", 10, "--learning-rate", 1e-3) as training:
        training.hold([1])
        training.supervisor.until(lambda report: report.kind is ReportKind.ENGINE_COUNTED, 120)
        training.hold([1, 2])
        end = training.supervisor.ended(240)
    assert (end["kind"], end["message"]) == ("finished", "")
    found = re.findall(r"\] Test,.*Accuracy: ([0-9.]+)", (training.log_dir / "stdout").read_text())
    assert float(found[-1]) >= 0.97
