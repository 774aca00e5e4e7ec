"""Scripts in the shape of WMLA's samples for TensorFlow, submitted as they are, with the args that its clients send."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from support.journey import platform_in
from support.running_platform import EXECS, Platform

SAMPLES = Path(__file__).parent / "samples_tensorflow"
pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.lane("processes"),
    pytest.mark.timeout(300),  # TensorFlow is imported several times, and a machine may be busy
]
TRAIN, TEST, EPOCHS = 512, 128, 4
KERAS_2 = " --msd-env TF_USE_LEGACY_KERAS=1"
"""What a careful user adds. The others' scripts are recognized."""


@dataclass(frozen=True)
class Sample:
    """A script, and what a client sends with it."""

    folder: str
    main: str
    framework: str
    steps: int
    """Training steps of an epoch."""
    args: str = ""
    own_log: bool = True
    """Whether the script writes the default log with a logger of its own."""


OF_1_2_3 = Sample(
    "1.2.3", "digits.py", "edtTensorflow", 2, "--edt-options maxWorkers=2 --epochs 4 --batch-size 16" + KERAS_2
)
OF_KERAS = Sample("1.2.3", "digits_keras.py", "edtKeras", 2, "--numWorker 2 --gpuPerWorker 1")
OF_2_3_0 = Sample("2.3.0", "elastic-main.py", "edtTensorflow", 2, "--numWorker 2 --batch-size 16")
OF_4_0 = Sample("4.0", "elastic-main.py", "edtTensorflow", 4, "--numWorker 2 --lr 0.01 --batch-size=8")
OF_THE_DOCS = Sample("4.0", "map_style.py", "edtTensorflow", 4, "--numWorker 2", own_log=False)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    folder = tmp_path_factory.mktemp("platform")
    data = folder / "home" / "data" / "digits"
    data.mkdir(parents=True)
    digits = load_digits()
    x, y = digits.images.astype(np.uint8), digits.target
    rest = slice(TRAIN, TRAIN + TEST)
    np.savez(data / "digits.npz", x_train=x[:TRAIN], y_train=y[:TRAIN], x_test=x[rest], y_test=y[rest])
    with platform_in(folder, slots=2, EDT_WARM="0") as running:
        yield running


def submitted(platform: Platform, sample: Sample) -> str:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(SAMPLES / sample.folder, sample.folder)
    args = (
        f"--exec-start {sample.framework} --cs-datastore-meta type=fs,data_path=digits "
        f"--model-dir {sample.folder} --model-main {sample.main}    {sample.args} "
    )
    answer = platform.api.post(
        EXECS, params={"args": args}, files={"file": ("tmp1234.modelDir.tar", buffer.getvalue())}
    )
    answer.raise_for_status()
    job = str(answer.json()["id"])
    platform.checker.acknowledge(job)
    platform.jobs.append(job)
    return job


def table(platform: Platform, job: str) -> pd.DataFrame:
    """The job's default log as notebooks read it: one column for each field."""
    log = platform.api.get(f"{EXECS}/{job}/log", headers={"Accept": "application/json"}).json()
    rows = [row.replace(":", ",").split(",\t") for row in log.splitlines()]
    return pd.DataFrame(
        [
            [row[0].split("] ")[1], *(float(field.split(",")[1]) for field in row[1:])]
            for row in rows
            if "Train" in row[0]
        ],
        columns=["tag", "time", "step", "iteration", "loss", "accuracy"],
    )


def runs(platform: Platform, sample: Sample) -> dict[str, Any]:
    job = submitted(platform, sample)
    end = platform.wait(job, "FINISHED", seconds=200)
    assert end["exactness"]["verdict"] != "not-exact", end["exactness"]["reason"]
    rows = table(platform, job)
    assert not rows.isna().any().any()
    assert rows["step"].tolist() == list(range(1, EPOCHS * sample.steps + 1))
    assert rows["accuracy"].between(0, 1).all()
    assert rows["loss"].iloc[-1] < rows["loss"].iloc[0]

    if not sample.own_log:
        lines = platform.api.get(f"{EXECS}/{job}/log").text.splitlines()
        assert len([line for line in lines if "] Test," in line]) == EPOCHS
        assert {line.count(",\t") for line in lines} == {5}, "every row has every column"

    answer = platform.api.get(f"{EXECS}/{job}/result")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert {"train/model_epoch_final.keras", "train/model_epoch_final/saved_model.pb"} <= set(archive.namelist())
    return end


def metrics(platform: Platform, job: str) -> list[dict[str, Any]]:
    [path] = (platform.home / "jobs" / job).glob("log/**/evaluation-metrics.txt")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_sample_of_2_3_0_runs_as_it_is(platform: Platform) -> None:
    job = runs(platform, OF_2_3_0)["id"]
    assert {row["grouplabel"] for row in metrics(platform, job)} == {"train", "test"}
    assert "elastic-main.py has RMSprop(lr=…) in line" in platform.job(job)["remark"]


@pytest.mark.extended
@pytest.mark.parametrize(
    "sample", [OF_1_2_3, OF_KERAS, OF_4_0, OF_THE_DOCS], ids=lambda each: f"{each.folder}-{each.main}"
)
def test_a_sample_runs_as_it_is(platform: Platform, sample: Sample) -> None:
    runs(platform, sample)
