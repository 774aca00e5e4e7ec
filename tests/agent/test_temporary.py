"""A node that another cluster manager gives for a while: it leaves when it is told, when its time is over, or when it
is idle, and its first process keeps an agent running until then."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from edt_agent import lock
from edt_agent.errors import HomeTaken
from edt_agent.launchers.process import ProcessHandle
from edt_agent.leaving import Deadlines
from edt_agent.lock import boot_id, exclusive
from edt_agent.processes import Children
from edt_agent.supervisor_records import SupervisorRecord
from edt_contract.processes import TAG_VARIABLE
from support.memory_cgroup import memory_cgroup
from support.places import ROOT, docker
from support.tagged import lives
from support.waiting import until

AGENT_IMAGE = "openedt/agent:test"
PACKAGES = ("callbacks", "edt_agent", "edt_contract", "edt_runner", "emetrics", "fabric_model", "pyedt")
SITE = "/opt/openedt/lib/python3.11/site-packages"

KILL_AGENT = """
import os, pathlib, signal
for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    if b"edt_agent\\0" in entry.read_bytes():
        os.kill(int(entry.parent.name), signal.SIGKILL)
"""


def children(parent: int) -> list[int]:
    """pids of its children, dead or alive."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and _stat(int(entry.name))[1] == str(parent):
                found.append(int(entry.name))
    return found


def _stat(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2 :].split()


def agents(node) -> list[int]:
    """pids of the living agents under the node's first process."""
    lines = {}
    for pid in children(node.agent.pid):
        with suppress(OSError):
            lines[pid] = Path(f"/proc/{pid}/cmdline").read_text()
    return [pid for pid, line in lines.items() if "agent_main" in line]


def said(api) -> list[str]:
    """What the node has said of its leaving, each thing once."""
    words = ["gone" if each["gone"] else "may I" if each["if_idle"] else "leaving" for each in api.leaving]
    return list(dict.fromkeys(words))


def left_of(node) -> list[str]:
    """Processes of the node, and the agent's own files."""
    return [*node.processes().values(), *(map(str, (node.home / "agent").rglob("*")))]


def test_a_node_that_is_taken_back_works_on_until_its_jobs_have_moved(node, api):
    node.start_temporary(EDT_LEAVE_SECONDS="60")
    pid = node.runs()
    node.agent.send_signal(signal.SIGTERM)
    until(lambda: api.leaving, what="it says that it leaves")
    assert api.leaving == [{"why": "its cluster manager takes it back", "if_idle": False, "gone": False}]
    received = len(api.reports["edt-1/1"])
    until(lambda: len(api.reports["edt-1/1"]) > received + 5, what="training goes on")
    node.agent.send_signal(signal.SIGTERM)  # as Slurm does, and once more for all processes
    assert lives(pid)
    api.want(node.assignment(slots=0))  # its engines have joined elsewhere
    while node.agent.poll() is None:
        for agent in agents(node):
            os.kill(agent, signal.SIGTERM)
        time.sleep(0.002)
    assert node.agent.wait(20) == 0
    assert "ended by signal" not in node.log, "signals at its very end change nothing"
    assert api.last("edt-1/1", "attempt-ended")["kind"] == "left"
    assert said(api) == ["leaving", "gone"]
    assert not left_of(node)


def test_what_has_nowhere_to_move_leaves_with_a_checkpoint_and_what_does_not_leave_in_time_is_killed(node, api):
    node.start_temporary(EDT_LEAVE_SECONDS="6")
    api.want(node.assignment(job="edt-2", environ={"STAND_IN": "mute"}))
    node.runs()
    until(lambda: "attempt-started" in api.kinds("edt-2/1"))
    began = time.monotonic()
    assert node.signal(signal.SIGTERM) == 0
    assert 3 <= time.monotonic() - began < 8
    assert api.kinds("edt-1/1")[-3:] == ["engine-gone", "checkpointed", "attempt-ended"]
    assert api.last("edt-1/1", "attempt-ended")["kind"] == "left"
    end = api.last("edt-2/1", "attempt-ended")
    why = "it did not leave before its node ended (its cluster manager takes it back)"
    assert (end["kind"], end["message"], end["oom"]) == ("lost", f"its supervisor was killed: {why}", False)
    assert said(api) == ["leaving", "gone"]
    assert not left_of(node)


