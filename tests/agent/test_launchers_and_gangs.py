"""What holds of gangs whatever their supervisors run in: processes of this machine, or real containers."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from edt_contract.attempt import ATTEMPT_FILE, USAGE_FILE, Assignment
from edt_contract.gang import GangCommand, Processes, Rendezvous
from support.places import Place
from support.tagged import bearers
from support.waiting import until

pytestmark = pytest.mark.timeout(300)  # containers are started, and a machine may be busy

CONTAINERS_LATER = ("process", pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.extended]))
PROCESSES_LATER = (
    pytest.param("process", marks=pytest.mark.extended),
    pytest.param("docker", marks=pytest.mark.docker),
)
COMMAND = GangCommand(("{python}", "{main}"), Processes.DEVICE, (Rendezvous.TORCH,))

MEET = """
import os, shutil, socket, sys
rank, where = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(where) as server:
        friend, _ = server.accept()
        print("heard", friend.recv(100).decode(), "of", os.environ["WORLD_SIZE"])
else:
    while True:
        try:
            friend = socket.create_connection(where)
            break
        except ConnectionRefusedError:
            pass
    friend.sendall(f"rank {rank}".encode())
print("python", os.path.realpath(shutil.which("python")) == os.path.realpath(sys.executable))
print("torchrun", os.path.dirname(shutil.which("torchrun") or "") == os.path.dirname(sys.executable))
print("odd", [name for name in ("OPENBLAS_NUM_THREADS", "PYTHONHASHSEED") if name in os.environ])
print("trouble", file=sys.stderr)
"""

LOOK_AROUND = """
import json, os, signal
from pathlib import Path

def tried(what):
    try:
        return repr(what())
    except OSError as error:
        return error.strerror

