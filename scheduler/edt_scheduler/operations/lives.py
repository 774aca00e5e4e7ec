"""Use cases of a job's life beyond one run: pause it, let it go on, give it more epochs, begin a new one from its
checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from sqlalchemy import Connection, Row

from edt_scheduler.attempts import wishes
from edt_scheduler.errors import NoSuchJob, SubmissionInvalid
from edt_scheduler.home import checkpoints
from edt_scheduler.home.code_copies import copy_code
from edt_scheduler.model.catalogue import Framework
from edt_scheduler.model.jobs import SUBMITTED_CODE, Begin, DefaultLog, JobSpec, exec_id
from edt_scheduler.operations import frameworks
from edt_scheduler.operations.execs import changeable, visible
from edt_scheduler.operations.submitting import SEED_VARIABLE, begin_path
from edt_scheduler.platform import Platform
from edt_scheduler.store import jobs as store
from edt_scheduler.store import to_views
from edt_scheduler.store.database import retried
from edt_scheduler.views import JobView, UserView

_RESUME_FROM = "--resume-from"


@retried(if_done=False)
def pause(platform: Platform, exec_id: str, *, viewer: UserView) -> JobView:
    """Pause a job: its engines leave at their next step boundary with a checkpoint, and it gets no slot.

    Raises:
        NoSuchJob: The viewer may see no job of this id.
        NotTheOwner: The viewer may see the job, but not change it.
        JobOver: The job is over.
        NotNow: The job is paused already, is being stopped, or has just ended its training.
    """
    return _changed(platform, exec_id, viewer, lambda tx, row, now: wishes.pause(tx, row, viewer.name, now))


@retried(if_done=False)
def go_on(platform: Platform, exec_id: str, *, viewer: UserView) -> JobView:
    """Let a paused job go on. Raises what ``pause`` raises; NotNow: the job is not paused."""
    return _changed(platform, exec_id, viewer, lambda tx, row, now: wishes.go_on(tx, row, viewer.name, now))


@retried(if_done=True)
def extend(platform: Platform, exec_id: str, *, epochs: int, viewer: UserView) -> JobView:
    """Give a job's training this number of epochs in all. A running one goes on with it in its next attempt.

    Raises:
        NoSuchJob, NotTheOwner: As for ``pause``.
        JobOver: The job is over: ``as_new_job`` makes one that goes on.
        EpochsInvalid: The training has done so many epochs already, or has this number anyway.
        NotNow: The job is a gang, runs and has not said that it is elastic, is being stopped, or has just ended its
            training.
    """
    return _changed(platform, exec_id, viewer, lambda tx, row, now: wishes.extend(tx, row, epochs, viewer.name, now))


def _changed(
    platform: Platform, name: str, viewer: UserView, change: Callable[[Connection, Row[Any], float], None]
) -> JobView:
    with platform.database.transaction() as tx:
        row = changeable(tx, name, viewer)
        change(tx, row, platform.clock())
        (view,) = to_views.jobs(tx, platform.settings, [store.get(tx, row.id)])
    platform.notifier.notify()
    return view


def stage_checkpoint(platform: Platform, name: str, *, backend: str, viewer: UserView, staged: Path) -> Begin:
    """Copy the newest whole checkpoint of a job for a new job to begin from, to ``begin_path(staged)``.

    Args:
        platform: The open platform.
        name: Exec id of the job, in any state, whose results were not removed.
        backend: ``JobSpec.backend`` of the new job, which is elastic.
        viewer: Who submits the new job. They must be allowed to see the other one.
        staged: Where the new job's code is staged.

    Raises:
        SubmissionInvalid: There is no such job for the viewer, it has no whole checkpoint, or it is of another kind.
        OSError: The copy cannot be written.
    """
    with platform.database.snapshot() as tx:
        try:
            row = visible(tx, name, viewer)
        except NoSuchJob as error:
            raise SubmissionInvalid(_RESUME_FROM, f"there is {error}") from None
    if row.gang is not None:
        raise SubmissionInvalid(_RESUME_FROM, f"{name} is a gang, of which the platform keeps no checkpoint")
    if row.backend != backend:
        raise SubmissionInvalid(_RESUME_FROM, f"{name} trains with {row.backend}, this job with {backend}")
    if row.results_removed_at is not None:
        raise SubmissionInvalid(_RESUME_FROM, f"the checkpoint of {name} was removed with its results")
    found = checkpoints.copy_newest(platform.settings.checkpoint_directory(name), begin_path(staged))
    if found is None:
        raise SubmissionInvalid(_RESUME_FROM, f"{name} has no checkpoint{_why_none(row)}")
    step = found.step if found.step is not None else row.checkpoint_step
    return Begin(row.id, step, row.seed, row.threads)


def _why_none(row: Row[Any]) -> str:
    return " yet" if row.finished_at is None else ": it ended before its first one"


@dataclass(frozen=True)
class Resubmission:
    """A new job that goes on where another one ended, with the same code and arguments."""

    spec: JobSpec
    begin: Begin


def as_new_job(
    platform: Platform, name: str, *, epochs: int, environ: Mapping[str, str], viewer: UserView, staged: Path
) -> Resubmission:
    """Prepare a new job with the code and arguments of one that is over, which begins from that one's checkpoint and
    has this number of epochs in all. Its code is copied to ``staged``, and the checkpoint to ``begin_path(staged)``.

    Args:
        platform: The open platform.
        name: Exec id of the job that is over.
        epochs: The epochs in all.
        environ: Values of the variables that the job was given. The platform has removed them at the job's end.
        viewer: Who asks; the new job is theirs.
        staged: A folder that is not there yet, below ``settings.staged``.

    Raises:
        NoSuchJob, NotTheOwner: As for ``pause``.
        EpochsInvalid, NotNow: As for ``extend``.
        SubmissionInvalid: The job's code, checkpoint or framework is gone, or a variable's value is missing.
        TooLarge: The job has made its code larger than code may be.
        OSError: The copies cannot be written; ENOSPC: the disk has not enough room.
    """
    with platform.database.snapshot() as tx:
        row = changeable(tx, name, viewer)
        wishes.check(row, epochs)
    framework = frameworks.find(platform, row.framework)
    if framework is None:
        raise SubmissionInvalid("framework", f"{row.framework} is not in the catalogue any more")
    spec = _spec_of(row, framework, epochs, environ)
    try:
        copy_code(platform.settings.job_directory(name) / SUBMITTED_CODE, staged)
    except FileNotFoundError:
        raise SubmissionInvalid("job", f"the code of {name} was removed with its results") from None
    except PermissionError as error:
        raise SubmissionInvalid("job", f"the code of {name} cannot be read: {error.filename}") from None
    if spec.model_main and not (staged / (spec.model_dir or ".") / spec.model_main).is_file():
        raise SubmissionInvalid("job", f"the code of {name} has no file {spec.model_main} any more")
    begin = stage_checkpoint(platform, name, backend=row.backend, viewer=viewer, staged=staged)
    return Resubmission(spec, begin)


def _spec_of(row: Row[Any], framework: Framework, epochs: int, environ: Mapping[str, str]) -> JobSpec:
    """What the user of a job submitted, with values for its variables.

    Raises:
        SubmissionInvalid: A variable of the job has no value in ``environ``, or ``environ`` has one that the job lacks.
    """
    name = exec_id(row.id)
    named = [value.partition("=")[0] for option, value in row.options if option == "--msd-env"]
    names = [each for each in dict.fromkeys(named) if each != SEED_VARIABLE]  # the seed is stored
    missing = [each for each in names if each not in environ]
    if missing:
        given = " ".join(f"-e {each}=…" for each in missing)
        raise SubmissionInvalid(
            "environ",
            f"{name} was given {', '.join(missing)}, whose values the platform has removed at its end: "
            f"give them again, {given}",
        )
    if unknown := [each for each in environ if each not in named]:
        raise SubmissionInvalid("environ", f"{name} was not given {', '.join(unknown)}")
    seed = {SEED_VARIABLE: str(row.seed)} if SEED_VARIABLE in named else {}
    inside = PurePosixPath(row.work_dir).relative_to(SUBMITTED_CODE)
    return JobSpec(
        framework=row.framework,
        backend=row.backend,
        model_main=row.model_main,
        model_dir=str(inside) if inside.parts else None,
        args_verbatim=row.args_verbatim,
        app_name=row.app_name,
        arguments=tuple(row.arguments),
        num_worker=row.num_worker,
        worker_device_num=row.worker_device_num,
        device=row.device,
        gpu_models=tuple(row.gpu_models or ()),
        min_slots=min(row.min_slots, row.num_worker * row.worker_device_num),
        sizes=tuple(row.sizes or ()),
        queue=row.queue,
        priority=row.submitted_priority,
        time_limit=row.time_limit,
        max_restarts=row.max_restarts,
        environ={**framework.environ, **environ, **seed},
        data_path=row.data_path,
        image=row.image,
        options=(*((option, value) for option, value in row.options if option != _RESUME_FROM), (_RESUME_FROM, name)),
        remark=f"goes on where {name} ended, with {epochs} epochs in all",
        default_log=DefaultLog(row.default_log),
        model_folder=framework.model_folder,
        resume_from=name,
        wanted_epochs=epochs,
    )
