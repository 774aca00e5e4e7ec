"""A checker that never found is no checker: for every invariant a bug is planted, and it must be found."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from checker.conftest import EPOCHS, SAMPLES, Planted, bears
from checker.home_files import there
from checker.violation import Invariant


def test_a_good_platform_is_quiet_for_an_hour(planted: Planted) -> None:
    planted.checker.acknowledge("edt-1", "first of all")
    planted.checker.expect("edt-1", SAMPLES, EPOCHS)
    planted.checker.saw("edt-2", "RUNNING")
    assert planted.found(3600) == set()
    assert planted.checker.polls == 2 and not planted.checker.pending
    assert [(audit.lost, audit.repeated) for audit in planted.checker.audits["edt-1"]] == [((), ())] * EPOCHS


EVENT = "SELECT max(seq) FROM job_events WHERE job_id = 2"
ALLOCATION = "SELECT max(id) FROM allocations WHERE job_id = 2"
AT_ONCE = {
    "a slot held twice": ("I1", "UPDATE allocations SET slot = 0 WHERE released_at IS NULL"),
    "more slots than asked for": (
        "I2",
        "UPDATE jobs SET num_worker = 1",
        "UPDATE allocations SET job_id = 2, fence = 2 WHERE job_id = 4",
    ),
    "a slot that does not exist": ("I2", "UPDATE allocations SET slot = '9' WHERE job_id = 2 AND released_at IS NULL"),
    "two open attempts": ("I4", "UPDATE attempts SET ended_at = NULL WHERE job_id = 2"),
    "a state without its event": ("I5", "UPDATE jobs SET state = 'RUNNING' WHERE id = 5"),
    "an illegal move": (
        "I5",
        """INSERT INTO job_events SELECT 1, seq + 1, time, kind, fence, '', '{"before": "FINISHED", "after": "PENDING"}'
           FROM job_events WHERE job_id = 1 ORDER BY seq DESC LIMIT 1""",
        "UPDATE jobs SET state = 'PENDING', events = events + 1, finished_at = NULL WHERE id = 1",
    ),
    "a gap in a history": ("I5", f"UPDATE job_events SET seq = 99 WHERE job_id = 2 AND seq = ({EVENT})"),  # noqa: S608
    "an end without a time": ("I5", "UPDATE jobs SET finished_at = NULL WHERE id = 1"),
    "a slot given and not decided": ("I8", "UPDATE resizes SET to_slots = 0 WHERE job_id = 2 AND fence = 2"),
    "a slot back without a word": ("I8", "UPDATE allocations SET kind = NULL WHERE job_id = 1"),
    "an attempt that nobody counted": ("I9", "UPDATE jobs SET fence = 3 WHERE id = 2"),
    "a word under an old fence": ("I9", f"UPDATE job_events SET fence = 1 WHERE job_id = 2 AND seq = ({EVENT})"),  # noqa: S608
    "a slot under an old fence": ("I9", f"UPDATE allocations SET fence = 1 WHERE id = ({ALLOCATION})"),  # noqa: S608
    "later jobs that passed one by": (
        "I11",
        "UPDATE attempts SET job_id = job_id + 100, created_at = 9e9 WHERE job_id IN (1, 2)",
        "UPDATE attempts SET job_id = 104, created_at = 9e9 WHERE job_id = 4",
        "UPDATE attempts SET job_id = 105 WHERE job_id = 102 AND fence = 2",
    ),
    "a miscounted history": ("I12", "UPDATE jobs SET events = events + 1 WHERE id = 2"),
    "losses that nobody had": ("I12", "UPDATE jobs SET losses = 5 WHERE id = 2"),
    "reports taken and never written": ("I12", "UPDATE supervisors SET acked = 999 WHERE job_id = 2 AND fence = 2"),
    "running without a start": ("I15", "UPDATE attempts SET started_at = NULL WHERE job_id = 2"),
}


@pytest.mark.parametrize("bug", AT_ONCE)
def test_a_wrong_row_is_found(planted: Planted, bug: str) -> None:
    invariant, *statements = AT_ONCE[bug]
    planted.sql(*statements)
    assert Invariant[invariant] in planted.found()


DELETED = "UPDATE jobs SET deleted_at = 1 WHERE id = 1"
GONE = [
    *(f"DELETE FROM {table} WHERE job_id = 1" for table in ("job_events", "allocations", "supervisors", "attempts")),  # noqa: S608
    "DELETE FROM resize_nodes WHERE resize_id IN (SELECT id FROM resizes WHERE job_id = 1)",
    "DELETE FROM resizes WHERE job_id = 1",
    "DELETE FROM jobs WHERE id = 1",
]
"""How a job that was deleted and is over goes, whole."""

AFTERWARDS = {
    "a job that is gone": ("I3", "DELETE FROM jobs WHERE id = 7", "DELETE FROM job_events WHERE job_id = 7"),
    "a terminal state that is left": ("I5", "UPDATE jobs SET state = 'ERROR' WHERE id = 1"),
    "a history rewritten": ("I5", "UPDATE job_events SET message = 'no' WHERE job_id = 1 AND seq = 2"),
    "a slot that comes back again": ("I8", "UPDATE allocations SET released_at = released_at + 1 WHERE job_id = 1"),
    "a slot that is taken again": ("I8", "UPDATE allocations SET released_at = NULL WHERE job_id = 1"),
    "a job that is gone and was never deleted": ("I3", *GONE),
    "a job that was deleted and is gone in part": ("I5", DELETED, *GONE[1:]),
    "a job that was deleted and has lost some of its history": ("I5", DELETED, GONE[0] + " AND seq = 2"),
    "a resize deleted": ("I8", "DELETE FROM resizes WHERE job_id = 1"),
    "an allocation deleted": ("I8", "DELETE FROM allocations WHERE job_id = 1"),
    "a fence that goes down": ("I9", "UPDATE jobs SET fence = 1 WHERE id = 2"),
    "a cursor that goes back": ("I12", "UPDATE supervisors SET acked = 1 WHERE job_id = 2"),
}


@pytest.mark.parametrize("bug", AFTERWARDS)
def test_a_word_taken_back_is_found(planted: Planted, bug: str) -> None:
    invariant, *statements = AFTERWARDS[bug]
    assert planted.found() == set()
    planted.sql(*statements)
    assert Invariant[invariant] in planted.found()


GANG = "UPDATE jobs SET gang = '{}' WHERE id = 2"
A_SLOT = "INSERT INTO slots (node_id, slot, position, device, label, present)"
SECOND_NODE = [
    "CREATE TABLE copy AS SELECT * FROM nodes",
    "UPDATE copy SET id = 2, name = 'n2', token_sha256 = 'x'",
    "INSERT INTO nodes SELECT * FROM copy",
    "DROP TABLE copy",
    f"{A_SLOT} SELECT 2, slot, position, device, label, 0 FROM slots",  # noqa: S608
]
FINISHED = """UPDATE allocations SET release_asked_at = NULL, kind = 'finished'
              WHERE job_id = 2 AND fence = 2 AND released_at IS NOT NULL"""
OTHER = "WHERE job_id = 2 AND fence = 2 AND released_at IS NULL"
OF_GANGS = {
    "a gang that was given less than its size": "UPDATE jobs SET num_worker = 3 WHERE id = 2",
    "a worker on two nodes": f"UPDATE allocations SET node_id = 2 {OTHER}",  # noqa: S608
    "a gang that goes on without a part": f"UPDATE allocations SET released_at = 1, kind = 'lost' {OTHER}",  # noqa: S608
}


@pytest.mark.parametrize("bug", OF_GANGS)
def test_a_gang_that_is_not_whole_is_found_and_one_of_which_a_process_has_finished_is_not(
    planted: Planted, bug: str
) -> None:
    worker = "UPDATE jobs SET num_worker = 1, worker_device_num = 2 WHERE id = 2"
    planted.sql(GANG, worker, FINISHED, *SECOND_NODE)
    assert planted.found() == set()
    planted.sql(OF_GANGS[bug])
    assert Invariant.I2 in planted.found()


def test_a_gang_that_has_no_room_is_not_forgotten_and_one_that_has_is(planted: Planted) -> None:
    free = f"{A_SLOT} SELECT node_id, 'free', 9, device, label, 1 FROM slots LIMIT 1"  # noqa: S608
    planted.sql(free, "UPDATE jobs SET gang = '{}', num_worker = 2 WHERE id > 4")
    assert planted.found(31) == set()
    planted.sql("UPDATE jobs SET num_worker = 1 WHERE id = 5")
    assert planted.found() == set()
    planted.clock.seconds += 31
    assert planted.found() == {Invariant.I10}


def test_a_slot_given_on_a_node_that_takes_no_work_is_found(planted: Planted) -> None:
    planted.sql("UPDATE nodes SET intent = 'draining'")
    assert planted.found() == set()
    planted.sql("UPDATE allocations SET id = id + 1000, released_at = NULL WHERE job_id = 1")
    assert Invariant.I2 in planted.found()


def test_an_acknowledged_submit_that_left_no_job_or_two_is_found(planted: Planted) -> None:
    planted.checker.acknowledge("edt-99")
    assert planted.found() == {Invariant.I3}
    planted.checker.acknowledge("edt-5", "once")
    planted.sql("UPDATE jobs SET app_name = 'once' WHERE id IN (5, 6)")
    planted.checker.poll()
    assert any("[5, 6]" in each.evidence for each in planted.checker.violations)


def test_a_job_shown_as_running_that_never_started_is_found(planted: Planted) -> None:
    planted.checker.saw("edt-5", "RUNNING")
    assert planted.found() == {Invariant.I15}


SLOW = {
    "a job that is over and holds a slot": (
        "I6",
        60,
        f"{A_SLOT} SELECT node_id, slot || 'x', position + 9, device, label, 0 FROM slots",  # noqa: S608
        "UPDATE allocations SET released_at = NULL, kind = NULL, slot = slot || 'x' WHERE job_id = 1",
    ),
    "a job that nobody starts": (
        "I10",
        30,
        f"{A_SLOT} SELECT node_id, 'free', 9, device, label, 1 FROM slots LIMIT 1",  # noqa: S608
    ),
    "an outbox that does not drain": (
        "I13",
        60,
        "INSERT INTO outbox (queue, task, arguments, created_at) VALUES ('scheduler', 'edt.look', '[]', 0)",
    ),
}


@pytest.mark.parametrize("bug", SLOW)
def test_what_does_not_happen_in_its_time_is_found(planted: Planted, bug: str) -> None:
    name, seconds, *statements = SLOW[bug]
    planted.sql(*map(str, statements))
    assert planted.found(int(seconds) - 1) == set()
    planted.clock.seconds += 2
    assert planted.found() == {Invariant[str(name)]}


def test_no_limit_runs_while_there_is_no_quiet(planted: Planted) -> None:
    planted.sql(str(SLOW["a job that nobody starts"][2]))
    assert planted.found(29) == set()
    planted.checker.disturbed()
    assert planted.found(29) == set()
    planted.clock.seconds += 2
    assert planted.found() == {Invariant.I10}


def test_two_attempts_of_a_job_that_live_are_found(planted: Planted) -> None:
    for fence in (1, 2):
        planted.ledger(f"life-{fence}", "edt-2", fence)
        planted.live("edt-engine", f"life-{fence}")
    assert Invariant.I4 in planted.found()


def test_a_successor_beside_a_dead_attempt_is_none(planted: Planted) -> None:
    for fence in (1, 2):
        planted.ledger(f"life-{fence}", "edt-2", fence)
    dead, _ = planted.live("edt-engine", "life-1"), planted.live("edt-engine", "life-2")
    dead.kill()
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    assert planted.found() == set()


def test_an_attempt_on_a_lost_node_has_five_seconds_beside_its_successor(planted: Planted) -> None:
    planted.sql("UPDATE nodes SET lost_at = 1")
    for fence in (1, 2):
        planted.ledger(f"life-{fence}", "edt-2", fence)
        planted.live("edt-engine", f"life-{fence}")
    assert planted.found(4) == set()
    planted.clock.seconds += 2
    assert Invariant.I4 in planted.found()


def test_a_supervisor_known_by_its_paper_alone_is_counted_too(planted: Planted) -> None:
    process = planted.live("edt-supervisor", "life-1")
    start = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
    paper = {"pid": process.pid, "starttime": start, "job": "edt-2", "fence": 1, "node": "n1"}
    (planted.home / "jobs/edt-2/spool/1-n1/attempt.json").write_text(json.dumps(paper))
    assert planted.found(31) == {Invariant.I7}
    planted.ledger("life-2", "edt-2", 2)
    planted.live("edt-driver", "life-2")
    assert Invariant.I4 in planted.found()


def test_an_orphan_is_found_after_half_a_minute(planted: Planted) -> None:
    planted.ledger("life-1", "edt-1", 1)
    planted.live("edt-driver", "life-1")
    assert planted.found(31) == {Invariant.I7}


def test_a_supervisor_that_belongs_to_nobody_is_found_and_a_warm_one_of_an_agent_is_not(planted: Planted) -> None:
    planted.live("edt-supervisor", "life-x")
    assert planted.found(31) == {Invariant.I7}
    shell = "EDT_LIFE=life-y sleep 600 & echo $!; wait; : edt_agent"
    agent = subprocess.Popen(
        ["sh", "-c", shell], env={"EDT_TAG": str(planted.home), "PATH": os.environ["PATH"]}, stdout=-1
    )
    planted.processes.append(agent)
    assert agent.stdout is not None
    with agent.stdout:
        child = int(agent.stdout.readline())
    bears(child, "EDT_LIFE=life-y")
    planted.clock.seconds += 60
    planted.checker.poll()
    os.kill(child, signal.SIGKILL)
    assert len(planted.checker.violations) == 1


def test_an_engine_that_lives_on_a_slot_that_came_back_is_found(planted: Planted) -> None:
    planted.ledger("life-1", "edt-1", 1)
    engine = planted.live("edt-engine", "life-1")
    reports = planted.home / "jobs/edt-1/spool/1-n1/reports.jsonl"
    reports.write_text(reports.read_text().replace('"pid": 2', f'"pid": {engine.pid}'))
    assert Invariant.I1 in planted.found()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(bytes(data))


def test_a_newest_checkpoint_that_is_torn_missing_or_of_the_future_is_found(planted: Planted) -> None:
    folder = planted.home / "jobs/edt-2/checkpoint"
    flip(folder / "at-0000000003/state.safetensors")
    assert planted.found() == set()  # it is not the newest
    newest = folder / "at-0000000007"
    manifest = newest / "manifest.json"
    whole = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**whole, "fence": 3}))
    planted.checker.poll()
    manifest.write_text(json.dumps(whole))
    flip(newest / "state.safetensors")
    planted.checker.poll()
    (newest / "state.safetensors").unlink()
    planted.checker.poll()
    assert {each.invariant for each in planted.checker.violations} == {Invariant.I14}


def test_a_deleted_job_takes_along_what_was_written_a_piece_at_a_time(planted: Planted) -> None:
    assert planted.found() == set()
    planted.sql(
        "UPDATE jobs SET deleted_at = 1 WHERE id = 2",
        "UPDATE supervisors SET acked = acked + 1 WHERE job_id = 2 AND fence = 2",  # since the last look
    )
    folder = planted.home / "jobs/edt-2"
    shutil.rmtree(folder / "spool")
    (folder / "checkpoint/at-0000000007/state.safetensors").unlink()
    assert planted.found() == set()
    shutil.rmtree(folder)
    assert planted.found() == set()


def test_a_deleted_job_that_is_over_may_vanish_whole(planted: Planted) -> None:
    planted.checker.acknowledge("edt-1")
    planted.sql(DELETED)
    assert planted.found() == set()
    planted.sql(*GONE)
    assert planted.found() == set()
    planted.sql("DELETE FROM job_events WHERE job_id = 7", "DELETE FROM jobs WHERE id = 7")
    assert planted.found() == {Invariant.I3}


def test_results_that_were_removed_for_their_age_go_a_piece_at_a_time(planted: Planted) -> None:
    assert planted.found() == set()
    planted.sql("UPDATE jobs SET results_removed_at = 1 WHERE id = 2")
    (planted.home / "jobs/edt-2/checkpoint/at-0000000007/state.safetensors").unlink()
    assert planted.found() == set()


def test_a_folder_that_goes_while_it_is_looked_at_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs/edt-1/spool").mkdir(parents=True)
    scandir = os.scandir

    def too_late(path: str) -> Any:
        if Path(path).name == "spool":
            Path(path).rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", too_late)
    assert there(tmp_path, "jobs/*/spool/*/attempt.json") == []


def test_each_way_of_tearing_a_checkpoint_is_found(planted: Planted) -> None:
    (planted.home / "jobs/edt-2/checkpoint/at-0000000007/manifest.json").write_text("{")
    assert planted.found() == {Invariant.I14}


def lines(planted: Planted, engine: int = 1) -> list[str]:
    return (planted.home / f"RECORD/samples-1-{engine}.jsonl").read_text().splitlines()


def rewrite(planted: Planted, text: list[str], name: str = "samples-1-1.jsonl") -> None:
    (planted.home / "RECORD" / name).write_text("".join(line + "\n" for line in text))


def test_a_lost_sample_is_found(planted: Planted) -> None:
    rewrite(planted, [line.replace("0, [0, 1]", "0, [0]") for line in lines(planted)])
    planted.checker.expect("edt-1", SAMPLES, EPOCHS)
    assert planted.found() == {Invariant.SAMPLES}
    assert "lost [1] (1)" in planted.checker.violations[0].evidence


def test_a_repeated_sample_is_found(planted: Planted) -> None:
    rewrite(planted, [line.replace("[4, 5]", "[4, 5, 0]") for line in lines(planted)])
    assert "repeated [0] (1)" in str(planted.found() and planted.checker.violations[0])


def test_a_step_that_nobody_committed_is_lost(planted: Planted) -> None:
    for engine in (1, 2):
        kept = [line for line in lines(planted, engine) if line != '["commit", 3, 0]']
        rewrite(planted, kept, f"samples-1-{engine}.jsonl")
    assert planted.found() == {Invariant.SAMPLES}


def test_the_newest_round_and_fence_count_and_a_torn_line_does_not(planted: Planted) -> None:
    again = [*lines(planted), '["try", 1, 3, 1, 0, [4, 5, 6, 7]]', '["commit", 3, 1]', '["try", 1, 9, 1, 0, [4']
    (planted.home / "RECORD/samples-1-1.jsonl").write_text("\n".join(again))
    rewrite(planted, ['["try", 0, 0, 0, 0, [0, 1, 2, 3]]', '["commit", 0, 0]'], "samples-2-5.jsonl")
    rewrite(planted, ['["try", 0, 0, 7, 0, [9]]'], "samples-3-5.jsonl")  # it was never committed
    assert planted.found() == set()


def test_what_was_committed_before_all_went_back_does_not_count(planted: Planted) -> None:
    back = ['["commit-void", 3, 1]', '["try", 1, 3, 1, 0, [4, 5, 6, 7]]', '["commit", 3, 1]']
    rewrite(planted, [*lines(planted), *back])
    assert planted.found() == set()


def test_a_step_that_nobody_committed_again_after_all_went_back_is_lost(planted: Planted) -> None:
    rewrite(planted, [*lines(planted), '["commit-void", 3, 1]'])
    assert planted.found() == {Invariant.SAMPLES}


def test_an_unknown_form_of_record_is_refused(planted: Planted) -> None:
    rewrite(planted, ["[0, 0, 0, [0, 1]]"])
    assert planted.found() == {Invariant.SAMPLES}


def test_an_empty_record_of_a_finished_job_is_found(planted: Planted) -> None:
    for path in (planted.home / "RECORD").iterdir():
        path.unlink()
    assert Invariant.SAMPLES in planted.found()


def test_a_database_that_does_not_answer_is_no_violation_and_no_poll(planted: Planted) -> None:
    (planted.home / "edt.db").rename(planted.home / "away")
    assert not planted.checker.poll()
    assert (planted.checker.polls, planted.checker.violations) == (0, [])


def test_the_checker_imports_nothing_of_the_product() -> None:
    modules = [path for path in Path(__file__).parent.glob("*.py") if not path.name.startswith(("test_", "conftest"))]
    assert len(modules) > 8
    for path in modules:
        words = [line.split() for line in path.read_text().splitlines() if line.startswith(("import ", "from "))]
        assert not [w[1] for w in words if w[1].startswith(("edt_", "fabric_model", "pyedt", "support"))], path
