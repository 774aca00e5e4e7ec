"""What a supervisor sees of its engine's position: a whole one at any instant."""

from __future__ import annotations

import mmap
import os
import signal
import time

import pytest

from edt_runner import processes
from edt_runner.engine import position
from edt_runner.engine.position import PAGE_BYTES, Board, Doing


def test_a_look_is_never_at_a_half_written_position() -> None:
    page = mmap.mmap(-1, PAGE_BYTES)
    began, this = time.monotonic(), os.getpid()
    engine = os.fork()
    if not engine:
        processes.die_with(this)
        writing, tick = Board(page), 0
        while True:
            tick += 1
            writing.write(Doing.COMPUTING, tick, tick)
    try:
        board = Board(page)
        while not board.read().tick:
            assert time.monotonic() < began + 60
        until = time.monotonic() + 1
        while time.monotonic() < until:
            seen = board.read()
            assert seen.tick == seen.worker > 0 and began <= seen.since <= time.monotonic()
    finally:
        os.kill(engine, signal.SIGKILL)
        os.waitpid(engine, 0)


def test_what_an_engine_did_last_outlives_the_write_in_which_it_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board()
    board.write(Doing.COMPUTING, 5, 2)

    class Killed:
        """``pack_into`` that comes as far as the zeros."""

        size = position._LAYOUT.size
        unpack_from = position._LAYOUT.unpack_from

        def pack_into(self, page: mmap.mmap, place: int, *fields: object) -> None:
            page[place : place + self.size] = bytes(self.size)
            raise KeyboardInterrupt

    monkeypatch.setattr(position, "_LAYOUT", Killed())
    with pytest.raises(KeyboardInterrupt):
        board.write(Doing.REDUCING, 5)
    assert board.read().micro_batch == (5, 2)


def test_before_anything_is_written_an_engine_starts() -> None:
    assert Board().read().doing is Doing.STARTING
