"""How busy slots are: worked out from what supervisors write, and told to the API; what cannot be told is dropped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edt_agent.gpu_processes import Ours
from edt_agent.gpus import Condition
from edt_agent.supervisor_records import Key
from edt_agent.usage import Reading, Sample, cpu_samples, gpu_samples, read_usage_file, readings, spread
from edt_contract.attempt import USAGE_FILE
from support import nvml
from support.waiting import until

JOB = Key("edt-1", 1)
FIRST, SECOND = (JOB, "1"), (JOB, "2")


def usage_file(when: float, **engines: tuple[str, float, float]) -> str:
    """What a supervisor writes; by allocation: slot, CPU seconds, bytes."""
    named = {
        name.strip("_"): {"slot": slot, "cpu_seconds": seconds, "rss_bytes": size}
        for name, (slot, seconds, size) in engines.items()
    }
    return json.dumps({"time": when, "engines": named})


class TestSamples:
    def test_a_slot_is_as_busy_as_its_share_of_the_cores(self) -> None:
        before = {FIRST: Reading(100.0, 10.0, 5)}
        now = {FIRST: Reading(110.0, 25.0, 7)}
        assert cpu_samples(["0", "1"], before, now, 2.0, held={FIRST: "0"}) == [
            Sample("0", 0.75, 7),
            Sample("1", 0.0, 0),
        ]

    def test_more_than_its_share_is_full_and_less_than_nothing_is_idle(self) -> None:
        before = {FIRST: Reading(0.0, 5.0, 1), SECOND: Reading(0.0, 5.0, 1)}
        now = {FIRST: Reading(1.0, 9.0, 1), SECOND: Reading(1.0, 4.0, 1)}
        held = {FIRST: "0", SECOND: "1"}
        assert [sample.utilisation for sample in cpu_samples(["0", "1"], before, now, 1.0, held)] == [1.0, 0.0]

    def test_of_an_engine_that_is_new_or_not_measured_again_nothing_is_said(self) -> None:
        reading = Reading(1.0, 5.0, 1)
        assert cpu_samples(["0"], {}, {FIRST: reading}, 1.0, held={FIRST: "0"}) == []
        assert cpu_samples(["0"], {FIRST: reading}, {FIRST: reading}, 1.0, held={FIRST: "0"}) == []

    def test_an_engine_that_follows_another_on_its_slot_is_not_taken_for_it(self) -> None:
        before = {FIRST: Reading(0.0, 500.0, 1)}
        assert cpu_samples(["0"], before, {SECOND: Reading(5.0, 1.0, 1)}, 1.0, held={SECOND: "0"}) == []

    def test_a_slot_that_is_held_is_not_called_idle_while_its_engine_cannot_be_measured(self) -> None:
        assert cpu_samples(["0", "1"], {}, {}, 1.0, held={FIRST: "0"}) == [Sample("1", 0.0, 0)]

    def test_an_engine_speaks_for_the_slot_that_it_holds_and_for_no_other(self) -> None:
        before = {FIRST: Reading(0.0, 0.0, 1), SECOND: Reading(0.0, 0.0, 1)}
        now = {FIRST: Reading(1.0, 0.5, 7), SECOND: Reading(1.0, 1.0, 7)}
        samples = cpu_samples(["0", "1", "2"], before, now, 1.0, held={FIRST: "0"})
        assert samples == [Sample("0", 0.5, 7), Sample("1", 0.0, 0), Sample("2", 0.0, 0)]


class TestProcessesWithSeveralSlots:
    def test_each_slot_has_an_equal_part_of_what_its_process_uses(self) -> None:
        before, now = {FIRST: Reading(0.0, 1.0, 10)}, {FIRST: Reading(1.0, 2.5, 10)}
        parts = [spread(found, [[FIRST, SECOND]]) for found in (before, now)]
        samples = cpu_samples(["0", "1"], *parts, 1.0, held={FIRST: "0", SECOND: "1"})
        assert samples == [Sample("0", 0.75, 5), Sample("1", 0.75, 5)]

    def test_processes_that_are_measured_one_by_one_keep_their_own(self) -> None:
        found = {FIRST: Reading(0.0, 1.0, 10), SECOND: Reading(0.0, 2.0, 20)}
        assert spread(found, [[FIRST], [SECOND]]) == found
        assert spread(found, [[FIRST, SECOND]]) == found
        assert spread({}, [[FIRST, SECOND]]) == {}


class TestReadings:
    def test_they_are_what_a_supervisor_wrote(self) -> None:
        assert readings(JOB, usage_file(99.0, _1=("0", 2.5, 7)), 100.0) == {FIRST: Reading(99.0, 2.5, 7)}

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "[]",
            "{}",
            '{"time": 99}',
            usage_file(50.0, _1=("0", 1, 1)),
            usage_file(200.0, _1=("0", 1, 1)),
            '{"time":"x"}',
            "[" * 100_000,
        ],
    )
    def test_what_is_old_or_of_another_life_of_the_machine_or_unreadable_says_nothing(self, text: str) -> None:
        assert readings(JOB, text, 100.0) == {}

    @pytest.mark.parametrize(
        ("seconds", "size"), [(1.0, float("inf")), (1.0, -1), (1.0, 1 << 70), (float("nan"), 1), (float("inf"), 1)]
    )
    def test_numbers_that_the_api_would_refuse_for_the_whole_node_say_nothing(
        self, seconds: float, size: float
    ) -> None:
        assert readings(JOB, usage_file(99.0, _1=("0", seconds, size)), 100.0) == {}


class TestFiles:
    """The job's own processes may write into its spool, and the agent may be another user."""

    def test_what_a_supervisor_wrote_is_read(self, tmp_path: Path) -> None:
        (tmp_path / USAGE_FILE).write_text("{}")
        assert read_usage_file(tmp_path) == "{}"

    @pytest.mark.parametrize("what", ["a link", "a pipe", "a folder", "more than any supervisor writes", "nothing"])
    def test_anything_else_in_its_place_is_passed_over_at_once(self, tmp_path: Path, what: str) -> None:
        file = tmp_path / USAGE_FILE
        match what:
            case "a link":
                file.symlink_to("/dev/zero")
            case "a pipe":
                os.mkfifo(file)
            case "a folder":
                file.mkdir()
            case "more than any supervisor writes":
                file.write_text("{}" + " " * (1 << 20))
        assert read_usage_file(tmp_path) is None


