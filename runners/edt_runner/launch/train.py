"""``train()``: what the call does in each process of a job.

Every process of a job runs the user's script, and the script makes the same call in each of them. In the driver the
call returns with the trained weights. In an engine the call never returns: the engine trains and then ends its process.
In a plain ``python main.py``, this process is the driver. It starts a supervisor on this machine, which forks the
engines. Ctrl-C there lets the engines leave at a step boundary with a checkpoint, and the same command resumes the
training from it. A second Ctrl-C kills the engines.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

from edt_contract.attempt import AttemptSpec
from edt_contract.reports import ExitKind, ReportKind
from edt_runner import context, environment, frameworks
from edt_runner.course import Speed
from edt_runner.driver import Driver
from edt_runner.engine import main
from edt_runner.errors import PeerLost, RunnerError, Suspended, TrainingFailed, UsageError
from edt_runner.launch.progress_bar import TrainingProgress
from edt_runner.launch.supervisor_client import LocalSlots, SupervisorClient
from edt_runner.lr_scaling import emulation
from edt_runner.schedule import Schedule
from edt_runner.step_lines import DriverLines
from edt_runner.training import Training, TrainRequest, model_dir, seed_of

INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells."""


def train(request: TrainRequest, name: str = "train()") -> Training:
    """Train. The call returns in the driver only.

    Args:
        request: what the user asks for.
        name: the name of the user's call, for messages.

    Returns:
        The training that is over, with its data.

    Raises:
        UsageError: this process has trained before, or the request does not fit its data. Without a platform also: the
            process runs no script file, or another process trains in the same result folder.
        TrainingFailed: the training failed, and the reason was printed.
        Suspended: all engines have left; the training can be resumed from its checkpoint.
        PeerLost: the connection to the coordinator is lost.
        SystemExit: Ctrl-C was pressed in a process without a platform. After the first Ctrl-C there is a checkpoint,
            after the second there is none.
    """
    claim(name)
    process = context.current()
    if process is None:
        return _train_here(request)
    request = extended(request)
    training = Training(request, process.spec.max_engines, seed_of(request, process))
    if process.role == "engine":
        main.live(main.prepared(training, process))  # does not return
    Driver(training, process.spec, process.coordinator, lines=DriverLines()).run()
    return training


def extended(request: TrainRequest) -> TrainRequest:
    """Return ``request`` with the number of epochs that ``edt extend`` gave the job, if it did."""
    process = context.current()
    epochs = process.spec.epochs if process is not None else 0
    if epochs in (0, request.epochs):
        return request
    note = f"The training has {epochs} epochs in all, as edt extend asked for; the script says {request.epochs}."
    return replace(request, epochs=epochs, notes=(*request.notes, note))


def trained_files() -> Path | None:
    """Return the folder with the files of the model that this process has trained; None: it has not trained."""
    process = context.current()
    result = process.spec.result_dir if process is not None else str(_result_dir())
    return model_dir(result).parent if context.training else None


def claim(name: str) -> None:
    """Register this process's only training.

    Args:
        name: the name of the user's call, for messages.

    Raises:
        UsageError: this process has trained before.
    """
    if context.training:
        raise UsageError(
            f"{name}: called a second time; a script trains once, since its engines run it from the top to {name}. "
            "Put the other training into a script of its own"
        )
    context.training = name


def _train_here(request: TrainRequest) -> Training:
    """Train on this machine's slots. Returns when the user's model has the trained weights."""
    devices = devices_here(request.trainable.framework)
    training = Training(request, len(devices), seed_of(request, None))
    with _no_traceback_at_interrupt(), tempfile.TemporaryDirectory(prefix="edt-") as run_dir, _only_one(_result_dir()):
        spec = _spec(training, len(devices), run_dir)
        with SupervisorClient(spec) as supervisor, TrainingProgress(Speed.of(training)) as progress:
            engines = min(len(devices), training.engines)
            slots = LocalSlots(supervisor, devices[:engines])
            try:
                slots.start()
                address = supervisor.until(lambda report: report.kind is ReportKind.COORDINATOR_AT).body["address"]
                recorder = _recorder(training, asked=request)
                driver = Driver(training, spec, address, recorder.beside(progress.observe))
                with _leaving_at_interrupt(supervisor, slots):
                    _drive(driver, supervisor)
                recorder.end(driver.digest)
            except Suspended:
                step = _last_step(supervisor, training.schedule)
                print(f"Stopped at step {step}. Run the same command to go on from there.", file=sys.stderr)
                raise SystemExit(INTERRUPTED) from None
            except PeerLost as error:
                _explain(supervisor, error, training.schedule)
            finally:
                slots.stop()
        shutil.rmtree(spec.checkpoint_dir, ignore_errors=True)  # the next run of the script is another training
    return training


def _drive(driver: Driver, supervisor: SupervisorClient) -> None:
    """Run the driver. If the training is suspended, read all reports before Suspended is raised."""
    try:
        driver.run()
    except Suspended:
        with contextlib.suppress(RunnerError):
            supervisor.until(lambda report: report.kind is ReportKind.ATTEMPT_ENDED)
        raise


