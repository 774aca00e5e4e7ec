"""``docs/queues.md`` shows what ``plan`` decides: each example is planned, one submission after the other."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from edt_scheduler.model.states import Health
from edt_scheduler.plan.curves import Point
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.queues import Queue, Sharing
from edt_scheduler.plan.state import Job, Node, Phase, State
from support.plan_states import at_rest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "queues.md").read_text()
NOW = 1000.0
MANY = 10**6
"""Micro-batches of a step, so that each number of slots is a size."""
Row = dict[str, str]


def tables(text: str) -> list[list[Row]]:
    """The tables of a piece of the page: a row is its cells by the names of the columns."""
    found: list[list[Row]] = []
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        names, _, *rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table.splitlines()]
        found.append([dict(zip(names, row, strict=True)) for row in rows])
    return found


def examples() -> dict[str, str]:
    """Name of an example to its text: from its bold name to the next one, or to the next heading."""
    parts = re.findall(r"^\*\*Example: (.+?)\*\*(.*?)(?=^\*\*Example|^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return dict(parts)


def queue(row: Row) -> Queue:
    limit, policy = row.get("limit", ""), row.get("policy", "")
    return Queue(
        row["queue"],
        int(row.get("quota") or 0),
        float(row.get("weight") or 1),
        int(limit) if limit else None,
        Sharing(policy or "efficient"),
    )


def job(number: int, row: Row) -> Job:
    """What a row asks for: "up to 8", "4 to 8" or "gang of 6"."""
    asked = row["asks for"]
    *least, most = [int(each) for each in re.findall(r"\d+", asked)]
    steps = [float(each) for each in row.get("seconds of a step on 1, 2, 4, 8 slots", "").split(",") if each]
    limit = row.get("time limit", "")
    return Job(
        row["job"],
        number,
        most,
        Phase.WAITING,
        None if "gang" in asked else MANY,
        min=least[0] if least else 1,
        gang="gang" in asked,
        user=row["user"],
        queue=row.get("queue", ""),
        priority=int(row.get("priority") or 1),
        points=tuple(Point(slots, 1, seconds) for slots, seconds in zip((1, 2, 4, 8), steps, strict=False)),
        time_limit=60.0 * int(limit.removesuffix(" min")) if limit else None,
    )


def begun(state: State) -> State:
    """The same with the end of each running job that has a time limit."""
    then = (
        replace(job, ends_by=NOW + job.time_limit) if job.time_limit is not None and job.held else job
        for job in state.jobs
    )
    return replace(state, jobs=tuple(then))


@pytest.mark.parametrize("name", examples())
def test_an_example_is_what_the_plan_decides(name: str) -> None:
    *settings, rows = tables(examples()[name])
    queues = tuple(queue(row) for row in settings[0]) if settings else ()
    usage = {(row.get("queue", ""), row["user"]): float(row.get("used lately") or 0) * 3600 for row in rows}
    state = State(
        NOW, (Node("n1", 8, 8, Health.UP),), (), queues, {key: hours for key, hours in usage.items() if hours}
    )
    for number, row in enumerate(rows, start=1):
        state = begun(state)
        state, _ = at_rest(replace(state, jobs=(*state.jobs, job(number, row))), 12)
    explained = plan(state).explain
    got = [str(each.held) if each.held else f"waits: {explained[each.id].reason}" for each in state.jobs]
    assert got == [row["gets"] for row in rows]


def test_there_are_examples() -> None:
    assert len(examples()) >= 10
