"""``python main.py`` without a platform: this process is the driver, its engines are forked by a supervisor of
its own. Room: runners.

Ctrl-C lets the engines leave at a step boundary with a checkpoint; the same command goes on from it. A second
Ctrl-C kills.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from edt_runner import context, emulation, environment
from edt_runner import framework as frameworks
from edt_runner.bench import Bench
from edt_runner.contract import ExitKind, Letter, ReportKind
from edt_runner.driver import Driver
from edt_runner.emulate.record import Recorder
from edt_runner.engine.schedule import Schedule
from edt_runner.errors import PeerLost, RunnerError, Suspended, TrainingFailed, UsageError
from edt_runner.progress import TrainingProgress
from edt_runner.replacing import Replacing
from edt_runner.training import Training, TrainRequest, seed_of

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


def train(request: TrainRequest) -> None:
    """Train on this machine's slots and return with the trained weights in the user's model."""
    devices = devices_here(request.trainable.framework)
    training = Training(request, len(devices), seed_of(request, None))
    with _quiet_where_nothing_trains(), tempfile.TemporaryDirectory(prefix="edt-") as run_dir, _only_one(_result_dir()):
        letter = _letter(training, len(devices), run_dir)
        with Bench(letter) as bench, TrainingProgress(training.schedule) as progress:
            engines = min(len(devices), training.engines)
            slots = Replacing(bench, devices[:engines])
            interrupt = _Interrupt(bench, slots)
            try:
                slots.start()
                address = bench.until(lambda report: report.kind is ReportKind.COORDINATOR_AT).body["address"]
                recorder = _recorder(training, asked=request)
                driver = Driver(training, letter, address, recorder.beside(progress.observe))
                with interrupt:
                    _drive(driver, bench)
                recorder.end(driver.digest)
            except Suspended:
                step = _last_step(bench, training.schedule)
                print(f"Stopped at step {step}. Run the same command to go on from there.", file=sys.stderr)
                raise SystemExit(INTERRUPTED) from None
            except PeerLost as error:
                _explain(bench, error, training.schedule)
            finally:
                slots.stop()
        _forget_checkpoints(Path(letter.checkpoint_dir))


def _drive(driver: Driver, bench: Bench) -> None:
    """Until the training is over, or has stopped and all is reported of that."""
    try:
        driver.run()
    except Suspended:
        with contextlib.suppress(RunnerError):
            bench.until(lambda report: report.kind is ReportKind.ATTEMPT_ENDED)
        raise


@contextlib.contextmanager
def _quiet_where_nothing_trains() -> Iterator[None]:
    """Ctrl-C while the supervisor and the engines are being started ends in a sentence, not in a traceback of ours.
    While the driver runs, ``_Interrupt`` takes it."""
    try:
        yield
    except KeyboardInterrupt:
        print("\nStopped; no step was under way.", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


class _Interrupt:
    """First SIGINT: leave. Second: kill everything."""

    def __init__(self, bench: Bench, slots: Replacing) -> None:
        self._bench, self._slots, self._count = bench, slots, 0

    def __enter__(self) -> None:
        import signal

        self._inside = threading.current_thread() is threading.main_thread()
        if self._inside:
            self._before = signal.signal(signal.SIGINT, lambda number, frame: self._interrupt())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import signal

        if self._inside:
            signal.signal(signal.SIGINT, self._before)

    def _interrupt(self) -> None:
        self._count += 1
        if self._count == 1:
            print("\nLeaving at the next step with a checkpoint. Ctrl-C again kills.", file=sys.stderr)
            self._slots.let_go()
        else:
            self._bench.kill()
            raise SystemExit(INTERRUPTED)


def devices_here(framework: frameworks.Framework) -> list[str]:
    """What the slots of this machine compute on."""
    if environment.devices() == "auto" and (gpus := framework.gpus()):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return visible.split(",")[:gpus] if visible else [str(index) for index in range(gpus)]
    return ["cpu"] * environment.cpu_slots()


def _letter(training: Training, slots: int, run_dir: str) -> Letter:
    main, result = _main(), _result_dir()
    checkpoints = result / "checkpoint"
    cores = environment.usable_cores()
    emulated = emulation.current()
    return Letter(
        job=Path(main).name,
        fence=_next_fence(result),
        node="local",
        framework=training.request.trainable.framework.name,
        main=str(Path(main).resolve()),
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


def _recorder(training: Training, asked: TrainRequest) -> Recorder:
    """Notes every step where EDT_EMULATE's file asks for it. ``asked``: by the script."""
    emulated, request = emulation.current(), training.request
    shape = {
        "schedule": training.schedule.to_json_object(),
        "batch_size": request.batch_size,
        "reference": request.reference_batch or training.schedule.logical_workers * request.batch_size,
        "per_engine": asked.follows_engines,
    }
    return Recorder(emulated.record if emulated is not None else None, shape)


def _main() -> str:
    main: str | None = getattr(sys.modules["__main__"], "__file__", None)
    if main is None:
        raise UsageError(
            "train(): called without a script; engines run the same script, so save it and run it as a file"
        )
    return main


def _result_dir() -> Path:
    return Path(os.environ.get("RESULT_DIR") or Path.cwd() / "edt_result" / Path(_main()).stem)


@contextlib.contextmanager
def _only_one(result: Path) -> Iterator[None]:
    """Two trainings in one folder would take each other's checkpoints."""
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
    """Attempts are counted in the result folder, so that a late message of an earlier one is refused."""
    path = result / "attempt"
    try:
        fence = int(json.loads(path.read_text())) + 1
    except (OSError, ValueError):
        fence = 1
    result.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fence))
    return fence


def _last_step(bench: Bench, schedule: Schedule) -> str:
    bench.poll()
    steps = [report.body["step"] for report in bench.reports if report.kind is ReportKind.CHECKPOINTED]
    return f"{steps[-1] if steps else 0} of {schedule.steps}"


def _explain(bench: Bench, error: PeerLost, schedule: Schedule) -> None:
    """The training ended under the driver: say why in one sentence."""
    bench.poll()
    gone = [report.body for report in bench.reports if report.kind is ReportKind.ENGINE_GONE]
    lost = next((body for body in gone if body["kind"] == ExitKind.LOST.value), None)
    what = str(error)
    if lost is not None:
        how = f"signal {lost['signal']}" if lost["signal"] else f"status {lost['code']}"
        what = f"engine {lost['allocation']} was ended by {how}"
    message = (
        f"{what}. The last checkpoint is of step {_last_step(bench, schedule)}; run the same command to go on from it."
    )
    print(message, file=sys.stderr)
    raise TrainingFailed(message) from None


def _forget_checkpoints(folder: Path) -> None:
    """The training is over: the next run of the script is another one."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


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
    from edt_runner.engine import seeds

    seed = seeds.process_seed(environment.seed())
    seeds.seed_python(seed)
    for name, package in (("pytorch", "torch"), ("tensorflow", "tensorflow")):
        if package in sys.modules:
            frameworks.by_name(name).seed(seed)
