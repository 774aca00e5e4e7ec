"""Which part of the second tier a commit runs: one group of ten, by its place in the history.

A commit's hash fixes its history, and the number of commits in it (along first parents), modulo ten, is the number of
its group. So any ten commits in a row run all ten groups. A number drawn from the hash itself would not do that: of
ten such numbers a given one is missing in 35 % of all cases.

Tests with a committed duration are dealt into groups of equal length. All others go by a digest of their name, so that
a new test moves no other one; only a new file of durations deals anew.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

GROUPS = 10
BUDGET_SECONDS = 600.0
"""So long may a group take, by the durations."""
UNKNOWN_SECONDS = 10.0
"""What a test is counted with where no duration at all is known."""
DURATIONS = Path(__file__).with_name("durations.json")
"""Seconds of each test of the second tier, by its id. Written by ``python -m suite --keep-durations``."""


class TooLong(Exception):
    """A group takes longer than its budget. Its text is one sentence."""


def deal(durations: Mapping[str, float], tests: Collection[str] = (), groups: int = GROUPS) -> dict[str, int]:
    """The group, 0 to ``groups`` - 1, of every test in ``durations`` (seconds) or in ``tests``.

    The longest first, each into the group that is shortest so far. A test without a duration does not change where
    another one goes.
    """
    filled = [0.0] * groups
    found: dict[str, int] = {}
    for test, seconds in sorted(durations.items(), key=lambda item: (-item[1], item[0])):
        found[test] = filled.index(min(filled))
        filled[found[test]] += seconds
    for test in tests:
        if test not in durations:
            found[test] = int.from_bytes(hashlib.sha256(test.encode()).digest()[:8]) % groups
    return found


def chosen(
    tests: Collection[str],
    durations: Mapping[str, float],
    group: int,
    *,
    groups: int = GROUPS,
    budget: float = BUDGET_SECONDS,
) -> set[str]:
    """The tests of one group. A test without a duration counts as much as the others do on average.

    Raises TooLong where that takes longer than ``budget`` seconds.
    """
    dealt = deal(durations, tests, groups)
    average = sum(durations.values()) / len(durations) if durations else UNKNOWN_SECONDS
    found = {test for test in tests if dealt[test] == group}
    seconds = sum(durations.get(test, average) for test in found)
    if seconds > budget:
        raise TooLong(
            f"group {group} of the second tier's {groups} takes {seconds / 60:.1f} minutes, and {budget / 60:.0f} are "
            "allowed: make its tests shorter, renew tests/suite/durations.json, or raise GROUPS in tests/suite/share.py"
        )
    return found


def known_durations(path: Path = DURATIONS) -> dict[str, float]:
    """What was measured and committed; nothing where there is no such file."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


@dataclass(frozen=True)
class Commit:
    """What decides on the group. ``number`` counts the commits along first parents, this one included; None: the
    history is not there, or not all of it."""

    hash: str
    number: int | None

    @property
    def group(self) -> int:
        """By the number; by the hash alone where there is no number."""
        if self.number is not None:
            return self.number % GROUPS
        return int(hashlib.sha256(self.hash.encode()).hexdigest(), 16) % GROUPS

    def __str__(self) -> str:
        if self.number is not None:
            return f"group {self.group} of {GROUPS}: commit {self.hash[:12]} is number {self.number} of its history"
        if self.hash:
            return (
                f"group {self.group} of {GROUPS}, by the hash of commit {self.hash[:12]} alone, since this clone does "
                "not hold the whole history: ten commits in a row may leave out a group"
            )
        return f"group {self.group} of {GROUPS}: there is no git history here"


def commit_of(folder: Path) -> Commit:
    """The commit that is checked out in ``folder``."""
    head = _git(folder, "rev-parse", "HEAD")
    if not head:
        return Commit("", None)
    if _git(folder, "rev-parse", "--is-shallow-repository") == "true":
        return Commit(head, None)
    return Commit(head, int(_git(folder, "rev-list", "--count", "--first-parent", "HEAD")))


def _git(folder: Path, *words: str) -> str:
    """Its answer; empty where it fails, or where there is no git."""
    try:
        # A checkout that belongs to somebody else, as in a container, is one, too.
        command = ["git", "-c", f"safe.directory={folder}", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
