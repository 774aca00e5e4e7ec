"""The driver's part of ``train()``: it gives the first weights and takes the last. Room: runners; torch.

It holds no slot. Between the two it writes the metrics that the engines send; when it returns, all slots have
been given back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from edt_runner import environment
from edt_runner.channel import Channel, connect
from edt_runner.contract import Letter
from edt_runner.dataplane import GlooPlane
from edt_runner.elog import ELog
from edt_runner.engine import checkpoint
from edt_runner.engine.schedule import TickKind
from edt_runner.errors import PeerLost, StateMismatch, Suspended, TrainingFailed
from edt_runner.torch_adapter import read_state
from edt_runner.training import Training


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
        self._adapter = training.adapter(torch.device("cpu"))
        self._logger = training.request.driver_logger or ELog(letter.log_dir, training.schedule.logical_workers)
        self._channel = Channel(connect(coordinator, role="driver", token=letter.token))
        self._state_at: dict[str, Any] = {"tick": 0, "tally": {}}
        self._digest = ""
        self.resumed_from: int | None = None

    def run(self) -> None:
        """Until the model and the optimizer of this process are the trained ones and every engine is gone."""
        self._resume()
        training = self._training
        self._channel.send(
            {
                "kind": "begin",
                "definition": {
                    "schedule": training.schedule.to_json_object(),
                    "steps_total": training.schedule.steps,
                    "seed": training.seed,
                    "exact": training.request.exact,
                    "facts": training.facts(training.loader(0).probe()),
                },
            }
        )
        self._logger.on_train_begin()
        try:
            while not self._channel.closed:
                for message in self._channel.read_blocking():
                    if self._handle(message):
                        return
        finally:
            self._logger.on_train_end()
            self._channel.close()
        raise PeerLost("the training ended: its coordinator is gone")

    def _handle(self, message: dict[str, Any]) -> bool:
        """True: the end."""
        match message["kind"]:
            case "handover" if message["key"] == "start":
                self._give(message)
            case "handover":
                self._take(message)
            case "metrics":
                for item in message["items"]:
                    self._log({**item, "metrics": _with_nan(item["metrics"])})
            case "note":
                print(message["text"], file=sys.stderr)
            case "failed":
                if message["traceback"]:
                    sys.stderr.write(message["traceback"])
                else:
                    print(message["message"], file=sys.stderr)
                raise TrainingFailed(message["message"])
            case "suspended":
                raise Suspended
            case "released":
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
        for name, now in (
            ("threads", self._letter.threads),
            ("cpu_capability", torch.backends.cpu.get_cpu_capability()),
        ):
            if manifest[name] != now:
                print(
                    f"The result is no longer exact: {name} was {manifest[name]} and is {now} now.",
                    file=sys.stderr,
                )
        read_state(found.state_file, self._adapter, manifest["meta"])
        self._state_at = {"tick": found.tick, "tally": manifest["tally"]}
        self.resumed_from = self._training.schedule.steps_before(found.tick)
        print(f"Resuming from step {self.resumed_from} of {self._training.schedule.steps}.", file=sys.stderr)

    def _give(self, message: Mapping[str, Any]) -> None:
        group = self._plane().build(message["store"], message["key"], message["rank"], message["size"])
        group.start_sending(self._adapter.export_state(), self._state_at, donors=[0], to=[1])()
        group.close()

    def _take(self, message: Mapping[str, Any]) -> None:
        group = self._plane().build(message["store"], message["key"], message["rank"], message["size"])
        group.receive(self._adapter, donors=[0])
        group.close()
        if self._adapter.digest() != message["digest"]:
            raise StateMismatch("the trained weights arrived with another digest than the engines gave")
        self._channel.send({"kind": "received"})

    def _plane(self) -> GlooPlane:
        return GlooPlane(self._letter.host, self._adapter.dtype, environment.gloo_interface())

    def _log(self, item: Mapping[str, Any]) -> None:
        self._observe(item)
        metrics = dict(item["metrics"])
        if item["phase"] == TickKind.TRAIN.value:
            self._logger.log_train_metrics(metrics, item["iteration"], item["epoch"], item["workers"])
        else:
            self._logger.log_test_metrics(metrics, 0, item["epoch"])


def _with_nan(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """What is no number travels as null."""
    return {name: float("nan") if value is None else value for name, value in metrics.items()}


def _difference(now: Mapping[str, Any], then: Mapping[str, Any]) -> str:
    """Why a checkpoint is not one of this training; empty: it is."""
    for name, value in now.items():
        if then.get(name) != value:
            return f"the checkpoint is of another training ({name} was {then.get(name)}, is {value})"
    return ""
