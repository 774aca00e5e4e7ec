"""A user's own PyTorch loop, trained by as many engines as there are. Room: runners; torch.

The loop is written once and played by every process of a job: in an engine its body computes the engine's
micro-batches and never comes to its end; in the driver the body does not run, and the loop ends when all is trained;
in a plain process of one device the body computes all micro-batches, one after the other, with the same arithmetic.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from edt_runner import context, emulation, engine_role, environment, local, play
from edt_runner.engine import shares
from edt_runner.engine.schedule import Schedule, Tick
from edt_runner.errors import UsageError
from edt_runner.pytorch import in_process, leaving
from edt_runner.pytorch.framework import FRAMEWORK
from edt_runner.pytorch.own_adapter import own_loop_trainable
from edt_runner.pytorch.rates import Rates
from edt_runner.pytorch.turns import Turn, Turns
from edt_runner.trainable import Collate
from edt_runner.training import Logger, Training, TrainRequest, seed_of


class Pedal(Protocol):
    """The user's optimizer, whose ``step()`` is caught while the loop runs."""

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...

    @property
    def averages(self) -> bool:
        """The micro-batches' gradients are averaged, as for a mean loss; else added up."""

    def catch(self, loop: OwnLoop) -> None:
        """From now on ``step()`` means ``loop.take_step`` as long as ``loop.in_body``, and else an update."""

    def release(self) -> None: ...


@dataclass(frozen=True)
class Wanted:
    """What a user asks of a loop, checked."""

    name: str
    """Of the loader, for errors."""
    global_batch: int
    """Samples of an update."""
    most: int
    """Samples that a device can hold at a time."""
    epochs: int
    seed: int | None
    shuffle: bool
    collate: Collate | None
    loader_processes: int
    metrics: tuple[str, ...]
    """Names beside the loss."""
    lr_scheduler: Any
    per_step: bool
    """The scheduler moves with the updates; else with the epochs."""
    exact: bool
    checkpoint_freq: int
    recovery_interval: float
    compare_interval: int | None
    on_mismatch: str
    require_exact: bool
    driver_logger: Logger | None
    worker_logger: Logger | None


