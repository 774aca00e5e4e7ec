"""Use cases of a job: submit, look, stop, delete."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from typing import Any

from sqlalchemy import Connection, Row

from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.frameworks import KERAS2_VARIABLE
from edt_scheduler.attempts import lifecycle
from edt_scheduler.errors import (
    DatabaseUnavailable,
    NoSuchJob,
    NoSuchUser,
    OutcomeUnknown,
    SubmissionInvalid,
    SubmitExpired,
    Unavailable,
)
from edt_scheduler.home import lost_found
from edt_scheduler.home.submitted_code import SubmittedCode
from edt_scheduler.model.idempotency import IdempotentRequest
from edt_scheduler.model.jobs import (
    MOST_SLOTS,
    SUBMITTED_CODE,
    JobFilter,
    JobOrder,
    JobSpec,
    exec_id,
    job_number,
    storable,
)
from edt_scheduler.model.nodes import threads_per_engine
from edt_scheduler.model.states import JobState
from edt_scheduler.operations.images import check_image, note_use
from edt_scheduler.platform import Platform
from edt_scheduler.store import environs, idempotency, nodes, outbox, reservations, to_views
from edt_scheduler.store import jobs as store
from edt_scheduler.store import users as user_store
from edt_scheduler.store.database import in_batches, retried
from edt_scheduler.views import JobPage, JobView, UserView

SEED_VARIABLE = "EDT_SEED"
READ_AT_ONCE = 1000
"""So many jobs of a long list are in memory at a time."""
DELETED_AT_ONCE, STOPPED_AT_ONCE = 500, 50
"""So many jobs one transaction deletes, and so many of them it stops: each is some ten milliseconds of the writer's
lock."""


def submit(
    platform: Platform, *, owner: UserView, spec: JobSpec, staged: Path, request: IdempotentRequest | None = None
) -> JobView:
    """Take a job. ``staged``: its code, complete and fsynced, a folder below ``settings.staged``; it is moved.

    When this returns, row, arguments and code survive the death of everything. When it raises, no job exists, or
    with OutcomeUnknown perhaps one; ``staged`` is then the caller's to remove, and what a crash leaves of it
    ``sweeping`` clears away. ``request``: where it made a job before, that job is the answer and ``staged`` stays.
    Raises KeyReused, NoSuchUser, SubmissionInvalid, Unavailable, and OSError where the home cannot be written.

    The home may lie on another machine, so it is touched between two transactions and in none: a number is reserved,
    the folder is made under it and synced, the job is written. So no row is ever without its folder; a folder may be
    without a row, while its number is reserved.
    """
    if platform.settings.tf_use_legacy_keras and spec.backend == "tensorflow":
        # The job's for life, whatever the setting is later: all its engines must have one Keras.
        spec = replace(spec, environ={KERAS2_VARIABLE: "1", **spec.environ})
    check_image(platform, spec.image, owner)
    work_dir, seed = _work_dir(spec, staged), _seed(spec)
    code = SubmittedCode(staged)
    number = _reserve(platform)
    crash_point(CrashPoint.API_RESERVED)
    try:
        while not code.lay_out(platform.settings, number, spec):
            # A link or a file takes its number, too, and is no folder that counts for the highest.
            highest = max(number, lost_found.highest_number(platform.settings))
            number = _reserve(platform, instead_of=number, above=highest)
        crash_point(CrashPoint.API_LAID_OUT)
        view = _write(platform, number, owner, spec, work_dir, seed, request)
    except OutcomeUnknown:
        raise  # perhaps it is a job
    except Unavailable:
        code.take_back()  # the reservation ends by itself
        raise
    except Exception:
        _give_up(platform, number, code)
        raise
    if view.number != number:
        _give_up(platform, number, code)
    platform.notifier.notify()
    return view


def submitted_before(platform: Platform, *, owner: UserView, request: IdempotentRequest) -> JobView | None:
    """The job that this request made when it came before. Raises KeyReused."""
    with platform.database.snapshot() as tx:
        user = user_store.get(tx, owner.id)
        made = idempotency.made(tx, user.id, request, platform.clock()) if user is not None else None
        return _made(tx, platform, made) if made is not None else None


def _reserve(platform: Platform, instead_of: int | None = None, above: int = 0) -> int:
    """A number that is this submit's alone, above ``above``. ``instead_of``: the reservation that it is to replace.

    What a loss of power takes away of it is missed when the job is written, which then is refused. Raises
    DatabaseUnavailable.
    """
    try:
        return _reserved(platform, instead_of, above)
    except OutcomeUnknown as error:  # perhaps a number is reserved, which ends by itself; surely there is no job
        raise DatabaseUnavailable("does not answer", passing=True) from error


@retried(if_done=True)
def _reserved(platform: Platform, instead_of: int | None, above: int) -> int:
    with platform.database.transaction(durable=False) as tx:
        if instead_of is not None:
            reservations.drop(tx, instead_of)
        store.skip_numbers(tx, above)
        return reservations.add(tx, platform.clock())


@retried(if_done=True)
def _write(
    platform: Platform,
    number: int,
    owner: UserView,
    spec: JobSpec,
    work_dir: PurePosixPath,
    seed: int,
    request: IdempotentRequest | None,
) -> JobView:
    """The job, written under its reserved number, or the one that this request made before. A try whose end nobody
    knows is found out by the next one: nobody else writes a job of this number. Raises SubmitExpired."""
    secret = platform.secret_key.keys()
    with platform.database.transaction() as tx:
        if store.known(tx, [number]):
            return _made(tx, platform, exec_id(number))
        now = platform.clock()
        user = user_store.get(tx, owner.id)
        if user is None:
            raise NoSuchUser(owner.name)
        made = idempotency.made(tx, user.id, request, now) if request is not None else None
        if made is not None:
            return _made(tx, platform, made)
        if reservations.drop(tx, number):
            threads = threads_per_engine(nodes.cores_and_slots(tx))
            work = str(work_dir)
            store.add(tx, number, user_id=user.id, spec=spec, work_dir=work, seed=seed, threads=threads, now=now)
            environs.put(tx, number, spec.environ, secret)
            if request is not None:
                idempotency.put(tx, user.id, request, exec_id(number), now)
            note_use(tx, spec.image, owner, now)
            outbox.put_scheduler(tx, now)
            return _made(tx, platform, exec_id(number))
    raise SubmitExpired  # out here: it is no trouble of the database's


def _give_up(platform: Platform, number: int, code: SubmittedCode) -> None:
    """Leave nothing of a submit that came to no job. A reservation that cannot be taken away ends by itself."""
    code.take_back()
    with suppress(Unavailable), platform.database.transaction(durable=False) as tx:
        reservations.drop(tx, number)


def _made(tx: Connection, platform: Platform, made: str) -> JobView:
    (view,) = to_views.jobs(tx, platform.settings, [store.get(tx, job_number(made) or 0)])
    return view


def _work_dir(spec: JobSpec, staged: Path) -> PurePosixPath:
    """Where the job's code runs, relative to its folder; the main script must be there."""
    inside = PurePosixPath(spec.model_dir or ".")
    if inside.is_absolute() or ".." in inside.parts:
        raise SubmissionInvalid("--model-dir", f"{spec.model_dir!r} leads out of the submitted code")
    if not (staged / inside).is_dir():
        inside = PurePosixPath(".")  # an archive of the folder's contents rather than of the folder
    main = PurePosixPath(spec.model_main)
    if main.is_absolute() or ".." in main.parts or not (staged / inside / main).is_file():
        raise SubmissionInvalid("--model-main", f"{spec.model_main!r} is not a file of the submitted code")
    as_json = {**asdict(spec), "arguments": list(spec.arguments)}
    if storable(as_json) != as_json:
        raise SubmissionInvalid("args", "hold a character or a number that cannot be stored")
    if spec.num_worker < 1 or spec.worker_device_num < 1:
        raise SubmissionInvalid("--numWorker", "and --workerDeviceNum take whole numbers from 1")
    if spec.max_engines > MOST_SLOTS:
        asked = f"{spec.num_worker} x {spec.worker_device_num}"
        raise SubmissionInvalid("--numWorker", f"x --workerDeviceNum: got {asked} slots, takes at most {MOST_SLOTS}")
    return PurePosixPath(SUBMITTED_CODE) / inside


