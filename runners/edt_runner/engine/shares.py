"""Who works on which samples. Pure; room: runners.

First by logical worker: the sizes of a step's E micro-batches follow from the schedule alone. Then by engine:
the logical workers are dealt to W engines in contiguous runs. The first never depends on the second. Where the global
batch follows the engines, each micro-batch is a step of its own as far as its samples are concerned.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edt_runner.engine.permutation import Permutation, key_of
from edt_runner.engine.schedule import Schedule, Tick, TickKind


def step_sizes(schedule: Schedule, index: int) -> tuple[int, ...]:
    """Samples of each of the E micro-batches of step ``index`` of an epoch.

    Full steps give ``batch_size`` to each, or nearly so where ``step_samples`` are fewer. The samples that are left for
    the last step are split evenly; nothing is padded, dropped or repeated. Micro-batches of one sample (which batch
    normalization refuses) are avoided by giving two to fewer workers, and a last step of a single sample takes one more
    from the step before it.
    """
    size, workers, total = schedule.batch_size, schedule.logical_workers, _step_total(schedule, index)
    if total == size * workers:
        return (size,) * workers
    if (size > 2 and workers < total < 2 * workers) or 1 < total <= workers:
        active = max(1, total // 2)  # pairs, and one of three where the number is odd
    else:
        active = min(workers, total)
    base, extra = divmod(total, active)
    if base + (extra > 0) > size:  # a batch of two cannot hold three
        active, (base, extra) = min(workers, total), divmod(total, min(workers, total))
    return tuple(base + (worker < extra) if worker < active else 0 for worker in range(workers))


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


def tick_total(schedule: Schedule, tick: Tick) -> int:
    """Samples of a whole training tick."""
    if not schedule.follows_engines:
        return sum(step_sizes(schedule, tick.index))
    return sum(_step_total(schedule, index) for index in range(tick.index, tick.index + tick.workers))


def samples(schedule: Schedule, seed: int, tick: Tick, worker: int) -> npt.NDArray[np.int64]:
    """Sample indices of logical worker ``worker`` at ``tick``: of the training set, shuffled by (seed, epoch) or
    in its own order, or of the test set, in its own order."""
    if tick.kind is TickKind.VALIDATE:
        first = (tick.index * schedule.logical_workers + worker) * schedule.batch_size
        return np.arange(first, max(first, min(first + schedule.batch_size, schedule.test_samples)))
    index, worker = (tick.index + worker, 0) if schedule.follows_engines else (tick.index, worker)
    sizes = step_sizes(schedule, index)
    if not sizes[worker]:
        return np.empty(0, dtype=np.int64)
    start = step_offset(schedule, index) + sum(sizes[:worker])
    places = np.arange(start, start + sizes[worker])
    return Permutation(schedule.train_samples, key_of(seed, tick.epoch))(places) if schedule.shuffled else places


def logical_map(workers: int, engines: int) -> tuple[range, ...]:
    """Contiguous runs of logical workers for each of ``engines`` engines, the longer runs first.

    The busiest engine has ceil(workers / engines), so only sizes at which that drops are worth having.
    """
    base, extra = divmod(workers, engines)
    starts = [rank * base + min(rank, extra) for rank in range(engines + 1)]
    return tuple(range(starts[rank], starts[rank + 1]) for rank in range(engines))
