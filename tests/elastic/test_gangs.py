"""Gangs: real supervisors start the processes of a gang together, and end them together."""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import textwrap
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edt_contract import processes
from edt_contract.attempt import GANG_PROTOCOL, USAGE_FILE, AttemptSpec, DesiredSlot, DesiredState
from edt_contract.gang import MAIN, PYTHON, Gang, GangCommand, GangNode, Processes, Rendezvous
from edt_contract.reports import Report, ReportKind
from edt_runner.launch.supervisor_client import SupervisorClient
from support.training import spec_for
from support.waiting import until

TORCH = GangCommand((PYTHON, "-u", MAIN), Processes.DEVICE, (Rendezvous.TORCH,))
NODES = ("alpha", "beta")


class GangUnderTest:
    """One attempt of a gang, with a supervisor for each node. Nothing is left behind."""

    def __init__(self, specs: list[AttemptSpec]) -> None:
        self.specs = specs
        self.gang = specs[0].gang
        self._stack = ExitStack()

    def __enter__(self) -> GangUnderTest:
        self.supervisors = [self._stack.enter_context(SupervisorClient(spec)) for spec in self.specs]
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        for spec in self.specs:
            Path(spec.socket).unlink(missing_ok=True)

    @property
    def log_dir(self) -> Path:
        return Path(self.specs[0].log_dir)

    def out(self, rank: int) -> str:
        return (self.log_dir / f"rank-{rank}.out").read_text()

    def desired(self, number: int, **changes: Any) -> DesiredState:
        """What node ``number`` is told once all ports are known."""
        slots = tuple(DesiredSlot(each, str(index)) for index, each in enumerate(self.gang.nodes[number].allocations))
        return replace(DesiredState(1, slots, ports=self.ports), **changes)

    @property
    def ports(self) -> tuple[tuple[int, ...], ...]:
        reserved = [
            client.until(lambda report: report.kind is ReportKind.PORTS_RESERVED) for client in self.supervisors
        ]
        return tuple(tuple(report.body["ports"]) for report in reserved)

    def start(self) -> None:
        for number, client in enumerate(self.supervisors):
            client.set_desired(self.desired(number))

    def tell_all(self, **changes: Any) -> None:
        for number, client in enumerate(self.supervisors):
            client.set_desired(self.desired(number, **changes))

    def tell_others_to_leave(self) -> None:
        """As the platform does when the head node has finished the job."""
        for number, client in list(enumerate(self.supervisors))[1:]:
            client.set_desired(self.desired(number, slots=(), leaving=self.gang.nodes[number].allocations))

    def ends(self) -> list[dict[str, Any]]:
        return [client.ended(30) for client in self.supervisors]

    def bodies(self, kind: ReportKind, node: int = 0) -> list[dict[str, Any]]:
        self.supervisors[node].poll()
        return [dict(report.body) for report in self.supervisors[node].reports if report.kind is kind]

    def pids(self, node: int = 0) -> dict[int, int]:
        """Pid by allocation."""
        wanted = len(self.gang.nodes[node].allocations)
        until(lambda: len(self.bodies(ReportKind.ENGINE_STARTED, node)) == wanted, 30, "all processes have started")
        return {body["allocation"]: body["pid"] for body in self.bodies(ReportKind.ENGINE_STARTED, node)}

    def gone(self, node: int = 0) -> dict[int, dict[str, Any]]:
        bodies = self.bodies(ReportKind.ENGINE_GONE, node)
        assert len({body["allocation"] for body in bodies}) == len(bodies), "each slot once"
        return {body["allocation"]: body for body in bodies}

    def await_file(self, name: str) -> Path:
        path = Path(self.specs[0].work_dir) / name
        until(path.exists, 30, name)
        return path


def _has_ports(report: Report) -> bool:
    return report.kind is ReportKind.PORTS_RESERVED


Make = Callable[..., GangUnderTest]


