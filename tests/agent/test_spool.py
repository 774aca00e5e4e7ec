"""Reports on disk: read on, acknowledged, closed; torn lines, lost tails, restored databases."""

from __future__ import annotations

import errno
import json
import os
import resource
from contextlib import contextmanager

import pytest

from edt_agent.spool import Spool
from edt_agent.supervisor_records import Key
from edt_contract.attempt import DesiredSlot, DesiredState
from edt_contract.encoding import to_json_object
from edt_contract.reports import ExitKind, Report, ReportKind

KEY = Key("edt-1", 1)


class Writer:
    """What a supervisor does to its spool."""

    def __init__(self, folder):
        self.folder = folder
        self.seq = 0

    def write(self, kind: ReportKind, /, **body) -> None:
        self.seq += 1
        message = to_json_object(Report("edt-1", 1, "n", self.seq, kind, 0.0, body))
        with (self.folder / "reports.jsonl").open("a") as stream:
            stream.write(json.dumps(message) + "\n")


@pytest.fixture
def writer(tmp_path):
    return Writer(tmp_path)


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path, KEY, "n")


def numbers(batch):
    return [each["seq"] for each in batch]


def test_only_what_is_not_acknowledged_is_sent(spool, writer):
    for _ in range(5):
        writer.write(ReportKind.PROGRESS, step=1)
    spool.scan()
    assert numbers(spool.batch(3, withhold_end=False)) == [1, 2, 3]
    spool.ack(3)
    assert numbers(spool.batch(3, withhold_end=False)) == [4, 5]
    assert not spool.all_acked
    spool.ack(5)
    assert spool.batch(3, withhold_end=False) == []
    assert spool.all_acked


def test_a_supervisor_killed_for_memory_is_said_so_in_its_last_word(spool, writer):
    writer.write(ReportKind.ATTEMPT_STARTED, pid=1)
    spool.close(ExitKind.LOST, "its supervisor was killed for want of memory", -9, None, oom=True)
    assert spool.batch(9, withhold_end=False)[-1]["body"]["oom"] is True


def test_that_an_engine_starved_is_known_from_its_report(spool, writer):
    writer.write(ReportKind.ENGINE_GONE, allocation=1, slot="0", kind="lost", oom=False)
    assert not spool.scan().starved
    writer.write(ReportKind.ENGINE_GONE, allocation=2, slot="1", kind="lost", oom=True)
    writer.write(ReportKind.ENGINE_GONE, allocation=3, slot="2", kind="left", oom=False)
    assert spool.scan().starved


def test_an_api_that_took_half_a_batch_gets_the_other_half(spool, writer):
    for _ in range(4):
        writer.write(ReportKind.PROGRESS)
    spool.scan()
    spool.batch(4, withhold_end=False)
    spool.ack(2)
    assert numbers(spool.batch(4, withhold_end=False)) == [3, 4]


def test_an_api_with_a_restored_database_gets_the_old_ones_again(spool, writer):
    for _ in range(4):
        writer.write(ReportKind.PROGRESS)
    spool.scan()
    spool.ack(4)
    assert spool.batch(4, withhold_end=False) == []
    spool.ack(1)
    assert numbers(spool.batch(4, withhold_end=False)) == [2, 3, 4]


def test_a_line_that_is_being_written_is_not_a_line_yet(spool, writer, tmp_path):
    writer.write(ReportKind.PROGRESS)
    with (tmp_path / "reports.jsonl").open("a") as stream:
        stream.write('{"job": "edt-1", "fen')
    assert spool.scan().last_seq == 1
    assert numbers(spool.batch(4, withhold_end=False)) == [1]


def test_the_last_word_is_held_back_until_it_is_let_go(spool, writer):
    writer.write(ReportKind.CHECKPOINTED, step=3)
    writer.write(ReportKind.ATTEMPT_ENDED, kind="finished")
    assert spool.scan().ended
    assert numbers(spool.batch(4, withhold_end=True)) == [1]
    assert numbers(spool.batch(4, withhold_end=False)) == [1, 2]


def test_closing_reports_what_ran_and_what_was_wished_but_not_what_is_gone(spool, writer):
    writer.write(ReportKind.ENGINE_STARTED, allocation=7, slot="0", pid=1)
    writer.write(ReportKind.ENGINE_STARTED, allocation=8, slot="1", pid=2)
    writer.write(ReportKind.ENGINE_GONE, allocation=8, slot="1", kind="left")
    writer.write(ReportKind.PROGRESS, step=41)
    desired = DesiredState(1, (DesiredSlot(7, "0"), DesiredSlot(9, "2")), leaving=(8, 10))
    spool.close(ExitKind.LOST, "its supervisor is gone", -9, desired)
    closing = spool.batch(9, withhold_end=False)[4:]
    assert [(each["kind"], each["body"].get("allocation")) for each in closing] == [
        ("engine-gone", 7),
        ("engine-gone", 9),
        ("engine-gone", 10),
        ("attempt-ended", None),
    ]
    end = closing[-1]["body"]
    assert (end["kind"], end["code"], end["step"], end["message"]) == ("lost", -9, 41, "its supervisor is gone")
    assert numbers(closing) == [5, 6, 7, 8]


def test_closing_twice_says_it_once(spool, writer):
    spool.close(ExitKind.LOST, "x", None, None)
    spool.close(ExitKind.LOST, "y", None, None)
    assert len(spool.batch(9, withhold_end=False)) == 1


def test_closing_cuts_off_what_a_power_cut_tore(spool, writer, tmp_path):
    writer.write(ReportKind.PROGRESS)
    with (tmp_path / "reports.jsonl").open("a") as stream:
        stream.write('{"job": "edt-1", "fen')
    spool.close(ExitKind.LOST, "x", None, None)
    assert numbers(spool.batch(4, withhold_end=False)) == [1, 2]


