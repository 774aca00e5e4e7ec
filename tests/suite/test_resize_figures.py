"""What ``benchmarks/resize_pause.py`` makes of the steps that processes have noted."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from _resize_figures import Event, Figures
from _resize_notes import Account, Reader, account

Line = list[str | int | float]


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def note(reader: Reader, process: int, lines: Iterable[Line]) -> None:
    with (reader.folder / f"notes-{process}").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    reader.read()


def steps(times: Iterable[float], *, first: int = 1, workers: int = 2) -> list[Line]:
    """Ten samples a step, in the order of the data."""
    return [["step", time, step, workers, 10 * (step - 1), 10] for step, time in enumerate(times, first)]


def accounted(reader: Reader) -> Account:
    return account(reader.commits(), 0.0, 1000.0)


def test_a_step_that_two_processes_note_is_one(reader: Reader) -> None:
    note(reader, 1, steps([1.0, 2.0]))
    note(reader, 2, steps([1.1, 1.9]))
    assert [commit.time for commit in reader.commits()] == [1.0, 1.9]
    assert accounted(reader) == Account(lost=0, repeated=0)


def test_steps_after_the_state_that_a_restart_begins_with_are_repeated(reader: Reader) -> None:
    note(reader, 1, steps([1.0, 2.0, 3.0, 4.0]))
    note(reader, 2, [["from", 10.0, 2], *steps([11.0, 12.0, 13.0], first=3)])
    assert accounted(reader) == Account(lost=0, repeated=20)


def test_a_restart_repeats_what_it_began_with_itself_only_once(reader: Reader) -> None:
    note(reader, 1, [["from", 0.5, 0], *steps([1.0, 2.0])])
    note(reader, 2, [["from", 0.6, 0], *steps([1.1, 2.1])])
    assert accounted(reader) == Account(lost=0, repeated=0)


def test_samples_between_two_steps_that_none_has_are_lost(reader: Reader) -> None:
    note(reader, 1, [*steps([1.0]), ["step", 2.0, 2, 2, 30, 10]])
    assert accounted(reader) == Account(lost=20, repeated=0)


def test_samples_that_the_next_step_begins_with_again_are_repeated(reader: Reader) -> None:
    note(reader, 1, [*steps([1.0]), ["step", 2.0, 2, 2, 4, 10]])
    assert accounted(reader) == Account(lost=0, repeated=6)


def test_a_line_that_is_being_written_is_read_when_it_is_whole(reader: Reader) -> None:
    path = reader.folder / "notes-1"
    line = json.dumps(steps([1.0])[0]) + "\n"
    path.write_text(line[:9])
    reader.read()
    assert not reader.commits()
    path.write_text(line)
    reader.read()
    assert len(reader.commits()) == 1


def test_the_first_step_of_a_restart_is_not_one_of_those_before_it(reader: Reader) -> None:
    note(reader, 1, steps([1.0, 2.0, 3.0]))
    assert reader.first_step(1.5, 2, restarted=False) == 2.0
    assert reader.first_step(1.5, 2, restarted=True) is None
    note(reader, 2, [["from", 9.0, 3], *steps([10.0], first=4)])
    assert reader.first_step(1.5, 2, restarted=True) == 10.0


@pytest.fixture
def join(reader: Reader) -> tuple[Reader, list[Event]]:
    """One worker with steps of 2 s, a second from step 31 on with steps of 1 s; between them one of 7 s."""
    alone = [2.0 * step for step in range(1, 31)]
    together = [67.0 + step for step in range(60)]
    note(reader, 1, steps(alone, workers=1) + steps(together, first=31))
    note(reader, 2, steps(together, first=31))
    events = [Event("up", 0.0, 1, 1, settled=2.0), Event("join", 50.5, 1, 2, frozenset({1}), settled=67.0)]
    return reader, events


def test_an_event_costs_what_its_longest_interval_has_more_than_the_slower_size(
    join: tuple[Reader, list[Event]],
) -> None:
    assert Figures(*join, span=5.0).excesses("join") == [5.0]


def test_a_size_that_it_only_passed_through_is_compared_with_the_slower_one(
    join: tuple[Reader, list[Event]],
) -> None:
    reader, events = join
    note(reader, 3, [["step", 64.5, 31, 7, 300, 10]])  # one of 4.5 s, and one of 2.5 s after it
    assert Figures(reader, events, span=5.0).excesses("join") == [2.5]


def test_without_an_event_nothing_is_longer(join: tuple[Reader, list[Event]]) -> None:
    assert set(Figures(*join, span=5.0).without(2)) == {0.0}


def test_throughput_is_lost_where_a_steady_training_would_have_committed_more(
    join: tuple[Reader, list[Event]],
) -> None:
    # around 67 s: alone 25 samples in 5 s, together 50; committed were those at 67 to 72 s
    assert Figures(*join, span=5.0).throughput_lost("join") == [pytest.approx(100 * (1 - 60 / 75))]


def test_a_joining_process_has_its_first_step_when_it_notes_one(join: tuple[Reader, list[Event]]) -> None:
    assert Figures(*join, span=5.0).first_steps() == [67.0 - 50.5]