@pytest.fixture
def gang(tmp_path: Path) -> Make:
    """``gang(script, per_node, command=…)``: a gang whose nodes hold so many slots each, below ``tmp_path``."""

    def make(
        script: str, per_node: tuple[int, ...] = (2,), command: GangCommand = TORCH, devices: int = 1, **changes: Any
    ) -> GangUnderTest:
        main = tmp_path / "job/main.py"
        main.parent.mkdir(exist_ok=True)
        main.write_text(textwrap.dedent(script))
        numbers = itertools.count(11)
        nodes = tuple(
            GangNode(NODES[index], "127.0.0.1", tuple(next(numbers) for _ in range(count)))
            for index, count in enumerate(per_node)
        )
        changes = {"max_engines": sum(per_node), "grace_seconds": 10.0, **changes}
        spec = spec_for(tmp_path / "job", main, **changes)
        shared = replace(spec, main="main.py", gang=Gang(command, devices, nodes), protocol=GANG_PROTOCOL)
        return GangUnderTest(
            [
                replace(
                    shared,
                    node=node.node,
                    spool_dir=f"{spec.spool_dir}-{node.node}",
                    socket=f"{spec.socket}{node.node}",
                )
                for node in nodes
            ]
        )

    return make


def of_commands(*words: str, processes: Processes = Processes.WORKER) -> GangCommand:
    return GangCommand(words, processes)


DDP = """
import gc, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
net = nn.parallel.DistributedDataParallel(nn.Linear(3, 1))
net(torch.ones(4, 3) * rank).sum().backward()
mine = net.module.weight.grad.sum()
print("world", world, "gradient", mine.item())
del net  # torch aborts now and then if a model lives when its group is destroyed
gc.collect()
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "per_node", [(1, 1), *(pytest.param(each, marks=pytest.mark.extended) for each in [(2,), (4,)])]
)
def test_ranks_of_ddp_find_each_other_on_one_node_and_on_two(gang: Make, per_node: tuple[int, ...]) -> None:
    with gang(DDP, per_node) as started:
        started.start()
        assert [end["kind"] for end in started.ends()] == ["finished"] * len(per_node)
        world = sum(per_node)
        mean = sum(range(world)) * 12 / world  # of the gradients of 4 samples with 3 values, each the rank
        assert {started.out(rank) for rank in range(world)} == {f"world {world} gradient {mean}\n"}
        gone = [body for node in range(len(per_node)) for body in started.gone(node).values()]
        assert [(body["kind"], body["code"]) for body in gone] == [("finished", 0)] * world
    assert not any(end["whole"] for end in started.ends())


SHOW = """
import json, os
print(json.dumps(dict(os.environ)))
"""


def test_each_process_knows_its_place_and_gets_the_jobs_variables(gang: Make) -> None:
    environ = {"MINE": "yes", "OMP_NUM_THREADS": "3"}
    command = replace(TORCH, environ={"MINE": "no", "OF_THE_FRAMEWORK": "1"})
    with gang(SHOW, (2, 2), command, devices=2, environ=environ) as started:
        started.start()
        assert [end["kind"] for end in started.ends()] == ["finished", "finished"]
        found = [json.loads(started.out(rank)) for rank in range(4)]
        port = str(started.ports[0][0])
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "TASK_ID")
    assert [tuple(each[name] for name in names) for each in found] == [
        ("0", "0", "0", "0", "2", "4", "1"),
        ("1", "1", "0", "0", "2", "4", "2"),
        ("2", "0", "1", "1", "2", "4", "3"),
        ("3", "1", "1", "1", "2", "4", "4"),
    ]
    assert {(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in found} == {("127.0.0.1", port)}
    assert {(each["MINE"], each["OF_THE_FRAMEWORK"], each["OMP_NUM_THREADS"]) for each in found} == {("yes", "1", "3")}
    assert not any("token" in value for each in found for value in each.values()), "the platform's own secret"
    assert not any({"OPENBLAS_NUM_THREADS", "PYTHONHASHSEED"} & each.keys() for each in found)


def test_nothing_starts_before_all_nodes_have_their_ports(gang: Make) -> None:
    with gang("print('ran')", (1, 1)) as started:
        first = started.supervisors[0]
        first.set_desired(started.desired(0, ports=()))
        first.set_desired(DesiredState(99, ()))  # of another attempt: ignored; both have been read when ports are known
        time.sleep(0.3)
        assert not started.bodies(ReportKind.ENGINE_STARTED)
        started.start()
        assert [end["kind"] for end in started.ends()] == ["finished", "finished"]


FAILS = """
import os, sys, time
open(f"ready-{os.environ['RANK']}", "w").close()
if os.environ["RANK"] == "1":
    while not os.path.exists("ready-0"):
        time.sleep(0.01)
    HOW
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("sys.exit(3)", "rank 1 ended with status 3"),
        ("raise ValueError('no such file')", "rank 1: ValueError: no such file"),
        ("os.kill(os.getpid(), 9)", "rank 1 was killed by signal 9 (SIGKILL)"),
        ("os.abort()", "rank 1 was killed by signal 6 (SIGABRT)"),
    ],
)
def test_one_failure_ends_all_with_its_message(gang: Make, how: str, message: str) -> None:
    with gang(FAILS.replace("HOW", how)) as started:
        started.start()
        [end] = started.ends()
        assert (end["kind"], end["message"], end["whole"]) == ("script-error", message, True)
        gone = started.gone()
        assert {number: body["kind"] for number, body in gone.items()} == {11: "left", 12: "script-error"}
        assert gone[12]["message"] == message and not gone[11]["message"]


