"""Deals out the samples of each update of a trace to processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data.distributed import DistributedSampler

from edt_runner.errors import UsageError, whole
from edt_runner.lr_scaling.traces import Trace
from variable_batch_size.collective import world


class CustomSampler(DistributedSampler[Any]):
    """A batch sampler that yields a list of indices for each micro-batch of this process.

    An epoch's order is a permutation that follows from ``seed`` + epoch; it does not depend on the number of processes.
    The order is cut into micro-batches. Update i takes the next trace[i] / minibatch_size of them, which are dealt out
    to the processes in turn. A process without a share of an update still gets one micro-batch, of sample 0, so that
    it takes part in the reduction; its gradient is not used. Samples that the epoch's trace entries do not reach are
    dropped; these are other samples in each epoch.

    Args:
        dataset: the data set, of which only the length is used.
        trace: global batch of each update in samples, in any form that ``edt_runner.lr_scaling.traces.Trace`` takes;
            each entry is a multiple of ``minibatch_size``.
        seed: seed of the order.
        num_replicas: number of processes; None: that of the process group or of torch_xla, or 1.
        rank: this process's number, from 0; None: that in the process group or in torch_xla, or 0.
        minibatch_size: samples of one micro-batch.
        verbose: rank 0 prints a line about the trace.
        dataset_size: number of samples, in place of ``dataset``.
        at_end: what follows the trace's last entry: ``error``, ``hold``, ``cycle`` or ``stop``.

    Raises:
        UsageError: (a ValueError) an argument or an entry of the trace is wrong; for an entry, the message names its
            step and value.
        TraceEnded: (also an IndexError) raised by ``set_epoch`` and later calls if the trace does not have the epoch.
    """

    def __init__(
        self,
        dataset: Any = None,
        trace: Any = None,
        seed: int = 42,
        num_replicas: int | None = None,
        rank: int | None = None,
        minibatch_size: int = 32,
        verbose: bool = True,
        *,
        dataset_size: int | None = None,
        at_end: str = "error",
    ) -> None:
        if (dataset is None) == (dataset_size is None):
            raise UsageError("dataset: takes either a dataset or dataset_size, its number of samples")
        minibatch_size = whole("minibatch_size", minibatch_size)  # NumPy's numbers are accepted; states hold Python's
        own_rank, size = world()
        num_replicas = size if num_replicas is None else num_replicas
        rank = own_rank if rank is None else rank
        super().__init__(range(dataset_size) if dataset is None else dataset, num_replicas, rank)  # type: ignore[arg-type]
        self.seed = int(seed)
        self.minibatch_size = minibatch_size
        self.verbose = verbose
        self.minibatches_per_epoch = self._samples // minibatch_size
        if not self.minibatches_per_epoch:
            raise UsageError(
                f"dataset: got {self._samples} samples, takes at least {minibatch_size}, those of one micro-batch"
            )
        capacity = self.minibatches_per_epoch * minibatch_size
        self._trace = Trace(trace, micro_batch=minibatch_size, capacity=capacity, at_end=at_end)
        self.first = 0
        """The update at which iteration begins. It is not 0 in an epoch that was loaded in its middle."""
        self.position = 0
        """Updates of the epoch that have been made. The optimizer sets it."""
        self._loaded = False
        if verbose and rank == 0:
            begins = ", ".join(str(entry) for entry in (self._trace.entries or [self._trace[0]])[:2])
            print(
                f"    CustomSampler: the trace begins with {begins}; {self.minibatches_per_epoch} micro-batches of "
                f"{minibatch_size} an epoch"
            )

    @property
    def trace(self) -> list[int] | Trace:
        """All entries; the ``Trace`` itself if it has no end or is not completely known yet."""
        entries = self._trace.entries
        return self._trace if entries is None else entries

    @property
    def max_epoch(self) -> int | None:
        """Number of epochs that the trace fills; None: it has no end, or its end is not known yet."""
        return self._trace.whole_epochs

    @property
    def epoch_samples(self) -> int:
        """Samples of an epoch's whole micro-batches, the most that an epoch trains on."""
        return self.minibatches_per_epoch * self.minibatch_size

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, from 0. In the epoch of a loaded state, continue at the state's place.

        Raises:
            TraceEnded: the trace does not have this epoch.
        """
        self._trace.epoch_range(epoch)
        if epoch != self.epoch or not self._loaded:
            self.first = self.position = 0
        self._loaded = False
        self.epoch = int(epoch)

    def get_epoch_range(self, epoch: int) -> tuple[int, int]:
        """The trace's entries of an epoch: the first, and the first after them."""
        return self._trace.epoch_range(epoch)

    def get_epochtrace(self, epoch: int) -> list[int]:
        """The global batches, in samples, of an epoch's updates."""
        return self._trace.epoch(epoch)

    def get_batch_assignments(self, epochtrace: Sequence[int]) -> list[list[int]]:
        """The micro-batches of this process for each update, as numbers in the epoch's order."""
        shares: list[list[int]] = []
        start = 0
        for batch in epochtrace:
            end = start + batch // self.minibatch_size
            shares.append(list(range(start + self.rank, end, self.num_replicas)))
            start = end
        return shares

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        order = torch.randperm(self._samples, generator=generator).tolist()
        size = self.minibatch_size
        for share in self._shares():
            for minibatch in share:
                yield order[minibatch * size : (minibatch + 1) * size]
            if not share:
                yield [0] * size

    def __len__(self) -> int:
        """How many micro-batches the iteration yields, and so how often the optimizer's ``step`` is called."""
        return sum(max(1, len(share)) for share in self._shares())

    def __bool__(self) -> bool:
        return True

    def state_dict(self) -> dict[str, int]:
        """The place of the training: after the last update that was made. It fits any number of processes."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "trace_start": self.get_epoch_range(self.epoch)[0],
            "seed": self.seed,
            "minibatch_size": self.minibatch_size,
            "samples": self._samples,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was: iteration begins with the next update of its epoch.

        This also holds if ``set_epoch`` is called with that epoch first.

        Raises:
            UsageError: the state is of other data, another order, another micro-batch size, or a trace in which the
                epoch begins elsewhere.
        """
        epoch = int(state_dict["epoch"])
        own = {
            "seed": self.seed,
            "minibatch_size": self.minibatch_size,
            "samples": self._samples,
            "trace_start": self.get_epoch_range(epoch)[0],
        }
        for name, value in own.items():
            if state_dict[name] != value:
                raise UsageError(f"state_dict: got {name} {state_dict[name]}, takes {value}, that of this sampler")
        self.epoch = epoch
        self.first = self.position = int(state_dict["position"])
        self._loaded = True

    @property
    def _samples(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def _shares(self) -> list[list[int]]:
        return self.get_batch_assignments(self.get_epochtrace(self.epoch))[self.first :]
