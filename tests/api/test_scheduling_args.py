"""What a submission says of its queue, priority, sizes, what comes before it, and until when it shall be done."""

from __future__ import annotations

import datetime
import json

import pytest

from edt_api.errors import ArgumentsInvalid
from edt_api.submissions import scheduling
from edt_api.submissions.options import OPTIONS
from edt_api.submissions.submission import read
from support.served_api import EXECS, ServedApi

START = "--exec-start edtPyTorch"
GANG = "--exec-start distPyTorch --model-main main.py"


def said(line: str) -> str:
    """How a submission is refused."""
    with pytest.raises(ArgumentsInvalid) as refused:
        read(line, None)
    return str(refused.value)


class TestQueues:
    @pytest.mark.parametrize(
        ("given", "path"),
        [
            ("--queue /research/vision", "/research/vision"),
            ("--queue research/vision/", "/research/vision"),
            ("--consumer /research/vision", "/research/vision"),
            ("--consumer /openedt/research", "/research"),
            ("--consumer openedt", ""),
            ("--queue /", ""),
            ("--queue /a --consumer /openedt/a", "/a"),
            ("", ""),
        ],
    )
    def test_a_queue_is_named_by_its_path_or_by_the_path_of_its_plan(self, given: str, path: str) -> None:
        assert read(f"{START} {given}", None).queue == path

    def test_two_queues_are_refused(self) -> None:
        assert said(f"{START} --queue /a --consumer /b").startswith(
            "--queue: got '/a' beside --consumer '/b'; it takes the path of a queue"
        )

    @pytest.mark.parametrize("option", ["--queue", "--consumer"])
    def test_nothing_and_a_path_without_end_are_no_paths(self, option: str) -> None:
        for value in ("' '", "/" + "x" * scheduling.LONGEST_PATH):
            assert said(f"{START} {option} {value}").endswith(OPTIONS[option].takes)

    def test_the_priority_is_1_unless_one_is_given(self) -> None:
        assert read(START, None).priority == 1
        assert read(f"{START} --msd-priority 5000", None).priority == 5000
        assert said(f"{START} --msd-priority 0") == (
            "--msd-priority: got '0'; it takes a whole number from 1 to 2147483647"
        )


class TestSizes:
    def test_least_workers_and_sizes_become_slots(self) -> None:
        job = read(f"{START} --numWorker 8 --minWorkers 2 --workerDeviceNum 2", None)
        assert (job.min_slots, job.sizes, job.max_engines) == (4, (), 16)
        job = read(f"{START} --numWorker 8 --sizes 8,2,4,2 --workerDeviceNum 2", None)
        assert (job.min_slots, job.sizes, job.max_engines) == (4, (4, 8, 16), 16)

    def test_sizes_below_the_least_number_of_workers_do_not_count(self) -> None:
        job = read(f"{START} --numWorker 8 --minWorkers 3 --sizes 1,2,4,8", None)
        assert (job.min_slots, job.sizes) == (4, (4, 8))

    def test_the_largest_size_is_the_most_workers_where_nothing_else_says_how_many(self) -> None:
        assert read(f"{START} --sizes 1,2,4", None).num_worker == 4
        assert read(f"{START} --sizes 1,2,4 --edt-options maxWorkers=4", None).num_worker == 4

    def test_the_forms_own_numbers_count_as_those_of_the_options(self) -> None:
        form = json.dumps({"hardwareSpec": {"nodes": {"num_nodes": 6, "gpu": {"num_gpu": 2}}}})
        assert read(f"{START} --numWorker 2 --minWorkers 3", form).min_slots == 6

    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            (
                "--numWorker 4 --minWorkers 5",
                "--minWorkers: got 5; it takes a whole number up to --numWorker, which is 4 here",
            ),
            ("--minWorkers 2", "--minWorkers: got 2; it takes a whole number up to --numWorker, which is 1 here"),
            ("--numWorker 4 --sizes 2,8", "--sizes: got 2,8; it takes numbers up to --numWorker, which is 4 here"),
            (
                "--numWorker 8 --minWorkers 5 --sizes 1,4",
                "--sizes: got 1,4; it takes at least one number from --minWorkers up, which is 5 here",
            ),
            ("--numWorker 4 --sizes 1;2", f"--sizes: got '1;2'; it takes {scheduling.TAKES_SIZES}"),
            ("--numWorker 4 --sizes 0,1", f"--sizes: got '0,1'; it takes {scheduling.TAKES_SIZES}"),
        ],
    )
    def test_what_does_not_go_together_is_refused_with_both_numbers(self, given: str, sentence: str) -> None:
        assert said(f"{START} {given}") == sentence

    def test_a_gang_has_all_of_its_workers_or_none(self) -> None:
        assert read(f"{GANG} --numWorker 3 --minWorkers 3 --sizes 3", None).sizes == ()
        whole = "with distPyTorch, whose jobs are gangs: they have all of their workers, or none"
        assert said(f"{GANG} --numWorker 3 --minWorkers 2") == f"--minWorkers: got 2; it takes nothing but 3 {whole}"
        assert said(f"{GANG} --numWorker 3 --sizes 1,3") == f"--sizes: got 1,3; it takes nothing but 3 {whole}"

    def test_models_of_gpus_are_names_in_any_case(self) -> None:
        job = read(f"{START} --gpu-model 'NVIDIA H100 80GB HBM3, nvidia  a100,NVIDIA A100'", None)
        assert job.gpu_models == ("nvidia h100 80gb hbm3", "nvidia a100")
        assert said(f"{START} --gpu-model h100,") == f"--gpu-model: got 'h100,'; it takes {scheduling.TAKES_MODELS}"
        assert said(f"{START} --gpu-model h100 --workerDeviceType CPU") == (
            f"--gpu-model: got 'h100' beside --workerDeviceType cpu; it takes {scheduling.TAKES_MODELS}"
        )


