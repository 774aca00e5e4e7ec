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
    IndexOutOfRange,
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
"""Number of jobs of a long list that are in memory at a time."""
DELETED_AT_ONCE, STOPPED_AT_ONCE = 500, 50
"""How many jobs one transaction deletes, and how many of these it stops. Each of the two takes about ten milliseconds
under the writer's lock.
"""


def submit(
    platform: Platform, *, owner: UserView, spec: JobSpec, staged: Path, request: IdempotentRequest | None = None
) -> JobView:
    """Take a job.

    When this returns, the row, the arguments and the code are durable. When this raises, no job exists; only after
    OutcomeUnknown a job may exist. After an exception the caller removes ``staged``. ``sweeping`` removes a folder that
    a crash leaves.

    The home may be on another machine. Therefore no transaction touches its files, and the submit has three parts: it
    reserves a number in a first transaction, makes and syncs the folder under this number, and writes the job in a
    second transaction. So a row always has its folder. A folder may have no row while its number is reserved.

    Args:
        platform: The open platform.
        owner: The user who submits.
        spec: What the user submitted.
        staged: The job's code: a complete and fsynced folder below ``settings.staged``. It is moved into the job's
            folder.
        request: If this request has made a job before, that job is the answer and ``staged`` stays.

    Returns:
        The new job, or the job that ``request`` made before.

    Raises:
        KeyReused: The Idempotency-Key came before with another request.
        NoSuchUser: The owner was removed.
        SubmissionInvalid: The submission is not accepted.
        Unavailable: The database cannot serve now, or the reservation has expired (SubmitExpired).
        SecretKeyUnusable: The key file cannot be used, and no keys were read before.
        OSError: The home cannot be written.
    """
    if platform.settings.tf_use_legacy_keras and spec.backend == "tensorflow":
        # The job keeps this choice when the setting changes later: all its engines must have the same Keras.
        spec = replace(spec, environ={KERAS2_VARIABLE: "1", **spec.environ})
    check_image(platform, spec.image, owner)
    work_dir, seed = _work_dir(spec, staged), _seed(spec)
    code = SubmittedCode(staged)
    number = _reserve(platform)
    crash_point(CrashPoint.API_RESERVED)
    try:
        while not code.lay_out(platform.settings, number, spec):
            # A link or a file also blocks a number, but ``highest_number`` counts folders only.
            highest = max(number, lost_found.highest_number(platform.settings))
            number = _reserve(platform, instead_of=number, above=highest)
        crash_point(CrashPoint.API_LAID_OUT)
        view = _write(platform, number, owner, spec, work_dir, seed, request)
    except OutcomeUnknown:
        raise  # the job may exist
    except Unavailable:
        code.take_back()  # the reservation expires
        raise
    except Exception:
        _give_up(platform, number, code)
        raise
    if view.number != number:
        _give_up(platform, number, code)
    platform.notifier.notify()
    return view


def submitted_before(platform: Platform, *, owner: UserView, request: IdempotentRequest) -> JobView | None:
    """The job that this request made when it came before; None: it comes for the first time.

    Raises:
        KeyReused: The Idempotency-Key came before with another request.
    """
    with platform.database.snapshot() as tx:
        user = user_store.get(tx, owner.id)
        made = idempotency.made(tx, user.id, request, platform.clock()) if user is not None else None
        return _made(tx, platform, made) if made is not None else None


def _reserve(platform: Platform, instead_of: int | None = None, above: int = 0) -> int:
    """Reserve a number above ``above`` for this submit alone.

    ``instead_of`` is a reservation that the new one replaces. A loss of power can undo the reservation. The transaction
    that writes the job then finds no reservation and refuses the job. Raises DatabaseUnavailable.
    """
    try:
        return _reserved(platform, instead_of, above)
    except OutcomeUnknown as error:  # a number may be reserved, and would expire; there is surely no job
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
    """Write the job under its reserved number, or return the job that this request made before.

    If the outcome of a try is unknown, the next try finds it out: no other submit writes a job of this number. Raises
    SubmitExpired.
    """
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
    raise SubmitExpired  # outside the transaction: this is no failure of the database


