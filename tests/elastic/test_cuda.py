"""The same on a GPU: engines that share device 0 come and go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edt_contract.reports import ReportKind
from support.training import Elastic

Attempt = Callable[..., Elastic]


@pytest.mark.cuda
def test_on_a_gpu_joins_and_leaves_change_nothing(attempt: Attempt) -> None:
    """1 → 2 → 1 engines; the guarantee holds to the end, since no op of the script lacks a deterministic form."""
    digests = []
    for folder, schedule in (("static", [[1]]), ("elastic", [[1], [1, 2], [2]])):
        with attempt("conv", folder=folder) as training:
            training.device = "0"
            for engines in schedule:
                training.settle(engines)
            digests.append(training.finish()["digest"])
            assert training.kinds(ReportKind.GUARANTEE_ENDED) == []
    assert digests[0] == digests[1]
