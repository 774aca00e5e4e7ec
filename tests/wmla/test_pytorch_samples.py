"""Scripts of the shape that WMLA's versions had, submitted as the clients of that version do, on the whole platform."""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from support.journey import platform_in, visit
from support.running_platform import EXECS, Platform

pytestmark = [pytest.mark.lane("processes"), pytest.mark.timeout(300)]

SAMPLES = Path(__file__).parent / "samples" / "pytorch"
LOGON = "/auth/v1/logon"


@pytest.fixture(scope="module")
def shared_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_in(tmp_path_factory.mktemp("platform"), slots=2) as platform:
        digits = load_digits()
        images = (digits.images[:400, None] / 16).astype(np.float32)
        parts = {"train": slice(0, 320), "test": slice(320, 400)}
        sets = {f"{part}_x": images[rows] for part, rows in parts.items()}
        sets |= {f"{part}_y": digits.target[rows].astype(np.int64) for part, rows in parts.items()}
        place = platform.home / "data" / "digits"
        place.mkdir(parents=True, exist_ok=True)
        np.savez(place / "digits.npz", **sets)
        yield platform


@pytest.fixture
def platform(shared_platform: Platform) -> Iterator[Platform]:
    with visit(shared_platform) as platform:
        yield platform


class Run:
    """A sample that was submitted and has ended FINISHED."""

    def __init__(self, platform: Platform, answer: Any) -> None:
        assert answer.status_code == 200, answer.text
        self.platform, self.id = platform, str(answer.json()["id"])
        platform.checker.acknowledge(self.id)
        platform.jobs.append(self.id)
        platform.wait(self.id, "FINISHED", seconds=200)
        self.folder = platform.home / "jobs" / self.id

    def log(self, **query: str) -> str:
        answer = self.platform.api.get(f"{EXECS}/{self.id}/log", params=query, headers={"Accept": "text/plain"})
        assert answer.status_code == 200
        return answer.text

    def printed(self) -> str:
        """What the script printed in the driver."""
        return self.log(logType="outlog")

    def errors(self) -> str:
        return self.log(logType="errlog")

    def engines(self) -> str:
        """What the script printed in the engines."""
        return "".join(path.read_text() for path in self.folder.rglob("engine-*.out"))

    def train_rows(self) -> list[list[str]]:
        """The rows that a notebook reads as CSV: of each Train line all fields."""
        lines = self.log().replace(":", ",").splitlines()
        return [line.split(",") for line in lines if "Train" in line]

    def metrics(self) -> list[dict[str, Any]]:
        [file] = self.folder.rglob("evaluation-metrics.txt")
        return [json.loads(line) for line in file.read_text().splitlines()]

    def result(self) -> set[str]:
        """The names in the zip file of the result."""
        answer = self.platform.api.get(f"{EXECS}/{self.id}/result")
        assert answer.status_code == 200
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            return set(archive.namelist())


def assembled(tmp_path: Path, version: str) -> Path:
    """The folder that a user of this version submits: the files that all have, and the sample's own."""
    folder = tmp_path / f"edt-{version}"
    shutil.copytree(SAMPLES / "common", folder)
    shutil.copytree(SAMPLES / version, folder, dirs_exist_ok=True)
    return folder


