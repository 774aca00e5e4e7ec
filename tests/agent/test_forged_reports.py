"""What a job's own processes write where its supervisor writes: it decides nothing and stands in nobody's way."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

import pytest

from edt_agent.spool import ReportQuota, Spool
from edt_agent.supervisor_records import Key, from_attempt_file
from edt_contract.attempt import AttemptSpec
from edt_contract.encoding import to_json_object
from edt_contract.reports import BATCH_BYTES, BODIES, LINE_BYTES, Report, ReportKind
from support.waiting import until

KEY = Key("edt-1", 1)
PROGRESS = to_json_object(Report("edt-1", 1, "n", 1, ReportKind.PROGRESS, 0.0, {"step": 7}))
NO_REPORTS = {
    "nothing": b"",
    "no JSON": b"{",
    "no UTF-8": b'{"kind": "\xff\xfe"}',
    "deep JSON": b"[" * 9000,
    "a long number": b"1" * 9000,
    "a list": b"[]",
    "zeros": b"\0" * 100,
    "too long a line": json.dumps(PROGRESS | {"body": {"why": "x" * LINE_BYTES}}).encode(),
    "another job's": json.dumps(PROGRESS | {"job": "edt-2"}).encode(),
    "another attempt's": json.dumps(PROGRESS | {"fence": 2}).encode(),
    "another node's": json.dumps(PROGRESS | {"node": "m"}).encode(),
    "an unknown kind": json.dumps(PROGRESS | {"kind": "dance"}).encode(),
    "a kind that is no word": json.dumps(PROGRESS | {"kind": {}}).encode(),
    "an agent's own kind": json.dumps(PROGRESS | {"kind": "reports-left-out", "body": {"first": 1}}).encode(),
    "no number": json.dumps(PROGRESS | {"kind": "engine-gone", "body": {"allocation": 2**70}}).encode(),
    "a body that is none": json.dumps(PROGRESS | {"kind": "engine-gone", "body": [1]}).encode(),
}


class Lines:
    """A spool of lines that somebody wrote."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "reports.jsonl"

    def add(self, *lines: bytes) -> None:
        with self.path.open("ab") as stream:
            stream.writelines(line + b"\n" for line in lines)

    def say(self, kind: ReportKind, /, seq: object = 1, **body: object) -> None:
        self.add(json.dumps(PROGRESS | {"kind": kind, "seq": seq, "body": body}).encode())


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    return Lines(tmp_path)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path, KEY, "n", clock=lambda: 1000.0)


def reports_of(spool: Spool, *, withhold_end: bool = False) -> list[tuple[int, str]]:
    spool.read_all()
    return [(each["seq"], each["kind"]) for each in spool.batch(256, withhold_end=withhold_end)]


@pytest.mark.parametrize("line", NO_REPORTS.values(), ids=NO_REPORTS)
def test_a_line_that_is_no_report_takes_a_number_and_stops_nobody(lines, spool, line):
    lines.say(ReportKind.ATTEMPT_STARTED, pid=1)
    lines.add(line)
    lines.say(ReportKind.PROGRESS, step=1)
    assert reports_of(spool) == [(1, "attempt-started"), (2, "reports-left-out"), (3, "progress")]
    assert list(spool.batch(9, withhold_end=False)[1]["body"]["counts"].values()) == [1]
    spool.ack(3)
    assert spool.all_acked


@pytest.mark.parametrize("seq", [5000, -1, 1, 2**70, "x", None])
def test_a_number_is_the_lines_place_whatever_it_says(lines, spool, seq):
    lines.say(ReportKind.ATTEMPT_STARTED, seq=seq, pid=1)
    lines.say(ReportKind.PROGRESS, seq=seq, step=1)
    assert reports_of(spool) == [(1, "attempt-started"), (2, "progress")]


def test_a_flood_is_cut_to_its_kinds_allowance_and_told_in_one_report(lines, spool):
    many = BODIES[ReportKind.RESTARTED].burst + 5000
    for _ in range(many):
        lines.say(ReportKind.RESTARTED, what="driver")
    lines.say(ReportKind.PROGRESS, step=1)
    kinds: list[str] = []
    while batch := spool.batch(256, withhold_end=False):
        spool.scan()
        kinds += [each["kind"] for each in batch]
        if batch[-1]["kind"] == "reports-left-out" or len(batch) > 1:
            summaries = [each["body"] for each in batch if each["kind"] == "reports-left-out"]
        spool.ack(batch[-1]["seq"])
    assert kinds.count("restarted") == BODIES[ReportKind.RESTARTED].burst
    assert kinds[-1] == "progress"
    assert kinds.count("reports-left-out") == 1
    assert summaries[-1]["counts"] == {"restarted": 5000}