class TestTelling:
    def test_a_busy_slot_and_free_ones_are_told_as_long_as_the_attempt_lives(self, node, api) -> None:
        node.start(EDT_USAGE_SECONDS="0.2", EDT_CPU_SLOTS="2")
        node.runs(slots=1)
        file = Path(node.assignment().spec.spool_dir) / USAGE_FILE
        begun = time.monotonic()

        def work() -> dict[str, Mapping[str, Any]] | None:
            """An engine that uses all of its cores, as its supervisor would write it; the first sample that says so."""
            now = time.monotonic()
            file.with_suffix(".tmp").write_text(usage_file(now, _100=("0", 1000 * (now - begun), 4096)))
            file.with_suffix(".tmp").replace(file)
            return next((each for each in api.usage if "0" in each and each["0"]["utilisation"] > 0), None)

        sample = until(work, what="the busy slot is told")
        assert sample["0"] == {"slot": "0", "utilisation": 1.0, "memory_bytes": 4096}
        assert sample["1"] == {"slot": "1", "utilisation": 0.0, "memory_bytes": 0}

    def test_a_process_with_two_slots_is_told_as_the_load_of_both(self, node, api) -> None:
        node.start(EDT_USAGE_SECONDS="0.2", EDT_CPU_SLOTS="2")
        assignment = node.assignment(slots=2, environ={"STAND_IN": "shares"})
        api.want(assignment)
        until(lambda: api.kinds("edt-1/1").count("engine-started") == 2)
        file = Path(assignment.spec.spool_dir) / USAGE_FILE
        begun = time.monotonic()

        def work() -> dict[str, Mapping[str, Any]] | None:
            """One process that uses all cores of the node."""
            now = time.monotonic()
            file.with_suffix(".tmp").write_text(usage_file(now, _100=("0", 1000 * (now - begun), 4096)))
            file.with_suffix(".tmp").replace(file)
            return next((each for each in api.usage if "0" in each and each["0"]["utilisation"] > 0), None)

        sample = until(work, what="the busy slots are told")
        assert sample["0"] == {"slot": "0", "utilisation": 1.0, "memory_bytes": 2048}
        assert sample["1"] == {"slot": "1", "utilisation": 1.0, "memory_bytes": 2048}

    def test_samples_that_cannot_be_told_are_dropped_and_the_agent_goes_on(self, node, api) -> None:
        node.start(EDT_USAGE_SECONDS="0.1")
        until(lambda: api.usage, what="the first sample")
        api.down = True
        until(lambda: "is not sent for now" in node.log, what="it is said once")
        time.sleep(0.5)
        before, begun = len(api.usage), time.monotonic()
        api.down = False
        until(lambda: len(api.usage) > before, what="it goes on")
        assert node.log.count("is not sent for now") == 1
        received = len(api.usage) - before
        most = (time.monotonic() - begun) / 0.1 + 2  # one each time it measures, and one that was under way
        assert received <= most, "nothing was kept to be told later"


