"""What a person sees and does on the dashboard while real jobs train."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from chaos.choices import Kind
from chaos.victims import hit, of
from support.browser import Visitor
from support.cast import cast
from support.credentials import PASSWORD
from support.journey import platform_in
from support.nursery import TESTS
from support.running_platform import Platform
from support.waiting import until

pytestmark = [pytest.mark.chromium, pytest.mark.timeout(300)]  # real jobs train, and a machine may be busy
Visit = Callable[..., Visitor]
DIGITS = TESTS.parent / "examples" / "digits" / "main.py"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_in(tmp_path_factory.mktemp("platform")) as platform:
        yield platform


@pytest.fixture
def visitor(platform: Platform, visit: Visit) -> Visitor:
    """The administrator, signed in."""
    visitor = visit(platform.url)
    visitor.log_in()
    return visitor


def submit_digits(visitor: Visitor, name: str, epochs: int) -> str:
    """The example from the form; answers the exec id of the page that is shown then."""
    page = visitor.page
    visitor.go("Submit")
    page.get_by_label("Code").set_input_files(DIGITS)
    expect(page.get_by_label("Main script")).to_have_value(DIGITS.name)  # it is taken in by and by
    page.get_by_label("Most workers").fill("4")
    page.get_by_label("Arguments").fill(f"--epochs {epochs}")
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url(re.compile(r"/ui/jobs/edt-\d+"))
    job = page.url.rsplit("/", 1)[-1]
    expect(page.get_by_role("heading", level=1)).to_contain_text(job)
    return job


def held(visitor: Visitor, job: str) -> Locator:
    """The bars of a job that go on, as the table beside the timeline has them."""
    return visitor.page.locator(f'table[aria-label="Allocations"] tr[data-exec="{job}"][data-end=""]')


def end(platform: Platform, *jobs: str) -> None:
    for job in jobs:
        platform.api.post(f"/platform/rest/deeplearning/v1/execs/{job}/stop")
    for job in jobs:
        platform.wait(job, "KILLED", "FINISHED")


def test_a_job_from_the_form_trains_and_makes_room_for_a_second_one(platform: Platform, visitor: Visitor) -> None:
    page = visitor.page
    first = submit_digits(visitor, "first", epochs=2000)
    platform.checker.acknowledge(first)
    expect(page.get_by_role("status", name="State")).to_contain_text("Running", timeout=60_000)

    page.get_by_role("tab", name="Elasticity").click()
    page.get_by_role("button", name="Show as table").first.click()
    rows = page.get_by_role("row")
    expect(rows.nth(3)).to_be_visible()
    seen = rows.count()
    until(lambda: rows.count() > seen, 60, "the loss moves")

    visitor.go("Timeline")
    page.get_by_role("button", name="Show as table", exact=True).click()
    expect(held(visitor, first)).to_have_count(4, timeout=60_000)
    page.evaluate("window.notReloaded = true")
    second = platform.submit(DIGITS, "--numWorker 4", "--epochs 2000")
    until(lambda: platform.job(second)["slots"] > 0, 60, "the second one was given slots")
    expect(held(visitor, first)).to_have_count(2, timeout=60_000)
    expect(held(visitor, second)).not_to_have_count(0)
    assert page.evaluate("window.notReloaded") is True
    end(platform, first, second)
    expect(held(visitor, first)).to_have_count(0)


def test_an_engine_that_is_killed_is_seen_on_the_jobs_page(platform: Platform, visitor: Visitor) -> None:
    job = platform.submit(DIGITS, "--numWorker 2", "--epochs 2000")
    until(lambda: platform.job(job)["workers"] == 2, 60, "it trains on two")
    visitor.open(f"/jobs/{job}")
    history = visitor.page.get_by_role("list", name="History")
    expect(history).to_contain_text("runs on")
    platform.checker.disturbed()
    os.kill(min(cast(platform, job).engines), signal.SIGKILL)
    expect(history).to_contain_text(re.compile("signal 9|was lost"))
    expect(visitor.page.get_by_role("status", name="State")).to_contain_text("Running")
    visitor.page.get_by_role("tab", name="Logs").click()
    expect(visitor.page.get_by_role("radio", name="Training")).to_be_checked()  # first, of all logs that there are
    expect(visitor.page.get_by_role("log")).to_contain_text(re.compile(r"epoch \d+/2000 · step \d+/\d+ · loss "))
    visitor.page.get_by_label("Filter lines").fill("→")
    expect(visitor.page.get_by_role("log")).to_contain_text("2 → 1 worker at step")
    end(platform, job)


def test_a_job_is_paused_resumed_stopped_and_removed_by_its_buttons(platform: Platform, visitor: Visitor) -> None:
    page = visitor.page
    job = platform.submit(DIGITS, "--numWorker 1", "--epochs 2000")
    platform.wait(job, "RUNNING")
    visitor.go("Jobs")
    expect(visitor.row(job)).to_contain_text("Running")
    visitor.row(job).get_by_role("link", name=job).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(job)
    state = page.get_by_role("status", name="State")
    until(lambda: platform.job(job)["progress"].get("step"), 60, "it trains")
    visitor.button("Pause").click()
    expect(state).to_contain_text("Paused", timeout=60_000)
    expect(page.get_by_text("Paused by admin", exact=True)).to_be_visible()
    visitor.button("Resume").click()
    expect(state).to_contain_text("Running", timeout=60_000)
    visitor.button("Stop").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"edt submit … --resume-from {job}")
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(state).to_contain_text("Stopped", timeout=60_000)
    expect(page.get_by_text("Its training is kept up to step")).to_be_visible()
    visitor.button("Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    page.wait_for_url(re.compile(r"/ui/jobs/?(\?.*)?$"))
    expect(visitor.row(job)).to_have_count(0)
    assert platform.api.get(f"/api/v1/jobs/{job}").status_code == 404


def test_a_finished_job_shows_its_validations_beside_its_training_and_its_result_is_downloaded(
    platform: Platform, visitor: Visitor, tmp_path: Path
) -> None:
    job = platform.submit(DIGITS, "--numWorker 2", "--epochs 10")
    platform.wait(job, "FINISHED")
    validated = platform.api.get(f"/api/v1/jobs/{job}/metrics").json()["validation"]
    losses = validated["metrics"]["val_loss"]
    assert validated["epoch"] == [5, 10], "it validates every fifth epoch"
    assert platform.job(job)["validation"]["metrics"]["val_loss"] == losses[-1]
    best = platform.job(job)["best"]["val_loss"]
    assert best["value"] == min(losses)

    page = visitor.page
    visitor.go("Jobs")
    expect(visitor.row(job)).to_contain_text("val_")
    visitor.open(f"/jobs/{job}/elasticity?x=step")
    page.get_by_role("button", name="Show as table: Loss").click()
    table = page.get_by_role("region", name="Loss, table")
    expect(table.get_by_role("columnheader")).to_have_text(["Step", "loss", "val_loss"])
    newest = table.get_by_role("row").nth(1)
    expect(newest.get_by_role("cell")).to_have_text([re.compile(r"^\d+(\.\d+)?$")] * 2)

    visitor.open(f"/jobs/{job}")
    expect(page.get_by_text(re.compile(rf"^best .*, epoch {best['epoch']}$")).first).to_be_visible()
    with visitor.page.expect_download() as download:
        visitor.page.get_by_text("Download result").click()
    saved = tmp_path / "result.zip"
    download.value.save_as(saved)
    assert saved.read_bytes()[:2] == b"PK"
    assert download.value.suggested_filename.startswith("dlpd-model-")


COUNTING = """
import time
from pathlib import Path

