"""Use cases of a job: submit, look, stop, delete. Room: scheduler, operations."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from sqlalchemy import Connection, Row

from edt_runner.crash_points import CrashPoint, crash_point
from edt_runner.environment import KERAS2_VARIABLE
from edt_scheduler import lifecycle, lost_found
from edt_scheduler.errors import DatabaseUnavailable, NoSuchJob, NoSuchUser, SubmissionInvalid
from edt_scheduler.house import House
from edt_scheduler.jobs import MOST_SLOTS, JobFilter, JobSpec, JobState, exec_id, job_number
from edt_scheduler.letters import SUBMITTED_CODE
from edt_scheduler.nodes import threads_per_engine
from edt_scheduler.once import Once, made_up
from edt_scheduler.settings import Settings
from edt_scheduler.storable import storable
from edt_scheduler.store import jobs as store
from edt_scheduler.store import keys, nodes, outbox, pictures
from edt_scheduler.store import users as user_store
from edt_scheduler.store.database import retried
from edt_scheduler.views import JobPage, JobView, UserView

SEED_VARIABLE = "EDT_SEED"
MAKES_ITS_OWN_MODEL_FOLDER = frozenset({"tensorflow"})
"""WMLA's plain TensorFlow samples create RESULT_DIR/model themselves; all others expect to find it."""


def submit(house: House, *, owner: UserView, spec: JobSpec, staged: Path, once: Once | None = None) -> JobView:
    """Take a job. ``staged``: its code, complete and fsynced, a folder below ``settings.staged``; it is moved.

    When this returns, row, arguments and code survive the death of everything. When it raises, no job exists, or
    with OutcomeUnknown perhaps one; ``staged`` is then the caller's to remove, and what a crash leaves of it
    ``sweeping`` clears away. ``once``: where it made a job before, that job is the answer and ``staged`` stays. Raises
    KeyReused.
    """
    if house.settings.tf_use_legacy_keras and spec.backend == "tensorflow":
        # The job's for life, whatever the setting is later: all its engines must have one Keras.
        spec = replace(spec, environ={KERAS2_VARIABLE: "1", **spec.environ})
    work_dir = _work_dir(spec, staged)
    view = _submit(house, owner, spec, work_dir, _seed(spec), _Code(staged), once or made_up())
    house.doorbells.ring()
    return view


def submitted_before(house: House, *, owner: UserView, once: Once) -> JobView | None:
    """The job that this request made when it came before. Raises KeyReused."""
    with house.database.snapshot() as tx:
        user = user_store.get(tx, owner.id)
        made = keys.made(tx, user.id, once, house.clock()) if user is not None else None
        return _made(tx, house, made) if made is not None else None


@retried(if_done=True)
def _submit(
    house: House, owner: UserView, spec: JobSpec, work_dir: PurePosixPath, seed: int, code: _Code, once: Once
) -> JobView:
    """One transaction. Every submit has a key, if only one that we made up: a second try finds the job of the first."""
    with house.database.transaction() as tx:
        now = house.clock()
        user = user_store.get(tx, owner.id)
        if user is None:
            raise NoSuchUser(owner.name)
        made = keys.made(tx, user.id, once, now)
        if made is not None:
            return _made(tx, house, made)
        threads = threads_per_engine(nodes.cores_and_slots(tx))
        add = partial(store.add, user_id=user.id, spec=spec, work_dir=str(work_dir), seed=seed, threads=threads)
        number = _unused_number(tx, house.settings, partial(add, now=now))
        keys.put(tx, user.id, once, exec_id(number), now)
        outbox.put_scheduler(tx, now)
        # Inside the transaction: folder first, commit last. A folder without a row is set aside, never the reverse.
        code.take_back()
        code.lay_out(house.settings.job_directory(exec_id(number)), spec)
        crash_point(CrashPoint.API_LAID_OUT)
        (view,) = pictures.jobs(tx, house.settings, [store.get(tx, number)])
    return view


def _unused_number(tx: Connection, settings: Settings, add: Callable[[Connection], int]) -> int:
    """Add the job under a number of which no folder lies in the home: that would be another job's."""
    while True:
        with tx.begin_nested() as attempt:
            number = add(tx)
            if not lost_found.is_taken(settings, number):
                return number
            attempt.rollback()
        # A link or a file takes its number, too, and is no folder that counts for the highest.
        store.skip_numbers(tx, max(number, lost_found.highest_number(settings)))


def _made(tx: Connection, house: House, made: str) -> JobView:
    (view,) = pictures.jobs(tx, house.settings, [store.get(tx, job_number(made) or 0)])
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
    if storable(asdict(spec)) != _listed(asdict(spec)):
        raise SubmissionInvalid("args", "hold a character or a number that cannot be stored")
    if spec.num_worker < 1 or spec.worker_device_num < 1:
        raise SubmissionInvalid("--numWorker", "and --workerDeviceNum take whole numbers from 1")
    if spec.max_engines > MOST_SLOTS:
        asked = f"{spec.num_worker} x {spec.worker_device_num}"
        raise SubmissionInvalid("--numWorker", f"x --workerDeviceNum: got {asked} slots, takes at most {MOST_SLOTS}")
    return PurePosixPath(SUBMITTED_CODE) / inside