class TestTimes:
    @pytest.mark.parametrize(
        ("text", "seconds"), [("90s", 90), ("90m", 5400), ("6h", 21600), ("1.5h", 5400), ("2d", 172800)]
    )
    def test_a_time_limit_has_a_unit(self, text: str, seconds: float) -> None:
        assert read(f"{START} --time-limit {text}", None).time_limit == seconds

    @pytest.mark.parametrize("text", ["90", "m", "-5m", "0s", "1w", "1h30m", "4000d", "١h"])
    def test_what_is_no_time_limit_is_refused_by_name(self, text: str) -> None:
        assert said(f"{START} --time-limit {text}") == (
            f"--time-limit: got {text!r}; it takes {scheduling.TAKES_DURATION}"
        )

    def test_a_deadline_is_a_time_with_its_zone_or_counted_from_now(self) -> None:
        noon = datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.UTC).timestamp()
        for text in ("2026-12-01T12:00Z", "2026-12-01 12:00:00Z", "2026-12-01T13:30+01:30"):
            assert scheduling.deadline(text, 0.0) == noon, text
        assert scheduling.deadline("+6h", 100.0) == 100 + 6 * 3600

    @pytest.mark.parametrize("text", ["2026-12-01T12:00", "2026-12-01", "2026-13-01T12:00Z", "6h", "+6", "soon"])
    def test_what_is_no_deadline_is_refused_by_name(self, text: str) -> None:
        assert said(f"{START} --deadline {text}") == f"--deadline: got {text!r}; it takes {scheduling.TAKES_DEADLINE}"

    def test_a_deadline_that_is_past_is_refused(self) -> None:
        with pytest.raises(ArgumentsInvalid, match=r"--deadline: got '2026-12-01T12:00Z', which is past; it takes"):
            scheduling.due("2026-12-01T12:00Z", 1e10)


class TestWhatIsTaken:
    def submit(self, api: ServedApi, args: str, user: str = "ana") -> tuple[int, str]:
        code = {"file": ("main.py", b"print('hello')\n")}
        answer = api.client(user).post(
            EXECS, params={"args": f"{START} --numWorker 4 --model-main main.py {args}"}, files=code
        )
        return answer.status_code, answer.json()["id"] if answer.is_success else answer.text

    def test_a_job_shows_what_it_was_submitted_with(self, api: ServedApi) -> None:
        first = api.submit().exec_id
        status, job = self.submit(
            api,
            f"--queue research --msd-priority 7 --minWorkers 2 --sizes 2,4 --after {first} --deadline +6h "
            "--time-limit 90m --gpu-model 'NVIDIA A100'",
        )
        assert status == 200
        shown = api.client("ana").get(f"/api/v1/jobs/{job}").json()
        assert shown["deadline"] == pytest.approx(shown["created_at"] + 6 * 3600, abs=60)
        assert {
            name: shown[name]
            for name in (
                "queue", "priority", "min_workers", "max_workers", "sizes", "after", "time_limit", "gpu_models",
            )
        } == {
            "queue": "/research",
            "priority": 7,
            "min_workers": 2,
            "max_workers": 4,
            "sizes": [2, 4],
            "after": [first],
            "time_limit": 5400,
            "gpu_models": ["nvidia a100"],
        }  # fmt: skip
        assert all(option["effect"] for option in shown["options"])

    def test_a_job_comes_after_jobs_that_its_user_may_see(self, api: ServedApi) -> None:
        bobs = api.submit("bob").exec_id
        for name in (bobs, "edt-999"):
            status, sentence = self.submit(api, f"--after {name}")
            why = f"--after: got {name}, which was never submitted, was deleted, or belongs to another user; it takes"
            assert (status, sentence.startswith(f"Error 400: {why}")) == (400, True), sentence
        assert self.submit(api, f"--after {bobs}", "bob")[0] == 200

    def test_a_deadline_in_the_past_is_refused_and_makes_no_job(self, api: ServedApi) -> None:
        status, sentence = self.submit(api, "--deadline 2020-01-01T00:00Z")
        assert (status, "which is past" in sentence) == (400, True)
