"""Takes submissions: makes jobs of them, durably, several at a time.

Submissions that come at the same time share the two transactions and the syncing of the folders that hold all jobs.
What is wrong with one of them is the answer to that one alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath

from sqlalchemy import Connection

from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.encoding import to_json_object
from edt_contract.frameworks import KERAS2_VARIABLE
from edt_contract.gang import MAIN
from edt_scheduler.errors import (
    DatabaseUnavailable,
    KeyReused,
    NoSuchUser,
    OutcomeUnknown,
    SubmissionInvalid,
    SubmitExpired,
    Unavailable,
)
from edt_scheduler.home import lost_found, submitted_code
from edt_scheduler.home.submitted_code import SubmittedCode
from edt_scheduler.model.idempotency import IdempotentRequest
from edt_scheduler.model.jobs import BEGIN, MOST_SLOTS, SUBMITTED_CODE, Begin, JobSpec, exec_id, job_number, storable
from edt_scheduler.model.nodes import Device, threads_per_engine
from edt_scheduler.model.speeds import prior_key
from edt_scheduler.operations.images import check_image, note_use
from edt_scheduler.platform import Platform
from edt_scheduler.store import environs, idempotency, nodes, outbox, reservations, to_views
from edt_scheduler.store import jobs as store
from edt_scheduler.store import users as user_store
from edt_scheduler.store.database import retried
from edt_scheduler.views import JobView, UserView

SEED_VARIABLE = "EDT_SEED"
_SCRIPT_BYTES = 1 << 20
"""So much of a main script tells which jobs are alike."""


@dataclass(frozen=True)
class StagedSubmission:
    """What one user submits at once."""

    owner: UserView
    spec: JobSpec
    staged: Path
    """The job's code: a complete and fsynced folder below ``settings.staged``. It is moved into the job's folder."""
    request: IdempotentRequest | None = None
    """If this request has made a job before, that job is the answer and ``staged`` stays."""
    begin: Begin | None = None
    """The checkpoint from which the job begins; its copy is at ``begin_path``. None: the job begins anew."""

    @property
    def begin_path(self) -> Path:
        """The staged copy of the checkpoint, a complete and fsynced folder beside ``staged``. It is moved, too."""
        return begin_path(self.staged)


def begin_path(staged: Path) -> Path:
    """Where the copy of a checkpoint is staged, beside the code in ``staged``."""
    return staged.with_name(f"{staged.name}.{BEGIN}")


@dataclass
class _Taking:
    """A submission on its way to a job."""

    owner: UserView
    spec: JobSpec
    request: IdempotentRequest | None
    work_dir: PurePosixPath
    seed: int
    code: SubmittedCode
    begin: Begin | None
    prior_key: str
    number: int = 0
    found: JobView | Exception | None = None
    """What came of it; None: nothing yet."""

    def as_new_job(self, threads: int) -> store.NewJob:
        threads = self.begin.threads if self.begin is not None else threads
        work_dir = str(self.work_dir)
        return store.NewJob(
            self.number, self.owner.id, self.spec, work_dir, self.seed, threads, self.begin, self.prior_key
        )


def submit_all(platform: Platform, submissions: Sequence[StagedSubmission]) -> list[JobView | Exception]:
    """Take jobs.

    For each submission the answer holds its new job, or the job that its ``request`` made before. Then the row, the
    arguments and the code are durable. Or the answer holds the exception because of which no job exists; only after
    OutcomeUnknown a job may exist. After an exception the caller removes ``staged``. ``sweeping`` removes folders that
    a crash leaves.

    The home may be on another machine. Therefore no transaction touches its files, and the submit has three parts: it
    reserves numbers in a first transaction, makes and syncs the folders under these numbers, and writes the jobs in a
    second transaction. So a row always has its folder. A folder may have no row while its number is reserved.

    Exceptions of a single submission:
        KeyReused: The Idempotency-Key came before with another request.
        NoSuchUser: The owner was removed.
        SubmissionInvalid: The submission is not accepted.
        Unavailable: The database cannot serve now, or the reservation has expired (SubmitExpired).
        SecretKeyUnusable: The key file cannot be used, and no keys were read before.
        OSError: The home cannot be written.
    """
    begun = [_begun(platform, submission) for submission in submissions]
    taking = [each for each in begun if isinstance(each, _Taking)]
    if taking:
        _take(platform, taking)
        platform.notifier.notify()
    return [_outcome(each) if isinstance(each, _Taking) else each for each in begun]


def _outcome(taking: _Taking) -> JobView | Exception:
    assert taking.found is not None  # _take leaves none out
    return taking.found


def _begun(platform: Platform, submission: StagedSubmission) -> _Taking | Exception:
    spec = submission.spec
    if platform.settings.tf_use_legacy_keras and spec.backend == "tensorflow":
        # The job keeps this choice when the setting changes later: all its engines must have the same Keras.
        spec = replace(spec, environ={KERAS2_VARIABLE: "1", **spec.environ})
    try:
        check_image(platform, spec.image, submission.owner)
        work_dir, seed = _work_dir(spec, submission.staged), _seed(spec, submission.begin)
        key = prior_key(submission.owner.id, spec, _script(spec, submission.staged, work_dir))
    except Exception as error:
        return error
    begin = submission.begin
    code = SubmittedCode(submission.staged, submission.begin_path if begin is not None else None)
    return _Taking(submission.owner, spec, submission.request, work_dir, seed, code, begin, key)


def _take(platform: Platform, all_taking: Sequence[_Taking]) -> None:
    """Make jobs. Afterwards each submission has what came of it."""
    try:
        for taking, number in zip(all_taking, _reserve(platform, len(all_taking)), strict=True):
            taking.number = number
    except Exception as error:
        for taking in all_taking:
            taking.found = error
        return
    crash_point(CrashPoint.API_RESERVED)
    for taking in all_taking:
        try:
            _lay_out(platform, taking)
        except Exception as error:
            taking.found = error
    laid = [taking for taking in all_taking if taking.found is None]
    try:
        submitted_code.sync_parents(platform.settings, [taking.code for taking in laid])
    except Exception as error:
        for taking in laid:
            taking.found = error
    crash_point(CrashPoint.API_LAID_OUT)
    _write_all(platform, [taking for taking in laid if taking.found is None])
    _give_up(platform, all_taking)


def _lay_out(platform: Platform, taking: _Taking) -> None:
    while not taking.code.lay_out(platform.settings, taking.number, taking.spec):
        # A link or a file also blocks a number, but ``highest_number`` counts folders only.
        highest = max(taking.number, lost_found.highest_number(platform.settings))
        (taking.number,) = _reserve(platform, 1, instead_of=taking.number, above=highest)


def _reserve(platform: Platform, count: int, instead_of: int | None = None, above: int = 0) -> list[int]:
    """Reserve numbers above ``above`` for these submissions alone.

    ``instead_of`` is a reservation that the new ones replace. A loss of power can undo the reservations. The
    transaction that writes the jobs then finds no reservation and refuses the job. Raises DatabaseUnavailable.
    """
    try:
        return _reserved(platform, count, instead_of, above)
    except OutcomeUnknown as error:  # numbers may be reserved, and would expire; there is surely no job
        raise DatabaseUnavailable("does not answer", passing=True) from error


@retried(if_done=True)
def _reserved(platform: Platform, count: int, instead_of: int | None, above: int) -> list[int]:
    with platform.database.transaction(durable=False) as tx:
        if instead_of is not None:
            reservations.drop(tx, [instead_of])
        store.skip_numbers(tx, above)
        return reservations.add(tx, platform.clock(), count)


def _write_all(platform: Platform, all_taking: Sequence[_Taking]) -> None:
    """Write the jobs in one transaction. If something unforeseen is wrong with one of them, write each by itself."""
    if not all_taking:
        return
    try:
        found = _write(platform, all_taking)
    except Exception as error:
        if len(all_taking) > 1 and not isinstance(error, Unavailable):
            for taking in all_taking:
                _write_all(platform, [taking])
            return
        found = {taking.number: error for taking in all_taking}
    for taking in all_taking:
        taking.found = found.get(taking.number) or SubmitExpired()


@retried(if_done=True)
def _write(platform: Platform, all_taking: Sequence[_Taking]) -> Mapping[int, JobView | Exception]:
    """Write the jobs under their reserved numbers.

    If the outcome of a try is unknown, the next try finds it out: no other submit writes a job of these numbers.

    Returns:
        For each number the job, or the job that the same request made before, or why there is none. A number is left
        out whose reservation has expired.
    """
    secret = platform.secret_key.keys()
    with platform.database.transaction() as tx:
        now = platform.clock()
        numbers = {taking.number for taking in all_taking}
        made: dict[int, int] = {number: number for number in store.known(tx, numbers)}
        held = reservations.drop(tx, numbers)
        there = user_store.there(tx, {taking.owner.id for taking in all_taking})
        refused: dict[int, Exception] = {}
        reserved: list[_Taking] = []
        for taking in all_taking:
            number = taking.number
            if number in made:
                continue
            if taking.owner.id not in there:
                refused[number] = NoSuchUser(taking.owner.name)
                continue
            try:
                before = _made_before(tx, taking, now)
            except KeyReused as error:
                refused[number] = error
                continue
            if before is not None:
                made[number] = before
            elif number in held:
                reserved.append(taking)
                made[number] = number
                if taking.request is not None:  # at once: another submission of this call may have the same key
                    idempotency.put(tx, taking.owner.id, taking.request, exec_id(number), now)
        if reserved:
            offered = nodes.cores_and_slots(tx)
            store.add(tx, [taking.as_new_job(_threads(taking.spec, offered)) for taking in reserved], now)
            for taking in reserved:
                environs.put(tx, taking.number, taking.spec.environ, secret)
                note_use(tx, taking.spec.image, taking.owner, now)
            outbox.put_scheduler(tx, now)
        views = {
            view.number: view for view in to_views.jobs(tx, platform.settings, store.of_numbers(tx, made.values()))
        }
        return {**refused, **{number: views[job] for number, job in made.items()}}


def _threads(spec: JobSpec, offered: Sequence[tuple[int, int, Device]]) -> int:
    """The threads of an engine of the job, by the cores and slots of the nodes that it may use."""
    return threads_per_engine((cores, slots) for cores, slots, device in offered if spec.device in (None, device))


def _made_before(tx: Connection, taking: _Taking, now: float) -> int | None:
    if taking.request is None:
        return None
    made = idempotency.made(tx, taking.owner.id, taking.request, now)
    return job_number(made) if made is not None else None


def _give_up(platform: Platform, all_taking: Sequence[_Taking]) -> None:
    """Remove what is left of submits that made no job. A reservation that cannot be removed now expires by itself."""
    over: list[int] = []
    for taking in all_taking:
        found = taking.found
        if isinstance(found, OutcomeUnknown):
            continue  # the job may exist
        if isinstance(found, Exception) or (found is not None and found.number != taking.number):
            taking.code.take_back()
            if not isinstance(found, Unavailable):  # then the reservation expires
                over.append(taking.number)
    if over:
        with suppress(Unavailable), platform.database.transaction(durable=False) as tx:
            reservations.drop(tx, over)


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
    if main.is_absolute() or ".." in main.parts or not (_runs_a_command(spec) or (staged / inside / main).is_file()):
        raise SubmissionInvalid("--model-main", f"{spec.model_main!r} is not a file of the submitted code")
    as_json = {
        **{name: list(value) if isinstance(value, tuple) else value for name, value in asdict(spec).items()},
        "options": [list(each) for each in spec.options],
        "gang": to_json_object(spec.gang) if spec.gang is not None else None,
    }
    if storable(as_json) != as_json:
        raise SubmissionInvalid("args", "hold a character or a number that cannot be stored")
    if spec.num_worker < 1 or spec.worker_device_num < 1:
        raise SubmissionInvalid("--numWorker", "and --workerDeviceNum take whole numbers from 1")
    if spec.max_engines > MOST_SLOTS:
        asked = f"{spec.num_worker} x {spec.worker_device_num}"
        raise SubmissionInvalid("--numWorker", f"x --workerDeviceNum: got {asked} slots, takes at most {MOST_SLOTS}")
    return PurePosixPath(SUBMITTED_CODE) / inside


def _script(spec: JobSpec, staged: Path, work_dir: PurePosixPath) -> bytes:
    """The beginning of the main script; empty if the job runs a command."""
    if _runs_a_command(spec):
        return b""
    with (staged / work_dir.relative_to(SUBMITTED_CODE) / spec.model_main).open("rb") as script:
        return script.read(_SCRIPT_BYTES)


def _runs_a_command(spec: JobSpec) -> bool:
    """Whether the job runs a command in place of a main script."""
    return spec.gang is not None and not spec.model_main and MAIN not in spec.gang.command


def _seed(spec: JobSpec, begin: Begin | None) -> int:
    """The job's seed: its own EDT_SEED, or that of the job from whose checkpoint it begins, or 31 random bits. The seed
    is stored and shown.
    """
    seed = spec.environ.get(SEED_VARIABLE)
    if seed is None:
        return begin.seed if begin is not None else secrets.randbits(31)
    try:
        return int(seed)
    except ValueError:
        # The value is not shown: every value of --msd-env may be a secret.
        raise SubmissionInvalid("--msd-env EDT_SEED", "takes a whole number, got something else") from None
