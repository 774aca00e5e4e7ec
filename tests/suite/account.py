"""What came of a run, from what the plugin wrote down: counts, minutes by folder, and the text at the end."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from suite import requirements
from suite.forgiveness import Failed, Verdict, never_of


@dataclass(frozen=True)
class Ended:
    """One test: ``outcome`` is passed, failed or skipped; ``never`` says why it cannot be forgiven."""

    test: str
    outcome: str
    seconds: float
    text: str = ""
    never: str | None = None


@dataclass
class Account:
    """What one pytest process has written down so far."""

    all: list[str] = field(default_factory=list)
    """Ids of everything that was collected, in order, before anything was deselected."""
    selected: list[str] = field(default_factory=list)
    extended: set[str] = field(default_factory=set)
    lacking: dict[str, list[int]] = field(default_factory=dict)
    """What this machine lacks to the number of tests and of files that need it."""
    ended: dict[str, Ended] = field(default_factory=dict)
    running: str | None = None
    status: int | None = None
    """pytest's own exit status; None: it has not ended, or not by itself."""

    def take(self, line: str) -> Ended | None:
        """One more line; the test that ended with it, if one did."""
        entry: dict[str, Any] = json.loads(line)
        kind = entry.pop("kind")
        if kind == "collected":
            self.all, self.selected = entry["all"], entry["selected"]
            self.extended, self.lacking = set(entry["extended"]), entry["lacking"]
        elif kind == "begun":
            self.running = entry["test"]
        elif kind == "finished":
            self.status = entry["status"]
        else:
            self.running = None
            outcome = {"outcome": "failed", "seconds": 0.0} if kind == "uncollected" else {}
            ended = Ended(**{**outcome, **entry})
            self.ended[ended.test] = ended
            return ended
        return None

    def close(self, why: str) -> Ended | None:
        """The process has ended. A test that was running is a failure of this text; it is answered."""
        if self.running is None:
            return None
        ended = Ended(self.running, "failed", 0.0, why, never_of(self.running.partition("::")[0]))
        self.ended[ended.test], self.running = ended, None
        return ended

    @property
    def failed(self) -> bool:
        """Whether any test has failed."""
        return any(each.outcome == "failed" for each in self.ended.values())

    def passed(self, test: str) -> bool:
        """Whether this test was run and passed, and pytest ended well behind it."""
        return self.status == 0 and test in self.ended and self.ended[test].outcome == "passed"

    @property
    def left(self) -> int:
        """How many selected tests have not been run."""
        return sum(test not in self.ended for test in self.selected)


def unlike(first: Collection[str], second: Collection[str]) -> list[str]:
    """Ids that only one of two processes has collected: they depend on a clock, an address or the order of a set."""
    return sorted(set(first) ^ set(second))


def failures(accounts: Iterable[Account]) -> list[Failed]:
    return [
        Failed(each.test, each.never)
        for account in accounts
        for each in account.ended.values()
        if each.outcome == "failed"
    ]


def lacking_lines(accounts: Iterable[Account]) -> list[str]:
    """One line for each thing that this machine lacks, over all lanes."""
    summed: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for account in accounts:
        for name, (tests, files) in account.lacking.items():
            summed[name] = [summed[name][0] + tests, summed[name][1] + files]
    return [requirements.deselected(name, *counts) for name, counts in sorted(summed.items())]


def minutes(lanes: Mapping[str, Account]) -> dict[tuple[str, str], tuple[int, float]]:
    """(folder, lane) to the number of its tests and their minutes."""
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for lane, account in lanes.items():
        for each in account.ended.values():
            key = _folder(each.test), lane
            count, spent = found.get(key, (0, 0.0))
            found[key] = count + 1, spent + each.seconds / 60
    return found


def table(lanes: Mapping[str, Account]) -> list[str]:
    """Minutes by folder and lane, the longest first."""
    rows = sorted(minutes(lanes).items(), key=lambda row: -row[1][1])
    lines = [f"{'folder':<12} {'lane':<10} {'tests':>6} {'minutes':>8}"]
    return lines + [f"{folder:<12} {lane:<10} {count:>6} {spent:>8.1f}" for (folder, lane), (count, spent) in rows]


def longest(lanes: Mapping[str, Account], number: int = 10) -> list[str]:
    """The slowest tests, a line each."""
    found = sorted((each for account in lanes.values() for each in account.ended.values()), key=lambda e: -e.seconds)
    return [f"{each.seconds:7.1f} s  {each.test}" for each in found[:number]]


@dataclass(frozen=True)
class Step:
    """Something that a lane ran besides tests, such as the type checker, and how it ended."""

    name: str
    good: bool


def closing(
    lanes: Mapping[str, Account], verdict: Verdict, steps: Sequence[Step], wrong: Sequence[str], flaky: Collection[str]
) -> list[str]:
    """The last lines. ``wrong``: what is wrong with the run as a whole, a sentence each; it counts as failures.

    The last one is ``N passed, N failed``, with ``, N skipped`` behind it if there are any; a step counts as a test.
    """
    ended = [each for account in lanes.values() for each in account.ended.values()]
    bad = [step.name for step in steps if not step.good]
    passed = sum(each.outcome == "passed" for each in ended) + len(verdict.forgiven) + len(steps) - len(bad)
    skipped = sum(each.outcome == "skipped" for each in ended)
    lines = [f"failed: {test}" for test in (*verdict.failed, *bad)] + list(wrong)
    if verdict.forgiven:
        lines.append(f"passed when run again alone: {', '.join(verdict.forgiven)}")
        lines += [
            f"  add it to tests/flaky.txt until it is mended: {test}" for test in verdict.forgiven if test not in flaky
        ]
    failed = len(verdict.failed) + len(bad) + len(wrong)
    return [*lines, f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")]


def write_report(path: Path, lanes: Mapping[str, Account], again: Mapping[str, Account]) -> None:
    """Both lanes in one JSON file: lane, outcome and seconds of each test, minutes by folder, what was run again."""
    tests = {
        each.test: {
            "lane": lane,
            "outcome": each.outcome,
            "seconds": each.seconds,
            "extended": each.test in account.extended,
        }
        for lane, account in lanes.items()
        for each in account.ended.values()
    }
    folders = [
        {"folder": folder, "lane": lane, "tests": count, "minutes": round(spent, 2)}
        for (folder, lane), (count, spent) in sorted(minutes(lanes).items())
    ]
    second = {each.test: each.outcome for account in again.values() for each in account.ended.values()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"tests": tests, "folders": folders, "again": second}, indent=1))


def measured(report: Path, before: Mapping[str, float]) -> dict[str, float]:
    """Durations of the second tier from a report: what has passed there is new, what was not run stays as it was."""
    tests = json.loads(report.read_text())["tests"]
    new = {
        test: round(each["seconds"], 1)
        for test, each in tests.items()
        if each["extended"] and each["outcome"] == "passed"
    }
    return dict(sorted({**before, **new}.items()))


def _folder(test: str) -> str:
    parts = PurePosixPath(test.partition("::")[0]).parts
    return parts[1] if len(parts) > 2 else "."
