"""The agent and what it starts, on real processes: wishes, ends, reports."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.tagged import lives
from support.waiting import until


def test_a_listed_attempt_is_started_and_its_reports_arrive_in_order(working_node):
    node, api = working_node, working_node.api
    pid = node.runs(job="edt-3", slots=2)
    assert lives(pid)
    until(lambda: api.kinds("edt-3/1").count("engine-started") == 2)
    assert [each["seq"] for each in api.reports["edt-3/1"]] == list(range(1, len(api.reports["edt-3/1"]) + 1))


def test_the_node_tells_what_it_is_when_it_registers(node, api):
    node.start()
    registration = until(lambda: api.registrations)[0]
    assert registration["name"] == "n1"
    assert [slot["slot"] for slot in registration["slots"]] == ["0", "1", "2", "3"]
    assert {slot["device"] for slot in registration["slots"]} == {"cpu"}
    assert registration["cores"] >= 1 and registration["host"] == "127.0.0.1"
    assert registration["boot_id"] and registration["incarnation"]


def test_a_changed_wish_reaches_the_supervisor(working_node):
    node, api = working_node, working_node.api
    node.runs(job="edt-5", slots=1)
    api.want(node.assignment(job="edt-5", slots=3))
    until(lambda: api.kinds("edt-5/1").count("engine-started") == 3)
    api.want(node.assignment(job="edt-5", slots=1))
    until(lambda: api.kinds("edt-5/1").count("engine-gone") == 2)
    assert node.agent.poll() is None


def test_an_attempt_wished_nothing_leaves_and_its_end_is_reported(working_node):
    node, api = working_node, working_node.api
    pid = node.runs(job="edt-7")
    api.want(node.assignment(job="edt-7", slots=0))
    until(lambda: "attempt-ended" in api.kinds("edt-7/1"))
    assert api.last("edt-7/1", "attempt-ended")["kind"] == "left"
    until(lambda: not lives(pid))
    until(lambda: not (node.home / "agent" / "n1" / "attempts" / "edt-7.1.json").exists(), what="forgotten")


@pytest.mark.parametrize("forgotten", [True, False])
def test_an_attempt_that_left_and_is_listed_again_gets_another_supervisor_whose_numbers_go_on(working_node, forgotten):
    node, api = working_node, working_node.api
    job = f"edt-{8 + forgotten * 100}"
    key = f"{job}/1"
    pid = node.runs(job=job)
    stale = node.assignment(job=job)
    api.want(node.assignment(job=job, slots=0))
    until(lambda: "attempt-ended" in api.kinds(key))
    entry = node.home / "agent" / "n1" / "attempts" / f"{job}.1.json"
    if forgotten:
        until(lambda: not entry.exists(), what="forgotten")
    else:
        api.want(stale)  # as a list made before the last word was taken
    api.want(node.assignment(job=job, first=10))
    until(lambda: api.kinds(key).count("engine-started") == 2)
    assert api.last(key, "attempt-started")["pid"] != pid
    assert api.last(key, "engine-started")["allocation"] == 110
    api.want(node.assignment(job=job, slots=0))
    until(lambda: api.kinds(key).count("attempt-ended") == 2)
    assert [each["seq"] for each in api.reports[key]] == list(range(1, len(api.reports[key]) + 1))
    assert node.agent.poll() is None


def test_the_end_is_reported_only_when_no_process_of_the_attempt_is_left(working_node):
    node, api = working_node, working_node.api
    pid = node.runs(job="edt-9", environ={"STAND_IN": "daemon"})
    life = dict(each.partition("=")[::2] for each in Path(f"/proc/{pid}/environ").read_text().split("\0"))["EDT_LIFE"]
    assert len(node.processes(EDT_LIFE=life)) == 3, "supervisor, engine, and one that went its own way"
    Path(node.home, "jobs", "edt-9", "finish").touch()
    until(lambda: "attempt-ended" in api.kinds("edt-9/1"))
    assert node.processes(EDT_LIFE=life) == {}
    assert api.last("edt-9/1", "attempt-ended")["kind"] == "finished"


def test_a_supervisor_that_dies_is_reported_lost_with_its_engines(working_node):
    node, api = working_node, working_node.api
    pid = node.runs(job="edt-11", slots=2)
    until(lambda: api.kinds("edt-11/1").count("engine-started") == 2)
    os.kill(pid, signal.SIGKILL)
    until(lambda: "attempt-ended" in api.kinds("edt-11/1"))
    gone = [each["body"] for each in api.reports["edt-11/1"] if each["kind"] == "engine-gone"]
    assert [(each["allocation"], each["kind"]) for each in gone] == [(100, "lost"), (101, "lost")]
    end = api.last("edt-11/1", "attempt-ended")
    assert (end["kind"], end["message"]) == ("lost", "its supervisor was ended by signal 9")


def test_an_attempt_that_is_no_longer_listed_is_stopped(working_node):
    node, api = working_node, working_node.api
    pid = node.runs(job="edt-13")
    api.drop("edt-13/1")
    until(lambda: not lives(pid))


def test_a_supervisor_deaf_to_a_stop_is_killed_after_its_grace(working_node):
    node, api = working_node, working_node.api
    pid = node.runs(job="edt-15")
    mute = node.assignment(job="edt-16", environ={"STAND_IN": "mute"})
    api.want(mute)
    until(lambda: "attempt-started" in api.kinds("edt-16/1"))
    mute_pid = api.last("edt-16/1", "attempt-started")["pid"]
    api.want(node.assignment(job="edt-16", environ={"STAND_IN": "mute"}, stop=True))
    until(lambda: "attempt-ended" in api.kinds("edt-16/1"))
    assert api.last("edt-16/1", "attempt-ended")["kind"] == "stopped"
    assert not lives(mute_pid)
    assert lives(pid), "the other job is none of its business"


def test_a_supervisor_that_ends_before_its_spec_is_tried_three_times(working_node):
    node, api = working_node, working_node.api
    api.want(node.assignment(job="edt-17", environ={"STAND_IN": "early"}))
    until(lambda: "attempt-ended" in api.kinds("edt-17/1"))
    assert node.log.count("supervisor exited with status 4") >= 2
    end = api.last("edt-17/1", "attempt-ended")
    assert end["kind"] == "lost" and "status 4" in end["message"]


def test_a_supervisor_that_refuses_its_spec_is_not_tried_again(working_node):
    node, api = working_node, working_node.api
    api.want(node.assignment(job="edt-19", environ={"STAND_IN": "refuses"}))
    until(lambda: "attempt-ended" in api.kinds("edt-19/1"))
    assert node.log.count("edt-19/1: supervisor") == 1
    assert "could not read its spec" in api.last("edt-19/1", "attempt-ended")["message"]


def test_an_attempt_stopped_before_it_started_gets_its_last_word_from_the_agent(working_node):
    node, api = working_node, working_node.api
    api.want(node.assignment(job="edt-21", stop=True))
    until(lambda: "attempt-ended" in api.kinds("edt-21/1"))
    assert api.kinds("edt-21/1") == ["engine-gone", "attempt-ended"]
    assert api.last("edt-21/1", "attempt-ended")["kind"] == "stopped"


def test_a_supervisor_sees_none_of_the_platforms_own_settings(working_node):
    node = working_node
    pid = node.runs(job="edt-23")
    environ = Path(f"/proc/{pid}/environ").read_text()
    assert "secret" not in environ
    assert f"EDT_TAG={node.tag}" in environ and "OPENBLAS_NUM_THREADS=1" in environ


def test_a_node_without_an_api_trains_on_and_catches_up(node, api):
    node.start()
    pid = node.runs()
    api.down = True
    spool = node.home / "jobs" / "edt-1" / "spool" / "1-n1" / "reports.jsonl"
    before = len(spool.read_bytes().splitlines())
    until(lambda: len(spool.read_bytes().splitlines()) > before + 10)
    api.down = False
    until(lambda: len(api.reports["edt-1/1"]) > before + 10)
    assert lives(pid)


def test_a_node_whose_token_is_no_longer_known_registers_again(node, api):
    node.start()
    node.runs()
    api.forget_tokens()
    until(lambda: len(api.registrations) == 2)
    api.want(node.assignment(slots=2))
    until(lambda: api.kinds("edt-1/1").count("engine-started") == 2)
