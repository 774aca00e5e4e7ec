"""Jobs and their history.

Only ``move`` changes a job's state, and it writes the event in the same transaction. A trigger refuses every other
change of a state, and every change that ``job_transitions`` does not list.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Text,
    and_,
    bindparam,
    cast,
    collate,
    func,
    insert,
    literal,
    or_,
    select,
    text,
    update,
)

from edt_contract.encoding import to_json_object
from edt_scheduler.model.exactness import Compared
from edt_scheduler.model.jobs import SUBMITTED_CODE, Begin, JobFilter, JobKey, JobOrder, JobSpec, exec_id, job_number
from edt_scheduler.model.states import ACTIVE, TERMINAL, JobState, advance
from edt_scheduler.store import environs
from edt_scheduler.store.queries import MOST_NAMED, rows_of, write_to
from edt_scheduler.store.tables import job_events, jobs, users

_DECIDED_ON = (JobState.PENDING, JobState.RUNNING)


@dataclass(frozen=True)
class NewJob:
    """A job that is to be written under a number that was reserved for it."""

    number: int
    user_id: int
    spec: JobSpec
    work_dir: str
    seed: int
    threads: int
    begin: Begin | None = None
    """The checkpoint of another job from which it begins; None: it begins anew."""
    prior_key: str | None = None
    """What it has in common with jobs that are alike; see ``model.speeds``."""


def add(tx: Connection, new: Sequence[NewJob], now: float) -> None:
    """Insert jobs in state SUBMITTED, with the events that their history begins with."""
    tx.execute(insert(jobs), [_row(job, now) for job in new])
    tx.execute(
        insert(job_events),
        [
            {"job_id": job.number, "seq": seq, "time": now, "fence": 0, **event}
            for job in new
            for seq, event in enumerate(_first_events(job), 1)
        ],
    )


def _row(job: NewJob, now: float) -> dict[str, Any]:
    return {
        **{name: value for name, value in vars(job.spec).items() if name in jobs.c},
        "gang": to_json_object(job.spec.gang) if job.spec.gang is not None else None,
        "gpu_models": list(job.spec.gpu_models) or None,
        "sizes": list(job.spec.sizes) or None,
        "after": [job_number(name) for name in job.spec.after],
        "prior_key": job.prior_key,
        "submitted_priority": job.spec.priority,
        "id": job.number,
        "user_id": job.user_id,
        "state": JobState.SUBMITTED,
        "events": len(_first_events(job)),
        "resumed_from": job.begin.number if job.begin is not None else None,
        "resumed_step": job.begin.step if job.begin is not None else None,
        "work_dir": job.work_dir,
        "seed": job.seed,
        "threads": job.threads,
        "progress": {},
        "created_at": now,
    }


def _first_events(job: NewJob) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if job.spec.remark:
        found.append({"kind": "remark", "message": job.spec.remark, "data": {}})
    if (begin := job.begin) is not None:
        data = {"job": exec_id(begin.number), "step": begin.step}
        found.append({"kind": "resumed-from", "message": f"begins from the {begin}", "data": data})
    return [*found, {"kind": "state", "message": JobState.SUBMITTED, "data": {"after": JobState.SUBMITTED}}]


def get(tx: Connection, number: int) -> Row[Any]:
    """The row of a job that must exist.

    All rows of jobs in this module also have ``owner_id``, the owner's name as ``owner``, and whether the owner was
    removed as ``owner_removed``.
    """
    return tx.execute(_joined().where(jobs.c.id == number)).one()


def find(tx: Connection, number: int, owner_id: int | None) -> Row[Any] | None:
    """The row of a job that was not deleted, if this user owns it; ``owner_id`` None: any user."""
    query = _joined().where(jobs.c.id == number, jobs.c.deleted_at.is_(None))
    if owner_id is not None:
        query = query.where(jobs.c.user_id == owner_id)
    return tx.execute(query).one_or_none()


def page(tx: Connection, wanted: JobFilter, limit: int, before: int | None = None) -> list[Row[Any]]:
    """At most ``limit`` jobs that match the filter, newest first, with numbers below ``before``."""
    query = _joined().where(*_conditions(wanted)).order_by(jobs.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(jobs.c.id < before)
    return list(tx.execute(query))


def count(tx: Connection, wanted: JobFilter) -> int:
    """How many jobs match the filter."""
    query = select(func.count()).select_from(jobs).join(users).where(*_conditions(wanted))
    return int(tx.execute(query).scalar_one())


def _conditions(wanted: JobFilter) -> list[ColumnElement[bool]]:
    conditions = _listed(wanted.owner_id, wanted.states)
    if wanted.number is not None:
        conditions.append(jobs.c.id == wanted.number)
    if wanted.owner is not None:
        conditions.append(users.c.name == wanted.owner)
    if wanted.framework is not None:
        conditions.append(jobs.c.framework == wanted.framework)
    if wanted.app_name is not None:
        conditions.append(jobs.c.app_name == wanted.app_name)
    if wanted.text:
        name = literal(exec_id(0)[:-1]) + cast(jobs.c.id, Text)
        folder = func.substr(jobs.c.work_dir, len(SUBMITTED_CODE) + 1)
        fields = (name, jobs.c.model_main, folder, users.c.name)
        given = jobs.c.app_name.icontains(wanted.text, autoescape=True)
        if wanted.unnamed:
            given = and_(given, jobs.c.app_name.not_in(wanted.unnamed))
        conditions.append(or_(given, *(field.icontains(wanted.text, autoescape=True) for field in fields)))
    return conditions


def of_numbers(tx: Connection, numbers: Collection[int]) -> list[Row[Any]]:
    """The jobs with these numbers, deleted jobs too, in submit order."""
    return rows_of(tx, _joined().order_by(jobs.c.id), jobs.c.id, numbers)


def in_short(tx: Connection, numbers: Collection[int]) -> list[Row[Any]]:
    """The few facts that views of slots show of a job: its owner, state, names, ``deleted_at`` and ``is_gang``. Deleted
    jobs are included.
    """
    said = jobs.c["id", "state", "framework", "app_name", "model_main", "arguments", "gang", "work_dir", "deleted_at"]
    more = jobs.c.user_id.label("owner_id"), users.c.name.label("owner"), jobs.c.gang.is_not(None).label("is_gang")
    return rows_of(tx, select(*said, *more).join_from(jobs, users), jobs.c.id, numbers)


def sorted_numbers(
    tx: Connection, wanted: JobFilter, order: JobOrder, limit: int | None = None, start: int = 0
) -> array[int]:
    """The numbers of at most ``limit`` jobs that match the filter, in ``order``; eight bytes each.

    The first ``start`` of them are left out.
    """
    key = _key(tx, order)
    last = jobs.c.id.desc() if key is None and order.descending else jobs.c.id
    query = select(jobs.c.id).where(*_conditions(wanted)).limit(limit).offset(start or None)
    if order.by is JobKey.OWNER or wanted.owner is not None or wanted.text:
        query = query.join(users)
    query = query.order_by(*(() if key is None else (key.desc() if order.descending else key,)), last)
    return array("q", tx.execute(query.execution_options(yield_per=MOST_NAMED)).scalars())


def still_listed(tx: Connection, numbers: Sequence[int], states: Collection[JobState] | None) -> list[Row[Any]]:
    """The jobs with these numbers, in the same order.

    Jobs that were deleted or left the wanted ``states`` since their numbers were read are left out.
    """
    found = {row.id: row for row in rows_of(tx, _joined().where(*_listed(None, states)), jobs.c.id, numbers)}
    return [found[number] for number in numbers if number in found]


def _listed(owner_id: int | None, states: Collection[JobState] | None) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [jobs.c.deleted_at.is_(None)]
    if owner_id is not None:
        conditions.append(jobs.c.user_id == owner_id)
    if states is not None:
        conditions.append(jobs.c.state.in_(list(states)))
    return conditions


def _key(tx: Connection, order: JobOrder) -> ColumnElement[Any] | None:
    """The column that is sorted by before the number; None: sort by the number alone.

    Text is sorted by code points, as on SQLite, whatever the language of a PostgreSQL database is.
    """
    if order.by is JobKey.NUMBER:
        return None
    columns: dict[JobKey, ColumnElement[Any]] = {
        JobKey.CREATED_AT: jobs.c.created_at,
        JobKey.STARTED_AT: func.coalesce(jobs.c.started_at, 0.0),  # the two databases sort NULL differently
        JobKey.FINISHED_AT: func.coalesce(jobs.c.finished_at, 0.0),
        JobKey.STATE: jobs.c.state,
        JobKey.APP_NAME: jobs.c.app_name,
    }
    key = columns.get(order.by, users.c.name)
    if tx.dialect.name == "postgresql" and isinstance(key.type, Text):
        return collate(key, "C")
    return key


def own(tx: Connection, owner_id: int, *, after: int, until: int, limit: int) -> list[Row[Any]]:
    """``id``, ``state`` and ``stop_requested_at`` of a user's jobs that were not deleted.

    The jobs come in the order of their numbers, which are above ``after`` and at most ``until``.
    """
    query: Any = (
        select(*jobs.c["id", "state", "stop_requested_at"])
        .where(jobs.c.user_id == owner_id, jobs.c.deleted_at.is_(None), jobs.c.id > after, jobs.c.id <= until)
        .order_by(jobs.c.id)
        .limit(limit)
    )
    return list(tx.execute(query))


def take_off(tx: Connection, numbers: Iterable[int], now: float) -> None:
    """Take these jobs off all lists."""
    write_to(tx, update(jobs).values(deleted_at=now), jobs.c.id, numbers)


def for_the_plan(tx: Connection, numbers: Iterable[int] | None = None) -> list[Row[Any]]:
    """The jobs that wait or run, in submit order, with the columns that a decision needs.

    Few columns are read, because there may be thousands of jobs and little of them changes often. JSON is read as text,
    because most jobs have the same.

    Args:
        tx: The open transaction.
        numbers: Only those of these jobs; None: all.

    Returns:
        Rows whose first ``HARD`` columns are those that a decision depends on. The others change while a job trains.
    """
    query = select(*_HARD_COLUMNS, *_SOFT_COLUMNS).join_from(jobs, users).where(jobs.c.state.in_(_DECIDED_ON))
    if numbers is not None:
        return rows_of(tx, query, jobs.c.id, numbers)
    return list(tx.execute(query.order_by(jobs.c.id)))


_HARD_COLUMNS = (
    *jobs.c["id", "fence", "fence_due", "stop_requested_at", "paused_at", "paused_by", "image", "device", "created_at"],
    *jobs.c["num_worker", "worker_device_num", "max_slots", "min_slots", "engines", "engines_at", "not_before"],
    *jobs.c["cap", "cap_until", "user_id", "queue", "priority", "deadline", "time_limit", "prior_key", "steps_total"],
    *jobs.c["resized_at", "ran_seconds", "state"],
    *(cast(jobs.c[name], Text).label(name) for name in ("sizes", "gpu_models", "after")),
    jobs.c.gang.is_not(None).label("is_gang"),
    users.c.name.label("owner"),
)
HARD = len(_HARD_COLUMNS)
"""Number of the columns of ``for_the_plan`` that a decision depends on."""
_SOFT_COLUMNS = (
    cast(jobs.c.waiting, Text).label("waiting"),
    *jobs.c["slot_seconds", "pauses", "pause_seconds"],
    jobs.c.progress["step"].as_string().label("step"),
)


def ranks(tx: Connection, numbers: Collection[int]) -> dict[int, int]:
    """The place of each of these jobs among all that wait, by priority and then by number; 1 is next.

    Jobs that do not wait, or are paused, are left out.
    """
    place = func.row_number().over(order_by=(jobs.c.priority.desc(), jobs.c.id)).label("place")
    waits = (jobs.c.state == JobState.PENDING, jobs.c.waiting.is_not(None), jobs.c.paused_at.is_(None))
    placed = select(jobs.c.id, place).where(*waits).subquery()
    query = select(placed.c.id, placed.c.place)
    return {row.id: row.place for row in rows_of(tx, query, placed.c.id, numbers)}


def states_of(tx: Connection, numbers: Iterable[int]) -> dict[int, JobState]:
    """The states of those of these jobs that there are, deleted or not."""
    found = rows_of(tx, select(jobs.c.id, jobs.c.state), jobs.c.id, numbers)
    return {row.id: JobState(row.state) for row in found}


def submitted(tx: Connection, most: int) -> list[int]:
    """At most ``most`` jobs that no scheduler has seen yet, in submit order."""
    query = select(jobs.c.id).where(jobs.c.state == JobState.SUBMITTED).order_by(jobs.c.id).limit(most)
    return list(tx.execute(query).scalars())


def of_removed_users(tx: Connection, limit: int) -> list[Row[Any]]:
    """At most ``limit`` jobs of removed users that are not over and were not asked to stop, in submit order."""
    unasked = (jobs.c.state.in_(ACTIVE), jobs.c.stop_requested_at.is_(None), users.c.removed_at.is_not(None))
    return list(tx.execute(_joined().where(*unasked).order_by(jobs.c.id).limit(limit)))


def never_started_in_time(tx: Connection, now: float, limit: int) -> list[Row[Any]]:
    """At most ``limit`` jobs that wait for their first start for longer than they may, in submit order. The time of a
    paused job stands still.
    """
    waits = (
        jobs.c.pending_timeout.is_not(None),
        jobs.c.finished_at.is_(None),
        jobs.c.state == JobState.PENDING,
        jobs.c.started_at.is_(None),
        jobs.c.fence == 0,
        jobs.c.paused_at.is_(None),
    )
    late = jobs.c.created_at + jobs.c.pending_timeout <= now
    return list(tx.execute(_joined().where(*waits, late).order_by(jobs.c.id).limit(limit)))


def deleted_before(tx: Connection, since: float | None) -> set[int]:
    """Jobs that were deleted before ``since`` and are over. If ``since`` is None, no jobs."""
    if since is None:
        return set()
    query = select(jobs.c.id).where(jobs.c.deleted_at < since, jobs.c.state.in_(TERMINAL))
    return set(tx.execute(query).scalars())


def fences_due(tx: Connection) -> list[Row[Any]]:
    """Jobs in any state whose fence file must still be raised."""
    return list(tx.execute(_joined().where(jobs.c.fence_due.is_not(None)).order_by(jobs.c.id)))


def known(tx: Connection, numbers: Collection[int]) -> set[int]:
    """Those of these numbers that belong to a job, deleted or not."""
    return {row.id for row in rows_of(tx, select(jobs.c.id), jobs.c.id, numbers)}


def newest_number(tx: Connection) -> int:
    """The highest number that was ever given, even if its transaction did not commit; 0: none was given."""
    if tx.dialect.name == "postgresql":
        query = text("SELECT pg_sequence_last_value(pg_get_serial_sequence('jobs', 'id')::regclass)")
    else:
        query = text("SELECT max(seq) FROM sqlite_sequence WHERE name = 'jobs'")
    return int(tx.execute(query).scalar_one() or 0)


def skip_numbers(tx: Connection, highest: int) -> None:
    """Give no new job a number up to ``highest``. On PostgreSQL this holds even if the transaction does not commit."""
    if newest_number(tx) >= highest:
        return
    values = {"highest": highest}
    if tx.dialect.name == "postgresql":
        tx.execute(text("SELECT setval(pg_get_serial_sequence('jobs', 'id'), :highest)"), values)
    elif tx.execute(text("UPDATE sqlite_sequence SET seq = :highest WHERE name = 'jobs'"), values).rowcount == 0:
        tx.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES ('jobs', :highest)"), values)


def change(tx: Connection, number: int, **values: Any) -> None:
    """Set columns of a job, but never its state."""
    tx.execute(update(jobs).where(jobs.c.id == number).values(**values))


def count_worker(tx: Connection, number: int, change: int) -> None:
    """Add ``change`` to the number of a job's workers."""
    tx.execute(update(jobs).where(jobs.c.id == number).values(workers=jobs.c.workers + change))


