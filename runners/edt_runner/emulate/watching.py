"""What a person at a terminal sees while the trainings of an emulation run. Room: runners; prints to standard error."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from edt_runner.emulate.plan import micro_batches
from edt_runner.emulate.record import Record


class Watching:
    """A bar for each of ``count`` trainings; without a terminal one line when it begins."""

    def __init__(self, count: int) -> None:
        self._count, self._begun = count, 0
        self._console = Console(stderr=True, highlight=False)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[loss]}"),
            TimeRemainingColumn(),
            console=self._console,
            auto_refresh=False,  # by a thread of its own, beside which this process could not fork safely
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> Watching:
        self._bars.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bars.stop()

    def begin(self, name: str) -> Callable[[Record], None]:
        """The next training; answers what to call with its record while it grows."""
        self._begun += 1
        bar = self._bars.add_task(name, total=None, loss="")
        if not self._console.is_terminal:
            self._console.print(f"training {self._begun} of {self._count}: {name}")

        def show(record: Record) -> None:
            if record.shape is not None and record.updates:
                last = record.updates[-1]
                loss = f"loss {last.metrics.get('loss', float('nan')):.4f}"
                self._bars.update(
                    bar, total=micro_batches(record.schedule), completed=last.step, loss=loss, refresh=True
                )

        return show
