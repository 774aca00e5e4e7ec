"""What ``python main.py`` shows on standard error, in a terminal and elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from edt_runner.course import Speed
from edt_runner.launch.progress_bar import TrainingProgress
from edt_runner.protocol.data import MetricItem
from edt_runner.schedule import Schedule

SCHEDULE = Schedule(train_samples=640, test_samples=64, micro_batches=4, batch_size=16, epochs=3)
"""Ten training steps of 64 samples, then a validation, three times."""


def shown(*, terminal: bool, seconds: float) -> list[str]:
    """The lines of a training whose steps take so long, and whose second epoch has more workers."""
    progress, now, text = TrainingProgress(Speed(SCHEDULE)), 1000.0, io.StringIO()
    progress._console = Console(file=text, force_terminal=terminal, width=200, color_system=None)
    with progress:
        for step in range(1, 31):
            now += seconds
            workers = 1 if step <= 10 else 2
            values = {"loss": 0.5, "top1": 0.25, "learning_rate": 1e-4}
            progress.observe(MetricItem("train", step, step * 4, 1 + (step - 1) // 10, workers, values, now), values)
            if step % 10 == 0:
                values = {"loss": 0.75, "top1": 0.125}
                progress.observe(MetricItem("validate", step, step * 4, step // 10, workers, values, now), values)
    return [line.rstrip() for line in text.getvalue().splitlines() if "/30" in line or "→" in line]


def test_without_a_terminal_there_are_the_lines_of_the_log_with_what_is_left() -> None:
    lines = shown(terminal=False, seconds=2.0)
    assert lines[0] == "epoch 1/3 · step 1/30 · loss 0.5 · top1 0.25 · learning_rate 0.0001 · 1 worker"
    assert lines[1] == (
        "epoch 1/3 · step 6/30 · loss 0.5 · top1 0.25 · learning_rate 0.0001 · 32/s · 1 worker · 48 s left"
    )
    assert lines[2] == (
        "epoch 1/3 · step 10/30 · loss 0.5 · top1 0.25 · learning_rate 0.0001 · val_loss 0.75 · val_top1 0.125"
        " · 32/s · 1 worker · 40 s left"
    )
    assert lines[3] == "1 → 2 workers at step 11"
    assert lines[-1].endswith("val_top1 0.125 · 32/s · 2 workers"), "nothing is left"


def test_above_the_bar_there_are_the_validations_by_name_and_the_changes_of_the_workers() -> None:
    lines = [line for line in shown(terminal=True, seconds=0.5) if "·" in line or "→" in line]
    assert "epoch 1/3 · step 10/30 · loss 0.5 · top1 0.25" in next(line for line in lines if "val_" in line)
    assert sum("val_top1 0.125" in line for line in lines) == 3
    assert sum("1 → 2 workers at step 11" in line for line in lines) == 1