def explain(tx: Connection, news: Mapping[int, tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]) -> set[int]:
    """Store for each job why it waits now.

    A job is skipped if it is not PENDING, or if its stored reason has changed meanwhile.

    Args:
        tx: The open transaction.
        news: Number of each job, mapped to the reason that was read before and the new reason; None: it does not wait.

    Returns:
        The numbers of the jobs whose reason was stored.
    """
    query = select(jobs.c.id, jobs.c.waiting).where(jobs.c.state == JobState.PENDING)
    found = {row.id for row in rows_of(tx, query, jobs.c.id, news) if row.waiting == news[row.id][0]}
    if found:
        said = update(jobs).where(jobs.c.id == bindparam("number")).values(waiting=bindparam("why"))
        tx.execute(said, [{"number": number, "why": news[number][1]} for number in sorted(found)])
    return found


def most_slots(row: Row[Any]) -> int:
    """The most slots that the job of this row may hold."""
    return int(row.num_worker * row.worker_device_num if row.max_slots is None else row.max_slots)


def compared(row: Row[Any]) -> Compared:
    """The columns of a job's row about comparisons of its engines."""
    return Compared(row.comparisons, row.compared_step, row.uncompared_step)


def move(
    tx: Connection,
    number: int,
    after: JobState,
    message: str,
    now: float,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Change a job's state and write the event.

    Raises:
        IllegalTransition: ``TRANSITIONS`` forbids the change.
    """
    job = tx.execute(select(jobs.c.state, jobs.c.started_at).where(jobs.c.id == number)).one()
    before = JobState(job.state)
    values: dict[str, Any] = {"state": advance(before, after)}
    if after is JobState.RUNNING and job.started_at is None:
        values["started_at"] = now
    if after.terminal:
        values |= {"finished_at": now, "paused_at": None, "paused_by": None}
        environs.erase(tx, number)
    if after is not JobState.PENDING:
        values["waiting"] = None
    moved = tx.execute(update(jobs).where(jobs.c.id == number, jobs.c.state == before).values(**values))
    if moved.rowcount != 1:
        raise RuntimeError(f"job {number} left {before} under the writer's lock")
    record(tx, number, "state", message, {"before": before, "after": after, **(data or {})}, now)


def record(tx: Connection, number: int, kind: str, message: str, data: Mapping[str, Any], now: float) -> None:
    """Append one event to a job's history. An event never holds values of the environment."""
    head = (
        update(jobs).where(jobs.c.id == number).values(events=jobs.c.events + 1).returning(jobs.c.events, jobs.c.fence)
    )
    seq, fence = tx.execute(head).one()
    tx.execute(
        insert(job_events).values(
            job_id=number, seq=seq, time=now, kind=kind, fence=fence, message=message, data=dict(data)
        )
    )


def history(tx: Connection, number: int, after: int = 0, limit: int | None = None) -> list[Row[Any]]:
    """A job's events with ``seq`` above ``after``, in order."""
    behind = job_events.c.seq > literal(after, BigInteger)  # a cursor may be a number that is too large for the column
    query = select(job_events).where(job_events.c.job_id == number, behind)
    return list(tx.execute(query.order_by(job_events.c.seq).limit(limit)))


def newest_event(tx: Connection, number: int) -> Row[Any] | None:
    """The last event of a job's history; None: there is none."""
    query = select(job_events).where(job_events.c.job_id == number)
    return tx.execute(query.order_by(job_events.c.seq.desc()).limit(1)).one_or_none()


def _joined() -> Any:
    return select(
        jobs,
        jobs.c.user_id.label("owner_id"),
        users.c.name.label("owner"),
        users.c.removed_at.is_not(None).label("owner_removed"),
    ).join(users)
