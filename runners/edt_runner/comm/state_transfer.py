"""Moves a training's state between the processes of one group.

The state's bytes are cut into pieces of 8 MiB. The sources have equal states and deal the pieces out among themselves
in turn. Every receiver gets every piece.

Pieces in host memory are sent from where they are, and received where they belong. A piece on a GPU passes through
pinned memory of the host, beside the training (``host_copies``): a source copies its own pieces only, and the next
piece is on its way while one is being sent. At most three pieces are in such memory at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edt_runner import host_copies
from edt_runner.adapter import Adapter, State
from edt_runner.comm.connections import Watchdog
from edt_runner.errors import PeerLost
from edt_runner.host_copies import PIECE_BYTES, Copied, bytes_of

_TAG_SIZE, _TAG_TEXT, _TAG_PIECES = 1, 2, 1 << 16
"""Tags of a transfer beside those of ``group`` and ``exchange``."""
_STAGES = 3
"""Pieces of pinned memory: one is filled while two are being sent, or the other way round."""

Post = Callable[["_Piece", Tensor], list[Any]]
"""(piece, its bytes in host memory) -> operations that send or receive it"""
Wait = Callable[[Any], None]


class _Piece(NamedTuple):
    """A piece of the state: bytes ``start`` to ``end`` of a tensor."""

    number: int
    """Its number among the pieces of the whole state."""
    tensor: Tensor
    start: int
    end: int


def send(
    group: Any,
    watchdog: Watchdog,
    state: State,
    extra: Mapping[str, Any],
    rank: int,
    sources: Sequence[int],
    to: Sequence[int],
) -> Callable[[], None]:
    """Begin to send a state. Its tensors must not change until it has been sent.

    Args:
        group: the ``ProcessGroupGloo``.
        watchdog: the group's, which waits for the operations.
        state: the state, which is equal in all ``sources``. Its tensors may be on any device; each is sent as its
            bytes.
        extra: plain JSON that is sent with the state.
        rank: rank of this process, which is one of ``sources``.
        sources: ranks that send.
        to: ranks that receive.

    Returns:
        A function that waits until everything has been sent. It raises PeerLost if a connection broke.
    """
    works: list[Any] = []
    mine = list(sources).index(rank)
    if mine == 0:
        shapes = {name: [str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in state.tensors.items()}
        text = json.dumps({"meta": state.meta, "shapes": shapes, "extra": extra}).encode()
        data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        for peer in to:
            works.append(post(group.send, [torch.tensor([len(text)])], peer, _TAG_SIZE))
            works.append(post(group.send, [data], peer, _TAG_TEXT))

    def post_piece(piece: _Piece, data: Tensor) -> list[Any]:
        return [post(group.send, [data], peer, _TAG_PIECES + piece.number) for peer in to]

    pieces = [piece for piece in _pieces(state.tensors.values()) if piece.number % len(sources) == mine]
    for piece, data in _in_memory(pieces):
        works += post_piece(piece, data)
    away = [piece for piece in pieces if host_copies.is_away(piece.tensor)]
    if not away:
        return lambda: watchdog.wait(works)
    ready = state.ready or host_copies.moment(piece.tensor for piece in away)
    sending = _Staging(away, ready, post_piece, watchdog.is_shut)
    job = watchdog.start(sending.send, sending.abandon)

    def finish() -> None:
        watchdog.finish(job)
        watchdog.wait(works)

    return finish


def receive(group: Any, watchdog: Watchdog, adapter: Adapter, sources: Sequence[int]) -> Mapping[str, Any]:
    """Receive the state that the ranks ``sources`` send with ``send``, and fill ``adapter`` with it.

    Args:
        group: the ``ProcessGroupGloo``.
        watchdog: the group's, which waits for the operations.
        adapter: is filled.
        sources: ranks that send.

    Returns:
        The ``extra`` of the state.

    Raises:
        PeerLost: a connection broke. The adapter's state is incomplete then.
    """
    size = torch.zeros(1, dtype=torch.int64)
    watchdog.wait([post(group.recv, [size], sources[0], _TAG_SIZE)])
    text = torch.empty(int(size[0]), dtype=torch.uint8)
    watchdog.wait([post(group.recv, [text], sources[0], _TAG_TEXT)])
    header = json.loads(text.numpy().tobytes())
    places = adapter.begin_import(header["meta"], header["shapes"])
    filled = {
        name: place if place.is_contiguous() else torch.empty(place.shape, dtype=place.dtype, device=place.device)
        for name, place in places.items()
    }

    def post_piece(piece: _Piece, data: Tensor) -> list[Any]:
        return [post(group.recv, [data], sources[piece.number % len(sources)], _TAG_PIECES + piece.number)]

    pieces = _pieces(filled.values())
    works = [work for piece, data in _in_memory(pieces) for work in post_piece(piece, data)]
    away = [piece for piece in pieces if host_copies.is_away(piece.tensor)]
    if away:
        moment = host_copies.moment(piece.tensor for piece in away)
        receiving = _Staging(away, moment, post_piece, watchdog.is_shut)
        watchdog.finish(watchdog.start(receiving.receive, receiving.abandon))
    watchdog.wait(works)
    for name, place in places.items():
        if filled[name] is not place:
            place.copy_(filled[name])
    adapter.end_import()
    extra: Mapping[str, Any] = header["extra"]
    return extra


def post(operation: Any, *arguments: Any) -> Any:
    """Start an operation of a process group.

    Raises:
        PeerLost: the connection has already broken.
    """
    try:
        return operation(*arguments)
    except RuntimeError as error:
        raise PeerLost(f"the data plane broke off: {error}") from error


class _Staging:
    """Pieces that pass through pinned memory, on a watchdog's thread. Each takes its turn, in one of three stages of
    such memory.

    Args:
        pieces: pieces of tensors on one GPU.
        moment: since when the tensors may be read or written (``host_copies.moment``).
        post: starts the operations that send or receive a piece.
        is_shut: whether nothing will arrive any more.
    """

    def __init__(self, pieces: Sequence[_Piece], moment: Any, post: Post, is_shut: Callable[[], bool]) -> None:
        self._pieces, self._moment, self._is_shut = pieces, moment, is_shut
        self._post: Post | None = post
        self._works: list[list[Any]] = [[] for _ in range(_STAGES)]
        """The operations that use each stage."""
        self._copied: dict[int, Copied] = {}
        """By stage, the end of the newest copy to it or from it."""
        self._whole: tuple[Tensor, Tensor] | None = None
        """A tensor, and its bytes on the GPU."""

    def send(self, wait: Wait) -> None:
        """Copy each piece to the host, and send it while the next one is copied.

        Raises:
            PeerLost, RuntimeError: it cannot be completed.
        """
        with self._open() as (side, stages):
            count = len(self._pieces)
            for turn in range(count + 1):
                if turn < count:
                    self._wait_for(turn, wait)
                    side.copy(self._part(turn, stages), self._bytes(turn, side))
                    self._copied[turn % _STAGES] = side.mark()
                if turn > 0:
                    self._copied[(turn - 1) % _STAGES].synchronize()
                    self._begin(turn - 1, stages)
            for stage in range(_STAGES):
                self._wait_for(stage, wait)

    def receive(self, wait: Wait) -> None:
        """Receive each piece, and copy it to the GPU while the next one arrives. At the end all of them are there.

        Raises:
            PeerLost, RuntimeError: it cannot be completed.
        """
        with self._open() as (side, stages):
            count = len(self._pieces)
            for turn in range(min(_STAGES, count)):
                self._begin(turn, stages)
            for turn in range(count + 1):
                if turn < count:
                    self._wait_for(turn, wait)
                    self._check()  # whoever waited for this may have gone on, and the tensors are no longer ours
                    side.copy(self._bytes(turn, side), self._part(turn, stages))
                    self._copied[turn % _STAGES] = side.mark()
                if turn > 0:
                    self._copied[(turn - 1) % _STAGES].synchronize()
                    if turn - 1 + _STAGES < count:
                        self._begin(turn - 1 + _STAGES, stages)

    def abandon(self) -> None:
        """Drop all operations."""
        for works in self._works:
            works.clear()

    @contextmanager
    def _open(self) -> Iterator[tuple[host_copies.SideStream, Sequence[Tensor]]]:
        """A context with the stream of copies and the stages. It takes a while to pin memory, which is why this thread
        does it. At the end nothing is held any more, although the watchdog remembers its last job."""
        self._check()
        side = host_copies.side_stream(self._pieces[0].tensor.device, "state")
        side.after(self._moment)
        size = max(piece.end - piece.start for piece in self._pieces)
        try:
            yield side, [side.memory(size) for _ in range(min(_STAGES, len(self._pieces)))]
        finally:
            self._pieces, self._post, self._moment, self._whole = (), None, None, None

    def _begin(self, turn: int, stages: Sequence[Tensor]) -> None:
        self._check()
        assert self._post is not None
        self._works[turn % _STAGES] += self._post(self._pieces[turn], self._part(turn, stages))

    def _wait_for(self, turn: int, wait: Wait) -> None:
        """Wait until the stage of ``turn`` is not in use."""
        works = self._works[turn % _STAGES]
        while works:  # what is dropped here is freed, even if the thread is stuck in another one
            wait(works.pop(0))

    def _part(self, turn: int, stages: Sequence[Tensor]) -> Tensor:
        """The part of a stage that the piece takes."""
        piece = self._pieces[turn]
        return stages[turn % _STAGES][: piece.end - piece.start]

    def _bytes(self, turn: int, side: host_copies.SideStream) -> Tensor:
        """The piece's bytes on the GPU. Pieces of one tensor follow one another, so a tensor that is not contiguous is
        copied there once."""
        piece = self._pieces[turn]
        if self._whole is None or self._whole[0] is not piece.tensor:
            self._whole = piece.tensor, bytes_of(side.contiguous(piece.tensor))
        return self._whole[1][piece.start : piece.end]

    def _check(self) -> None:
        if self._is_shut():
            raise PeerLost("the data plane was shut")


def _pieces(tensors: Any) -> list[_Piece]:
    """Cut tensors into pieces of at most 8 MiB, so that different sources can send different pieces."""
    pieces: list[_Piece] = []
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        for start in range(0, size, PIECE_BYTES):
            pieces.append(_Piece(len(pieces), tensor, start, min(start + PIECE_BYTES, size)))
    return pieces


def _in_memory(pieces: Sequence[_Piece]) -> list[tuple[_Piece, Tensor]]:
    """The pieces that are in host memory, with their bytes: views, if their tensors are contiguous."""
    found: list[tuple[_Piece, Tensor]] = []
    tensor, whole = None, torch.empty(0)
    for piece in pieces:
        if host_copies.is_away(piece.tensor):
            continue
        if piece.tensor is not tensor:
            tensor, whole = piece.tensor, bytes_of(piece.tensor.detach().contiguous())
        found.append((piece, whole[piece.start : piece.end]))
    return found
