"""The agent goes and another one comes: what runs stays, nothing runs twice, nothing is forgotten."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from edt_agent.supervisor_records import SupervisorRecord, SupervisorRecords
from edt_contract.gang import GangCommand
from support.tagged import leads, lives
from support.waiting import until


def supervisors(node) -> list[int]:
    """Session leaders among the stand-ins: one a supervisor."""
    return [pid for pid, line in node.processes().items() if "stand_in" in line and leads(pid)]


def test_sigterm_leaves_the_training_to_the_next_agent(node, api):
    node.start()
    pid = node.runs()
    assert node.signal(signal.SIGTERM) == 0
    assert lives(pid)
    received = len(api.reports["edt-1/1"])
    node.start()
    until(lambda: len(api.reports["edt-1/1"]) > received + 5, what="reports go on")
    api.want(node.assignment(slots=2))
    until(lambda: api.kinds("edt-1/1").count("engine-started") == 2)
    assert supervisors(node) == [pid]
    assert [each["seq"] for each in api.reports["edt-1/1"]] == list(range(1, len(api.reports["edt-1/1"]) + 1))


def test_a_killed_agent_is_followed_by_one_that_adopts(node, api):
    node.start(EDT_WARM="1")
    pid = node.runs()
    node.signal(signal.SIGKILL)
    node.start(EDT_WARM="1")
    api.want(node.assignment(slots=2))
    until(lambda: api.kinds("edt-1/1").count("engine-started") == 2)
    assert api.last("edt-1/1", "attempt-started")["pid"] == pid
    until(lambda: len(supervisors(node)) == 2, what="it and the new warm one; the old warm one is gone")


def test_what_died_while_no_agent_watched_is_reported_lost(node, api):
    node.start()
    pid = node.runs()
    node.signal(signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    node.start()
    until(lambda: "attempt-ended" in api.kinds("edt-1/1"))
    end = api.last("edt-1/1", "attempt-ended")
    assert (end["kind"], end["message"]) == ("lost", "its supervisor is gone, and its exit status is unknown")


def test_what_ended_while_no_agent_watched_is_reported_as_it_ended(node, api):
    node.start()
    pid = node.runs()
    node.signal(signal.SIGKILL)
    Path(node.home, "jobs", "edt-1", "finish").touch()
    until(lambda: not lives(pid))
    node.start()
    until(lambda: "attempt-ended" in api.kinds("edt-1/1"))
    assert api.last("edt-1/1", "attempt-ended")["kind"] == "finished"


def test_a_process_that_only_got_the_pid_of_a_supervisor_is_not_adopted(node, api):
    node.start()
    pid = node.runs()
    node.signal(signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not lives(pid))
    # The ledger now names this test's own process, by its right start time even: but it bears no mark of the home.
    path = next((node.home / "agent" / "n1" / "attempts").glob("*.json"))
    stat = Path("/proc/self/stat").read_text()
    starttime = int(stat[stat.rindex(")") + 2 :].split()[19])
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": os.getpid(), "starttime": starttime}))
    node.start()
    until(lambda: "attempt-ended" in api.kinds("edt-1/1"))
    assert api.last("edt-1/1", "attempt-ended")["kind"] == "lost"


def test_an_agent_that_lost_its_notes_finds_the_attempt_by_its_spool(node, api):
    node.start()
    pid = node.runs()
    node.signal(signal.SIGKILL)
    for path in (node.home / "agent" / "n1" / "attempts").glob("*.json"):
        path.unlink()
    node.start()
    api.want(node.assignment(slots=2))
    until(lambda: api.kinds("edt-1/1").count("engine-started") == 2)
    assert supervisors(node) == [pid]


def test_an_agent_that_lost_its_notes_finds_the_second_supervisor_of_an_attempt(node, api):
    node.start()
    node.runs()
    api.want(node.assignment(slots=0))
    until(lambda: "attempt-ended" in api.kinds("edt-1/1"))
    api.want(node.assignment(first=10))
    until(lambda: api.kinds("edt-1/1").count("engine-started") == 2)
    node.signal(signal.SIGKILL)
    second = api.last("edt-1/1", "attempt-started")["pid"]
    for path in (node.home / "agent" / "n1" / "attempts").glob("*.json"):
        path.unlink()
    node.start()
    api.want(node.assignment(slots=2, first=10))
    until(lambda: api.kinds("edt-1/1").count("engine-started") == 3)
    assert supervisors(node) == [second]


def test_an_agent_that_lost_its_notes_ends_what_still_runs_before_it_says_so(node, api):
    node.start()
    pid = node.runs()
    node.signal(signal.SIGKILL)
    for path in (node.home / "agent" / "n1" / "attempts").glob("*.json"):
        path.unlink()
    api.want(node.assignment(stop=True))
    node.start()
    until(lambda: "attempt-ended" in api.kinds("edt-1/1"))
    assert api.last("edt-1/1", "attempt-ended")["kind"] == "stopped"
    assert not lives(pid)


def test_an_agent_that_lost_its_notes_does_not_start_a_gang_again_that_has_ended_here(node, api):
    gang = GangCommand(("x",))
    node.start()
    node.runs(gang=gang)
    Path(node.home, "jobs", "edt-1", "finish").touch()
    until(lambda: "attempt-ended" in api.kinds("edt-1/1"))
    heard = list(api.reports["edt-1/1"])
    node.signal(signal.SIGKILL)
    for path in (node.home / "agent" / "n1" / "attempts").glob("*.json"):
        path.unlink()
    Path(node.home, "jobs", "edt-1", "finish").unlink()
    api.want(node.assignment(gang=gang))
    node.start()
    until(lambda: len(api.registrations) == 2)
    node.runs(job="edt-2")
    assert api.reports["edt-1/1"] == heard
    assert len(supervisors(node)) == 1


def test_ctrl_c_lets_everything_leave_and_reports_the_ends(node, api):
    node.start()
    pids = [node.runs(), node.runs(job="edt-2")]
    assert node.signal(signal.SIGINT) == 0
    assert not any(lives(pid) for pid in pids)
    assert api.last("edt-1/1", "attempt-ended")["kind"] == "left"
    assert api.last("edt-2/1", "attempt-ended")["kind"] == "left"
    until(lambda: not node.processes(), what="no process is left")


def test_a_second_ctrl_c_kills_at_once(node, api):
    node.start()
    assignment = node.assignment(environ={"STAND_IN": "mute"}, grace_seconds=3600)
    api.want(assignment)
    until(lambda: "attempt-started" in api.kinds("edt-1/1"))
    node.agent.send_signal(signal.SIGINT)
    until(lambda: "leaves" in node.log)
    assert node.signal(signal.SIGINT) == 0  # it does not wait for a grace of an hour
    assert api.last("edt-1/1", "attempt-ended")["kind"] == "lost"
    until(lambda: not node.processes(), what="no process is left")


def test_two_agents_of_one_name_do_not_work_in_one_home(node, api, monkeypatch):
    node.start()
    until(lambda: api.registrations)
    first = node.agent
    node.start()
    until(lambda: "another agent works in" in node.log, what="the second waits")
    assert len(api.registrations) == 1
    first.send_signal(signal.SIGTERM)
    first.wait(60)
    until(lambda: len(api.registrations) == 2, what="the second takes over")
    assert node.runs(), "the first has left no gap behind"


def test_an_agent_sweeps_the_half_written_records_of_those_that_were_killed(tmp_path):
    records = SupervisorRecords(tmp_path)
    record = SupervisorRecord("edt-1", 1, "a", "/spool", "/socket", 5.0)
    (tmp_path / ".edt-1.1.json.draft").write_text('{"job": "edt-')
    records.write(record)
    (tmp_path / ".edt-2.1.json.draft").write_text('{"job": "edt-')
    assert list(records) == [record]
    assert [path.name for path in tmp_path.iterdir()] == ["edt-1.1.json"]