def _give_up(platform: Platform, number: int, code: SubmittedCode) -> None:
    """Remove what is left of a submit that made no job. A reservation that cannot be removed now expires by itself."""
    code.take_back()
    with suppress(Unavailable), platform.database.transaction(durable=False) as tx:
        reservations.drop(tx, number)


def _made(tx: Connection, platform: Platform, made: str) -> JobView:
    (view,) = to_views.jobs(tx, platform.settings, [store.get(tx, job_number(made) or 0)])
    return view


def _work_dir(spec: JobSpec, staged: Path) -> PurePosixPath:
    """Where the job's code runs, relative to the job's folder. Raises SubmissionInvalid if the main script is not
    there.
    """
    inside = PurePosixPath(spec.model_dir or ".")
    if inside.is_absolute() or ".." in inside.parts:
        raise SubmissionInvalid("--model-dir", f"{spec.model_dir!r} leads out of the submitted code")
    if not (staged / inside).is_dir():
        inside = PurePosixPath(".")  # the archive holds the folder's contents, not the folder
    main = PurePosixPath(spec.model_main)
    if main.is_absolute() or ".." in main.parts or not (staged / inside / main).is_file():
        raise SubmissionInvalid("--model-main", f"{spec.model_main!r} is not a file of the submitted code")
    as_json = {**asdict(spec), "arguments": list(spec.arguments), "options": [list(each) for each in spec.options]}
    if storable(as_json) != as_json:
        raise SubmissionInvalid("args", "hold a character or a number that cannot be stored")
    if spec.num_worker < 1 or spec.worker_device_num < 1:
        raise SubmissionInvalid("--numWorker", "and --workerDeviceNum take whole numbers from 1")
    if spec.max_engines > MOST_SLOTS:
        asked = f"{spec.num_worker} x {spec.worker_device_num}"
        raise SubmissionInvalid("--numWorker", f"x --workerDeviceNum: got {asked} slots, takes at most {MOST_SLOTS}")
    return PurePosixPath(SUBMITTED_CODE) / inside


def _seed(spec: JobSpec) -> int:
    """The job's seed: its own EDT_SEED, or 31 random bits. The seed is stored and shown."""
    seed = spec.environ.get(SEED_VARIABLE)
    if seed is None:
        return secrets.randbits(31)
    try:
        return int(seed)
    except ValueError:
        # The value is not shown: every value of --msd-env may be a secret.
        raise SubmissionInvalid("--msd-env EDT_SEED", "takes a whole number, got something else") from None


def job(platform: Platform, exec_id: str, *, viewer: UserView) -> JobView:
    """One job. Raises NoSuchJob if the viewer may not see it."""
    with platform.database.snapshot() as tx:
        return to_views.jobs(tx, platform.settings, [visible(tx, exec_id, viewer)])[0]


def jobs(
    platform: Platform,
    *,
    viewer: UserView,
    states: Collection[JobState] | None = None,
    only: str | None = None,
    app_name: str | None = None,
    text: str | None = None,
    order: JobOrder = JobOrder(),  # noqa: B008 - frozen
    start: int = 0,
    limit: int | None = None,
) -> Iterator[JobView]:
    """The viewer's own jobs, or all users' jobs for an admin, read batch by batch.

    Args:
        platform: The open platform.
        viewer: The user who asks.
        states: The wanted states; None: all.
        only: The wanted job's exec id; None: all jobs. No job has an id that is no exec id.
        app_name: The wanted name, as WMLA's clients get it; None: all names.
        text: A text to search for, as in JobFilter; None: no search.
        order: How the list is sorted.
        start: Number of jobs at the head of the list to leave out.
        limit: The most jobs to return; None: all.

    Raises:
        IndexOutOfRange: ``start`` is not 0, and the list has no job there. Raised with the first job.

    The numbers of the jobs and their order are read once, at eight bytes per job. Then each batch is read in its own
    snapshot when the caller asks for it, so a slow reader holds no connection. Each job comes once, as it is when its
    batch is read. A job that is submitted meanwhile is left out. So is a job that was deleted, or left the wanted
    ``states``, before its batch is read.
    """
    wanted = JobFilter(
        number=None if only is None else job_number(only) or 0,
        owner_id=_seen_by(viewer),
        states=frozenset(states) if states is not None else None,
        app_name=app_name,
        text=text,
    )
    with platform.database.snapshot() as tx:
        numbers = store.sorted_numbers(tx, wanted, order, limit, start)
        if start and not numbers:
            raise IndexOutOfRange(start, store.count(tx, wanted))
    for begin in range(0, len(numbers), READ_AT_ONCE):
        with platform.database.snapshot() as tx:
            rows = store.still_listed(tx, numbers[begin : begin + READ_AT_ONCE], states)
            found = to_views.jobs(tx, platform.settings, rows)
        yield from found