def test_an_api_that_is_away_does_not_keep_a_node(node, api):
    node.start_temporary(EDT_LEAVE_SECONDS="4")
    node.runs()
    api.down = True
    began = time.monotonic()
    assert node.signal(signal.SIGTERM) == 0
    assert time.monotonic() - began < 6
    assert not node.processes()
    assert not said(api)
    assert list((node.home / "agent" / "n1" / "attempts").iterdir()), (
        "an agent that comes later can deliver the reports"
    )
    last = (node.home / "jobs" / "edt-1" / "spool" / "1-n1" / "reports.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["body"]["kind"] == "left"


def test_a_dead_agent_is_followed_by_one_that_adopts_and_goes_on_leaving(node, api):
    node.start_temporary(EDT_LEAVE_SECONDS="60")
    pid = node.runs()
    [agent] = agents(node)
    os.kill(agent, signal.SIGKILL)
    until(lambda: "adopted" in node.log, what="the next agent adopts what runs")
    assert pid in children(node.agent.pid), "the supervisor is the first process's child now"
    [second] = agents(node)
    node.agent.send_signal(signal.SIGTERM)
    until(lambda: len(api.leaving) == 1)
    os.kill(second, signal.SIGKILL)
    until(lambda: len(api.leaving) == 2, what="the third agent leaves, too")
    api.want(node.assignment(slots=0))
    assert node.agent.wait(20) == 0
    assert said(api) == ["leaving", "gone"]
    assert api.kinds("edt-1/1").count("attempt-started") == 1
    assert not left_of(node)


def test_a_node_that_is_taken_back_while_it_starts_leaves(node, api):
    node.start_temporary(EDT_LEAVE_SECONDS="20")
    until(lambda: agents(node))
    assert node.signal(signal.SIGTERM) == 0
    assert said(api) == ["leaving", "gone"]


def test_a_node_leaves_before_its_time_is_over(node, api):
    node.start_temporary(EDT_LEAVE_SECONDS="5", EDT_ENDS_AT=str(time.time() + 72))  # 60 s to leave, 10 s to spare
    node.runs()
    until(lambda: api.leaving, 10, what="it begins to leave by itself")
    assert api.leaving[0]["why"].startswith("its time is over at 20")
    api.want(node.assignment(slots=0))
    assert node.agent.wait(20) == 0
    assert said(api) == ["leaving", "gone"]


def test_an_idle_node_asks_whether_it_may_leave_and_goes_when_it_may(node, api):
    api.idle_may_leave = False
    node.start_temporary(EDT_IDLE_SECONDS="0.4")
    until(lambda: len(api.leaving) == 2, what="it asks again")
    node.runs()
    asked = len(api.leaving)
    time.sleep(1.0)
    assert len(api.leaving) == asked, "a node with a job does not ask"
    api.idle_may_leave = True
    Path(node.home, "jobs", "edt-1", "finish").touch()
    assert node.agent.wait(20) == 0
    assert api.leaving[-2]["why"] == "no job has used it for 0.4 s"
    assert said(api) == ["may I", "gone"]
    assert not left_of(node)


@pytest.mark.memory_cgroup
def test_a_supervisor_that_the_kernel_killed_for_memory_is_reported_so(node, api):
    with memory_cgroup(512 << 20) as group:
        enter = ("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh")
        node.start_temporary(before=enter)
        node.runs()
        Path(node.home, "jobs", "edt-1", "eat").touch()
        until(lambda: "attempt-ended" in api.kinds("edt-1/1"))
        end = api.last("edt-1/1", "attempt-ended")
        assert (end["kind"], end["message"]) == ("lost", "its supervisor was killed for want of memory")
        assert (end["oom"], end["code"]) == (True, -9)
        assert node.signal(signal.SIGTERM) == 0


def test_a_process_of_another_machine_is_not_taken_for_a_supervisor(tmp_path):
    """A node moves: there, another process may have the pid and the start time of a record, and the home's mark."""

    async def looks() -> None:
        children = Children()
        child = children.start(["/bin/sleep", "60"], {TAG_VARIABLE: "t", "EDT_LIFE": "one"})
        record = SupervisorRecord("edt-1", 1, "n", str(tmp_path), "", 0.1, child.id.pid, child.id.starttime)
        handles = [ProcessHandle(replace(record, life=life), "t") for life in ("one", "another")]
        assert [handle.lives for handle in handles] == [True, False]
        assert [handle.empty() for handle in handles] == [False, True]
        handles[1].kill()
        assert handles[0].lives
        handles[0].kill()
        until(lambda: not handles[0].lives)
        children.reap()

    asyncio.run(looks())


@pytest.mark.extended
def test_a_node_that_was_started_again_on_another_machine_ends_here(process_place):
    place = process_place
    place.start("edt_agent.temporary", EDT_TEMPORARY="true")
    until(lambda: place.api.registrations)
    path = place.node.home / "agent" / "n1" / "lock"
    path.unlink()
    path.touch()
    assert place.node.agent.wait(20) == 2
    assert "edt agent: the node n1 was started again on another machine" in place.node.log


@pytest.mark.extended
def test_real_engines_write_a_checkpoint_before_the_grace_is_over(process_place):
    place = process_place
    place.start("edt_agent.temporary", EDT_TEMPORARY="true", EDT_LEAVE_SECONDS="12")
    place.job("edt-1", slots=2)
    place.reaches("edt-1", "engine-joined", times=2)
    assert place.node.signal(signal.SIGTERM) == 0
    assert place.api.last("edt-1/1", "attempt-ended")["kind"] == "left"
    assert place.api.last("edt-1/1", "checkpointed")["step"] > 0
    assert said(place.api) == ["leaving", "gone"]
    assert not left_of(place.node)


# ── the first process alone ───────────────────────────────────────────────────────────────────────────────────────
@contextmanager
def init(script: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """The first process, with a Python script as the agent."""
    line = "import sys; from edt_agent.temporary import run_node; sys.exit(run_node([sys.executable, *sys.argv[1:]]))"
    with subprocess.Popen(
        [sys.executable, "-c", line, "-c", script],
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as first:
        try:
            yield first
        finally:
            first.kill()


def numbers(first: subprocess.Popen[str]) -> list[int]:
    """The line that the agent prints."""
    assert first.stdout is not None
    return [int(word) for word in first.stdout.readline().split()]


SLEEPER = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
ORPHANS = """
import os, subprocess, sys
subprocess.run(["sh", "-c", "true & exec true"])
words = ["setsid", "sh", "-c", "sleep 600 & echo $!; exec sleep 600"]
kept = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
print(os.getpid(), kept.pid, kept.stdout.readline(), flush=True)
sys.stdin.readline()
"""


def test_orphans_are_reaped_and_nothing_is_left_when_the_agent_has_ended():
    with init(ORPHANS) as first:
        agent, *kept = numbers(first)
        until(lambda: children(first.pid) == [agent], 10, what="it has reaped the orphan")
        assert all(map(lives, kept))
        first.communicate("\n", timeout=20)
        assert first.returncode == 0
        assert not any(map(lives, kept))


def test_an_agent_that_cannot_work_ends_the_node_with_its_status_and_sentence():
    command = [sys.executable, "-m", "edt_agent.temporary", "--name", "a b"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 2
    assert "--name: 'a b'; it is a node's name" in ended.stderr


def test_a_leaving_node_whose_next_agent_is_refused_has_left():
    with init("import signal, sys; print(0, flush=True); signal.sigwait({15}); sys.exit(2)") as first:
        numbers(first)
        first.terminate()
        assert first.wait(10) == 0


def test_an_agent_that_ignores_the_leave_is_killed_when_the_time_is_over():
    with init(SLEEPER, EDT_LEAVE_SECONDS="0.5") as first:
        [agent] = numbers(first)
        first.send_signal(signal.SIGINT)
        assert first.wait(10) == 0
        assert not lives(agent)


def test_an_agent_dies_with_the_first_process():
    with init(SLEEPER) as first:
        [agent] = numbers(first)
        first.kill()
        until(lambda: not lives(agent))


@pytest.mark.docker
def test_it_is_process_1_of_a_container(node, api):
    """With the real supervisor: an agent dies and is followed, and ``docker stop`` means leave."""
    assignment = node.assignment(grace_seconds=10)
    folder = Path(assignment.spec.work_dir)
    folder.joinpath("main.py").write_text("import time; print('runs', flush=True); time.sleep(600)")
    for name in ("log", "checkpoint", "model"):
        folder.joinpath(name).mkdir(exist_ok=True)
    settings = {"EDT_API": api.url, "EDT_HOME": str(node.home), "EDT_NAME": node.name, "EDT_WARM": "0"}
    settings |= {"EDT_TEMPORARY": "true", "EDT_LEAVE_SECONDS": "6", "EDT_DEVICES": "cpu", "EDT_CPU_SLOTS": "1"}
    settings |= {"EDT_AGENT_POLL_SECONDS": "1"}
    sources = (f"{ROOT}/runners/{name}:{SITE}/{name}:ro" for name in PACKAGES)
    words = ["--user", "0:0", "--network", "host", "--entrypoint", "python", "--stop-signal", "SIGTERM"]
    words += [word for name, value in settings.items() for word in ("-e", f"{name}={value}")]
    words += [word for mount in (f"{node.home}:{node.home}", *sources) for word in ("-v", mount)]
    container = docker("run", "-d", *words, AGENT_IMAGE, "-P", "-m", "edt_agent.temporary").strip()
    try:
        api.want(assignment)
        until(lambda: "engine-started" in api.kinds("edt-1/1"), 60, docker("logs", container))
        docker("exec", container, "python", "-c", KILL_AGENT)
        until(lambda: len(api.registrations) == 2, 30, "another agent follows")
        docker("stop", "-t", "25", container)
        [state] = json.loads(docker("inspect", container))
        assert (state["State"]["ExitCode"], state["State"]["OOMKilled"]) == (0, False)
        assert said(api) == ["leaving", "gone"]
        assert api.kinds("edt-1/1").count("attempt-started") == 1
        assert api.kinds("edt-1/1")[-1] == "attempt-ended"
    finally:
        docker("rm", "-f", container, check=False)


# ── deadlines and the lock ────────────────────────────────────────────────────────────────────────────────────────
def test_engines_have_half_of_a_short_grace_and_two_minutes_of_a_long_one():
    assert Deadlines.within(30.0, 100.0) == Deadlines(115.0, 125.0, 128.75)
    assert Deadlines.within(600.0, 0.0) == Deadlines(480.0, 595.0, 598.75)
    assert Deadlines.within(0.0, 7.0) == Deadlines(7.0, float("inf"), float("inf"))
    assert Deadlines.within(600.0, 0.0).sooner(Deadlines.within(60.0, 0.0)) == Deadlines.within(60.0, 0.0)


@pytest.mark.parametrize(("holder", "take_over", "taken"), [("another", True, True), ("another", False, False)])
def test_only_the_lock_of_a_lost_machine_is_taken_over_and_only_by_a_temporary_node(
    tmp_path, monkeypatch, holder, take_over, taken
):
    monkeypatch.setattr(lock, "_LOCK_SECONDS", 0.2)
    path = tmp_path / "lock"

    async def locks() -> None:
        async with exclusive(path, take_over=True) as old:
            assert path.read_text() == boot_id()
            with pytest.raises(HomeTaken):  # its holder lives on this machine
                async with exclusive(path, take_over=True):
                    pass
            path.write_text(holder)  # as if the server kept the lock of another machine
            if not taken:
                with pytest.raises(HomeTaken):
                    async with exclusive(path, take_over=take_over):
                        pass
                assert old.holds
                return
            async with exclusive(path, take_over=take_over) as new:
                assert new.holds and not old.holds
                with path.open("ab") as third, pytest.raises(BlockingIOError):
                    fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)

    asyncio.run(locks())
