"""``save_to_onnx`` in a whole training: the driver writes the file when the engines are gone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.nursery import RUNNERS, TESTS
from support.training import Elastic, on_both_frameworks, script, with_pytorch_first

onnxruntime: Any = pytest.importorskip("onnxruntime")


def same_as_the_trained_model(file: Path, folder: Path) -> bool:
    """Whether the file computes what the script has computed with the model behind ``train()``."""
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    [rows] = session.get_inputs()
    if (folder / "outputs.pth").exists():
        generator = torch.Generator().manual_seed(1)
        given, expected = torch.randn(40, 6, generator=generator).numpy(), torch.load(folder / "outputs.pth").numpy()
    else:
        given, expected = (
            np.random.default_rng(1).standard_normal((40, 6), dtype=np.float32),
            np.load(folder / "outputs.npy"),
        )
    return bool(np.allclose(session.run(None, {rows.name: given})[0], expected, rtol=1e-4, atol=1e-6))


@pytest.mark.timeout(240)
@with_pytorch_first
def test_python_main_py_leaves_the_trained_model_as_an_onnx_file(framework: str, tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": f"{TESTS}:{RUNNERS}", "EDT_CPU_SLOTS": "2", "EDT_DEVICES": "cpu"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script("to_onnx", framework))],
        cwd=tmp_path,
        env={**environ, "GLOO_SOCKET_IFNAME": "lo"},
        text=True,
        capture_output=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "the code behind train() runs once" in done.stdout
    assert "edt: model.onnx is being written." in done.stderr and "edt: model.onnx is written (" in done.stderr
    assert same_as_the_trained_model(tmp_path / "edt_result/to_onnx/model/train/model.onnx", tmp_path)


@pytest.mark.extended
@on_both_frameworks
def test_a_job_has_the_file_beside_its_other_files_and_no_message(
    framework: str, attempt: Callable[..., Elastic]
) -> None:
    with attempt("to_onnx") as training:
        training.hold([1, 2])
        end = training.finish(100)
    assert end["kind"] == "finished" and not end["message"]
    folder = Path(training.spec.result_dir)
    assert same_as_the_trained_model(folder / "model/train/model.onnx", folder)
    assert "edt: model.onnx is written (" in (training.log_dir / "driver.err").read_text()


def test_a_job_whose_model_cannot_be_written_ends_well_and_its_message_says_why(
    attempt: Callable[..., Elastic],
) -> None:
    with attempt("to_onnx", "--by-value") as training:
        training.hold([1, 2])
        end = training.finish(100)
    assert end["kind"] == "finished"
    why = "save_to_onnx: model.onnx is not written, because the model decides by the values of its tensors"
    assert end["message"].startswith(why) and "at to_onnx.py, line " in end["message"]
    assert f"edt: {why}" in (training.log_dir / "driver.err").read_text()
    assert "the code behind train() runs once" in (training.log_dir / "driver.out").read_text()
    files = {file.name for file in (Path(training.spec.result_dir) / "model/train").iterdir()}
    assert "model_epoch_final.pth" in files and not any("onnx" in name for name in files)
