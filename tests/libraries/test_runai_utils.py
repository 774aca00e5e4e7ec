"""runai.utils: what the original's own tests ask of it, in our words, and where it left things behind."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import runai.utils
from runai.utils import Attribute, Flock, Hook, attribute, gpus, log, random


def answer(x: int = 0) -> int:
    return 42 + x


class Answering:
    def answer(self, x: int = 0) -> int:
        return 42 + x

    @staticmethod
    def plain(x: int) -> int:
        return x + 10


class Other(Hook):
    """With the function in the class, as the original is mostly used."""

    def __init__(self, module: Any) -> None:
        super().__init__(module, "answer")

    def __hook__(self, x: int = 0) -> int:
        return 217 + x


HERE = sys.modules[__name__]


class TestHook:
    @pytest.mark.parametrize("place", [HERE, Answering()], ids=["module", "object"])
    def test_it_stands_in_for_a_function_within_the_block_and_when_enabled(self, place: Any) -> None:
        before = dict(vars(place))
        with Other(place) as hook:
            assert (place.answer(), place.answer(x=1)) == (217, 218)
        assert place.answer() == 42
        hook.enable()
        assert place.answer() == 217
        hook.disable()
        assert place.answer() == 42
        assert vars(place) == before, "an object's class has the method again, not the object"

    @pytest.mark.parametrize("recursion", [False, True])
    def test_a_hook_that_calls_the_function_reaches_the_original_unless_it_asks_for_itself(
        self, recursion: bool
    ) -> None:
        with Hook(Answering, "plain", lambda x: Answering.plain(x) + 1, recursion=recursion):
            if recursion:
                with pytest.raises(RecursionError):
                    Answering.plain(0)
            else:
                assert [Answering.plain(0), Answering.plain(0)] == [11, 11]
        assert Answering().plain(1) == 11, "it is a static method again"

    def test_an_error_in_it_takes_it_out_and_leaves_it_usable(self) -> None:
        with pytest.raises(ZeroDivisionError), Hook(HERE, "answer", lambda: 1 // 0):
            answer()
        assert answer() == 42

    def test_one_without_a_function_says_what_it_wants(self) -> None:
        with Hook(HERE, "answer"), pytest.raises(NotImplementedError, match="give hook=, or define __hook__"):
            answer()


class TestAttribute:
    def test_one_or_several_are_there_within_the_block_only(self) -> None:
        place: Any = Answering()
        with Attribute(place, "one", 1), Attribute(place, ["two", "three"], [2, 3]):
            assert (place.one, place.two, place.three) == (1, 2, 3)
        assert vars(place) == {}

    def test_what_was_there_before_is_there_again(self) -> None:
        place: Any = Answering()
        place.one = "old"
        with Attribute(place, "one", "new"):
            assert place.one == "new"
        assert place.one == "old"

    def test_as_many_values_as_names(self) -> None:
        with pytest.raises(ValueError, match="zip"):
            Attribute(Answering(), ["one", "two"], [1])

    def test_it_is_renamed(self) -> None:
        place: Any = Answering()
        place.old = 1
        attribute.rename(place, "old", "new")
        assert vars(place) == {"new": 1}


class TestRandom:
    def test_strings_have_their_length_and_differ(self) -> None:
        for length in range(5, 11):
            assert len(random.string(length=length)) == length
        assert len({random.string(20) for _ in range(50)}) == 50
        assert set(random.string(100, chars="ab")) == {"a", "b"}
        assert len(random.strings(count=7)) == len(random.strings(7)) == 7
        assert {len(random.strings()) for _ in range(200)} == set(range(2, 11)), "drawn anew at each call"

    def test_numbers_and_shapes_lie_within_their_limits(self) -> None:
        assert {random.number(2, 5) for _ in range(200)} == {2, 3, 4, 5}
        assert all(10 <= random.number() <= 100 for _ in range(1000))
        shapes = [random.shape() for _ in range(1000)]
        assert {len(shape) for shape in shapes} == {2, 3, 4}
        assert {size for shape in shapes for size in shape} == {2, 3, 4, 5}


def test_gpus_are_those_that_cuda_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert (gpus.count(), gpus.available()) == (0, False)


def test_its_log_is_the_logger_of_that_name_and_has_no_handler_of_its_own() -> None:
    assert log.name == "runai" and not log.handlers
    assert runai.utils.log is log


def test_a_lock_is_held_against_other_processes_and_a_dead_one_lets_go_of_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    program = f"from runai.utils import Flock\nwith Flock({str(path)!r}): print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        assert is_locked(path)
        other.kill()
    with Flock(path):
        assert is_locked(path)
    assert not is_locked(path)


def is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
