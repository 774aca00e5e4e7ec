"""The environment variables that a script written for WMLA finds in a job."""

from __future__ import annotations

import itertools
import json
import os
import re
import site
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edt_contract.frameworks import FRAMEWORKS, must_be_cold, supervisor_environ
from edt_contract.gang import Gang, GangCommand, GangNode, Processes, Rendezvous
from edt_runner.context import Context
from edt_runner.supervisor import gang_environment, process_environment
from edt_runner.supervisor.gang_layout import lay_out
from edt_scheduler.attempts.environment import job_environment
from edt_scheduler.settings import Settings
from support.nursery import Nursery
from support.training import Elastic, spec_for

DOCUMENT = Path(__file__).parents[2] / "docs/environment.md"
READ_BY_SAMPLES = {
    *("DATA_DIR", "RESULT_DIR", "LOG_DIR", "FABRIC_HOME", "TRAINING_ID", "DLI_EXECID", "JOB_STATE_DIR", "DLI_DATA_FS"),
    *("DLI_RESULT_FS", "USER", "WMLA_USER_DATA_DIR", "WMLA_USER_DATA_FILES", "WMLA_NWORKER", "WMLA_WORKER_NDEVICE"),
}
SHOWN_IN_LOGS = {
    *("SAVED_MODEL_DIR", "CHECKPOINT_DIR", "MODEL_FILE_LOCATION", "MODEL_PATH", "DLI_WORK_DIR", "DLI_SHARED_FS"),
    *("DL_NFS_PATH", "DLI_CS_DATASTORE_META", "FRAME_WORK", "DLI_IS_ELASTIC", "DLI_LOGGER_LEVEL", "DLI_VERSION"),
    *("DLI_TASK_ID", "TASK_ID", "DLI_SUBMIT_USERNAME", "DLI_CONDA_HOME", "DLI_RUN_AS_USER", "DLI_ELASTIC_CONF_DIR"),
    *("DLI_LAUNCHER_CALLBACK", "EXEC_TYPE", "IS_K8S", "IS_TASK0", "JOB_ID", "JOB_UUID", "APP_ID", "TASK_JOB_ID"),
    *("DLI_OBJECT_ID", "DLI_OBJECT_NAME", "SPACE_ID", "MSD_POD_NAME", "MSD_POD_IP", "MSD_POD_HOST_IP"),
    *("MSD_POD_GPU_DEVICES", "TASK12N_DEVICE_TYPE", "EMETRICS_STREAMING", "PYTHONUNBUFFERED", "PYTHONUSERBASE"),
    *("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"),
}
JOB = SimpleNamespace(
    id=7,
    work_dir="_submitted_code/mnist",
    data_path="mnist",
    app_name="ElasticPyTorchTrain",
    owner="ada",
    backend="pytorch",
    framework="edtPyTorch",
    num_worker=2,
    worker_device_num=4,
    gang=None,
    options=[["--debug-level", "debug"], ["dataSource", '[{"type": "fs", "location": {"paths": "mnist"}}]']],
)


def of_job(folder: Path, own: dict[str, str] | None = None, **changes: Any) -> dict[str, str]:
    """The variables that are the same in all processes."""
    return job_environment(Settings(home=folder), cast(Any, SimpleNamespace(**{**vars(JOB), **changes})), own or {})


def of_process(folder: Path, role: str, device: str = "cpu", ordinal: int = 0, **environ: str) -> dict[str, str]:
    spec = replace(spec_for(folder, "conv"), environ=environ, host="10.0.0.3", node="alpha")
    name = "137" if role == "engine" else ""
    return process_environment.of(Context(role, spec, "", name, device, ordinal), os.environ)


