"""Where a step's time goes, engine by engine: what the engines sum up, what they report, and what they print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from edt_contract import step_times as contract
from edt_contract.encoding import dump_line, to_json_object
from edt_contract.reports import BODY_BYTES, Fitted, ReportKind, fit
from edt_contract.step_times import BYTES, MOST_ENGINES, StepTimes, fitted
from edt_runner import environment
from edt_runner.engine.link import EngineLink
from edt_runner.engine.step_profile import StepProfile
from edt_runner.engine.telemetry import MetricSums, Telemetry
from edt_runner.errors import UsageError
from edt_runner.protocol.channel import decode
from edt_runner.protocol.messages import Message, Progress
from edt_runner.schedule import Schedule, StepKind
from edt_runner.step_times import PHASES

MILLISECOND = 1000


def row(backward: float = 25.0, *, wait: float = 0.0) -> list[int]:
    """An engine's step with 20 ms of forward pass, and 5 ms of other work."""
    return [round(each * MILLISECOND) for each in (1.0, 20.0, backward, 2.0, 0.5, wait, 1.0, 0.5)]


def stepped(profile: StepProfile, *rows: Sequence[int], micro_batches: Sequence[int] | None = None) -> None:
    profile.add([str(11 + rank) for rank in range(len(rows))], micro_batches or [2] * len(rows), rows)


def taken(profile: StepProfile) -> StepTimes:
    times = profile.taken()
    assert times is not None
    return times


def test_contract_and_engine_know_the_same_phases_in_the_same_order() -> None:
    assert tuple(phase.value for phase in PHASES) == contract.PHASES
    assert [contract.PHASES[column] for column in contract.COMPUTING] == ["forward", "backward"]
    assert [contract.PHASES[column] for column in contract.BUSY] == ["data", "forward", "backward", "copies"]


class TestSums:
    def test_they_are_means_over_the_steps_since_they_were_taken_last(self) -> None:
        profile = StepProfile()
        assert profile.taken() is None
        stepped(profile, row(25), row(30), micro_batches=[2, 1])
        stepped(profile, row(35), row(30), micro_batches=[1, 2])
        times = taken(profile)
        assert (times.steps, times.ranks, times.engines) == (2, (0, 1), (11, 12))
        assert times.micro_batches == (1.5, 1.5)
        assert times.microseconds == (tuple(row(30)), tuple(row(30)))
        assert times.step_microseconds == 55_000
        assert times.efficiency == pytest.approx(50 / 55)
        assert profile.taken() is None
        stepped(profile, row(40), row(45))
        assert taken(profile).microseconds == (tuple(row(40)), tuple(row(45)))

    def test_what_is_printed_and_what_is_reported_do_not_take_steps_from_each_other(self) -> None:
        profile = StepProfile()
        for _ in range(3):
            stepped(profile, row())
        assert "over 3 steps" in profile.text()
        assert taken(profile).steps == 3
        stepped(profile, row())
        assert taken(profile).steps == 1
        assert "over 1 step:" in profile.text()
        assert profile.text() == ""

    def test_they_begin_anew_with_every_membership(self) -> None:
        profile = StepProfile()
        stepped(profile, row(100), row())
        stepped(profile, row(), row(), row())
        assert taken(profile).microseconds == (tuple(row()),) * 3
        stepped(profile, row(), row(), row())
        profile.reset()
        assert profile.taken() is None and profile.text() == ""

    def test_a_row_of_another_length_is_refused(self) -> None:
        profile = StepProfile()
        with pytest.raises(ValueError, match="got 2 and 15 numbers, takes 2 and 16"):
            profile.add(["1", "2"], [1, 1], [[0] * 8, [0] * 7])


