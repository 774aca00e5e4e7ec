"""Which failures may be forgiven."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest

from suite.forgiveness import FLAKY, NEVER, Failed, Flaky, Verdict, flaky_tests, judge, never_of, to_run_again

ROOT = Path(__file__).parents[2]


def test_what_passes_when_it_is_run_again_is_forgiven_and_what_fails_again_is_not() -> None:
    assert judge([Failed("a"), Failed("b")], ["a", "b"]) == Verdict(("a", "b"), ())
    assert judge([Failed("a"), Failed("b")], ["b"]) == Verdict(("b",), ("a",))


def test_more_than_two_failures_are_no_accident() -> None:
    three = [Failed("a"), Failed("b"), Failed("c")]
    assert to_run_again(three) == []
    assert judge(three, ["a", "b", "c"]) == Verdict((), ("a", "b", "c"))


def test_what_must_never_fail_is_not_run_again_nor_is_what_failed_beside_it() -> None:
    failed = [Failed("a", "digests"), Failed("b")]
    assert to_run_again(failed) == []
    assert judge(failed, ["a", "b"]) == Verdict((), ("a", "b"))


@pytest.mark.parametrize(
    ("file", "never"),
    [
        ("tests/elastic/test_digests.py", "digests"),
        ("tests/elastic/test_random_schedules.py", "digests and sample counts"),
        ("tests/chaos/test_storm.py", "a storm's counts and its checker's verdict"),
        ("tests/checker/test_checker_finds_faults.py", "the checker itself"),
        ("tests/elastic/test_local.py", None),
        ("tests/api/test_lists.py", None),
    ],
)
def test_digests_counts_crash_points_and_the_checker_are_never_forgiven(file: str, never: str | None) -> None:
    assert never_of(file) == never


def test_an_assertion_about_digests_or_samples_is_never_forgiven_wherever_it_stands() -> None:
    assert (
        never_of("tests/journeys/test_sharing.py", assertion='assert end["digest"] == other')
        == "it compared digests or samples"
    )
    assert (
        never_of("tests/journeys/test_sharing.py", assertion="assert samples == [1]")
        == "it compared digests or samples"
    )
    assert never_of("tests/journeys/test_sharing.py", assertion="assert seconds < 3") is None


def test_nor_is_a_marked_test_a_flaky_one_or_a_verdict_of_the_checker_wherever_it_falls() -> None:
    assert never_of("tests/api/test_a.py", "sample counts") == "sample counts"
    assert never_of("tests/api/test_a.py", flaky=True) == "it is in tests/flaky.txt, and has to be mended"
    assert never_of("tests/journeys/test_sharing.py", checker=True) == "the checker's verdict"


@pytest.mark.parametrize("place", NEVER)
def test_all_of_these_places_exist(place: str) -> None:
    assert (ROOT / place).exists()


def test_a_flaky_test_is_written_down_with_a_date_and_a_reason() -> None:
    text = "# a comment\n\ntests/a.py::test_b[x|y] | 2026-11-22 | the clock of the test\n"
    assert flaky_tests(text) == [Flaky("tests/a.py::test_b[x|y]", datetime.date(2026, 11, 22), "the clock of the test")]


@pytest.mark.parametrize("line", ["tests/a.py::test_b", "tests/a.py::test_b | today | why", "t | 2026-11-22 | "])
def test_a_line_of_another_form_is_named(line: str) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"tests/flaky.txt, line 2: {line!r} is not `id | date as YYYY-MM-DD | why`")
    ):
        flaky_tests(f"#\n{line}")


def test_every_flaky_test_exists() -> None:
    for each in flaky_tests(FLAKY.read_text()):
        file, *inside = each.test.partition("[")[0].split("::")
        source = (ROOT / file).read_text()
        assert all(re.search(rf"^\s*(def|class) {part}\b", source, re.M) for part in inside), each.test
