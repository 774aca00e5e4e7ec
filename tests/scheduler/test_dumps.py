"""A database with rows of every kind goes through all migrations, on both databases.

Every schema that was ever merged counts as released: somebody may run any commit of the main branch, so from each of
them there has to be a way to the newest. ``dumps`` holds a small database of each, as a restored backup would be;
``support.dumps`` says how a new one is made.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import JSON, Boolean, CheckConstraint, Column, DefaultClause, inspect, text
from sqlalchemy.exc import DBAPIError

from edt_contract.reports import ExitKind
from edt_migrations import migrate, revisions
from edt_scheduler.decide.reconcile import look
from edt_scheduler.model.exactness import Verdict
from edt_scheduler.model.nodes import SlotSpec
from edt_scheduler.model.states import Intent, JobState, ResizeCause, Role, Scope
from edt_scheduler.notify.notifier import Notifier
from edt_scheduler.operations import accounts, agents, execs, fleet, history
from edt_scheduler.platform import Platform
from edt_scheduler.settings import Settings
from edt_scheduler.store.database import Database
from edt_scheduler.store.tables import metadata
from support.dumps import FOLDER, Dump, Row, contents, opened, reflected
from support.postgres import Postgres

NEWEST = revisions()[-1]

KINDS: Mapping[tuple[str, str], frozenset[str]] = {
    ("users", "role"): frozenset(Role) - {Role.VIEWER},
    ("api_tokens", "scope"): frozenset(Scope),
    ("jobs", "state"): frozenset(JobState),
    ("nodes", "intent"): frozenset(Intent),
    ("nodes", "launcher"): frozenset({"process", "docker"}),
    ("attempts", "kind"): frozenset(ExitKind) - {ExitKind.PULL_FAILED},
    ("supervisors", "kind"): frozenset(ExitKind) - {ExitKind.PULL_FAILED},
    ("allocations", "kind"): frozenset(ExitKind),
    ("resizes", "cause"): frozenset(
        {
            *(ResizeCause.SUBMIT, ResizeCause.RESTART, ResizeCause.ENGINES_KNOWN, ResizeCause.JOB_ENDED),
            *(ResizeCause.SLOTS_FREE, ResizeCause.ROOM, ResizeCause.STOP, ResizeCause.DRAIN, ResizeCause.NODE_LOST),
            ResizeCause.ENGINE_LOST,
        }
    ),
    ("changes", "topic"): frozenset({"job", "node", "allocation", "resize", "attempt"}),
}
"""What each column of kinds has to hold at least, in every dump that has the column."""


def _host(dump: Dump, attempt: Row) -> int | None:
    """0003: whoever was home had told where its coordinator listens."""
    led = attempt["coordinator"] is not None and attempt["ended_at"] is None
    return attempt["home_node_id"] if led else None


def _uncompared(dump: Dump, job: Row) -> int | None:
    """0007: engines of before were never compared."""
    resizes = [row for row in dump.rows["resizes"] if row["job_id"] == job["id"] and (row["workers"] or 0) > 1]
    return max((row["step"] or 0 for row in resizes), default=None)


def _sums(dump: Dump, job: Row) -> dict[str, Any]:
    """0025: sums of the history of a job that is not over."""
    resizes = [row for row in dump.rows["resizes"] if row["job_id"] == job["id"] and job["finished_at"] is None]
    held = [row for row in dump.rows["allocations"] if row["job_id"] == job["id"] and job["finished_at"] is None]
    ended = [row for row in dump.rows["attempts"] if row["job_id"] == job["id"] and job["finished_at"] is None]
    ran = [row["ended_at"] - row["started_at"] for row in ended if row["ended_at"] and row["started_at"]]
    pauses = [row["pause_seconds"] for row in resizes if row["pause_seconds"] is not None]
    return {
        "slot_seconds": float(sum(row["released_at"] - row["decided_at"] for row in held if row["released_at"])),
        "ran_seconds": float(sum(ran)),
        "resized_at": max((row["decided_at"] for row in resizes), default=None),
        "pauses": len(pauses),
        "pause_seconds": float(sum(pauses)),
    }


FILLED: Mapping[tuple[str, str], Callable[[Dump, Row], Any]] = {
    ("attempts", "coordinator_node_id"): _host,
    ("jobs", "uncompared_step"): _uncompared,
    ("jobs", "slot_seconds"): lambda dump, job: _sums(dump, job)["slot_seconds"],
    ("jobs", "ran_seconds"): lambda dump, job: _sums(dump, job)["ran_seconds"],
    ("jobs", "resized_at"): lambda dump, job: _sums(dump, job)["resized_at"],
    ("jobs", "pauses"): lambda dump, job: _sums(dump, job)["pauses"],
    ("jobs", "pause_seconds"): lambda dump, job: _sums(dump, job)["pause_seconds"],
}
"""Columns that a migration has added and filled from what was there; every other one has its default in old rows."""


def _environs(dump: Dump) -> list[Row]:
    """0011: what was plain text is kept of jobs that may still start, until the first start seals it."""
    return [
        {"job_id": row["id"], "key_id": None, "sealed": None, "plain": row["environ"]}
        for row in dump.rows["jobs"]
        if row["environ"] and row["finished_at"] is None and row["stop_requested_at"] is None
    ]


ROWS_MADE: Mapping[str, Callable[[Dump], list[Row]]] = {"job_environs": _environs}
"""Rows that a migration has made of others, in a table that it has added."""


REMOVED_TABLES = frozenset({"slot_hours"})
"""0016: tables that are no more, and their rows of ``rolled_up``."""
RENAMED_TABLES: Mapping[str, str] = {"front_door": "api_heartbeat"}
"""0015: tables that have another name since then."""
RENAMED: Mapping[tuple[str, str], str] = {
    ("attempts", "head_node_id"): "home_node_id",
    ("attempts", "coordinator_node_id"): "host_node_id",
    ("resizes", "notified_at"): "rung_at",
    ("supervisors", "reports_complete_at"): "said_at",
}
"""0015: what a column of now was called before."""
RENAMED_VALUES: Mapping[tuple[str, str], Mapping[Any, Any]] = {("resizes", "woken_by"): {"doorbell": "notification"}}
"""0015: values that have another name since then."""


@dataclass(frozen=True)
class Migrated:
    """What the newest schema has made of a dump."""

    dump: Dump
    url: str


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
    """Makes a database without a table each time; its URL."""
    if request.param == "sqlite":
        folder = tmp_path_factory.mktemp("dumps")
        return lambda: f"sqlite:///{folder / f'{uuid.uuid4().hex}.db'}"
    server: Postgres = request.getfixturevalue("postgres_server")
    return lambda: server.create(f"edt_dump_{uuid.uuid4().hex}")


@pytest.fixture(scope="module", params=revisions())
def migrated(request: pytest.FixtureRequest, empty: Callable[[], str]) -> Migrated:
    """The dump of each schema in turn, on each database, migrated to the newest. Nobody changes it."""
    dump, url = Dump.of(request.param), empty()
    dump.load(url)
    migrate(url)
    return Migrated(dump, url)


@pytest.fixture
def oldest(empty: Callable[[], str]) -> str:
    """What the oldest schema's dump has become, for a test that goes on with it; its URL."""
    url = empty()
    Dump.of(revisions()[0]).load(url)
    migrate(url)
    return url


