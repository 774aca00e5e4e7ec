"""One supervisor is kept warm, and handed to the job that can use it."""

from __future__ import annotations

import signal
from pathlib import Path

from support.waiting import until


def waiting(node) -> list[int]:
    return [pid for pid, line in node.processes(EDT_NODE="n1").items() if "stand_in" in line]


def test_the_next_job_gets_the_warm_one_and_another_is_warmed(node, desk):
    node.start(EDT_WARM="1")
    [warm] = until(lambda: waiting(node))
    assert node.runs() == warm
    until(lambda: len(waiting(node)) == 3, what="supervisor, engine, and the next warm one")
    log = Path(node.home, "jobs", "edt-1", "spool", "1-n1", "supervisor.log").read_text()
    assert "letter of edt-1" in log


def test_a_job_that_sets_what_is_read_at_import_gets_a_cold_one(node, desk):
    node.start(EDT_WARM="1")
    [warm] = until(lambda: waiting(node))
    assert node.runs(environ={"OMP_NUM_THREADS": "3"}) != warm
    log = Path(node.home, "jobs", "edt-1", "spool", "1-n1", "supervisor.log").read_text()
    assert "--cold" in log


def test_what_the_warm_one_has_already_is_no_reason_for_a_cold_one(node, desk):
    node.start(EDT_WARM="1")
    [warm] = until(lambda: waiting(node))
    assert node.runs(environ={"PYTHONUNBUFFERED": "x"}) == warm


def test_the_warm_one_goes_with_its_agent(node, desk):
    node.start(EDT_WARM="1")
    until(lambda: waiting(node))
    node.signal(signal.SIGKILL)
    until(lambda: not waiting(node))
