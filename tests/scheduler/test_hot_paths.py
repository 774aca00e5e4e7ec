"""What is asked all the time reads a few rows by an index, however long the history is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, event, text

from edt_scheduler.store import allocations, attempts, changes, jobs, nodes, pools, resizes, speeds
from edt_scheduler.store.database import Database

QUERIES: dict[str, Callable[[Connection], object]] = {
    "jobs whose fence file is due": jobs.fences_due,
    "jobs that wait for too long": lambda tx: jobs.never_started_in_time(tx, 1e9, 50),
    "jobs that changed": lambda tx: jobs.for_the_plan(tx, [1, 2]),
    "places of waiting jobs": lambda tx: jobs.ranks(tx, [1, 2]),
    "open allocations": allocations.every_open,
    "allocations that changed": lambda tx: allocations.open_among(tx, [1, 2]),
    "slots that have just become free": lambda tx: allocations.freed_since(tx, 1e9),
    "places of an attempt": lambda tx: allocations.places(tx, 1, 1),
    "live attempts": attempts.every_live,
    "resizes that a node has not fetched": lambda tx: resizes.woken(tx, 1, "timer", 1e9),
    "points of jobs": lambda tx: speeds.of_jobs(tx, [1, 2]),
    "keys whose points changed": lambda tx: speeds.changed_keys(tx, 1e9),
    "changes since a moment ago": lambda tx: changes.since(tx, changes.newest(tx)),
    "free slots": nodes.free_slots,
    "nodes that pools were asked for": pools.open_requests,
    "nodes that one pool was asked for": lambda tx: pools.open_of(tx, 1),
    "nodes that did not come": lambda tx: pools.refused_since(tx, 1e9),
}
GROW = "jobs|allocations|attempts|resizes|resize_nodes|job_events|changes|speed_points|prior_points|node_requests"
"""Tables that only ever grow."""


@pytest.fixture(scope="module")
def filled() -> str:
    """Rows enough that a planner uses an index."""
    return """
        INSERT INTO users (id, name, role, password_hash, created_at) VALUES (1, 'ana', 'user', '', 0);
        INSERT INTO nodes (id, name, host, cores, boot_id, incarnation, token_sha256, registered_at, seen_at)
        VALUES (1, 'n1', 'h', 8, 'b', '1', 't', 0, 0);
        INSERT INTO slots (node_id, slot, position, device, label, present) VALUES (1, '0', 0, 'cpu', '', true);
    """


@contextmanager
def statements(database: Database) -> Iterator[list[tuple[str, object]]]:
    """The statements that are sent, with their parameters."""
    seen: list[tuple[str, object]] = []

    def note(_: object, __: object, statement: str, parameters: object, *___: object) -> None:
        seen.append((statement, parameters))

    event.listen(database.writing, "before_cursor_execute", note)
    yield seen
    event.remove(database.writing, "before_cursor_execute", note)


@pytest.mark.parametrize("what", QUERIES)
def test_on_sqlite_no_table_that_grows_is_read_as_a_whole(sqlite_url: str, what: str) -> None:
    database = Database(sqlite_url)
    with statements(database) as seen, database.transaction() as tx:
        QUERIES[what](tx)
        sent = [each for each in seen if re.match(r"\s*(SELECT|UPDATE)", each[0])]
        plans = [
            row[3]
            for statement, parameters in sent
            for row in tx.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)  # type: ignore[arg-type]
        ]
    database.close()
    assert plans
    whole = [plan for plan in plans if re.fullmatch(rf"SCAN ({GROW})", plan)]
    assert whole == []


@pytest.mark.extended
@pytest.mark.parametrize("what", QUERIES)
def test_on_postgresql_no_table_that_grows_is_read_as_a_whole(postgres_url: str, filled: str, what: str) -> None:
    database = Database(postgres_url)
    with database.transaction() as tx:
        for statement in filled.strip().split(";")[:-1]:
            tx.execute(text(statement))
    with statements(database) as seen, database.transaction() as tx:
        tx.exec_driver_sql("SET LOCAL enable_seqscan = off")
        QUERIES[what](tx)
        sent = [each for each in seen if re.match(r"\s*(SELECT|UPDATE)", each[0]) and "pg_" not in each[0]]
        plans = [
            row[0]
            for statement, parameters in sent
            for row in tx.exec_driver_sql(f"EXPLAIN {statement}", parameters)  # type: ignore[arg-type]
        ]
    database.close()
    assert [plan for plan in plans if re.search(rf"Seq Scan on ({GROW})\b", plan)] == []
