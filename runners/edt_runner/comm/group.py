"""A group of connected engines: reductions, and the transfer of state, for both frameworks.

The memory of reductions is on the device that the model computes on. With ``reduction="exact"`` the order of every
addition is the order of ``splits``, on any device and over any network. With ``reduction="fast"`` it is the library's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed.distributed_c10d as _c10d

from edt_runner.adapter import Adapter, Reduced, State
from edt_runner.comm import state_transfer
from edt_runner.comm.buckets import Bucket
from edt_runner.comm.collective_exchange import CollectiveFastExchange, CollectiveTreeExchange
from edt_runner.comm.collectives import Collectives
from edt_runner.comm.connections import OPERATION_TIMEOUT, Watchdog
from edt_runner.comm.exchange import Exchange, FastExchange, TreeExchange
from edt_runner.comm.reduction import Reduction
from edt_runner.comm.staged_exchange import StagedExchange
from edt_runner.comm.state_transfer import post
from edt_runner.comm.streams import stream_on
from edt_runner.comm.tree_reduction import HOST, Memory, PartialSums
from edt_runner.errors import PeerLost
from edt_runner.splits import ReductionPlan

c10d: Any = _c10d  # it has no type stubs

_TAG_REDUCED = 3
"""Tag of a group's operations beside those of ``exchange`` and ``state_transfer``."""