class TestWhoWaitsForWhom:
    def test_the_engine_that_is_busy_for_longest_is_waited_for_by_as_much_as_the_others_are_done_earlier(self) -> None:
        profile = StepProfile()
        stepped(profile, row(25, wait=15), row(40), row(27, wait=13), row(29, wait=11))
        times = taken(profile)
        assert (times.slowest, times.waited_microseconds) == (1, 13_000)
        assert times.stragglers == ()

    def test_nobody_waits_for_one_engine_alone_or_for_equal_ones(self) -> None:
        profile = StepProfile()
        stepped(profile, row())
        assert taken(profile).slowest is None
        stepped(profile, row(), row())
        assert taken(profile).slowest is None

    def test_an_engine_that_is_slow_in_most_of_the_last_windows_is_a_straggler_until_it_is_not(self) -> None:
        profile, told = StepProfile(), []
        for slow in [True] * 8 + [False] * 3:
            stepped(profile, row(25), row(44.2 if slow else 25), row(25))
            times = taken(profile)
            told.append((times.stragglers, times.slower))
        assert told == [((), ())] * 7 + [((1,), (0.4,))] * 3 + [((), ())]

    def test_an_engine_that_has_fewer_micro_batches_because_it_is_slow_stays_a_straggler(self) -> None:
        profile = StepProfile()
        for _ in range(10):
            stepped(profile, row(100), row(100), row(76), micro_batches=[4, 4, 2])
            times = taken(profile)
        assert (times.stragglers, times.slowest) == ((2,), 0)
        assert times.slower == (0.61,)

    def test_more_micro_batches_alone_make_no_straggler(self) -> None:
        profile = StepProfile()
        for _ in range(10):
            stepped(profile, row(40), row(40), row(19, wait=20), micro_batches=[3, 3, 2])
            times = taken(profile)
        assert times.stragglers == ()


class TestManyEngines:
    def test_up_to_64_have_rows_of_their_own(self) -> None:
        profile = StepProfile()
        stepped(profile, *(row() for _ in range(MOST_ENGINES)))
        times = taken(profile)
        assert (len(times.ranks), times.others) == (64, 0)

    def test_of_more_the_slowest_and_fastest_do_and_the_rest_has_a_mean(self) -> None:
        profile, many = StepProfile(), 1024
        stepped(profile, *(row(25 + (rank * 7 % many) / 10) for rank in range(many)))
        times = taken(profile)
        backward = {each[2] for each in times.microseconds}
        assert len(times.ranks) == 16
        assert {25_000, 25_700} < backward and max(backward) == 25_000 + 100 * (many - 1)
        assert sorted(times.ranks) == list(times.ranks)
        assert times.others == many - 16
        assert times.others_micro_batches == 2.0
        assert times.others_microseconds[2] == pytest.approx(25_000 + 100 * (many - 1) / 2, rel=0.001)
        assert times.efficiency == pytest.approx((20_000 + 25_000 + 51_150) / (25_000 + 25_000 + 51_150), rel=1e-3)

    def test_the_longest_that_can_be_reported_is_as_long_as_is_said(self) -> None:
        most = StepTimes(
            steps=2**53 - 1,
            ranks=tuple(range((1 << 20) - 64, 1 << 20)),
            engines=(2**53 - 1,) * 64,
            micro_batches=(999999.99,) * 64,
            microseconds=((10**10,) * 8,) * 64,
            others=1 << 20,
            others_micro_batches=999999.99,
            others_microseconds=(10**10,) * 8,
            slowest=(1 << 20) - 1,
            waited_microseconds=10**10,
            stragglers=tuple(range((1 << 20) - 8, 1 << 20)),
            slower=(999.99,) * 8,
        )
        found = fitted(to_json_object(most))
        assert found == to_json_object(most)
        assert BYTES - 1500 < len(json.dumps(found)) <= BYTES < BODY_BYTES

    def test_64_engines_take_few_kilobytes(self) -> None:
        profile = StepProfile()
        stepped(profile, *(row(25 + rank) for rank in range(64)))
        assert len(dump_line(to_json_object(taken(profile)))) < 5000


GOOD = StepTimes(5, (0, 1), (11, 12), (2.0, 1.5), ((1,) * 8, (2,) * 8), slowest=1, waited_microseconds=3)