def test_every_schema_has_its_dump() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == [f"v{revision}" for revision in revisions()], (
        "a migration comes with the dump of its schema: PYTHONPATH=tests python -m support.dumps"
    )


@pytest.mark.parametrize("revision", revisions())
def test_a_dump_has_rows_of_every_kind_in_every_table_and_column(revision: str, tmp_path: Path) -> None:
    dump = Dump.of(revision)
    migrate(url := f"sqlite:///{tmp_path / 'edt.db'}", to=revision)
    with opened(url) as connection:
        tables = reflected(connection)
    assert dump.rows.keys() == tables.keys()
    lacks = []
    for name, table in tables.items():
        rows = dump.rows[name]
        assert rows, f"{name}: no row"
        assert [list(row) for row in rows] == [[column.name for column in table.columns]] * len(rows), name
        for column in table.columns:
            values = [row[column.name] for row in rows]
            if column.nullable and {value is None for value in values} != {True, False}:
                lacks.append(f"{name}.{column.name}: it takes one row with null and one without")
            if isinstance(column.type, Boolean) and not {True, False} <= set(values):
                lacks.append(f"{name}.{column.name}: it takes both truths")
            kinds = KINDS.get((name, column.name), frozenset())
            if (name, column.name) == ("resizes", "woken_by"):
                kinds = frozenset({"notification" if revision >= "0015" else "doorbell", "timer", "start"})
            missing = kinds - set(map(str, values))
            lacks += [f"{name}.{column.name}: no row with {kind}" for kind in sorted(missing)]
    assert lacks == []


