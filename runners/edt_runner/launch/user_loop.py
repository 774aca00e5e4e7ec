"""A user's own PyTorch loop, trained by as many engines as there are.

The loop is written once and every process of a job runs it: in an engine its body computes the engine's
micro-batches and never comes to its end; in the driver the body does not run, and the loop ends when all is trained;
in a plain process of one device the body computes all micro-batches, one after the other, with the same arithmetic.
"""

from __future__ import annotations

import dis
import inspect
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from edt_runner import context, environment
from edt_runner.engine import main
from edt_runner.engine.link import leave_process
from edt_runner.errors import UsageError
from edt_runner.frameworks.pytorch import FRAMEWORK
from edt_runner.launch import train
from edt_runner.launch.user_loop_adapter import BodyRun, Rates, UserLoopTrainable, not_called
from edt_runner.loader import batch_requests
from edt_runner.lr_scaling import emulation
from edt_runner.schedule import Schedule, Span, Step, StepKind, children
from edt_runner.seeds import step_seed
from edt_runner.training import Training, TrainRequest, seed_of


class LoopOptimizer(Protocol):
    """The user's optimizer, whose ``step()`` is caught while the loop runs."""

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...

    @property
    def averages(self) -> bool:
        """The micro-batches' gradients are averaged, as for a mean loss; else added up."""

    def catch(self, loop: UserLoop) -> None:
        """From now on ``step()`` means ``loop.take_step`` as long as ``loop.in_body``, and else an update."""

    def release(self) -> None: ...


@dataclass(frozen=True)
class LoopOptions:
    """What a user asks of a loop, checked.

    Args:
        name: of the loader, for errors.
        global_batch: samples of an update.
        device_batch: the most samples that a device can hold at a time.
        metrics: names of what the loop reports beside the loss.
        lr_scheduler: a torch scheduler that needs no metric; None: learning rates stay as they are.
        per_step: the scheduler moves with the updates; else with the epochs.
        request: ``TrainRequest`` with all that does not follow from the loop itself.
    """

    name: str
    global_batch: int
    device_batch: int
    metrics: tuple[str, ...]
    lr_scheduler: Any
    per_step: bool
    request: Callable[..., TrainRequest]