def archive(folder: Path, *, top: str, mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
        tar.add(folder, top, filter=lambda member: None if "__pycache__" in member.name else member)
    return buffer.getvalue()


def submit_as_1_2(platform: Platform, folder: Path, options: str) -> Run:
    """Basic, ``sigName`` and a gzip archive that is called .tar."""
    args = f"--exec-start edtPyTorch --cs-datastore-meta type=fs,data_path=digits --workerDeviceNum 1 {options}"
    return Run(
        platform,
        platform.api.post(
            EXECS,
            params={"sigName": "dli-edt", "args": f"{args}    --model-dir {folder.name} --model-main main.py "},
            files={"file": ("tmpab12.modelDir.tar", archive(folder, top=folder.name))},
            headers={"Accept": "application/json"},
        ),
    )


def submit_as_2(platform: Platform, folder: Path, options: str) -> Run:
    """The token of ``/auth/v1/logon`` as X-Auth-Token, and the slash behind ``execs`` of WMLA's command."""
    token = platform.api.get(LOGON).json()["accessToken"]
    args = f"--exec-start edtPyTorch --model-dir {folder.name} --model-main main.py"
    request = platform.api.build_request(
        "POST",
        f"{EXECS}/",
        params={"args": f"{args} --cs-datastore-meta type=fs,data_path=digits {options}"},
        files={"file": (f"{folder.name}.modelDir.tar", archive(folder, top=folder.name))},
        headers={"X-Auth-Token": token},
    )
    return Run(platform, platform.api.send(request, auth=None))


def submit_as_4(platform: Platform, folder: Path, options: str) -> Run:
    """A form with args and hardware, and an archive that is not packed and has no folder on top."""
    data = {
        "args": f"--exec-start edtPyTorch --model-main main.py {options}",
        "hardwareSpec": {
            "nodes": {"num_nodes": 2, "num_drivers": "0", "cpu": {"units": "0.25"}, "mem": {"size": "1g"}}
        },
        "dataSource": [{"type": "fs", "location": {"paths": "digits"}}],
    }
    token = platform.api.get(LOGON).json()["accessToken"]
    request = platform.api.build_request(
        "POST",
        EXECS,
        data={"data": json.dumps(data)},
        files={"file": ("x.modelDir.tar", archive(folder, top=".", mode="w"))},
        headers={"Authorization": f"Bearer {token}"},
    )
    return Run(platform, platform.api.send(request, auth=None))


def test_a_notebook_of_1_2_5_trains_with_functions_callbacks_and_a_logger_of_its_own(
    platform: Platform, tmp_path: Path
) -> None:
    run = submit_as_1_2(platform, assembled(tmp_path, "v1.2.5"), "--edt-options maxWorkers=2")
    printed = run.printed()
    assert printed.index("engines_number:16") < printed.index("START TRAINING") < printed.index("END TRAINING")
    assert "trained to the end" in printed
    assert f"DATA_DIR: {platform.home}/data/digits" in printed
    assert run.errors().count("edt: model.onnx is written (input [batch, ") == 1
    rows = run.train_rows()
    assert len(rows) == 6 and {len(row) for row in rows} == {len(rows[0])}  # 320 samples in steps of 16 x 16, 3 epochs
    assert float(rows[-1][10]) < float(rows[0][10])  # the loss
    assert 0 < float(rows[-1][12]) <= 1  # the accuracy, from eva's percent
    assert re.findall(r"Test,.*Loss: (\S+),.*Accuracy: (\S+)", run.log())  # after the second epoch, by custom_test
    found = run.metrics()
    assert len(found) == 6 and {line["meta"]["training_id"] for line in found} == {run.id}
    assert found[-1]["values"]["loss"]["type"] == 3
    assert "epoch=0 of 3, lr=0.1" in run.engines() and "epoch=2 of 3, lr=0.01" in run.engines()
    files = {"model_epoch_final.pth", "model_epoch_final_optimizer_state.pth", "model.onnx"}
    assert {f"train/{name}" for name in files} <= run.result()


@pytest.mark.extended
def test_a_script_of_1_2_3_keeps_the_files_that_hide_the_platforms(platform: Platform, tmp_path: Path) -> None:
    run = submit_as_1_2(platform, assembled(tmp_path, "v1.2.3"), "--numWorker 2 --epochs 2 --batch-size 32")
    printed = run.printed()
    fabric = re.findall(r"fabric loaded from (\S+)", printed)
    assert fabric and all(Path(path).parent.is_dir() for path in fabric)
    assert f"result_dir={run.folder}" in printed
    [mine] = run.folder.rglob("my-metrics.txt")
    assert mine.read_text().splitlines()[0] == "test 4 ['accuracy', 'loss'] beside the platform"
    assert len(run.train_rows()) == 6
    assert {"mine.pt", "train/model_epoch_final.pth"} <= run.result()


@pytest.mark.extended
def test_a_script_of_1_2s_pages_has_the_platforms_own_log(platform: Platform, tmp_path: Path) -> None:
    folder = assembled(tmp_path, "v1.2-resnet")
    run = submit_as_1_2(platform, folder, "--numWorker 2 --train_dir train --weights none")
    assert "train dir: train, unknown: []" in run.printed()
    rows = run.train_rows()
    assert len(rows) == 6 and {len(row) for row in rows} == {len(rows[0])}
    assert "train/model_epoch_final.pth" in run.result()


@pytest.mark.extended
def test_a_script_of_2_2_writes_the_platforms_metrics(platform: Platform, tmp_path: Path) -> None:
    run = submit_as_2(platform, assembled(tmp_path, "v2.2.0"), "--numWorker 2 --epochs 2 --batch-size 32 --lr 0.05")
    assert "trained to the end" in run.printed()
    assert [line["etimes"]["iteration"]["value"] for line in run.metrics()] == ["4", "8", "12", "16", "20", "24"][:6]
    assert {"mine.pt", "train/model_epoch_final.pth"} <= run.result()


@pytest.mark.extended
def test_a_callback_of_2_3_saves_the_model_from_an_engine(platform: Platform, tmp_path: Path) -> None:
    run = submit_as_2(platform, assembled(tmp_path, "v2.3.0"), "--numWorker 2 --epochs 2 --batch-size 32")
    assert "Train finished. Time cost" in run.engines()
    by_callback = torch.load(run.folder / "model" / "trained_model.pt")
    by_script = torch.load(run.folder / "model" / "mine.pt")
    assert all(torch.equal(by_callback[name], value) for name, value in by_script.items())


@pytest.mark.extended
def test_a_script_of_4_0_has_loggers_in_driver_and_engines(platform: Platform, tmp_path: Path) -> None:
    run = submit_as_2(platform, assembled(tmp_path, "v4.0"), "--numWorker 2")
    assert "driver logger begins" in run.printed() and "driver logger ends" in run.printed()
    found = run.metrics()
    assert {line["grouplabel"] for line in found} == {"train", "test"}
    assert all(set(line["values"]) == {"loss", "accuracy", "top3"} for line in found)
    assert re.search(r"worker: step 10 of epoch 2, \d workers, loss \d", run.engines())
    assert {"train/model_epoch_1.pth", "train/model_epoch_final.pth", "train/model.onnx"} <= run.result()


@pytest.mark.extended
def test_a_notebook_of_4_x_packs_the_trained_model(platform: Platform, tmp_path: Path) -> None:
    run = submit_as_4(platform, assembled(tmp_path, "v4.x"), "")
    packed = run.folder / "packed" / f"{run.id}.zip"
    assert f"Save model:  {packed}" in run.printed()
    with zipfile.ZipFile(packed) as archive_:
        assert "train/model_epoch_final.pth" in archive_.namelist()
    assert "worker_memory: no effect" in run.errors() and "driver_memory: no effect" in run.errors()
