"""What a supervisor sees of its engine's activity: a whole entry at any instant."""

from __future__ import annotations

import mmap
import os
import signal
import time

import pytest

from edt_contract import processes
from edt_runner import context
from edt_runner.context import PAGE_BYTES, ActivityKind, StatusPage
from edt_runner.protocol.data import MicroBatch


def test_a_look_is_never_at_a_half_written_entry() -> None:
    memory = mmap.mmap(-1, PAGE_BYTES)
    began, this = time.monotonic(), os.getpid()
    engine = os.fork()
    if not engine:
        processes.die_with(this)
        writing, offset = StatusPage(memory), 0
        while True:
            offset += 1
            writing.write(ActivityKind.COMPUTING, offset, offset)
    try:
        page = StatusPage(memory)
        while not page.read().offset:
            assert time.monotonic() < began + 60
        until = time.monotonic() + 1
        while time.monotonic() < until:
            seen = page.read()
            assert seen.offset == seen.index > 0 and began <= seen.since <= time.monotonic()
    finally:
        os.kill(engine, signal.SIGKILL)
        os.waitpid(engine, 0)


def test_what_an_engine_did_last_outlives_the_write_in_which_it_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    page = StatusPage()
    page.write(ActivityKind.COMPUTING, 5, 2)

    class Killed:
        """``pack_into`` that comes as far as the zeros."""

        size = context._LAYOUT.size
        unpack_from = context._LAYOUT.unpack_from

        def pack_into(self, page: mmap.mmap, place: int, *fields: object) -> None:
            page[place : place + self.size] = bytes(self.size)
            raise KeyboardInterrupt

    monkeypatch.setattr(context, "_LAYOUT", Killed())
    with pytest.raises(KeyboardInterrupt):
        page.write(ActivityKind.REDUCING, 5)
    assert page.read().micro_batch == MicroBatch(5, 2)


def test_before_anything_is_written_an_engine_starts() -> None:
    assert StatusPage().read().kind is ActivityKind.STARTING