for number in range(100_000):
    print(f"line {number} of this log", flush=True)
    if Path("enough").exists():
        break
    time.sleep(0.01)
"""


def test_a_log_is_followed_across_a_death_of_the_api_without_a_lost_or_doubled_line(
    platform: Platform, visitor: Visitor, tmp_path: Path
) -> None:
    script = tmp_path / "counting.py"
    script.write_text(COUNTING)
    job = platform.submit(script, "--numWorker 1")
    platform.wait(job, "RUNNING")
    page = visitor.page
    visitor.open(f"/jobs/{job}/logs?stream=out")
    log = page.get_by_role("log")
    until(lambda: int(log.get_attribute("data-lines") or 0) > 20, 60, "the log is followed")

    platform.checker.disturbed()
    [api] = of(Kind.API, platform)
    hit(api, signal.SIGKILL)
    until(platform.serves, 60, "the API is back")
    after = lines(platform, job)
    until(lambda: int(log.get_attribute("data-lines") or 0) > after, 60, "the log goes on")

    (platform.home / "jobs" / job / platform.job(job)["work_dir"].rsplit("/", 1)[-1] / "enough").touch()
    platform.wait(job, "FINISHED")
    until(lambda: int(log.get_attribute("data-lines") or 0) == lines(platform, job), 60, "all lines are there")
    written = (platform.home / "jobs" / job / "log" / "driver.out").stat().st_size
    assert int(log.get_attribute("data-bytes") or 0) == written
    last = log.locator(f'[data-line="{lines(platform, job) - 1}"]')
    expect(last).to_be_visible()  # it is scrolled to in a frame of its own
    shown = log.locator("[data-line]").all_inner_texts()
    numbers = [int(found.group(1)) for text in shown if (found := re.search(r"line (\d+) of", text))]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert numbers[-1] == lines(platform, job) - 1


def lines(platform: Platform, job: str) -> int:
    return (platform.home / "jobs" / job / "log" / "driver.out").read_text().count("\n")


def test_a_user_gets_a_403_where_an_admin_gets_the_drain_dialog(
    platform: Platform, visit: Visit, visitor: Visitor
) -> None:
    node = platform.nodes()[0]["name"]
    visitor.open(f"/nodes/{node}/drain")
    dialog = visitor.page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Drain")).to_be_visible()

    platform.api.post("/api/v1/users", json={"name": "ada", "password": PASSWORD}).raise_for_status()
    user = visit(platform.url)
    user.log_in("ada")
    user.go("Nodes")
    expect(user.page.get_by_text(node).first).to_be_visible()
    expect(user.button("Drain")).to_have_count(0)
    user.open(f"/nodes/{node}/drain")
    expect(user.page.get_by_role("heading", level=1)).to_contain_text("403")
    expect(user.page.get_by_role("dialog")).to_have_count(0)
    assert user.page.evaluate(f"fetch('/api/v1/nodes/{node}/drain', {{method: 'POST'}}).then(r => r.status)") == 403
    assert platform.nodes()[0]["health"] == "up"


def test_a_user_sees_their_own_jobs_alone(platform: Platform, visit: Visit) -> None:
    platform.api.post("/api/v1/users", json={"name": "bob", "password": PASSWORD}).raise_for_status()
    job = platform.submit(DIGITS, "--numWorker 1", "--epochs 1")
    user = visit(platform.url)
    user.log_in("bob")
    user.go("Jobs")
    expect(user.page.get_by_text("edt submit")).to_be_visible()
    platform.wait(job, "FINISHED")
    expect(user.row(job)).to_have_count(0)
    user.open(f"/jobs/{job}")
    expect(user.page.get_by_role("heading", level=1)).to_contain_text("404")


def test_a_wrong_password_is_told_and_a_session_that_ended_leads_back_to_where_one_was(
    platform: Platform, visit: Visit
) -> None:
    visitor = visit(platform.url)
    visitor.open("/login")
    visitor.page.get_by_label("Name").fill("admin")
    visitor.page.get_by_label("Password").fill("not the password")
    visitor.button("Log in").click()
    expect(visitor.page.get_by_role("alert")).to_be_visible()
    visitor.open("/nodes")
    visitor.page.wait_for_url(re.compile("/ui/login"))
    visitor.page.get_by_label("Name").fill("admin")
    visitor.page.get_by_label("Password").fill(PASSWORD)
    visitor.button("Log in").click()
    visitor.page.wait_for_url(re.compile("/ui/nodes"))
