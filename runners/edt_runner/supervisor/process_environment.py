"""The environment variables of one process: its attempt's, and WMLA's that differ between processes or nodes.

docs/environment.md lists all.
"""

from __future__ import annotations

import contextlib
import site
import sys
from collections.abc import Mapping
from pathlib import Path

from edt_contract.attempt import AttemptSpec
from edt_runner import environment
from edt_runner.context import Context
from edt_runner.supervisor import users


def of(process: Context, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are set in a driver or engine before it runs the user's script.

    Args:
        process: the driver or engine.
        inherited: the variables that it has from its supervisor.

    Returns:
        Name to value. The job's own variables win over all but CUDA_VISIBLE_DEVICES.
    """
    spec = process.spec
    engine = process.role == "engine"
    device = process.device if engine and process.device != "cpu" else ""  # the driver holds no slot and sees no GPU
    number = (process.ordinal or int(process.name)) if engine else 0
    found = common(spec, inherited, number=number, is_task0=not engine, device=device, threads=spec.threads)
    return {**found, **spec.environ, "CUDA_VISIBLE_DEVICES": device}


def common(
    spec: AttemptSpec, inherited: Mapping[str, str], *, number: int, is_task0: bool, device: str, threads: int
) -> dict[str, str]:
    """Return the variables that processes of elastic jobs and of gangs have alike.

    Args:
        spec: the attempt.
        inherited: the variables that the process has from its supervisor.
        number: TASK_ID.
        is_task0: IS_TASK0.
        device: the GPUs that the process sees, with commas between them.
        threads: threads of the process, if neither the job nor the node says otherwise.
    """
    user, group = users.of_script()  # the supervisor of a gang calls this, and may be another user
    return {
        "DLI_CONDA_HOME": sys.prefix,
        "DLI_RUN_AS_GROUP": str(group),
        "DLI_RUN_AS_USER": str(user),
        "DLI_TASK_ID": str(max(0, number - 1)),
        "FABRIC_HOME": inherited.get("FABRIC_HOME") or environment.fabric_home(),  # in this node's own installation
        "IS_K8S": "ON" if "KUBERNETES_SERVICE_HOST" in inherited else "OFF",
        "IS_TASK0": "true" if is_task0 else "false",
        "MSD_POD_GPU_DEVICES": device,
        "MSD_POD_HOST_IP": spec.host,
        "MSD_POD_IP": spec.host,
        "MSD_POD_NAME": spec.node,
        "OMP_NUM_THREADS": inherited.get("OMP_NUM_THREADS") or str(threads),
        "PYTHONUSERBASE": inherited.get("PYTHONUSERBASE") or site.getuserbase(),
        "TASK_ID": str(number),
    }


def link_result_folder(spec: AttemptSpec) -> None:
    """Let scripts find the job's folder by the path ``$DLI_RESULT_FS/$USER/batchworkdir/$DLI_EXECID``, if DLI_RESULT_FS
    is inside the job's folder. Several processes may do this at once."""
    root, user = spec.environ.get("DLI_RESULT_FS"), spec.environ.get("USER")
    if not root or not user or Path(spec.result_dir) not in Path(root).parents:
        return
    link = Path(root) / user / "batchworkdir" / spec.job
    with contextlib.suppress(OSError):  # another process has made it, or there is no room
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(spec.result_dir, target_is_directory=True)
