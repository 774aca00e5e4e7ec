"""Shows an emulation to the user: progress bars while its trainings run, then a table in the terminal and a picture.

The picture, which matplotlib draws, shows accuracy or loss, batch, and learning rate over the same steps.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from edt_emulate.outcome import Curve, Outcome, smooth
from edt_runner.lr_scaling.emulation import Record

_WIDE = 200


def show_table(outcomes: Sequence[Outcome], failed: Mapping[str, str], metric: str | None, tested: bool) -> None:
    """Print the table to standard output.

    Args:
        outcomes: the results, one for each row. The others are compared with the first one.
        failed: errors of failed trainings, by name. The table shows the names.
        metric: name of the metric that is shown beside the loss; None: only the loss is shown.
        tested: whether loss and metric were computed on the test set.
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
    """Shows a progress bar on standard error for each of ``count`` trainings. If standard error is no terminal, it
    prints one line when a training begins."""

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
            auto_refresh=False,  # it would need a second thread, and a process with two threads cannot fork safely
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bars.stop()

    def begin(self, name: str) -> Callable[[Record], None]:
        """Show that the next training begins.

        Args:
            name: name of the training.

        Returns:
            A function that updates the bar. Call it with the training's record again and again.
        """
        self._begun += 1
        bar = self._bars.add_task(name, total=None, loss="")
        if not self._console.is_terminal:
            self._console.print(f"training {self._begun} of {self._count}: {name}")

        def show(record: Record) -> None:
            if record.shape is not None and record.updates:
                last = record.updates[-1]
                loss = f"loss {last.metrics.get('loss', float('nan')):.4f}"
                self._bars.update(bar, total=record.schedule.steps, completed=last.step, loss=loss, refresh=True)

        return show


# ── the picture ───────────────────────────────────────────────────────────────────────────────────────────────────
_COLOURS = ("#2f6fde", "#ef8a2c", "#3d9a6b", "#8a63c9", "#c2487f", "#1f9bb3", "#a07b2b", "#5c6b7a")
_INK, _FAINT, _GRID = "#1f2933", "#7b8794", "#e4e7eb"
_SMOOTHED_SHARE = 40
"""Values from the training itself are smoothed over 1/40 of the training."""
_LOG_FROM = 8.0
"""If the largest learning rate is more than this factor times the smallest one, the axis is logarithmic."""


