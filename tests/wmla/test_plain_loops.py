"""A plain loop that asks for several workers of an elastic framework is told that it is none; elastic code is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edt_api.submissions.args import parse
from edt_api.submissions.plain_loops import could_be_plain, is_plain, with_remark

SAMPLES = Path(__file__).parent
ELASTIC = (
    "import openedt",
    "from openedt import loader",
    "from fabric_model import FabricModel",
    "import fabric_model as f",
    "from pyedt.fabric_model import FabricModel",
    "def main():\n    if True:\n        from runai.elastic.torch import init",
    "import runai.elastic.keras",
    "import runai",
    "from runai import elastic",
    "from edt_runner.launch import train",
    "exec('from fabric_model import FabricModel')",
    "import subprocess\nsubprocess.run(['python', '-c', 'import runai.elastic.torch'])",
    "import importlib\nimportlib.import_module(name)",
    "from fabric_model import (  # cut off",
    "from fabric_model import FabricModel\nx = " + "1 + " * 50_000 + "1",
    "(" * 5000 + "fabric_model",
)
PLAIN = (
    "import torch\nmodel = torch.nn.Linear(1, 1)",
    "print('hello')",
    "# once: from fabric_model import FabricModel",
    "from runai.ga.torch import Optimizer",
    "import runai.utils\nimport runai.hpo",
    "fabric_model = None",
    "import importlib.metadata",
    "this is no Python",
    "",
)


@pytest.mark.parametrize("source", ELASTIC, ids=range(len(ELASTIC)))
def test_code_that_may_train_elastically_is_left_alone(tmp_path: Path, source: str) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "main.py").write_text("import torch\n")
    (tmp_path / "lib" / "training.py").write_text(source)
    assert not is_plain(tmp_path)


@pytest.mark.parametrize("source", PLAIN, ids=range(len(PLAIN)))
def test_a_plain_loop_is_recognized(tmp_path: Path, source: str) -> None:
    (tmp_path / "main.py").write_text(source)
    (tmp_path / "data.txt").write_text("import fabric_model")
    assert is_plain(tmp_path)


@pytest.mark.parametrize("name", ["lib.zip", "net.cpython-311-x86_64-linux-gnu.so", "old.pyc"])
def test_code_that_cannot_be_read_counts_as_elastic(tmp_path: Path, name: str) -> None:
    (tmp_path / "main.py").write_text("print(1)\n")
    (tmp_path / name).write_bytes(b"\0")
    assert not is_plain(tmp_path)


def test_an_upload_of_very_many_files_counts_as_elastic(tmp_path: Path) -> None:
    (tmp_path / "0.py").write_text("print(1)\n")
    for number in range(1, 501):
        os.link(tmp_path / "0.py", tmp_path / f"{number}.py")
    assert not is_plain(tmp_path)


@pytest.mark.parametrize(
    "folder",
    [path for kind in ("samples/pytorch/v*", "samples_tensorflow/*.*") for path in sorted(SAMPLES.glob(kind))],
    ids=lambda path: path.name,
)
def test_no_sample_of_wmlas_time_is_taken_for_a_plain_loop(folder: Path) -> None:
    assert not is_plain(folder)


@pytest.mark.parametrize(
    ("args", "asked"),
    [
        ("--exec-start edtPyTorch --numWorker 2", True),
        ("--exec-start edtTensorflow --workerDeviceNum 2", True),
        ("--exec-start edtPyTorch", False),
        ("--exec-start distPyTorch --numWorker 2", False),
        ("--exec-start edtPyTorch --numWorker 2 --msd-image-name team/own:1", False),
    ],
)
def test_only_jobs_that_ask_for_more_than_a_slot_are_looked_at(args: str, asked: bool) -> None:
    submission = parse(args)
    assert could_be_plain(submission, own_python=submission.own_python) is asked


def test_the_remark_says_what_to_change() -> None:
    for name, instead in (("edtPyTorch", "distPyTorch"), ("edtTensorflow", "disttensorflow")):
        remark = with_remark(parse(f"--exec-start {name} --numWorker 4 --maxRestart 3")).remark
        assert remark is not None and remark.startswith("--maxRestart went to the script")
        assert "not elastic" in remark and "one slot of the 4" in remark
        assert "FabricModel" in remark and f"--exec-start {instead}," in remark
