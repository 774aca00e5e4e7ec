"""A user's own PyTorch loop, by any number of engines: the same bits, and the loop sees how many there are."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from edt_demo import sample_record as record
from support import crashes
from support.nursery import RUNNERS, Nursery
from support.training import Elastic, spec_for

Attempt = Callable[..., Elastic]
STEPS = 2 * 14
"""Two epochs of 237 samples, 18 an update."""
RATE = 1e-2 * 0.8 ** (STEPS // 5)


def looping(folder: Path, nursery: Nursery, *arguments: object, script: str = "own_loop", fence: int = 1) -> Elastic:
    """A job of at most four engines, so that 18 samples are four micro-batches of 5, 5, 4 and 4."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = spec_for(folder, script, *arguments, fence=fence, max_engines=4, environ={"TEST_SEEN": str(folder)})
    return Elastic(spec, nursery.start)


def seen(training: Elastic, what: str) -> list[list[str]]:
    path = Path(training.spec.environ["TEST_SEEN"], what)
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def shares(training: Elastic) -> set[tuple[int, int]]:
    """What ``runai.elastic`` has been in the loop's body: gpus, steps."""
    return {(int(gpus), int(steps)) for _, _, _, gpus, steps, *_ in seen(training, "body")}


@pytest.fixture(scope="module")
def alone(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Elastic:
    """One engine's training, over."""
    with looping(tmp_path_factory.mktemp("alone"), nursery) as training:
        training.settle([1])
        training.end = training.finish()  # type: ignore[attr-defined]
    return training


@pytest.fixture(scope="module")
def digest(alone: Elastic) -> str:
    end: dict[str, Any] = alone.end  # type: ignore[attr-defined]
    assert end["kind"] == "finished", end
    return str(end["digest"])


@pytest.mark.parametrize("engines", [pytest.param(2, marks=pytest.mark.extended), 3])
def test_any_number_of_engines_gives_the_bits_of_one(
    nursery: Nursery, tmp_path: Path, digest: str, engines: int
) -> None:
    with looping(tmp_path, nursery, "--loaders", 1) as training:
        training.settle(range(1, engines + 1))
        assert training.finish()["digest"] == digest


def test_joins_a_leave_and_a_kill_change_nothing_and_the_loop_sees_them(
    nursery: Nursery, tmp_path: Path, digest: str
) -> None:
    """1 → 2 → 3, the second is killed, the first leaves, and the third goes on alone."""
    with looping(tmp_path, nursery) as training:
        for engines in ([1], [1, 2], [1, 2, 3]):
            training.settle(engines)
        training.gate.until(lambda: shares(training) >= {(1, 4), (2, 2), (3, 2), (3, 1)})
        crashes.kill(training, [2], signal.SIGKILL)
        training.gate.until(lambda: 2 in crashes.gone(training), sparing=True)
        training.settle([3])
        end = training.finish()
        assert crashes.gone(training)[2] == "lost"
    assert end["digest"] == digest
    audits = record.audit(record.read(training.sample_record), samples=237, epochs=2)
    assert all(not audit.lost and not audit.repeated for audit in audits)
    places = [(int(epoch), int(step)) for _, epoch, step, *_ in seen(training, "body")]
    assert all(step // 14 == epoch for epoch, step in places)
    assert {size for *_, size, _ in seen(training, "body")} == {"5"}
    masters = seen(training, "master")
    assert {engine for engine, _ in masters} >= {"3"} and {int(step) for _, step in masters} == set(range(STEPS))


def test_an_engine_that_comes_later_begins_at_the_trainings_present_place(nursery: Nursery, tmp_path: Path) -> None:
    with looping(tmp_path, nursery, "--samples", 72, "--epochs", 4) as training:
        training.settle([1])
        training.gate.allow(3)
        training.gate.close()
        training.settle([1, 2])
        training.finish()
    first = min(int(step) for engine, _, step, *_ in seen(training, "body") if engine == "2")
    assert first >= 3


def test_all_leave_and_the_next_attempt_goes_on_where_the_loop_was(
    nursery: Nursery, tmp_path: Path, digest: str
) -> None:
    """The one of them by a signal that reaches it while its loop is at work, or waits."""
    with looping(tmp_path, nursery) as training:
        training.settle([1, 2])
        os.kill(crashes.pid_of(training, 2), signal.SIGTERM)
        training.gate.until(lambda: crashes.gone(training).get(2) == "left", sparing=True)
        training.hold([])
        training.gate.until(training.over, sparing=True)
    with looping(tmp_path, nursery, fence=2) as training:
        training.settle([3, 4])
        assert training.finish()["digest"] == digest
        assert "Resuming from step" in (training.log_dir / "driver.err").read_text()
    [[_, epoch, step, rate, moves]] = seen(training, "after")
    assert (int(epoch), int(step), int(moves)) == (2, STEPS, STEPS) and float(rate) == pytest.approx(RATE)


def test_the_loop_ends_in_the_driver_with_the_trained_weights(alone: Elastic, digest: str) -> None:
    """The code behind it runs there, once; the body does not."""
    [[weights, epoch, step, rate, moves]] = seen(alone, "after")
    model = torch.load(Path(alone.spec.result_dir) / "model/train/model_epoch_final.pth", weights_only=True)
    assert weights == hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in model.values())).hexdigest()
    assert (int(epoch), int(step), int(moves)) == (2, STEPS, STEPS)
    assert float(rate) == pytest.approx(RATE)
    assert {engine for engine, *_ in seen(alone, "body")} == {"1"}


