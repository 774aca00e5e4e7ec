"""The prebuilt models of pictures train for real, in one process and in two."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edt_api.routes.execs import PREBUILT
from support.ports import free_port

pytestmark = pytest.mark.lane("processes")
SMALL = ("--epochs", "2", "--samples", "40", "--batch-size", "10")


def trained(folder: Path, model: str, *options: str, ranks: int = 1) -> list[str]:
    """What each rank prints."""
    (folder / "model").mkdir()
    port = free_port()
    started = [
        subprocess.Popen(
            [sys.executable, PREBUILT / "pictures.py", "--model", model, *options, "--unknown", "word"],
            env={
                **os.environ,
                "RESULT_DIR": str(folder),
                "OMP_NUM_THREADS": "1",
                "CUDA_VISIBLE_DEVICES": "",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    told = [process.communicate(timeout=110) for process in started]
    assert [process.returncode for process in started] == [0] * ranks, told
    return [out for out, _ in told]


def losses(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"^Epoch \d+/\d+, Loss: ([0-9.]+)$", text, re.MULTILINE)]


def test_two_processes_share_the_pictures_and_the_first_one_tells_and_saves(tmp_path: Path) -> None:
    first, second = trained(tmp_path, "AlexNet", *SMALL, ranks=2)
    assert len(losses(first)) == 2 and second == ""
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["AlexNet.pth"]


@pytest.mark.extended
@pytest.mark.parametrize("model", ["ResNet18", "VGG16"])
def test_one_process_learns_the_made_up_pictures(tmp_path: Path, model: str) -> None:
    [text] = trained(tmp_path, model, "--epochs", "3", "--samples", "100")
    first, *_, last = losses(text)
    assert last < first / 2 and (tmp_path / "model" / f"{model}.pth").stat().st_size > 1_000_000
