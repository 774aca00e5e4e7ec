"""``import runai``: what it brings, what it does not, and whom it cannot live beside. Real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.nursery import RUNNERS

TORCH = """
import sys
import runai.elastic, runai.ga
assert "torch" not in sys.modules
import runai.elastic.torch, runai.ga.torch
others = {"tensorflow", "keras", "horovod"} & set(sys.modules)
runai.elastic.torch.init(256, 64)
print(others, runai.elastic.gpus, runai.elastic.steps, runai.ga.torch.optim.SGD.__name__)
"""
KERAS = """
import sys
import runai.elastic.keras, runai.ga.keras
print({"torch", "horovod"} & set(sys.modules))
"""


def python(script: str, folder: Path, *, before: tuple[Path, ...] = ()) -> tuple[int, str, str]:
    """Exit status and output in a process that finds no GPU and no nvidia-smi."""
    path = os.pathsep.join(map(str, (*before, RUNNERS)))
    environ = {"PATH": str(folder), "HOME": str(folder), "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


def test_c1_01_the_torch_side_is_silent_and_imports_no_other_framework(tmp_path: Path) -> None:
    assert python(TORCH, tmp_path) == (0, "set() 1 4 SGD\n", "")


def test_c1_01_the_keras_side_is_silent_and_imports_no_other_framework(tmp_path: Path) -> None:
    assert python(KERAS, tmp_path) == (0, "set()\n", "")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (
            "import runai.reporter",
            "runai.reporter is not part of OpenEDT's runai. Instead: inside a job, the metrics of",
        ),
        ("import runai.reporter.keras", "runai.reporter is not part of"),
        ("from runai import hpo", "runai.hpo is not part of OpenEDT's runai. Instead: submit one job for each"),
        ("from runai.mp import Method", "runai.mp is not part of OpenEDT's runai. Instead: keras.distribution"),
        ("import runai.profiler", "runai.profiler is not part of OpenEDT's runai. Instead: torch.profiler"),
    ],
)
def test_what_is_not_here_says_what_to_use_instead(statement: str, words: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(statement, {})  # noqa: S102 - a line of this file
    assert words in str(caught.value)
    assert "runai.hpo" not in sys.modules


def test_beside_pypis_runai_the_import_fails_and_says_what_to_do(tmp_path: Path) -> None:
    record = tmp_path / "site" / "runai-0.4.1.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: runai\nVersion: 0.4.1\n")
    status, _, err = python("import runai.elastic", tmp_path, before=(tmp_path / "site",))
    assert status == 1
    assert "ImportError: runai: the packages openedt and runai 0.4.1 are both installed" in err
    assert "pip uninstall runai" in err


def test_the_package_says_whose_it_is(tmp_path: Path) -> None:
    assert python("import runai; print(runai.IMPLEMENTATION)", tmp_path) == (0, "openedt\n", "")
