"""The frameworks of gangs with their real libraries, on one node and on two: DDP, torchrun, TensorFlow, Open MPI."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.gangs import EXAMPLES, SCRIPTS, GangJob, add_framework, closed, first_node, learned, spread, submit, typed
from support.journey import platform_in, visit
from support.running_platform import Platform
from support.waiting import until

pytestmark = pytest.mark.timeout(300)  # the libraries are imported several times, and a machine may be busy


@pytest.fixture(scope="module")
def shared_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Two nodes of two CPU slots each."""
    with platform_in(tmp_path_factory.mktemp("platform"), slots=2, EDT_WARM="0") as platform:
        platform.add_node("second", 2)
        yield platform


@pytest.fixture
def platform(shared_platform: Platform) -> Iterator[Platform]:
    with visit(shared_platform) as platform:
        yield platform


@pytest.mark.extended  # with torchrun: the test above
@pytest.mark.parametrize(("workers", "devices"), [(2, 1), (2, 2)], ids=["one node", "two nodes"])
def test_a_script_with_distributed_data_parallel_runs_as_it_is(platform: Platform, workers: int, devices: int) -> None:
    job = typed(
        platform,
        f"edt submit examples/torchrun --framework distPyTorch -n {workers} --gpus-per-worker {devices} "
        "--main train.py -- --epochs 5",
    )
    job.finish(200)
    assert spread(job) == devices
    learned(job)
    world = workers * devices
    assert [job.output(rank).splitlines()[0] for rank in range(world)] == [
        f"rank {rank} of {world} begins at step 0" for rank in range(world)
    ]


@pytest.mark.extended  # what moves it: journeys/test_gangs
@pytest.mark.parametrize("example", ["torchrun", "mpirun"])
def test_the_examples_go_on_from_their_checkpoint_on_another_node(
    platform: Platform, framework_mpi: None, example: str
) -> None:
    words = {
        "torchrun": "edt submit examples/torchrun --framework distPyTorch -n 2 --user-cmd -- bash train.sh --pace 0.1",
        "mpirun": "edt submit examples/mpirun/train.py --framework mpi -n 2 -- --pace 0.1",
    }
    with closed(platform, first_node(platform), "cordon"):
        job = typed(platform, words[example])
        until(lambda: "epoch 1," in job.output(), 90, "the first epoch")
    with closed(platform, "second"):
        end = job.finish(200)
    assert (end["attempts"], set(job.nodes(1)), set(job.nodes(2))) == (2, {"second"}, {first_node(platform)})
    begins = [int(number) for number in re.findall(r"rank 0 of 2 begins at step (\d+)", job.output())]
    leaves = [int(number) for number in re.findall(r"rank 0 leaves after step (\d+)", job.output())]
    assert begins == [0, *leaves]
    learned(job)


@pytest.fixture(scope="module")
def framework_mpi(shared_platform: Platform) -> None:
    """The entry of the example stands in the catalogue."""
    add_framework(shared_platform, EXAMPLES / "mpirun" / "mpi.toml")


@pytest.mark.extended
@pytest.mark.tensorflow
@pytest.mark.parametrize(("workers", "devices"), [(2, 1), (2, 2)], ids=["one node", "two nodes"])
def test_keras_2_under_the_multi_worker_mirrored_strategy(platform: Platform, workers: int, devices: int) -> None:
    options = f"--numWorker {workers} --workerDeviceNum {devices} --msd-env TF_USE_LEGACY_KERAS=1"
    job = submit(platform, f"--exec-start disttensorflow --model-main mirrored.py {options}", SCRIPTS / "mirrored.py")
    job.finish(200)
    assert spread(job) == devices
    for worker in range(workers):
        assert f"worker {worker} of {workers}, replicas {workers}, tf_keras" in job.output(worker)
    first, *_, last = (float(number) for number in job.log().partition("losses ")[2].split())
    assert last < first / 3
    assert (job.folder / "model" / "line.h5").is_file()


# ── other ways to start a gang ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.extended  # what becomes of the args: api/test_submission
def test_a_command_needs_no_upload(platform: Platform) -> None:
    code = "import os; print('slots', os.environ['WMLA_WORKER_NDEVICE'], 'in', os.path.basename(os.getcwd()))"
    job = submit(platform, f"--exec-start PyTorch --workerDeviceNum 2 --user-cmd -- python -c {shlex.quote(code)}")
    job.finish()
    assert job.log().startswith("slots 2 in ")
    [allocations] = {tuple(job.nodes())}
    assert len(allocations) == 2 and len(set(allocations)) == 1


@pytest.mark.extended
@pytest.mark.parametrize("framework", ["PyTorch", "distPyTorch"])
def test_a_model_that_is_built_in_trains_on_generated_data(platform: Platform, framework: str) -> None:
    options = "--epochs 1 --batch-size 2 --lr 0.01 --momentum 0.9"
    job = submit(
        platform, f"--exec-start {framework} --pbmodel-name ResNet18 --pbmodel-cmd train --numWorker 2 {options}"
    )
    job.finish(250)
    assert re.search(r"[Ll]oss", job.log())
    assert any((job.folder / "model").iterdir())


@pytest.mark.extended
def test_a_plain_loop_that_was_submitted_as_elastic_is_told_so_in_its_first_event(
    platform: Platform, tmp_path: Path
) -> None:
    (tmp_path / "main.py").write_text("print('no elastic training here')\n")
    job = platform.submit(tmp_path / "main.py", "--numWorker 2")
    platform.wait(job, "FINISHED")
    first, *_ = GangJob(platform, job).events()
    assert "not elastic" in first and "distPyTorch" in first