def test_all_rows_survive_and_what_is_new_is_filled(migrated: Migrated) -> None:
    after = contents(migrated.url)
    for before, all_rows in migrated.dump.rows.items():
        if before in REMOVED_TABLES:
            assert before not in after
            continue
        rows = [row for row in all_rows if before != "rolled_up" or row["what"] not in REMOVED_TABLES]
        name = RENAMED_TABLES.get(before, before)
        keys = [column.name for column in metadata.tables[name].primary_key]
        found = {tuple(row[key] for key in keys): row for row in after[name]}
        if name != "changes":  # which a migration that touches rows tells of, too
            assert len(found) == len(rows), name
        for row in rows:
            values = {column.name: _expected(migrated.dump, column, row) for column in metadata.tables[name].columns}
            assert found[tuple(row[key] for key in keys)] == values, name
    known = {RENAMED_TABLES.get(name, name) for name in migrated.dump.rows}
    new = after.keys() - known - {"changes"}
    made = {name: ROWS_MADE[name](migrated.dump) if name in ROWS_MADE else [] for name in new}
    assert {name: after[name] for name in new} == made


def _expected(dump: Dump, column: Column[Any], row: Row) -> Any:
    """What a column of a row of a dump holds in the newest schema."""
    key = (column.table.name, column.name)
    name = column.name if column.name in row else RENAMED.get(key, column.name)
    if name in row:
        return RENAMED_VALUES[key].get(row[name], row[name]) if key in RENAMED_VALUES else row[name]
    if key in FILLED:
        return FILLED[key](dump, row)
    if not isinstance(column.server_default, DefaultClause):
        return None
    default = str(column.server_default.arg).strip("'")
    if isinstance(column.type, JSON):
        return json.loads(default)
    return default == "true" if isinstance(column.type, Boolean) else column.type.python_type(default)


def test_it_has_the_schema_that_the_code_knows(migrated: Migrated) -> None:
    database = Database(migrated.url)
    with database.snapshot() as tx:
        context = MigrationContext.configure(tx, opts={"compare_server_default": True})
        assert compare_metadata(context, metadata) == []
        for table in metadata.sorted_tables:
            expected = {str(c.name) for c in table.constraints if isinstance(c, CheckConstraint)}
            assert {c["name"] for c in inspect(tx).get_check_constraints(table.name)} == expected
    database.close()


ILLEGAL = {
    "a finished job runs again": "UPDATE jobs SET state = 'RUNNING' WHERE state = 'FINISHED'",
    "a job begins in the middle": "INSERT INTO jobs SELECT {9999 for id, 'RUNNING' for state} FROM jobs WHERE id = 1",
    "a fence shrinks": "UPDATE jobs SET fence = 1 WHERE id = 3",
    "a job of no size": "UPDATE jobs SET num_worker = 0",
    "a job of no least size": "UPDATE jobs SET min_slots = 0",
    "a job of no priority": "UPDATE jobs SET priority = 0",
    "a gap in a history": "INSERT INTO job_events SELECT {77 for seq} FROM job_events WHERE job_id = 1",
    "history is rewritten": "UPDATE job_events SET message = 'it was not so'",
    "history is forgotten": "DELETE FROM job_events WHERE job_id = 1",
    "an attempt ends twice": "UPDATE attempts SET ended_at = 5 WHERE job_id = 4",
    "a second attempt that lives": "INSERT INTO attempts SELECT {9 for fence} FROM attempts WHERE job_id = 8",
    "a supervisor ends twice": "UPDATE supervisors SET ended_at = 5 WHERE job_id = 4",
    "one that finished is opened again": "UPDATE supervisors SET ended_at = NULL WHERE job_id = 4",
    "a report is taken back": "UPDATE supervisors SET acked = 0 WHERE job_id = 3 AND fence = 2",
    "a slot comes back twice": "UPDATE allocations SET released_at = 5 WHERE id = 1",
    "two hold one slot": "INSERT INTO allocations SELECT {9999 for id} FROM allocations WHERE id = 8",
    "a slot of no node": "UPDATE allocations SET slot = 'nowhere' WHERE id = 8",
    "two users of a name": "UPDATE users SET name = 'ana' WHERE id = 1",
    "a role that is none": "UPDATE users SET role = 'king' WHERE id = 3",
    "a token of nobody": "UPDATE tokens SET user_id = 9999 WHERE id = 1",
    "two tokens of a secret": "UPDATE tokens SET secret_sha256 = (SELECT min(secret_sha256) FROM tokens)",
    "two nodes of a name": "UPDATE nodes SET name = 'beta' WHERE id = 1",
    "an intent that is none": "UPDATE nodes SET intent = 'asleep'",
    "a node without a core": "UPDATE nodes SET cores = 0",
    "woken by nobody": "UPDATE resizes SET woken_by = 'nobody' WHERE id = 1",
    "a resize of no job": "UPDATE resizes SET job_id = 9999 WHERE id = 1",
}


