"""How databases find what the periodic tasks look for among 20,000 jobs: by an index, and never through all rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from edt_scheduler.store import allocations, environs, retention, usage
from edt_scheduler.store.database import Database
from edt_scheduler.store.queries import any_row
from edt_scheduler.store.usage import DAY_SECONDS
from support.puppets import Stage
from support.seeded import Past, crowd, seed

pytestmark = [pytest.mark.extended, pytest.mark.timeout(300)]
JOBS = 20_000
OVER = "UPDATE jobs SET finished_at = created_at WHERE state = 'FINISHED' AND finished_at IS NULL"
DELETED = (
    "UPDATE jobs SET deleted_at = finished_at, folder_gone_at = finished_at WHERE state = 'FINISHED' AND id % 3 = 0"
)
LARGE = ("jobs", "job_events", "metric_points", "validations", "allocations", "slot_usage")
LOOKS: dict[str, Callable[[Connection, float], Any]] = {
    "jobs to delete": lambda tx, now: retention.over(tx, now - 9 * DAY_SECONDS, 200),
    "results to remove": lambda tx, now: retention.with_results(tx, now - 9 * DAY_SECONDS, 200),
    "curves to thin out": lambda tx, now: retention.with_all_metrics(tx, now - 9 * DAY_SECONDS, 200),
    "points of a curve": lambda tx, now: [retention.points_in_short(tx, table, 5) for table in retention.POINTS],
    "folders to remove": lambda tx, now: retention.with_folder_to_go(tx, 0, 200),
    "jobs to purge": lambda tx, now: retention.to_purge(tx, now - DAY_SECONDS, now, 200),
    "the first slot that was held": lambda tx, now: allocations.earliest(tx),
    "samples to forget": lambda tx, now: any_row(tx, now - 2 * DAY_SECONDS >= usage.SAMPLED_AT),
    "environments to seal": lambda tx, now: environs.not_sealed_with(tx, "newest", ("newest", "older"), 5, 500),
}


@contextmanager
def plans(tx: Connection) -> Iterator[list[str]]:
    """How each statement is carried out that is executed meanwhile."""
    found: list[str] = []
    word = "EXPLAIN" if tx.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN"

    def explain(_: Any, cursor: Any, statement: str, parameters: Any, *__: Any) -> None:
        cursor.execute(f"{word} {statement}", parameters)
        found.extend(str(row[-1]) for row in cursor.fetchall())

    event.listen(tx, "before_cursor_execute", explain)
    try:
        yield found
    finally:
        event.remove(tx, "before_cursor_execute", explain)


def scans(plan: list[str]) -> list[str]:
    """Steps that go through a large table, whatever is looked for. PostgreSQL's and SQLite's words."""
    tables = "|".join(LARGE)
    whole = re.compile(rf"Seq Scan on ({tables})\b|^SCAN ({tables})$")
    return [step for step in plan if whole.search(step)]


def test_no_periodic_task_goes_through_all_jobs_to_find_its_own(stage: Stage) -> None:
    database: Database = stage.platform.database
    now = stage.clock()
    seed(database, now, Past(owners=("admin",)))
    crowd(database, now, "admin", JOBS)
    with database.writing.begin() as tx:
        tx.execute(text(OVER))
        tx.execute(text(DELETED))
    with database.writing.begin() as tx:
        tx.execute(text("ANALYZE"))
    found = {}
    with database.snapshot() as tx:
        for what, look in LOOKS.items():
            with plans(tx) as plan:
                look(tx, now)
            assert plan, what
            found[what] = scans(plan)
        with plans(tx) as plan:
            tx.execute(text("SELECT count(*) FROM jobs WHERE app_name = 'x'"))
        assert scans(plan), "a scan is known by its plan"
    assert {what: steps for what, steps in found.items() if steps} == {}
