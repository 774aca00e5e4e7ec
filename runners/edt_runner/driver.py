"""The driver's part of ``train()``: it sends the initial state to the first engine and receives the trained state.

The driver holds no slot. While the engines train, it logs the metrics that they send. It returns when all engine
processes have ended. The driver or the coordinator may be started again during a training. The driver then sends
``BeginTraining`` again, and the coordinator sends again the metrics that the driver has not acknowledged.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edt_contract.attempt import AttemptSpec
from edt_contract.checkpoints import Checkpoint
from edt_contract.crash_points import CrashPoint, crash_point
from edt_runner import environment, resuming
from edt_runner.adapter import State
from edt_runner.checkpoints import checkpoint
from edt_runner.checkpoints.snapshot import read_state
from edt_runner.checkpoints.user_files import sweep
from edt_runner.comm.group import Group
from edt_runner.comm.plane import DataPlane
from edt_runner.driver_log import DriverLog, Observer
from edt_runner.engine.checksum_sender import NEVER
from edt_runner.errors import (
    CheckpointError,
    PeerLost,
    RunnerError,
    StateMismatch,
    Suspended,
    TrainingFailed,
    UsageError,
)
from edt_runner.protocol.channel import Channel, connect
from edt_runner.protocol.data import ReplicaHistory, TrainingDefinition
from edt_runner.protocol.engine_messages import ReplicasChanged
from edt_runner.protocol.messages import (
    BeginTraining,
    DriverReleased,
    Message,
    MetricsBundle,
    MetricsLogged,
    Note,
    ReceiveStateFromEngine,
    Role,
    ScriptFailed,
    SendStateToEngine,
    TrainedStateReceived,
    TrainingSuspended,
)
from edt_runner.step_lines import DriverLines
from edt_runner.supervisor.agent_link import COORDINATOR
from edt_runner.training import Training, model_dir

_ALONE_SECONDS = 120.0
_RECONNECT_SECONDS = 0.1
_ANSWER_SECONDS = 0.5
"""Pause after a connection that ended without a message. A coordinator of another release refuses every connection at
once."""
_SHUT_AGAIN_SECONDS = 0.02
_END_SECONDS = 2.0
_ENDS_A_TRANSFER = SendStateToEngine | ReceiveStateFromEngine | ScriptFailed | TrainingSuspended


class Driver:
    """The driver of one attempt.

    Args:
        training: the user's request, the data and the schedule.
        spec: the attempt.
        coordinator: ``host:port`` of the coordinator when the driver starts.
        observe: is called with each new item of metrics, and with its metrics as numbers (NaN in place of None).
        lines: writes lines about the training to standard output; None: nobody does.
    """

    def __init__(
        self,
        training: Training,
        spec: AttemptSpec,
        coordinator: str,
        observe: Observer = lambda item, metrics: None,
        lines: DriverLines | None = None,
    ) -> None:
        self._training, self._spec = training, spec
        self._adapter, _ = training.with_callbacks(training.adapter(on_device=False), runs=False)
        self._log = DriverLog(training, spec, observe, lines)
        self._address = coordinator
        self._channel = Channel(self._connect())
        self._state_at: dict[str, Any] = {"offset": 0, "metric_sums": {}}
        self.digest = ""
        """Digest of the trained state; empty until the state has arrived."""
        self._transfer: tuple[int, DataPlane, str] | None = None
        """The current transfer of the state: its number, its plane, the store's address; None: there is none."""
        self._transfer_lock = threading.Lock()
        """Held while a transfer is shut and while a transfer begins or ends, so that a shut never affects the next
        transfer."""
        self._newest_transfer = 0
        self._reader: threading.Thread | None = None
        """The thread that reads from the current connection."""
        self._definition: TrainingDefinition
        """The definition of this training; set when ``run`` has begun."""
        self._history = ReplicaHistory()
        """What is known about the engines' replicas. A new coordinator receives it from here."""
        self._resumed_at: int | None = None
        """Offset of the checkpoint whose state this process has; None: the script's initial state. Engines may be
        further, because this driver may have been started again during the training."""

    def run(self) -> None:
        """Train. When this returns, this process's model and optimizer have the trained state, and every engine is
        gone.

        Raises:
            TrainingFailed: the training failed; the reason was printed.
            Suspended: all engines have left; the training can resume from its checkpoint.
            PeerLost: the coordinator could not be reached for two minutes, or its supervisor is gone.
            StateMismatch: the trained state that arrived has another digest than the state that was sent.
        """
        for note in (*self._training.request.notes, *self._training.samples.notes):
            self._log.note(note)
        self._resume()
        crash_point(CrashPoint.DRIVER_BEGIN)
        self._definition = self._define()
        before = None if self._resumed_at is None else self._training.schedule.steps_before(self._resumed_at)
        self._log.begin(before)
        try:
            while True:
                self._begin()
                answered = False
                for number, message in self._messages():
                    answered = True
                    if self._handle(number, message):
                        crash_point(CrashPoint.DRIVER_RELEASED)
                        self._log.finished()
                        sweep(model_dir(self._spec.result_dir))  # all engines that wrote to the folder are gone
                        checkpoint.keep_newest(Path(self._spec.checkpoint_dir))
                        return
                self._channel.close()
                if not answered:
                    time.sleep(_ANSWER_SECONDS)
                self._channel = Channel(self._connect())
        except (RunnerError, TrainingFailed) as error:
            self._log.broke_off(error)
            raise
        finally:
            self._log.close()
            self._channel.end()
            if self._reader is not None:
                self._reader.join(_END_SECONDS)  # no thread of this package lives until the interpreter ends
            self._channel.close()

    def _begin(self) -> None:
        """Send ``BeginTraining``: to a coordinator that may be new, or to ask for the trained state again."""
        self._channel.send(BeginTraining(self._definition, self._history, self._resumed_at))

    def _define(self) -> TrainingDefinition:
        training = self._training
        return TrainingDefinition(
            schedule=training.schedule.to_json_object(),
            steps_total=training.schedule.steps,
            seed=training.seed,
            max_engines=training.engines,
            exact=training.request.exact,
            facts=training.facts(),
            on_mismatch=training.request.on_mismatch,
            require_exact=training.request.require_exact,
        )

    def _connect(self) -> socket.socket:
        """Connect to the coordinator at its current address.

        Raises:
            PeerLost: the coordinator could not be reached for two minutes, or its supervisor is gone.
        """
        deadline = time.monotonic() + _ALONE_SECONDS
        while True:
            with contextlib.suppress(OSError):
                self._address = (Path(self._spec.spool_dir) / COORDINATOR).read_text().strip() or self._address
            try:
                return connect(self._address, role=Role.DRIVER, token=self._spec.token, seconds=5.0)
            except OSError as error:
                if time.monotonic() > deadline or not _is_there(Path(self._spec.socket)):
                    raise PeerLost(f"the training ended: its coordinator is gone ({error})") from None
                time.sleep(_RECONNECT_SECONDS)

    def _messages(self) -> Iterator[tuple[int, Message]]:
        """Yield the coordinator's messages until the connection breaks, each with the number of the newest transfer.

        A thread reads the messages during a transfer, too. If the engine of the transfer dies, the transfer ends only
        when the coordinator names another engine.
        """
        inbox: queue.SimpleQueue[tuple[int, Message] | None] = queue.SimpleQueue()
        channel = self._channel

        def read() -> None:
            while not channel.closed:
                for message in channel.read_blocking():
                    if isinstance(message, _ENDS_A_TRANSFER):
                        self._newest_transfer += 1
                    inbox.put((self._newest_transfer, message))
                    self._break_off(self._newest_transfer)
            inbox.put(None)

        self._reader = threading.Thread(target=read, name="edt-coordinator-reader", daemon=True)
        self._reader.start()
        while (numbered := inbox.get()) is not None:
            yield numbered

    def _break_off(self, newest: int) -> None:
        """Interrupt the main thread if its transfer is older than ``newest``, because the engine of that transfer is
        gone."""
        while True:
            with self._transfer_lock:
                if self._transfer is None or self._transfer[0] >= newest:
                    return
                _, plane, store = self._transfer
                plane.shut([store])
            time.sleep(_SHUT_AGAIN_SECONDS)

    @contextlib.contextmanager
    def _group(self, number: int, store: str, key: str, rank: int) -> Iterator[Group]:
        """Build the group of this process and one engine for transfer ``number``, and close it afterwards.

        Raises:
            PeerLost: the engine is gone.
        """
        plane = DataPlane(self._spec.host, self._adapter.dtype, environment.gloo_interface())
        with self._transfer_lock:
            self._transfer = (number, plane, store)
        try:
            if number < self._newest_transfer:
                raise PeerLost("another engine has been named")
            with contextlib.closing(plane.build(store, key, rank, 2)) as group:
                yield group
        finally:
            with self._transfer_lock:
                self._transfer = None
            plane.close()

    def _handle(self, number: int, message: Message) -> bool:
        """Handle one message. Returns True if the training is over. ``number`` is the number of the newest transfer
        when the message came."""
        match message:
            case SendStateToEngine():
                self._send_state(number, message)
            case ReceiveStateFromEngine():
                self._receive_state(number, message)
            case MetricsBundle(number=bundle, items=items):
                crash_point(CrashPoint.DRIVER_METRICS)
                self._log.take(items)
                self._channel.send(MetricsLogged(bundle))
            case Note(text=text):
                self._log.note(text)
            case ReplicasChanged(history=history):
                self._history = history
            case ScriptFailed(message=failure, traceback=traceback):
                if traceback:
                    sys.stderr.write(traceback)
                else:
                    print(failure, file=sys.stderr)
                raise TrainingFailed(failure)
            case TrainingSuspended():
                raise Suspended
            case DriverReleased():
                wanted = self._training.request.compare_interval != NEVER
                self._log.note(describe_replicas(self._history, wanted=wanted))
                return True
        return False

    def _resume(self) -> None:
        """Load the newest complete checkpoint if it belongs to this training. Otherwise move the checkpoints aside. A
        job without a checkpoint of its own may begin from one of another job.

        Raises:
            UsageError: the state of the other job does not fit this script, or the job was given too few epochs.
            CheckpointError: the copy of the other job's checkpoint is not whole.
        """
        state = self._adapter.export_state()
        identity = resuming.identity(self._training.identity(self._spec.arguments), state)
        folder = Path(self._spec.checkpoint_dir)
        found = checkpoint.newest(folder, note=self._log.note)
        if found is not None and self._spec.epochs and found.offset > self._training.schedule.length:
            # it was given fewer epochs while it trained: it goes back to the end of the last of them
            found = checkpoint.newest(folder, most=self._training.schedule.length, note=self._log.note) or found
            checkpoint.forget_after(folder, found.offset)
        if found is not None:
            different = resuming.difference(identity, found.manifest["identity"], extended=bool(self._spec.epochs))
            if different:
                aside = checkpoint.set_aside(folder)
                self._log.note(f"Starting anew: {different}. The old checkpoints are in {aside}.")
                return
            self._take(found, resuming.from_own(found, identity, self._training.schedule))
        elif self._spec.begin_from:
            self._begin_from_another(identity, state)

    def _begin_from_another(self, identity: Mapping[str, Any], state: State) -> None:
        other = self._spec.begin_from
        found = checkpoint.newest(Path(self._spec.begin_dir), note=self._log.note)
        if found is None:
            raise CheckpointError(f"--resume-from {other}: the copy of its checkpoint is gone or damaged")
        start = resuming.from_another(other, found, identity, self._training.schedule, state)
        try:
            self._take(found, start)
        except StateMismatch as error:
            raise UsageError(f"--resume-from {other}: its state does not fit this script: {error}") from None
        if found.manifest["identity"].get("parameters") != identity["parameters"]:
            raise UsageError(
                f"--resume-from {other}: its parameters are in another order than those of this script, so the "
                "optimizer's state would be given to the wrong ones"
            )

    def _take(self, found: Checkpoint, start: resuming.Start) -> None:
        read_state(found.state_file, self._adapter, start.meta, start.edit)
        self._history = start.history
        self._resumed_at = start.offset if start.resumed else None
        self._state_at = {"offset": start.offset, "metric_sums": start.metric_sums}
        place, *others = start.notes
        (_tell if start.resumed else self._log.note)(place)  # the readable log begins with the step itself
        for note in others:
            self._log.note(note)

    def _send_state(self, number: int, message: SendStateToEngine) -> None:
        """Send the state to the first engine. If the engine dies during the transfer, the coordinator will name
        another."""
        try:
            with self._group(number, message.store, message.key, rank=0) as group:
                group.send_state(self._adapter.export_state(), self._state_at, sources=[0], to=[1])()
        except PeerLost as error:
            print(f"edt: the initial state was not sent: {error}", file=sys.stderr)
        crash_point(CrashPoint.DRIVER_SENT_STATE)

    def _receive_state(self, number: int, message: ReceiveStateFromEngine) -> None:
        """Receive the trained state from the first engine. If the engine dies during the transfer, another one will
        send it.

        Raises:
            StateMismatch: the state that arrived has another digest than the coordinator has named.
        """
        try:
            with self._group(number, message.store, message.key, rank=1) as group:
                group.receive_state(self._adapter, sources=[0])
        except PeerLost as error:
            print(f"edt: the trained weights did not arrive: {error}", file=sys.stderr)
            if number == self._newest_transfer:  # else the coordinator has named another engine already
                self._begin()
            return
        if self._adapter.digest() != message.digest:
            raise StateMismatch("the trained weights arrived with another digest than the engines gave")
        self.digest = message.digest
        crash_point(CrashPoint.DRIVER_RECEIVED_STATE)
        self._channel.send(TrainedStateReceived())


def _is_there(path: Path) -> bool:
    """Return whether ``path`` exists. A path without permission to look at it counts as existing, because the folder of
    the supervisor's socket may belong to another user."""
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


def describe_replicas(history: ReplicaHistory, *, wanted: bool) -> str:
    """Return one sentence for the user about the replicas, to show at the end of the training. ``wanted``: whether the
    user has turned comparisons on."""
    if history.ended:
        return f"The result is not exact because of {history.ended}."
    if history.compared:
        times = "once" if history.compared == 1 else f"{history.compared} times"
        return f"All engines' replicas were compared {times}, last at step {history.last_step}: they were equal."
    if not history.several:
        return "Replicas were never compared: one engine trained at a time."
    why = "no comparison came to its end" if wanted else "compare_interval=0"
    return f"Replicas were never compared, though several engines trained ({why})."
