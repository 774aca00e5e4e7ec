"""``train()``: what it does in each process of a job.

A user's script makes the same call in all of them. In the driver it returns with the trained weights. In an engine it
never returns: the engine trains, and ends its process. In a plain ``python main.py`` this process is the driver itself,
and its engines are forked by a supervisor of its own on this machine. There Ctrl-C lets the engines leave at a step
boundary with a checkpoint; the same command goes on from it. A second Ctrl-C kills.
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
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from edt_contract.attempt import AttemptSpec, DesiredSlot, DesiredState
from edt_contract.reports import ExitKind, ReportKind
from edt_runner import context, environment
from edt_runner.driver.driver import Driver
from edt_runner.engine import main
from edt_runner.errors import PeerLost, RunnerError, Suspended, TrainingFailed, UsageError
from edt_runner.frameworks import framework as frameworks
from edt_runner.launch.progress import TrainingProgress
from edt_runner.launch.supervisor_client import SupervisorClient
from edt_runner.lr_scaling import emulation
from edt_runner.schedule import seeds
from edt_runner.schedule.schedule import Schedule
from edt_runner.supervisor.spool import SpoolReader
from edt_runner.training import Training, TrainRequest, seed_of

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""
_LOOK_SECONDS = 0.25
_END_SECONDS = 2.0
_PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds before the first, second, … replacement of an engine."""


def train(request: TrainRequest, name: str = "train()") -> None:
    """Train; returns in the driver only.

    Args:
        request: what the user asks for.
        name: of the call, as the user knows it.

    Raises:
        UsageError: this process has trained before, or the request does not fit its data; without a platform also: the
            process runs no script file, or another process trains in the same result folder.
        TrainingFailed: the training failed, and why was printed.
        Suspended: all engines have left; the training goes on from its checkpoint.
        PeerLost: the coordinator is gone.
        SystemExit: Ctrl-C was pressed in a process without a platform; with a checkpoint after the first, without one
            after the second.
    """
    claim(name)
    process = context.current()
    if process is None:
        _train_here(request)
        return
    training = Training(request, process.spec.max_engines, seed_of(request, process))
    if process.role == "engine":
        main.live(main.prepared(training, process))  # does not return
    Driver(training, process.spec, process.coordinator).run()


def claim(name: str) -> None:
    """Begin this process's one training.

    Args:
        name: of the user's call.

    Raises:
        UsageError: there was a training before.
    """
    if context.training:
        raise UsageError(
            f"{name}: called a second time; a script trains once, since its engines run it from the top to {name}. "
            "Put the other training into a script of its own"
        )
    context.training = name


def _train_here(request: TrainRequest) -> None:
    """Train on this machine's slots; returns with the trained weights in the user's model."""
    devices = devices_here(request.trainable.framework)
    training = Training(request, len(devices), seed_of(request, None))
    with _no_traceback_at_interrupt(), tempfile.TemporaryDirectory(prefix="edt-") as run_dir, _only_one(_result_dir()):
        spec = _spec(training, len(devices), run_dir)
        with SupervisorClient(spec) as supervisor, TrainingProgress(training.schedule) as progress:
            engines = min(len(devices), training.engines)
            slots = _Slots(supervisor, devices[:engines])
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


def _drive(driver: Driver, supervisor: SupervisorClient) -> None:
    """Run the driver. If the training is suspended, all its reports have been read when Suspended is raised."""
    try:
        driver.run()
    except Suspended:
        with contextlib.suppress(RunnerError):
            supervisor.until(lambda report: report.kind is ReportKind.ATTEMPT_ENDED)
        raise


@contextlib.contextmanager
def _no_traceback_at_interrupt() -> Iterator[None]:
    """End with a sentence, not with a traceback of this package, when Ctrl-C is pressed while supervisor and engines
    are being started. While the driver runs, ``_leaving_at_interrupt`` handles it."""
    try:
        yield
    except KeyboardInterrupt:
        print("\nStopped; no step was under way.", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


class _Slots:
    """Holds the slots of a local training, and replaces lost engines as a scheduler does on a platform: a slot whose
    engine was lost gets another one, at first at once, then after growing pauses.

    Args:
        supervisor: of the training.
        devices: what each slot computes on.
    """

    def __init__(self, supervisor: SupervisorClient, devices: Sequence[str]) -> None:
        self._supervisor = supervisor
        self._slots = [DesiredSlot(number + 1, str(number), device) for number, device in enumerate(devices)]
        self._reader = SpoolReader(supervisor.spec.spool_dir)
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._lost = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Give all slots to the training, and begin to replace lost engines."""
        self._set_desired()
        self._thread = threading.Thread(target=self._look, name="edt-slots", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Let all engines leave."""
        self._done.set()
        with self._lock:
            self._supervisor.set_desired(DesiredState(self._supervisor.spec.fence, ()))

    def stop(self) -> None:
        """Replace no engine any more, and end the thread, so that the interpreter can end."""
        self._done.set()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)

    def _look(self) -> None:
        while not self._done.wait(_LOOK_SECONDS):
            for report in self._reader.read():
                lost = report.body.get("kind") in (ExitKind.LOST, ExitKind.SCRIPT_ERROR)
                if report.kind is ReportKind.ENGINE_GONE and lost:
                    self._replace(int(report.body["allocation"]))

    def _replace(self, allocation: int) -> None:
        if self._done.wait(_PAUSES[min(self._lost, len(_PAUSES) - 1)]):
            return
        self._lost += 1
        newest = max(slot.allocation for slot in self._slots)
        self._slots = [
            replace(slot, allocation=newest + 1) if slot.allocation == allocation else slot for slot in self._slots
        ]
        with self._lock:
            if not self._done.is_set():
                self._set_desired()

    def _set_desired(self) -> None:
        self._supervisor.set_desired(DesiredState(self._supervisor.spec.fence, tuple(self._slots)))


@contextlib.contextmanager
def _leaving_at_interrupt(supervisor: SupervisorClient, slots: _Slots) -> Iterator[None]:
    """Handle SIGINT: at the first all engines leave, at the second all is killed."""
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
    """What each slot of this machine computes on: "cpu", or a GPU as CUDA_VISIBLE_DEVICES names it."""
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
    """Records every step where the file of EDT_EMULATE asks for it. ``asked``: the request as the script made it."""
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
    """Lock the result folder: two trainings in it would take each other's checkpoints."""
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
    """The number of this attempt, counted in the result folder, so that late messages of an earlier one are refused."""
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
    """Print in one sentence why the coordinator is gone. Raises TrainingFailed."""
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


def seed_plain_process() -> None:
    """Seed Python, NumPy and the frameworks as the supervisor does for its children, in a process that has none, and
    leave the GPUs to these.

    Called when ``fabric_model`` is imported, before the user builds a model: engines and driver then see the same
    data, and a run can be repeated. User code that seeds for itself comes later and wins. A framework that is not
    imported by now is not imported for this; Keras draws the seeds of its layers from Python's generator.
    """
    if context.current() is not None:
        return
    # TensorFlow would take all of the first GPU for the model of this process, and an engine is to compute there.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    seed = seeds.process_seed(environment.seed())
    seeds.seed_python(seed)
    for name, package in (("pytorch", "torch"), ("tensorflow", "tensorflow")):
        if package in sys.modules:
            frameworks.by_name(name).seed(seed)
