"""The page that ``prove_gpu`` prints: rows as soon as they are known, and what of them fails."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import _report

_WIDTH = 110
_NAME = 58


class Page:
    """Prints rows and keeps them for the JSON file. Any thread may add rows.

    Attributes:
        rows, targets, notes: what was printed, for the file.
        failures: why the page does not prove what it should; none: it does.
    """

    def __init__(self) -> None:
        self.rows: list[_report.Row] = []
        self.targets: list[_report.Target] = []
        self.notes: list[str] = []
        self.failures: list[str] = []
        self._lock = threading.Lock()
        self._section = ""

    def section(self, name: str, says: str) -> None:
        """Begin a section. ``says`` what its rows are."""
        self._section = name
        self._print(f"\n── {name}: {says} ".ljust(_WIDTH, "─"))

    def text(self, name: str, value: str) -> None:
        """A row of words."""
        with self._lock:
            self.notes.append(f"{self._section}: {name}: {value}")
        self._print(f"  {name:<{_NAME}} {value}")

    def figure(
        self, name: str, who: str, unit: str, runs: Sequence[float], most: float | None = None, more: str = ""
    ) -> None:
        """A row with the median of ``runs`` and its target, the most that it may be."""
        found = _report.row(f"{self._section}: {name}", who, unit, runs)
        spread = f" ({min(runs):.3g}–{max(runs):.3g}, {len(runs)} runs)" if len(runs) > 1 else ""
        verdict = ""
        with self._lock:
            self.rows.append(found)
            if most is not None:
                met = found.value <= most
                self.targets.append(_report.Target(f"{name}, {who}", most, found.value, unit, met))
                verdict = f"   {'met' if met else 'MISSED'}: at most {most:g}"
        self._print(f"  {f'{name}, {who}' if who else name:<{_NAME}} {found.value:.4g} {unit}{spread}{verdict}{more}")

    def equal(self, name: str, digest: str, reference: str, more: str) -> None:
        """A row that says whether a digest is the reference."""
        with self._lock:
            self.rows.append(_report.row(f"{self._section}: {name}", "", "equal", [float(digest == reference)]))
            if digest != reference:
                self.failures.append(f"{name}: digest {digest[:12]}, not {reference[:12]}")
        verdict = "equal" if digest == reference else "DIFFERENT"
        self._print(f"  {name:<{_NAME}} {digest[:12]}  {verdict:<10} {more}")

    def failed(self, what: str, error: object) -> None:
        """Something could not be measured."""
        with self._lock:
            self.failures.append(f"{what}: {str(error).splitlines()[0]}")
        self._print(f"  FAILED: {what}: {error}")

    def _print(self, line: str) -> None:
        with self._lock:
            print(line, flush=True)
