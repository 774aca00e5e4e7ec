"""The supervisor: forks from one thread, reaps, tells exits apart, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from edt_contract import processes
from edt_contract.attempt import DesiredState
from edt_contract.reports import ReportKind
from support.nursery import REAPS_LATE
from support.training import Elastic
from support.waiting import until

Attempt = Callable[..., Elastic]


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Write a user's main."""

    def write(text: str) -> Path:
        path = tmp_path / "main.py"
        path.write_text(textwrap.dedent(text))
        return path

    return write


TRAIN = """
import torch
from torch import nn
from fabric_model import FabricModel
from torch.utils.data import TensorDataset
from support.gate import Gate
net = nn.Linear(3, 2)
def data():
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(40, 3, generator=generator), torch.randint(0, 2, (40,), generator=generator)
    return TensorDataset(x, y), None
def train(**more):
    FabricModel(net, data, nn.functional.cross_entropy, torch.optim.SGD(net.parameters(), 0.1),
                worker_logger_callback=Gate.from_environment(), **more).train(2, 4, 2)
"""


def test_it_has_one_thread_whenever_it_forks(attempt: Attempt) -> None:
    with attempt("conv", "--samples", 40) as training:
        training.settle([1, 2, 3])
        assert len(list(Path(f"/proc/{training.supervisor.process.pid}/task").iterdir())) == 1
        assert training.finish()["kind"] == "finished"


def test_its_children_are_gone_with_it(attempt: Attempt) -> None:
    with attempt("conv") as training:
        training.settle([1, 2])
        children = processes.descendants(training.supervisor.process.pid)
        assert len(children) >= 4  # coordinator, driver, two engines
        training.supervisor.kill()
        training.gate.until(lambda: all(processes.start_time(pid) is None for pid in children))


def test_a_process_that_ended_is_no_zombie(attempt: Attempt) -> None:
    with attempt("conv") as training:
        training.settle([1, 2])
        pid = training.kinds(ReportKind.ENGINE_STARTED)[0]["pid"]
        training.settle([2])
        assert not Path(f"/proc/{pid}").exists()
        training.finish()


def test_what_an_engine_reports_last_comes_before_its_end(attempt: Attempt) -> None:
    """Also from a supervisor that has learnt of both at once: here of a joining engine that gives up."""
    environ = {"EDT_PULL_WEIGHT_TIME_OUT": "1", "EDT_PULL_FAILED_LIMITS": "0", REAPS_LATE: "0.3"}
    with attempt("conv", "--samples", 40, environ=environ) as training:
        training.settle([1])
        training.gate.close()
        training.hold([1, 2])
        training.supervisor.until(lambda report: report.kind is ReportKind.ENGINE_GONE)
        kinds = [report.kind for report in training.supervisor.reports]
    assert ReportKind.PULL_FAILED in kinds[: kinds.index(ReportKind.ENGINE_GONE)]


def test_an_exception_ends_the_attempt_with_the_users_own_traceback_once(attempt: Attempt, script) -> None:
    main = script(
        TRAIN
        + """
class Broken(nn.Linear):
    def forward(self, x):
        raise ValueError("no, this will not do")
net = Broken(3, 2)
train()
"""
    )
    with attempt(main) as training:
        training.hold([1, 2])
        end = training.finish()
        shown = (training.log_dir / "driver.err").read_text()
    assert end["kind"] == "script-error"
    assert end["message"] == "ValueError: no, this will not do"
    assert shown.count("Traceback") == 1 and shown.count("no, this will not do") == 2  # the line and its message
    assert "edt_runner" not in shown


def test_an_exception_before_train_is_shown_once_too(attempt: Attempt, script) -> None:
    with attempt(script("import not_there_at_all\n")) as training:
        training.hold([1, 2])
        end = training.finish()
        shown = (training.log_dir / "driver.err").read_text()
    assert end["kind"] == "script-error" and "not_there_at_all" in end["message"]
    assert shown.count("Traceback") == 1


@pytest.mark.parametrize(("ending", "kind", "code"), [("raise SystemExit(3)", "script-error", 3), ("", "finished", 0)])
def test_a_script_that_never_trains_ends_by_its_own_status(
    attempt: Attempt, script, ending: str, kind: str, code: int
) -> None:
    with attempt(script(ending)) as training:
        training.hold([1])
        end = training.finish()
    assert (end["kind"], end["code"]) == (kind, code)


def test_an_engine_that_ignores_everything_is_killed_after_the_grace(attempt: Attempt, script) -> None:
    main = script(
        TRAIN
        + """
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
class Stuck(nn.Linear):
    def forward(self, x):
        open("stuck", "w").close()
        time.sleep(600)
net = Stuck(3, 2)
train()
"""
    )
    with attempt(main, grace_seconds=0.5) as training:
        training.hold([1])
        training.gate.until((Path(training.spec.work_dir) / "stuck").exists)
        training.supervisor.set_desired(DesiredState(1, (), stop=True))
        end = training.finish()
        gone = training.kinds(ReportKind.ENGINE_GONE)[0]
    assert end["kind"] == "stopped"
    assert gone["signal"] == signal.SIGKILL


