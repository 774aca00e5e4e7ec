"""A user's own loop on the one device of a plain process, without other engines or a coordinator."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import torch
from torch import Tensor, nn

from edt_runner.engine.telemetry import MetricSums
from edt_runner.errors import NotFinite
from edt_runner.frameworks.finite import judging
from edt_runner.launch.user_loop_adapter import UserLoopTrainable
from edt_runner.launch.user_loop_body import BodyRun
from edt_runner.loader import batch_requests
from edt_runner.schedule import Step, StepKind
from edt_runner.seeds import step_seed
from edt_runner.splits import Span, children
from edt_runner.training import Training


class SoloEngine:
    """Computes all steps of a training, one after the other.

    The loop's body computes the micro-batches. They have the same samples, in the same order and under the same seeds,
    as in a job's engines, and the same tree adds up the gradients. On one kind of device, the weights are therefore
    equal, to the bit, to those of any number of engines. Validations and callbacks run as there. No files are written.

    Args:
        training: the training.
        model: the user's model, which stays on its device.
    """

    def __init__(self, training: Training, model: nn.Module) -> None:
        request, trainable = training.request, training.request.trainable
        assert isinstance(trainable, UserLoopTrainable)
        self._training, self._schedule = training, training.schedule
        self._device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        self._loop = trainable.adapter_on(self._device, request.options)
        self._adapter, self._hooks = training.with_callbacks(judging(self._loop, request.on_nonfinite), runs=True)
        self._loop.try_validation(training.samples.probe_batch(min(2, training.schedule.batch_size)))
        self._sums = MetricSums(self._loop.width)
        self._loader = training.loader(request.loader_processes)
        self._free: dict[StepKind, list[Tensor]] = {kind: [] for kind in StepKind}
        """Flat vectors that may be overwritten."""

    def body_runs(self) -> Iterator[BodyRun]:
        """Yield all micro-batches of training steps, in order. The caller closes each one before it asks for the next.
        After the last micro-batch of a step, the optimizer takes its step."""
        schedule, observe = self._schedule, self._training.request.observe_step
        seed, all_of_step = self._training.seed, range(schedule.micro_batches)
        steps = map(schedule.at, range(schedule.length))
        if self._hooks is not None:
            self._hooks.begin()
        self._loader.restart(request for step in steps for request in batch_requests(schedule, seed, step, all_of_step))
        try:
            for offset in range(schedule.length):
                step = schedule.at(offset)
                if observe is not None and step.kind is StepKind.TRAIN:
                    observe(step, 1, schedule.micro_batches, True)
                reduced = yield from self._reduced((0, schedule.micro_batches), offset, step)
                self._commit(reduced, offset, step)
                self._free[step.kind].append(reduced)
                if step.ends_epoch and self._ended(step):
                    return
        finally:
            self._loop.marks.close()
            self._loader.close()

    def _commit(self, reduced: Tensor, offset: int, step: Step) -> None:
        trains, training = step.kind is StepKind.TRAIN, self._training
        if trains:
            framework = training.request.trainable.framework
            framework.seed_step(step_seed(training.seed, offset, step.micro_batches))
            try:
                self._adapter.apply(reduced)
            except NotFinite as error:
                where = f"step {step.training_steps_before + 1} (epoch {step.epoch + 1})"
                raise error.at(where) from None
        if step.index == 0:
            self._sums.reset(step.kind)
        if not trains or not self._adapter.left_out:
            self._sums.add(step.kind, self._loop.sums(step.kind, reduced))
        if self._hooks is not None and self._hooks.has_step_hooks:
            self._hooks.end_step(step, self._loop.values(self._sums.of(step.kind)))

    def _ended(self, step: Step) -> bool:
        """Run what belongs to the end of an epoch. Returns whether the training is over."""
        values = self._loop.values(self._sums.of(StepKind.TRAIN))
        if step.kind is StepKind.VALIDATE:
            validated = self._loop.values(self._sums.of(StepKind.VALIDATE))
            values |= {f"val_{name}": value for name, value in validated.items()}
        if self._hooks is None:
            return False
        self._hooks.end_epoch(step.epoch, values, last=step.epoch + 1 == self._schedule.epochs, saves=False)
        return self._hooks.stopped

    def _reduced(self, span: Span, offset: int, step: Step) -> Generator[BodyRun, None, Tensor]:
        """The sum over the micro-batches ``span``, by the same tree that a group uses."""
        if span[1] - span[0] == 1:
            return (yield from self._local(span[0], offset, step))
        first, second = children(span)
        left = yield from self._reduced(first, offset, step)
        right = yield from self._reduced(second, offset, step)
        self._free[step.kind].append(right)
        return left.add_(right)

    def _local(self, index: int, offset: int, step: Step) -> Generator[BodyRun, None, Tensor]:
        """The flat vector of one micro-batch; zeros if the micro-batch has no samples."""
        schedule, free = self._schedule, self._free[step.kind]
        if free:
            local = free.pop()
        else:
            local = torch.zeros(self._loop.size(step.kind), dtype=self._loop.dtype, device=self._device)
        count = len(schedule.samples(self._training.seed, step, index))
        if not count:
            return local.zero_()
        seed = step_seed(self._training.seed, offset, index)
        if step.kind is StepKind.VALIDATE:
            self._loop.evaluate(self._loader.next(), count, seed, local)
        else:
            yield self._loop.body_run(self._loader.next(), count, schedule.sample_count(step), seed, local)
        return local