def draw_picture(
    path: Path, title: str, subtitle: str, outcomes: Sequence[Outcome], metric: str | None, batch_size: int
) -> None:
    """Draw the picture and write it to a file. This needs no display.

    Args:
        path: the file. The end of its name determines the format.
        title: the title.
        subtitle: the line below the title.
        outcomes: the results. The first one is the training with the fixed batch.
        metric: name of the metric that is shown; None: the loss is shown.
        batch_size: samples of a micro-batch.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: the file cannot be written.
        ValueError: matplotlib does not know the format.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rated = any("learning_rate" in each.curves for each in outcomes)
    with plt.rc_context({"font.size": 10, "text.color": _INK, "axes.edgecolor": _GRID, "svg.hashsalt": "edt"}):
        figure, panels = plt.subplots(
            3 if rated else 2,
            1,
            sharex=True,
            figsize=(11, 8.2 if rated else 6.4),
            height_ratios=(2.6, 1.1, 1.1)[: 3 if rated else 2],
            layout=ConstrainedLayoutEngine(rect=(0.012, 0.012, 0.976, 0.895), hspace=0.05),
        )
        figure.text(0.022, 0.962, title, fontsize=15, fontweight="bold")
        figure.text(0.022, 0.934, subtitle, fontsize=10, color=_FAINT)
        _draw_quality(panels[0], outcomes, metric)
        _draw_batches(panels[1], outcomes)
        if rated:
            _draw_rates(panels[2], outcomes)
        panels[-1].set_xlabel(f"steps: micro-batches of {batch_size} samples that were trained on", color=_FAINT)
        panels[0].set_xlim(0, max(each.curves["batch"].step[-1] for each in outcomes) * 1.005)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, facecolor="white")
        plt.close(figure)


def _style(number: int) -> dict[str, Any]:
    """The line style of the training with this number. Number 0 is the fixed batch."""
    if number == 0:
        return {"color": _INK, "linestyle": (0, (4, 2)), "linewidth": 1.5, "zorder": 4}
    return {"color": _COLOURS[(number - 1) % len(_COLOURS)], "linewidth": 1.7, "zorder": 3}


def _draw_quality(axes: Any, outcomes: Sequence[Outcome], metric: str | None) -> None:
    """Draw the validations as marks with lines between them, and the training's own values in pale colours behind them.
    Without validations the training's own values have full colours."""
    shown = "metric" if metric else "loss"
    for number, each in enumerate(outcomes):
        style, test = _style(number), each.curves.get(f"test {shown}")
        final = each.metric if metric else each.loss
        label = each.name + (f"  {final:.4f}" if math.isfinite(each.loss) else "  diverged")
        if train := each.curves.get(shown):
            values = smooth(train, train.step[-1] / _SMOOTHED_SHARE)
            own = {**style, "linewidth": 1.1, "linestyle": "-", "alpha": 0.32} if test else {**style, "label": label}
            axes.plot(train.step, values, **own)
        if test:
            axes.plot(test.step, test.value, marker="o", markersize=3.6, label=label, **style)
    if not metric:
        _logarithmic(axes)
    else:
        _zoom(
            axes,
            [each.curves[name].value for each in outcomes for name in ("test metric", "metric") if name in each.curves],
        )
    tested = any(f"test {shown}" in each.curves for each in outcomes)
    axes.set_ylabel(
        f"{metric or 'loss'} on test data (pale: while training)" if tested else metric or "loss", color=_FAINT
    )
    axes.legend(frameon=False, fontsize=9.5, loc="lower right" if metric else "upper right")
    _plain(axes)


def _zoom(axes: Any, curves: Sequence[Sequence[float]]) -> None:
    """Limit the axis of a metric up to 1, so that low values of the first few updates do not squeeze all later values
    together at the top."""
    known = sorted(value for curve in curves for value in curve if math.isfinite(value))
    if known and known[-1] <= 1.0:
        low = known[len(known) // 20]
        room = max(known[-1] - low, 0.02)
        axes.set_ylim(max(min(known), low - 0.1 * room) - 0.02 * room, known[-1] + 0.04 * room)


def _draw_batches(axes: Any, outcomes: Sequence[Outcome]) -> None:
    """Draw the batch sizes of the fixed batch and of one other training: all others have the same sizes."""
    for number, each in [*enumerate(outcomes)][:2]:
        style = {**_style(number), "color": _INK if number == 0 else _FAINT}
        _steps(axes, each.curves["batch"], {**style, "linewidth": 1.1})
    axes.set_ylim(bottom=0)
    axes.set_ylabel("batch, samples", color=_FAINT)
    _plain(axes)


def _draw_rates(axes: Any, outcomes: Sequence[Outcome]) -> None:
    rates: list[float] = []
    for number, each in enumerate(outcomes):
        if curve := each.curves.get("learning_rate"):
            _steps(axes, curve, {**_style(number), "linewidth": 1.2})
            rates += [value for value in curve.value if math.isfinite(value) and value > 0]
    if rates and max(rates) / min(rates) > _LOG_FROM:
        _logarithmic(axes)
    else:
        axes.set_ylim(bottom=0)
    axes.set_ylabel("learning rate", color=_FAINT)
    _plain(axes)


def _steps(axes: Any, curve: Curve, style: dict[str, Any]) -> None:
    """Draw a curve of steps: each value holds from the previous update to its own."""
    axes.step((0, *curve.step), (curve.value[0], *curve.value), where="pre", **style)


def _logarithmic(axes: Any) -> None:
    """Make the axis logarithmic, with plain numbers as labels."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _plain(axes: Any) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.tick_params(length=0, colors=_FAINT, which="both")
    axes.set_axisbelow(True)
