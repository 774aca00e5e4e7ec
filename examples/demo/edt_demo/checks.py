"""What was promised, what was seen, the exit status that follows, and the tables at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from edt_demo.exits import ExitCode
from edt_demo.history import Resize
from edt_demo.samples import Count
from edt_demo.settings import LEAST_ACCURACY, SLOTS

_GRAVEST_FIRST = (ExitCode.SAMPLES, ExitCode.DIGEST, ExitCode.ACCURACY, ExitCode.RESIZES, ExitCode.CRASH)


@dataclass(frozen=True)
class Crash:
    """An engine was killed."""

    engines: int
    """That went unasked."""
    step: int | None
    pause_seconds: float | None


@dataclass(frozen=True)
class Seen:
    """What the demo saw. The first job is the one that makes room, the second the one it makes room for."""

    counts: Mapping[str, Count]
    """By job."""
    sizes: Mapping[str, tuple[int, ...]]
    """By job: the slots that it was given, decision by decision."""
    attempts: int
    """Lives of the first job."""
    accuracy: float
    digest: str | None
    static_digest: str | None
    """Of the run that was never resized. None: it was not made."""
    static_sizes: tuple[int, ...] | None
    crash: Crash | None
    """None: nobody noticed one."""
    inexact: str | None
    """What ended the first job's guarantee of an exact result, as it says itself."""


@dataclass(frozen=True)
class Check:
    """One promise."""

    code: ExitCode
    """Exit status where it was not kept."""
    promise: str
    seen: str
    kept: bool


def promises(seen: Seen) -> list[Check]:
    """Each promise of the demo against what was seen."""
    first, second = seen.sizes
    checks = [
        Check(ExitCode.SAMPLES, f"{name}: each sample once an epoch", count.in_words(), count.exact)
        for name, count in seen.counts.items()
    ]
    if seen.static_sizes is not None:
        equal = seen.digest is not None and seen.digest == seen.static_digest and seen.static_sizes == (1,)
        digests = f"{_short(seen.digest)} and {_short(seen.static_digest)}"
        words = f"{digests} ({seen.inexact})" if seen.inexact else digests
        checks.append(Check(ExitCode.DIGEST, f"{first}: the bits of a run on one slot throughout", words, equal))
    return [
        *checks,
        Check(
            ExitCode.ACCURACY,
            f"{first}: at least {LEAST_ACCURACY:.0%} of held-out images",
            f"{seen.accuracy:.2%}",
            seen.accuracy >= LEAST_ACCURACY,
        ),
        Check(
            ExitCode.RESIZES,
            f"{first}: {SLOTS} slots, {SLOTS // 2} while {second} trains, {SLOTS} again, in one attempt",
            f"{_path(seen.sizes[first])} in {seen.attempts}; {second} {_path(seen.sizes[second])}",
            _made_room(seen.sizes[first]) and max(seen.sizes[second], default=0) == SLOTS // 2 and seen.attempts == 1,
        ),
        Check(
            ExitCode.CRASH,
            f"{first}: an engine is killed with SIGKILL, the others go on with the same step",
            _crash(seen.crash),
            seen.crash is not None and seen.crash.engines == 1 and seen.attempts == 1,
        ),
    ]


def exit_code(checks: Sequence[Check]) -> ExitCode:
    """The status of the gravest promise that was not kept."""
    broken = {check.code for check in checks if not check.kept}
    return next((code for code in _GRAVEST_FIRST if code in broken), ExitCode.OBSERVED)


def _made_room(sizes: Sequence[int]) -> bool:
    """Whether it held all slots, then half of them, then all again."""
    goals = iter((SLOTS, SLOTS // 2, SLOTS))
    goal = next(goals, None)
    for size in sizes:
        if size == goal:
            goal = next(goals, None)
    return goal is None


def _crash(crash: Crash | None) -> str:
    if crash is None:
        return "nobody noticed"
    pause = "" if crash.pause_seconds is None else f", {crash.pause_seconds * 1000:.0f} ms"
    return f"{crash.engines} lost at step {crash.step}{pause}"


def _path(sizes: Sequence[int]) -> str:
    return " → ".join(map(str, sizes)) or "nothing"


def _short(digest: str | None) -> str:
    return digest[:16] if digest else "none"


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
