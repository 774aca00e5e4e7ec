"""Supervisors are kept warm, one of each kind that is used, and handed to the jobs that can use them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from edt_agent.processes import environment
from edt_contract.gang import GangCommand
from support.tagged import leads
from support.waiting import until

WITHOUT_TENSORFLOW = """
import importlib.util
find, importlib.util.find_spec = importlib.util.find_spec, lambda name: None if name == "tensorflow" else find(name)
"""


def waiting(node) -> list[int]:
    return [pid for pid, line in node.processes(EDT_NODE="n1").items() if "stand_in" in line]


def supervisors(node) -> set[int]:
    """Without what they have forked."""
    return {pid for pid in waiting(node) if leads(pid)}


def test_the_next_job_gets_the_warm_one_and_another_is_warmed(node, api):
    node.start(EDT_WARM="1")
    [warm] = until(lambda: waiting(node))
    assert node.runs() == warm
    until(lambda: len(waiting(node)) == 3, what="supervisor, engine, and the next warm one")
    log = Path(node.home, "jobs", "edt-1", "spool", "1-n1", "supervisor.log").read_text()
    assert "spec of edt-1" in log


def test_a_job_that_sets_what_is_read_at_import_gets_a_cold_one(node, api):
    node.start(EDT_WARM="1")
    [warm] = until(lambda: waiting(node))
    assert node.runs(environ={"OMP_NUM_THREADS": "3"}) != warm
    log = Path(node.home, "jobs", "edt-1", "spool", "1-n1", "supervisor.log").read_text()
    assert "--cold" in log


def test_a_gang_gets_a_cold_one_that_imports_nothing_and_the_warm_one_stays(node, api):
    node.start(EDT_WARM="1")
    [warm] = until(lambda: waiting(node))
    gang = node.runs(gang=GangCommand(("python", "main.py")), framework="tensorflow")
    log = Path(node.home, "jobs", "edt-1", "spool", "1-n1", "supervisor.log").read_text()
    assert "argv ['--framework', 'none', '--cold']" in log
    given = environment(gang)
    assert given["EDT_TAG"] == node.tag and "EDT_LIFE" in given
    added = set(given) - set(os.environ)  # other tests of this process may have set variables
    assert not {"OPENBLAS_NUM_THREADS", "PYTHONHASHSEED", "TF_CPP_MIN_LOG_LEVEL", "KERAS_BACKEND"} & added
    assert node.runs(job="edt-2") == warm


def test_what_the_warm_one_has_already_is_no_reason_for_a_cold_one(node, api):
    node.start(EDT_WARM="1")
    [warm] = until(lambda: waiting(node))
    assert node.runs(environ={"PYTHONUNBUFFERED": "x"}) == warm


@pytest.mark.tensorflow
def test_another_framework_is_kept_warm_from_its_first_job_on(node, api):
    node.start(EDT_WARM="1")
    [torch] = until(lambda: waiting(node))
    first = node.runs(framework="tensorflow")
    assert first != torch, "the first is cold, and PyTorch's stays"
    [tensorflow] = until(lambda: supervisors(node) - {torch, first}, what="the other framework's is warm, too")
    assert node.runs(job="edt-2", framework="tensorflow") == tensorflow
    assert node.runs(job="edt-3") == torch


@pytest.mark.tensorflow
def test_keras_2_has_a_warm_one_of_its_own(node, api):
    node.start(EDT_WARM="tensorflow")
    [keras3] = until(lambda: waiting(node))
    assert environment(keras3)["TF_USE_LEGACY_KERAS"] == "0"
    wanted = {"framework": "tensorflow", "environ": {"TF_USE_LEGACY_KERAS": "1"}}
    first = node.runs(**wanted)
    [keras2] = until(lambda: supervisors(node) - {keras3, first}, what="one with Keras 2 is warm")
    assert environment(keras2)["TF_USE_LEGACY_KERAS"] == "1"
    assert node.runs(job="edt-2", **wanted) == keras2
    assert node.runs(job="edt-3", framework="tensorflow", environ={"KERAS_HOME": "/k"}) != keras3
    assert node.runs(job="edt-4", framework="tensorflow") == keras3


def test_a_node_whose_python_lacks_the_framework_says_so(node, api, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_TENSORFLOW)
    node.start(PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    api.want(node.assignment(framework="tensorflow"))
    why = "its framework is not on node n1, whose Python has no tensorflow: install openedt[tensorflow] there"
    until(lambda: f"edt-1/1 was not started: {why}" in node.log)


def test_the_warm_one_goes_with_its_agent(node, api):
    node.start(EDT_WARM="1")
    until(lambda: waiting(node))
    node.signal(signal.SIGKILL)
    until(lambda: not waiting(node))
