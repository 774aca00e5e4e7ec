"""A user's own PyTorch loop, which any number of engines can train.

The user writes the loop once, and every process of a job runs it. In an engine, the loop's body computes the engine's
micro-batches, and the loop never ends. In the driver, the body does not run, and the loop ends when the training is
complete. In a plain process with one device, the body computes all micro-batches, one after the other, with the same
arithmetic (``user_loop_solo``).
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Protocol

import torch
from torch import nn

from edt_runner import context, environment
from edt_runner.engine import main
from edt_runner.engine.link import leave_process
from edt_runner.errors import UsageError
from edt_runner.frameworks.computing import Asked
from edt_runner.frameworks.options import StepOptions
from edt_runner.frameworks.pytorch import FRAMEWORK
from edt_runner.launch import train
from edt_runner.launch.seeding import seed_plain_process
from edt_runner.launch.user_loop_adapter import UserLoopTrainable, movable, not_called
from edt_runner.launch.user_loop_body import BodyRun
from edt_runner.launch.user_loop_lines import Loop, NaturalLines
from edt_runner.launch.user_loop_progress import Progress
from edt_runner.launch.user_loop_solo import SoloEngine
from edt_runner.lr_scaling import emulation
from edt_runner.schedule import Schedule, Step
from edt_runner.training import Training, TrainRequest, seed_of

Observer = Callable[[int, int, Sequence[int], bool], None]


class LoopOptimizer(Protocol):
    """One of the user's optimizers, whose ``step()`` is replaced while the loop runs."""

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...

    def catch(self, loop: Loop) -> None:
        """Replace ``step()``: while ``loop.body`` is not None, it calls its ``step``; else it updates the weights."""

    def release(self) -> None: ...


@dataclass(frozen=True)
class LoopOptions:
    """What a user asks of a loop, after it has been checked.

    Args:
        name: the loader's name in error messages.
        global_batch: samples of an update.
        micro_batches: number of slots that the job may hold -> number of micro-batches of an update.
        metrics: names of what the loop reports beside the loss.
        request: makes a ``TrainRequest`` from those of its fields that follow from the loop.
        options: what is asked of steps.
        loss_reduction: "sample", "token" or "sum", as in ``FabricModel``.
        token_count: as in ``FabricModel``.
        validation: a map-style data set; None: there is no validation.
        validation_step: (model, batch) -> loss, or a dict of loss and metrics.
        validation_freq: epochs between two validations.
        reports_means: whether ``report`` gets the mean over a micro-batch also if the loss is a sum.
    """

    name: str
    global_batch: int
    micro_batches: Callable[[int], int]
    metrics: tuple[str, ...]
    request: Callable[..., TrainRequest]
    options: StepOptions = field(default_factory=StepOptions)
    loss_reduction: str = "sample"
    token_count: Callable[[Any], int] | None = None
    validation: Any = None
    validation_step: Callable[..., Any] | None = None
    validation_freq: int = 1
    reports_means: bool = False