@contextlib.contextmanager
def _no_traceback_at_interrupt() -> Iterator[None]:
    """If Ctrl-C is pressed while supervisor and engines start, end with a sentence instead of a traceback. While the
    driver runs, ``_leaving_at_interrupt`` handles Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        print("\nStopped; no step was under way.", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


@contextlib.contextmanager
def _leaving_at_interrupt(supervisor: SupervisorClient, slots: LocalSlots) -> Iterator[None]:
    """Handle SIGINT: at the first, all engines leave; at the second, all processes are killed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            supervisor.kill()
            raise SystemExit(INTERRUPTED)
        interrupted = True
        print("\nLeaving at the next step with a checkpoint. Ctrl-C again kills.", file=sys.stderr)
        slots.release()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def devices_here(framework: frameworks.Framework) -> list[str]:
    """The devices of this machine's slots: "cpu", or a GPU as CUDA_VISIBLE_DEVICES names it."""
    if environment.devices() == "auto" and (gpus := framework.gpus()):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return visible.split(",")[:gpus] if visible else [str(index) for index in range(gpus)]
    return ["cpu"] * environment.cpu_slots()


def _spec(training: Training, slots: int, run_dir: str) -> AttemptSpec:
    script, result = _script(), _result_dir()
    checkpoints = result / "checkpoint"
    cores = environment.usable_cores()
    emulated = emulation.current()
    return AttemptSpec(
        job=Path(script).name,
        fence=_next_fence(result),
        node="local",
        framework=training.request.trainable.framework.name,
        main=str(Path(script).resolve()),
        arguments=tuple(sys.argv[1:]),
        work_dir=str(Path.cwd()),
        result_dir=str(result),
        log_dir=os.environ.get("LOG_DIR") or str(result / "log"),
        checkpoint_dir=str(checkpoints),
        spool_dir=str(Path(run_dir) / "spool"),
        socket=str(Path(run_dir) / "supervisor.sock"),
        environ={},
        seed=training.seed,
        max_engines=slots,
        threads=(emulated and emulated.threads) or max(1, cores // slots),
        cores=cores,
        grace_seconds=30.0,
        token=secrets.token_hex(16),
        driver="external",
    )


def _recorder(training: Training, asked: TrainRequest) -> emulation.Recorder:
    """A recorder of every step, if the file of EDT_EMULATE asks for a record. ``asked`` is the script's own request."""
    emulated, request = emulation.current(), training.request
    shape = {
        "schedule": training.schedule.to_json_object(),
        "batch_size": request.batch_size,
        "reference": training.reference,
        "per_engine": asked.follows_engines,
    }
    return emulation.Recorder(emulated.record if emulated is not None else None, shape)


def _script() -> str:
    script: str | None = getattr(sys.modules["__main__"], "__file__", None)
    if script is None:
        raise UsageError(
            "train(): called without a script; engines run the same script, so save it and run it as a file"
        )
    return script


def _result_dir() -> Path:
    return Path(os.environ.get("RESULT_DIR") or Path.cwd() / "edt_result" / Path(_script()).stem)


@contextlib.contextmanager
def _only_one(result: Path) -> Iterator[None]:
    """Lock the result folder, because two trainings in it would use each other's checkpoints."""
    result.mkdir(parents=True, exist_ok=True)
    with (result / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"train(): another run of this script is training in {result}; set RESULT_DIR to another folder"
            ) from None
        yield


def _next_fence(result: Path) -> int:
    """The fence of this attempt, counted in the result folder, so that late messages of earlier ones are refused."""
    path = result / "attempt"
    try:
        fence = int(path.read_text()) + 1
    except (OSError, ValueError):
        fence = 1
    path.write_text(str(fence))
    return fence


def _last_step(supervisor: SupervisorClient, schedule: Schedule) -> str:
    supervisor.poll()
    steps = [report.body["step"] for report in supervisor.reports if report.kind is ReportKind.CHECKPOINTED]
    return f"{steps[-1] if steps else 0} of {schedule.steps}"


def _explain(supervisor: SupervisorClient, error: PeerLost, schedule: Schedule) -> None:
    """Print in one sentence why the connection to the coordinator is lost. Raises TrainingFailed."""
    supervisor.poll()
    gone = [report.body for report in supervisor.reports if report.kind is ReportKind.ENGINE_GONE]
    lost = next((body for body in gone if body["kind"] == ExitKind.LOST.value), None)
    what = str(error)
    if lost is not None:
        how = f"signal {lost['signal']}" if lost["signal"] else f"status {lost['code']}"
        what = f"engine {lost['allocation']} was ended by {how}"
    step = _last_step(supervisor, schedule)
    message = f"{what}. The last checkpoint is of step {step}; run the same command to go on from it."
    print(message, file=sys.stderr)
    raise TrainingFailed(message) from None
