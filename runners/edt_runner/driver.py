"""The driver's part of ``train()``: it gives the first weights and takes the last. Room: runners; torch.

It holds no slot. Between the two it writes the metrics that the engines send; when it returns, all slots have
been given back. Both it and the coordinator may be started again in the middle: it says ``begin`` anew, and the metrics
that it has not acknowledged come again.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from edt_runner import environment
from edt_runner.channel import Channel, connect
from edt_runner.contract import Letter
from edt_runner.crash_points import CrashPoint, crash_point
from edt_runner.dataplane import GlooGroup, GlooPlane
from edt_runner.elog import ELog
from edt_runner.engine import checkpoint
from edt_runner.engine.comparing import NEVER
from edt_runner.engine.schedule import TickKind
from edt_runner.errors import PeerLost, StateMismatch, Suspended, TrainingFailed
from edt_runner.replicas import History
from edt_runner.spool import COORDINATOR
from edt_runner.state_files import read_state
from edt_runner.training import Training, model_dir
from edt_runner.user_files import sweep

_ALONE_SECONDS = 120.0
_RECONNECT_SECONDS = 0.1
_SHUT_AGAIN_SECONDS = 0.02
_END_SECONDS = 2.0
_UNSAID: Mapping[str, Any] = {"user_callback": [], "step_samples": 0, "shuffled": True, "batch_scaling": "fixed"}
"""What checkpoints of earlier releases mean by saying nothing."""
_ENDS_AN_EXCHANGE = frozenset({"handover", "failed", "suspended"})


class Driver:
    """One attempt as its driver sees it.

    Args:
        training: request and data.
        letter: of the attempt.
        coordinator: ``host:port``.
        observe: called with each bundle item of metrics; for the progress bar.
    """

    def __init__(
        self,
        training: Training,
        letter: Letter,
        coordinator: str,
        observe: Callable[[Mapping[str, Any]], None] = lambda item: None,
    ) -> None:
        self._training, self._letter, self._observe = training, letter, observe
        self._adapter, _ = training.with_callbacks(training.adapter(on_device=False), runs=False)
        self._logger = training.request.driver_logger or ELog(letter.log_dir, training.schedule.logical_workers)
        self._address = coordinator
        self._channel = Channel(self._connect())
        self._state_at: dict[str, Any] = {"tick": 0, "tally": {}}
        self._logged = {TickKind.TRAIN.value: -1, TickKind.VALIDATE.value: 0}
        """The newest step and the newest validated epoch that were logged; -1: it depends on what comes first."""
        self.resumed_from: int | None = None
        self.digest = ""
        """Of the trained state, once it is here."""
        self._exchange: tuple[int, GlooPlane, str] | None = None
        """What weights go to or come from an engine by just now: its number, the plane, the store's address."""
        self._exchange_lock = threading.Lock()
        """Held while an exchange is shut, and where the next one begins: what is shut is never the next."""
        self._newest_exchange = 0
        self._reader: threading.Thread | None = None
        """Reads on the channel there is now."""
        self._told: dict[str, Any] = {}
        """What ``begin`` says."""
        self._history = History()
        """What is known of the engines' replicas, which outlives coordinators."""
        self._resumed_at: int | None = None
        """The position of the checkpoint whose state this process has. It says nothing of engines that train already:
        this driver may have been started again in the middle."""

    def run(self) -> None:
        """Until the model and the optimizer of this process are the trained ones and every engine is gone."""
        for note in self._training.samples.notes:
            print(note, file=sys.stderr)
        self._resume()
        crash_point(CrashPoint.DRIVER_BEGIN)
        self._told = self._definition()
        self._logger.on_train_begin()
        try:
            while True:
                self._begin()
                for message in self._messages():
                    if self._handle(message):
                        crash_point(CrashPoint.DRIVER_RELEASED)
                        sweep(model_dir(self._letter.result_dir))  # every engine that wrote there is gone
                        return
                self._channel.close()
                self._channel = Channel(self._connect())
        finally:
            self._logger.on_train_end()
            self._channel.end()
            if self._reader is not None:
                self._reader.join(_END_SECONDS)  # none of our threads is left to the end of the user's interpreter
            self._channel.close()

    def _begin(self) -> None:
        """To a coordinator that does not know it yet, or to be given what did not arrive."""
        known = {"history": self._history.to_json_object(), "resumed_at": self._resumed_at}
        self._channel.send({"kind": "begin", "definition": self._told, **known})

    def _definition(self) -> dict[str, Any]:
        training = self._training
        most = {"engines": training.engines} if training.request.follows_engines else {}
        return {
            "schedule": training.schedule.to_json_object(),
            **most,
            "steps_total": training.schedule.steps,
            "seed": training.seed,
            "exact": training.request.exact,
            "facts": training.facts(),
            "on_mismatch": training.request.on_mismatch,
            "require_exact": training.request.require_exact,
        }

    def _connect(self) -> socket.socket:
        """To the coordinator, wherever it is by now. Raises PeerLost when there is none for a while."""
        deadline = time.monotonic() + _ALONE_SECONDS
        while True:
            with contextlib.suppress(OSError):
                self._address = (Path(self._letter.spool_dir) / COORDINATOR).read_text().strip() or self._address
            try:
                return connect(self._address, role="driver", token=self._letter.token, seconds=5.0)
            except OSError as error:
                if time.monotonic() > deadline or not _is_there(Path(self._letter.socket)):
                    raise PeerLost(f"the training ended: its coordinator is gone ({error})") from None
                time.sleep(_RECONNECT_SECONDS)

    def _messages(self) -> Iterator[dict[str, Any]]:
        """What the coordinator says, until the line breaks. A thread reads, since an exchange of weights with an engine
        that has died waits for it until the coordinator names another."""
        inbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        channel = self._channel

        def read() -> None:
            while not channel.closed:
                for message in channel.read_blocking():
                    if message["kind"] in _ENDS_AN_EXCHANGE:
                        self._newest_exchange += 1
                        message["exchange"] = self._newest_exchange
                    inbox.put(message)
                    self._break_off(self._newest_exchange)
            inbox.put(None)

        self._reader = threading.Thread(target=read, name="edt-line", daemon=True)
        self._reader.start()
        while (message := inbox.get()) is not None:
            yield message

    def _break_off(self, newest: int) -> None:
        """An exchange before the ``newest`` is with an engine that is gone: let the main thread out of it."""
        while self._shut_before(newest):
            time.sleep(_SHUT_AGAIN_SECONDS)

    def _shut_before(self, newest: int) -> bool:
        """Whether there was an exchange before the ``newest`` to be shut."""
        with self._exchange_lock:
            under_way = self._exchange
            if under_way is None or under_way[0] >= newest:
                return False
            under_way[1].shut([under_way[2]])
            return True

    @contextlib.contextmanager
    def _exchanging(self, message: Mapping[str, Any]) -> Iterator[GlooGroup]:
        """A group with the engine that ``message`` names. Raises PeerLost where that is gone."""
        plane = GlooPlane(self._letter.host, self._adapter.dtype, environment.gloo_interface())
        with self._exchange_lock:
            self._exchange = (message["exchange"], plane, message["store"])
        try:
            if message["exchange"] < self._newest_exchange:
                raise PeerLost("another engine has been named")
            group = plane.build(message["store"], message["key"], message["rank"], message["size"])
            try:
                yield group
            finally:
                group.close()
        finally:
            with self._exchange_lock:
                self._exchange = None
            plane.close()

    def _handle(self, message: dict[str, Any]) -> bool:
        """True: the end."""
        match message["kind"]:
            case "handover" if message["key"].startswith("start"):
                self._give(message)
            case "handover":
                self._take(message)
            case "metrics":
                crash_point(CrashPoint.DRIVER_METRICS)
                for item in message["items"]:
                    if self._is_new(item):
                        self._log({**item, "metrics": _with_nan(item["metrics"])})
                self._channel.send({"kind": "logged", "bundle": message["bundle"]})
            case "note":
                print(message["text"], file=sys.stderr)
            case "replicas":
                self._history = History.from_json_object(message["history"])
            case "failed":
                if message["traceback"]:
                    sys.stderr.write(message["traceback"])
                else:
                    print(message["message"], file=sys.stderr)
                raise TrainingFailed(message["message"])
            case "suspended":
                raise Suspended
            case "released":
                wanted = self._training.request.compare_interval != NEVER
                print(self._history.verdict(wanted=wanted), file=sys.stderr)
                return True
        return False

    def _resume(self) -> None:
        """Load the newest whole checkpoint, if it belongs to this training."""
        folder = Path(self._letter.checkpoint_dir)
        found = checkpoint.newest(folder, note=lambda text: print(text, file=sys.stderr))
        if found is None:
            return
        manifest = found.manifest
        difference = _difference(self._training.identity(self._letter.arguments), manifest["identity"])
        if difference:
            place = checkpoint.set_aside(folder)
            print(f"Starting anew: {difference}. The old checkpoints are in {place}.", file=sys.stderr)
            return
        read_state(found.state_file, self._adapter, manifest["meta"])
        # what an earlier release wrote; its threads are those that the agent gave, not those that were computed with
        before = {"CPU capability": manifest.get("cpu_capability")}
        computing = manifest.get("computing") or {name: value for name, value in before.items() if value is not None}
        known = History.from_json_object(manifest.get("replicas") or {})
        self._history, self._resumed_at = replace(known, computing=computing), found.tick
        self._state_at = {"tick": found.tick, "tally": manifest["tally"]}
        self.resumed_from = self._training.schedule.steps_before(found.tick)
        print(f"Resuming from step {self.resumed_from} of {self._training.schedule.steps}.", file=sys.stderr)

    def _is_new(self, item: Mapping[str, Any]) -> bool:
        """Whether it has not been logged. After a crash the engines tell again what may not have arrived."""
        kind = item["phase"]
        place = int(item["step"] if kind == TickKind.TRAIN.value else item["epoch"])
        if self._logged[kind] < 0:  # the first step of a training, or one that a driver before this one may have had
            first = place <= self._first_step
            self._logged[kind] = 0 if first or not isinstance(self._logger, ELog) else self._logger.last_step()
        if place <= self._logged[kind]:
            return False
        self._logged[kind] = place
        return True

    @property
    def _first_step(self) -> int:
        """Where a training stands after its first tick, which one engine does alone."""
        training = self._training
        return training.schedule.at(0, training.widths.at(0, engines=1)).steps

    def _give(self, message: Mapping[str, Any]) -> None:
        """To the first engine. If that dies meanwhile, the coordinator will name another."""
        try:
            with self._exchanging(message) as group:
                group.start_sending(self._adapter.export_state(), self._state_at, donors=[0], to=[1])()
        except PeerLost as error:
            print(f"edt: the first weights were not taken: {error}", file=sys.stderr)
        crash_point(CrashPoint.DRIVER_GAVE)

    def _take(self, message: Mapping[str, Any]) -> None:
        """From the first engine. If that dies meanwhile, another one will give."""
        try:
            with self._exchanging(message) as group:
                group.receive(self._adapter, donors=[0])
        except PeerLost as error:
            print(f"edt: the trained weights did not arrive: {error}", file=sys.stderr)
            if message["exchange"] == self._newest_exchange:  # else another engine has been named already
                self._begin()
            return
        if self._adapter.digest() != message["digest"]:
            raise StateMismatch("the trained weights arrived with another digest than the engines gave")
        self.digest = message["digest"]
        crash_point(CrashPoint.DRIVER_TOOK)
        self._channel.send({"kind": "received"})

    def _log(self, item: Mapping[str, Any]) -> None:
        self._observe(item)
        metrics = dict(item["metrics"])
        if item["phase"] == TickKind.TRAIN.value:
            self._logger.log_train_metrics(metrics, item["iteration"], item["epoch"], item["workers"])
        else:
            self._logger.log_test_metrics(metrics, 0, item["epoch"])


def _is_there(path: Path) -> bool:
    """What may not be looked at counts as there: the folder of the supervisor's socket may be another user's."""
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _with_nan(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """What is no number travels as null."""
    return {name: float("nan") if value is None else value for name, value in metrics.items()}


def _difference(now: Mapping[str, Any], then: Mapping[str, Any]) -> str:
    """Why a checkpoint is not one of this training; empty: it is."""
    for name, value in now.items():
        before = then.get(name, _UNSAID.get(name))
        if before != value:
            return f"the checkpoint is of another training ({name} was {before}, is {value})"
    return ""
