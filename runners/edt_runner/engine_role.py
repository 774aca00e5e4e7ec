"""An engine's part of ``train()``: set up, train, and never return. Room: runners; torch."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from edt_runner import environment, exits, spool
from edt_runner.checksums import checksums
from edt_runner.context import Context
from edt_runner.dataplane import GlooPlane
from edt_runner.engine import checkpoint
from edt_runner.engine.adapter import State
from edt_runner.engine.comparing import Comparing
from edt_runner.engine.link import Link, leave_process
from edt_runner.engine.loop import Engine
from edt_runner.engine.record import Recorder
from edt_runner.engine.schedule import TickKind
from edt_runner.engine.seat import Hands, Settings
from edt_runner.engine.snapshot import Snapshots
from edt_runner.errors import CheckpointError
from edt_runner.state_files import HostCopy, read_state, write_state
from edt_runner.storage import reason
from edt_runner.trainable import EngineAdapter
from edt_runner.training import Training, model_dir

_BACKGROUND_NICENESS = 10
_PART_OF_GRACE = 0.6
"""So much of the time that a leave is given may the last engine wait for room for its checkpoint."""


def run(training: Training, role: Context) -> NoReturn:
    """Live as engine ``role.name`` and end the process."""
    live(training, role, *prepared(training, role))


def prepared(training: Training, role: Context) -> tuple[Hands, Mapping[str, Any]]:
    """Hands to work with, and the facts of the data. By the main thread, which alone sets signal handlers."""
    return _in_background(lambda: _prepare(training, role))


def live(training: Training, role: Context, hands: Hands, facts: Mapping[str, Any]) -> NoReturn:
    """Join, train, leave, and end the process. By any thread."""
    settings = Settings(
        training.schedule,
        training.seed,
        training.request.exact,
        training.request.checkpoint_freq,
        model_dir(role.letter.result_dir),
        training.widths,
    )
    logger = training.request.worker_logger
    if logger is not None:
        logger.on_train_begin()
    kind = Engine(settings, hands).run(facts)
    if logger is not None:
        logger.on_train_end()
    hands.loader.close()
    leave_process(exits.STATUSES[kind])


def _prepare(training: Training, role: Context) -> tuple[Hands, Mapping[str, Any]]:
    """Everything that needs no other engine, in the order that forking asks for: loader processes come first."""
    letter = role.letter
    loader = training.loader(_loader_processes(training.request.loader_processes, letter.cores, letter.max_engines))
    adapter = training.adapter(on_device=role.device != "cpu")
    for what, why in training.samples.take_warnings():
        adapter.end_guarantee(what, why)
    facts = training.facts()
    adapter, hooks = training.with_callbacks(adapter, runs=True)
    _warm_up(training, adapter)
    plane = GlooPlane(letter.host, adapter.dtype, environment.gloo_interface())
    computing = training.request.trainable.framework.computing(on_device=role.device != "cpu")
    note = Path(letter.spool_dir) / spool.COORDINATOR
    link = Link(role.coordinator, note, letter.token, role.name, plane, computing)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # best effort: user code may have its own handler
        signal.signal(signal.SIGTERM, lambda number, frame: _ask_to_leave(link))
    hands = Hands(
        adapter,
        plane,
        loader,
        link,
        Recorder(environment.sample_record(), letter.fence, role.name),
        _snapshots(training, adapter, role, link, computing),
        Comparing(
            link,
            adapter.export_state,
            checksums,
            training.request.compare_interval,
            hooks=hooks is not None,
        ),
        _worker_log(training),
        hooks,
        training.request.observe_step,
        lambda most: _restore(Path(letter.checkpoint_dir), most, adapter),
    )
    return hands, facts


def _warm_up(training: Training, adapter: EngineAdapter) -> None:
    """Take a small batch through the model before the training needs it. What the model raises at that says so."""
    size = training.schedule.batch_size
    units = min(2, size)
    try:
        adapter.warm_up(training.samples.probe_batch(units))
    except Exception as error:
        error.add_note(
            f"This was a trial before the training: a batch of {units}, the first training sample repeated. "
            f"The training's own micro-batches have {size}."
        )
        raise


def _restore(folder: Path, most: int, adapter: EngineAdapter) -> Mapping[str, Any]:
    """See ``Hands.restore``."""
    found = checkpoint.newest(folder, most=most)
    if found is None:
        raise CheckpointError(
            f"on_mismatch='restore': there is no checkpoint of position {most} or before, the last at which all "
            "engines are known to have held the same; a shorter recovery_interval makes more of them"
        )
    read_state(found.state_file, adapter, found.manifest["meta"])
    checkpoint.forget_after(folder, found.tick)
    return {"tick": found.tick, "tally": found.manifest["tally"]}


def _ask_to_leave(link: Link) -> None:
    """From a thread: the signal may have come while this one was writing to the link."""
    threading.Thread(target=link.tell, args=("leave",), daemon=True).start()


def _in_background(work: Callable[[], tuple[Hands, Mapping[str, Any]]]) -> tuple[Hands, Mapping[str, Any]]:
    """Warm up at low priority, where this process may also take its priority back."""
    if os.geteuid() != 0:
        return work()
    before = os.nice(0)
    os.nice(_BACKGROUND_NICENESS)
    try:
        return work()
    finally:
        for thread in Path("/proc/self/task").iterdir():  # those started meanwhile have inherited it
            os.setpriority(os.PRIO_PROCESS, int(thread.name), before)


def _loader_processes(wanted: int, cores: int, engines: int) -> int:
    """Loader processes of one engine: together they shall not be more than the node has cores."""
    most = max(1, cores // engines)
    if wanted > most:
        print(
            f"num_dataloader_threads: {wanted} asked for, {most} used: {cores} cores for up to {engines} engines",
            file=sys.stderr,
            flush=True,
        )
    return min(wanted, most)


def _snapshots(
    training: Training, adapter: EngineAdapter, role: Context, link: Link, computing: Mapping[str, Any]
) -> Snapshots:
    """Recovery checkpoints of this training."""
    identity = training.identity(role.letter.arguments)

    def write(tick: int, tally: Mapping[str, Any], state: State) -> None:
        manifest = {
            "job": role.letter.job,
            "fence": role.letter.fence,
            "identity": identity,
            "threads": role.letter.threads,
            "computing": computing,
            "replicas": link.history,
            **training.request.trainable.framework.versions(),
            "tally": tally,
            "meta": state.meta,
        }
        try:
            place = checkpoint.write(
                Path(role.letter.checkpoint_dir),
                tick,
                manifest,
                lambda path: write_state(path, state),
                who=role.name,
                equal_at=link.history.get("equal_at"),
            )
        except OSError as error:
            link.report("storage", place="checkpoints", error=reason(error), seconds=0.0)
            raise
        link.report("checkpointed", step=training.schedule.steps_before(tick), path=str(place))

    return Snapshots(
        training.request.recovery_interval,
        adapter.export_state,
        HostCopy(),
        write,
        lambda text: link.tell("note", text=text),
        patience=_PART_OF_GRACE * role.letter.grace_seconds,
    )


def _worker_log(training: Training) -> Callable[[TickKind, dict[str, float], int, int, int], None] | None:
    logger = training.request.worker_logger
    if logger is None:
        return None

    def log(kind: TickKind, values: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        if kind is TickKind.TRAIN:
            logger.log_train_metrics(values, iteration, epoch, workers)
        else:
            logger.log_test_metrics(values, iteration, epoch)

    return log