def _seed(spec: JobSpec) -> int:
    """The job's seed: its own EDT_SEED, or 31 random bits that are stored and shown."""
    seed = spec.environ.get(SEED_VARIABLE)
    if seed is None:
        return secrets.randbits(31)
    try:
        return int(seed)
    except ValueError:
        # The value is not shown: whatever --msd-env gives may be a secret.
        raise SubmissionInvalid("--msd-env EDT_SEED", "takes a whole number, got something else") from None


def job(platform: Platform, exec_id: str, *, viewer: UserView) -> JobView:
    """One job. Raises NoSuchJob for what the viewer may not see."""
    with platform.database.snapshot() as tx:
        return to_views.jobs(tx, platform.settings, [visible(tx, exec_id, viewer)])[0]


def jobs(
    platform: Platform,
    *,
    viewer: UserView,
    states: Collection[JobState] | None = None,
    order: JobOrder = JobOrder(),  # noqa: B008 - frozen
    limit: int | None = None,
) -> Iterator[JobView]:
    """The viewer's jobs, an admin's everybody's, however many there are: some are read, told, and then the next.

    Which they are and in which order is found out once, and eight bytes are kept of each. Then each batch is a snapshot
    of its own, begun when somebody asks for it, so a slow reader holds no connection. Each job is told once, as it is
    then; one that comes meanwhile is not told, nor one that is deleted before its turn, or has another state than those
    asked for.
    """
    with platform.database.snapshot() as tx:
        numbers = store.sorted_numbers(tx, _seen_by(viewer), states, order, limit)
    for start in range(0, len(numbers), READ_AT_ONCE):
        with platform.database.snapshot() as tx:
            rows = store.still_listed(tx, numbers[start : start + READ_AT_ONCE], states)
            found = to_views.jobs(tx, platform.settings, rows)
        yield from found