def test_a_loop_in_one_engine_has_each_update_in_its_micro_batches(alone: Elastic, digest: str) -> None:
    sizes: dict[int, list[int]] = {}
    for _, _, step, gpus, steps, size, samples in seen(alone, "body"):
        assert (gpus, steps, size) == ("1", "4", "5")
        sizes.setdefault(int(step), []).append(int(samples))
    assert all(sizes[step] == [5, 5, 4, 4] for step in range(13))
    assert sum(map(sum, sizes.values())) == 2 * 237
    assert sum(sizes[13]) == 237 - 13 * 18


def test_what_the_loop_reports_is_in_the_log(alone: Elastic, digest: str) -> None:
    lines = (alone.log_dir / "stdout").read_text().splitlines()
    assert len(lines) == STEPS
    assert "Loss: nan" not in lines[-1] and "Accuracy: 0.0" not in lines[-1]


@pytest.mark.parametrize(
    "trouble, error",
    [
        ("raise", "RuntimeError: the body has a bad day"),
        ("break", "UsageError: runai.elastic.torch.loader(): the loop was left by break or return"),
        ("sample", "OSError: sample 100 cannot be read"),
        ("rate", "UsageError: runai.elastic.torch.loader(): the body of the loop has changed parameters or the opt"),
    ],
    ids=lambda value: value.partition(":")[0],
)
def test_what_goes_wrong_in_the_loop_ends_the_job_and_is_shown_once(
    nursery: Nursery, tmp_path: Path, trouble: str, error: str
) -> None:
    with looping(tmp_path, nursery, "--trouble", trouble) as training:
        training.hold([1])
        end = training.finish()
        shown = (training.log_dir / "driver.err").read_text()
    assert end["kind"] == "script-error"
    assert end["message"].startswith(error)
    assert shown.count("Traceback") == 1 and "own_loop.py" in shown and error in shown
    assert not seen(training, "after")


def test_an_engine_whose_loop_was_given_up_is_not_taken_for_one_without_a_training(
    nursery: Nursery, tmp_path: Path
) -> None:
    """Its script catches what the body raises, and comes to its end."""
    with looping(tmp_path, nursery, "--trouble", "caught") as training:
        training.hold([1])
        end = training.finish()
    assert end["kind"] == "script-error"
    assert "before runai.elastic.torch.loader() was through" in end["message"]


# ── openedt.loader ────────────────────────────────────────────────────────────────────────────────────────────
EVERYTHING = "scaled,steps,clip,two,average,validated"


def natural(folder: Path, nursery: Nursery, *arguments: object, fence: int = 1) -> Elastic:
    return looping(folder, nursery, *arguments, script="natural_loop", fence=fence)