def jobs_page(
    platform: Platform, *, viewer: UserView, wanted: JobFilter, limit: int, before: int | None = None
) -> JobPage:
    """At most ``limit`` of the viewer's jobs that match the filter, newest first, with numbers below ``before``.

    An admin who filters by an owner's name gets the jobs of all users who have ever had this name. Any other viewer who
    filters by another user's name gets no jobs.
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
    """Ask a job to end. The job becomes KILLED at once if no process of it runs, otherwise when its last process is
    gone.

    Raises:
        NoSuchJob: The viewer may see no job of this id.
    """
    with platform.database.transaction() as tx:
        row = visible(tx, exec_id, viewer)
        lifecycle.stop(tx, row, platform.clock())
        (view,) = to_views.jobs(tx, platform.settings, [store.get(tx, row.id)])
    platform.notifier.notify()
    return view


@retried(if_done=True)
def delete(platform: Platform, exec_id: str, *, viewer: UserView) -> None:
    """Take a job off the lists for good. A running job is stopped. Its folder is removed once the job is over.

    Raises:
        NoSuchJob: The viewer may see no job of this id.
    """
    with platform.database.transaction() as tx:
        _delete(tx, [visible(tx, exec_id, viewer)], platform.clock())
    platform.notifier.notify()


def delete_all(platform: Platform, *, viewer: UserView) -> int:
    """Delete all jobs that the viewer owns at this moment. An admin, too, deletes only their own jobs.

    Each transaction deletes some of them, so that other writers need not wait for all. An interrupted call has deleted
    the oldest jobs, and the next call continues.

    Returns:
        The number of deleted jobs.
    """
    with platform.database.snapshot() as tx:
        newest = store.newest_number(tx)
    after = gone = 0
    while deleted := _delete_some(platform, viewer, after, newest):
        after, gone = deleted[-1], gone + len(deleted)
        platform.notifier.notify()
    return gone


def _delete_some(platform: Platform, viewer: UserView, after: int, until: int) -> list[int]:
    """Delete the next of the viewer's own jobs in one transaction. Returns their numbers; empty: no job is left."""
    with platform.database.snapshot() as tx:
        rows = _short(store.own(tx, viewer.id, after=after, until=until, limit=DELETED_AT_ONCE))
    numbers = [row.id for row in rows]
    if numbers:
        _delete_these(platform, viewer, numbers)
    return numbers


@retried(if_done=True)
def _delete_these(platform: Platform, viewer: UserView, numbers: Sequence[int]) -> None:
    """Delete these of the viewer's own jobs, in order, except jobs that are deleted already.

    The jobs are named by number, so that a try after an unknown outcome deletes no other jobs.
    """
    first, last = numbers[0], numbers[-1]
    with platform.database.transaction() as tx:
        wanted = set(numbers)
        rows = store.own(tx, viewer.id, after=first - 1, until=last, limit=last - first + 1)
        _delete(tx, [row for row in rows if row.id in wanted], platform.clock())


def stop_jobs_of_removed_users(platform: Platform) -> int:
    """Stop the jobs of removed users, some in each transaction.

    Returns:
        The number of jobs that were asked to stop. If this takes too long, the next call stops the rest.
    """

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
    """The first of these rows, only as many as one transaction can delete quickly.

    Stopping a job that is not over takes ten times as long as deleting a job that is over.
    """
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
    """The id of the user whose jobs the viewer may see, as the store expects it; None: all users' jobs
    (for an admin).
    """
    return None if viewer.is_admin else viewer.id


def visible(tx: Connection, name: str, viewer: UserView) -> Row[Any]:
    """The row of a job that the viewer may see. Raises NoSuchJob."""
    number = job_number(name)
    row = store.find(tx, number, _seen_by(viewer)) if number is not None else None
    if row is None:
        raise NoSuchJob(name)
    return row
