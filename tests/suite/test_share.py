"""The part of the second tier that a commit runs."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.share import BUDGET_SECONDS, GROUPS, Commit, TooLong, chosen, commit_of, deal, known_durations

DURATIONS = {f"t{number}": float(number) for number in range(1, 101)}


@given(st.dictionaries(st.text(min_size=1), st.floats(0, 60), max_size=40), st.sets(st.text(min_size=1), max_size=40))
def test_any_ten_commits_in_a_row_run_every_test(durations: dict[str, float], tests: set[str]) -> None:
    first = random.Random(len(tests)).randrange(1000)
    commits = [Commit("any", first + step) for step in range(GROUPS)]
    ran = [chosen(tests, durations, commit.group, budget=1e9) for commit in commits]
    assert set().union(*ran) == tests
    assert sum(map(len, ran)) == len(tests), "each once"


def test_groups_are_equally_long() -> None:
    groups = deal(DURATIONS)
    filled = [sum(DURATIONS[test] for test, at in groups.items() if at == group) for group in range(GROUPS)]
    assert max(filled) - min(filled) < 20


def test_a_new_test_and_one_that_is_gone_move_no_other() -> None:
    before = deal(DURATIONS, ["new"])
    assert deal(DURATIONS, ["another"]).items() >= {name: before[name] for name in DURATIONS}.items()
    assert deal({}, ["a", "new"])["new"] == before["new"]


def test_a_group_that_takes_too_long_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(
        TooLong, match=r"of the second tier's 10 takes 8\.\d minutes, and 5 are allowed: make its tests"
    ):
        chosen(DURATIONS, DURATIONS, 3, budget=300)


def test_a_test_without_a_duration_counts_as_the_average() -> None:
    tests, durations = [f"new{number}" for number in range(100)], {"known": 100.0}
    group = deal(durations, tests)["new0"]
    with pytest.raises(TooLong):
        chosen(tests, durations, group, budget=100)
    assert "new0" in chosen(tests, {}, group, budget=600)


def test_what_is_committed_keeps_within_the_ten_minutes() -> None:
    durations = known_durations()
    for group in range(GROUPS):
        chosen(durations, durations, group, budget=BUDGET_SECONDS)


def git(folder: Path, *words: str) -> str:
    person = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")
    done = subprocess.run(["git", *person, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Twelve commits, of which one merges two others."""
    folder = tmp_path / "history"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for number in range(11):
        git(folder, "commit", "-q", "--allow-empty", "-m", f"commit {number}")
    git(folder, "switch", "-q", "-c", "side", "HEAD~3")
    for number in range(2):
        git(folder, "commit", "-q", "--allow-empty", "-m", f"beside {number}")
    git(folder, "switch", "-q", "main")
    git(folder, "merge", "-q", "--no-ff", "-m", "both", "side")
    return folder


def test_a_commit_counts_along_its_first_parents(history: Path) -> None:
    commit = commit_of(history)
    assert (commit.number, commit.group) == (12, 2)
    assert str(commit) == f"group 2 of 10: commit {commit.hash[:12]} is number 12 of its history"


def test_a_shallow_clone_goes_by_the_hash_and_says_so(history: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{history}", "shallow")
    commit = commit_of(tmp_path / "shallow")
    assert commit.hash == commit_of(history).hash and commit.number is None
    assert commit.group == Commit(commit.hash, None).group
    assert "ten commits in a row may leave out a group" in str(commit)


def test_without_a_history_there_is_a_group_all_the_same(tmp_path: Path) -> None:
    assert "there is no git history here" in str(commit_of(tmp_path))
