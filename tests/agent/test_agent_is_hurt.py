"""The agent is stopped, continued and killed in a loop: what trains does not notice, what was asked is carried out."""

from __future__ import annotations

import signal

from support.tagged import lives
from support.waiting import until


def test_an_agent_that_stood_still_goes_on_where_it_was(node, api):
    node.start()
    pid = node.runs()
    node.agent.send_signal(signal.SIGSTOP)
    received = len(api.reports["edt-1/1"])
    api.want(node.assignment(slots=2))
    api.want(node.assignment(job="edt-2"))
    spool = node.home / "jobs" / "edt-1" / "spool" / "1-n1" / "reports.jsonl"
    until(lambda: len(spool.read_bytes().splitlines()) > received + 20, what="it trains on")
    written = len(spool.read_bytes().splitlines()) - 1  # the last one may be half a line
    assert lives(pid)
    node.agent.send_signal(signal.SIGCONT)
    until(lambda: api.kinds("edt-1/1").count("engine-started") == 2, what="what was asked meanwhile is done")
    until(lambda: "engine-started" in api.kinds("edt-2/1"))
    until(lambda: len(api.reports["edt-1/1"]) >= written, what="what was trained meanwhile is told")
    assert [each["seq"] for each in api.reports["edt-1/1"]] == list(range(1, len(api.reports["edt-1/1"]) + 1))
    assert api.last("edt-1/1", "attempt-started")["pid"] == pid


def test_an_agent_whose_token_ended_while_it_stood_still_registers_anew(node, api):
    node.start()
    node.runs()
    node.agent.send_signal(signal.SIGSTOP)
    api.forget_tokens()
    node.agent.send_signal(signal.SIGCONT)
    until(lambda: len(api.registrations) == 2)
    api.want(node.assignment(slots=2))
    until(lambda: api.kinds("edt-1/1").count("engine-started") == 2)


def test_twenty_deaths_of_the_agent_touch_no_training(node, api):
    node.start()
    pids = [node.runs(job="edt-1"), node.runs(job="edt-2", slots=2)]
    until(lambda: api.kinds("edt-2/1").count("engine-started") == 2)
    before = set(node.processes(EDT_NODE="n1"))
    for death in range(20):
        node.signal(signal.SIGKILL)
        asked, adopted = len(api.questions), node.log.count("adopted")
        node.start()
        if death % 3 == 0:  # it has come to work again
            until(lambda asked=asked: len(api.questions) > asked)
        elif death % 3 == 1:  # it has adopted one of the two, or both
            until(lambda adopted=adopted: node.log.count("adopted") > adopted)
        # else it dies as it starts
    api.want(node.assignment(job="edt-1", slots=2))
    until(lambda: api.kinds("edt-1/1").count("engine-started") == 2, what="it is adopted and obeys")
    after = set(node.processes(EDT_NODE="n1"))
    assert before < after and len(after) == len(before) + 1, "nobody died, and one engine came"
    for key, pid in zip(("edt-1/1", "edt-2/1"), pids, strict=True):
        assert api.kinds(key).count("attempt-started") == 1
        assert api.last(key, "attempt-started")["pid"] == pid
        assert {"engine-gone", "attempt-ended"}.isdisjoint(api.kinds(key))
        seqs = [each["seq"] for each in api.reports[key]]
        assert seqs == list(range(1, len(seqs) + 1))


def test_a_stop_that_was_pending_when_the_agent_died_is_carried_out_by_the_next(node, api):
    node.start()
    mute = {"STAND_IN": "mute"}
    api.want(node.assignment(environ=mute, grace_seconds=1.0))
    until(lambda: "attempt-started" in api.kinds("edt-1/1"))
    pid = api.last("edt-1/1", "attempt-started")["pid"]
    api.want(node.assignment(environ=mute, grace_seconds=1.0, stop=True))
    asked = len(api.questions)
    until(lambda: len(api.questions) > asked, what="the agent has heard of it")
    node.signal(signal.SIGKILL)
    assert lives(pid), "its supervisor ignores every desired"
    node.start()
    until(lambda: "attempt-ended" in api.kinds("edt-1/1"))
    assert api.last("edt-1/1", "attempt-ended")["kind"] == "stopped"
    assert not lives(pid)
    until(lambda: not node.processes(EDT_NODE="n1"), what="no process is left")


def test_a_stop_that_was_asked_while_there_was_no_agent_is_carried_out(node, api):
    node.start()
    pid = node.runs()
    node.signal(signal.SIGKILL)
    api.want(node.assignment(stop=True))
    node.start()
    until(lambda: "attempt-ended" in api.kinds("edt-1/1"))
    assert api.last("edt-1/1", "attempt-ended")["kind"] == "stopped"
    assert not lives(pid)
