"""Which samples belong to which micro-batch, and which micro-batches to which engine. Pure.

The samples of a step's micro-batches follow from the schedule alone. Then the micro-batches are split over the engines.
The first never depends on the second. Where the batch follows the engines, each micro-batch is a step of its own as far
as its samples are concerned.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edt_runner.schedule.schedule import Schedule, Step, StepKind
from edt_runner.schedule.seeds import Permutation, key_of

Split = tuple[Sequence[int], ...]
"""Which micro-batches of a step each rank computes, ascending; all of them together are the step's."""


def step_sizes(schedule: Schedule, index: int) -> tuple[int, ...]:
    """Samples of each of the E micro-batches of step ``index`` of an epoch.

    Full steps give ``batch_size`` to each, or nearly so where ``step_samples`` are fewer. The samples that are left for
    the last step are split evenly; nothing is padded, dropped or repeated. Micro-batches of one sample (which batch
    normalization refuses) are avoided by giving two to fewer of them, and a last step of a single sample takes one more
    from the step before it.
    """
    size, number, total = schedule.batch_size, schedule.micro_batches, _step_total(schedule, index)
    if total == size * number:
        return (size,) * number
    if (size > 2 and number < total < 2 * number) or 1 < total <= number:
        active = max(1, total // 2)  # pairs, and one of three where the number is odd
    else:
        active = min(number, total)
    base, extra = divmod(total, active)
    if base + (extra > 0) > size:  # a batch of two cannot hold three
        active, (base, extra) = min(number, total), divmod(total, min(number, total))
    return tuple(base + (each < extra) if each < active else 0 for each in range(number))


def _step_total(schedule: Schedule, index: int) -> int:
    """Samples of a whole step. A lone last sample gets company from the step before."""
    full, steps = schedule.global_batch, schedule.steps_per_epoch
    rest = schedule.train_samples - (steps - 1) * full
    lonely = rest == 1 and steps > 1 and schedule.batch_size > 2
    if index == steps - 1:
        return rest + lonely
    return full - (lonely and index == steps - 2)


def step_offset(schedule: Schedule, index: int) -> int:
    """Position in the epoch's order at which step ``index`` begins."""
    if index == schedule.steps_per_epoch - 1:
        return schedule.train_samples - _step_total(schedule, index)
    return index * schedule.global_batch


def sample_count(schedule: Schedule, step: Step) -> int:
    """Samples of a whole training step."""
    if not schedule.follows_engines:
        return sum(step_sizes(schedule, step.index))
    return sum(_step_total(schedule, index) for index in range(step.index, step.index + step.micro_batches))


def samples(schedule: Schedule, seed: int, step: Step, micro_batch: int) -> npt.NDArray[np.int64]:
    """Sample indices of one micro-batch of ``step``.

    Args:
        schedule: of the training.
        seed: of the job.
        step: training or evaluation step.
        micro_batch: 0 .. ``step.micro_batches`` - 1.

    Returns:
        int64 array of shape (samples,), which may be empty: indices into the training set, shuffled by (seed, epoch) or
        in its own order, or into the test set, in its own order.
    """
    if step.kind is StepKind.VALIDATE:
        first = (step.index * schedule.micro_batches + micro_batch) * schedule.batch_size
        return np.arange(first, max(first, min(first + schedule.batch_size, schedule.test_samples)))
    index, micro_batch = (step.index + micro_batch, 0) if schedule.follows_engines else (step.index, micro_batch)
    sizes = step_sizes(schedule, index)
    if not sizes[micro_batch]:
        return np.empty(0, dtype=np.int64)
    start = step_offset(schedule, index) + sum(sizes[:micro_batch])
    places = np.arange(start, start + sizes[micro_batch])
    return Permutation(schedule.train_samples, key_of(seed, step.epoch))(places) if schedule.shuffled else places


def even_split(micro_batches: int, engines: int) -> tuple[range, ...]:
    """The micro-batches of each of ``engines`` engines: contiguous, as equal in number as can be, the longer parts
    first.

    The busiest engine has ceil(micro_batches / engines), so only sizes at which that drops are worth having.
    """
    base, extra = divmod(micro_batches, engines)
    starts = [rank * base + min(rank, extra) for rank in range(engines + 1)]
    return tuple(range(starts[rank], starts[rank + 1]) for rank in range(engines))