class UserLoop:
    """The loop over a training's batches. It can be iterated once.

    Args:
        options: what the user asks for.
        dataset: a map-style data set.
        model: the user's model, on any device; an engine moves it to its own device.
        optimizers: the user's optimizers.
        observe: called before each step with (engines that share the step, micro-batches of this engine, the sizes of
            all micro-batches of a full step in samples, whether this engine is the first); None: nothing is.
    """

    epoch = 0
    """Complete passes over the data set. In the body, the epoch of the present batch."""
    step = 0
    """Complete updates over all epochs. In the body, the updates before the one of the present batch."""
    ends_epoch = False
    """In the body, whether the present batch belongs to the last update of its epoch."""
    engines = 1
    """In the body, how many engines share the present update."""
    leads = True
    """In the body, whether this process is the one that prints what shall be printed once."""

    def __init__(
        self,
        options: LoopOptions,
        dataset: Any,
        model: nn.Module,
        optimizers: Sequence[LoopOptimizer],
        observe: Observer | None = None,
    ) -> None:
        self._options, self._dataset, self._model = options, dataset, model
        self._loop_optimizers, self._observer = optimizers, observe
        self._body_runs: queue.SimpleQueue[BodyRun | BaseException] = queue.SimpleQueue()
        """From the engine's thread to the main thread: the next micro-batch, or the error that ended the engine."""
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        """From the main thread to the engine's thread: the body has run."""
        self._run: BodyRun | None = None
        self._schedule: Schedule | None = None
        self._progress = Progress()
        self._begun = False

    @property
    def metrics(self) -> Mapping[str, float]:
        """Values of the last epoch that has ended, by name: means over all its samples, whichever engine computed
        them. Those of a validation are named ``val_…``. Empty in the first epoch."""
        return dict(self._progress.values)

    # ── for the body ──────────────────────────────────────────────────────────────────────────────────────────
    def report(self, loss: Any, **metrics: Any) -> None:
        """Report this batch's loss and metrics, for logs and pages. The loop's body calls this.

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

    @property
    def body(self) -> BodyRun | None:
        """The run of the loop's body; None: the body is not running."""
        return self._run

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
            self._end(train.train(request, self._options.name))

    def _in_engine(self, training: Training, role: context.Context) -> Iterator[Any]:
        parts = main.prepared(training, role)
        self._schedule = training.schedule

        def live() -> None:
            try:
                main.live(parts)
            except BaseException as error:
                self._body_runs.put(error)

        with self._caught(training):
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
        with self._caught(training):
            for run in SoloEngine(training, self._model).body_runs():
                yield from self._body(run)
        self._end(training)

    @contextlib.contextmanager
    def _caught(self, training: Training) -> Iterator[None]:
        """A context in which optimizers and other objects ask the body before they act."""
        trainable = training.request.trainable
        assert isinstance(trainable, UserLoopTrainable)
        optimizers = [each.optimizer for each in self._loop_optimizers]
        lines = NaturalLines(self, optimizers, movable(trainable.objects(training.request.options)))
        with contextlib.ExitStack() as stack:
            for each in self._loop_optimizers:
                each.catch(self)
                stack.callback(each.release)
            stack.callback(lines.release)
            lines.catch()
            yield

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

    def _end(self, training: Training) -> None:
        """Show that the training is over, perhaps before its last epoch."""
        updates = max(1, -(-len(self._dataset) // self._options.global_batch))
        self.epoch = self._progress.epochs
        self.step = updates * self.epoch
        training.request.trainable.finish()

    # ── the request to the engine ─────────────────────────────────────────────────────────────────────────────
    def _request(self, slots: int) -> TrainRequest:
        options = self._options
        micro_batches = min(options.global_batch, options.micro_batches(slots))
        trainable = UserLoopTrainable(
            self._model,
            tuple(each.optimizer for each in self._loop_optimizers),
            Asked(
                not_called,
                validation_step=options.validation_step,
                loss_reduction=options.loss_reduction,
                token_count=options.token_count,
            ),
            dict.fromkeys(options.metrics, not_called),
            run_body=self._run_body,
            name=options.name,
            reports_means=options.reports_means,
            progress=self._progress,
        )
        notes: tuple[str, ...] = ()
        if micro_batches < slots:
            notes = (
                f"A batch of {options.global_batch} samples has {micro_batches} micro-batches, so at most so many "
                f"engines share a step; the job may hold {slots}. A smaller device_batch_size makes more of them.",
            )
        return options.request(
            trainable=trainable,
            notes=notes,
            datasets_function=lambda: (self._dataset, options.validation),
            batch_size=-(-options.global_batch // micro_batches),
            micro_batches=micro_batches,
            validation_freq=options.validation_freq if options.validation is not None else 0,
            step_samples=options.global_batch,
            observe_step=self._observe,
            audit_interval=0,  # the body of the user's loop cannot run twice for the same samples
            options=trainable.checked_options(options.options),
        )

    def _observe(self, step: Step, engines: int, own: int, leads: bool) -> None:
        schedule = self._schedule
        assert schedule is not None
        self.epoch, self.step, self.ends_epoch = step.epoch, step.training_steps_before, step.last
        self.engines, self.leads = engines, leads
        self._progress.step = self.step
        if self._observer is not None:
            whole = (schedule.batch_size,) * step.micro_batches if schedule.follows_engines else schedule.step_sizes(0)
            self._observer(engines, own, whole, leads)


def seed_for_local_engines() -> None:
    """Seed a plain process that will start engines, so that it and they make the same data and first weights."""
    if context.current() is None and slots_here() > 1:
        seed_plain_process()


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
