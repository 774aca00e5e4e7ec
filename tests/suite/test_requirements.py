"""What must be present, by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from suite.requirements import PROBES, Unmet, check, deselected, required

ROOT = Path(__file__).parents[2]


def test_names_are_divided_by_commas_and_nothing_is_required_by_default() -> None:
    assert required("") == required(" , ") == []
    assert required("docker, chromium,docker") == ["docker", "chromium"]


def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(Unmet, match="names 'dockr', which is unknown; known are chromium, cuda, docker, kubernetes"):
        required("docker,dockr")


def test_all_that_is_named_and_missing_is_said_in_one_sentence() -> None:
    probes = {"docker": lambda: False, "chromium": lambda: True, "cuda": lambda: False}
    assert check("chromium", probes) == ["chromium"]
    with pytest.raises(Unmet, match=r"^EDT_REQUIRE asks for docker, cuda, which this machine does not have$"):
        check("docker,chromium,cuda", probes)


def test_what_is_deselected_is_counted_in_one_line() -> None:
    assert deselected("cuda", 1) == "1 test needs cuda, which this machine does not have: deselected"
    assert deselected("tensorflow", 40, 1).startswith("40 tests and 1 file of tests need tensorflow")
    assert deselected("tensorflow", 0, 8).startswith("8 files of tests need tensorflow")


def test_every_name_is_a_marker() -> None:
    markers = (ROOT / "pyproject.toml").read_text()
    assert all(f'"{name}: needs ' in markers for name in PROBES)


TESTS = """
import pytest

@pytest.mark.kubernetes
def test_that_needs_a_cluster():
    raise AssertionError("there is none")

def test_that_does_not():
    pass

def test_that_is_skipped():
    pytest.skip("today")
"""


def run(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """pytest with the suite's plugin on ``TESTS``, on a machine whose Kubernetes is not there."""
    (folder / "test_few.py").write_text(TESTS)
    (folder / "conftest.py").write_text('pytest_plugins = ["suite.plugin"]')
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}/tests\nmarkers =\n    kubernetes: needs one\n")
    unset = ("EDT_REQUIRE", "PYTEST_ADDOPTS")
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    inherited["EDT_KUBERNETES"] = str(folder / "nothing-built")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *words]
    return subprocess.run(
        command, cwd=folder, env={**inherited, **environ}, capture_output=True, text=True, timeout=100, check=False
    )


def test_what_is_missing_and_not_named_is_deselected_and_a_skip_is_a_skip(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert "1 test needs kubernetes, which this machine does not have: deselected" in done.stdout
    assert "1 passed, 1 skipped, 1 deselected" in done.stdout and done.returncode == 0


def test_what_is_missing_and_named_fails_the_run_before_any_test(tmp_path: Path) -> None:
    done = run(tmp_path, EDT_REQUIRE="kubernetes")
    assert "EDT_REQUIRE asks for kubernetes, which this machine does not have" in done.stderr
    assert done.returncode == pytest.ExitCode.USAGE_ERROR and "passed" not in done.stdout


def test_where_something_is_required_no_test_may_skip_itself(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "mpirun"
    tool.parent.mkdir()
    tool.touch(0o755)
    path = f"{tool.parent}:{os.environ['PATH']}"
    done = run(tmp_path, "-k", "skipped", EDT_REQUIRE="mpirun", PATH=path)
    assert "skipped, which no test may be where EDT_REQUIRE is set" in done.stdout and done.returncode == 1


def test_without_tensorflow_a_file_that_imports_it_is_deselected(tmp_path: Path) -> None:
    (tmp_path / "test_keras.py").write_text("from keras import Model\n\ndef test_it(): pass\n")
    (tmp_path / "without.py").write_text("import sys\nsys.modules['keras'] = None\n")
    hidden = "import suite.requirements as r; r.has_tensorflow = lambda: False; import without"
    (tmp_path / "sitecustomize.py").write_text(f"import sys; sys.path.append({str(ROOT / 'tests')!r}); {hidden}")
    done = run(tmp_path, PYTHONPATH=str(tmp_path))
    assert "1 file of tests needs tensorflow, which this machine does not have: deselected" in done.stdout
    assert done.returncode == 0
