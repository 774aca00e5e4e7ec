"""Planes and connected groups of several engines, all in one process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch.distributed import TCPStore

from edt_runner.comm.group import Group
from edt_runner.comm.plane import DataPlane
from edt_runner.comm.tree_reduction import HOST


@contextmanager
def connected(size: int, device: torch.device = HOST) -> Iterator[tuple[list[DataPlane], list[Group]]]:
    """A context with the planes and the groups of ``size`` engines, in rank order. Their vectors are on ``device``."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    planes = [DataPlane("127.0.0.1", torch.float32, "lo", device=device) for _ in range(size)]
    with ThreadPoolExecutor(size) as pool:
        address = f"127.0.0.1:{store.port}"
        found = list(pool.map(lambda rank: planes[rank].build(address, "test", rank, size), range(size)))
    yield planes, found
    for group in found:
        group.close()
    for plane in planes:
        plane.close()
