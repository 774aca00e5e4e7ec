"""What holds whatever supervisors run in. Every test runs once with processes and once with real containers; where
another test shows the one or the other already, that is of the second tier."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from edt_contract.crash_points import MARKS, VARIABLE, CrashPoint
from support.memory_cgroup import memory_cgroup
from support.places import TRAINING, Place
from support.waiting import until

pytestmark = pytest.mark.timeout(300)  # frameworks are imported and containers started, and a machine may be busy

CONTAINERS_LATER = ("process", pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.extended]))
PROCESSES_LATER = (
    pytest.param("process", marks=pytest.mark.extended),
    pytest.param("docker", marks=pytest.mark.docker),
)


@pytest.mark.parametrize("place", PROCESSES_LATER, indirect=True)  # test_agent_with_the_real_supervisor
def test_a_script_runs_to_its_end_and_leaves_only_its_files(place: Place) -> None:
    script = "import os, sys; print('hello from', os.environ['GREETED']); print('trouble', file=sys.stderr)"
    assignment = place.job("edt-1", script, environ={"GREETED": "x" * 300_000})
    end = place.ends("edt-1")
    assert (end["kind"], end["code"]) == ("finished", 0)
    log = place.folder("edt-1") / "log"
    assert (log / "driver.out").read_text() == f"hello from {'x' * 300_000}\n"
    assert (log / "driver.err").read_text() == "trouble\n"
    spool = {path.name for path in Path(assignment.spec.spool_dir).iterdir()}
    assert {"reports.jsonl", "supervisor.log"} <= spool


@pytest.mark.parametrize("place", CONTAINERS_LATER, indirect=True)  # how a container ends: the tests above
def test_the_status_a_script_exits_with_is_reported(place: Place) -> None:
    place.job("edt-2", "raise SystemExit(7)")
    end = place.ends("edt-2")
    assert (end["kind"], end["code"]) == ("script-error", 7)


@pytest.mark.parametrize("place", PROCESSES_LATER, indirect=True)  # elastic/test_supervisor, journeys/test_sharing
def test_engines_join_and_leave_as_processes_beside_each_other(place: Place) -> None:
    place.job("edt-3")
    place.reaches("edt-3", "engine-counted")
    assert place.engines("edt-3") == 1
    place.job("edt-3", slots=2)
    place.reaches("edt-3", "engine-counted", times=2)
    assert place.engines("edt-3") == 2
    before = place.supervisor("edt-3")
    place.job("edt-3", slots=1)
    assert place.reaches("edt-3", "engine-gone")["kind"] == "left"
    until(lambda: place.engines("edt-3") == 1, what="one engine is left")
    assert place.supervisor("edt-3") == before, "nothing was started anew"
    place.job("edt-3", slots=1, stop=True)
    assert place.ends("edt-3")["kind"] == "stopped"


@pytest.mark.parametrize("place", CONTAINERS_LATER, indirect=True)  # the supervisor does it, wherever it runs
def test_a_script_that_ignores_signals_is_killed_when_its_grace_is_over(place: Place) -> None:
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)\n"
    place.job("edt-4", script + "time.sleep(600)", grace_seconds=1)
    until(lambda: printed(place, "edt-4"), 90)
    started = time.monotonic()
    place.job("edt-4", script + "time.sleep(600)", grace_seconds=1, stop=True)
    assert place.ends("edt-4")["kind"] == "stopped"
    assert time.monotonic() - started < 60


def test_what_a_script_leaves_behind_goes_with_it(place: Place) -> None:
    script = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(600)\n"
    place.job("edt-5", script)
    assert place.ends("edt-5")["kind"] == "finished"


def test_a_supervisor_that_is_killed_is_a_loss_and_takes_everything_with_it(place: Place) -> None:
    place.job("edt-6", slots=2)
    place.reaches("edt-6", "engine-started", times=2)
    os.kill(place.supervisor("edt-6"), signal.SIGKILL)
    end = place.ends("edt-6")
    assert (end["kind"], end["message"]) == ("lost", "its supervisor was ended by signal 9")
    assert end["oom"] is False


@pytest.mark.parametrize("place", CONTAINERS_LATER, indirect=True)  # test_containers: docker stop
def test_sigterm_to_a_supervisor_means_leave_with_a_checkpoint(place: Place) -> None:
    place.job("edt-7")
    place.reaches("edt-7", "engine-counted")
    os.kill(place.supervisor("edt-7"), signal.SIGTERM)
    assert place.ends("edt-7")["kind"] == "left"
    assert "checkpointed" in place.api.kinds("edt-7/1")


def test_no_secret_of_a_spec_or_of_the_agent_can_be_seen_from_outside(place: Place) -> None:
    secret = "a-secret-of-the-job"
    script = "import os, time; print(os.environ['KEY'], os.environ.get('EDT_PASSWORD'), flush=True); time.sleep(600)"
    place.job("edt-8", script, environ={"KEY": secret})
    until(lambda: printed(place, "edt-8").endswith("\n"), 90)
    assert printed(place, "edt-8") == f"{secret} None\n"
    seen = [Path(f"/proc/{pid}/cmdline") for pid in place.processes("edt-8")]
    seen.append(Path(f"/proc/{place.supervisor('edt-8')}/environ"))
    shown = str(place.containers("edt-8")) + "".join(path.read_text() for path in seen)
    assert "edt_runner.supervisor" in shown
    assert secret not in shown and "a secret of the agent" not in shown
    place.job("edt-8", script, environ={"KEY": secret}, stop=True)
    place.ends("edt-8")


@pytest.mark.parametrize("own_place", PROCESSES_LATER, indirect=True)  # test_agent_with_the_real_supervisor
def test_an_agent_that_is_killed_is_followed_by_one_that_adopts(own_place: Place) -> None:
    place = own_place
    place.start()
    place.job("edt-1")
    place.reaches("edt-1", "engine-counted")
    before = place.supervisor("edt-1")
    place.kill_agent()
    place.start()
    place.job("edt-1", slots=2)
    place.reaches("edt-1", "engine-started", times=2)
    assert place.supervisor("edt-1") == before
    assert place.api.kinds("edt-1/1").count("attempt-started") == 1
    assert place.node.signal(signal.SIGINT) == 0
    assert place.api.last("edt-1/1", "attempt-ended")["kind"] == "left"
    assert not place.left_of("edt-1")


@pytest.mark.parametrize("own_place", CONTAINERS_LATER, indirect=True)  # the next test
def test_an_agent_that_dies_between_start_and_spec_leaves_nothing_that_runs(own_place: Place) -> None:
    place = own_place
    place.start(**{VARIABLE: CrashPoint.AGENT_SPEC})
    place.job("edt-1", "print('ran', flush=True)")
    until(lambda: place.node.agent.poll() is not None, 90, "it has died")
    until(lambda: not place.processes("edt-1"), what="the supervisor goes without a spec")
    assert not printed(place, "edt-1")
    place.start()
    assert place.ends("edt-1")["kind"] == "finished"
    assert printed(place, "edt-1") == "ran\n"


def test_wherever_the_agent_dies_a_job_runs_once_and_nothing_is_left(own_place: Place) -> None:
    place = own_place
    points = [point for point in CrashPoint if point.startswith("agent.")]
    marks = place.node.home / "crashes"
    crashes = {VARIABLE: ",".join(points), MARKS: str(marks)}
    script = "import os, time; print('ran', flush=True)\nwhile not os.path.exists('go'):\n    time.sleep(0.05)"
    place.start(**crashes)
    place.job("edt-1", script)

    def all_over() -> bool:
        if place.node.agent.poll() is not None:
            place.start(**crashes)
        if (marks / CrashPoint.AGENT_SEND).exists():  # a place that is only come by while it runs
            (place.folder("edt-1") / "go").touch()
        return "attempt-ended" in place.api.kinds("edt-1/1") and not place.left_of("edt-1")

    until(all_over, 180, "it ends although the agent dies everywhere")
    until(lambda: all_over() and len(list(marks.iterdir())) == len(points), 60)
    assert printed(place, "edt-1") == "ran\n"
    assert Counter(place.api.kinds("edt-1/1"))["attempt-started"] == 1
    assert place.api.last("edt-1/1", "attempt-ended")["kind"] == "finished"


def printed(place: Place, job: str) -> str:
    """What its driver has printed so far."""
    path = place.folder(job) / "log" / "driver.out"
    return path.read_text() if path.exists() else ""


@pytest.mark.docker
def test_an_engine_killed_for_memory_is_told_from_one_that_was_killed_in_a_container(docker_place: Place) -> None:
    memory_and_murder(docker_place, "edt-20")


@pytest.mark.memory_cgroup
def test_an_engine_killed_for_memory_is_told_from_one_that_was_killed_in_a_process(process_place: Place) -> None:
    with memory_cgroup(2 << 30) as group:
        process_place.start()
        (group / "cgroup.procs").write_text(str(process_place.node.agent.pid))
        try:
            memory_and_murder(process_place, "edt-20")
        finally:
            process_place.close()
            until(lambda: not (group / "cgroup.procs").read_text().strip(), what="the cgroup is empty")


def memory_and_murder(place: Place, job: str) -> None:
    place.job(job, TRAINING, slots=2)
    place.reaches(job, "engine-counted", times=2)
    (place.folder(job) / "die").touch()
    killed = place.reaches(job, "engine-gone")
    assert (killed["kind"], killed["signal"], killed["oom"]) == ("lost", signal.SIGKILL, False)
    (place.folder(job) / "eat").touch()
    starved = place.reaches(job, "engine-gone", times=2)
    assert (starved["kind"], starved["signal"], starved["oom"]) == ("lost", signal.SIGKILL, True)
    place.ends(job)
