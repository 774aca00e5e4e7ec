"""The last page: resizes with their pauses, promises kept and broken, where the picture is. Room: examples; rich."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from edt_demo.story import Resize
from edt_demo.verdict import Check


def show_resizes(console: Console, resizes: Sequence[Resize]) -> None:
    """One line a change of size."""
    page = Table(title="Resizes", title_justify="left", title_style="bold", box=None, pad_edge=False)
    page.add_column("job")
    page.add_column("engines")
    page.add_column("at step", justify="right")
    page.add_column("pause", justify="right")
    page.add_column("cause")
    woken = any(resize.woken_by for resize in resizes)
    if woken:
        page.add_column("agent woken by")
        page.add_column("after", justify="right")
    for resize in resizes:
        row = [
            resize.job,
            f"{resize.before} → {resize.after}" + (" ✗" if resize.crash else ""),
            str(resize.step),
            _milliseconds(resize.pause_seconds),
            resize.cause,
        ]
        if woken:
            row += [resize.woken_by or "–", _milliseconds(resize.woken_seconds)]
        page.add_row(*row)
    console.print()
    console.print(page)


def show_checks(console: Console, checks: Sequence[Check]) -> None:
    """What was promised and what was seen."""
    page = Table(title="Promised and seen", title_justify="left", title_style="bold", box=None, pad_edge=False)
    page.add_column()
    page.add_column("promise")
    page.add_column("seen", overflow="fold")
    for check in checks:
        mark = "[green]✓[/green]" if check.kept else f"[red]✗ {check.code.value}[/red]"
        page.add_row(mark, check.promise, check.seen)
    console.print()
    console.print(page)


def _milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1000:.0f} ms"
