"""A user's own PyTorch loop, which any number of engines can train.

The user writes the loop once, and every process of a job runs it. In an engine, the loop's body computes the engine's
micro-batches, and the loop never ends. In the driver, the body does not run, and the loop ends when the training is
complete. In a plain process with one device, the body computes all micro-batches, one after the other, with the same
arithmetic.
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
from edt_runner.frameworks.computing import Asked
from edt_runner.frameworks.pytorch import FRAMEWORK
from edt_runner.launch import train
from edt_runner.launch.user_loop_adapter import BodyRun, Rates, UserLoopTrainable, not_called
from edt_runner.loader import batch_requests
from edt_runner.lr_scaling import emulation
from edt_runner.schedule import Schedule, Span, Step, StepKind, children
from edt_runner.seeds import step_seed
from edt_runner.training import Training, TrainRequest, seed_of


class LoopOptimizer(Protocol):
    """The user's optimizer, whose ``step()`` is replaced while the loop runs."""

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...

    @property
    def averages(self) -> bool:
        """Whether the micro-batches' gradients are averaged, as for a mean loss; else they are added up."""

    def catch(self, loop: UserLoop) -> None:
        """Replace ``step()``: while ``loop.in_body``, it calls ``loop.take_step``; otherwise it updates the weights."""

    def release(self) -> None: ...


@dataclass(frozen=True)
class LoopOptions:
    """What a user asks of a loop, after it has been checked.

    Args:
        name: the loader's name in error messages.
        global_batch: samples of an update.
        device_batch: the most samples that a device can hold at a time.
        metrics: names of what the loop reports beside the loss.
        lr_scheduler: a torch scheduler that needs no metric; None: learning rates do not change.
        per_step: the scheduler moves with the updates; else with the epochs.
        request: makes a ``TrainRequest`` from those of its fields that follow from the loop.
    """

    name: str
    global_batch: int
    device_batch: int
    metrics: tuple[str, ...]
    lr_scheduler: Any
    per_step: bool
    request: Callable[..., TrainRequest]


class UserLoop:
    """The loop over a training's batches. It can be iterated once.

    Args:
        options: what the user asks for.
        dataset: a map-style data set.
        model: the user's model, on any device; an engine moves it to its own device.
        optimizer: the user's optimizer.
        observe: called before each step with (engines that share the step, micro-batches of this engine, the sizes of
            all micro-batches of a full step in samples, whether this engine is the first).
    """

    epoch = 0
    """Complete passes over the data set. In the body, the epoch of the present batch."""
    step = 0
    """Complete updates over all epochs. In the body, the updates before the one of the present batch."""

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
        """From the engine's thread to the main thread: the next micro-batch, or the error that ended the engine."""
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        """From the main thread to the engine's thread: the body has run."""
        self._run: BodyRun | None = None
        self._schedule: Schedule | None = None
        self._begun = False

    # ── for the body ──────────────────────────────────────────────────────────────────────────────────────────
    def report(self, loss: Any, **metrics: Any) -> None:
        """Report this batch's mean loss and metrics, for logs and pages. The loop's body calls this.

        Args:
            loss: a number, or a tensor of one number.
            metrics: values by name; each name must be one of the ``metrics`` that the loop was made with.

        Raises:
            UsageError: a metric's name is unknown, or the call is outside of the loop's body.
        """
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
        """Whether the body of the loop is running."""
        return self._run is not None

    def take_step(self, closure: Callable[[], Any] | None) -> Any:
        """Handle the user's ``optimizer.step(closure)``. Returns what ``closure`` returns, or None."""
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
        request = train.extended(self._request(max(1, slots)))
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
            found = self._body_runs.get()  # while this waits, signal handlers run
            if isinstance(found, BaseException):
                raise found
            yield from self._body(found)
            self._done.put(None)

    def _run_body(self, run: BodyRun) -> None:
        """Let the main thread run the body, and wait until it has. Called in the engine's thread. If the body raises,
        this never returns, because the main thread ends the process."""
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
        """Run the body of the loop once."""
        self._run = run
        try:
            yield run.batch
        except GeneratorExit:
            _end_engine_that_left(self._options.name)
            raise
        finally:
            self._run = None
        run.close()

    # ── the request to the engine ─────────────────────────────────────────────────────────────────────────────
    def _request(self, slots: int) -> TrainRequest:
        options = self._options
        micro_batches = min(options.global_batch, max(-(-options.global_batch // options.device_batch), slots))
        trainable = UserLoopTrainable(
            self._model,
            (self._loop_optimizer.optimizer,),
            Asked(not_called),
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
    """Computes all steps of a training on the one device of a plain process, without other engines or a coordinator.

    The loop's body computes the micro-batches. They have the same samples, in the same order and under the same seeds,
    as in a job's engines, and the same tree adds up the gradients. On one kind of device, the weights are therefore
    equal, to the bit, to those of any number of engines.

    Args:
        training: the training.
        model: the user's model, which stays on its device.
    """

    def __init__(self, training: Training, model: nn.Module) -> None:
        trainable = training.request.trainable
        assert isinstance(trainable, UserLoopTrainable)
        self._training, self._schedule = training, training.schedule
        self._device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        self._adapter = trainable.adapter_on(self._device)
        self._loader = training.loader(training.request.loader_processes)
        self._free: list[Tensor] = []
        """Flat vectors that may be overwritten."""

    def body_runs(self) -> Iterator[BodyRun]:
        """Yield all micro-batches, in order. The caller closes each one before it asks for the next. After the last
        micro-batch of a step, the optimizer takes its step."""
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
        """The sum over the micro-batches ``span``, by the same tree that a group uses."""
        if span[1] - span[0] == 1:
            return (yield from self._local(span[0], offset, step))
        first, second = children(span)
        left = yield from self._reduced(first, offset, step)
        right = yield from self._reduced(second, offset, step)
        self._free.append(right)
        return left.add_(right)

    def _local(self, index: int, offset: int, step: Step) -> Generator[BodyRun, None, Tensor]:
        """The flat vector of one micro-batch; zeros if the micro-batch has no samples."""
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
    """Seed a plain process that will start engines, so that it and they make the same data and first weights."""
    if context.current() is None and slots_here() > 1:
        train.seed_plain_process()


def slots_here() -> int:
    """How many engines a process without a platform starts: one per GPU, or the number in EDT_CPU_SLOTS."""
    if environment.devices() == "auto" and torch.cuda.is_available():
        return len(train.devices_here(FRAMEWORK))
    return environment.cpu_slots() if os.environ.get("EDT_CPU_SLOTS") else 1


_DROPPING = frozenset({"POP_TOP", "POP_ITER", "SWAP"})
"""Instructions of ``break`` and ``return``, which drop the loop's iterator. An exception does not run them."""


def _end_engine_that_left(name: str) -> None:
    """End this process if it is an engine and the user's code left the loop ``name`` by ``break`` or ``return``.

    Called while the loop's generator is closed. The code after the loop is the driver's, so an engine must not reach
    it. A generator is closed when its loop is left, by ``break`` or by an exception. Only the instruction at which the
    loop's frame stands shows which of the two happened. After an exception nothing needs to be done here, because the
    exception ends the process.
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
    """The user's frame that has left the loop by ``break`` or ``return``; None if there is no such frame. Generators,
    such as a progress bar's, may be between that frame and the loader."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] != __name__.partition(".")[0]:
            if frame.f_lasti >= 0 and dis.opname[frame.f_code.co_code[frame.f_lasti]] in _DROPPING:
                return frame
            if not frame.f_code.co_flags & inspect.CO_GENERATOR:
                return None
        frame = frame.f_back
    return None
