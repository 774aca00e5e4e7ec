"""A script's own metrics: what ``EMetrics`` writes is what WMLA's tools read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import emetrics
import pyedt.emetrics
from edt_runner import evaluation_metrics
from emetrics import EMetrics


@pytest.fixture
def log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOG_DIR", str(tmp_path / "log"))
    monkeypatch.setenv("TRAINING_ID", "edt-7")
    monkeypatch.delenv("SUBID", raising=False)
    return tmp_path / "log"


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_line_has_wmlas_fields_and_types(log_dir: Path) -> None:
    with EMetrics.open() as metrics:
        metrics.record(EMetrics.TEST_GROUP, 1, {"loss": 0.25, "hits": 3, "phase": "late"})
    [found] = lines(log_dir / "evaluation-metrics.txt")
    assert found["meta"]["training_id"] == "edt-7" and found["meta"]["rindex"] == 1
    assert isinstance(found["meta"]["time"], int) and "subid" not in found["meta"]
    assert found["grouplabel"] == "test"
    assert found["etimes"]["iteration"] == {"type": 2, "value": "1"}
    assert list(found["etimes"]["time_stamp"]) == ["value"]
    assert found["values"] == {
        "loss": {"type": 3, "value": "0.25"},
        "hits": {"type": 2, "value": "3"},
        "phase": {"value": "late"},
    }


def test_the_time_is_that_of_the_clock_in_milliseconds() -> None:
    found = json.loads(evaluation_metrics.line("train", 2, {}, clock=lambda: 1614896710.2239))
    assert found["meta"]["time"] == 1614896710223
    assert found["etimes"]["time_stamp"]["value"].endswith("10.223")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (torch.tensor(0.5), {"type": 3, "value": "0.5"}),
        (np.float32(0.5), {"type": 3, "value": "0.5"}),
        (np.int64(4), {"type": 2, "value": "4"}),
        (np.array([2.0]), {"type": 3, "value": "2.0"}),
        (float("nan"), {"type": 3, "value": "nan"}),
    ],
)
def test_numbers_of_every_library_are_numbers(value: Any, written: dict[str, Any]) -> None:
    assert json.loads(evaluation_metrics.line("test", 1, {"loss": value}))["values"]["loss"] == written


def test_every_opening_appends(log_dir: Path) -> None:
    for step in range(3):
        with EMetrics.open() as metrics:
            metrics.record(EMetrics.TRAIN_GROUP, step, {"loss": 1.0})
    found = lines(log_dir / "evaluation-metrics.txt")
    assert [line["etimes"]["iteration"]["value"] for line in found] == ["0", "1", "2"]
    assert {line["grouplabel"] for line in found} == {"train"}


def test_a_line_is_there_as_soon_as_it_was_recorded(log_dir: Path) -> None:
    metrics = EMetrics.open()
    metrics.record("mine", 1, {})
    assert len(lines(log_dir / "evaluation-metrics.txt")) == 1
    metrics.close()
    with pytest.raises(ValueError, match="closed"):
        metrics.record("mine", 2, {})


def test_a_full_disk_does_not_end_the_training_and_a_later_line_brings_what_waited(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``/dev/full`` takes no byte. A folder at the file's place cannot be opened, until it is gone."""
    file = log_dir / "evaluation-metrics.txt"
    log_dir.mkdir()
    file.symlink_to("/dev/full")
    with EMetrics.open() as full:
        full.record("mine", 0, {})
        full.record("mine", 1, {})
    assert capsys.readouterr().err.count(str(file)) == 1
    file.unlink()
    file.mkdir()
    metrics = EMetrics.open()
    metrics.record("mine", 1, {})
    file.rmdir()
    metrics.record("mine", 2, {})
    assert [line["etimes"]["iteration"]["value"] for line in lines(file)] == ["1", "2"]
    metrics.close()


def test_the_trial_of_the_environment_stands_in_the_lines(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBID", "4")
    with EMetrics.open() as metrics:
        metrics.record(EMetrics.TEST_GROUP, 1, {"loss": 1.0})
    assert lines(log_dir / "evaluation-metrics.txt")[0]["meta"]["subid"] == "4"


def test_a_trial_has_a_folder_and_leaves_its_tests_for_the_search(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESULT_DIR", str(tmp_path))
    with EMetrics.open("4") as metrics:
        metrics.record(EMetrics.TRAIN_GROUP, 1, {"loss": 3.0})
        metrics.record(EMetrics.TEST_GROUP, 1, {"loss": torch.tensor(2.0), "accuracy": 0.5})
        metrics.record(EMetrics.TEST_GROUP, 2, {"loss": 1.0, "accuracy": 0.75})
    assert [line["meta"]["subid"] for line in lines(log_dir / "4" / "evaluation-metrics.txt")] == ["4"] * 3
    assert json.loads((tmp_path / "val_dict_list.json").read_text()) == [
        {"steps": 1, "loss": 2.0, "accuracy": 0.5},
        {"steps": 2, "loss": 1.0, "accuracy": 0.75},
    ]


def test_without_a_log_folder_it_writes_where_the_script_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOG_DIR", "JOB_STATE_DIR", "TRAINING_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    EMetrics.open().close()
    assert (tmp_path / "evaluation-metrics.txt").exists()
    monkeypatch.setenv("JOB_STATE_DIR", str(tmp_path / "state"))
    EMetrics.open().close()
    assert (tmp_path / "state" / "logs" / "evaluation-metrics.txt").exists()


def test_pyedt_has_the_same_class() -> None:
    assert emetrics.EMetrics is pyedt.emetrics.EMetrics
