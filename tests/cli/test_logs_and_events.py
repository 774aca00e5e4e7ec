"""`edt logs` and `edt events` of jobs whose files and reports are given, against a real API."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_api.access import tokens
from edt_cli import events
from edt_contract.reports import ExitKind, ReportKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.operations import accounts
from edt_scheduler.views import JobView
from support.puppets import Puppet
from support.served_api import ServedApi, served
from support.typed import Done, edt

COURSE = (
    "2026-11-26\n14:30:05  started: 1 epoch · attempt 1\n14:30:09  note: they were equal.\n14:30:09  done: 1 epoch\n"
)
WMLA = "[2026-11-26 14:30:07] Train,\tLoss: 1\n[2026-11-26 14:30:08] Test,\tLoss: 2\n"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("EDT_")]:
            patch.delenv(name)
        with served(tmp_path_factory.mktemp("home")) as api:
            yield api


def typed(api: ServedApi, folder: Path, *words: str) -> Done:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDT_")}
    token = tokens.issue(api.platform, accounts.user(api.platform, "admin"), 600)
    return edt(list(words), {**kept, "EDT_API": api.url, "EDT_TOKEN": token, "NO_COLOR": "1"}, folder)


def with_files(api: ServedApi, **texts: str) -> JobView:
    """A job with these files in its log; in a name ``_`` stands for a point and ``__`` for a hyphen."""
    job = api.submit()
    for name, text in texts.items():
        (job.log_dir / name.replace("__", "-").replace("_", ".")).write_text(text)
    return job


def test_the_log_of_the_training_comes_first_and_a_note_once(api: ServedApi, tmp_path: Path) -> None:
    output = "Using pytorch backend.\nTimestamp 1, Iteration 4\nIteration 4: tag test_loss, simple_value 1\nmine\n"
    job = with_files(api, training_log=COURSE, stdout=WMLA, driver_out=output, driver_err="they were equal.\n")
    done = typed(api, tmp_path, "logs", job.exec_id)
    assert done.stdout == COURSE.replace("14:30:09  note: they were equal.\n", "") + "Using pytorch backend.\nmine\n"
    assert done.stderr == "they were equal.\n"
    assert typed(api, tmp_path, "logs", job.exec_id, "--stream", "training").stdout == COURSE
    assert typed(api, tmp_path, "logs", job.exec_id, "--stream", "elog").stdout == WMLA
    assert typed(api, tmp_path, "logs", job.exec_id, "--driver").stdout == output
    assert typed(api, tmp_path, "logs", job.exec_id, "--driver", "--stream", "err").stdout == ""


def test_of_a_job_of_an_earlier_release_the_loggers_lines_stand_in_its_place(api: ServedApi, tmp_path: Path) -> None:
    job = with_files(api, stdout=WMLA, driver_out="mine\n")
    assert typed(api, tmp_path, "logs", job.exec_id).stdout == WMLA.splitlines(True)[1] + "mine\n"


def test_an_engine_goes_by_the_number_that_the_list_shows(api: ServedApi, tmp_path: Path) -> None:
    texts = {f"engine__{number}_{kind}": f"{number} {kind}\n" for number in (3, 4, 5, 9, 12) for kind in ("out", "err")}
    job = with_files(api, **texts)
    done = typed(api, tmp_path, "logs", job.exec_id, "--engine", "9")
    assert (done.stdout, done.stderr) == ("9 out\n", "9 err\n")
    done = typed(api, tmp_path, "logs", job.exec_id, "--engine", "9", "--stream", "err")
    assert (done.stdout, done.stderr) == ("", "9 err\n")
    done = typed(api, tmp_path, "logs", job.exec_id, "--engine", "7")
    assert done.returncode == 2
    assert done.stderr == f"edt: --engine 7: {job.exec_id} has had engines 3 to 5, 9, 12\n"
    nothing = api.submit()
    done = typed(api, tmp_path, "logs", nothing.exec_id, "--engine", "1")
    assert done.stderr == f"edt: --engine 1: {nothing.exec_id} has had no engine yet\n"


@pytest.mark.parametrize("option", [("--engine", "1"), ("--driver",)])
def test_a_gang_has_neither_engines_nor_a_driver(api: ServedApi, tmp_path: Path, option: tuple[str, ...]) -> None:
    gang = api.submit(args="--exec-start distPyTorch --numWorker 3 --model-main main.py")
    done = typed(api, tmp_path, "logs", gang.exec_id, *option)
    assert done.returncode == 2 and "gang" in done.stderr and "--rank 0" in done.stderr


def test_the_history_of_a_job_tells_the_cause_and_the_pause_of_a_resize_and_what_was_lost(tmp_path: Path) -> None:
    with served(tmp_path / "home") as api:
        job = api.submit(args="--exec-start edtPyTorch --numWorker 2 --model-main main.py").exec_id
        node = Puppet(api.platform, name="n1", slots=2).join()
        for _ in range(4):
            look(api.platform)
            node.obey()
        engines = sorted(node.running[job, 1])
        resized = {"generation": 2, "step": 7, "workers": 2, "joined": engines[1:], "left": []}
        node.report((job, 1), ReportKind.RESIZED, pause_seconds=0.25, **resized)
        node.report((job, 1), ReportKind.CHECKPOINTED, step=10)
        node.gone((job, 1), engines[1], ExitKind.LOST)
        look(api.platform)

        done = typed(api, tmp_path, "events", job)
        assert done.returncode == 0, done.stderr
        shown = [" ".join(line.split()[1:]) for line in done.stdout.splitlines()[1:]]
        grown = "1 → 2 slots its script works with up to 4 engines · 2 workers from step 7 on · paused 0.25 s"
        assert grown in shown
        assert "checkpoint at step 10" in shown
        assert any(line.startswith("2 → 1 slots") and "lost" in line for line in shown), shown
        history = json.loads(typed(api, tmp_path, "events", job, "-o", "json").stdout)
        assert [each["seq"] for each in history] == list(range(1, len(history) + 1))
        [pause] = {each["resize"]["pause_seconds"] for each in history if each["resize"]} - {None}
        assert pause == 0.25

        api.client("admin").post(f"/platform/rest/deeplearning/v1/execs/{job}/stop")
        node.end((job, 1), ExitKind.STOPPED)
        done = typed(api, tmp_path, "events", job, "-f")
        assert done.returncode == 130, "as edt logs -f of a stopped job"
        assert done.stdout.splitlines()[-1].split()[1] == "KILLED"
        assert grown in [" ".join(line.split()[1:]) for line in done.stdout.splitlines()]
        each = [
            json.loads(line) for line in typed(api, tmp_path, "events", job, "-f", "-o", "json").stdout.splitlines()
        ]
        assert [event["seq"] for event in each] == list(range(1, len(each) + 1))


def test_of_checkpoints_in_a_row_the_last_one_is_shown_and_how_many_came_before() -> None:
    def event(number: int, kind: str, message: str) -> events.Happening:
        return events.Happening(seq=number, time=0.0, kind=kind, fence=1, message=message, data={})

    steps = [event(step, "checkpointed", f"checkpoint at step {step}") for step in (1, 2, 3)]
    shown = events._folded([*steps, event(4, "attempt", "attempt 1 ended: left"), event(5, "checkpointed", "…")])
    assert [each.seq for each in shown] == [3, 4, 5]
    assert events._why(shown[0]) == "at step 3, 2 before it"