def test_what_is_illegal_is_refused_afterwards_as_before(migrated: Migrated) -> None:
    database = Database(migrated.url)
    for what, statement in ILLEGAL.items():
        try:
            with database.transaction() as tx:
                changed = tx.execute(text(_written(statement))).rowcount
        except DBAPIError as refusal:
            assert re.search("(?i)constraint|illegal|only|once|gap|never|begins", str(refusal.orig)), what
        else:
            pytest.fail(f"{what}: {changed} rows were changed")
    database.close()


def _written(statement: str) -> str:
    """``{1 for id}`` stands for all columns of the table that is read, with 1 in place of its id."""
    if "{" not in statement:
        return statement
    head, rest = statement.split("{", 1)
    inside, tail = rest.split("}", 1)
    other = dict(reversed(pair.split(" for ")) for pair in inside.split(", "))  # type: ignore[misc]
    table = head.split()[2]
    columns = [f'"{column.name}"' for column in metadata.tables[table].columns]
    values = [other.get(column.name, f'"{column.name}"') for column in metadata.tables[table].columns]
    return f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)}{tail}"


def test_what_happens_next_is_numbered_on_and_told_to_who_watches(oldest: str, tmp_path: Path) -> None:
    before = contents(oldest)
    with _platform(oldest, tmp_path) as platform:
        cursor = history.newest_change(platform)
        accounts.add_user(platform, "eva", "hash", Role.USER)
        registered = fleet.register_node(
            platform, name="delta", host="h", cores=4, boot_id="b", incarnation="1", slots=[SlotSpec("0")]
        )
        look(platform)
        assert registered.node.name == "delta"
        after = contents(oldest)
        for name in ("users", "nodes", "resizes", "allocations"):
            new = {row["id"] for row in after[name]} - {row["id"] for row in before[name]}
            assert new and min(new) > max(row["id"] for row in before[name]), name
        events = history.changes_since(platform, cursor)
        assert events.nodes and events.jobs


def test_the_platform_shows_it_and_goes_on_with_it(oldest: str, tmp_path: Path) -> None:
    with _platform(oldest, tmp_path) as platform:
        admin = accounts.user(platform, "admin")
        jobs = {job.number: job for job in execs.jobs(platform, viewer=admin)}
        assert {number: job.state for number, job in jobs.items()} == {
            row["id"]: row["state"] for row in Dump.of(NEWEST).rows["jobs"] if row["deleted_at"] is None
        }
        assert jobs[7].exactness.reason == "cumsum: no deterministic kernel"
        assert jobs[4].exactness.verdict is Verdict.NOT_COMPARED
        assert "joined at step 45" in jobs[3].exactness.reason
        for job in jobs.values():
            events = history.events(platform, job.exec_id, viewer=admin)
            assert [event.seq for event in events] == list(range(1, 1 + len(events)))
            history.resizes(platform, job.exec_id, viewer=admin)
            history.allocations(platform, job.exec_id, viewer=admin)
        assert history.timeline(platform, viewer=admin)
        assert {node.name for node in fleet.nodes(platform)} == {"alpha", "beta", "gamma"}
        listed = agents.assignments(platform, "alpha").assignments
        assert {item.spec.job for item in listed} == {"edt-3", "edt-8"}
        assert {item.spec.environ.get("TOKEN") for item in listed} == {"s3cret", None}


@contextmanager
def _platform(url: str, folder: Path) -> Iterator[Platform]:
    """A platform on a database, without a broker."""
    settings = Settings(home=folder / "home", database_url=url, broker_url="")
    for each in (settings.jobs, settings.staged, settings.home / "run"):
        each.mkdir(parents=True, exist_ok=True)
    database = Database(url)
    platform = Platform(database, Notifier(database), settings, lambda: 1_700_005_100.0)
    yield platform
    platform.close()
