"""The table of an emulation, for people. Room: runners; prints to standard output."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from edt_runner.emulate.outcome import Outcome

_WIDE = 200


def show(outcomes: Sequence[Outcome], failed: Mapping[str, str], metric: str | None, tested: bool) -> None:
    """Print it. The first of ``outcomes`` is what the others are compared with; ``failed``: names of trials that came
    to nothing. ``tested``: loss and metric are of the test set."""
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
