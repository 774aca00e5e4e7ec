"""The figure: slots over time, coloured by job, with the loss below on the same axis.

Pale: an engine that prepares while the others train. Full: it trains. A line across both: the job was resized; a red
one: an engine was killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edt_demo.history import History, Resize

_COLOURS = ("#2f6fde", "#ef8a2c", "#3d9a6b", "#8a63c9")
_CRASH = "#c8102e"
_INK, _FAINT, _GRID = "#1f2933", "#7b8794", "#e4e7eb"
_BAR_HEIGHT = 0.62
_LABEL_WIDTH = 0.055
"""Width that a resize's label takes beside that of a kill, as a share of the axis."""


def draw(history: History, folder: Path) -> list[Path]:
    """Write ``timeline.png`` and ``timeline.svg`` into ``folder``; needs no display."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    folder.mkdir(parents=True, exist_ok=True)
    start = min(bar.started for bar in history.bars)
    end = max(bar.ended for bar in history.bars)
    with plt.rc_context({"font.size": 10, "text.color": _INK, "axes.edgecolor": _GRID, "svg.hashsalt": "edt"}):
        figure, (lanes, loss) = plt.subplots(
            2,
            1,
            sharex=True,
            figsize=(12, 6.6),
            height_ratios=(max(2.0, 0.5 * len(history.slots)), 1.6),
            layout=ConstrainedLayoutEngine(rect=(0.012, 0.015, 0.976, 0.895), hspace=0.04),
        )
        figure.text(0.022, 0.955, history.title, fontsize=15, fontweight="bold")
        figure.text(0.022, 0.922, history.subtitle, fontsize=10, color=_FAINT)
        colours = {job: _COLOURS[index % len(_COLOURS)] for index, job in enumerate(history.jobs)}
        _draw_lanes(lanes, history, colours, start)
        _draw_resizes(lanes, loss, history.resizes, colours, start, end)
        _draw_loss(loss, history, colours, start)
        loss.set_xlim(0, (end - start) * 1.005)
        paths = [folder / "timeline.png", folder / "timeline.svg"]
        for path in paths:
            figure.savefig(path, dpi=160, facecolor="white")
        plt.close(figure)
    return paths


def _draw_lanes(axes: Any, history: History, colours: dict[str, str], start: float) -> None:
    lane = {slot: number for number, slot in enumerate(history.slots)}
    for bar in history.bars:
        bottom = lane[bar.slot] - _BAR_HEIGHT / 2
        counted = bar.ended if bar.counted is None else bar.counted
        for left, right, alpha in ((bar.started, counted, 0.28), (counted, bar.ended, 1.0)):
            axes.broken_barh(
                [(left - start, right - left)],
                (bottom, _BAR_HEIGHT),
                facecolor=colours[bar.job],
                alpha=alpha,
                linewidth=0,
            )
    axes.set_yticks(range(len(history.slots)), [f"slot {slot}" for slot in history.slots])
    axes.set_ylim(len(history.slots) - 0.45, -0.55)
    axes.hlines(
        [number + 0.5 for number in range(len(history.slots) - 1)], 0, 1, transform=axes.get_yaxis_transform(),
        color=_GRID, linewidth=0.8, zorder=0,
    )  # fmt: skip
    _plain(axes)
    axes.tick_params(axis="x", labelbottom=False)
    _legend(axes, history, colours)


def _legend(axes: Any, history: History, colours: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    entries = [Patch(facecolor=colours[job], label=job) for job in history.jobs]
    entries.append(Patch(facecolor=_FAINT, alpha=0.35, label="pale: gets ready while the others train"))
    axes.figure.legend(
        handles=entries, loc="upper right", bbox_to_anchor=(0.985, 0.948), ncols=len(entries), frameon=False,
        fontsize=9, handlelength=1.2, columnspacing=1.4,
    )  # fmt: skip


def _draw_resizes(
    lanes: Any, loss: Any, resizes: Sequence[Resize], colours: dict[str, str], start: float, end: float
) -> None:
    """A line across both parts, and above it what happened; labels that would overlap go on a higher row."""
    rows = _rows([(resize.time - start) / max(end - start, 1e-9) for resize in resizes])
    for resize, row in zip(resizes, rows, strict=True):
        at = resize.time - start
        for axes in (lanes, loss):
            axes.axvline(
                at,
                color=_CRASH if resize.crash else _INK,
                linewidth=1.2 if resize.crash else 0.8,
                alpha=0.55,
                linestyle=(0, (4, 3)),
                zorder=3,
            )
        what = "killed: " if resize.crash else ""
        pause = "" if resize.pause_seconds is None else f"{resize.pause_seconds * 1000:.0f} ms"
        lanes.annotate(
            f"{what}{resize.before} → {resize.after}\n{pause}",
            (at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 4 + 27 * row),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8.5,
            linespacing=1.15,
            color=_CRASH if resize.crash else colours[resize.job],
        )


def _rows(places: Sequence[float]) -> list[int]:
    """The lowest row for each label, in the order given, on which nothing else is near."""
    taken: list[list[float]] = []
    rows: list[int] = []
    for place in places:
        row = next(
            (number for number, used in enumerate(taken) if all(abs(place - other) > _LABEL_WIDTH for other in used)),
            len(taken),
        )
        if row == len(taken):
            taken.append([])
        taken[row].append(place)
        rows.append(row)
    return rows


def _draw_loss(axes: Any, history: History, colours: dict[str, str], start: float) -> None:
    for curve in history.curves:
        if curve.points:
            axes.plot(
                [time - start for time, _ in curve.points],
                [value for _, value in curve.points],
                color=colours[curve.job],
                linewidth=1.4,
                solid_joinstyle="round",
            )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("loss", color=_FAINT)
    axes.set_xlabel("seconds since the first engine started", color=_FAINT)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    _plain(axes)


def _plain(axes: Any) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0, colors=_FAINT, which="both")
    axes.set_axisbelow(True)