class OwnLoop:
    """Iterate over it, once.

    Args:
        wanted: what the user asks for.
        dataset: map-style.
        model: on whatever device; an engine moves it to its own.
        pedal: the optimizer.
        shared: called before each step with (engines that share it, micro-batches of this one, the sizes of all
            micro-batches of a full step, whether this engine is the first).
    """

    epoch = 0
    """Passes over the data set that are complete. In the body: of the present batch."""
    step = 0
    """Updates that are complete, over all epochs. In the body: before the present batch's."""

    def __init__(
        self,
        wanted: Wanted,
        dataset: Any,
        model: nn.Module,
        pedal: Pedal,
        shared: Callable[[int, int, Sequence[int], bool], None],
    ) -> None:
        self._wanted, self._dataset, self._model, self._pedal, self._shared = wanted, dataset, model, pedal, shared
        self._turns = Turns()
        self._turn: Turn | None = None
        self._schedule: Schedule | None = None
        self._begun = False

    # ── for the body ──────────────────────────────────────────────────────────────────────────────────────────
    def report(self, loss: Any, **metrics: Any) -> None:
        """For logs and pages: this batch's mean loss and the metrics that were named, as numbers or tensors of one."""
        if self._turn is None:
            raise UsageError(f"{self._wanted.name}: report() was called outside of the loop's body")
        unknown = sorted(set(metrics) - set(self._wanted.metrics))
        if unknown:
            raise UsageError(
                f"{self._wanted.name}: report() got {', '.join(unknown)}, takes what metrics= names: "
                f"{', '.join(self._wanted.metrics) or 'nothing'}"
            )
        self._turn.report({"loss": loss, **metrics})

    # ── for the optimizer ─────────────────────────────────────────────────────────────────────────────────────
    @property
    def in_body(self) -> bool:
        """The user's code has a batch in its hands."""
        return self._turn is not None

    def take_step(self, closure: Callable[[], Any] | None) -> Any:
        """The user's ``optimizer.step(closure)``; returns what that returns."""
        assert self._turn is not None
        return self._turn.step(closure)

    # ── the loop ──────────────────────────────────────────────────────────────────────────────────────────────
    def __iter__(self) -> Iterator[Any]:
        if self._begun:
            raise UsageError(
                f"{self._wanted.name}: iterated a second time; takes one loop over all epochs, of which epochs= "
                "says the number"
            )
        self._begun = True
        role = context.current()
        slots = slots_here() if role is None else role.letter.max_engines
        request = self._request(max(1, slots))
        if role is not None and role.role == "engine":
            play.claim(self._wanted.name)
            yield from self._in_engine(Training(request, slots, seed_of(request, role)), role)
        elif role is None and slots <= 1 and emulation.current() is None:
            yield from self._in_this_process(Training(request, 1, seed_of(request, None)))
        else:
            play.train(request, self._wanted.name)
            self.epoch, self.step = self._wanted.epochs, self._updates_per_epoch * self._wanted.epochs

    def _in_engine(self, training: Training, role: context.Context) -> Iterator[Any]:
        hands, facts = engine_role.prepared(training, role)
        self._schedule = training.schedule

        def live() -> None:
            try:
                engine_role.live(training, role, hands, facts)
            except BaseException as error:
                self._turns.fail(error)

        self._pedal.catch(self)
        threading.Thread(target=live, name="edt-engine", daemon=True).start()
        while True:
            turn = self._turns.wait()
            yield from self._in_hands(turn)
            self._turns.done()

    def _in_this_process(self, training: Training) -> Iterator[Any]:
        self._schedule = training.schedule
        self._pedal.catch(self)
        try:
            for turn in in_process.turns(training, self._model):
                yield from self._in_hands(turn)
        finally:
            self._pedal.release()
        self.epoch, self.step = training.schedule.epochs, training.schedule.steps

    def _in_hands(self, turn: Turn) -> Iterator[Any]:
        """The body of the loop, once."""
        self._turn = turn
        try:
            yield turn.batch
        except GeneratorExit:
            leaving.left_by(self._wanted.name)
            raise
        finally:
            self._turn = None
        turn.close()

    # ── what the engine is told ───────────────────────────────────────────────────────────────────────────────
    def _request(self, slots: int) -> TrainRequest:
        wanted = self._wanted
        workers = min(wanted.global_batch, max(-(-wanted.global_batch // wanted.most), slots))
        trainable = own_loop_trainable(
            self._model,
            self._pedal.optimizer,
            wanted.metrics,
            averages=self._pedal.averages,
            rates=Rates(wanted.lr_scheduler, 0 if wanted.per_step else max(1, len(self._dataset))),
            give=self._turns.give,
            name=wanted.name,
        )
        return TrainRequest(
            trainable=trainable,
            datasets_function=lambda: (self._dataset, None),
            worker_logger=wanted.worker_logger,
            driver_logger=wanted.driver_logger,
            collate=wanted.collate,
            epochs=wanted.epochs,
            batch_size=-(-wanted.global_batch // workers),
            logical_workers=workers,
            loader_processes=wanted.loader_processes,
            validation_freq=0,
            checkpoint_freq=wanted.checkpoint_freq,
            seed=wanted.seed,
            exact=wanted.exact,
            recovery_interval=wanted.recovery_interval,
            compare_interval=wanted.compare_interval,
            on_mismatch=wanted.on_mismatch,
            require_exact=wanted.require_exact,
            step_samples=wanted.global_batch,
            shuffle=wanted.shuffle,
            observe_step=self._observe,
        )

    @property
    def _updates_per_epoch(self) -> int:
        return max(1, -(-len(self._dataset) // self._wanted.global_batch))

    def _observe(self, where: Tick, engines: int, own: int, leads: bool) -> None:
        schedule = self._schedule
        assert schedule is not None
        self.epoch, self.step = where.epoch, where.step
        whole = (schedule.batch_size,) * where.workers if schedule.follows_engines else shares.step_sizes(schedule, 0)
        self._shared(engines, own, whole, leads)


def seed_for_local_engines() -> None:
    """Where a plain process will start engines: let them and itself make the same data and the same first weights."""
    if context.current() is None and slots_here() > 1:
        local.seed_plain_process()


def slots_here() -> int:
    """Engines that a process without a platform would start: one a GPU, or as many as EDT_CPU_SLOTS says."""
    if environment.devices() == "auto" and torch.cuda.is_available():
        return len(local.devices_here(FRAMEWORK))
    return environment.cpu_slots() if os.environ.get("EDT_CPU_SLOTS") else 1
