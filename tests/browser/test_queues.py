"""The page of queues, and on a job's page why it waits, what would start it, and its own numbers to change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, expect

from edt_scheduler.decide.reconcile import look
from support.browser import Visitor
from support.puppets import Puppet
from support.served_api import ARGS, ServedApi, served

pytestmark = [pytest.mark.chromium, pytest.mark.extended]
GANG = "--exec-start distPyTorch --model-main main.py"


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    """Two slots, both held by ``edt-1`` of ana; ``edt-2`` of bob waits in the queue /research for both at once."""
    with served(tmp_path_factory.mktemp("home")) as api:
        node = Puppet(api.platform, name="n1", slots=2).join()
        node.peers = [node]
        api.client("admin").put("/api/v1/queues/research", json={"limit": 2}).raise_for_status()
        api.submit(args=f"{GANG} --numWorker 2")
        for _ in range(3):
            look(api.platform)
            node.obey()
        api.submit("bob", f"{GANG} --numWorker 2 --queue /research --time-limit 90m")
        look(api.platform)
        yield api


@pytest.fixture
def admin(api: ServedApi, visit: Callable[..., Visitor]) -> Visitor:
    visitor = visit(api.url)
    visitor.log_in("admin")
    return visitor


def serious(visitor: Visitor) -> list[str]:
    found = Axe().run(visitor.page).response["violations"]
    return [each["id"] for each in found if each["impact"] in {"serious", "critical"}]


def queue(visitor: Visitor, path: str) -> Locator:
    return visitor.page.get_by_role("table", name="Queues").get_by_role("row", name=path, exact=True)


def test_an_admin_adds_changes_and_removes_a_queue_and_reads_errors_beside_their_fields(
    api: ServedApi, admin: Visitor
) -> None:
    page = admin.page
    admin.go("Queues")
    expect(queue(admin, "/research")).to_be_visible()
    admin.button("Add queue").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Path").fill("/none/here")
    dialog.get_by_label("Quota").fill("1")
    dialog.get_by_role("button", name="Add").click()
    expect(dialog.get_by_label("Path")).to_have_attribute("aria-invalid", "true")
    expect(dialog).to_contain_text("There is no queue /none above /none/here")
    found = serious(admin)
    dialog.get_by_label("Path").fill("/research/vision")
    dialog.get_by_role("button", name="Add").click()
    page.wait_for_url(re.compile(r"/ui/queues/research/vision$"))
    expect(queue(admin, "/research/vision").get_by_role("cell").nth(1)).to_have_text("1")

    admin.button("Change /research/vision").click()
    dialog.get_by_label("Limit").fill("7")
    dialog.get_by_label("Policy").select_option("fifo")
    dialog.get_by_role("button", name="Change").click()
    expect(queue(admin, "/research/vision")).to_contain_text("fifo")
    page.get_by_role("button", name="Queues below /research").click()
    expect(queue(admin, "/research/vision")).to_have_count(0)

    admin.button("Remove /research/vision").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    page.wait_for_url(re.compile(r"/ui/queues/research(\?.*)?$"))
    left = api.client("admin").get("/api/v1/queues").json()["queues"]
    assert [each["path"] for each in left] == ["", "/research"]
    assert found + serious(admin) == []


def test_a_waiting_job_is_found_under_its_queue_and_what_would_start_it_does(api: ServedApi, admin: Visitor) -> None:
    page = admin.page
    admin.go("Queues")
    queue(admin, "/research").get_by_role("link", name="research").click()
    waiting = page.get_by_role("table", name="Jobs that wait").get_by_role("row").nth(1)
    expect(waiting).to_contain_text("bob")
    found = serious(admin)
    waiting.get_by_role("link", name="edt-2").click()

    why = page.get_by_role("region", name="Why it waits", exact=True)
    expect(why.get_by_role("table", name="What blocks it")).to_contain_text("edt-1")
    expect(why.get_by_role("table", name="Verdict on each node")).to_contain_text("n1")
    expect(why.get_by_role("list", name="Reasons so far").get_by_role("listitem")).not_to_have_count(0)
    expect(why).to_contain_text("bob is entitled to")
    expect(page.get_by_text("1 h 30 min of its attempts in all")).to_be_visible()
    found += serious(admin)
    why.get_by_role("button", name="Apply: edt-1 is over").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.get_by_text("edt-1 is being stopped")).to_be_visible()
    assert api.client("admin").get("/api/v1/jobs/edt-1").json()["stop_requested_at"] is not None
    assert found == []


def test_an_owner_changes_workers_and_reads_what_the_api_refuses_beside_the_field(
    api: ServedApi, visit: Callable[..., Visitor]
) -> None:
    api.submit(args=ARGS)
    look(api.platform)
    ana = visit(api.url)
    ana.log_in("ana")
    ana.open("/jobs/edt-3")
    ana.button("Change").click()
    dialog = ana.page.get_by_role("dialog")
    dialog.get_by_label("Most workers").fill("0")
    expect(dialog).to_contain_text("A whole number from 1")
    dialog.get_by_label("Most workers").fill("3")
    dialog.get_by_label("Priority").fill("9")
    dialog.get_by_role("button", name="Change").click()
    expect(dialog.get_by_label("Priority")).to_have_attribute("aria-invalid", "true")
    expect(dialog).to_contain_text("Got 9, takes at most 1")
    assert serious(ana) == []
    dialog.get_by_label("Priority").fill("1")
    dialog.get_by_role("button", name="Change").click()
    expect(dialog).to_have_count(0)
    expect(ana.page.get_by_text("0 of at most 3")).to_be_visible()
    expect(ana.page.get_by_role("list", name="History")).to_contain_text("ana gave it 1 to 3 slots")
    assert api.client("ana").get("/api/v1/jobs/edt-3").json()["max_workers"] == 3