class TestGpus:
    def test_a_slots_sample_is_its_gpus_condition_and_who_else_is_on_it(self, tmp_path: Path) -> None:
        found = {
            "GPU-a": Condition(0.75, 5, 7, 250.5, 61.0, 2, {os.getpid(): "us"}),
            "GPU-b": Condition(problem="gone"),
        }
        assert gpu_samples({"0": "GPU-a", "1": "GPU-b"}, found, Ours()) == [
            Sample("0", 0.75, 5, 7, 250.5, 61.0, 2),  # the process that is named there has no GPU open
            Sample("1", problem="gone"),
        ]

    def test_an_agent_offers_gpus_and_mig_devices_and_tells_how_they_are(self, node, api, tmp_path: Path) -> None:
        machine = tmp_path / "nvml.json"
        data = nvml.two_gpus()
        machine.write_text(json.dumps(data))
        environ = {
            "EDT_USAGE_SECONDS": "0.2",
            "EDT_DEVICES": "auto",
            "EDT_CPU_SLOTS": "",
            "CUDA_VISIBLE_DEVICES": "1,0",
        }
        node.start(TEST_NVML=str(machine), **environ)
        sample = until(lambda: api.usage, what="the first sample")[0]
        offered = {slot["slot"]: slot for slot in api.registrations[0]["slots"]}
        assert list(offered) == ["1:0", "1:1", "0"]
        assert offered["0"] == {
            **{"slot": "0", "device": "GPU-aaaa", "label": "NVIDIA H200", "model": "NVIDIA H200"},
            **{"memory_total_bytes": 140 << 30, "compute_capability": "9.0"},
        }
        assert (offered["1:1"]["device"], offered["1:1"]["mig_profile"]) == ("MIG-b111", "3g.71gb")
        assert sample["0"] == {
            **{"slot": "0", "utilisation": 0.75, "memory_bytes": 1 << 30, "memory_total_bytes": 140 << 30},
            **{"power_watts": 250.5, "temperature_c": 61.0, "ecc_errors": 0},
        }
        assert "utilisation" not in sample["1:0"]
        data["boards"][0]["lost"] = True
        draft = machine.with_suffix(".tmp")
        draft.write_text(json.dumps(data))
        draft.replace(machine)
        until(lambda: "problem" in api.usage[-1]["0"], what="the lost GPU is told of")
        assert api.usage[-1]["1:0"]["memory_bytes"] == 1 << 20
        assert node.log.count("GPU GPU-aaaa does not answer: NVML says 'GPU is lost'") == 1