def test_it_ends_with_all_it_has_when_its_folder_was_taken_away_and_says_so_there(
    attempt: Attempt, tmp_path: Path
) -> None:
    """It may have slept while the platform gave its job up and moved the folder."""
    with attempt("conv", "--samples", 40) as training:
        training.settle([1])
        spool, moved = Path(training.spec.spool_dir), tmp_path / "moved"
        spool.rename(moved)
        until(lambda: training.supervisor.process.poll() is not None, 60, "it has ended")
        last = json.loads((moved / "reports.jsonl").read_text().splitlines()[-1])
        assert (last["kind"], last["body"]["kind"]) == ("attempt-ended", "lost")
        assert last["body"]["message"] == f"{spool} is gone"


def test_a_desired_state_of_another_fence_is_ignored(attempt: Attempt) -> None:
    with attempt("conv", "--samples", 40) as training:
        training.settle([1])
        training.supervisor.set_desired(DesiredState(99, (), stop=True))
        assert training.finish()["kind"] == "finished"


def test_a_main_may_replace_signal_handlers_and_define_classes_and_read_arguments(attempt: Attempt, script) -> None:
    main = script(
        TRAIN
        + """
import argparse, pickle, signal, sys
signal.signal(signal.SIGTERM, lambda *_: print("mine"))
signal.signal(signal.SIGCHLD, lambda *_: None)
class Mine: pass
pickle.loads(pickle.dumps(Mine()))
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
assert parser.parse_args().rate == 0.5
train()
print("main", sys.argv[1:])
"""
    )
    with attempt(main, "--rate", "0.5") as training:
        training.settle([1])
        training.hold([1, 2])
        assert training.finish()["kind"] == "finished"
        assert "main ['--rate', '0.5']" in (training.log_dir / "driver.out").read_text()


def test_a_main_that_prints_without_end_fills_no_disk(attempt: Attempt, script) -> None:
    main = script(
        TRAIN
        + """
for number in range(3000):
    print(number, "x" * 1000)
train()
"""
    )
    with attempt(main, environ={"EDT_LOG_LIMIT_MIB": "1"}) as training:
        training.hold([1])
        assert training.finish()["kind"] == "finished"
        sizes = {path.name: path.stat().st_size for path in training.log_dir.glob("driver.out*")}
        last = (training.log_dir / "driver.out").read_text()
    assert set(sizes) == {"driver.out", "driver.out.1"} and max(sizes.values()) <= 1 << 20
    assert re.search(r"^2999 ", last, re.M)


def test_a_grandchild_of_user_code_does_not_outlive_the_attempt(attempt: Attempt, script, tmp_path: Path) -> None:
    main = script(
        TRAIN
        + f"""
import subprocess
from edt_runner import context
if context.current().role == "driver":
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
train()
"""
    )
    with attempt(main) as training:
        training.hold([1])
        assert training.finish()["kind"] == "finished"
    assert processes.start_time(int((tmp_path / "pid").read_text())) is None


def test_sigterm_to_the_supervisor_means_leave(attempt: Attempt) -> None:
    with attempt("conv") as training:
        training.settle([1, 2])
        os.kill(training.supervisor.process.pid, signal.SIGTERM)
        training.gate.until(training.over, sparing=True)
        assert training.kinds(ReportKind.ATTEMPT_ENDED)[0]["kind"] == "left"
        assert training.kinds(ReportKind.CHECKPOINTED)


def test_engines_with_different_data_are_a_clear_error(attempt: Attempt, script) -> None:
    main = script(TRAIN.replace("manual_seed(1)", "manual_seed(__import__('os').getpid())") + "train()\n")
    with attempt(main) as training:
        training.hold([1])
        end = training.finish()
    assert end["kind"] == "script-error"
    assert "first training sample" in end["message"] and "same data" in end["message"]


def test_reports_are_numbered_without_a_gap(attempt: Attempt) -> None:
    with attempt("conv", "--samples", 40) as training:
        training.settle([1, 2])
        training.finish()
        assert [report.seq for report in training.supervisor.reports] == list(
            range(1, len(training.supervisor.reports) + 1)
        )


def test_a_loss_that_diverges_is_a_result_like_any_other_if_the_user_says_so(attempt: Attempt, script) -> None:
    diverges = TRAIN.replace("nn.functional.cross_entropy", "lambda o, t: o.sum() * float('nan')")
    main = script(diverges.replace("train(2, 4, 2)", "train(2, 4, 2, on_nonfinite='continue')") + "train()\n")
    with attempt(main) as training:
        training.settle([1])
        assert training.finish()["kind"] == "finished"
        assert "Loss: nan" in (training.log_dir / "stdout").read_text()


def test_a_script_trains_once(attempt: Attempt, script) -> None:
    with attempt(script(TRAIN + "train()\ntrain()\n")) as training:
        training.hold([1])
        end = training.finish()
    assert end["kind"] == "script-error" and "called a second time" in end["message"]
