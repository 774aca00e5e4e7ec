"""The reduction of one step in one group, as the engine sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edt_runner.adapter import Reduced
from edt_runner.comm.connections import Watchdog
from edt_runner.comm.exchange import Exchange
from edt_runner.comm.staged_exchange import StagedExchange
from edt_runner.comm.streams import wait_for_device
from edt_runner.comm.tree_reduction import Fill, PartialSums
from edt_runner.errors import PeerLost
from edt_runner.splits import ReductionPlan
from edt_runner.step_times import Phase, clock


class Reduction:
    """One try to reduce a step. Only the thread that trains uses it.

    Args:
        plan: plan of the reduction.
        sums: this rank's sums.
        rank: of this process.
        exchange: the exchange with other ranks; None: there are none.
        watchdog: the group's.

    Raises:
        PeerLost: the group has lost its connections.
    """

    def __init__(
        self,
        plan: ReductionPlan,
        sums: PartialSums,
        rank: int,
        exchange: Exchange | StagedExchange | None,
        watchdog: Watchdog,
    ) -> None:
        self._plan, self._rank, self._exchange, self._watchdog = plan, rank, exchange, watchdog
        self.sums = sums
        self._job = watchdog.start(exchange.run, exchange.abandon) if exchange is not None else None

    @property
    def overwrites(self) -> bool:
        """Whether the result of the step before is no longer whole. Then no other rank needs it."""
        return self._exchange is not None and self._exchange.overwrites

    def sum_own(self, fill: Fill) -> None:
        """Sum this rank's micro-batches, and send buckets of the sums as they become final.

        Args:
            fill: is called with the index of each own micro-batch that is not summed yet, in ascending order, and with
                a sink that it fills with the micro-batch's local.
        """
        ready = self._exchange.ready if self._exchange is not None else None
        if self.sums.total is not None:
            self.sums.sum_all(self._plan.split[self._rank], fill, ready)
            return
        for span in self._plan.spans[self._rank]:
            self.sums.sum_subtree(span, fill, ready)

    def finish(self, notes: Callable[[], Sequence[int]]) -> tuple[Reduced, list[list[int]]]:
        """Complete the reduction, after ``sum_own``.

        Args:
            notes: returns the numbers that this rank tells all other ranks (0 .. ``MOST_NOTE``). It is called as late
                as possible.

        Returns:
            The sum, of shape (length,), and the notes of all ranks, in rank order. This uses the sums up. The sum stays
            valid until the next reduction of this length begins, and where there are other ranks until that one
            ``overwrites`` it.

        Raises:
            PeerLost: a connection broke or was shut. The sums of an exact reduction are still complete.
        """
        sums = self.sums
        if self._watchdog.is_closed:
            raise PeerLost("the group is closed")
        with clock.within(Phase.BACKWARD):  # on a GPU the passes have only been launched
            wait_for_device(sums.memory.device)()
        if self._exchange is None or self._job is None:
            whole = sums.whole if sums.total is not None else sums.memory.publish(sums.held.pop(self._plan.root))
            return whole, [list(notes())]
        self._exchange.note(notes())
        with clock.within(Phase.REDUCE):
            self._watchdog.finish(self._job)
        clock.move(self._exchange.waited, Phase.REDUCE, Phase.WAIT)
        reduced, table = self._exchange.result(), self._exchange.table.tolist()
        sums.memory.give_back(*sums.held.values())
        sums.held.clear()
        return reduced, table
