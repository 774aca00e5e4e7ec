"""The environment variables that are the same in all processes of a job, made from its row.

They are WMLA's variables (source: the variables that WMLA's samples read and its logs show). So a script written for
WMLA finds its data, its folders and its name. Those that differ between processes are in
``edt_runner.supervisor.process_environment``; docs/environment.md lists all.

No variable has a name that a framework or Python reads when it is loaded, with another value than a warm supervisor
has: then no job could use a warm supervisor (``edt_contract.frameworks.must_be_cold``). The variables by which the
processes of a gang find each other (TF_CONFIG, MASTER_ADDR, RANK …) are not here, because they differ between its
processes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from sqlalchemy import Row

from edt_scheduler.model.jobs import exec_id
from edt_scheduler.settings import Settings

RESULT_FS = ".result-fs"
"""Folder in a job's folder in which scripts find the job's folder by ``$DLI_RESULT_FS/$USER/batchworkdir/$DLI_EXECID``.
The job's own processes make the path."""


def job_environment(settings: Settings, job: Row[Any], own: Mapping[str, str]) -> dict[str, str]:
    """Environment variables of the job's processes, in addition to those of their supervisor.

    Args:
        settings: the platform's settings.
        job: the job's row, with its owner.
        own: the variables that the user gave the job. They win over all others, and a gang's framework's over ours.

    Returns:
        Name to value.
    """
    name = exec_id(job.id)
    directory = settings.job_directory(name)
    work_dir = str(directory / job.work_dir)
    data = str(settings.data / job.data_path if job.data_path else settings.data)
    options = dict(job.options)
    cpu = options.get("--workerDeviceType", "gpu").lower() == "cpu"
    return {
        "APP_ID": name,
        "CHECKPOINT_DIR": str(settings.checkpoint_directory(name)),
        "DATA_DIR": data,
        "DLI_CONDA_ENV_NAME": options.get("--conda-env-name", ""),
        **({"DLI_CONDA_HOME": options["--conda-home"]} if "--conda-home" in options else {}),
        "DLI_CS_DATASTORE_META": f"type=fs,data_path={job.data_path}" if job.data_path else "type=fs",
        "DLI_DATA_FS": str(settings.data),
        "DLI_ELASTIC_CONF_DIR": work_dir,
        "DLI_EXECID": name,
        "DLI_IS_ELASTIC": "true" if job.gang is None else "false",
        "DLI_LAUNCHER_CALLBACK": "",
        "DLI_LOGGER_LEVEL": options.get("--debug-level", "info"),
        "DLI_OBJECT_ID": name,
        "DLI_OBJECT_NAME": job.app_name,
        "DLI_RESULT_FS": str(directory / RESULT_FS),
        "DLI_SHARED_FS": str(settings.data),
        "DLI_SUBMIT_USERNAME": job.owner,
        "DLI_VERSION": _version(),
        "DLI_WORK_DIR": work_dir,
        "DL_NFS_PATH": str(settings.data),
        "EMETRICS_STREAMING": "ON",
        "EXEC_TYPE": "training",
        **({"FABRIC_BACKEND": job.backend} if job.gang is None else {}),
        "FRAME_WORK": job.framework,
        "JOB_ID": name,
        "JOB_STATE_DIR": str(directory),
        "JOB_UUID": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{settings.home.as_uri()}/jobs/{name}")),
        "LOG_DIR": str(directory / "log"),
        "MODEL_FILE_LOCATION": work_dir,
        "MODEL_PATH": work_dir,
        "PYTHONUNBUFFERED": "x",
        "RESULT_DIR": str(directory),
        "SAVED_MODEL_DIR": str(directory / "model"),
        "SPACE_ID": "openedt",
        "TASK12N_DEVICE_TYPE": "ncpus" if cpu else "ngpus",
        "TASK_JOB_ID": name,
        "TRAINING_ID": name,
        "USER": job.owner,
        "WMLA_NWORKER": str(job.num_worker),
        "WMLA_USER_DATA_DIR": data,
        "WMLA_USER_DATA_FILES": _data_files(options),
        "WMLA_WORKER_NDEVICE": str(job.worker_device_num),
        **(job.gang["environ"] if job.gang is not None else {}),
        **own,
    }


def _version() -> str:
    try:
        return metadata.version("openedt")
    except metadata.PackageNotFoundError:  # the source is on PYTHONPATH
        return "0"


def _data_files(options: Mapping[str, str]) -> str:
    """Return the paths that the job's data source names, with commas between them; empty: there is none."""
    try:
        sources = json.loads(options.get("dataSource") or options.get("--data-source") or "[]")
        paths = [source["location"]["paths"] for source in sources]
    except (ValueError, TypeError, LookupError, RecursionError):  # another form than WMLA's for file systems
        return ""
    return ",".join(str(path) for path in paths)
