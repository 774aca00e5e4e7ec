"""The examples of ``examples/runai`` for PyTorch learn, as their README says; those for Keras are tried with Keras."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from runai import elastic
from support.nursery import RUNNERS

EXAMPLES = RUNNERS.parent / "examples" / "runai"


@pytest.fixture
def as_imported() -> Iterator[None]:
    """What ``init`` sets in the library ends with the test."""
    before = dict(vars(elastic))
    with torch.random.fork_rng(devices=[]):
        yield
    vars(elastic).clear()
    vars(elastic).update(before)


def run(name: str, *words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name, *words])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.mark.extended  # the same on numbers: libraries/test_runai_elastic, test_runai_ga_torch
@pytest.mark.usefixtures("as_imported")
def test_one_global_batch_on_four_gpus_trains_as_on_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    accuracies = []
    for gpus in ("1", "4"):
        run("mnist_torch.py", "--epochs", "2", "--gpus", gpus, monkeypatch=monkeypatch)
        shares, *epochs = capsys.readouterr().out.splitlines()
        assert shares.startswith(f"{gpus} GPUs x ")
        accuracies.append([float(line.split()[-1]) for line in epochs])
    assert accuracies[0] == pytest.approx(accuracies[1], abs=0.01), "sums in another order round otherwise, and no more"
    assert accuracies[0][-1] > 0.8


@pytest.mark.extended  # the same on numbers: libraries/test_runai_ga_torch
@pytest.mark.usefixtures("as_imported")
def test_accumulation_goes_on_from_a_checkpoint_between_two_updates_and_learns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("cifar10_torch.py", "--epochs", "3", monkeypatch=monkeypatch)
    resumed, *epochs = capsys.readouterr().out.splitlines()
    assert resumed == "goes on from a checkpoint after 32 micro-batches"
    assert [line.split(",")[0] for line in epochs] == [f"epoch {n}: {16 * n} updates" for n in (1, 2, 3)]
    assert float(epochs[-1].split()[-1]) > 0.8


@pytest.mark.extended
@pytest.mark.timeout(300)  # torch is imported twice, in processes that share the machine with others
def test_a_loop_of_ones_own_ends_alike_on_one_engine_and_on_three(tmp_path: Path) -> None:
    """On one core, where an engine has one thread whatever the number of slots is."""
    ends = [looped(tmp_path / slots, slots) for slots in ("1", "3")]
    assert ends[0] == ends[1]
    updates, right = ends[0].split(" updates; ")
    assert updates == "30"
    assert float(right.split()[0]) > 0.85


def looped(folder: Path, slots: str) -> str:
    """The last line of the script, run as a person runs it on a machine of so many slots."""
    folder.mkdir()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EDT_")}
    environ |= {"PYTHONPATH": str(RUNNERS), "EDT_CPU_SLOTS": slots, "EDT_DEVICES": "cpu", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "elastic_loop.py"), "--epochs", "2"],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=140,
        preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]
