"""Scripts in the shape of WMLA's samples that are not elastic, submitted by REST and by dlicmd, on a whole platform."""

from __future__ import annotations

import io
import re
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from support.credentials import PASSWORD
from support.dlicmd import Dlicmd
from support.gangs import GangJob, submit
from support.journey import platform_in, visit
from support.running_platform import EXECS, Platform

pytestmark = [pytest.mark.extended, pytest.mark.lane("processes"), pytest.mark.timeout(300)]

SAMPLES = Path(__file__).parent / "samples_other"
DATA = "--cs-datastore-meta type=fs,data_path=digits"


@pytest.fixture(scope="module")
def shared_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_in(tmp_path_factory.mktemp("platform"), slots=2, EDT_WARM="0") as platform:
        digits = load_digits()
        place = platform.home / "data" / "digits"
        place.mkdir(parents=True, exist_ok=True)
        images = (digits.images[:320, None] / 16).astype(np.float32)
        np.savez(place / "digits.npz", train_x=images, train_y=digits.target[:320].astype(np.int64))
        yield platform


@pytest.fixture
def platform(shared_platform: Platform) -> Iterator[Platform]:
    with visit(shared_platform) as platform:
        yield platform


def run(platform: Platform, framework: str, sample: str, options: str = "") -> GangJob:
    """The sample as it is, submitted as a single file, when it has finished."""
    file = SAMPLES / sample
    answer = platform.api.post(
        EXECS,
        params={"args": f"--exec-start {framework} --model-main {sample} {DATA} {options}"},
        files={"file": (sample, file.read_bytes())},
    )
    assert answer.status_code == 200, answer.text
    job = GangJob(platform, str(answer.json()["id"]))
    platform.checker.acknowledge(job.id)
    platform.jobs.append(job.id)
    job.finish(200)
    return job


def result(job: GangJob) -> set[str]:
    """The names in the zip file of the result."""
    answer = job.platform.api.get(f"{EXECS}/{job.id}/result")
    assert answer.status_code == 200, answer.text
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        return set(archive.namelist())


def falls(numbers: list[str]) -> bool:
    losses = [float(number) for number in numbers]
    return len(losses) >= 2 and losses[-1] < losses[0]


def test_a_single_script_of_pytorch_gets_its_own_options_and_none_of_the_platforms(platform: Platform) -> None:
    options = "--workerDeviceNum 1 --workerMemory 2g --epochs 4 --batch-size 32"
    job = run(platform, "PyTorch", "single.py", options)
    log = job.log()
    assert "'batch_size': 32, 'epochs': 4" in log and "devices: none" in log
    assert falls(re.findall(r"Loss: (\S+)", log))
    assert result(job) == {"digits.pt"}


def test_a_single_script_that_asks_for_two_workers_has_one(platform: Platform) -> None:
    job = run(platform, "PyTorch", "single.py", "--numWorker 2 --epochs 1")
    assert len(job.nodes()) == 1
    assert job.events()[0].startswith("PyTorch takes at most 1 worker, so 2 count as 1")


def test_two_slots_of_one_process_double_its_threads(platform: Platform) -> None:
    one, two = (run(platform, "PyTorch", "single.py", f"--workerDeviceNum {number} --epochs 1") for number in (1, 2))
    threads = [int(re.findall(r"threads: (\d+)", job.log())[0]) for job in (one, two)]
    assert threads[1] == 2 * threads[0]
    assert len(two.nodes()) == 2


def test_a_distributed_script_of_pytorch_ends_with_the_same_weights_in_all_processes(platform: Platform) -> None:
    job = run(platform, "distPyTorch", "distributed.py", "--numWorker 2 --epochs 2")
    outputs = [job.executor(number) for number in (1, 2)]
    assert [re.findall(r"rank (\d) of 2", output) for output in outputs] == [["0"], ["1"]]
    assert len({re.findall(r"weights: (\S+)", output)[0] for output in outputs}) == 1
    assert falls(re.findall(r"epoch  \d :  (\S+)", outputs[0]))
    assert result(job) == {"digits.pt"}


@pytest.mark.tensorflow
def test_a_single_script_of_tensorflow_makes_the_folder_of_its_model_itself(platform: Platform) -> None:
    job = run(platform, "tensorflow", "single_tensorflow.py")
    assert falls(re.findall(r"loss: (\S+)", job.log()))
    assert f"Saved in {job.folder}/model" in job.log()
    assert result(job) == {"digits.keras"}