def test_closing_never_takes_a_number_that_the_api_has_already(tmp_path, writer):
    writer.write(ReportKind.PROGRESS)
    spool = Spool(tmp_path, KEY, "n", acked=40)  # the disk lost what came after the first
    spool.close(ExitKind.LOST, "x", None, None)
    assert numbers(spool.batch(4, withhold_end=False)) == [41]


def test_what_an_earlier_supervisor_said_is_no_word_of_the_next_but_its_numbers_go_on(tmp_path, writer):
    writer.write(ReportKind.ATTEMPT_STARTED, pid=1)
    writer.write(ReportKind.ENGINE_GONE, allocation=7, slot="0", kind="left")
    writer.write(ReportKind.ATTEMPT_ENDED, kind="left")
    second = Spool(tmp_path, KEY, "n", acked=3, before=3)
    facts = second.scan()
    assert (facts.last_seq, facts.started, facts.ended, second.all_acked) == (3, False, False, True)
    writer.write(ReportKind.ATTEMPT_STARTED, pid=2)
    assert numbers(second.batch(9, withhold_end=True)) == [4]
    second.close(ExitKind.LOST, "x", None, None)
    assert numbers(second.batch(9, withhold_end=False)) == [4, 5]


def test_an_agent_that_knows_only_the_spool_sees_that_another_supervisor_speaks(spool, writer):
    writer.write(ReportKind.ATTEMPT_STARTED, pid=1)
    writer.write(ReportKind.ATTEMPT_ENDED, kind="left")
    assert spool.scan().ended
    writer.write(ReportKind.ATTEMPT_STARTED, pid=2)
    assert not spool.scan().ended


def test_an_end_whose_number_was_taken_is_said_again_under_the_next(spool, writer):
    spool.close(ExitKind.LOST, "x", None, None)
    spool.ack(40)
    assert numbers(spool.batch(4, withhold_end=False)) == [41]


@pytest.mark.parametrize("what", ["a link", "a link for its folder", "a pipe", "a folder"])
def test_what_a_job_puts_in_its_place_is_not_followed_read_or_waited_for(tmp_path, what):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "reports.jsonl").write_text("not the job's\n")
    folder = tmp_path / "job" / "spool" / "1-n"
    folder.parent.mkdir(parents=True)
    if what == "a link for its folder":
        folder.symlink_to(elsewhere)
    else:
        folder.mkdir()
        path = folder / "reports.jsonl"
        if what == "a link":
            path.symlink_to(elsewhere / "reports.jsonl")
        elif what == "a pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
    spool = Spool(folder, KEY, "n")
    assert spool.scan().last_seq == 0
    spool.close(ExitKind.LOST, "it is gone", None, None)
    assert spool.facts.ended
    assert [each["kind"] for each in spool.batch(9, withhold_end=False)] == ["attempt-ended"]
    assert (elsewhere / "reports.jsonl").read_text() == "not the job's\n"


@contextmanager
def files_of_at_most(size):
    """As a disk that is full there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_a_full_disk_does_not_take_of_a_last_word_is_sent_all_the_same_and_written_later(spool, writer):
    writer.write(ReportKind.ATTEMPT_STARTED, pid=1)
    writer.write(ReportKind.ENGINE_STARTED, allocation=4, slot="0", pid=2)
    with files_of_at_most(spool.path.stat().st_size + 50):
        spool.close(ExitKind.LOST, "its supervisor is gone", None, None)
        assert spool.path.read_bytes().count(b"\n") == 2 and spool.path.read_bytes().endswith(b"\n")
        sent = spool.batch(9, withhold_end=False)
        assert [each["kind"] for each in sent[2:]] == ["engine-gone", "attempt-ended"]
        assert numbers(sent) == [1, 2, 3, 4] and spool.facts.ended
        spool.ack(3)
        assert not spool.all_written
    spool.scan()
    assert spool.all_written
    assert [json.loads(line)["seq"] for line in spool.path.read_text().splitlines()] == [1, 2, 3, 4]
    assert numbers(spool.batch(9, withhold_end=False)) == [4]
    spool.ack(4)
    assert spool.all_acked and spool.batch(9, withhold_end=False) == []


@contextmanager
def failing_device(monkeypatch):
    """One that takes no change of a file's length: nobody here can make a real one say so."""

    def refuses(*_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "truncate", refuses)
        yield


def test_an_end_whose_number_was_taken_waits_for_a_device_that_cannot_cut_and_is_said_behind_it(
    spool, writer, tmp_path, monkeypatch, caplog
):
    writer.write(ReportKind.ATTEMPT_ENDED, kind="finished")
    with (tmp_path / "reports.jsonl").open("a") as stream:
        stream.write('{"job": "edt-1", "fen')
    spool.scan()
    with failing_device(monkeypatch):
        spool.ack(5)
        spool.ack(5)
    assert [record.message for record in caplog.records] == [f"{spool.path}: it cannot be cut: Input/output error"]
    spool.ack(5)
    last = spool.batch(9, withhold_end=False)[-1]
    assert (last["seq"], last["kind"]) == (6, "attempt-ended")


def test_a_line_without_end_on_a_device_that_cannot_cut_ends_no_reader(spool, writer, monkeypatch, caplog):
    writer.write(ReportKind.PROGRESS, step=1)
    os.truncate(spool.path, 1 << 30)
    with failing_device(monkeypatch):
        assert spool.scan().last_seq == 1
        assert spool.scan().last_seq == 1
    assert [record.message for record in caplog.records].count(
        f"{spool.path}: it cannot be cut: Input/output error"
    ) == 1
    spool.scan()
    assert spool.path.stat().st_size < 1000
