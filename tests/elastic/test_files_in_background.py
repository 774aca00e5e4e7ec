"""The files of an epoch, which the first engine writes while the training goes on."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from edt_contract.reports import ReportKind
from support.training import Elastic

SCRIPT = """
    import time
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset
    from edt_runner import context
    from fabric_model import FabricModel
    from support.gate import Gate

    save = torch.save
    def slowly(*arguments):
        if context.current().name == "1":  # as onto a disk that hangs
            time.sleep(600)
        save(*arguments)
    torch.save = slowly
    torch.manual_seed(1)
    net = nn.Linear(3, 2)
    def data():
        generator = torch.Generator().manual_seed(1)
        x, y = torch.randn(40, 3, generator=generator), torch.randint(0, 2, (40,), generator=generator)
        return TensorDataset(x, y), TensorDataset(x[:8], y[:8])
    FabricModel(net, data, nn.functional.cross_entropy, torch.optim.SGD(net.parameters(), 0.1),
                worker_logger_callback=Gate.from_environment()).train(3, 4, 2, keep_best="val_loss")
"""


@pytest.mark.extended
def test_the_training_goes_on_and_the_second_engine_writes_them_if_the_first_is_killed(
    attempt: Callable[..., Elastic], tmp_path: Path
) -> None:
    """Five steps an epoch; the first engine hangs in the files of the first epoch and is killed in the second."""
    main = tmp_path / "main.py"
    main.write_text(textwrap.dedent(SCRIPT))
    with attempt(main) as training:
        folder = Path(training.spec.result_dir) / "model/train"
        training.settle([1])
        training.settle([1, 2])
        training.gate.until(lambda: training.gate.reached() >= 8)
        assert not list(folder.glob("model_*.pth"))
        assert not training.kinds(ReportKind.BEST_KEPT)
        pids = {report["allocation"]: report["pid"] for report in training.kinds(ReportKind.ENGINE_STARTED)}
        os.kill(pids[1], signal.SIGKILL)
        training.settle([2])
        training.gate.until(lambda: bool(training.kinds(ReportKind.BEST_KEPT)), 60, sparing=True)
        first, best = (
            torch.load(folder / f"{name}.pth", weights_only=True) for name in ("model_epoch_1", "model_best")
        )
        assert all(torch.equal(first[name], best[name]) for name in first)
        assert training.kinds(ReportKind.BEST_KEPT)[0]["epoch"] == 1
        assert training.finish()["kind"] == "finished"
        assert {path.stem for path in folder.glob("model_epoch_?.pth")} == {"model_epoch_1", "model_epoch_2"}
        assert (folder / "model_epoch_final.pth").exists()
