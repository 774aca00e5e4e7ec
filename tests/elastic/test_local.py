"""``python main.py`` without a platform."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from edt_contract import processes
from support.gate import GateKeeper
from support.nursery import RUNNERS, TESTS
from support.training import SCRIPTS
from support.waiting import until

STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """A test that fails ends what it has started, so that it is the only one that fails."""
    yield
    while STARTED:
        with STARTED.pop() as process, suppress(ProcessLookupError):
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def gate(tmp_path: Path) -> GateKeeper:
    return GateKeeper(tmp_path / "gate")


def start(
    folder: Path, gate: GateKeeper, *arguments: object, slots: int = 2, main: Path = SCRIPTS / "conv.py"
) -> subprocess.Popen[str]:
    environ = {
        **os.environ,
        "PYTHONPATH": f"{TESTS}:{RUNNERS}",
        "EDT_CPU_SLOTS": str(slots),
        "EDT_DEVICES": "cpu",
        "TEST_GATE": str(gate.path),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    process = subprocess.Popen(
        [sys.executable, str(main), *map(str, arguments)],
        cwd=folder,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    STARTED.append(process)
    return process


def finish(process: subprocess.Popen[str], seconds: float = 60) -> tuple[str, str]:
    out, err = process.communicate(timeout=seconds)
    return out, err


def born_by(process: subprocess.Popen[str]) -> dict[int, int | None]:
    """All living processes below this one: pid -> when it was started, since a pid may come again."""
    return {pid: processes.start_time(pid) for pid in processes.descendants(process.pid)}


def living(born: dict[int, int | None]) -> list[int]:
    return [pid for pid, since in born.items() if since is not None and processes.start_time(pid) == since]


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "edt_result" / "conv" / "checkpoint").glob("at-*"))


def test_it_trains_on_local_engines_and_leaves_the_model_and_the_log_lines(tmp_path: Path, gate: GateKeeper) -> None:
    gate.open()
    process = start(tmp_path, gate, "--samples", 40)
    out, err = finish(process)
    assert process.returncode == 0, err
    assert "the code behind train() runs once" in out
    assert "step 3/6 · loss " in err and " · val_loss " in err and " worker" in err
    assert "eplicas were " in err, "what is true of the result is said here, too"
    result = tmp_path / "edt_result" / "conv"
    assert (result / "model/train/model_epoch_final.pth").exists()
    first = (result / "log/stdout").read_text().splitlines()[0]
    assert first.split(",\t")[2:4] == ["Global steps: 1", "Iteration: 4"]
    assert (result / "log/training.log").read_text().splitlines()[-1][10:].startswith("done: 2 epochs, 6 steps in ")
    assert [path.parent.name for path in sorted(result.rglob("*tfevents*"))] == ["train", "validation"]
    assert checkpoints(tmp_path) == []  # the training is over


def test_ctrl_c_leaves_a_checkpoint_and_the_same_command_goes_on(tmp_path: Path, gate: GateKeeper) -> None:
    seldom = ("--recovery", 600)  # the only checkpoint is that of who leaves
    process = start(tmp_path, gate, *seldom)
    gate.allow(6)
    gate.close()
    process.send_signal(signal.SIGINT)
    gate.until(lambda: process.poll() is not None, sparing=True)
    _, err = finish(process)
    assert process.returncode == 130
    [checkpoint] = checkpoints(tmp_path)
    step = int(checkpoint.name.removeprefix("at-"))  # in the first epoch
    assert f"Stopped at step {step} of 30. Run the same command" in err
    gate.open()
    again = start(tmp_path, gate, *seldom)
    _, err = finish(again)
    assert again.returncode == 0 and "Resuming from step" in err


def test_ctrl_c_while_the_supervisor_is_being_started_ends_in_a_sentence(tmp_path: Path, gate: GateKeeper) -> None:
    process = start(tmp_path, gate)
    until(lambda: born_by(process) or process.poll() is not None, 60)
    children = born_by(process)
    process.send_signal(signal.SIGINT)
    _, err = finish(process)
    assert process.returncode == 130, err
    assert "no step was under way" in err and "Traceback" not in err
    until(lambda: not living(children), 60)


def test_a_second_ctrl_c_kills_at_once_and_leaves_no_process(tmp_path: Path, gate: GateKeeper) -> None:
    process = start(tmp_path, gate)
    gate.close()  # the engines stand in a step: they cannot leave
    children = born_by(process)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None and any("Ctrl-C again kills" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    finish(process)
    assert process.returncode == 130
    until(lambda: not living(children), 60)


def test_an_engine_that_is_killed_is_told_in_one_sentence_with_the_way_on(tmp_path: Path, gate: GateKeeper) -> None:
    process = start(tmp_path, gate, slots=1)
    gate.close()
    os.kill(engines_of(process)[-1], signal.SIGKILL)
    _, err = finish(process)
    assert process.returncode == 1
    assert "was ended by signal 9" in err and "run the same command" in err
    assert "Traceback" not in err


def test_an_engine_that_is_killed_beside_another_is_replaced(tmp_path: Path, gate: GateKeeper) -> None:
    process = start(tmp_path, gate)
    # The training stands while one waits for a warm-up: let through, it could be over before a slow one is ready.
    until(lambda: gate.is_ready(1) and gate.is_ready(2), 60, "both are ready")
    gate.until(lambda: gate.workers() == 2)
    os.kill(engines_of(process)[0], signal.SIGKILL)
    until(lambda: gate.is_ready(3), 60, "3 is ready")
    gate.open()
    _, err = finish(process)
    assert process.returncode == 0, err


def engines_of(process: subprocess.Popen[str]) -> list[int]:
    found = []
    for pid in processes.descendants(process.pid):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "edt-engine":
                found.append(pid)
    return found


def test_a_dead_driver_leaves_no_engine(tmp_path: Path, gate: GateKeeper) -> None:
    process = start(tmp_path, gate)
    gate.close()
    children = born_by(process)
    process.kill()
    finish(process)
    until(lambda: not living(children), 60)


def test_an_exception_in_the_model_is_shown_once(tmp_path: Path, gate: GateKeeper) -> None:
    gate.open()
    main = tmp_path / "main.py"
    main.write_text((SCRIPTS / "conv.py").read_text().replace("nn.Linear(96, ", "nn.Linear(97, "))
    environ = {**os.environ, "PYTHONPATH": f"{TESTS}:{RUNNERS}", "EDT_CPU_SLOTS": "2", "EDT_DEVICES": "cpu"}
    done = subprocess.run(
        [sys.executable, str(main)], cwd=tmp_path, env=environ, text=True, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1 and "mat1 and mat2 shapes" in done.stderr


def test_two_runs_of_one_script_in_one_folder_are_refused(tmp_path: Path, gate: GateKeeper) -> None:
    process = start(tmp_path, gate)
    gate.close()
    second = start(tmp_path, gate)
    _, err = finish(second)
    assert second.returncode == 1 and "another run of this script is training in" in err
    gate.open()
    _, err = finish(process)
    assert process.returncode == 0, err


def test_train_returns_when_all_threads_of_ours_have_ended(tmp_path: Path, gate: GateKeeper) -> None:
    """However slow one is. The interpreter may end at once, and to a thread that is in torch then that is an abort."""
    gate.open()
    main = tmp_path / "main.py"
    main.write_text(f"{SLOW_TO_END}\n{(SCRIPTS / 'conv.py').read_text()}\n{THREADS}")
    process = start(tmp_path, gate, "--samples", 40, main=main)
    out, err = finish(process)
    assert process.returncode == 0, err
    assert out.splitlines()[-1] == "threads: MainThread"


SLOW_TO_END = """
import threading, time
from edt_runner.comm.connections import Watchdog

def slowly(self, serve=Watchdog._serve):
    serve(self)
    time.sleep(0.5)

Watchdog._serve = slowly
"""
THREADS = 'print("threads:", *(thread.name for thread in threading.enumerate()))'