def of_gang(folder: Path, python_home: str) -> dict[str, str]:
    """The variables of a process of a gang with a Python environment of its own, or without."""
    (folder / "conda-meta").mkdir(exist_ok=True)
    command = GangCommand(("train",), rendezvous=tuple(Rendezvous))
    found: dict[str, str] = {}
    homes = {python_home, python_home and sys.prefix}
    for home, processes in itertools.product(homes, Processes):
        made = replace(command, python_home=home, processes=processes)
        gang = Gang(made, 1, (GangNode("alpha", "127.0.0.1", (1, 2)),))
        spec = replace(spec_for(folder, "conv"), environ={}, node="alpha", gang=gang)
        layout = lay_out(gang, ((5000, 5001, 5002),))
        found |= gang_environment.of(layout.members[1], layout, spec, devices=["cpu"], inherited=os.environ)
    return found


def test_all_variables_that_samples_read_and_logs_show_are_set(tmp_path: Path) -> None:
    found = of_job(tmp_path).keys() | of_process(tmp_path, "engine").keys() - spec_for(tmp_path, "conv").environ.keys()
    assert not (READ_BY_SAMPLES | SHOWN_IN_LOGS) - found


def test_the_document_lists_what_is_set_and_nothing_else(tmp_path: Path) -> None:
    same, each, of_gangs, unset = (
        set(re.findall(r"[A-Z][A-Z0-9_]+[a-z0-9_]*(?:_\*)?", " ".join(re.findall(r"^\| ([A-Z].*?) \|", part, re.M))))
        for part in DOCUMENT.read_text().split("\n## ")[1:]
    )
    assert same == of_job(tmp_path).keys()
    assert each == of_process(tmp_path, "engine").keys()
    assert of_gangs | each == of_gang(tmp_path, "").keys() | of_gang(tmp_path, str(tmp_path)).keys()
    assert not of_gangs & each
    assert not unset & (same | each)


def test_the_values_are_those_of_the_job(tmp_path: Path) -> None:
    found, folder = of_job(tmp_path), tmp_path / "jobs/edt-7"
    assert found["DATA_DIR"] == found["WMLA_USER_DATA_DIR"] == str(tmp_path / "data/mnist")
    assert found["DLI_CS_DATASTORE_META"] == "type=fs,data_path=mnist"
    assert found["DLI_WORK_DIR"] == str(folder / "_submitted_code/mnist")
    assert (found["WMLA_NWORKER"], found["WMLA_WORKER_NDEVICE"]) == ("2", "4")
    assert (found["DLI_LOGGER_LEVEL"], found["WMLA_USER_DATA_FILES"]) == ("debug", "mnist")
    assert found["JOB_UUID"] == of_job(tmp_path)["JOB_UUID"] != of_job(tmp_path, id=8)["JOB_UUID"]
    assert found["TASK12N_DEVICE_TYPE"] == "ngpus"
    plain = of_job(tmp_path, data_path=None, options=[["--workerDeviceType", "cpu"], ["--conda-home", "/opt/conda"]])
    assert (plain["TASK12N_DEVICE_TYPE"], plain["DLI_CS_DATASTORE_META"]) == ("ncpus", "type=fs")
    assert (plain["DLI_CONDA_HOME"], plain["WMLA_USER_DATA_FILES"]) == ("/opt/conda", "")


@pytest.mark.parametrize(
    "source", ["", "no JSON", "{}", "[3]", '[{"location": {}}]', '[{"location": 3}]', 9999 * "[" + 9999 * "]"]
)
def test_a_data_source_of_another_form_names_no_files(tmp_path: Path, source: str) -> None:
    assert of_job(tmp_path, options=[["--data-source", source]])["WMLA_USER_DATA_FILES"] == ""


