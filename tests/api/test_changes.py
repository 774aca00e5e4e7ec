"""The watcher of changes: slow subscribers, a watcher that was away, and one that fails. The database is a list."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from edt_api.routes import stream
from edt_api.routes.stream import MOST_WAITING, Batch, ChangeWatcher, Subscriber
from edt_scheduler.errors import CursorTooOld, DatabaseUnavailable
from edt_scheduler.views import Changes


class Database:
    """Changes are numbers 1, 2, 3 …; ``forgotten`` of them are pruned."""

    def __init__(self) -> None:
        self.newest = 0
        self.forgotten = 0
        self.fails: Exception | None = None
        self._lock = threading.Lock()
        self.asked: list[tuple[str, str | None]] = []

    def newest_change(self, _: object) -> str:
        return str(self.newest)

    def changes_since(self, _: object, cursor: str, until: str | None = None) -> Changes:
        self.asked.append((cursor, until))
        if self.fails is not None:
            raise self.fails
        with self._lock:
            if int(cursor) < self.forgotten:
                raise CursorTooOld(cursor)
            return Changes(until or str(self.newest))

    def go_on_and_forget(self, newest: int) -> None:
        """At once, for somebody who looks."""
        with self._lock:
            self.newest = self.forgotten = newest


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    made = Database()
    monkeypatch.setattr(stream, "history", made)
    monkeypatch.setattr(stream, "LOOK_SECONDS", 0.01)
    return made


def played(scene: Callable[[ChangeWatcher], Awaitable[None]]) -> None:
    async def play() -> None:
        await asyncio.wait_for(scene(ChangeWatcher(None, threading.Event())), 60)  # type: ignore[arg-type]  # the platform is not looked at

    asyncio.run(play())


async def cursors(subscriber: Subscriber, last: str) -> list[str]:
    """The cursors of all batches up to this one."""
    taken: list[str] = []
    while last not in taken:
        await subscriber.wait(1.0)
        taken += [batch.changes.cursor for batch in subscriber.take()]
    return taken


def test_a_listener_who_takes_nothing_misses_what_is_too_much_and_goes_on_from_there() -> None:
    slow = Subscriber("0")
    for number in range(1, MOST_WAITING + 3):
        slow.deliver(Batch(Changes(str(number))))
    assert slow.missed
    assert slow.cursor == str(MOST_WAITING)  # everything up to here is not told any more
    assert [batch.changes.cursor for batch in slow.take()] == [str(MOST_WAITING + 1), str(MOST_WAITING + 2)]


def test_the_others_are_not_kept_waiting_by_a_slow_one(database: Database) -> None:
    async def scene(watching: ChangeWatcher) -> None:
        slow, quick = await watching.join(None), await watching.join(None)
        for number in range(1, MOST_WAITING + 10):
            database.newest = number
            assert (await cursors(quick, str(number)))[-1] == str(number)
        assert (slow.missed, quick.missed) == (True, False)

    played(scene)


def test_what_lies_before_the_watcher_is_told_before_what_comes_after(database: Database) -> None:
    async def scene(watching: ChangeWatcher) -> None:
        database.newest = 5
        await watching.join(None)
        back = await watching.join("2")
        database.newest = 6
        assert await cursors(back, "6") == ["5", "6"]
        assert ("2", "5") in database.asked

    played(scene)


def test_a_watcher_that_slept_too_long_has_everybody_look_anew(database: Database) -> None:
    async def scene(watching: ChangeWatcher) -> None:
        subscriber = await watching.join(None)
        database.go_on_and_forget(100)
        while not subscriber.missed:
            await subscriber.wait(0.1)
        subscriber.take()
        assert subscriber.cursor == "100"
        subscriber.missed = False
        database.newest = 101
        assert await cursors(subscriber, "101") == ["101"]

    played(scene)


def test_an_outage_is_waited_out(database: Database) -> None:
    async def scene(watching: ChangeWatcher) -> None:
        subscriber = await watching.join(None)
        database.fails = DatabaseUnavailable("is away", passing=True)
        await subscriber.wait(0.1)
        assert not subscriber.over
        database.fails, database.newest = None, 1
        assert await cursors(subscriber, "1") == ["1"]

    played(scene)


def test_a_watcher_that_fails_ends_its_streams_and_the_next_listener_has_another(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(watching: ChangeWatcher) -> None:
        subscriber = await watching.join(None)
        database.fails = ZeroDivisionError()
        while not subscriber.over:
            await subscriber.wait(1.0)
        watching.leave(subscriber)
        database.fails = None
        another = await watching.join(None)
        database.newest = 1
        assert await cursors(another, "1") == ["1"]

    played(scene)
    assert "cannot be looked at" in caplog.text
