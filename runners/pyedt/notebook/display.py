"""Shows a training's progress below its cell: a figure that is drawn anew in its place, elsewhere lines.

The figure has the loss on its left axis and the workers on its right one, over steps. Without matplotlib the line alone
is shown in its place. No window is opened, and the notebook's own figures are left alone.
"""

from __future__ import annotations

import base64
import io
import math
import sys
import textwrap
import time
from dataclasses import dataclass, field
from typing import Any

_FIGURE_SECONDS = 1.0
_LINE_SECONDS = 5.0
"""The figure, and outside of a notebook the line, are shown at most this often."""
_TITLE_COLUMNS = 110


def _in_a_kernel() -> bool:
    """Whether what is displayed can be replaced: IPython runs as a kernel, not in a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


@dataclass(frozen=True)
class Curve:
    """What the figure shows: (step, value) each."""

    loss: list[tuple[int, float]] = field(default_factory=list)
    workers: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Progress:
    """Shows lines, and curves in a notebook."""

    _handle: Any = None
    _shown: str = ""
    _next: float = 0.0
    """When the next one may be shown, in seconds of ``time.monotonic``."""
    redraws: bool = field(default_factory=_in_a_kernel)
    """Whether what is shown replaces what was shown before, and may be a figure."""

    @property
    def wants_curve(self) -> bool:
        """Whether a curve would be shown now, so that it is worth fetching."""
        return self.redraws and time.monotonic() >= self._next

    def show(self, line: str, curve: Curve | None = None, *, last: bool = False) -> None:
        """Show where the training is.

        Args:
            line: it in words.
            curve: it in numbers; None: nothing has been reported.
            last: whether nothing comes after it, so that it is shown however short ago the one before was.
        """
        now, new = time.monotonic(), line != self._shown or (self.redraws and curve is not None)
        if not last and (now < self._next or not new):
            return
        self._next = now + (_FIGURE_SECONDS if self.redraws else _LINE_SECONDS)
        if not self.redraws:
            if line != self._shown:
                say(line)
        else:
            self._update(line, figure(curve, line) if curve is not None and curve.loss else None)
        self._shown = line

    def _update(self, line: str, picture: bytes | None) -> None:
        from IPython.display import display

        data: dict[str, Any] = {"text/plain": line}
        if picture is not None:
            data["image/png"] = base64.b64encode(picture).decode()
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(data, raw=True)


def figure(curve: Curve, title: str) -> bytes | None:
    """Draw loss and workers over steps, as a PNG; None: matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        return None
    drawn = Figure(figsize=(8, 3.2), dpi=100, layout="constrained")
    losses = drawn.subplots()
    workers = losses.twinx()
    losses.set_title(textwrap.fill(title, _TITLE_COLUMNS), fontsize=9, loc="left")
    losses.set_xlabel("step")
    losses.set_ylabel("loss", color="tab:blue")
    workers.set_ylabel("workers", color="tab:orange")
    points = [(step, value) for step, value in curve.loss if math.isfinite(value)]
    losses.plot([step for step, _ in points], [value for _, value in points], color="tab:blue")
    sizes = [value for _, value in curve.workers]
    workers.step([step for step, _ in curve.workers], sizes, color="tab:orange", where="post")
    workers.set_ylim(0, max(sizes, default=1) + 1)
    workers.yaxis.set_major_locator(MaxNLocator(integer=True))
    losses.grid(alpha=0.3)
    picture = io.BytesIO()
    FigureCanvasAgg(drawn).print_png(picture)  # type: ignore[no-untyped-call]
    return picture.getvalue()


def say(line: str) -> None:
    """Write a line below the cell."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
