"""An engine's part of ``train()``: prepare, train, and end the process."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from edt_contract.durable import reason
from edt_contract.encoding import to_json_object
from edt_contract.reports import ExitKind
from edt_runner import environment, resuming
from edt_runner.adapter import State
from edt_runner.checkpoints import checkpoint
from edt_runner.checkpoints.snapshot import HostCopy, Snapshots, read_state, write_state
from edt_runner.checkpoints.user_files import PLACE, UserFiles
from edt_runner.comm.plane import DataPlane
from edt_runner.context import Context
from edt_runner.engine.checksum_sender import ChecksumSender
from edt_runner.engine.engine import Engine
from edt_runner.engine.link import EngineLink, leave_process
from edt_runner.engine.step_runner import EngineParts
from edt_runner.engine.telemetry import Recorder
from edt_runner.errors import EXIT_STATUSES, CheckpointError
from edt_runner.frameworks.flat import checksums
from edt_runner.frameworks.trainable import EngineAdapter
from edt_runner.host_copies import marked
from edt_runner.protocol.messages import LeaveEngines, Note
from edt_runner.step_lines import EngineLines
from edt_runner.supervisor import agent_link
from edt_runner.training import Training, model_dir

_BACKGROUND_NICENESS = 10
_PART_OF_GRACE = 0.6
"""The part of the grace period for which the first engine waits for room on the disk for its checkpoint, when all
engines leave."""


def prepared(training: Training, role: Context) -> EngineParts:
    """Make the parts of engine ``role.name``. This needs no other engine.

    The work runs at low priority if this process may raise its priority again. The main thread calls this, because only
    the main thread may set signal handlers.
    """
    if not _may_raise_priority():
        return _prepare(training, role)
    before = os.nice(0)
    os.nice(_BACKGROUND_NICENESS)
    try:
        return _prepare(training, role)
    finally:
        for thread in Path("/proc/self/task").iterdir():  # threads started meanwhile have inherited it
            os.setpriority(os.PRIO_PROCESS, int(thread.name), before)


def _may_raise_priority() -> bool:
    """Whether a thread may set its priority back after it has lowered it: root in a container often may not. A thread
    of its own tries it."""
    may = []

    def tried() -> None:
        before = os.nice(0)
        os.nice(1)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, before)  # 0: this thread
            may.append(True)

    thread = threading.Thread(target=tried)
    thread.start()
    thread.join()
    return bool(may)


def live(parts: EngineParts) -> NoReturn:
    """Join, train, leave, and end the process. Any thread may call this."""
    logger = parts.training.request.worker_logger
    if logger is not None:
        logger.on_train_begin()
    parts.lines.begin()
    kind = Engine(parts).run()
    parts.files.finish()
    if kind in (ExitKind.FINISHED, ExitKind.LEFT):
        parts.lines.end()
    if logger is not None:
        logger.on_train_end()
    parts.loader.close()
    leave_process(EXIT_STATUSES[kind])


def _prepare(training: Training, role: Context) -> EngineParts:
    """Make the parts of an engine. Loader processes are forked first, before this process has threads or a network."""
    spec = role.spec
    loader = training.loader(_loader_processes(training.request.loader_processes, spec.cores, spec.max_engines))
    adapter = training.adapter(on_device=role.device != "cpu")
    for what, why in training.samples.take_warnings():
        adapter.end_guarantee(what, why)
    facts = training.facts()
    adapter, hooks = training.with_callbacks(adapter, runs=True)
    _warm_up(training, adapter)
    plane = DataPlane(
        spec.host,
        adapter.dtype,
        environment.gloo_interface(),
        environment.faster_interface(),
        device=adapter.vector_device,
        collectives=environment.collectives(),
    )
    computing = training.request.trainable.framework.computing(on_device=role.device != "cpu")
    note = Path(spec.spool_dir) / agent_link.COORDINATOR
    link = EngineLink(role.coordinator, note, spec.token, role.name, plane, computing)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # best effort: user code may have its own handler
        signal.signal(signal.SIGTERM, lambda number, frame: _ask_to_leave(link))
    interval = training.request.compare_interval
    snapshots = _snapshots(training, adapter, role, link, computing)
    files = UserFiles(
        model_dir(spec.result_dir),
        adapter.save_for_user,
        report=lambda error: link.report("storage", place=PLACE, error=error, seconds=0.0),
        note=lambda text: link.send(Note(text)),
        export=training.request.trainable.exporter(adapter),
        keep_last=training.request.keep_last,
    )
    snapshots.go_behind(files)
    return EngineParts(
        training,
        facts,
        adapter,
        plane,
        loader,
        link,
        Recorder(environment.sample_record(), spec.fence, role.name),
        snapshots,
        ChecksumSender(link, marked(adapter.export_state), checksums, interval, hooks=bool(training.request.callbacks)),
        hooks,
        files,
        EngineLines(),
        lambda most: _restore(Path(spec.checkpoint_dir), most, adapter),
    )


def _warm_up(training: Training, adapter: EngineAdapter) -> None:
    """Compute batches before the training begins. An exception gets a note that it came from this trial."""
    for units in training.warm_up_sizes():
        try:
            adapter.warm_up(training.samples.probe_batch(units))
        except Exception as error:
            error.add_note(
                f"This was a trial before the training: a batch of {units}, the first training sample repeated. "
                f"The training's own micro-batches have {training.schedule.batch_size}."
            )
            raise


def _restore(folder: Path, most: int, adapter: EngineAdapter) -> Mapping[str, Any]:
    """Load the newest checkpoint of offset ``most`` or an earlier one, for ``EngineParts.restore``.

    Returns:
        The offset of the checkpoint, and the sums of loss and metrics of its epoch.

    Raises:
        CheckpointError: there is no such checkpoint.
    """
    found = checkpoint.newest(folder, most=most)
    if found is None:
        raise CheckpointError(
            f"on_mismatch='restore': there is no checkpoint of offset {most} or before, the last at which all "
            "engines are known to have held the same; a shorter recovery_interval makes more of them"
        )
    read_state(found.state_file, adapter, found.manifest["meta"])
    checkpoint.forget_after(folder, found.offset)
    return {"offset": found.offset, "metric_sums": found.manifest["metric_sums"]}


def _ask_to_leave(link: EngineLink) -> None:
    """Ask to leave, from a new thread: the signal may have interrupted this thread while it was writing to the link."""
    threading.Thread(target=link.send, args=(LeaveEngines((link.name,)),), daemon=True).start()


def _loader_processes(wanted: int, cores: int, engines: int) -> int:
    """Return the number of loader processes of one engine. All engines together have at most one loader process for
    each core, but each engine may have one."""
    most = max(1, cores // engines)
    if wanted > most:
        print(
            f"num_dataloader_threads: {wanted} asked for, {most} used: {cores} cores for up to {engines} engines",
            file=sys.stderr,
            flush=True,
        )
    return min(wanted, most)


def _snapshots(
    training: Training, adapter: EngineAdapter, role: Context, link: EngineLink, computing: Mapping[str, Any]
) -> Snapshots:
    """Make the object that writes the recovery checkpoints of this training."""
    identity = resuming.identity(training.identity(role.spec.arguments), adapter.export_state())

    def write(offset: int, metric_sums: Mapping[str, Any], state: State) -> None:
        manifest = {
            "job": role.spec.job,
            "fence": role.spec.fence,
            "identity": identity,
            "step": training.schedule.steps_before(offset),
            "threads": role.spec.threads,
            "computing": computing,
            "replicas": to_json_object(link.history) if link.history is not None else {},
            **training.request.trainable.framework.versions(),
            "metric_sums": metric_sums,
            "meta": state.meta,
        }
        try:
            place = checkpoint.write(
                Path(role.spec.checkpoint_dir),
                offset,
                manifest,
                lambda path: write_state(path, state),
                who=role.name,
                equal_at=link.history.equal_at if link.history is not None else None,
            )
        except OSError as error:
            link.report("storage", place="checkpoints", error=reason(error), seconds=0.0)
            raise
        link.report("checkpointed", step=training.schedule.steps_before(offset), path=str(place))

    return Snapshots(
        training.request.recovery_interval,
        marked(adapter.export_state),
        HostCopy(),
        write,
        lambda text: link.send(Note(text)),
        patience=_PART_OF_GRACE * role.spec.grace_seconds,
    )
