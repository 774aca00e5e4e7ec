"""Which micro-batches each engine computes, and the batches that the loader prepares for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from edt_runner.adapter import BatchRequest
from edt_runner.engine import notes
from edt_runner.engine.balance import Balance
from edt_runner.loader import SampleLoader, batch_requests
from edt_runner.schedule import Step
from edt_runner.splits import Split, even_split, split_by
from edt_runner.training import Training


class Assignment:
    """The assignment of micro-batches to engines: even at first, and fewer for an engine that stays slow.

    Every engine makes the same decisions, from the same numbers. Where the membership changes, all begin anew.

    Args:
        training: the training.
        loader: prepares this engine's batches.
    """

    def __init__(self, training: Training, loader: SampleLoader) -> None:
        self._training, self._schedule, self._loader = training, training.schedule, loader
        self._split: Split | None = None
        """The split of the coming step, if it is another one than that of later steps."""
        self._balance = Balance(1)
        self._measures = False
        """Whether the coming training step is measured. The first in a membership is not: it may have been tried
        before, and some engines may have received a state meanwhile."""

    def enter(self, engines: int) -> None:
        """Begin anew, because the membership has changed."""
        self._split, self._measures = None, False
        self._balance.reset(engines)

    def split_next(self, split: Split | None) -> None:
        """Use ``split`` for the coming step only; None: the coming step is split as later ones."""
        self._split = split

    def split_over(self, computing: tuple[str, ...], members: tuple[str, ...], offset: int) -> None:
        """Split the coming step over the engines ``computing`` only, which are some of ``members`` (in rank order)."""
        parts = iter(even_split(self.step_at(offset, len(computing)).micro_batches, len(computing)))
        computes = set(computing)
        self._split = tuple(next(parts) if member in computes else () for member in members)

    def coming(self, offset: int, engines: int) -> Split:
        """Return the split of the coming step, which is the step at ``offset``."""
        return self._split or self._later(self.step_at(offset, engines), engines)

    def step_at(self, offset: int, engines: int) -> Step:
        """Return the step at ``offset`` as ``engines`` engines do it."""
        return self._schedule.at(offset, self._training.widths.at(offset, engines))

    def _later(self, step: Step, engines: int) -> Split:
        if self._schedule.follows_engines:
            return even_split(step.micro_batches, engines)
        return split_by(step.micro_batches, tuple(self._balance.counts(step.micro_batches)))

    def committed(self, split: Split, table: Sequence[Sequence[int]], *, audited: bool) -> bool:
        """Learn from a committed training step.

        Args:
            split: the step's split.
            table: the notes of all engines.
            audited: whether an engine has computed a micro-batch that is not its own. Such a step is not measured.

        Returns:
            Whether later steps are split in another way from now on.
        """
        self._split = None
        if not self._measures or self._schedule.follows_engines:
            self._measures = True
            return False
        if audited:
            return False
        return self._balance.add([len(part) for part in split], notes.busy(table))

    def request_batches(self, offset: int, rank: int, engines: int, kept: Collection[int] = ()) -> None:
        """Let the loader prepare the micro-batches that this engine will compute.

        Args:
            offset: offset of the coming step, before the end of the training.
            rank: of this engine.
            engines: number of engines.
            kept: micro-batches of the coming step that are summed already.
        """
        parts = self.coming(offset, engines)
        first = sorted(set(parts[rank]) - set(kept))
        step = self._schedule.at(offset, width_of(parts))
        self._loader.restart(self._requests(step, offset, first, rank, engines))

    def _requests(
        self, step: Step, offset: int, part: Sequence[int], rank: int, engines: int
    ) -> Iterator[BatchRequest]:
        while True:
            yield from batch_requests(self._schedule, self._training.seed, step, part)
            offset += step.advance
            if offset >= self._schedule.length:
                return
            step = self.step_at(offset, engines)
            part = self._later(step, engines)[rank]


def width_of(parts: Split) -> int:
    """Return the number of micro-batches of the step whose split is ``parts``."""
    return sum(map(len, parts))