def jobs_page(
    platform: Platform, *, viewer: UserView, wanted: JobFilter, limit: int, before: int | None = None
) -> JobPage:
    """At most ``limit`` of the viewer's jobs that the filter finds, newest first, from ``before`` (not itself) on.

    An admin who filters by an owner's name finds the jobs of all users who have ever had that name.
    """
    if not viewer.is_admin:
        if wanted.owner not in {None, viewer.name}:
            return JobPage((), None, 0)
        wanted = replace(wanted, owner=None, owner_id=viewer.id)
    with platform.database.snapshot() as tx:
        rows = store.page(tx, wanted, limit + 1, before)
        found = to_views.jobs(tx, platform.settings, rows[:limit])
        return JobPage(tuple(found), rows[limit - 1].id if len(rows) > limit else None, store.count(tx, wanted))


@retried(if_done=True)
def stop(platform: Platform, exec_id: str, *, viewer: UserView) -> JobView:
    """Ask for a job's end. At once KILLED if nothing of it runs, else when its last process is gone."""
    with platform.database.transaction() as tx:
        row = visible(tx, exec_id, viewer)
        lifecycle.stop(tx, row, platform.clock())
        (view,) = to_views.jobs(tx, platform.settings, [store.get(tx, row.id)])
    platform.notifier.notify()
    return view


@retried(if_done=True)
def delete(platform: Platform, exec_id: str, *, viewer: UserView) -> None:
    """Take a job off the lists for good. It is stopped if it runs; its folder goes once it is over."""
    with platform.database.transaction() as tx:
        _delete(tx, [visible(tx, exec_id, viewer)], platform.clock())
    platform.notifier.notify()


def delete_all(platform: Platform, *, viewer: UserView) -> int:
    """``delete`` for each of the viewer's own jobs that there are now, an admin's too; how many have gone.

    Some at a time, so that nobody waits for all of them. Broken off, it has deleted the oldest; asked again it goes on.
    """
    with platform.database.snapshot() as tx:
        newest = store.newest_number(tx)
    after = gone = 0
    while deleted := _delete_some(platform, viewer, after, newest):
        after, gone = deleted[-1], gone + len(deleted)
        platform.notifier.notify()
    return gone


def _delete_some(platform: Platform, viewer: UserView, after: int, until: int) -> list[int]:
    """Delete the next of the viewer's own jobs, in one transaction; their numbers, none where none is left."""
    with platform.database.snapshot() as tx:
        rows = _short(store.own(tx, viewer.id, after=after, until=until, limit=DELETED_AT_ONCE))
    numbers = [row.id for row in rows]
    if numbers:
        _delete_these(platform, viewer, numbers)
    return numbers


@retried(if_done=True)
def _delete_these(platform: Platform, viewer: UserView, numbers: Sequence[int]) -> None:
    """Delete these, in order, of the viewer's own jobs, but for those that somebody has deleted meanwhile. They are
    named, so that a try after one whose end nobody knows deletes no others."""
    first, last = numbers[0], numbers[-1]
    with platform.database.transaction() as tx:
        wanted = set(numbers)
        rows = store.own(tx, viewer.id, after=first - 1, until=last, limit=last - first + 1)
        _delete(tx, [row for row in rows if row.id in wanted], platform.clock())


def stop_jobs_of_removed_users(platform: Platform) -> int:
    """Stop what users left who were removed, some at a time; how many jobs that were. What takes too long is left to
    the next call."""

    @retried(if_done=True)
    def stop_some() -> int:
        with platform.database.snapshot() as tx:
            if not store.of_removed_users(tx, 1):
                return 0
        with platform.database.transaction() as tx:
            rows, now = store.of_removed_users(tx, STOPPED_AT_ONCE), platform.clock()
            for row in rows:
                lifecycle.stop(tx, row, now)
            outbox.put_scheduler(tx, now)
        platform.notifier.notify()
        return len(rows)

    return in_batches(stop_some)


def _short(rows: Sequence[Row[Any]]) -> Sequence[Row[Any]]:
    """The first of them, so many that one transaction is soon done: to stop one that is not over takes ten times as
    long as to delete one that is."""
    stopped = 0
    for index, row in enumerate(rows):
        stopped += not JobState(row.state).terminal
        if stopped == STOPPED_AT_ONCE:
            return rows[: index + 1]
    return rows


def _delete(tx: Connection, rows: Sequence[Row[Any]], now: float) -> None:
    for row in rows:
        lifecycle.stop(tx, row, now)
    if rows:
        store.take_off(tx, (row.id for row in rows), now)
        outbox.put_scheduler(tx, now)


def _seen_by(viewer: UserView) -> int | None:
    """Whose jobs the viewer sees, as the store asks for them: their own, an admin everybody's."""
    return None if viewer.is_admin else viewer.id


def visible(tx: Connection, name: str, viewer: UserView) -> Row[Any]:
    """A job that the viewer may see. Raises NoSuchJob."""
    number = job_number(name)
    row = store.find(tx, number, _seen_by(viewer)) if number is not None else None
    if row is None:
        raise NoSuchJob(name)
    return row