def test_the_failure_that_caused_the_others_is_told(gang: Make) -> None:
    script = """
    import os, sys, time
    if os.environ["RANK"] == "0":
        raise ConnectionResetError("Connection reset by peer")
    time.sleep(0.4)
    raise KeyError("the cause")
    """
    with gang(script) as started:
        started.start()
        [end] = started.ends()
        assert end["message"] == "rank 1: KeyError: 'the cause'"
        assert {body["kind"] for body in started.gone().values()} == {"script-error"}


SAVES = """
import os, signal, sys, time
def save(number, frame):
    time.sleep(0.2)
    open(f"saved-{os.environ['RANK']}", "w").close()
    sys.exit(5)
signal.signal(signal.SIGTERM, save)
open(f"ready-{os.environ['RANK']}", "w").close()
time.sleep(600)
"""


def end_by_stop(started: GangUnderTest) -> None:
    started.tell_all(stop=True)


def end_by_drain(started: GangUnderTest) -> None:
    started.tell_all(slots=(), leaving=started.gang.nodes[0].allocations)


def end_by_one_slot(started: GangUnderTest) -> None:
    started.tell_all(slots=started.desired(0).slots[:1], leaving=started.gang.nodes[0].allocations[1:])


def end_by_signal(started: GangUnderTest) -> None:
    os.kill(started.supervisors[0].process.pid, signal.SIGTERM)


@pytest.mark.parametrize(
    ("how", "kind"),
    [(end_by_stop, "stopped"), (end_by_drain, "left"), (end_by_one_slot, "left"), (end_by_signal, "left")],
)
def test_processes_that_are_asked_to_end_can_save(gang: Make, how: Callable[[GangUnderTest], None], kind: str) -> None:
    with gang(SAVES) as started:
        started.start()
        for rank in (0, 1):
            started.await_file(f"ready-{rank}")
        how(started)
        [end] = started.ends()
        assert (end["kind"], end["whole"]) == (kind, True)
        assert {body["kind"] for body in started.gone().values()} == {kind}
        assert all((Path(started.specs[0].work_dir) / f"saved-{rank}").exists() for rank in (0, 1))


