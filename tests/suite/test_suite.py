"""The runner itself, as a process: on a few tests that pass, fail, hang or leave something behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from suite.account import Account, Step, closing, measured, table
from suite.forgiveness import Verdict
from suite.running import bearers
from support.tagged import lives
from support.waiting import until

ROOT = Path(__file__).parents[2]


class Few:
    """A folder with tests of its own, and the runner on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}/tests\ntestpaths = tests\n")
        (folder / "tests").mkdir()
        (folder / "tests/conftest.py").write_text('pytest_plugins = ["suite.plugin"]')
        self.write("api/test_pages.py", "def test_a_page(): pass")
        self.write("elastic/test_engines.py", "def test_an_engine(): pass")

    def write(self, file: str, text: str) -> None:
        path = self.folder / "tests" / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def start(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        inherited = {name: value for name, value in os.environ.items() if name not in {"EDT_REQUIRE", "PYTEST_ADDOPTS"}}
        return subprocess.Popen(
            [sys.executable, "-m", "suite", "--no-checks", *words],
            cwd=self.folder,
            env={**inherited, "PYTHONPATH": f"{ROOT}/tests", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str, **environ: str) -> tuple[int, str]:
        """Exit status and all that it printed."""
        process = self.start(*words, **environ)
        output, _ = process.communicate(timeout=100)
        return process.returncode, output


@pytest.fixture
def few(tmp_path: Path) -> Few:
    return Few(tmp_path)


def test_each_lane_runs_its_own_tests_and_the_last_line_counts_both(few: Few) -> None:
    status, output = few.run()
    assert status == 0, output
    assert output.endswith("\n2 passed, 0 failed\n")
    assert "[units] 100% tests/api/test_pages.py  1 passed" in output
    assert "[processes] 100% tests/elastic/test_engines.py  1 passed" in output
    report = json.loads((few.folder / ".pytest_cache/suite/report.json").read_text())
    assert {test: each["lane"] for test, each in report["tests"].items()} == {
        "tests/api/test_pages.py::test_a_page": "units",
        "tests/elastic/test_engines.py::test_an_engine": "processes",
    }


def test_what_follows_two_dashes_is_given_to_pytest(few: Few) -> None:
    assert few.run("--", "tests/api")[1].endswith("\n1 passed, 0 failed\n")


ONCE = """
import pathlib

def test_that_fails_once():
    print("said before")
    seen = pathlib.Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first, "the first time"
"""


def test_a_test_that_passes_when_run_again_is_named_in_the_last_lines_and_forgiven(few: Few) -> None:
    few.write("api/test_once.py", ONCE)
    status, output = few.run()
    assert status == 0, output
    assert output.endswith("\n3 passed, 0 failed\n")
    assert "\npassed when run again alone: tests/api/test_once.py::test_that_fails_once\n" in output[-400:]
    assert "AssertionError: the first time" in output, "the failure is printed whole all the same"
    assert "said before" in output


def test_where_digests_are_compared_nothing_is_run_again(few: Few) -> None:
    few.write("elastic/test_digests.py", ONCE)
    status, output = few.run()
    assert status == 1, output
    assert "(never forgiven: digests)" in output
    assert output.endswith("\nfailed: tests/elastic/test_digests.py::test_that_fails_once\n2 passed, 1 failed\n")


def test_nor_is_an_assertion_about_a_digest_in_any_other_test(few: Few) -> None:
    few.write("api/test_once.py", "def test_a():\n    end = {'digest': 1}\n    assert end['digest'] == 2\n")
    status, output = few.run()
    assert status == 1, output
    assert "(never forgiven: it compared digests or samples)" in output and "[again]" not in output


HELPED = {
    "a helper": "def same(a, b):\n    assert a == b\n\ndef test_a():\n    digest = 1\n    same(digest, 2)\n",
    "a library": "import library\n\ndef test_a():\n    digests = [1]\n    library.assert_equal(digests, [2])\n",
}


@pytest.mark.parametrize("text", HELPED.values(), ids=HELPED)
def test_nor_is_one_in_a_helper_or_a_library_that_was_given_digests(few: Few, text: str) -> None:
    (few.folder / "library.py").write_text("def assert_equal(a, b):\n    if a != b:\n        raise AssertionError\n")
    few.write("api/test_once.py", text)
    status, output = few.run("--", "tests/api", PYTHONPATH=f"{ROOT}/tests:{few.folder}")
    assert status == 1, output
    assert "(never forgiven: it compared digests or samples)" in output and "[again]" not in output


def test_a_wait_in_vain_for_samples_is_no_comparison_of_them(few: Few) -> None:
    waits = "from support.waiting import until\n\ndef test_a():\n    until(lambda: 'samples' == 1, 0.01)\n"
    few.write("api/test_once.py", waits)
    status, output = few.run("--", "tests/api")
    assert status == 1, output
    assert "never forgiven" not in output and "[again]" in output


def test_a_test_that_skips_itself_when_it_is_run_again_has_not_passed(few: Few) -> None:
    text = ONCE.replace("    assert", "    if not first:\n        pytest.skip('the second time')\n    assert")
    few.write("api/test_once.py", f"import pytest\n{text}")
    status, output = few.run()
    assert status == 1, output
    assert "[again]" in output and output.endswith("::test_that_fails_once\n2 passed, 1 failed\n")


def test_nor_is_a_verdict_of_the_checker_wherever_it_falls(few: Few) -> None:
    raises = "    from checker.violation import Unsound\n    raise Unsound('two attempts live')\n"
    few.write("api/test_once.py", f"def test_a():\n{raises}")
    status, output = few.run()
    assert status == 1, output
    assert "(never forgiven: the checker's verdict)" in output


def test_a_test_that_fails_again_is_a_failure_and_three_are_not_tried(few: Few) -> None:
    few.write("api/test_bad.py", "def test_a(): assert 1 == 2")
    status, output = few.run()
    assert status == 1, output
    assert "[again]" in output
    assert output.endswith("\nfailed: tests/api/test_bad.py::test_a\n2 passed, 1 failed\n")
    few.write("api/test_bad.py", "\n".join(f"def test_{name}(): assert 1 == 2" for name in "abc"))
    status, output = few.run()
    assert status == 1, output
    assert "[again]" not in output and output.endswith("\n2 passed, 3 failed\n")


def test_a_process_that_dies_under_its_tests_fails_the_run_with_the_test_that_was_running(few: Few) -> None:
    few.write("api/test_death.py", "import os\n\ndef test_a(): os._exit(7)\n\ndef test_b(): pass\n")
    status, output = few.run("--", "tests/api/test_death.py")
    assert status == 1, output
    assert "pytest in lane units ended with status 7 while this test was running" in output
    assert "lane units: pytest ended with status 7, and 1 of its tests were not run" in output[-300:]


def test_a_test_that_dies_with_its_process_is_forgiven_no_more_than_any_other_of_its_file(few: Few) -> None:
    few.write("elastic/test_digests.py", "import os\n\ndef test_a(): os._exit(7)\n")
    status, output = few.run()
    assert status == 1, output
    assert "(never forgiven: digests)" in output and "[again]" not in output


DIES = "\n\nimport os\n\ndef {hook}(config):\n    if config.getoption('lane') == 'units':\n        {what}\n"
EARLY = {
    "status 1 at the start": ("pytest_configure", "os._exit(1)", "status 1 before it could say how its run ended"),
    "status 0 at the start": ("pytest_configure", "os._exit(0)", "status 0 before it could say how its run ended"),
    "an error at the end": ("pytest_unconfigure", "raise OSError", "status 1, though its tests ended with 0"),
}


@pytest.mark.parametrize(("hook", "what", "why"), EARLY.values(), ids=EARLY)
def test_a_lane_that_dies_beside_its_tests_fails_the_run(few: Few, hook: str, what: str, why: str) -> None:
    with (few.folder / "tests/conftest.py").open("a") as stream:
        stream.write(DIES.format(hook=hook, what=what))
    status, output = few.run()
    assert status == 1, output
    assert f"lane units: pytest ended with {why}" in output[-400:]
    assert not output.endswith(" 0 failed\n")


def test_a_lane_without_pytest_fails_the_run(few: Few) -> None:
    """As where Python finds no pytest: the traceback ends it with status 1."""
    (few.folder / "pytest.py").write_text("raise ModuleNotFoundError('No module named pytest')")
    status, output = few.run()
    assert status == 1, output
    assert "No module named pytest" in output
    assert "lane units: pytest ended with status 1 before it could say how its run ended" in output[-400:]


UNTOLD = """

import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session):
    done = yield
    session.testsfailed = 1
    return done
"""


def test_status_1_without_a_failed_test_fails_the_run(few: Few) -> None:
    with (few.folder / "tests/conftest.py").open("a") as stream:
        stream.write(UNTOLD)
    status, output = few.run()
    assert status == 1, output
    assert "lane units: pytest ended with status 1, and no test has failed" in output


def test_a_lane_without_tests_fails_the_run_unless_tests_were_selected(few: Few) -> None:
    (few.folder / "tests/api/test_pages.py").unlink()
    status, output = few.run()
    assert status == 1, output
    assert "lane units: pytest has found no tests" in output
    assert few.run("--", "tests/elastic")[0] == 0


def test_what_cannot_be_collected_fails_the_run(few: Few) -> None:
    few.write("api/test_broken.py", "import nothing_of_the_kind\n")
    status, output = few.run()
    assert status == 1, output
    assert "No module named 'nothing_of_the_kind'" in output
    assert not output.endswith(" 0 failed\n")


def test_ids_that_are_others_in_each_lane_fail_the_run(few: Few) -> None:
    few.write(
        "api/test_ids.py", "import pytest\n\n@pytest.mark.parametrize('x', [object()], ids=str)\ndef test_a(x): pass"
    )
    status, output = few.run()
    assert status == 1, output
    assert "its id is another one in each process" in output


def test_what_is_required_and_missing_is_said_before_anything_starts(few: Few) -> None:
    status, output = few.run(EDT_REQUIRE="docker,dockr")
    assert status == 1, output
    assert output.startswith("EDT_REQUIRE names 'dockr', which is unknown; known are ")
    assert "[units]" not in output and output.endswith("\n0 passed, 1 failed\n")


LEFT = """
import subprocess, sys

def test_a():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    print(child.pid)
    child.returncode = 0
"""


def test_a_process_that_a_test_has_left_is_named_and_killed(few: Few) -> None:
    few.write("api/test_left.py", LEFT)
    status, output = few.run()
    assert status == 0, output  # the test passes: what it left is told, and is no failure
    [line] = [line for line in output.splitlines() if line.startswith("left behind, and killed now: ")]
    assert "time.sleep(600)" in line
    assert not lives(int(line.split()[5]))


def test_what_a_run_inside_another_has_started_belongs_to_both() -> None:
    sleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    with subprocess.Popen(sleep, env={**os.environ, "SUITE_RUN": "outer.inner."}, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            assert process.pid in bearers("outer.") and process.pid in bearers("outer.inner.")
            assert process.pid not in bearers("inner.")
        finally:
            process.kill()


HANGS = """
import pathlib, subprocess, sys, time, pytest

@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    yield process
    pathlib.Path("cleaned").touch()
    process.kill()
    process.wait()

def test_a(child):
    pathlib.Path("hangs").touch()
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.extended)])
def test_ctrl_c_ends_both_lanes_lets_them_clean_up_and_leaves_no_process(few: Few, number: signal.Signals) -> None:
    few.write("elastic/test_hangs.py", HANGS)
    with few.start() as process:
        try:
            until((few.folder / "hangs").exists, 60)
            [mark] = _marks(_children(process.pid))
        finally:
            process.send_signal(number)
        output, _ = process.communicate(timeout=100)
    assert process.returncode == 130
    assert (few.folder / "cleaned").exists() and "left behind" not in output
    assert bearers(mark) == {}


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _marks(pids: list[int]) -> set[str]:
    """What they are marked by; a lane without a test has ended, or is about to, and shows no environment."""
    found = set()
    for pid in pids:
        with suppress(OSError):
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            found |= {each.decode().removeprefix("SUITE_RUN=") for each in environ if each.startswith(b"SUITE_RUN=")}
    return found


def account(*tests: tuple[str, str, float], extended: tuple[str, ...] = ()) -> Account:
    found = Account()
    found.take(json.dumps({"kind": "collected", "all": [], "selected": [], "extended": extended, "lacking": {}}))
    for test, outcome, seconds in tests:
        found.take(json.dumps({"kind": "begun", "test": test}))
        found.take(json.dumps({"kind": "ended", "test": test, "outcome": outcome, "seconds": seconds}))
    return found


def test_minutes_are_summed_by_folder_and_lane() -> None:
    lanes = {
        "processes": account(("tests/elastic/test_a.py::test_a", "passed", 90)),
        "units": account(("tests/api/test_b.py::test_b", "passed", 6), ("tests/api/test_c.py::test_c", "failed", 6)),
    }
    assert [line.split() for line in table(lanes)] == [
        ["folder", "lane", "tests", "minutes"],
        ["elastic", "processes", "1", "1.5"],
        ["api", "units", "2", "0.2"],
    ]


def test_checks_count_as_tests_and_what_is_skipped_is_said() -> None:
    lanes = {"units": account(("a", "passed", 1), ("b", "skipped", 1), ("c", "failed", 1))}
    steps = [Step("make check", good=False), Step("the dashboard's tests", good=True)]
    assert closing(lanes, Verdict(("c",), ()), steps, [], {"c"}) == [
        "failed: make check",
        "passed when run again alone: c",
        "3 passed, 1 failed, 1 skipped",
    ]


def test_durations_are_kept_of_the_second_tiers_tests_that_passed(tmp_path: Path) -> None:
    tests = {
        "long": {"seconds": 12.34, "extended": True, "outcome": "passed"},
        "bad": {"seconds": 0.1, "extended": True, "outcome": "failed"},
        "first": {"seconds": 3.0, "extended": False, "outcome": "passed"},
    }
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"tests": tests}))
    assert measured(report, {"bad": 40.0, "not run": 1.0}) == {"bad": 40.0, "long": 12.3, "not run": 1.0}