def test_an_allowance_comes_back_with_time():
    allowance, kind = ReportQuota(), ReportKind.RESTARTED
    body = BODIES[kind]
    assert sum(allowance.take(kind, 0.0) for _ in range(body.burst + 50)) == body.burst
    assert sum(allowance.take(kind, 60.0) for _ in range(500)) == body.a_minute


def test_a_batch_has_a_bounded_number_of_bytes(lines, spool):
    for _ in range(200):
        lines.say(ReportKind.PROGRESS, step=1, metrics={f"{n:064}": 0.1 for n in range(60)})
    spool.read_all()
    batch = spool.batch(256, withhold_end=False)
    assert 10 < len(batch) < 200
    assert len(json.dumps(batch)) < BATCH_BYTES


def test_a_last_word_after_which_the_supervisor_speaks_on_was_not_its(lines, spool):
    lines.say(ReportKind.ATTEMPT_STARTED, pid=1)
    lines.say(ReportKind.ATTEMPT_ENDED, kind="finished", digest="forged")
    assert spool.scan().ended
    lines.say(ReportKind.PROGRESS, step=1)
    assert not spool.scan().ended
    assert reports_of(spool) == [(1, "attempt-started"), (2, "reports-left-out"), (3, "progress")]


def test_a_line_without_end_is_cut_off_and_costs_no_memory(lines, spool):
    lines.say(ReportKind.ATTEMPT_STARTED, pid=1)
    with lines.path.open("ab") as stream:
        stream.truncate(1 << 40)  # a terabyte of zeros, of which none is on disk
    assert reports_of(spool) == [(1, "attempt-started")]
    assert lines.path.stat().st_size < 1000
    lines.say(ReportKind.PROGRESS, step=1)
    assert reports_of(spool) == [(1, "attempt-started"), (2, "progress")]


def test_much_is_read_a_part_at_a_time_and_given_up_where_nobody_writes_any_more(lines, spool):
    lines.say(ReportKind.ATTEMPT_STARTED, pid=1)
    lines.add(*[b""] * 100_000)
    spool.scan()
    assert spool.behind and spool.facts.last_seq < 100_000
    spool.discard_unread()
    seen = spool.facts.last_seq
    assert not spool.behind and spool.scan().last_seq == seen


def test_a_file_that_was_written_anew_is_read_from_where_it_was_left_and_its_end_is_heard(lines, spool):
    for _ in range(20):
        lines.say(ReportKind.PROGRESS, step=1)
    spool.scan()
    spool.batch(9, withhold_end=True)
    spool.ack(5)
    reports_of(spool)
    lines.path.write_bytes(random.Random(3).randbytes(9000) + b"\n")
    lines.say(ReportKind.PROGRESS, step=2)
    lines.say(ReportKind.ATTEMPT_ENDED, kind="left")
    kinds: list[tuple[int, str]] = []
    for _ in range(9):
        kinds += reports_of(spool)
        spool.ack(kinds[-1][0])
    assert [kind for _, kind in kinds if kind != "reports-left-out"] == ["progress", "attempt-ended"]
    assert spool.all_acked


def test_random_bytes_are_taken_for_what_they_are(lines, spool):
    noise = random.Random(1)
    lines.add(*(noise.randbytes(noise.randrange(200)).replace(b"\n", b"") for _ in range(500)))
    lines.say(ReportKind.PROGRESS, step=1)
    assert [kind for _, kind in reports_of(spool)] == ["reports-left-out", "progress"]


@pytest.mark.parametrize("what", ["a pipe", "a link", "much", "deep", "wrong"])
def test_a_paper_of_who_the_supervisor_is_that_the_job_wrote_names_nobody(tmp_path, node, what):
    folder = tmp_path / "edt-1" / "spool" / "1-n1"
    folder.mkdir(parents=True)
    path = folder / "attempt.json"
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a link":
        (tmp_path / "other").write_text(json.dumps({"pid": 2, "starttime": 3, "socket": "s"}))
        path.symlink_to(tmp_path / "other")
    else:
        path.write_text({"much": " " * 9999 + "{}", "deep": "[" * 4000, "wrong": '{"pid": 1e999}'}[what])
    spec: AttemptSpec = node.assignment().spec
    assert from_attempt_file(AttemptSpec(**{**vars(spec), "spool_dir": str(folder)})) is None


# With the real agent, beside a job that behaves.


def forge(node, job: str, what: str, /, **body: object) -> None:
    message = {"job": job, "fence": 1, "node": "n1", "seq": 10_000, "kind": what, "time": 0.0, "body": body}
    with spool_of(node, job).open("ab", buffering=0) as stream:
        stream.write(json.dumps(message).encode() + b"\n")


def spool_of(node, job: str) -> Path:
    return Path(node.home) / "jobs" / job / "spool" / "1-n1" / "reports.jsonl"