def test_what_a_shell_script_runs_can_save_too(gang: Make, tmp_path: Path) -> None:
    """The shell itself dies of the signal at once. Its slot is free when all has ended."""
    script = tmp_path / "train.sh"
    script.write_text("RANK=0 python main.py\necho after\n")
    with gang(SAVES, (1,), of_commands("bash", str(script))) as started:
        started.start()
        started.await_file("ready-0")
        end_by_stop(started)
        until(started.gone, 30, "its slot is free")
        assert (Path(started.specs[0].work_dir) / "saved-0").exists()
        [end] = started.ends()
        assert end["kind"] == "stopped"
        assert started.out(0) == ""


FORWARDS = """
import os, signal, subprocess, sys
COUNTS = '''
import signal, time
def count(number, frame):
    open("asked", "a").write("x")
    time.sleep(1)
    raise SystemExit
signal.signal(signal.SIGTERM, count)
open("ready-0", "w").close()
time.sleep(600)
'''
child = subprocess.Popen([sys.executable, "-c", COUNTS], start_new_session=True)
signal.signal(signal.SIGTERM, lambda number, frame: child.terminate())
child.wait()
"""


def test_a_process_gets_the_signal_once_if_its_launcher_forwards_it(gang: Make) -> None:
    """As torchrun does, here in a shell that ends at once."""
    with gang(FORWARDS, (1,), of_commands("bash", "-c", "python main.py; true")) as started:
        started.start()
        started.await_file("ready-0")
        end_by_stop(started)
        assert [end["kind"] for end in started.ends()] == ["stopped"]
        assert (Path(started.specs[0].work_dir) / "asked").read_text() == "x"


def test_who_does_not_end_within_the_grace_is_killed(gang: Make) -> None:
    script = """
    import os, signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open("ready-0", "w").close()
    time.sleep(600)
    """
    with gang(script, (1,), grace_seconds=0.5) as started:
        started.start()
        started.await_file("ready-0")
        end_by_stop(started)
        [end] = started.ends()
        assert (end["kind"], started.gone()[11]["signal"]) == ("stopped", signal.SIGKILL)


@pytest.mark.parametrize("how", [end_by_stop, end_by_drain, end_by_signal])
def test_slots_that_are_taken_back_before_the_start_are_reported(
    gang: Make, how: Callable[[GangUnderTest], None]
) -> None:
    with gang("raise SystemExit('not reached')") as started:
        assert len(started.ports[0]) == 3
        how(started)
        [end] = started.ends()
        assert end["kind"] == ("stopped" if how is end_by_stop else "left")
        assert set(started.gone()) == {11, 12}
        assert not started.bodies(ReportKind.ENGINE_STARTED)


def test_a_killed_supervisor_leaves_no_rank_behind(gang: Make) -> None:
    with gang(SAVES) as started:
        started.start()
        pids = started.pids().values()
        started.supervisors[0].kill()
        until(lambda: all(processes.start_time(pid) is None for pid in pids), 30, "its ranks are gone")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("no-such-program", "-x"), "the command 'no-such-program' was not found on node alpha (PATH "),
        (("./main.py",), "the command './main.py' cannot be run on node alpha: Permission denied"),
        (("./no/such",), "the command './no/such' was not found on node alpha"),
    ],
)
def test_a_command_that_cannot_be_run_is_a_clear_error(gang: Make, words: tuple[str, ...], message: str) -> None:
    with gang("", (1,), of_commands(*words)) as started:
        started.start()
        [end] = started.ends()
        assert end["kind"] == "script-error"
        assert end["message"].startswith(message)
        assert message in (started.log_dir / "rank-0.err").read_text()


def test_each_rank_has_logs_and_later_attempts_append(gang: Make) -> None:
    script = "import os, sys; print('out', os.environ['RANK']); print('err', file=sys.stderr)"
    for attempt in (1, 2):
        with gang(script) as started:
            started.start()
            started.ends()
            assert [started.out(rank) for rank in (0, 1)] == [f"out {rank}\n" * attempt for rank in (0, 1)]
            assert (started.log_dir / "rank-1.err").read_text() == "err\n" * attempt
        (Path(started.specs[0].spool_dir) / "reports.jsonl").unlink()


