"""What each process of a gang is told of the others, computed alike on all nodes."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from edt_contract.attempt import GANG_PROTOCOL, AttemptSpec
from edt_contract.gang import MAIN, PYTHON, Gang, GangCommand, GangNode, Processes, Rendezvous
from edt_runner.rsh import wire
from edt_runner.supervisor import gang_environment, gang_mpi, users
from edt_runner.supervisor.gang_layout import Layout, lay_out, ports_needed

NODES = (GangNode("alpha", "10.0.0.1", (7, 8, 9, 10)), GangNode("beta", "10.0.0.2", (11, 12)))
PORTS = ((700, 701, 702, 703, 704), (800, 801, 802))


def laid_out(processes: Processes, devices: int = 2) -> Layout:
    return lay_out(Gang(GangCommand(("x",), processes), devices, NODES), PORTS)


def spec(command: GangCommand, **changes: object) -> AttemptSpec:
    gang = Gang(command, 2, NODES)
    made = AttemptSpec(
        job="edt-1", fence=1, node="alpha", framework="pytorch", main="m.py", arguments=("--lr", "1"), work_dir="/w",
        result_dir="/r", log_dir="/l", checkpoint_dir="/c", spool_dir="/s", socket="", environ={}, seed=1,
        max_engines=6, threads=3, cores=8, grace_seconds=30, token="secret", host="10.0.0.1", gang=gang,
        protocol=GANG_PROTOCOL,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def variables(command: GangCommand, member: int, devices: tuple[str, ...] = ("cpu", "cpu"), **changes: object) -> dict:
    made = spec(command, **changes)
    assert made.gang is not None
    layout = lay_out(made.gang, PORTS)
    return gang_environment.of(layout.members[member], layout, made, devices=devices, inherited={"PATH": "/bin"})


def test_workers_are_numbered_over_the_nodes_and_hold_slots_and_ports_in_order() -> None:
    workers = laid_out(Processes.DEVICE).workers
    assert [(each.number, each.node, each.allocations, each.ports) for each in workers] == [
        (0, "alpha", (7, 8), (701, 702)),
        (1, "alpha", (9, 10), (703, 704)),
        (2, "beta", (11, 12), (801, 802)),
    ]


@pytest.mark.parametrize(
    ("processes", "members"),
    [
        (Processes.DEVICE, [(rank, (7 + rank,), rank % 2, 2, True) for rank in range(6)]),
        (Processes.WORKER, [(rank, (7 + 2 * rank, 8 + 2 * rank), 0, 1, True) for rank in range(3)]),
        (Processes.JOB, [(rank, (7 + 2 * rank, 8 + 2 * rank), 0, 1, rank == 0) for rank in range(3)]),
    ],
)
def test_each_slot_is_held_by_one_process(processes: Processes, members: list[tuple[object, ...]]) -> None:
    layout = laid_out(processes)
    found = [
        (each.rank, each.allocations, each.local_rank, each.local_world, each.runs_command) for each in layout.members
    ]
    assert found == members
    assert [each.worker.number for each in layout.on("beta")] == ([2, 2] if processes is Processes.DEVICE else [2])


def test_a_node_reserves_a_port_for_the_meeting_and_one_for_each_slot() -> None:
    gang = Gang(GangCommand(("x",)), 2, NODES)
    assert [ports_needed(gang, name) for name in ("alpha", "beta")] == [5, 3]


@pytest.mark.parametrize(("devices", "ports"), [(2, ((700,), PORTS[1])), (4, PORTS), (2, PORTS[:1])])
def test_a_gang_that_does_not_fit_its_nodes_is_refused(devices: int, ports: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match=r"slots|zip"):
        lay_out(Gang(GangCommand(("x",)), devices, NODES), ports)


def test_ranks_of_torch_meet_at_the_first_port_of_the_first_node() -> None:
    command = GangCommand(("x",), Processes.WORKER, (Rendezvous.TORCH,))
    found = variables(command, 2)
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("10.0.0.1", "700")
    assert [found[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")] == [
        *("2", "3", "0", "1", "2")
    ]
    assert not {"TF_CONFIG", "EDT_HOSTFILE", "GLOO_SOCKET_IFNAME"} & found.keys()


@pytest.mark.parametrize(
    ("processes", "workers"),
    [
        (Processes.WORKER, ["10.0.0.1:701", "10.0.0.1:703", "10.0.0.2:801"]),
        (Processes.DEVICE, [*(f"10.0.0.1:{port}" for port in range(701, 705)), "10.0.0.2:801", "10.0.0.2:802"]),
    ],
)
def test_tf_config_names_a_port_for_each_process(processes: Processes, workers: list[str]) -> None:
    found = json.loads(variables(GangCommand(("x",), processes, (Rendezvous.TENSORFLOW,)), 2)["TF_CONFIG"])
    assert found == {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 2}}


def test_a_process_sees_the_devices_of_its_worker_and_nobody_can_ask_for_others() -> None:
    own = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    command = GangCommand(("x",), Processes.DEVICE)
    assert variables(command, 1, ("GPU-b", "GPU-a"), environ=own)["CUDA_VISIBLE_DEVICES"] == "GPU-b,GPU-a"
    assert variables(command, 1, environ=own)["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    ("processes", "threads"), [(Processes.DEVICE, "3"), (Processes.WORKER, "6"), (Processes.JOB, "3")]
)
def test_a_process_has_the_threads_of_its_slots(processes: Processes, threads: str) -> None:
    assert variables(GangCommand(("x",), processes), 0)["OMP_NUM_THREADS"] == threads


def test_the_jobs_variables_win_over_the_frameworks_and_these_over_ours() -> None:
    command = GangCommand(("x",), Processes.DEVICE, (Rendezvous.TORCH,), environ={"MASTER_PORT": "1", "A": "f"})
    found = variables(command, 0, environ={"A": "job"})
    assert (found["MASTER_PORT"], found["A"]) == ("1", "job")


def test_words_of_the_command_stand_for_the_interpreter_and_the_script_and_arguments_follow() -> None:
    made = spec(GangCommand((PYTHON, "-u", MAIN)))
    assert made.gang is not None
    assert gang_environment.command(made.gang, made) == [sys.executable, "-u", "/w/m.py", "--lr", "1"]
    other = replace(made.gang, command=replace(made.gang.command, python_home="/opt/env"))
    assert gang_environment.command(other, made)[0] == "/opt/env/bin/python"


def test_programs_of_the_jobs_python_environment_come_first(tmp_path: Path) -> None:
    own = gang_environment.interpreter(GangCommand(("x",)), "/bin")
    assert own == {"PATH": f"{Path(sys.executable).parent}:/bin"}
    home = str(tmp_path)
    assert gang_environment.interpreter(GangCommand(("x",), python_home=home), "/bin") == {
        **{"PATH": f"{home}/bin:/bin", "VIRTUAL_ENV": home, "PYTHONPATH": ""}
    }
    (tmp_path / "conda-meta").mkdir()
    assert gang_environment.interpreter(GangCommand(("x",), python_home=home), "/bin")["CONDA_PREFIX"] == home


def test_the_host_file_has_a_line_for_each_worker() -> None:
    assert gang_mpi.host_file(laid_out(Processes.JOB)) == "localhost slots=2\nworker-1 slots=2\nworker-2 slots=2\n"


def test_mpirun_numbers_the_ranks_and_shares_no_memory_between_workers_of_one_machine() -> None:
    command = GangCommand(("mpirun",), Processes.JOB, (Rendezvous.TORCH, Rendezvous.MPI))
    found = variables(command, 0)
    assert not {"RANK", "WORLD_SIZE", "OMPI_MCA_btl_tcp_if_include"} & found.keys()
    assert (found["MASTER_PORT"], found["OMPI_MCA_btl"], found["EDT_HOSTFILE"]) == ("700", "self,tcp", "/s/hostfile")
    assert found["EDT_RSH_WORKERS"] == "worker-1=10.0.0.1:703 worker-2=10.0.0.2:801"
    assert found["EDT_RSH_KEY"] == wire.key_of("secret") != wire.key_of("other")
    assert not any("secret" in value for value in found.values())
    apart = Gang(command, 2, (replace(NODES[1], node="a", host="10.0.0.1"), replace(NODES[1], allocations=(1, 2))))
    layout = lay_out(apart, (PORTS[1], PORTS[1]))
    found = dict(gang_mpi.variables(spec(command, gang=apart), layout, loopback=True))
    assert "OMPI_MCA_btl" not in found and found["OMPI_MCA_oob_tcp_if_include"] == "lo"


def test_the_variables_name_the_user_that_the_script_runs_as(monkeypatch: pytest.MonkeyPatch) -> None:
    command = GangCommand(("x",), Processes.DEVICE)
    found = variables(command, 0)
    assert (found["DLI_RUN_AS_USER"], found["DLI_RUN_AS_GROUP"]) == (str(os.getuid()), str(os.getgid()))
    monkeypatch.setattr(users, "_script", (10002, 10001))  # in a container the supervisor is another user
    found = variables(command, 0)
    assert (found["DLI_RUN_AS_USER"], found["DLI_RUN_AS_GROUP"]) == ("10002", "10001")
