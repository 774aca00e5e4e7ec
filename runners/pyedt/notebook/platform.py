"""A training on a platform: finds it, submits the job, follows it, stops it, fetches its result.

Of what users import, this module alone knows the command line's session and its login, so that a notebook and ``edt``
find the same platform. It imports them where it uses them: a job imports none of that.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from edt_contract.frameworks import KERAS2_VARIABLE
from edt_runner import environment
from fabric_model.arguments import check_count
from pyedt.notebook.display import Curve, Progress, say
from pyedt.notebook.errors import JobFailed, NoPlatform

if TYPE_CHECKING:
    from edt_api.schemas.jobs import Job
    from edt_cli.session import Session

_Number = TypeVar("_Number", int, float)

HERE = "local"
"""Value of EDT_API that asks for a training on this machine."""
_FRAMEWORKS = {"torch": "edtPyTorch", "keras": "edtTensorflow", "tf_keras": "edtTensorflow"}
_COUNTS = ("batch_size", "engines_number", "worker_num", "worker_device_num", "effective_batch_size")
_PAUSE_SECONDS = 0.5
_PATIENCE_SECONDS = 60.0
"""How long an API may not answer while a job is followed (an upgrade, a restart of `edt up`)."""
_LAST_LINES = 20
"""So many lines of its log are shown of a job that has failed."""
_ENDED = re.compile(r"END TRAINING: completed (\d+) iterations")


@dataclass(frozen=True)
class Found:
    """Where a training goes."""

    api: str | None
    """Address of the platform; None: this machine."""
    sentence: str
    """Which of the two, and why."""
    secrets: tuple[str, ...] = ()
    """The credentials for it, which nothing that is sent may contain."""


def find() -> Found:
    """Find the platform: that of EDT_API, or of the login of `edt login`, or this machine's `edt up` with EDT_TOKEN.

    Raises:
        NoPlatform: the platform does not answer, or takes no login.
    """
    from edt_cli.errors import CliError, NoAnswer
    from edt_cli.login import api_address, read_login, token_for
    from edt_cli.session import OURS, session
    from edt_cli.trust import home_address
    from edt_cli.up.home import home_folder

    named, kept = os.environ.get("EDT_API"), read_login()
    tokens = tuple(filter(None, (os.environ.get("EDT_TOKEN"), kept.token if kept is not None else None)))
    if named == HERE:
        return Found(None, f"Training on this machine, as EDT_API={HERE} asks for.", tokens)
    api = api_address(None)
    if not named and token_for(api) is None:
        why = "EDT_API names none, and nobody is logged in (`edt login`)"
        return Found(None, f"Training on this machine: no platform is known here. {why}.", tokens)
    try:
        with session(None) as opened:
            opened.ask("GET", f"{OURS}/jobs", params={"limit": 1})
    except CliError as error:
        if isinstance(error, NoAnswer) and not named and api == home_address(home_folder()):
            return Found(None, f"Training on this machine: its platform, {api}, does not run (`edt up`).", tokens)
        raise NoPlatform(f"{error}. EDT_API={HERE} trains on this machine instead") from error
    if named:
        by = "EDT_API names it"
    else:
        by = "of your login" if kept is not None and kept.api == api else "this machine's `edt up`"
    return Found(api, f"Training on the platform {api} ({by}).", tokens)


@dataclass(frozen=True)
class Size:
    """What a job asks for."""

    workers: int
    devices: int
    """Slots of each worker."""
    hardware_spec: Any
    """What ``train()`` got; a dict of WMLA's shape wins over the numbers."""
    worker_memory: str | None
    driver_memory: str | None

    @staticmethod
    def of(train: Mapping[str, Any]) -> Size:
        """Return the size that the arguments of ``train()`` ask for: ``engines_number``, or else worker_num x
        worker_device_num, or else effective_batch_size / batch_size, or else 1.

        Args:
            train: name -> value.

        Raises:
            UsageError: one of them is no whole number above 0.
        """
        for name in _COUNTS:
            if train.get(name) is not None:
                check_count(name, train[name], least=1)
        workers, devices = train.get("engines_number"), 1
        if workers is None and train.get("worker_num") is not None:
            workers, devices = train["worker_num"], train.get("worker_device_num") or 1
        elif workers is None and train.get("effective_batch_size") is not None:
            workers = max(1, train["effective_batch_size"] // train["batch_size"])
        memory = {name: train.get(name) for name in ("worker_memory", "driver_memory")}
        return Size(workers or 1, devices, train.get("hardware_spec"), **memory)


class PlatformJob:
    """One job of a notebook."""

    def __init__(self, api: Session, job_id: str) -> None:
        self._api, self.id = api, job_id

    def follow(self, progress: Progress) -> Job:
        """Show the job's progress until it is over, and return it.

        Raises:
            CliError: the API refuses, or has not answered for a minute.
        """
        from edt_api.schemas.jobs import Job
        from edt_cli.errors import NoAnswer
        from edt_cli.session import OURS

        gone_since, ended = None, False
        while True:
            try:
                job = self._api.one(Job, f"{OURS}/jobs/{self.id}")
                stepped = job.progress.get("step") is not None
                curve = self._curve() if stepped and (job.state.over or progress.wants_curve) else None
                if stepped and not ended and (job.state.over or job.progress.get("step") == job.steps_total):
                    ended = self._say_end(job)
            except NoAnswer:
                gone_since = gone_since or time.monotonic()
                if time.monotonic() > gone_since + _PATIENCE_SECONDS:
                    raise
                time.sleep(_PAUSE_SECONDS)
                continue
            gone_since = None
            if curve is not None or not stepped or not progress.wants_curve:
                progress.show(_line(job), curve, last=job.state.over)
            if job.state.over:
                return job
            time.sleep(_PAUSE_SECONDS)

    def _curve(self) -> Curve:
        from edt_api.schemas.jobs import Metrics
        from edt_cli.session import OURS

        found = self._api.one(Metrics, f"{OURS}/jobs/{self.id}/metrics")
        return Curve(_points(found.step, found.loss), _points(found.step, found.workers))

    def _say_end(self, job: Job) -> bool:
        """Say, as soon as the driver's log says it, that the training has ended; answer whether it does."""
        found = _ENDED.search(self._last_lines("outlog"))
        if found is None:
            return False
        seconds = (job.finished_at or time.time()) - (job.started_at or job.created_at)
        say(f"--------END TRAINING: completed {found[1]} iterations in {seconds:.2f} seconds.--------")
        if not job.state.over:
            say("Waiting the job to stop...")
        return True

    def _last_lines(self, kind: str) -> str:
        from edt_cli.session import EXECS

        asked = {"logType": kind, "lastlines": _LAST_LINES}
        return self._api.ask("GET", f"{EXECS}/{self.id}/log", params=asked, headers={"Accept": "text/plain"}).text

    def check(self, job: Job) -> None:
        """Raise JobFailed if the job has not finished."""
        from edt_api.schemas.jobs import ExecState

        if job.state is ExecState.KILLED:
            raise JobFailed(self.id, "it was stopped")
        if job.state is not ExecState.FINISHED:
            raise JobFailed(self.id, job.message or "it has failed", self._last_lines("errlog").strip())

    def stop(self) -> None:
        """Ask the job to stop."""
        from edt_cli.session import EXECS

        self._api.ask("POST", f"{EXECS}/{self.id}/stop")


def train(code: Path, package: str, size: Size, progress: Progress) -> str:
    """Submit a job, follow it to its end, and return its id.

    Args:
        code: folder with the job's main.py.
        package: package of the model's framework.
        size: what it asks for.
        progress: where its progress is shown.

    Raises:
        JobFailed: it has failed, or somebody has stopped it.
        NoPlatform: the platform refuses it.
        KeyboardInterrupt: the user has interrupted the cell; the job was asked to stop.
    """
    from edt_cli.errors import CliError

    with _session() as api:
        job = PlatformJob(api, _submit(api, code, package, size))
        say(f"Job {job.id} is submitted.")
        try:
            ended = job.follow(progress)
        except KeyboardInterrupt:
            say(f"Stopping job {job.id}. A second interrupt does not wait for its end.")
            job.stop()
            say(f"Job {job.id} finishes with state {job.follow(progress).state}.")
            raise
        except CliError as error:
            raise NoPlatform(f"{error}. Job {job.id} goes on without the notebook: edt logs -f {job.id}") from error
        say(f"Job {job.id} finishes with state {ended.state}.")
        job.check(ended)
        if ended.message:
            say(ended.message)
        return job.id


@contextmanager
def _session() -> Iterator[Session]:
    from edt_cli.errors import CliError
    from edt_cli.session import session

    try:
        with session(None) as api:
            yield api
    except CliError as error:
        raise NoPlatform(str(error)) from error


def _submit(api: Session, code: Path, package: str, size: Size) -> str:
    from edt_api.schemas.jobs import Exec
    from edt_cli.errors import Refused
    from edt_cli.pack import pack
    from edt_cli.session import EXECS

    archive = pack(code, None)
    words = ["--exec-start", _FRAMEWORKS[package], "--model-main", archive.main, "--model-dir", archive.model_dir or ""]
    words += ["--numWorker", str(size.workers), "--workerDeviceNum", str(size.devices)]
    words += ["--workerMemory", size.worker_memory] if size.worker_memory else []
    words += ["--driverMemory", size.driver_memory] if size.driver_memory else []
    words += ["--msd-env", f"EDT_SEED={environment.seed()}"]  # as a script on this machine would have it
    if package != "torch":
        words += ["--msd-env", f"{KERAS2_VARIABLE}={int(package == 'tf_keras')}"]
    form: dict[str, Any] = {"args": shlex.join(words)}
    if isinstance(size.hardware_spec, Mapping):
        form["hardwareSpec"] = size.hardware_spec

    def request() -> dict[str, Any]:
        archive.file.seek(0)
        files = {"file": (archive.name, archive.file, "application/octet-stream")}
        return {"data": {"data": json.dumps(form)}, "files": files}

    with archive.file:
        try:
            return api.read(Exec, api.post_once(EXECS, request)).id
        except Refused as error:
            megabytes = archive.file.seek(0, os.SEEK_END) / 1e6
            raise NoPlatform(
                f"{error}. The notebook sends {megabytes:,.1f} MB: the model, and all data that its functions refer "
                "to. What datasets_function reads when it is called does not go along"
            ) from error


def fetch(job: str, target: Path) -> None:
    """Download the zip of a job's model files.

    Raises:
        NoPlatform: the platform does not give it.
    """
    from edt_cli.session import EXECS

    draft = target.with_name(f".{target.name}.part")
    try:
        with _session() as api, api.stream(f"{EXECS}/{job}/result") as response, draft.open("wb") as file:
            for piece in response.iter_bytes():
                file.write(piece)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def files_of(job: str, folder: Path) -> Iterator[zipfile.Path]:
    """Give a job's model files while they are needed, out of a zip in ``folder``."""
    target = folder / f"{job}.zip"
    fetch(job, target)
    with zipfile.ZipFile(target) as archive:
        yield zipfile.Path(archive)


def _points(steps: Sequence[int], values: Sequence[_Number | None]) -> list[tuple[int, _Number]]:
    return [(step, value) for step, value in zip(steps, values, strict=True) if value is not None]


def _line(job: Job) -> str:
    """Return where a job is, in one line."""
    progress = job.progress
    if progress.get("step") is None:
        why = f": {job.waiting.reason}" if job.waiting is not None else ""
        return f"{job.id} · {job.status}{why}"
    words = [job.id, job.status]
    if progress.get("epoch") is not None:
        words.append(f"epoch {progress['epoch']}/{job.epochs or '?'}")
    words.append(f"step {progress['step']}/{job.steps_total or '?'}")
    if isinstance(loss := progress.get("loss"), float):
        words.append(f"loss {loss:.4g}")
    if speed := progress.get("samples_per_second"):
        words.append(f"{speed:,.0f} samples/s")
    workers = progress.get("workers")
    words += [f"{workers} worker{'' if workers == 1 else 's'}"] if workers else []
    return " · ".join(words)
