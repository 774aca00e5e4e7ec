"""A global batch in micro-batches, none above what a GPU holds and no sample lost. Room: runners; pure."""

from __future__ import annotations

from dataclasses import dataclass

from runai._arguments import usage


@dataclass(frozen=True)
class Split:
    """Who computes how much of one update."""

    steps: int
    """Micro-batches of each GPU."""
    batch_size: int
    """Samples of the largest micro-batch."""
    sizes: tuple[int, ...]
    """Samples of every micro-batch, step by step and in a step GPU by GPU: steps x gpus numbers that differ by at most
    one. A zero is possible in the last places, where there are fewer samples than micro-batches."""

    @property
    def gpus(self) -> int:
        return len(self.sizes) // self.steps

    @property
    def global_batch_size(self) -> int:
        return sum(self.sizes)

    @property
    def steps_samples(self) -> tuple[int, ...]:
        """Samples of each step over all GPUs: what a loader in front of ``nn.DataParallel`` has to give."""
        return tuple(sum(self.sizes[start : start + self.gpus]) for start in range(0, len(self.sizes), self.gpus))

    @property
    def even(self) -> bool:
        """All micro-batches are of one size, so that their plain mean is the mean of the global batch."""
        return self.global_batch_size == self.batch_size * len(self.sizes)


def split(global_batch: int, max_gpu_batch: int, gpus: int) -> Split:
    """As few steps as ``max_gpu_batch`` allows, of equal sizes as far as that is possible.

    Args:
        global_batch: samples of one update, at least ``gpus``.
        max_gpu_batch: samples that one GPU can hold at a time, at least 1.
        gpus: at least 1.
    """
    if global_batch < gpus:
        raise usage("global_batch_size", global_batch, f"at least one sample for each of {gpus} GPUs")
    steps = -(-global_batch // (max_gpu_batch * gpus))
    sizes = tuple(size for step in shares(global_batch, steps) for size in shares(step, gpus))
    return Split(steps, max(sizes), sizes)


def shares(whole: int, parts: int) -> tuple[int, ...]:
    """``whole`` in ``parts`` whole numbers that differ by at most one, the larger ones first."""
    base, extra = divmod(whole, parts)
    return tuple(base + (index < extra) for index in range(parts))