class TestReported:
    @pytest.mark.parametrize(
        "change",
        [
            {"steps": 0},
            {"steps": 1.5},
            {"ranks": [0]},
            {"ranks": [0, 0]},
            {"ranks": [0, -1]},
            {"engines": [11, "12"]},
            {"engines": [11, 2**60]},
            {"micro_batches": [2.0, -1.0]},
            {"micro_batches": [2.0, 1.2345]},
            {"micro_batches": [2.0, 10**400]},
            {"microseconds": [[1] * 8, [2] * 7]},
            {"microseconds": [[1] * 8, [2] * 7 + [10**11]]},
            {"microseconds": [[1] * 8, 3]},
            {"others": 3},
            {"others_microseconds": [1] * 8},
            {"slowest": 2},
            {"stragglers": [1]},
            {"stragglers": [2], "slower": [0.5]},
            {"waited_microseconds": True},
        ],
    )
    def test_parts_that_do_not_belong_together_are_no_step_times(self, change: Mapping[str, Any]) -> None:
        good = to_json_object(GOOD)
        assert fit(ReportKind.PROGRESS, {"step_times": good}) == Fitted({"step_times": good})
        found = fit(ReportKind.PROGRESS, {"step": 7, "step_times": {**good, **change}})
        assert found.body == {"step": 7}
        assert found.faults == ("progress: step_times is not what it may be",)

    def test_they_come_with_progress_every_two_seconds_and_with_the_last_one(self) -> None:
        schedule = Schedule(train_samples=3200, test_samples=0, micro_batches=2, batch_size=16, epochs=1)
        sent: list[Progress] = []
        now = 0.0

        class Link:
            def send(self, message: Message) -> None:
                if isinstance(message, Progress):
                    sent.append(message)

        telemetry = Telemetry(cast(EngineLink, Link()), lambda sums: {"loss": 0.5}, clock=lambda: now)
        for number in range(50):
            step = schedule.at(number)
            assert step.kind is StepKind.TRAIN
            now += 0.125
            stepped(telemetry.profile, row(), row(30))
            telemetry.committed(schedule, step, MetricSums(1), 32, 2, leads=True)
        now += 0.125
        stepped(telemetry.profile, row(), row(30))
        telemetry.committed(schedule, schedule.at(50), MetricSums(1), 32, 2, leads=True)
        telemetry.flush()
        times = [each.step_times for each in sent]
        assert [each.steps for each in times if each is not None] == [16, 16, 16, 3]
        assert len(times) > 8 and times[-1] is not None
        assert decode(dump_line(sent[-1])) == sent[-1]


class TestPrinted:
    def test_a_table_has_a_line_an_engine_with_milliseconds_percent_and_efficiency(self) -> None:
        profile = StepProfile()
        stepped(profile, row(25, wait=5), row(30), micro_batches=[2, 1])
        title, head, first, second = profile.text().splitlines()
        assert title == "where a step's time goes, in ms and percent, over 1 step:"
        assert head.split() == ["engine", "rank", "micro-batches", "step", *contract.PHASES, "efficiency"]
        assert " ".join(first.split()) == (
            "11 0 2 55.00 1.00 2 % 20.00 36 % 25.00 45 % 2.00 4 % 0.50 1 % 5.00 9 % 1.00 2 % 0.50 1 % 82 %"
        )
        assert second.split()[:3] == ["12", "1", "1"] and second.endswith("91 %")
        assert len({len(line) for line in (head, first, second)}) == 1

    def test_an_engine_prints_its_own_line_every_ten_seconds_and_at_its_end(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        schedule = Schedule(train_samples=3200, test_samples=0, micro_batches=2, batch_size=16, epochs=1)
        now = 0.0
        link = cast(EngineLink, None)  # an engine that is not the first sends nothing
        telemetry = Telemetry(link, lambda sums: {}, prints="12", clock=lambda: now)
        for number in range(25):
            now += 1.0
            stepped(telemetry.profile, row(), row(30))
            telemetry.committed(schedule, schedule.at(number), MetricSums(1), 32, 2, leads=False)
        telemetry.flush()
        printed = capsys.readouterr().out.splitlines()
        assert [line.rpartition(" over ")[2] for line in printed[::3]] == ["10 steps:", "10 steps:", "5 steps:"]
        assert all(line.split()[0] == "12" for line in printed[2::3])

    def test_it_is_asked_for_by_a_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for text, wanted in {"": False, "0": False, " 1 ": True}.items():
            monkeypatch.setenv("EDT_PROFILE_STEP", text)
            assert environment.profile_step() is wanted
        monkeypatch.setenv("EDT_PROFILE_STEP", "yes")
        with pytest.raises(UsageError, match="EDT_PROFILE_STEP: got 'yes', takes 0 or 1"):
            environment.profile_step()


def test_a_report_of_other_engines_fits_as_well() -> None:
    assert fitted(to_json_object(replace(GOOD, others=3, others_microseconds=(1,) * 8))) is not None