class Group:
    """The connected processes of one group, for example the engines of a generation.

    Only one thread uses the group. The group must be closed; until then its watchdog keeps it alive. Every operation
    raises PeerLost if a connection broke or was shut. The group cannot be used after that.

    Args:
        group: the ``ProcessGroupGloo``; None: a group of one process.
        rank: rank of this process.
        size: number of ranks.
        dtype: dtype of locals and sums.
        shut: an event that is set when the group's connections have been shut.
        device: the device of locals and sums.
    """

    def __init__(
        self,
        group: Any,
        rank: int,
        size: int,
        dtype: torch.dtype,
        shut: threading.Event,
        device: torch.device = HOST,
    ) -> None:
        self.rank, self.size = rank, size
        self._open_group, self._dtype, self._device = group, dtype, device
        self._transport, self._faster = group, None
        """The gloo group that reductions go over; and what else they could go over."""
        self._collectives: Collectives | None = None
        """What reductions go over instead."""
        self._connecting: Collectives | None = None
        """What this group's processes are being connected for."""
        self._tried = threading.Event()
        """Set unless this process is being connected for collectives."""
        self._tried.set()
        self._shut = shut
        self._watchdog = Watchdog(shut, group)
        """Takes part in reductions."""
        self._state_watchdog = Watchdog(shut, group)
        """Waits for everything else, also during a reduction."""
        self._closed, self._changing = False, threading.Lock()
        self._memories: dict[int, Memory] = {}
        self._copies: dict[int, Memory] = {}
        """Host memory for vectors on a GPU that are reduced in host memory."""
        self._stream = stream_on(device)

    @property
    def _group(self) -> Any:
        """The process group; None: a group of one process.

        Raises:
            PeerLost: the group is closed.
        """
        if self._closed:
            raise PeerLost("the group is closed")
        return self._open_group

    # ── a faster network ──────────────────────────────────────────────────────────────────────────────────────
    def connect_faster(self, connect: Callable[[], Any]) -> None:
        """Connect this group's processes a second time, in the background.

        Args:
            connect: returns a process group with the same ranks. It raises RuntimeError if the processes cannot be
                connected; then the group goes on as it is.
        """
        self._in_background(connect)

    def connect_collectives(self, connect: Callable[[], Collectives]) -> None:
        """Connect this group's processes for collectives, in the background.

        Args:
            connect: connects them. It raises RuntimeError if that is not possible; then the group goes on as it is.
        """

        def run() -> Collectives:
            found = connect()
            self._connecting = found
            if self._closed:
                found.abort()
            found.connect_all()
            return found

        self._tried.clear()
        self._in_background(run)

    def _in_background(self, connect: Callable[[], Any]) -> None:
        def run() -> None:
            try:
                found = connect()
                with self._changing:
                    if self._closed:
                        return
                    self._faster = found
                print("edt: connected for reductions over the faster network, too", flush=True)
            except RuntimeError as error:
                if not self._closed and not self._shut.is_set():
                    print(f"edt: reductions stay on the ordinary network: {error}", flush=True)
            finally:
                self._tried.set()

        threading.Thread(target=run, name="edt-faster", daemon=True).start()

    def await_collectives(self, seconds: float) -> bool:
        """Wait until this process is connected for collectives, or cannot be, but not longer than ``seconds``. Any
        thread may call this.

        Returns:
            Whether it is connected for them or over a faster network.
        """
        self._tried.wait(seconds)
        return self.has_faster

    @property
    def has_faster(self) -> bool:
        """Whether this process is connected over the faster network. All processes tell each other in their notes."""
        return self._faster is not None

    @property
    def reduces_over(self) -> str:
        """What reductions go over: ``nccl`` or ``gloo``."""
        return self._collectives.name if self._collectives is not None else "gloo"

    def change_over(self) -> None:
        """Let all later reductions go over the faster network. All processes do this between the same two steps, when
        all of them are connected. No bit depends on the network."""
        with self._changing:
            if self._faster is None or self._faster in (self._transport, self._collectives):
                return
            if self._faster is self._connecting:
                self._collectives = self._connecting
                print(f"edt: reductions go over {self.reduces_over} now", flush=True)
                return
            self._watchdog.close()
            self._transport, self._watchdog = self._faster, Watchdog(self._shut, self._faster)

    # ── reduction ─────────────────────────────────────────────────────────────────────────────────────────────
    def begin(
        self,
        plan: ReductionPlan,
        buckets: Sequence[Bucket],
        *,
        exact: bool,
        notes: int = 1,
        previous: PartialSums | None = None,
    ) -> Reduction:
        """Begin the reduction of a step.

        Args:
            plan: plan of the step's reduction.
            buckets: the buckets of the step's flat vector, in the order in which they are reduced.
            exact: whether to sum in the order of the canonical tree; otherwise by a library's all-reduce, whose bits
                depend on ``size``.
            notes: how many numbers each rank's notes have.
            previous: the sums of a failed try of this step; they are used again if ``exact``.

        Raises:
            PeerLost: the group is closed, or its connections have been shut.
        """
        transport, collectives = self._open()
        length = max(end for _, end in buckets)
        staged = self._device != HOST and collectives is None and transport is not None
        extra = 0 if staged or collectives is not None else self.size * notes  # the notes, behind the total
        total = None if exact else extra
        sums = _sums(self._memories, length, self._dtype, self._device, total, previous, again=transport is None)
        if transport is None:
            return Reduction(plan, sums, self.rank, None, self._watchdog)
        shared = (buckets, self.rank, self.size, notes, self._watchdog.is_shut)
        exchange: Exchange | StagedExchange
        if collectives is not None and exact:
            exchange = CollectiveTreeExchange(plan, collectives, self._group, sums, *shared)
        elif collectives is not None:
            exchange = CollectiveFastExchange(collectives, self._group, sums, *shared)
        elif staged:
            total = None if exact else self.size * notes
            host = _sums(self._copies, length, self._dtype, HOST, total, None, again=False)
            inner = _over_transport(transport, plan, host, shared)
            exchange = StagedExchange(inner, host, sums, buckets, self._stream)
        else:
            exchange = _over_transport(transport, plan, sums, shared)
        return Reduction(plan, sums, self.rank, exchange, self._watchdog)

    def _open(self) -> tuple[Any, Collectives | None]:
        """What reductions go over. The first is None if this process is alone.

        Raises:
            PeerLost: the group is closed.
        """
        with self._changing:
            if self._closed:
                raise PeerLost("the group is closed")
            return self._transport, self._collectives

    def inherit(self, old: Group) -> None:
        """Take over the memory of the group in which this process worked before. All of its operations are done."""
        self._memories, old._memories = old._memories, {}
        self._copies, old._copies = old._copies, {}

    def send_reduced(self, reduced: Reduced, to: Sequence[int]) -> None:
        """Send the sum of the last reduction to the ranks ``to``, which have not applied it."""
        assert self._group is not None
        sent = reduced.cpu().contiguous()
        self._state_watchdog.wait([post(self._group.send, [sent], peer, _TAG_REDUCED) for peer in to])

    def receive_reduced(self, length: int, source: int) -> Reduced:
        """Receive the tensor that rank ``source`` sends with ``send_reduced``: a new tensor of shape (length,)."""
        assert self._group is not None
        reduced = torch.empty(length, dtype=self._dtype)
        self._state_watchdog.wait([post(self._group.recv, [reduced], source, _TAG_REDUCED)])
        return reduced.to(self._device)

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────
    def send_state(
        self, state: State, extra: Mapping[str, Any], sources: Sequence[int], to: Sequence[int]
    ) -> Callable[[], None]:
        """Begin to send a state. Its tensors must not change until it has been sent.

        Args:
            state: the state, which is equal in all ``sources``. Its tensors may be on any device; each is sent as its
                bytes.
            extra: plain JSON that is sent with the state.
            sources: ranks that send, including this rank. The pieces of 8 MiB are dealt out to the sources in turn.
            to: ranks that receive.

        Returns:
            A function that waits until everything has been sent. It raises PeerLost if a connection broke.
        """
        group = self._group
        assert group is not None
        return state_transfer.send(group, self._state_watchdog, state, extra, self.rank, sources, to)

    def receive_state(self, adapter: Adapter, sources: Sequence[int]) -> Mapping[str, Any]:
        """Receive the state that the ranks ``sources`` send with ``send_state``, and fill ``adapter`` with it.

        Returns:
            The ``extra`` of the state.

        Raises:
            PeerLost: a connection broke. The adapter's state is incomplete then.
        """
        group = self._group
        assert group is not None
        return state_transfer.receive(group, self._state_watchdog, adapter, sources)

    def close(self) -> None:
        """Close the connections. This takes about 10 ms for each peer. Another thread may call it."""
        with self._changing:
            self._closed = self._watchdog.is_closed = True  # first: an abort ends what a GPU does without an error
            # this thread releases them, not the thread that waits in one of them
            group, self._open_group = (self._open_group, self._transport, self._faster), None
            if self._connecting is not None:
                self._connecting.abort()
            self._transport = self._faster = self._collectives = self._connecting = None
            self._memories, self._copies = {}, {}
        self._watchdog.close()
        self._state_watchdog.close()
        del group


