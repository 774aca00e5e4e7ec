"""A prebuilt model trains without an upload, and a script is given 200 kB of words, on the whole platform."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.journey import platform_in, visit
from support.running_platform import EXECS, Platform

pytestmark = [pytest.mark.extended, pytest.mark.lane("processes"), pytest.mark.timeout(300)]

COUNTS = "import sys\nprint('words', len(sys.argv) - 1, 'letters', sum(map(len, sys.argv[1:])))\n"


@pytest.fixture(scope="module")
def shared_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_in(tmp_path_factory.mktemp("platform"), slots=2) as platform:
        yield platform


@pytest.fixture
def platform(shared_platform: Platform) -> Iterator[Platform]:
    with visit(shared_platform) as platform:
        yield platform


def finished(platform: Platform, args: str, script: str | None = None) -> Path:
    """Submit, wait for the end, and return the job's folder."""
    files = {"file": ("main.py", script)} if script is not None else None
    answer = platform.api.post(f"{EXECS}/", data={"data": json.dumps({"args": args})}, files=files)
    assert answer.status_code == 200, answer.text
    job = str(answer.json()["id"])
    platform.checker.acknowledge(job)
    platform.jobs.append(job)
    platform.wait(job, "FINISHED", seconds=200)
    return platform.home / "jobs" / job


def test_prebuilt_mnist_learns_with_the_options_of_its_user(platform: Platform) -> None:
    options = "--epochs 3 --batch-size 40 --lr 0.1 --momentum 0.8"
    folder = finished(
        platform, f"--exec-start edtPyTorch --pbmodel-name MNIST --pbmodel-cmd train --numWorker 2 {options}"
    )
    assert (folder / "model" / "train" / "model_epoch_final.pth").is_file()
    rows = platform.api.get(f"{EXECS}/{folder.name}/log", headers={"Accept": "text/plain"}).text.splitlines()
    tests = [row for row in rows if "Test," in row]
    assert len(tests) == 3
    assert float(tests[-1].rpartition("Accuracy: ")[2].split(",")[0]) > 0.5, tests


def test_200_kb_of_words_reach_the_script(platform: Platform) -> None:
    words = ["x" * 99] * 2000
    folder = finished(platform, f"--exec-start edtPyTorch --model-main main.py {' '.join(words)}", COUNTS)
    printed = "".join(path.read_text() for path in folder.rglob("driver.out"))
    assert "words 2000 letters 198000" in printed
