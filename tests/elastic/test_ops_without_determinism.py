"""An op without a deterministic kernel in a training whose passes run in strict mode, as they do on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edt_contract.reports import ReportKind
from support.crashes import CONV, troubled
from support.training import Elastic

_ASKING = """
from edt_runner.frameworks.pytorch import trainable
from edt_runner.frameworks.pytorch.determinism import determinism
made = trainable.TorchTrainable.adapter

def adapter(*given, **named):
    found = made(*given, **named)
    determinism.ask(found.end_guarantee)
    return found

trainable.TorchTrainable.adapter = adapter
"""
_PUT = "torch.zeros(4).put_(torch.tensor([1]), torch.ones(1))"


@pytest.mark.parametrize("in_trial", [True, pytest.param(False, marks=pytest.mark.extended)], ids=["trial", "later"])
def test_it_ends_the_guarantee_by_name_wherever_it_is_found_and_the_training_goes_on(
    attempt: Callable[..., Elastic], undisturbed: Callable[..., str], tmp_path: Path, in_trial: bool
) -> None:
    """In the trial pass, which is run again; or in the middle of a step, which is tried again."""
    expected = undisturbed(*CONV)
    main = troubled(tmp_path, _PUT if in_trial else f"if offset >= 3:\n    {_PUT}")
    text = main.read_text()
    main.write_text(_ASKING + (text.replace("if engine and worker >= 0:", "if True:") if in_trial else text))
    with attempt(main, *CONV[1:]) as training:
        training.settle([1, 2])
        assert training.finish()["digest"] == expected
        assert {report["what"] for report in training.kinds(ReportKind.GUARANTEE_ENDED)} == {"put_"}
        tried_again = sum(path.read_text().count("step is tried again") for path in training.log_dir.glob("*"))
        assert bool(tried_again) is not in_trial
