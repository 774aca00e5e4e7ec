"""What is shown meanwhile, limits of waiting, and what may be set."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from edt_demo import settings
from edt_demo.exits import Budget, DemoFailed, ExitCode
from edt_demo.watch import JobNow, ProgressTable, SlotNow, Snapshot, table


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def job(name: str, step: int, *, over: bool = False) -> JobNow:
    return JobNow(name, "FINISHED" if over else "RUNNING", over, 0 if over else 2, step, 575, 0.5, None)


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    text, clock = io.StringIO(), Clock()
    with ProgressTable(Console(file=text, width=40), clock=clock) as table:
        for second in range(60):
            clock.now = 100.0 + second / 10
            table.show(Snapshot((), (job("job A", second), job("job B", 575, over=True)), "waiting"))
    assert text.getvalue().splitlines() == [
        "   0.0 s  job A running, 2 engines, step 0/575, loss 0.5000",
        "   5.0 s  job A running, 2 engines, step 50/575, loss 0.5000",
    ]


def test_the_table_names_jobs_and_slots() -> None:
    text = io.StringIO()
    slots = (SlotNow("0", "job A", True), SlotNow("1", "job A", False), SlotNow("2", None, False))
    Console(file=text, width=120).print(table(Snapshot(slots, (job("job A", 10),), "job A trains on")))
    assert "job A" in text.getvalue() and "10/575" in text.getvalue()
    assert "0 █████ 1 ▒▒▒▒▒ 2 ░░░░░" in text.getvalue()


def test_a_wait_ends_with_its_own_limit_or_that_of_the_whole() -> None:
    clock = Clock()
    budget = Budget(50.0, clock=clock)
    wait = budget.waiting("job A on 4 engines", 20.0)
    clock.now += 19.0
    wait.check()
    clock.now += 2.0
    with pytest.raises(DemoFailed, match="waited 20 s for job A on 4 engines") as failure:
        wait.check()
    assert failure.value.code is ExitCode.TOO_LONG
    late = budget.waiting("more", 1000.0)
    clock.now += 30.0
    with pytest.raises(DemoFailed, match="waited 29 s for more"):
        late.check()


@pytest.mark.parametrize("environ", [{"DEVICES": "tpu"}, {"DEMO_FAULT": "burn"}])
def test_an_unknown_setting_is_refused_by_name(environ: dict[str, str]) -> None:
    with pytest.raises(DemoFailed, match=next(iter(environ))) as failure:
        settings.from_environment(environ, Path())
    assert failure.value.code is ExitCode.USAGE


def test_empty_settings_are_the_defaults(tmp_path: Path) -> None:
    chosen = settings.from_environment({"DEVICES": "", "DEMO_FAULT": ""}, tmp_path)
    assert (chosen.devices, chosen.fault, chosen.output) == ("cpu", False, tmp_path / "demo-output")
