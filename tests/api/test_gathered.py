"""Items that come while a call runs share the next call."""

from __future__ import annotations

import asyncio
import threading

import anyio

from edt_api.concurrency import Gathered, Pool, each_once
from edt_scheduler.errors import DatabaseUnavailable


class Calls:
    """A function that takes several numbers, and remembers which it was given together. The first call waits."""

    def __init__(self) -> None:
        self.given: list[list[int]] = []
        self.go_on = threading.Event()
        self.begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, numbers: list[int]) -> list[int | Exception]:
        self.given.append(numbers)
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self.go_on.wait(30)
        if 13 in numbers:
            raise RuntimeError("all of them")
        return [ValueError(number) if number < 0 else 10 * number for number in numbers]


async def _asked(first: int, others: list[int], most: int) -> tuple[list[list[int]], list[int | BaseException]]:
    calls = Calls()
    gathered = Gathered(calls, Pool("test", 2), most)
    asking = [asyncio.create_task(gathered.run(first))]
    await calls.begun.wait()
    asking += [asyncio.create_task(gathered.run(number)) for number in others]
    await asyncio.sleep(0)
    calls.go_on.set()
    return calls.given, await asyncio.gather(*asking, return_exceptions=True)


def asked(first: int, others: list[int], most: int = 16) -> tuple[list[list[int]], list[int | BaseException]]:
    """What each call was given, and what was answered to ``first`` and to the others, which come while the call with
    ``first`` runs.
    """
    return asyncio.run(_asked(first, others, most))


def test_whoever_comes_while_a_call_runs_shares_the_next() -> None:
    assert asked(1, [2, 3, 4]) == ([[1], [2, 3, 4]], [10, 20, 30, 40])


def test_a_call_takes_no_more_than_so_many() -> None:
    assert asked(1, [2, 3, 4], most=2) == ([[1], [2, 3], [4]], [10, 20, 30, 40])


def test_what_is_wrong_with_one_is_raised_to_that_one() -> None:
    _, (one, bad, another) = asked(1, [-2, 3])
    assert (one, another) == (10, 30)
    assert isinstance(bad, ValueError)


def test_what_is_wrong_with_a_call_is_raised_to_all_in_it_and_the_next_goes_on() -> None:
    _, found = asked(1, [2, 13, 4], most=2)
    assert found[0] == 10 and found[3] == 40
    assert [str(each) for each in found[1:3]] == ["all of them", "all of them"]


def test_a_call_waits_for_what_is_expected_but_not_for_long() -> None:
    async def gathered() -> list[list[int]]:
        calls = Calls()
        calls.go_on.set()
        patient = Gathered(calls, Pool("test", 2), 16, patience=60.0)
        with patient.expected():
            one = asyncio.create_task(patient.run(1))
            await asyncio.sleep(0.01)
            assert not calls.given
            other = asyncio.create_task(patient.run(2))
            await asyncio.sleep(0)
        assert [await one, await other] == [10, 20]
        hasty = Gathered(calls, Pool("test", 2), 16, patience=0.001)
        with hasty.expected():
            assert await hasty.run(3) == 30
        full = Gathered(calls, Pool("test", 2), 2, patience=60.0)
        with full.expected():
            assert await asyncio.gather(full.run(4), full.run(5)) == [40, 50]
        return calls.given

    assert asyncio.run(gathered()) == [[1, 2], [3], [4, 5]]


def test_a_caller_who_is_cancelled_waits_for_the_call_and_disturbs_no_other() -> None:
    async def cancelled() -> list[int]:
        calls = Calls()
        gathered = Gathered(calls, Pool("test", 2), 16)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(gathered.run, 1)
                other = asyncio.create_task(gathered.run(2))
                await calls.begun.wait()
                scope.cancel()
                asyncio.get_running_loop().call_later(0.01, calls.go_on.set)
        assert calls.go_on.is_set(), "its call went on, so it had not ended"
        return [await other, await gathered.run(3)]

    assert asyncio.run(cancelled()) == [20, 30]


def test_each_item_is_looked_up_once_and_none_after_the_database_was_found_away() -> None:
    looked: list[int] = []

    def look(number: int) -> int:
        looked.append(number)
        if number == 13:
            raise DatabaseUnavailable("is away", passing=True)
        return 10 // number

    one, again, bad, away, after, once_more = each_once(look)([1, 1, 0, 13, 5, 1])
    assert (one, again, once_more) == (10, 10, 10)
    assert isinstance(bad, ZeroDivisionError)
    assert isinstance(away, DatabaseUnavailable) and after is away
    assert looked == [1, 0, 13]