def _listed(value: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it: tuples are lists."""
    return {key: list(item) if isinstance(item, tuple) else item for key, item in value.items()}


def _seed(spec: JobSpec) -> int:
    """The job's seed: its own EDT_SEED, or 31 random bits that are stored and shown."""
    told = spec.environ.get(SEED_VARIABLE)
    if told is None:
        return secrets.randbits(31)
    try:
        return int(told)
    except ValueError:
        raise SubmissionInvalid("--msd-env EDT_SEED", f"takes a whole number, got {told!r}") from None


@dataclass
class _Code:
    """What was submitted, and where it lies: staged, or in a job's folder. Moved under the writer's lock only."""

    staged: Path
    directory: Path | None = None
    inode: int = 0

    def lay_out(self, directory: Path, spec: JobSpec) -> None:
        """Make the job's folder, which is not there yet, around it."""
        directory.mkdir()
        try:
            for name in ("log", "checkpoint", "spool"):
                (directory / name).mkdir()
            if spec.framework not in MAKES_ITS_OWN_MODEL_FOLDER:
                (directory / "model").mkdir()
            self.directory, self.inode = directory, self.staged.stat().st_ino
            self.staged.rename(directory / SUBMITTED_CODE)
            for folder in (directory, directory.parent, self.staged.parent):
                lost_found.sync(folder)
        except OSError:  # a full disk: no job comes of it, and nothing of one is left
            self._undo(directory)
            raise

    def take_back(self) -> None:
        """Undo ``lay_out``, where its transaction did not commit. The number may be another job's by now."""
        if self.directory is None or self.staged.exists():
            return
        laid = self.directory / SUBMITTED_CODE
        if not laid.exists() or laid.stat().st_ino != self.inode:
            raise DatabaseUnavailable("went away, and the code with it", passing=False)
        self._undo(self.directory)

    def _undo(self, directory: Path) -> None:
        laid = directory / SUBMITTED_CODE
        if laid.exists():
            laid.rename(self.staged)
        for folder in (*directory.iterdir(), directory):
            folder.rmdir()  # only what ``lay_out`` made, and nothing has been put into since
        self.directory = None


def job(house: House, exec_id: str, *, viewer: UserView) -> JobView:
    """One job. Raises NoSuchJob for what the viewer may not see."""
    with house.database.snapshot() as tx:
        return pictures.jobs(tx, house.settings, [_visible(tx, exec_id, viewer)])[0]


def jobs(
    house: House,
    *,
    viewer: UserView,
    states: Collection[JobState] | None = None,
    limit: int | None = None,
    newest_first: bool = False,
) -> list[JobView]:
    """The viewer's jobs in submit order; an admin sees everybody's."""
    with house.database.snapshot() as tx:
        rows = store.listed(tx, _seen_by(viewer), states, limit, newest_first)
        return pictures.jobs(tx, house.settings, rows)


def jobs_page(house: House, *, viewer: UserView, wanted: JobFilter, limit: int, before: int | None = None) -> JobPage:
    """At most ``limit`` of the viewer's jobs that the filter finds, newest first, from ``before`` (not itself) on.

    An admin who filters by an owner's name finds the jobs of all users who have ever had that name.
    """
    if not viewer.is_admin:
        if wanted.owner not in {None, viewer.name}:
            return JobPage((), None, 0)
        wanted = replace(wanted, owner=None, owner_id=viewer.id)
    with house.database.snapshot() as tx:
        rows = store.page(tx, wanted, limit + 1, before)
        views = pictures.jobs(tx, house.settings, rows[:limit])
        return JobPage(tuple(views), rows[limit - 1].id if len(rows) > limit else None, store.count(tx, wanted))


@retried(if_done=True)
def stop(house: House, exec_id: str, *, viewer: UserView) -> JobView:
    """Ask for a job's end. At once KILLED if nothing of it runs, else when its last process is gone."""
    with house.database.transaction() as tx:
        row = _visible(tx, exec_id, viewer)
        lifecycle.stop(tx, row, house.clock())
        (view,) = pictures.jobs(tx, house.settings, [store.get(tx, row.id)])
    house.doorbells.ring()
    return view


@retried(if_done=True)
def delete(house: House, exec_id: str, *, viewer: UserView) -> None:
    """Take a job off the lists for good. It is stopped if it runs; its folder goes once it is over."""
    with house.database.transaction() as tx:
        _delete(tx, _visible(tx, exec_id, viewer), house.clock())
    house.doorbells.ring()


@retried(if_done=True)
def delete_all(house: House, *, viewer: UserView) -> int:
    """``delete`` for each of the viewer's own jobs, an admin's too; how many there were."""
    with house.database.transaction() as tx:
        rows = store.listed(tx, viewer.id)
        for row in rows:
            _delete(tx, row, house.clock())
    house.doorbells.ring()
    return len(rows)


def _delete(tx: Connection, row: Row[Any], now: float) -> None:
    lifecycle.stop(tx, row, now)
    store.change(tx, row.id, deleted_at=now)
    outbox.put_scheduler(tx, now)


def _seen_by(viewer: UserView) -> int | None:
    """Whose jobs the viewer sees, as the store asks for them: their own, an admin everybody's."""
    return None if viewer.is_admin else viewer.id


def _visible(tx: Connection, name: str, viewer: UserView) -> Row[Any]:
    number = job_number(name)
    row = store.find(tx, number, _seen_by(viewer)) if number is not None else None
    if row is None:
        raise NoSuchJob(name)
    return row
