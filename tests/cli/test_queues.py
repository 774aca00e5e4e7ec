"""`edt queues`, `edt queue`, `edt resize`, `edt priority`, `edt replay`, and what `edt submit` and `edt get` have."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edt_api.access import tokens
from edt_scheduler.decide.reconcile import look
from edt_scheduler.operations import accounts
from support.puppets import Puppet
from support.served_api import ServedApi, served
from support.typed import Done, edt

LINE = "--exec-start edtPyTorch --model-main main.py"


class Stage:
    """An API with users ``admin``, ``ana`` and ``bob``, a node with three slots, and a scheduler that looks if told."""

    def __init__(self, api: ServedApi, folder: Path) -> None:
        self.api, self._folder = api, folder
        self._node = Puppet(api.platform, slots=3, engines=2).join()
        (folder / "main.py").write_text("print('hello')\n")

    def settle(self) -> None:
        for _ in range(4):
            look(self.api.platform)
            self._node.obey()

    def type(self, *words: str, user: str = "admin") -> Done:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("EDT_")}
        token = tokens.issue(self.api.platform, accounts.user(self.api.platform, user), 600)
        return edt([*words], {**kept, "EDT_API": self.api.url, "EDT_TOKEN": token, "NO_COLOR": "1"}, self._folder)

    def said(self, *words: str, user: str = "admin") -> str:
        done = self.type(*words, user=user)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *words: str, user: str = "admin") -> str:
        done = self.type(*words, user=user)
        assert done.returncode in {1, 2} and not done.stdout, done.stdout
        return done.stderr.removeprefix("edt: ").strip()

    def json(self, *words: str, user: str = "admin") -> Any:
        return json.loads(self.said(*words, "-o", "json", user=user))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    folder = tmp_path / "here"
    folder.mkdir()
    with served(tmp_path / "home") as api:
        yield Stage(api, folder)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


@pytest.mark.extended
def test_an_admin_makes_changes_and_removes_queues(stage: Stage) -> None:
    assert stage.said("queue", "set", "/research", "--quota", "2", "--policy", "fifo") == (
        "/research has a quota of 2, the weight 1, no limit, and shares by fifo\n"
    )
    assert stage.json("queue", "set", "research", "--limit", "3", "--weight", "2.5") | {"message": ""} == {
        "path": "/research", "quota": 2, "weight": 2.5, "limit": 3, "policy": "fifo", "message": "",
    }  # fmt: skip
    assert stage.json("queue", "set", "/research", "--no-limit")["limit"] is None
    assert stage.refused("queue", "set", "/research", "--limit", "1", "--no-limit").endswith("do not go together")
    assert stage.said("queue", "set", "/", "--policy", "priority").startswith("the root has")
    assert stage.said("queue", "remove", "/research") == "/research is removed\n"
    assert stage.refused("queue", "remove", "/research") == "no queue '/research': list them with `edt queues`"
    assert stage.refused("queue", "set", "/mine", user="ana") == "this is open to an admin only"


def test_the_tree_shows_who_holds_and_who_waits_and_why(stage: Stage) -> None:
    for path in ("/a", "/a/b"):
        stage.said("queue", "set", path, "--quota", "1")
    first = stage.said("submit", "main.py", "-n", "2", "--queue", "/a/b", user="ana").strip()
    second = stage.said(
        "submit", "main.py", "-n", "2", "--min-workers", "2", "--queue", "/a", "--after", first, user="ana"
    ).strip()
    stage.settle()
    shown = stage.said("queues", user="ana")
    assert rows(shown)[1:6] == [
        ["root", "2", "2", "1", "1", "efficient", "4"],
        ["a", "1", "2", "2", "1", "1", "1", "efficient", "4"],
        ["ana", "0", "0", "0", "1"],
        ["b", "1", "2", "2", "1", "0", "1", "efficient", "2"],
        ["ana", "2", "2", "1", "0"],
    ]
    assert "2 of 3 slots are held." in shown
    (waits,) = [row for row in rows(shown) if row[:1] == [second]]
    assert waits[2:6] == ["ana", "/a", "1", "2"] and first in waits
    others = rows(stage.said("queues", user="bob"))
    assert ["1", "other", "user", "2", "2", "1", "0"] in others and [second] not in [row[:1] for row in others]
    assert [queue["path"] for queue in stage.json("queues")["queues"]] == ["", "/a", "/a/b"]


@pytest.mark.extended
def test_a_job_shows_what_it_was_submitted_with(stage: Stage) -> None:
    first = stage.said("submit", "main.py", user="ana").strip()
    job = stage.said(
        *("submit", "main.py", "--sizes", "2,4", "--queue", "/x", "--priority", "4", "--after", first),
        *("--deadline", "+2h", "--time-limit", "90m", "--pending-timeout", "60", "--gpu-model", "NVIDIA A100"),
        user="ana",
    ).strip()
    found = stage.said("get", job, user="ana").splitlines()
    for title, value in {
        "Slots": "0 of at most 4",
        "Sizes": "at least 2, only 2, 4",
        "Queue": "/x",
        "Priority": "4",
        "After": first,
        "Deadline": "in 119m",
        "Time limit": "90m in all",
        "GPUs": "nvidia a100",
        "Note": "there is no queue /x: the job belongs to the root until there is",
    }.items():
        (line,) = [line for line in found if line.startswith(f"{title} ")]
        assert value in line
    assert stage.refused("submit", "main.py", "-n", "2", "--min-workers", "3", user="ana") == (
        "--minWorkers: got 3; it takes a whole number up to --numWorker, which is 2 here"
    )


@pytest.mark.extended
def test_a_job_is_resized_and_gets_another_priority(stage: Stage) -> None:
    job = stage.api.submit("ana", f"{LINE} --numWorker 2 --msd-priority 3").exec_id
    stage.settle()
    assert stage.said("resize", job, "--min", "2", user="ana") == f"{job} has 2 to 2 slots from now on\n"
    both = stage.said("resize", job, "--min", "1", "--priority", "2", user="ana")
    assert both == f"{job} has 1 to 2 slots and the priority 2 from now on\n"
    assert stage.json("priority", job, "3", user="ana")["priority"] == 3
    assert stage.refused("priority", job, "4", user="ana").startswith("priority: got 4, takes at most 3")
    assert stage.said("priority", job, "4") == f"{job} has the priority 4 from now on\n"
    assert stage.refused("resize", job, user="ana") == "say what to change: --min, --max or --priority"


def test_recorded_decisions_come_out_the_same_again(stage: Stage) -> None:
    first = stage.api.submit("ana", f"{LINE} --numWorker 2").exec_id
    stage.settle()
    second = stage.api.submit("bob", LINE).exec_id
    stage.settle()
    shown = stage.said("replay").splitlines()
    assert all("the same" in line for line in shown[1:]) and len(shown) > 2
    assert f"start {first} 0→1 (submit)" in shown[1]
    (only,) = stage.said("replay", "--job", second).splitlines()[1:]
    assert f"start {second}" in only
    (newest,) = stage.json("replay", "--last", "1")
    assert (newest["same"], {action["job"] for action in newest["actions"]} >= {second}) == (True, True)
    assert stage.json("replay", str(newest["id"]))[0]["plan"] == newest["plan"]
    assert stage.refused("replay", "999").startswith("no decision 999 is recorded")
    assert stage.refused("replay", "1", "--last", "2") == "an ID goes with neither --job nor --last"
    assert stage.refused("replay", user="ana") == "this is open to an admin only"


@pytest.mark.extended
def test_a_decision_that_comes_out_otherwise_is_told_and_is_status_1(stage: Stage) -> None:
    job = stage.api.submit("ana", f"{LINE} --numWorker 2").exec_id
    stage.settle()
    number = stage.json("replay")[0]["id"]
    with stage.api.platform.database.transaction() as tx:  # as if the record were of another version of the scheduler
        other = tx.exec_driver_sql("SELECT plan FROM decisions WHERE id > ? LIMIT 1", (number,)).scalar_one()
        tx.exec_driver_sql("UPDATE decisions SET plan = ? WHERE id = ?", (other, number))
    done = stage.type("replay", str(number))
    assert (done.returncode, done.stderr) == (1, "edt: 1 of 1 decisions would come out otherwise now\n")
    assert "differs" in done.stdout and f"{number}: {job} gets " in done.stdout