class UserLoop:
    """Iterate over it, once.

    Args:
        options: what the user asks for.
        dataset: map-style.
        model: on whatever device; an engine moves it to its own.
        optimizer: the optimizer.
        observe: called before each step with (engines that share it, micro-batches of this one, the sizes of all
            micro-batches of a full step, whether this engine is the first).
    """

    epoch = 0
    """Passes over the data set that are complete. In the body: of the present batch."""
    step = 0
    """Updates that are complete, over all epochs. In the body: before the present batch's."""

    def __init__(
        self,
        options: LoopOptions,
        dataset: Any,
        model: nn.Module,
        optimizer: LoopOptimizer,
        observe: Callable[[int, int, Sequence[int], bool], None],
    ) -> None:
        self._options, self._dataset, self._model = options, dataset, model
        self._loop_optimizer, self._observer = optimizer, observe
        self._body_runs: queue.SimpleQueue[BodyRun | BaseException] = queue.SimpleQueue()
        """From the engine's thread to the main one: the next micro-batch, or what ended the engine."""
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        """The body has run: the engine goes on."""
        self._run: BodyRun | None = None
        self._schedule: Schedule | None = None
        self._begun = False

    # ── for the body ──────────────────────────────────────────────────────────────────────────────────────────
    def report(self, loss: Any, **metrics: Any) -> None:
        """For logs and pages: this batch's mean loss and the metrics that were named, as numbers or tensors of one."""
        if self._run is None:
            raise UsageError(f"{self._options.name}: report() was called outside of the loop's body")
        unknown = sorted(set(metrics) - set(self._options.metrics))
        if unknown:
            raise UsageError(
                f"{self._options.name}: report() got {', '.join(unknown)}, takes what metrics= names: "
                f"{', '.join(self._options.metrics) or 'nothing'}"
            )
        self._run.report({"loss": loss, **metrics})

    # ── for the optimizer ─────────────────────────────────────────────────────────────────────────────────────
    @property
    def in_body(self) -> bool:
        """Whether the body of the loop runs."""
        return self._run is not None

    def take_step(self, closure: Callable[[], Any] | None) -> Any:
        """The user's ``optimizer.step(closure)``; returns what that returns."""
        assert self._run is not None
        return self._run.step(closure)

    # ── the loop ──────────────────────────────────────────────────────────────────────────────────────────────
    def __iter__(self) -> Iterator[Any]:
        if self._begun:
            raise UsageError(
                f"{self._options.name}: iterated a second time; takes one loop over all epochs, of which epochs= "
                "says the number"
            )
        self._begun = True
        role = context.current()
        slots = slots_here() if role is None else role.spec.max_engines
        request = self._request(max(1, slots))
        if role is not None and role.role == "engine":
            train.claim(self._options.name)
            yield from self._in_engine(Training(request, slots, seed_of(request, role)), role)
        elif role is None and slots <= 1 and emulation.current() is None:
            yield from self._in_this_process(Training(request, 1, seed_of(request, None)))
        else:
            train.train(request, self._options.name)
            updates = max(1, -(-len(self._dataset) // self._options.global_batch))
            self.epoch, self.step = request.epochs, updates * request.epochs

    def _in_engine(self, training: Training, role: context.Context) -> Iterator[Any]:
        parts = main.prepared(training, role)
        self._schedule = training.schedule

        def live() -> None:
            try:
                main.live(parts)
            except BaseException as error:
                self._body_runs.put(error)

        self._loop_optimizer.catch(self)
        threading.Thread(target=live, name="edt-engine", daemon=True).start()
        while True:
            found = self._body_runs.get()  # signal handlers run meanwhile
            if isinstance(found, BaseException):
                raise found
            yield from self._body(found)
            self._done.put(None)

    def _run_body(self, run: BodyRun) -> None:
        """In the engine's thread: let the body run; returns when it has. If the body raises, this never returns: the
        main thread ends the process."""
        self._body_runs.put(run)
        self._done.get()

    def _in_this_process(self, training: Training) -> Iterator[Any]:
        self._schedule = training.schedule
        self._loop_optimizer.catch(self)
        try:
            for run in SoloEngine(training, self._model).body_runs():
                yield from self._body(run)
        finally:
            self._loop_optimizer.release()
        self.epoch, self.step = training.schedule.epochs, training.schedule.steps

    def _body(self, run: BodyRun) -> Iterator[Any]:
        """The body of the loop, once."""
        self._run = run
        try:
            yield run.batch
        except GeneratorExit:
            _end_engine_that_left(self._options.name)
            raise
        finally:
            self._run = None
        run.close()

    # ── what the engine is asked for ──────────────────────────────────────────────────────────────────────────
    def _request(self, slots: int) -> TrainRequest:
        options = self._options
        micro_batches = min(options.global_batch, max(-(-options.global_batch // options.device_batch), slots))
        trainable = UserLoopTrainable(
            self._model,
            self._loop_optimizer.optimizer,
            not_called,
            dict.fromkeys(options.metrics, not_called),
            averages=self._loop_optimizer.averages,
            rates=Rates(options.lr_scheduler, 0 if options.per_step else max(1, len(self._dataset))),
            run_body=self._run_body,
            name=options.name,
        )
        return options.request(
            trainable=trainable,
            datasets_function=lambda: (self._dataset, None),
            batch_size=-(-options.global_batch // micro_batches),
            micro_batches=micro_batches,
            validation_freq=0,
            step_samples=options.global_batch,
            observe_step=self._observe,
        )

    def _observe(self, step: Step, engines: int, own: int, leads: bool) -> None:
        schedule = self._schedule
        assert schedule is not None
        self.epoch, self.step = step.epoch, step.training_steps_before
        whole = (schedule.batch_size,) * step.micro_batches if schedule.follows_engines else schedule.step_sizes(0)
        self._observer(engines, own, whole, leads)


class SoloEngine:
    """All steps of a training, computed by the body of the loop on the one device of a plain process, without a group
    and a coordinator.

    It computes as the engines of a job do: the same samples in the same order under the same seeds, and the gradients
    summed by the same tree. So the weights are those of any number of engines, to the bit on one kind of device.

    Args:
        training: what is trained.
        model: stays on the device on which it is.
    """

    def __init__(self, training: Training, model: nn.Module) -> None:
        trainable = training.request.trainable
        assert isinstance(trainable, UserLoopTrainable)
        self._training, self._schedule = training, training.schedule
        self._device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        self._adapter = trainable.adapter_on(self._device)
        self._loader = training.loader(training.request.loader_processes)
        self._free: list[Tensor] = []
        """Flat vectors that may be written again."""

    def body_runs(self) -> Iterator[BodyRun]:
        """All micro-batches, in order; each is to be closed before the next is asked for. Between the last of a step
        and the first of the next the optimizer takes its step."""
        schedule, observe = self._schedule, self._training.request.observe_step
        seed, all_of_step = self._training.seed, range(schedule.micro_batches)
        steps = map(schedule.at, range(schedule.length))
        self._loader.restart(request for step in steps for request in batch_requests(schedule, seed, step, all_of_step))
        try:
            for offset in range(schedule.length):
                step = schedule.at(offset)
                if observe is not None:
                    observe(step, 1, schedule.micro_batches, True)
                reduced = yield from self._reduced((0, schedule.micro_batches), offset, step)
                self._adapter.apply(reduced)
                self._free.append(reduced)
        finally:
            self._loader.close()

    def _reduced(self, span: Span, offset: int, step: Step) -> Generator[BodyRun, None, Tensor]:
        """The sum over the micro-batches ``span``, by the tree by which a group sums."""
        if span[1] - span[0] == 1:
            return (yield from self._local(span[0], offset, step))
        first, second = children(span)
        left = yield from self._reduced(first, offset, step)
        right = yield from self._reduced(second, offset, step)
        self._free.append(right)
        return left.add_(right)

    def _local(self, index: int, offset: int, step: Step) -> Generator[BodyRun, None, Tensor]:
        """The flat vector of one micro-batch; zeros where it has no samples."""
        adapter, sizes = self._adapter, self._schedule.step_sizes(step.index)
        if self._free:
            local = self._free.pop()
        else:
            local = torch.zeros(adapter.size(StepKind.TRAIN), dtype=adapter.dtype, device=self._device)
        if not sizes[index]:
            return local.zero_()
        seed = step_seed(self._training.seed, offset, index)
        yield adapter.body_run(self._loader.next(), sizes[index], sum(sizes), seed, local)
        return local


def seed_for_local_engines() -> None:
    """Where a plain process will start engines: let them and itself make the same data and the same first weights."""
    if context.current() is None and slots_here() > 1:
        train.seed_plain_process()


def slots_here() -> int:
    """Engines that a process without a platform would start: one a GPU, or as many as EDT_CPU_SLOTS says."""
    if environment.devices() == "auto" and torch.cuda.is_available():
        return len(train.devices_here(FRAMEWORK))
    return environment.cpu_slots() if os.environ.get("EDT_CPU_SLOTS") else 1


_DROPPING = frozenset({"POP_TOP", "POP_ITER", "SWAP"})
"""What ``break`` and ``return`` are made of: the loop's iterator is dropped. Instructions that raise are others."""


def _end_engine_that_left(name: str) -> None:
    """End this process if it is an engine whose user has left the loop ``name`` by ``break`` or ``return``; return
    otherwise.

    It is called while the loop's generator is closed. Code behind the loop is the driver's, so an engine that comes
    there has to end. A generator is closed where its loop is left, whether by ``break`` or by an exception on its way
    out; which of the two it is, only the instruction tells at which the loop's frame stands. An exception needs no
    help: it ends the process by itself.
    """
    role, frame = context.current(), _dropping(sys._getframe(1))
    if role is None or role.role != "engine" or role.report_failure is None or frame is None:
        return
    message = (
        f"UsageError: {name}: the loop was left by break or return; takes a loop that runs to its end, since each "
        "engine has batches of its own and the code behind the loop belongs to the driver"
    )
    stack = traceback.format_list(traceback.extract_stack(frame, limit=1))
    text = "".join(["Traceback (most recent call last):\n", *stack, message, "\n"])
    sys.stderr.write(text)
    role.report_failure(message, text)
    leave_process(1)


def _dropping(frame: FrameType | None) -> FrameType | None:
    """The user's frame that has left the loop; None: it was not left so. Between it and the loader may be generators,
    such as a progress bar's."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] != __name__.partition(".")[0]:
            if frame.f_lasti >= 0 and dis.opname[frame.f_code.co_code[frame.f_lasti]] in _DROPPING:
                return frame
            if not frame.f_code.co_flags & inspect.CO_GENERATOR:
                return None
        frame = frame.f_back
    return None
