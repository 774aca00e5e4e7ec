"""What a gang needs that runs one process for the whole job: edt-rsh, and Open MPI's host file and variables.

Open MPI's mpirun starts its daemon on every other worker through ``edt-rsh``. So ``mpirun python train.py`` starts one
rank on each slot of all workers, without ssh.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from edt_contract import processes
from edt_contract.attempt import AttemptSpec
from edt_contract.durable import write_whole
from edt_contract.gang import Processes, Rendezvous
from edt_runner.rsh import wire
from edt_runner.supervisor import users
from edt_runner.supervisor.gang_layout import Layout

_MOST_KILL_SECONDS = 5
_RANK = b"OMPI_COMM_WORLD_RANK="
HOST_FILE = "hostfile"
"""Name of the host file in the supervisor's spool folder."""


def host_file(layout: Layout) -> str:
    """The lines of Open MPI's host file. mpirun runs on the first worker itself. The names of the others are no
    addresses: ``edt-rsh`` knows where they are."""
    names = ["localhost", *(worker.name for worker in layout.workers[1:])]
    return "".join(
        f"{name} slots={len(worker.allocations)}\n" for name, worker in zip(names, layout.workers, strict=True)
    )


def write_host_file(spec: AttemptSpec, layout: Layout) -> None:
    """Write the host file into the spool folder, where the job's processes can read it.

    Raises:
        OSError: the disk does not accept the file.
    """
    write_whole(Path(spec.spool_dir) / HOST_FILE, host_file(layout), mode=0o644, durable=False, alone=True)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on a port which this process has reserved.

    Raises:
        OSError: it cannot.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=128)  # sets SO_REUSEADDR


def variables(spec: AttemptSpec, layout: Layout, *, loopback: bool) -> Mapping[str, str]:
    """The variables for ``edt-rsh`` and Open MPI, alike in all processes of the gang.

    Args:
        spec: the attempt. Its ``gang`` is set.
        layout: the gang.
        loopback: whether the nodes reach each other by a loopback address.
    """
    gang = spec.gang
    assert gang is not None
    found: dict[str, str] = {}
    if gang.command.processes is Processes.JOB and len(layout.workers) > 1:
        others = layout.workers[1:]
        found[wire.WORKERS_VARIABLE] = " ".join(f"{each.name}={each.address()}" for each in others)
        found[wire.KEY_VARIABLE] = wire.key_of(spec.token)
    if Rendezvous.MPI not in gang.command.rendezvous:
        return found
    file = str(Path(spec.spool_dir) / HOST_FILE)
    found |= {
        "EDT_HOSTFILE": file,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",  # in a container the job's user may be root
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",  # it needs a right that containers do not have
        "OMPI_MCA_hwloc_base_binding_policy": "none",  # jobs share the node's cores
        "OMPI_MCA_odls_base_sigkill_timeout": str(_kill_seconds(spec.grace_seconds)),
        "OMPI_MCA_orte_default_hostfile": file,
        "OMPI_MCA_orte_leave_session_attached": "1",  # the daemons end with the connections of edt-rsh
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_plm_rsh_agent": f"{sys.executable} -P -m edt_runner.rsh.client",
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_rmaps_base_mapping_policy": "slot",
    }
    if len({worker.host for worker in layout.workers}) < len(layout.workers):
        # Open MPI takes each worker for a machine. Its files in shared memory have the same names on all workers.
        found["OMPI_MCA_btl"] = "self,tcp"
    if loopback:
        found |= {"OMPI_MCA_btl_tcp_if_include": "lo", "OMPI_MCA_oob_tcp_if_include": "lo"}
    return found


@dataclass(frozen=True)
class MpiProcesses:
    """The processes of Open MPI below a process.

    At SIGTERM, mpirun itself waits before it passes the signal on, and waits for ranks that have ended. So at the end
    of a job the ranks get the signal, and mpirun and its daemons end when their ranks have.
    """

    ranks: tuple[int, ...]
    """Pids of the ranks, and of the processes that ranks have started."""
    launchers: Mapping[int, tuple[int, ...]]
    """Pids of mpirun and its daemons, whose children are ranks; for each the pids of the processes above it, from its
    parent on, without the one from which the search began. A shell that runs a script with mpirun in it is one of
    those."""

    @classmethod
    def below(cls, root: int) -> MpiProcesses:
        """Those below the process ``root``."""
        fields = {pid: processes.stat_fields(pid) for pid in processes.descendants(root)}
        parents = {pid: int(found[1]) for pid, found in fields.items() if found is not None}
        ranks = {pid for pid in parents if _is_of_a_rank(pid)}
        launchers = {parents[pid] for pid in ranks} & (parents.keys() - ranks)
        return cls(tuple(ranks), {pid: tuple(_above(pid, parents)) for pid in launchers})


def _above(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    while (pid := parents[pid]) in parents:
        yield pid


def _is_of_a_rank(pid: int) -> bool:
    try:
        with users.as_script():
            environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended, or has changed its user
        return False
    return any(each.startswith(_RANK) for each in environ.split(b"\0"))


def _kill_seconds(grace_seconds: float) -> int:
    """Seconds that mpirun waits, when one rank has failed, before it sends SIGTERM to the others, and again before
    SIGKILL. It waits for ranks that end sooner, too, so the number is small."""
    return max(1, min(_MOST_KILL_SECONDS, int(grace_seconds / 2)))
