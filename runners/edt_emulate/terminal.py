"""What a person at a terminal sees of an emulation: bars while its trainings run, and a table of what came of them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from edt_emulate.outcome import Outcome
from edt_emulate.traces import micro_batches
from edt_runner.lr_scaling.emulation import Record

_WIDE = 200


def show_table(outcomes: Sequence[Outcome], failed: Mapping[str, str], metric: str | None, tested: bool) -> None:
    """Print the table to standard output.

    Args:
        outcomes: a row each; the first is what the others are compared with.
        failed: names of trainings that came to nothing.
        metric: what is shown beside the loss; None: nothing.
        tested: loss and metric are of the test set.
    """
    where, compared = ("TEST " if tested else ""), (metric or "loss").upper()
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("RUN", no_wrap=True)
    titles = [f"{where}LOSS", *([f"{where}{metric.upper()}"] if metric else []), f"{compared} VS {outcomes[0].name}"]
    for title in (*titles, "UPDATES", "MEAN BATCH", "LEARNING RATE"):
        made.add_column(title, justify="right", no_wrap=True)
    for each in outcomes:
        first = each is outcomes[0]
        difference = each.metric - outcomes[0].metric if metric else each.loss - outcomes[0].loss
        cells = [_figure(each.loss), *([_figure(each.metric)] if metric else []), "" if first else _signed(difference)]
        made.add_row(each.name, *cells, str(each.updates), f"{each.mean_batch:.1f}", _rates(each))
    for name in failed:
        made.add_row(name, "failed")
    Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False).print(made)


def _rates(each: Outcome) -> str:
    curve = each.curves.get("learning_rate")
    known = [value for value in curve.value if math.isfinite(value)] if curve else []
    if not known:
        return ""
    low, high = f"{min(known):.3g}", f"{max(known):.3g}"
    return low if low == high else f"{low} – {high}"


def _figure(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "diverged"


def _signed(value: float) -> str:
    return f"{value:+.4f}" if math.isfinite(value) else "–"


class Bars:
    """A bar on standard error for each of ``count`` trainings; without a terminal one line when it begins."""

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

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bars.stop()

    def begin(self, name: str) -> Callable[[Record], None]:
        """Begin the next training; returns what to call with its record while that grows."""
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