@pytest.mark.tensorflow
def test_a_distributed_script_of_tensorflow_trains_with_keras_2(platform: Platform) -> None:
    options = "--numWorker 2 --msd-env TF_USE_LEGACY_KERAS=1 --epochs 3"
    job = run(platform, "disttensorflow", "distributed_tensorflow.py", options)
    for worker in range(2):
        assert f"worker {worker} of 2 type worker unknown: []" in job.output(worker)
    assert falls(re.findall(r"[\d.e-]+", job.log().partition("losses: ")[2].partition("]")[0]))
    assert "saved_model.pb" in result(job)


# ── dlicmd ────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def command(shared_platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Dlicmd:
    """The command of the administrator, who is logged on."""
    command = Dlicmd(tmp_path_factory.mktemp("admin"), shared_platform.url)
    assert command("--logon", "--username", "admin", "--password", PASSWORD).status == 0
    return command


def started(platform: Platform, command: Dlicmd, *words: str) -> GangJob:
    """A job that was started by these words, when it has finished by dlicmd's own word."""
    done = command("--exec-start", *words)
    assert done.status == 0, done.err
    job = GangJob(platform, str(done.json["execId"]))
    platform.checker.acknowledge(job.id)
    platform.jobs.append(job.id)
    deadline = time.monotonic() + 200
    while (state := command("--exec-get", job.id).json["state"]) not in {"FINISHED", "ERROR", "KILLED"}:
        assert time.monotonic() < deadline, state
        time.sleep(0.5)
    assert state == "FINISHED", platform.errors(job.id)
    return job


def test_dlicmd_starts_a_script_and_shows_its_logs_and_its_result(platform: Platform, command: Dlicmd) -> None:
    words = ("--model-main", str(SAMPLES / "single.py"), *DATA.split(), "--", "--epochs", "2", "--no-cuda", "true")
    job = started(platform, command, "PyTorch", *words)
    log = job.log()
    assert "'epochs': 2" in log and "'no_cuda': True" in log
    assert log in command("--exec-trainoutlogs", job.id).out
    shown = command("--exec-outlogs", job.id).out
    assert "Executor 1 stdout" in shown and "Driver stdout" not in shown and log in shown
    table = command("--exec-get-all").out
    [line] = [line for line in table.splitlines() if f"{job.id} " in line]
    assert "PyTorch" in line and "PARALLEL" in line
    done = command("--exec-trainresult", job.id)
    name = done.out.split("Train result is saved to ")[1].strip()
    with zipfile.ZipFile(command.home / name) as archive:
        assert archive.namelist() == ["digits.pt"]


def test_dlicmd_runs_a_command_in_the_submitted_folder(platform: Platform, command: Dlicmd) -> None:
    folder = command.home / "net"
    folder.mkdir()
    (folder / "run.sh").write_text(
        'echo "worker $NODE_RANK of $WMLA_NWORKER runs $1 in $(basename "$PWD")"\npython "$1"\n'
    )
    (folder / "train.py").write_text("print('trained')\n")
    words = ("--model-dir", str(folder), "--numWorker", "2", "--user-cmd", "--", "bash", "run.sh", "train.py")
    job = started(platform, command, "distPyTorch", *words)
    for worker in range(2):
        assert job.executor(worker + 1) == f"worker {worker} of 2 runs train.py in net\ntrained\n"


def test_dlicmd_runs_a_command_without_any_files(platform: Platform, command: Dlicmd) -> None:
    job = started(platform, command, "PyTorch", "--user-cmd", "--", "python", "-c", "print('no files')")
    assert job.log() == "no files\n"


def test_dlicmd_lists_the_frameworks_that_are_not_elastic(platform: Platform, command: Dlicmd) -> None:
    shown = command("--dl-frameworks").out
    for name in ("PyTorch", "distPyTorch", "tensorflow", "disttensorflow", "edtPyTorch", "edtTensorflow"):
        assert f"Name: {name}\n" in shown


def test_a_command_for_an_elastic_framework_is_refused_with_the_framework_to_use(platform: Platform) -> None:
    answer = platform.api.post(EXECS, params={"args": "--exec-start edtPyTorch --user-cmd -- python -V"})
    assert answer.status_code == 400
    assert "distPyTorch" in answer.text


def test_a_script_whose_process_fails_shows_the_last_line_of_its_error(platform: Platform, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("raise ValueError('no such data set')\n")
    job = submit(platform, "--exec-start PyTorch --model-main main.py", tmp_path / "main.py")
    end = job.wait("ERROR")
    assert "ValueError: no such data set" in end["message"]
    assert "ValueError: no such data set" in job.log(logType="errlog")