status = dict(line.split(":\\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\\t" in line)
spool = next(Path("spool").iterdir())
private = Path("private-" + os.environ["RANK"])
private.write_text("x")
private.chmod(0o600)
print(json.dumps({
    "uid": os.getuid(), "gid": os.getgid(),
    "named": [int(os.environ["DLI_RUN_AS_" + each]) for each in ("USER", "GROUP")],
    "MASTER_ADDR": os.environ["MASTER_ADDR"],
    "privileges": {name: status[name].strip() for name in ("CapPrm", "CapEff", "NoNewPrivs")},
    "descriptors": [number for number in range(64) if os.path.exists(f"/proc/self/fd/{number}")],
    "supervisor": {
        "kill": tried(lambda: os.kill(1, signal.SIGTERM)), "environ": tried(Path("/proc/1/environ").read_bytes),
        "reports": tried(lambda: (spool / "reports.jsonl").open("ab")), "new": tried((spool / "new").touch),
    },
}))
"""

WAIT = """
import os, signal, sys, time

def save(number, frame):
    open("saved-" + os.environ["RANK"], "w").close()
    sys.exit(1)

signal.signal(signal.SIGTERM, save)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sh", ["sh", "-c", "echo elsewhere; exec sleep 600"])
    os._exit(0)
os.wait()
print("waits", flush=True)
while True:
    time.sleep(0.05)
"""


def start(place: Place, job: str, script: str, **given: Any) -> Assignment:
    """Start a gang of two processes, as the platform does: the ports are sent when they are reserved."""
    place.job(job, script, slots=2, gang=COMMAND, **given)
    ports = place.reaches(job, "ports-reserved")["ports"]
    assert len(set(ports)) == 3, "one for the rendezvous and one for each slot"
    assert "engine-started" not in place.api.kinds(f"{job}/1"), "nothing starts before the others are ready"
    assignment = place.job(job, script, slots=2, gang=COMMAND, ports=(tuple(ports),), **given)
    place.reaches(job, "engine-started", times=2)
    return assignment


def lose_records(place: Place, *, half_written: bool = False) -> None:
    """Remove the agent's records of its supervisors, or cut them in the middle."""
    for path in (place.node.home / "agent" / place.node.name / "attempts").glob("*.json"):
        if half_written:
            path.write_text(path.read_text()[:40])
        else:
            path.unlink()


def printed(place: Place, job: str, rank: int, stream: str = "out") -> str:
    path = place.folder(job) / "log" / f"rank-{rank}.{stream}"
    return path.read_text() if path.exists() else ""


def wait_for_both(place: Place, job: str) -> None:
    """Both processes wait, and each has left a process in a session of its own."""
    until(lambda: all("waits" in printed(place, job, rank) for rank in (0, 1)), 60)
    until(lambda: all("elsewhere" in printed(place, job, rank) for rank in (0, 1)), 60)

    def all_run() -> bool:
        names = list(place.processes(job).values())
        return len(names) == 5 and names.count("sleep") == 2  # each was a shell before

    until(all_run, what="a supervisor, two processes, and two that they have left")


@pytest.mark.parametrize("place", PROCESSES_LATER, indirect=True)  # elastic/test_gangs
def test_its_processes_find_each_other_the_runners_programs_and_nothing_odd(place: Place) -> None:
    start(place, "edt-31", MEET)
    end = place.ends("edt-31")
    assert (end["kind"], end["code"]) == ("finished", 0), printed(place, "edt-31", 0, "err")
    found = "python True\ntorchrun True\nodd []\n"
    assert printed(place, "edt-31", 0) == f"heard rank 1 of 2\n{found}"
    assert printed(place, "edt-31", 1) == found
    assert printed(place, "edt-31", 1, "err") == "trouble\n"


@pytest.mark.docker
def test_in_a_container_its_processes_are_the_scripts_user_and_hold_nothing_of_their_supervisor(
    docker_place: Place,
) -> None:
    start(docker_place, "edt-41", LOOK_AROUND)
    assert docker_place.ends("edt-41")["kind"] == "finished", printed(docker_place, "edt-41", 0, "err")
    for rank in (0, 1):
        seen = json.loads(printed(docker_place, "edt-41", rank))
        assert (seen["uid"], seen["privileges"]) == (10002, {"CapPrm": "0" * 16, "CapEff": "0" * 16, "NoNewPrivs": "1"})
        assert seen["named"] == [seen["uid"], seen["gid"]]
        assert seen["descriptors"] == [0, 1, 2]
        assert set(seen["supervisor"].values()) == {"Operation not permitted", "Permission denied"}
        assert seen["MASTER_ADDR"] == "127.0.0.1"
    # What they have written can be read and deleted by the platform.
    assert (docker_place.folder("edt-41") / "log/rank-1.out").stat().st_gid == 10001
    assert (docker_place.folder("edt-41") / "private-1").stat().st_mode & 0o060 == 0o060


@pytest.mark.parametrize("place", CONTAINERS_LATER, indirect=True)  # the last process of a container takes all with it
def test_a_supervisor_that_is_killed_is_a_loss_and_takes_everything_with_it(place: Place) -> None:
    start(place, "edt-32", WAIT)
    wait_for_both(place, "edt-32")
    os.kill(place.supervisor("edt-32"), signal.SIGKILL)
    end = place.ends("edt-32")
    assert (end["kind"], end["message"]) == ("lost", "its supervisor was ended by signal 9")
    assert not list(place.folder("edt-32").glob("saved-*")), "nobody asked them to end"


@pytest.mark.parametrize("own_place", CONTAINERS_LATER, indirect=True)  # another agent is the same to both
def test_its_processes_outlive_the_agent_and_save_when_the_next_agent_asks_them_to_leave(own_place: Place) -> None:
    place = own_place
    place.start()
    start(place, "edt-1", WAIT)
    wait_for_both(place, "edt-1")
    before = place.processes("edt-1")
    used = until(lambda: usage(place, "edt-1"), what="its processes are measured")
    assert set(used) == {"100", "101"}
    place.kill_agent()
    place.start()
    until(lambda: "adopted" in place.node.log, 60)
    assert place.processes("edt-1") == before
    assert place.node.signal(signal.SIGINT) == 0
    assert place.api.last("edt-1/1", "attempt-ended")["kind"] == "left"
    assert [place.api.kinds("edt-1/1").count(kind) for kind in ("attempt-started", "engine-gone")] == [1, 2]
    assert {path.name for path in place.folder("edt-1").glob("saved-*")} == {"saved-0", "saved-1"}
    assert not place.left_of("edt-1")


@pytest.mark.parametrize("own_place", CONTAINERS_LATER, indirect=True)  # Docker knows containers by their labels
@pytest.mark.parametrize("records", ["lost", "half written"])
def test_an_agent_without_records_adopts_a_gang_whole(own_place: Place, records: str) -> None:
    place = own_place
    place.start()
    start(place, "edt-1", WAIT)
    wait_for_both(place, "edt-1")
    place.kill_agent()
    lose_records(place, half_written=records == "half written")
    place.start()
    until(lambda: "adopted" in place.node.log, 60)
    assert place.node.signal(signal.SIGINT) == 0
    assert place.api.last("edt-1/1", "attempt-ended")["kind"] == "left", place.node.log
    assert [place.api.kinds("edt-1/1").count(kind) for kind in ("attempt-started", "engine-gone")] == [1, 2]
    assert {path.name for path in place.folder("edt-1").glob("saved-*")} == {"saved-0", "saved-1"}
    assert not place.left_of("edt-1")


def test_an_agent_without_records_ends_all_that_a_dead_supervisor_left_before_it_reports_the_end(
    process_place: Place,
) -> None:
    place = process_place
    place.start()
    start(place, "edt-1", WAIT)
    wait_for_both(place, "edt-1")
    supervisor = place.supervisor("edt-1")
    place.kill_agent()
    lose_records(place)
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: len(bearers(place.node.tag)) == 2, what="its ranks die with it, and what they left lives on")
    place.start()
    end = place.reaches("edt-1", "attempt-ended")
    assert set(bearers(place.node.tag)) <= {place.node.agent.pid}, "the platform gives away the slots now"
    assert (end["kind"], end["message"]) == ("lost", "its supervisor is gone, and its exit status is unknown")


