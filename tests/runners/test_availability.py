"""Traces of devices over time, histories of jobs, and the positions that their sizes begin at."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from edt_emulate import availability, traces
from edt_runner.errors import UsageError
from edt_runner.lr_scaling.emulation import VARIABLE, Emulation, current, rule_named
from edt_runner.schedule import Schedule

GPUS = ",Time,GPUs\n0,1652434474,0\n1,1652434537,8\n2,1652434600,24\n3,1652434726,4\n"
SCHEDULE = Schedule(
    train_samples=100, test_samples=35, micro_batches=1, batch_size=10, epochs=4, validation_freq=2
)  # 10 micro-batches an epoch; behind epochs 2 and 4 a validation of 4
SHAPE = traces.Shape(SCHEDULE, batch_size=10, reference=40, per_engine=False)


@pytest.fixture
def file(tmp_path: Path):
    def write(text: str, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def read(path: Path, **options):
    return traces.read(path, traces.Options(**options))


def update_by_update(schedule: Schedule, changes: list[tuple[int, int]]) -> list[int]:
    """Micro-batches of each update, position by position, as an engine meets them."""
    found, position = [], 0
    for epoch in range(schedule.epochs):
        left = 10
        while left:
            width = min(left, [width for start, width in changes if start <= position][-1])
            found.append(width)
            position, left = position + width, left - width
        position += 4 if (epoch + 1) % 2 == 0 else 0
    return found


class TestDevices:
    def test_a_count_holds_until_the_next_row_and_the_last_as_long_as_the_one_before(self, file):
        found = availability.read(file(GPUS))
        assert found.seconds == (0.0, 63.0, 126.0, 252.0)
        assert found.devices == (0, 8, 24, 4)
        assert (found.end, found.column) == (378.0, "GPUs")

    def test_engines_take_units_of_devices_up_to_their_most(self, file):
        found = availability.read(file(GPUS))
        assert found.engines(8, None) == (0, 1, 3, 0)
        assert found.engines(4, 4) == (0, 2, 4, 1)

    def test_while_there_are_none_no_update_is_made(self, file):
        found = availability.read(file(GPUS))
        walk = availability.Walk(found, found.engines(8, None), 30.0)
        assert list(walk) == [1, 1, 1, 3, 3, 3, 3]  # from 63 s and from 153 s on; an update under way is finished
        assert walk.waited == 63.0 + (378.0 - 273.0)

    def test_without_a_step_time_the_trace_lasts_for_the_training(self, file):
        found = availability.read(file(GPUS))
        engines = found.engines(4, None)
        area = 63 * 2 + 126 * 6 + 126 * 1
        assert found.lasting(engines, 1000) == area / 1000
        seconds = found.lasting(engines, 1000)
        assert abs(sum(availability.Walk(found, engines, seconds)) - 1000) < 10

    def test_dates_and_other_counts_are_read(self, file):
        text = "Time, TPU_cores\n2022-04-27T12:55:00,24\n2022-04-27T12:55:30,120\n"
        found = availability.read(file(text))
        assert (found.seconds, found.devices, found.column) == ((0.0, 30.0), (24, 120), "TPU_cores")

    @pytest.mark.parametrize(
        ("text", "names"),
        [
            ("Time,GPUs\n1,8\n2,-1\n", ["row 2", "GPUs", "'-1'"]),
            ("Time,GPUs\n1,8\n2,1.5\n", ["row 2", "GPUs", "'1.5'"]),
            ("Time,GPUs\n1,8\n1,8\n", ["row 2", "Time 1", "later"]),
            ("Time,GPUs\nnoon,8\n", ["row 1", "Time 'noon'"]),
            ("Time,GPUs\n1\n", ["row 1", "1 columns"]),
            ("Time,GPUs\n", ["no rows"]),
            ("Time,a,b\n1,2,3\n", ["column", "'a', 'b'"]),
        ],
    )
    def test_what_is_wrong_is_named_by_row_and_value(self, file, text, names):
        with pytest.raises(UsageError) as error:
            read(file(text))
        assert all(name in str(error.value) for name in names), error.value

    def test_a_trace_with_no_room_for_an_engine_is_refused(self, file):
        with pytest.raises(UsageError, match=r"most devices are 24.*--unit"):
            read(file(GPUS), unit=32)

    def test_the_counts_may_be_named(self, file):
        found = read(file("Time,a,b\n1,2,3\n2,4,5\n"), column="b", step_seconds=1.0)
        assert found.changes(SHAPE)[0] == (0, 3)

    def test_the_training_walks_through_it_and_says_how_long_that_took(self, file):
        found = read(file(GPUS), unit=8, step_seconds=63.0)
        changes = found.changes(SHAPE)
        assert update_by_update(SCHEDULE, changes)[:7] == [1, 3, 3, 1, 2, 3, 1]  # 2: what the first epoch has left
        assert any("begins anew" in note for note in found.notes)
        assert any("without an engine" in note for note in found.notes)


class TestBatches:
    def test_each_row_is_an_update_and_an_epoch_ends_with_what_is_left(self, file):
        changes = read(file(" step,batchsize\n 0, 40\n 1, 40\n 2, 40\n 3, 80\n 4, 10\n")).changes(SHAPE)
        assert changes[:3] == [(0, 4), (10, 8), (18, 1)]
        assert update_by_update(SCHEDULE, changes)[:7] == [4, 4, 2, 8, 1, 1, 1]

    def test_a_validation_stands_between_the_epochs(self):
        assert [traces.offset_at(SCHEDULE, done) for done in (0, 9, 10, 19, 20, 39)] == [0, 9, 10, 19, 24, 43]

    def test_where_it_ends_it_holds_cycles_or_is_an_error(self, file):
        path = file("batchsize\n50\n20\n")
        held = read(path)
        assert update_by_update(SCHEDULE, held.changes(SHAPE))[:8] == [5, 2, 2, 1, 2, 2, 2, 2]
        assert held.notes == ["trace.csv ends after 2 updates; from there on its last size stays"]
        cycled = read(path, at_end="cycle").changes(SHAPE)
        assert update_by_update(SCHEDULE, cycled)[:6] == [5, 2, 3, 2, 5, 2]
        with pytest.raises(UsageError, match=r"trace\.csv: got 2 updates.*--trace-end"):
            read(path, at_end="error").changes(SHAPE)

    def test_a_batch_that_is_no_multiple_of_the_scripts_names_row_and_value(self, file):
        path = file("step,batchsize\n0,40\n1,25\n")
        with pytest.raises(
            UsageError, match=r"trace\.csv: trace: got 25 at step 1, takes a multiple of 10, the script's"
        ):
            read(path).changes(SHAPE)

    @pytest.mark.parametrize("value", ["0", "-8", "x", "1.5"])
    def test_what_is_no_batch_at_all_is_refused_before_the_script_runs(self, file, value):
        with pytest.raises(UsageError, match=f"trace.*{value}.* at step 1"):
            read(file(f"batchsize\n8\n{value}\n"))

    def test_a_file_that_is_no_trace_says_what_would_be(self, file, tmp_path):
        with pytest.raises(UsageError, match="columns time_s, gpus, takes"):
            read(file("time_s,gpus\n1,2\n"))
        with pytest.raises(UsageError, match="No such file"):
            read(tmp_path / "none.csv")


def resize(number: int, step: int | None, sizes: tuple[int, int], workers: int | None = None, fence: int = 1) -> dict:
    return {
        "number": number, "exec_id": "edt-9", "fence": fence, "generation": number, "step": step,
        "from_slots": sizes[0], "to_slots": sizes[1], "workers": sizes[1] if workers is None else workers,
    }  # fmt: skip


class TestHistories:
    def test_the_log_of_every_update_is_replayed_as_it_is(self, file):
        job = {"id": "edt-12", "attempts": 1, "seed": 5, "threads": 2, "digest": "ab"}
        updates = [[0, 1], [3, 2], [9, 1], [10, 3]]
        text = json.dumps({"job": job, "micro_batches_a_step": 1, "updates": updates, "resizes": []})
        found = read(file(text, "edt-12.json"))
        assert found.changes(SHAPE) == [(0, 1), (3, 2), (9, 1), (10, 3)]
        assert (found.history.seed, found.history.threads, found.history.inexact) == (5, 2, "")
        assert found.notes == []

    def test_a_replay_that_is_not_exact_says_why(self, file):
        job = {"id": "edt-12", "attempts": 2}
        text = json.dumps({"job": job, "micro_batches_a_step": 1, "updates": [[0, 1]], "resizes": []})
        assert "was started 2 times" in read(file(text, "edt-12.json")).notes[0]

    def test_a_replay_of_a_job_that_was_not_exact_says_why_the_job_was_not(self, file):
        job = {"id": "edt-12", "attempts": 1, "exactness": {"verdict": "not-exact", "reason": "cumsum: no kernel"}}
        text = json.dumps({"job": job, "micro_batches_a_step": 1, "updates": [[0, 1]], "resizes": []})
        assert read(file(text, "edt-12.json")).history.inexact == "cumsum: no kernel"

    def test_a_job_of_fixed_batches_gives_what_would_have_been(self, file):
        rows = [resize(1, None, (0, 1)), resize(2, 2, (1, 3)), resize(3, 6, (3, 2))]
        data = {"job": {"id": "edt-9"}, "micro_batches_a_step": 4, "updates": [[0, 1]], "resizes": rows}
        found = read(file(json.dumps(data), "edt-9.json"))
        assert found.changes(SHAPE) == [
            (0, 1),
            (12, 3),
            (28, 2),
        ]  # the joining engines count from step 3 on; 24 is in epoch 3
        assert "its batch was fixed" in found.notes[0]

    def test_the_bare_answer_of_resizes_is_taken_too(self, file):
        rows = [resize(1, 0, (0, 2)), resize(2, 5, (2, 4)), resize(3, None, (4, 0), 0)]
        for data in (rows, {"items": rows, "next": None}):
            found = traces.read_history(file(json.dumps(data), "resizes.json"))
            assert (found.job, found.unit) == ("edt-9", None)
            assert found.micro_batches(own_unit=1) == ((0, 2), (6, 4))

    @pytest.mark.parametrize("text", ["{}", "[]", "3", "{", '{"items": [{"step": 1, "workers": 2}]}'])
    def test_other_json_is_no_history(self, file, text):
        with pytest.raises(UsageError, match=r"h\.json.*takes the JSON"):
            read(file(text, "h.json"))


class TestEmulation:
    def test_it_goes_to_a_file_and_back(self, tmp_path):
        emulations = (
            Emulation(((0, 4), (9, 2)), "linear", record=tmp_path / "r", threads=2),
            Emulation(None, None),
            Emulation(((0, 1),), keeps_rule=True),
        )
        for emulation in emulations:
            assert Emulation.from_json_object(json.loads(json.dumps(emulation.to_json_object()))) == emulation

    def test_without_widths_it_is_the_reference_batch_all_the_time(self):
        assert Emulation(None).changes(64, 16) == ((0, 4),)

    def test_a_rule_may_be_made_otherwise_than_by_default(self):
        assert rule_named("linear-warmup:epochs=2").parameters == {"epochs": 2.0}
        assert rule_named("adascale:power=0.5,base=reference").parameters == {"power": 0.5, "base": "reference"}
        assert rule_named("sqrt").name == "root"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("lineal", "takes one of adam-sqrt"),
            ("legw:epoch=2", "got 'epoch', takes epochs"),
            ("linear:x=1", "got 'x', takes nothing"),
            ("legw:epochs=many", "epochs: got 'many', takes a number"),
            ("legw:", "got '', takes epochs"),
        ],
    )
    def test_a_rule_that_is_none_says_what_there_is(self, text, message):
        with pytest.raises(UsageError, match=message):
            rule_named(text)

    def test_the_script_may_keep_its_own(self):
        own = rule_named("legw")
        assert Emulation(None, keeps_rule=True).rule(own) is own
        assert Emulation(None, "linear").rule(own).name == "linear"
        assert Emulation(None).rule(own) is None

    @pytest.mark.parametrize("widths", [[], [[1, 2]], [[0, 1], [0, 2]], [[0, 0]], [[0, 2.5]], [[0, float("inf")]]])
    def test_widths_that_are_none_are_refused(self, widths):
        with pytest.raises(UsageError, match="widths: got"):
            Emulation.from_json_object({"widths": widths})

    @pytest.mark.parametrize("text", ["", "[]", "null", '{"widths": 4}', '{"widths": [[0]]}', '{"lr_rule": 5}'])
    def test_a_file_that_says_something_else_is_named(self, file, monkeypatch, text):
        monkeypatch.setenv(VARIABLE, str(file(text, "desired.json")))
        with pytest.raises(UsageError, match=r"EDT_EMULATE: got .*desired\.json, takes a file that `edt emulate`"):
            current()


def test_of_updates_takes_no_more_than_the_training_has():
    widths = itertools.count(1)
    changes = traces.of_updates(SCHEDULE, widths)
    assert update_by_update(SCHEDULE, changes) == [1, 2, 3, 4, 5, 5, 7, 3, 9, 1]
