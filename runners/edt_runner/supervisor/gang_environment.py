"""The environment variables of one process of a gang: those by which the processes find each other, and its own.

docs/environment.md lists all.
"""

from __future__ import annotations

import ipaddress
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from edt_contract.attempt import AttemptSpec
from edt_contract.gang import MAIN, PYTHON, Gang, GangCommand, Processes, Rendezvous
from edt_runner.supervisor import gang_mpi, process_environment
from edt_runner.supervisor.gang_layout import Layout, Member


def of(
    member: Member, layout: Layout, spec: AttemptSpec, *, devices: Sequence[str], inherited: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of a process, in addition to those that it has from its supervisor.

    Args:
        member: the process.
        layout: the gang.
        spec: the attempt. Its ``gang`` is set.
        devices: the devices of the process's worker, in the order of its slots; ``cpu`` or a GPU's UUID.
        inherited: the variables of the supervisor.

    Returns:
        Name to value. The job's own variables win over all but CUDA_VISIBLE_DEVICES; the variables of its framework win
        over those made here.
    """
    gang = spec.gang
    assert gang is not None
    visible = ",".join(device for device in devices if device != "cpu")
    # A process of the whole job starts a process on each slot, and these inherit the number.
    threads = spec.threads * (1 if gang.command.processes is Processes.JOB else len(member.allocations))
    common = process_environment.common(
        spec, inherited, number=member.rank + 1, is_task0=False, device=visible, threads=threads
    )
    return {
        **common,
        **_network(spec.host, inherited),
        **rendezvous(gang.command, member, layout),
        **gang_mpi.variables(spec, layout, loopback=is_loopback(spec.host)),
        **interpreter(gang.command, inherited.get("PATH", os.defpath)),
        **gang.command.environ,
        **spec.environ,
        "CUDA_VISIBLE_DEVICES": visible,
    }


def command(gang: Gang, spec: AttemptSpec) -> list[str]:
    """The words of the command, with the job's arguments."""
    home = gang.command.python_home
    stands_for = {
        PYTHON: str(Path(home) / "bin/python") if home else sys.executable,
        MAIN: str(Path(spec.work_dir) / spec.main),
    }
    return [stands_for.get(word, word) for word in gang.command.command] + list(spec.arguments)


def rendezvous(gang_command: GangCommand, member: Member, layout: Layout) -> dict[str, str]:
    """The variables by which a process finds the others. Most of the group for MPI is in ``gang_mpi``."""
    groups = gang_command.rendezvous
    found: dict[str, str] = {}
    if Rendezvous.TORCH in groups or Rendezvous.MPI in groups:
        found |= {"MASTER_ADDR": layout.master_host, "MASTER_PORT": str(layout.master_port)}
    of_ranks = gang_command.processes is Processes.JOB and Rendezvous.MPI in groups  # mpirun numbers them
    if Rendezvous.TORCH in groups and not of_ranks:
        found |= {
            "GROUP_RANK": str(member.worker.number),
            "LOCAL_RANK": str(member.local_rank),
            "LOCAL_WORLD_SIZE": str(member.local_world),
            "NODE_RANK": str(member.worker.number),
            "RANK": str(member.rank),
            "WORLD_SIZE": str(len(layout.ranks)),
        }
    if Rendezvous.TENSORFLOW in groups:
        workers = [each.address for each in layout.ranks]
        task = {"type": "worker", "index": member.rank}
        found["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    return found


def interpreter(gang_command: GangCommand, path: str) -> dict[str, str]:
    """PATH with the programs of the job's Python environment first, and what else that environment's programs expect.

    Args:
        gang_command: names the environment; by default it is the one in which the runner is installed.
        path: PATH of the supervisor.
    """
    home = gang_command.python_home
    if not home:
        return {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{path}"}
    kind = "CONDA_PREFIX" if (Path(home) / "conda-meta").is_dir() else "VIRTUAL_ENV"
    return {"PATH": f"{Path(home) / 'bin'}{os.pathsep}{path}", kind: home, "PYTHONPATH": ""}


def is_loopback(host: str) -> bool:
    """Whether all of a gang's nodes must be on this machine, because the host is a loopback address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _network(host: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """gloo chooses an interface by the machine's name, which may lead nowhere. On one machine, loopback always works;
    between machines the choice is left to the user."""
    if not is_loopback(host):
        return {}
    return {"GLOO_SOCKET_IFNAME": inherited.get("GLOO_SOCKET_IFNAME") or "lo"}