@pytest.mark.parametrize("count", [24, pytest.param(300, marks=pytest.mark.extended)])
def test_a_node_has_more_processes_of_a_gang_than_its_limit_of_open_files_seems_to_allow(
    gang: Make, count: int
) -> None:
    """The processes themselves keep the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 * count + 60, hard))
        with gang("", (count,), of_commands("sh", "-c", "ulimit -n; echo $TASK_ID >&2")) as started:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            started.start()
            assert [end["kind"] for end in started.ends()] == ["finished"]
            assert len(started.gone()) == count
            assert {started.out(rank) for rank in range(count)} == {f"{2 * count + 60}\n"}
            assert all((started.log_dir / f"rank-{rank}.err").read_text() == f"{rank + 1}\n" for rank in range(count))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


LEAVES_A_WRITER = """
import os, subprocess, time
if os.environ["RANK"] == "0":
    subprocess.Popen(["sh", "-c", os.environ["LATER"]], start_new_session=True)
else:
    while not os.path.exists("end"):
        time.sleep(0.02)
"""


def test_what_an_ended_process_has_started_goes_on_writing_its_log(gang: Make) -> None:
    later = "trap '' PIPE; while [ ! -e go ]; do sleep 0.02; done; echo later; echo worse >&2; touch end"
    with gang(LEAVES_A_WRITER, environ={"LATER": later}) as started:
        started.start()
        until(started.gone, 30, "rank 0 has ended")
        (Path(started.specs[0].work_dir) / "go").touch()
        assert [end["kind"] for end in started.ends()] == ["finished"]
        assert (started.out(0), (started.log_dir / "rank-0.err").read_text()) == ("later\n", "worse\n")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("later", ["exec yes", "trap '' TERM; while :; do sleep 0.1; done"])
def test_what_an_ended_process_has_started_does_not_hold_up_the_end(gang: Make, later: str) -> None:
    """It writes without end, or holds the log without writing, and ignores SIGTERM."""
    with gang(LEAVES_A_WRITER, environ={"LATER": later, "EDT_LOG_LIMIT_MIB": "1"}, grace_seconds=1.0) as started:
        started.start()
        until(started.gone, 30, "rank 0 has ended")
        end_by_stop(started)
        assert [end["kind"] for end in started.ends()] == ["stopped"]


def test_a_process_with_two_slots_reports_both_and_its_use_by_the_first(gang: Make) -> None:
    script = """
    import os, time
    until = time.process_time() + 0.2
    while time.process_time() < until: pass
    open("ready-0", "w").close()
    time.sleep(600)
    """
    command = GangCommand((PYTHON, MAIN), Processes.WORKER, (Rendezvous.TORCH,))
    with gang(script, (2,), command, devices=2) as started:
        started.start()
        assert len(set(started.pids().values())) == 1
        started.await_file("ready-0")
        usage = Path(started.specs[0].spool_dir) / USAGE_FILE
        until(usage.exists, 10, "its use is known")
        assert set(json.loads(usage.read_text())["engines"]) == {"11"}
        end_by_stop(started)
        assert [end["kind"] for end in started.ends()] == ["stopped"]
        assert set(started.gone()) == {11, 12}


TORCHRUN = GangCommand(
    (
        *("bash", "-c"),
        "exec torchrun --nnodes=1 --nproc_per_node=2 --node_rank=$NODE_RANK --master_addr=$MASTER_ADDR"
        " --master_port=$MASTER_PORT main.py",
    ),
    Processes.WORKER,
    (Rendezvous.TORCH,),
)


def test_torchrun_starts_ranks_and_leaves_nothing_behind(gang: Make) -> None:
    script = "import os, time; open('ready-' + os.environ['RANK'], 'w').close(); time.sleep(600)"
    with gang(script, (2,), TORCHRUN, devices=2) as started:
        started.start()
        for rank in (0, 1):
            started.await_file(f"ready-{rank}")
        below = processes.descendants(started.supervisors[0].process.pid)
        assert len(below) >= 3
        end_by_stop(started)
        assert [end["kind"] for end in started.ends()] == ["stopped"]
    assert all(processes.start_time(pid) is None for pid in below)


@pytest.mark.extended
def test_an_exception_in_a_process_of_torchrun_is_told(gang: Make) -> None:
    script = "import os\nif os.environ['RANK'] == '1': raise ValueError('in one of two')\nimport time; time.sleep(60)"
    with gang(script, (2,), TORCHRUN, devices=2) as started:
        started.start()
        [end] = started.ends()
        assert end["message"].startswith("rank 0: ValueError: in one of two")


def test_a_raised_fence_ends_a_gang_that_no_message_reaches(gang: Make) -> None:
    with gang(SAVES) as started:
        started.start()
        started.await_file("ready-0")
        folder = Path(started.specs[0].checkpoint_dir)
        folder.mkdir(exist_ok=True)
        (folder / "fence").write_text("2")
        [end] = started.ends()
        assert (end["kind"], end["message"]) == ("lost", "attempt 1 is shut out by fence 2")


MPI = GangCommand(
    ("mpirun", PYTHON, "main.py"), Processes.JOB, (Rendezvous.TORCH, Rendezvous.MPI), environ={"OF_THE_FRAMEWORK": "1"}
)
RANKS = """
import os, torch, torch.distributed as dist
rank, world = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
dist.init_process_group("gloo", rank=rank, world_size=world)
total = torch.tensor([rank])
dist.all_reduce(total)
os.write(1, f"rank {rank} of {world} sum {total.item()} {os.environ['OF_THE_FRAMEWORK']}\\n".encode())
dist.destroy_process_group()
"""


@pytest.mark.mpirun
@pytest.mark.parametrize(("per_node", "devices"), [pytest.param((2,), 2, marks=pytest.mark.extended), ((1, 1), 1)])
def test_mpirun_starts_a_rank_on_each_slot_of_all_workers(gang: Make, per_node: tuple[int, ...], devices: int) -> None:
    with gang(RANKS, per_node, MPI, devices=devices) as started:
        started.start()
        head = started.supervisors[0].ended(60)
        assert (head["kind"], head["whole"]) == ("finished", True)
        assert sorted(started.out(0).splitlines()) == ["rank 0 of 2 sum 1 1", "rank 1 of 2 sum 1 1"]
        started.tell_others_to_leave()
        for number in range(1, len(per_node)):
            assert started.supervisors[number].ended(30)["kind"] == "left"
            assert {body["kind"] for body in started.gone(number).values()} == {"left"}


MPIRUN = """
OMPI_COMM_WORLD_RANK=0 python main.py &
wait
"""
"""It starts a rank as mpirun does, and does not end before it. SIGTERM ends it at once."""


@pytest.mark.parametrize("how", [end_by_stop, end_by_drain])
@pytest.mark.parametrize(
    "line", ["sh mpirun; echo next; sleep 600", "(sh mpirun | tee copy; echo next) & wait; sleep 600"]
)
def test_a_script_around_mpirun_does_not_go_on_when_its_ranks_have_saved(
    gang: Make, how: Callable[[GangUnderTest], None], line: str
) -> None:
    command = GangCommand(("bash", "-c", line), Processes.JOB, (Rendezvous.MPI,))
    with gang(SAVES.replace("RANK", "OMPI_COMM_WORLD_RANK") + "\nprint('late')", (1,), command) as started:
        work_dir = Path(started.specs[0].work_dir)
        (work_dir / "mpirun").write_text(MPIRUN)
        started.start()
        started.await_file("ready-0")
        how(started)
        until(started.gone, 30, "its slot is free")
        assert (work_dir / "saved-0").exists()
        [end] = started.ends()
        assert end["kind"] == ("stopped" if how is end_by_stop else "left")
        assert started.out(0) == ""


@pytest.mark.mpirun
@pytest.mark.timeout(60)
@pytest.mark.parametrize("pipe", ["", pytest.param("| tee copy", marks=pytest.mark.extended)])
def test_a_script_around_the_real_mpirun_does_not_go_on_when_its_ranks_have_saved(gang: Make, pipe: str) -> None:
    script = SAVES.replace("RANK", "OMPI_COMM_WORLD_RANK").replace(
        "sys.exit(5)", "os.write(1, b'saved\\n'); sys.exit(0)"
    )
    line = f"mpirun python -u main.py {pipe}; echo next; touch next; sleep 600"
    command = replace(MPI, command=("bash", "-c", line))
    with gang(script, (1, 1), command, grace_seconds=20.0) as started:
        work_dir = Path(started.specs[0].work_dir)
        started.start()
        for rank in (0, 1):
            started.await_file(f"ready-{rank}")
        below = [pid for client in started.supervisors for pid in processes.descendants(client.process.pid)]
        end_by_stop(started)
        until(started.gone, 30, "its slot is free")
        assert all((work_dir / f"saved-{rank}").exists() for rank in (0, 1))
        assert [end["kind"] for end in started.ends()] == ["stopped", "stopped"]
        assert not (work_dir / "next").exists()
        printed = (work_dir / "copy").read_text() if pipe else started.out(0)
        assert sorted(printed.split()) == ["saved", "saved"], "what ranks print while they save is shown"
    assert all(processes.start_time(pid) is None for pid in below)


def rsh(*words: str) -> GangCommand:
    return GangCommand((PYTHON, "-m", "edt_runner.rsh.client", *words), Processes.JOB)


def test_edt_rsh_passes_on_arguments_output_and_exit_status(gang: Make) -> None:
    line = "echo out $RANK $1 $0; echo $MINE >&2; exit 7"
    command = rsh("-x", "-l", "me", "worker-1", f"sh -c '{line}'", "zero", "one")
    with gang("", (1, 1), command, environ={"MINE": "of the job"}) as started:
        started.start()
        end = started.supervisors[0].ended(30)
        assert (end["kind"], end["message"]) == ("script-error", "rank 0 ended with status 7")
        assert started.out(0) == "out one zero\n"
        assert (started.log_dir / "rank-0.err").read_text() == "of the job\n"


def test_a_command_of_edt_rsh_ends_with_its_connection(gang: Make) -> None:
    command = rsh("worker-1", "touch ready-0; exec sleep 600")
    with gang("", (2,), command) as started:  # two workers on one node
        started.start()
        pids = started.pids()
        started.await_file("ready-0")
        assert len(processes.descendants(pids[12])) == 2
        os.kill(pids[11], signal.SIGKILL)
        [end] = started.ends()
        assert end["message"] == "rank 0 was killed by signal 9 (SIGKILL)"
        assert {number: body["kind"] for number, body in started.gone().items()} == {11: "script-error", 12: "left"}


def test_edt_rsh_needs_the_key_of_the_job(gang: Make) -> None:
    with gang("", (1, 1), rsh("worker-1", "echo ran"), environ={"EDT_RSH_KEY": "guessed"}) as started:
        started.start()
        assert started.supervisors[0].ended(30)["message"] == "rank 0 ended with status 255"
        assert started.out(0) == ""
        assert "edt-rsh: worker-1 at 127.0.0.1:" in (started.log_dir / "rank-0.err").read_text()


@pytest.mark.mpirun
@pytest.mark.extended
def test_ranks_of_mpirun_can_save_when_the_job_is_stopped(gang: Make) -> None:
    script = SAVES.replace("RANK", "OMPI_COMM_WORLD_RANK")
    with gang(script, (1, 1), MPI, grace_seconds=4.0) as started:
        started.start()
        for rank in (0, 1):
            started.await_file(f"ready-{rank}")
        below = [pid for client in started.supervisors for pid in processes.descendants(client.process.pid)]
        end_by_stop(started)
        assert [end["kind"] for end in started.ends()] == ["stopped", "stopped"]
        assert all((Path(started.specs[0].work_dir) / f"saved-{rank}").exists() for rank in (0, 1))
    assert all(processes.start_time(pid) is None for pid in below)