def test_a_gang_whose_records_are_all_lost_is_ended_and_not_started_beside_itself(process_place: Place) -> None:
    place = process_place
    place.start()
    assignment = start(place, "edt-1", WAIT)
    wait_for_both(place, "edt-1")
    place.kill_agent()
    lose_records(place)
    Path(assignment.spec.spool_dir, ATTEMPT_FILE).unlink()
    place.job("edt-1", WAIT, slots=2, gang=COMMAND, ports=assignment.desired.ports)  # says which reports have come
    place.start()
    end = place.reaches("edt-1", "attempt-ended")
    assert set(bearers(place.node.tag)) <= {place.node.agent.pid}
    assert (end["kind"], place.api.kinds("edt-1/1").count("attempt-started")) == ("lost", 1)


@pytest.mark.extended  # elastic/test_gangs: the supervisor does it, wherever it runs
def test_a_stop_lets_its_processes_save(place: Place) -> None:
    start(place, "edt-33", WAIT)
    wait_for_both(place, "edt-33")
    place.job("edt-33", WAIT, slots=0, gang=COMMAND, size=2, stop=True)
    assert place.ends("edt-33")["kind"] == "stopped"
    assert {path.name for path in place.folder("edt-33").glob("saved-*")} == {"saved-0", "saved-1"}


def usage(place: Place, job: str) -> dict[str, Any]:
    """What the supervisor has measured of each allocation."""
    path = next(Path(place.folder(job), "spool").iterdir()) / USAGE_FILE
    found: dict[str, Any] = json.loads(path.read_text())["engines"] if path.exists() else {}
    return found
