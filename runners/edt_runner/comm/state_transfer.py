"""Moves a training's state between the processes of one group.

The state's bytes are cut into pieces of 8 MiB. The sources have equal states and deal the pieces out among themselves
in turn. Every receiver gets every piece.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from edt_runner.adapter import Adapter, State
from edt_runner.comm.connections import Watchdog
from edt_runner.errors import PeerLost

_PIECE_BYTES = 8 << 20
_TAG_SIZE, _TAG_TEXT, _TAG_PIECES = 1, 2, 1 << 16
"""Tags of a transfer beside those of ``process_groups`` and ``exchange``."""


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
    for index, piece in enumerate(_pieces([t.detach().cpu().contiguous() for t in state.tensors.values()])):
        if index % len(sources) == mine:
            works.extend(post(group.send, [piece], peer, _TAG_PIECES + index) for peer in to)
    return lambda: watchdog.wait(works)


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
    staged = {
        name: place
        if place.device.type == "cpu" and place.is_contiguous()
        else torch.empty(place.shape, dtype=place.dtype)
        for name, place in places.items()
    }
    watchdog.wait(
        [
            post(group.recv, [piece], sources[index % len(sources)], _TAG_PIECES + index)
            for index, piece in enumerate(_pieces(staged.values()))
        ]
    )
    for name, place in places.items():
        if staged[name] is not place:
            place.copy_(staged[name])
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


def _pieces(tensors: Any) -> list[torch.Tensor]:
    """Return all bytes of contiguous tensors as views of at most 8 MiB, so that different sources can send different
    pieces."""
    flat = [tensor.detach().reshape(-1).view(torch.uint8) for tensor in tensors if tensor.numel()]
    return [piece for each in flat for piece in torch.split(each, _PIECE_BYTES)]