def _sums(
    memories: dict[int, Memory],
    length: int,
    dtype: torch.dtype,
    device: torch.device,
    total: int | None,
    previous: PartialSums | None,
    *,
    again: bool,
) -> PartialSums:
    """Begin the sums of a step, in memory that is used again for each step of this length.

    Args:
        memories: the memory, by length.
        length, dtype, device: of the sums.
        total: how many further numbers the total of a fast reduction has; None: the reduction is exact.
        previous: the sums of a failed try.
        again: whether a total may be in the memory of the step before.
    """
    found = memories.get(length)
    if found is None:
        pinned = device == HOST and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
        found = memories[length] = Memory(length, dtype, device, pinned=pinned)
    found.begin()
    return PartialSums(found, None if total is None else found.result(total, again=again), previous)


def _over_transport(transport: Any, plan: ReductionPlan, sums: PartialSums, shared: Any) -> Exchange:
    """An exchange of sums in host memory over a gloo group."""
    if sums.total is None:
        return TreeExchange(transport, plan, sums, *shared)

    def all_reduce(tensor: torch.Tensor) -> Any:
        options = c10d.AllreduceOptions()
        options.timeout = OPERATION_TIMEOUT
        return transport.allreduce([tensor], options)

    return FastExchange(all_reduce, sums, *shared)