def undisturbed(folder: Path, nursery: Nursery, *arguments: object) -> tuple[str, str]:
    """The digest of one engine's training, and what its driver knows after the loop."""
    with natural(folder, nursery, *arguments) as training:
        training.settle([1])
        end = training.finish()
    assert end["kind"] == "finished", end
    return str(end["digest"]), (folder / "after").read_text()


@pytest.mark.parametrize("wishes", [EVERYTHING, "hook", pytest.param("hook,scaled,clip", marks=pytest.mark.extended)])
def test_what_is_at_its_natural_place_has_the_same_bits_over_a_join_a_leave_and_a_kill(
    nursery: Nursery, tmp_path: Path, wishes: str
) -> None:
    """1 → 3, the first leaves, the second is killed, and the third goes on alone."""
    digest, after = undisturbed(tmp_path / "alone", nursery, "--with", wishes)
    with natural(tmp_path / "moved", nursery, "--with", wishes) as training:
        training.settle([1])
        training.settle([1, 2, 3])
        training.settle([2, 3])
        crashes.kill(training, [2], signal.SIGKILL)
        training.gate.until(lambda: 2 in crashes.gone(training), sparing=True)
        training.settle([3])
        end = training.finish()
    assert end["kind"] == "finished" and crashes.gone(training)[2] == "lost"
    assert end["digest"] == digest
    assert (tmp_path / "moved" / "after").read_text() == after
    if wishes == EVERYTHING:  # steps were left out, and their schedulers stood still
        *_, last = after.splitlines()
        assert 0 < int(last.split()[0]) < 2 * 9 and "val_accuracy" in after


@pytest.mark.parametrize(
    "trouble, engines, error",
    [
        ("noise", [1], "the gradients were changed between backward() and optimizer.step()"),
        pytest.param("leader", [1, 2], "did not take the same steps for all micro-batches", marks=pytest.mark.extended),
    ],
)
def test_what_would_act_on_one_micro_batch_alone_ends_the_job_with_what_to_write(
    nursery: Nursery, tmp_path: Path, trouble: str, engines: list[int], error: str
) -> None:
    with natural(tmp_path, nursery, "--trouble", trouble) as training:
        training.hold(engines)
        if len(engines) > 1:  # the training must not be over before they have met
            training.await_ready(engines)
            training.gate.until(training.over, sparing=True)
        end = training.finish()
        shown = (training.log_dir / "driver.err").read_text()
    assert end["kind"] == "script-error"
    assert end["message"].startswith("UsageError: openedt.loader(): ") and error in end["message"]
    assert shown.count("Traceback") == 1 and "natural_loop.py" in shown
    assert not (tmp_path / "after").exists()


@pytest.mark.extended
def test_all_leave_and_the_next_attempt_has_the_scale_the_schedules_and_the_average(
    nursery: Nursery, tmp_path: Path
) -> None:
    digest, after = undisturbed(tmp_path / "alone", nursery, "--with", EVERYTHING)
    with natural(tmp_path / "moved", nursery, "--with", EVERYTHING) as training:
        training.settle([1, 2])
        training.hold([])
        training.gate.until(training.over, sparing=True)
    with natural(tmp_path / "moved", nursery, "--with", EVERYTHING, fence=2) as training:
        training.settle([3, 4])
        assert training.finish()["digest"] == digest
    assert (tmp_path / "moved" / "after").read_text() == after


def test_the_example_ends_with_the_same_weights_in_one_process_and_in_three_engines(tmp_path: Path) -> None:
    """As a user runs it: python elastic.py, and with three slots."""
    script = RUNNERS.parent / "examples" / "own_loop" / "elastic.py"
    environ = {**os.environ, "PYTHONPATH": str(RUNNERS), "EDT_DEVICES": "cpu", "OMP_NUM_THREADS": "1"}
    environ |= {"GLOO_SOCKET_IFNAME": "lo"}
    said = []
    for slots in ("1", "3"):
        run = subprocess.run(
            [sys.executable, str(script)],
            cwd=tmp_path,
            env={**environ, "EDT_CPU_SLOTS": slots},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        said.append(run.stdout.splitlines()[-3:])
    assert said[0] == said[1]
    accuracy = re.search(r"average: (\d\.\d+)", said[0][1])
    assert accuracy is not None and float(accuracy[1]) > 0.95
