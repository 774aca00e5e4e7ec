"""Lists in pages, a training's course, logs, slots over time: what pages show, and to whom."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from edt_api.http import cursor_of
from edt_api.schemas import cluster, jobs
from edt_contract.reports import ExitKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.operations import accounts
from edt_scheduler.store import usage
from edt_scheduler.views import JobView
from support.paging import every
from support.seeded import Past, seed
from support.served_api import ARGS, EXECS, ServedApi, served

PAST = Past(jobs=60, nodes=2, slots=2, spells=2, running=2, waiting=3, points=200, usage_minutes=5)
RUNNING = "edt-57"
SAMPLE = {"slots": [{"slot": "0", "utilisation": 0.5, "memory_bytes": 7, "later": "keys are dropped"}]}


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    """An API over a home with a past: 60 jobs of ana and bob in turn."""
    with served(tmp_path_factory.mktemp("home")) as api:
        seed(api.platform.database, time.time(), PAST)
        yield api


def ids(listed: list[dict[str, Any]]) -> list[str]:
    return [each["id"] for each in listed]


class TestJobs:
    def test_they_come_newest_first_page_by_page_and_each_once(self, past: ServedApi) -> None:
        client = past.client("admin")
        first = jobs.JobPage.model_validate(client.get("/api/v1/jobs", params={"limit": 25}).json())
        assert [job.id for job in first.items] == [f"edt-{number}" for number in range(60, 35, -1)]
        assert first.total == 60
        listed = every(client, "/api/v1/jobs", limit=25)
        assert ids(listed) == [f"edt-{number}" for number in range(60, 0, -1)]

    def test_jobs_that_come_meanwhile_shift_no_page(self, fresh_api: ServedApi) -> None:
        client = fresh_api.client("ana")
        for _ in range(3):
            fresh_api.submit()
        page = client.get("/api/v1/jobs", params={"limit": 2}).json()
        fresh_api.submit()
        rest = client.get("/api/v1/jobs", params={"limit": 2, "cursor": page["next"]}).json()
        assert (ids(page["items"]), ids(rest["items"]), rest["next"]) == (["edt-3", "edt-2"], ["edt-1"], None)

    def test_a_user_sees_his_own_whatever_he_asks_for(self, past: ServedApi) -> None:
        client = past.client("ana")
        mine = every(client, "/api/v1/jobs")
        assert len(mine) == 30 and {job["owner"] for job in mine} == {"ana"}
        assert client.get("/api/v1/jobs", params={"owner": "bob"}).json() == {"items": [], "next": None, "total": 0}
        assert client.get("/api/v1/jobs", params={"q": "bob"}).json()["total"] == 0

    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            ({"state": "RUNNING"}, {"edt-57", "edt-56"}),
            ({"state": "RUNNING,PENDING_CRD_SCHEDULER"}, {f"edt-{number}" for number in range(56, 61)}),
            ({"q": "edt-12"}, {"edt-12"}),
            ({"q": "DIGITS-5"}, {"edt-58", "edt-50"}),
            ({"q": "digits-5", "owner": "ana", "framework": "edtPyTorch"}, {"edt-58", "edt-50"}),
            ({"q": "%"}, set()),
            ({"q": "_"}, set()),
            ({"framework": "tensorflow"}, set()),
            ({"owner": "nobody"}, set()),
        ],
    )
    def test_filters_narrow_the_list_and_its_total(
        self, past: ServedApi, asked: dict[str, str], expected: set[str]
    ) -> None:
        page = past.client("admin").get("/api/v1/jobs", params={**asked, "limit": 500}).json()
        assert set(ids(page["items"])) == expected
        assert page["total"] == len(expected)

    def test_a_name_that_its_user_did_not_give_is_not_looked_for(self, fresh_api: ServedApi) -> None:
        client = fresh_api.client("ana")
        bare = fresh_api.submit().exec_id
        named = fresh_api.submit(args=f"{ARGS} --appName ElasticNet").exec_id

        def found(text: str) -> list[str]:
            return ids(client.get("/api/v1/jobs", params={"q": text}).json()["items"])

        assert found("elastic") == [named], "what is shown in the place of the other's name is its script's"
        assert found("MAIN.py") == [named, bare]

    @pytest.mark.parametrize(
        ("asked", "names"),
        [
            ({"cursor": "x"}, "cursor"),
            ({"cursor": "ünicode"}, "cursor"),
            ({"cursor": cursor_of("events", 3)}, "cursor"),
            ({"cursor": cursor_of("jobs", 2**70)}, "cursor"),
            ({"limit": 0}, "limit"),
            ({"limit": 501}, "limit"),
            ({"state": "SLEEPING"}, "state"),
        ],
    )
    def test_what_cannot_be_asked_is_refused_by_name(self, past: ServedApi, asked: dict[str, str], names: str) -> None:
        answer = past.client("admin").get("/api/v1/jobs", params=asked)
        assert answer.status_code == 400
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"].startswith(f"{names}: ")

    def test_a_running_job_says_how_far_it_is(self, past: ServedApi) -> None:
        job = jobs.Job.model_validate(past.client("admin").get(f"/api/v1/jobs/{RUNNING}").json())
        assert (job.min_workers, job.image, job.state) == (1, None, jobs.ExecState.RUNNING)
        assert job.progress["epochs"] == 10 and 0 < (job.progress["step"] or 0) < 20_000
        assert set(job.progress["metrics"]) == {"loss", "accuracy"}

    def test_an_image_that_was_asked_for_is_shown(self, fresh_api: ServedApi) -> None:
        job = fresh_api.submit(args=f"{ARGS} --msd-image-name openedt/runner-torch:own")
        assert fresh_api.client("ana").get(f"/api/v1/jobs/{job.exec_id}").json()["image"] == "openedt/runner-torch:own"


class TestHistories:
    @pytest.mark.parametrize(("what", "key"), [("events", "seq"), ("resizes", "number"), ("allocations", "allocation")])
    def test_they_come_oldest_first_page_by_page(self, past: ServedApi, what: str, key: str) -> None:
        path = f"/api/v1/jobs/{RUNNING}/{what}"
        client = past.client("admin")
        numbers = [each[key] for each in every(client, path)]
        assert len(numbers) >= 2 and numbers == sorted(set(numbers))
        assert [each[key] for each in every(client, path, limit=1)] == numbers
        assert client.get(path, params={"cursor": cursor_of("jobs", 1)}).status_code == 400

    def test_an_allocation_has_all_its_times(self, past: ServedApi) -> None:
        page = jobs.AllocationPage.model_validate(past.client("admin").get("/api/v1/jobs/edt-1/allocations").json())
        held = page.items[0]
        assert held.started_at is not None and held.counted_at is not None and held.released_at is not None
        assert held.decided_at < held.started_at < held.counted_at < held.released_at
        assert (held.exec_id, held.node, held.slot) == ("edt-1", "node-01", "0")

    @pytest.mark.parametrize("what", ["", "/events", "/resizes", "/allocations", "/metrics", "/logs", "/log"])
    def test_of_others_jobs_there_is_nothing(self, past: ServedApi, what: str) -> None:
        answer = past.client("ana").get(f"/api/v1/jobs/edt-1{what}")
        owner = past.client("bob").get(f"/api/v1/jobs/edt-1{what}")
        assert (answer.status_code, owner.status_code) == (404, 200)
        assert answer.json()["code"] == "no-such-job"
        assert past.client().get(f"/api/v1/jobs/edt-1{what}").status_code == 401


class TestMetrics:
    def test_they_are_columns_of_one_length_in_as_few_points_as_asked_for(self, past: ServedApi) -> None:
        client, path = past.client("admin"), f"/api/v1/jobs/{RUNNING}/metrics"
        whole = jobs.Metrics.model_validate(client.get(path).json())
        assert whole.total == len(whole.step) == 200
        few = jobs.Metrics.model_validate(client.get(path, params={"points": 40}).json())
        assert few.total == 200 and len(few.step) <= 40
        assert (few.step[0], few.step[-1]) == (whole.step[0], whole.step[-1])
        columns = [few.time, few.epoch, few.workers, few.loss, few.samples_per_second, *few.metrics.values()]
        assert {len(column) for column in columns} == {len(few.step)}
        assert set(few.metrics) == {"loss", "accuracy"}
        assert client.get(path, params={"points": 3}).status_code == 400

    def test_validations_have_columns_of_their_own_with_step_epoch_and_time(self, past: ServedApi) -> None:
        client, path = past.client("admin"), f"/api/v1/jobs/{RUNNING}/metrics"
        found = jobs.Metrics.model_validate(client.get(path).json()).validation
        assert found.total == len(found.step) >= 2
        assert found.step == sorted(set(found.step)) and found.epoch == list(range(1, 1 + len(found.step)))
        assert set(found.metrics) == {"val_loss", "val_accuracy"}
        assert {len(column) for column in (found.time, *found.metrics.values())} == {len(found.step)}
        few = jobs.Metrics.model_validate(client.get(path, params={"points": 4}).json()).validation
        assert len(few.step) <= 4 and few.total == found.total

    def test_a_job_has_its_newest_validation_and_the_best_value_of_each_metric(self, past: ServedApi) -> None:
        client = past.client("admin")
        job = jobs.Job.model_validate(client.get(f"/api/v1/jobs/{RUNNING}").json())
        curve = jobs.Metrics.model_validate(client.get(f"/api/v1/jobs/{RUNNING}/metrics").json()).validation
        assert job.validation is not None
        assert (job.validation.step, job.validation.epoch) == (curve.step[-1], curve.epoch[-1])
        assert job.validation.metrics["val_loss"] == curve.metrics["val_loss"][-1]
        best = min(range(len(curve.step)), key=lambda index: curve.metrics["val_loss"][index] or 0.0)
        assert job.best["val_loss"].epoch == curve.epoch[best]
        assert job.main_metric == jobs.MainMetric(name="val_accuracy", value=job.validation.metrics["val_accuracy"])

    def test_a_job_that_has_not_trained_has_none(self, past: ServedApi) -> None:
        empty = past.client("admin").get("/api/v1/jobs/edt-60/metrics").json()
        assert empty["step"] == [] and empty["metrics"] == {} and empty["total"] == 0
        assert empty["validation"] == {"step": [], "time": [], "epoch": [], "metrics": {}, "total": 0}
        job = jobs.Job.model_validate(past.client("admin").get("/api/v1/jobs/edt-60").json())
        assert (job.validation, job.best, job.main_metric, job.best_model) == (None, {}, None, None)


class TestLogs:
    @pytest.fixture
    def job(self, api: ServedApi) -> JobView:
        job = api.submit()
        for name, text in {
            "stdout": "[2026] Train, Loss: 1\n",
            "training.log": "done\n",
            "driver.out": "hello\n",
            "engine-12.out": "twelve\n",
            "engine-2.err": "two\n",
            "engine-2.out": "",
            "engine-2.out.1": "turned over",
            "notes.txt": "not a stream",
        }.items():
            (job.log_dir / name).write_text(text)
        (job.log_dir / "engine-3.out").symlink_to("/etc/passwd")
        (job.log_dir / "engine-4.out").mkdir()
        return job

    def test_the_files_are_listed_the_drivers_first_and_engines_in_order(self, api: ServedApi, job: JobView) -> None:
        listed = api.client("ana").get(f"/api/v1/jobs/{job.exec_id}/logs").json()["items"]
        assert [(each["stream"], each["bytes"]) for each in listed] == [
            ("training", 5), ("elog", 22), ("out", 6), ("engine-2.out", 0), ("engine-2.err", 4), ("engine-12.out", 7),
        ]  # fmt: skip

    def test_each_of_them_can_be_followed(self, api: ServedApi, job: JobView) -> None:
        client, path = api.client("ana"), f"/api/v1/jobs/{job.exec_id}/log"
        answer = client.get(path, params={"stream": "engine-12.out", "offset": 3})
        assert (answer.text, answer.headers["edt-log-offset"]) == ("lve\n", "7")
        with (job.log_dir / "engine-12.out").open("a") as file:
            file.write("more\n")
        assert client.get(path, params={"stream": "engine-12.out", "offset": 7}).text == "more\n"
        assert client.get(path, params={"stream": "engine-99.out"}).text == "", "it has not begun"
        assert client.get(path, params={"stream": "engine-3.out"}).text == "", "a link leads nowhere"

    @pytest.mark.parametrize(
        "stream", ["notes.txt", "../spool/x", "engine-2.out.1", "engine-2.out/..", "engine-x.out", "ENGINE-2.out", ""]
    )
    def test_no_other_file_is_ever_shown(self, api: ServedApi, job: JobView, stream: str) -> None:
        answer = api.client("ana").get(f"/api/v1/jobs/{job.exec_id}/log", params={"stream": stream})
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith("stream: ")

    def test_a_job_without_a_log_has_no_files(self, api: ServedApi) -> None:
        job = api.submit()
        assert api.client("ana").get(f"/api/v1/jobs/{job.exec_id}/logs").json()["items"] == []


class TestTimeline:
    def test_it_has_what_overlaps_its_window_and_nothing_else(self, past: ServedApi) -> None:
        client = past.client("admin")
        whole = cluster.Timeline.model_validate(client.get("/api/v1/timeline").json())
        assert whole.earliest == min(held.decided_at for held in whole.allocations)
        since = whole.now - 12 * 3600
        until = since + 1800
        part = client.get("/api/v1/timeline", params={"since": since, "until": until})
        shown = cluster.Timeline.model_validate(part.json())
        assert (shown.since, shown.until) == (since, until)
        expected = [
            held.allocation
            for held in whole.allocations
            if held.decided_at <= until and (held.released_at is None or held.released_at >= since)
        ]
        assert [held.allocation for held in shown.allocations] == expected and expected
        assert [each.number for each in shown.resizes] == [
            each.number for each in whole.resizes if since <= each.time <= until
        ]
        named = {each.exec_id for each in (*shown.allocations, *shown.resizes, *shown.failures)}
        assert set(shown.jobs) == named

    def test_it_says_exactly_what_its_shape_says(self, past: ServedApi) -> None:
        answer = past.client("admin").get("/api/v1/timeline").json()
        shown = cluster.Timeline.model_validate(answer)
        assert answer == shown.model_dump(mode="json")

    def test_of_others_jobs_a_user_sees_slots_and_sizes_but_no_owner_no_name_and_no_words(
        self, past: ServedApi
    ) -> None:
        everything = past.client("admin").get("/api/v1/timeline").json()
        answer = past.client("ana").get("/api/v1/timeline").json()
        assert answer["allocations"] == everything["allocations"]
        mine = {name for name, job in everything["jobs"].items() if job["owner"] == "ana"}
        assert {name for name, job in answer["jobs"].items() if job["owner"] is not None} == mine
        for name, job in answer["jobs"].items():
            assert job["state"] == everything["jobs"][name]["state"]
            assert (job["app_name"] is not None) == (name in mine)
        for each in answer["resizes"]:
            assert (each["detail"] is not None) == (each["exec_id"] in mine)
        assert {each["exec_id"] for each in answer["failures"]} - mine
        for each in answer["failures"]:
            assert each["exec_id"] in mine or each["message"] is None

    def test_lost_engines_and_failed_attempts_are_failures(self, past: ServedApi) -> None:
        shown = cluster.Timeline.model_validate(past.client("admin").get("/api/v1/timeline").json())
        engines = [each for each in shown.failures if each.slot is not None]
        assert engines and {each.kind for each in engines} == {ExitKind.LOST.value}
        lost = {each.allocation for each in shown.allocations if each.kind == ExitKind.LOST}
        assert len(engines) == len(lost)
        assert all("was lost" in (each.message or "") for each in engines)
        errors = {name for name, job in shown.jobs.items() if job.state is jobs.ExecState.ERROR}
        assert {each.exec_id for each in shown.failures if each.node is None} == errors

    def test_a_window_that_ends_before_it_begins_is_refused(self, past: ServedApi) -> None:
        answer = past.client("ana").get("/api/v1/timeline", params={"since": 10, "until": 5})
        assert answer.status_code == 400 and answer.json()["detail"].startswith("until: ")


class TestNodes:
    def test_a_slot_says_whose_job_it_holds_only_to_that_user_and_to_admins(self, fresh_api: ServedApi) -> None:
        fresh_api.register("node-a", slots=1)
        fresh_api.submit("ana")
        look(fresh_api.platform)
        owners = {}
        for user in ("admin", "ana", "bob"):
            (node,) = fresh_api.client(user).get("/api/v1/nodes").json()["items"]
            owners[user] = (node["slots"][0]["exec_id"], node["slots"][0]["owner"])
        assert owners == {"admin": ("edt-1", "ana"), "ana": ("edt-1", "ana"), "bob": ("edt-1", None)}

    def test_a_node_says_for_how_long_it_was_not_heard_from_and_in_what_its_jobs_run(
        self, fresh_api: ServedApi
    ) -> None:
        fresh_api.register("node-a")
        (node,) = fresh_api.client("ana").get("/api/v1/nodes").json()["items"]
        assert 0 <= node["lease_age_seconds"] < 10
        assert (node["launcher"], node["health_since"]) == ("process", None)


class TestUsage:
    def test_a_node_tells_how_busy_it_is_and_users_see_it(self, fresh_api: ServedApi) -> None:
        token = fresh_api.register("node-a", slots=2)
        answer = fresh_api.client(token=token).post("/api/v1/nodes/node-a/usage", json=SAMPLE)
        assert answer.status_code == 204 and answer.content == b""
        client = fresh_api.client("bob")
        (node,) = client.get("/api/v1/nodes").json()["items"]
        assert [(slot["utilisation"], slot["memory_bytes"]) for slot in node["slots"]] == [(0.5, 7), (None, None)]
        usage = cluster.NodeUsage.model_validate(client.get("/api/v1/nodes/node-a/usage").json())
        assert set(usage.slots) == {"0"}
        assert (usage.slots["0"].utilisation, usage.slots["0"].memory_bytes) == ([0.5], [7])
        assert usage.until - usage.since == 3600

    def test_a_gpu_is_told_with_its_model_and_memory_what_is_wrong_with_it_and_who_else_is_there(
        self, fresh_api: ServedApi
    ) -> None:
        facts = {"model": "NVIDIA H200", "memory_total_bytes": 150 << 30, "compute_capability": "9.0"}
        whole = {"slot": "0", "device": "GPU-a", "label": "NVIDIA H200", **facts}
        part = {**whole, "slot": "1:0", "device": "MIG-b", "mig_profile": "1g.18gb", "memory_total_bytes": 16 << 30}
        token = fresh_api.register("node-a", offers=[whole, part])
        foreign = [{"pid": 7, "name": "game"}]
        sample = {"slot": "0", "utilisation": 0.5, "ecc_errors": 2, "foreign_processes": foreign}
        lost = {"slot": "1:0", "problem": "NVML says 'GPU is lost'"}
        told = fresh_api.client(token=token).post("/api/v1/nodes/node-a/usage", json={"slots": [sample, lost]})
        assert told.status_code == 204
        client = fresh_api.client("bob")
        first, second = client.get("/api/v1/nodes/node-a").json()["slots"]
        assert (first["model"], first["memory_total_bytes"], first["compute_capability"]) == tuple(facts.values())
        assert (first["ecc_errors"], first["problem"], first["foreign_processes"]) == (2, None, foreign)
        assert (second["mig_profile"], second["memory_total_bytes"]) == ("1g.18gb", 16 << 30)
        assert (second["utilisation"], second["problem"]) == (None, "NVML says 'GPU is lost'")
        series = client.get("/api/v1/nodes/node-a/usage").json()["slots"]
        assert (series["0"]["utilisation"], series["1:0"]["utilisation"]) == ([0.5], [None])

    def test_only_the_node_itself_may_tell(self, fresh_api: ServedApi) -> None:
        fresh_api.register("node-a")
        other = fresh_api.register("node-b")
        path = "/api/v1/nodes/node-a/usage"
        for client, status in (
            (fresh_api.client(), 401),
            (fresh_api.client(token=other), 403),
            (fresh_api.client("ana"), 403),
            (fresh_api.client("admin"), 403),
        ):
            assert client.post(path, json=SAMPLE).status_code == status

    @pytest.mark.parametrize(
        "slot",
        [
            {"slot": "0", "utilisation": 1.01},
            {"slot": "0", "ecc_errors": -1},
            {"slot": "0", "foreign_processes": [{"pid": 0}]},
            {"slot": "0", "utilisation": -0.1},
            {"slot": "0", "utilisation": 0.5, "memory_bytes": -1},
            {"slot": "", "utilisation": 0.5},
        ],
    )
    def test_a_sample_that_cannot_be_is_refused(self, api: ServedApi, slot: dict[str, Any]) -> None:
        token = api.register("node-u")
        answer = api.client(token=token).post("/api/v1/nodes/node-u/usage", json={"slots": [slot]})
        assert answer.status_code == 400

    def test_a_series_has_as_many_points_as_asked_for(self, past: ServedApi) -> None:
        client, path = past.client("ana"), "/api/v1/nodes/node-01/usage"
        usage = client.get(path, params={"points": 4, "since": time.time() - 300}).json()
        assert set(usage["slots"]) == {"0", "1"}
        assert all(len(series["time"]) <= 5 for series in usage["slots"].values())
        assert client.get(path, params={"since": 10, "until": 5}).status_code == 400
        assert client.get("/api/v1/nodes/nowhere/usage").status_code == 404


def test_removed_jobs_are_on_no_list(fresh_api: ServedApi) -> None:
    client = fresh_api.client("ana")
    job = fresh_api.submit().exec_id
    client.delete(f"{EXECS}/{job}")
    assert client.get("/api/v1/jobs").json()["total"] == 0
    assert client.get(f"/api/v1/jobs/{job}/metrics").status_code == 404


class TestSlotHours:
    def test_they_are_listed_by_day_and_user_each_once_and_add_up(self, past: ServedApi) -> None:
        whole = every(past.client("admin"), "/api/v1/usage/slot-hours", limit=500)
        names = [(each["day"], each["user"]) for each in whole]
        paged = every(past.client("admin"), "/api/v1/usage/slot-hours", limit=1)
        assert [(each["day"], each["user"]) for each in paged] == names and len(set(names)) == len(names)
        assert {each["user"] for each in whole} == {"ana", "bob"}
        bars = past.client("admin").get("/api/v1/timeline").json()["allocations"]
        held = sum((bar["released_at"] or time.time()) - bar["decided_at"] for bar in bars)
        assert sum(each["slot_hours"] for each in whole) == pytest.approx(held / 3600, abs=0.1)
        own = every(past.client("ana"), "/api/v1/usage/slot-hours", limit=500)
        assert own and {each["user"] for each in own} == {"ana"}

    def test_they_are_paged_in_the_years_to_come_too(self, fresh_api: ServedApi) -> None:
        days = [day * 86_400 for day in (30_000, 29_999, 29_998)]  # in 2052
        user = next(each.id for each in accounts.users(fresh_api.platform) if each.name == "ana")
        with fresh_api.platform.database.transaction() as tx:
            for day in days:
                usage.put_day(tx, day, {user: 3600.0})
        paged = every(fresh_api.client("ana"), "/api/v1/usage/slot-hours", limit=1)
        assert [each["day"] for each in paged] == days