def test_a_forged_end_of_an_engine_that_lives_frees_no_slot_and_its_real_end_does(working_node):
    node, api = working_node, working_node.api
    node.runs(job="edt-71", slots=2)
    until(lambda: api.kinds("edt-71/1").count("engine-started") == 2)
    forge(node, "edt-71", "engine-gone", allocation=100, slot="0", kind="lost")
    until(lambda: "reports-left-out" in api.kinds("edt-71/1"), what="the forged report is left out")
    assert "engine-gone" not in api.kinds("edt-71/1")
    api.want(node.assignment(job="edt-71", slots=1))
    until(lambda: "engine-gone" in api.kinds("edt-71/1"))
    assert api.last("edt-71/1", "engine-gone")["allocation"] == 101
    api.want(node.assignment(job="edt-71", slots=0))
    until(lambda: "attempt-ended" in api.kinds("edt-71/1"))
    gone = [each["body"]["allocation"] for each in api.reports["edt-71/1"] if each["kind"] == "engine-gone"]
    assert gone == [101, 100]


def test_a_forged_end_of_an_engine_that_is_yet_to_be_started_frees_no_slot(working_node):
    node, api = working_node, working_node.api
    api.want(node.assignment(job="edt-72", environ={"STAND_IN": "mute"}))
    until(lambda: "attempt-started" in api.kinds("edt-72/1"))
    forge(node, "edt-72", "engine-gone", allocation=100, slot="0", kind="left")
    forge(node, "edt-72", "checkpointed", step=1)
    until(lambda: "checkpointed" in api.kinds("edt-72/1"))
    assert api.kinds("edt-72/1") == ["attempt-started", "reports-left-out", "checkpointed"]


def test_a_process_that_is_not_the_supervisors_own_is_no_engine_that_could_keep_a_slot(working_node):
    node, api = working_node, working_node.api
    node.runs(job="edt-76")
    forge(node, "edt-76", "engine-started", allocation=100, slot="0", pid=os.getpid())
    api.want(node.assignment(job="edt-76", slots=0))
    until(lambda: "attempt-ended" in api.kinds("edt-76/1"))
    assert "engine-gone" in api.kinds("edt-76/1")


def test_a_forged_last_word_ends_nothing_while_its_supervisor_lives(working_node):
    node, api = working_node, working_node.api
    node.runs(job="edt-73")
    forge(node, "edt-73", "attempt-ended", kind="finished", digest="forged")
    until(lambda: "reports-left-out" in api.kinds("edt-73/1"), what="the forged report is left out")
    assert "attempt-ended" not in api.kinds("edt-73/1")
    api.want(node.assignment(job="edt-73", slots=0))
    until(lambda: "attempt-ended" in api.kinds("edt-73/1"))
    assert api.last("edt-73/1", "attempt-ended")["kind"] == "left"


def test_a_report_of_another_job_is_not_passed_on_for_it(working_node):
    node, api = working_node, working_node.api
    node.runs(job="edt-74")
    node.runs(job="edt-75")
    message = {"job": "edt-75", "fence": 1, "node": "n1", "kind": "engine-gone", "time": 0.0}
    seq = len(api.reports["edt-75/1"]) + 1
    with spool_of(node, "edt-74").open("ab", buffering=0) as stream:
        for number in range(seq, seq + 300):
            stream.write(json.dumps({**message, "seq": number, "body": {"allocation": 100}}).encode() + b"\n")
    until(lambda: "reports-left-out" in api.kinds("edt-74/1"))
    assert "engine-gone" not in api.kinds("edt-75/1")


@pytest.mark.parametrize("what", ["a link", "a pipe", "a folder", "a line without end", "noise", "a link for all"])
def test_whatever_a_job_makes_of_its_spool_other_jobs_are_served_and_it_ends(node, api, what):
    node.start()
    supervisor = node.runs(job="edt-1")
    os.kill(supervisor, signal.SIGSTOP)  # it would make the file again
    path = spool_of(node, "edt-1")
    if what == "noise":
        path.write_bytes(random.Random(2).randbytes(3 << 20))
    elif what == "a line without end":
        os.truncate(path, 1 << 36)
    elif what == "a link for all":
        path.parent.parent.rename(node.home / "elsewhere")
        path.parent.parent.symlink_to("/proc")
    else:
        path.rename(path.with_name("old"))
        if what == "a link":
            path.symlink_to("/dev/zero")
        elif what == "a pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
    os.kill(supervisor, signal.SIGCONT)
    node.runs(job="edt-2")
    api.want(node.assignment(job="edt-2", slots=0))
    until(lambda: "attempt-ended" in api.kinds("edt-2/1"), what="the other job is served")
    api.want(node.assignment(job="edt-1", stop=True))
    until(lambda: "attempt-ended" in api.kinds("edt-1/1"), what=f"the job itself can be stopped: {node.log[-3000:]}")
    assert node.agent.poll() is None