def test_a_gang_is_not_elastic_and_its_frameworks_variables_lie_between_ours_and_the_users(tmp_path: Path) -> None:
    gang = {"command": ["{python}"], "environ": {"HOROVOD_LOG_LEVEL": "info", "SPACE_ID": "lab", "APP_ID": "x"}}
    found = of_job(tmp_path, {"APP_ID": "mine"}, gang=gang, framework="distPyTorch")
    assert (found["DLI_IS_ELASTIC"], found["FRAME_WORK"]) == ("false", "distPyTorch")
    assert found.keys() - {"HOROVOD_LOG_LEVEL"} == of_job(tmp_path).keys() - {"FABRIC_BACKEND"}
    assert (found["HOROVOD_LOG_LEVEL"], found["SPACE_ID"], found["APP_ID"]) == ("info", "lab", "mine")


def test_what_the_user_sets_wins_but_cannot_take_a_gpu(tmp_path: Path) -> None:
    own = {"USER": "me", "TASK_ID": "x", "OMP_NUM_THREADS": "3", "CUDA_VISIBLE_DEVICES": "0,1,2"}
    assert of_job(tmp_path, own)["USER"] == "me"
    found = of_process(tmp_path, "engine", "GPU-1", 2, **own)
    assert (found["TASK_ID"], found["OMP_NUM_THREADS"]) == ("x", "3")
    assert found["CUDA_VISIBLE_DEVICES"] == found["MSD_POD_GPU_DEVICES"] == "GPU-1"


def test_driver_and_engines_know_which_task_they_are(tmp_path: Path) -> None:
    driver, engine = of_process(tmp_path, "driver"), of_process(tmp_path, "engine", "cpu", 3)
    assert (driver["IS_TASK0"], driver["TASK_ID"], driver["DLI_TASK_ID"]) == ("true", "0", "0")
    assert (engine["IS_TASK0"], engine["TASK_ID"], engine["DLI_TASK_ID"]) == ("false", "3", "2")
    assert of_process(tmp_path, "engine")["TASK_ID"] == "137", "an agent of an older release tells no ordinal"
    assert (engine["MSD_POD_NAME"], engine["MSD_POD_IP"]) == ("alpha", "10.0.0.3")
    assert (engine["PYTHONUSERBASE"], engine["DLI_CONDA_HOME"]) == (site.getuserbase(), sys.prefix)
    assert engine["IS_K8S"] == ("ON" if "KUBERNETES_SERVICE_HOST" in os.environ else "OFF")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_variable_of_the_platform_keeps_a_job_from_a_warm_supervisor(tmp_path: Path, framework: str) -> None:
    assert not must_be_cold(of_job(tmp_path, backend=framework), supervisor_environ(framework))


def test_no_variable_makes_a_framework_distribute_by_itself(tmp_path: Path) -> None:
    misread = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "TF_CONFIG"}
    assert not misread & (of_job(tmp_path).keys() | of_process(tmp_path, "engine").keys())


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


SCRIPT = """
import json, os, sys
from pathlib import Path
result = Path(os.environ["RESULT_DIR"])
by_result_fs = Path(os.environ["DLI_RESULT_FS"], os.environ["USER"], "batchworkdir", os.environ["DLI_EXECID"])
print(json.dumps({"same": by_result_fs.samefile(result), "there": [Path(os.environ[name]).is_dir() for name in
    ("RESULT_DIR", "LOG_DIR", "DLI_WORK_DIR", "FABRIC_HOME", "DLI_RESULT_FS")], "task": os.environ["TASK_ID"]}))
"""


@pytest.mark.lane("processes")
def test_a_script_finds_its_folders_also_by_the_path_that_wmla_gives_them(nursery: Nursery, tmp_path: Path) -> None:
    folder = tmp_path / "jobs/edt-1"
    (folder / "_submitted_code/mnist").mkdir(parents=True)
    main = tmp_path / "main.py"
    main.write_text(SCRIPT)
    spec = spec_for(folder, main, environ=of_job(tmp_path, id=1))
    with Elastic(spec, cast(Callable[..., Any], nursery.start)) as training:
        training.hold([1])
        training.supervisor.ended()
    seen = json.loads((folder / "log/driver.out").read_text())
    assert seen == {"same": True, "there": [True] * 5, "task": "0"}
