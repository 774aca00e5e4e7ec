"""The dashboard for everybody: nothing serious that axe finds, on any page, light or dark; on a telephone; by keyboard
alone; and with as many jobs as a year brings."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, expect

from edt_scheduler.model.nodes import SlotSpec
from edt_scheduler.operations import fleet
from edt_scheduler.store import nodes
from support.browser import Visitor
from support.credentials import PASSWORD
from support.removed import job_without_files
from support.seeded import Past, seed
from support.served_api import ServedApi, served

pytestmark = pytest.mark.chromium
Visit = Callable[..., Visitor]
SERIOUS = ("serious", "critical")
RUNNING = "edt-1994"
"""The newest of the seeded jobs that runs; some newer ones wait."""
PAGES = {
    "/jobs": "Jobs",
    "/queues": "Queues",
    "/timeline": "Timeline",
    "/nodes": "Nodes",
    "/submit": "Submit",
    "/frameworks": "Frameworks",
    "/forbidden": "403",
    "/nowhere": "404",
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    """A platform that has seen 2,000 jobs on 128 slots."""
    with served(tmp_path_factory.mktemp("home")) as api:
        seed(api.platform.database, time.time(), Past())
        yield api


def signed_in(visit: Visit, api: ServedApi, **how: object) -> Visitor:
    visitor = visit(api.url, **how)
    visitor.log_in(password=PASSWORD)
    return visitor


@pytest.mark.parametrize(
    "dark", [pytest.param(False, id="light"), pytest.param(True, id="dark", marks=pytest.mark.extended)]
)
def test_axe_finds_nothing_serious_on_any_page(api: ServedApi, visit: Visit, dark: bool) -> None:
    visitor = visit(api.url, dark=dark)
    visitor.open("/login")
    expect(visitor.page.get_by_role("heading", level=1)).to_be_visible()
    found = serious(visitor, "/login")
    visitor.log_in(password=PASSWORD)
    pages = {**PAGES, **{f"/jobs/{RUNNING}{tab}": RUNNING for tab in ("", "/elasticity", "/logs", "/settings")}}
    for path, heading in pages.items():
        visitor.open(path)
        expect(visitor.page.get_by_role("heading", level=1)).to_contain_text(heading)
        found += serious(visitor, path)
    assert found == []


def test_every_page_fits_a_telephone_and_a_desk_with_its_menus_in_sight(api: ServedApi, visit: Visit) -> None:
    visitor = visit(api.url)
    page = visitor.page
    theme, account = (page.get_by_role("button", name=re.compile(f"^{name}"), include_hidden=True) for name in MENUS)
    link = page.get_by_role("link", name="Timeline", exact=True, include_hidden=True).first
    visitor.open("/login")
    expect(page.get_by_role("heading", level=1)).to_contain_text("OpenEDT")
    wrong = [each for width in widths(visitor) for each in misfits(visitor, width, "/login", theme)]
    visitor.log_in(password=PASSWORD)
    node = fleet.nodes(api.platform)[0].name
    tabs = [f"/jobs/{RUNNING}{tab}" for tab in ("", "/elasticity", "/logs", "/settings")]
    for path in (*PAGES, *tabs, f"/nodes/{node}", f"/nodes/{node}/drain"):
        visitor.open(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("Loading", exact=True)).to_have_count(0)
        wrong += [each for width in widths(visitor) for each in misfits(visitor, width, path, theme, account, link)]
    visitor.open("/jobs")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    for width in widths(visitor):
        for button, name in ((theme, "Theme"), (account, "Account")):
            button.click()
            wrong += misfits(visitor, width, f"the menu {name}", page.get_by_role("menu"))
            page.keyboard.press("Escape")
    assert wrong == []


MENUS = ("Theme", "Account")
WIDTHS, HEIGHT = (390, 1440), 844
"""Of a telephone's window and of a desk's."""


def widths(visitor: Visitor) -> Iterator[int]:
    """Make the window as wide as each of them, and wait until the page has followed."""
    for width in WIDTHS:
        visitor.page.set_viewport_size({"width": width, "height": HEIGHT})
        visitor.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        yield width


def misfits(visitor: Visitor, width: int, where: str, *shown: Locator) -> list[str]:
    """What stays wider than the window, or not wholly in it, as sentences. What has just opened moves to its place."""
    until = time.monotonic() + 3
    while (found := _misfits_now(visitor, width, where, *shown)) and time.monotonic() < until:
        visitor.page.wait_for_timeout(50)
    return found


def _misfits_now(visitor: Visitor, width: int, where: str, *shown: Locator) -> list[str]:
    found = []
    wide = visitor.page.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        found.append(f"{where} is {wide} pixels wide in a window of {width}")
    for each in shown:
        box = each.bounding_box()
        inside = box is not None and box["height"] >= 20 and min(box["x"], box["y"]) >= 0
        if box is None or not inside or box["x"] + box["width"] > width or box["y"] + box["height"] > HEIGHT:
            found.append(f"{where}: {each} is at {box} in a window of {width}×{HEIGHT}")
    return found


def test_a_lost_node_is_removed_by_its_button_and_that_is_said(api: ServedApi, visit: Visit) -> None:
    """The node takes the dialog along, which tells of it nevertheless."""
    facts = {"host": "127.0.0.1", "cores": 1, "boot_id": "b", "incarnation": "i", "slots": [SlotSpec("0")]}
    fleet.register_node(api.platform, name="short-lived", **facts)  # type: ignore[arg-type]
    with api.platform.database.transaction() as tx:
        row = nodes.get(tx, "short-lived")
        assert nodes.lose(tx, row.id, row.counter, time.time())
    visitor = signed_in(visit, api)
    page = visitor.page
    visitor.open("/nodes/short-lived/remove")
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_role("region", name="Notices")).to_contain_text("short-lived is removed")
    page.wait_for_url(re.compile(r"/ui/nodes/?$"))
    expect(page.get_by_role("alert")).to_have_count(0)


def serious(visitor: Visitor, path: str) -> list[str]:
    """What axe complains of, as sentences."""
    return [
        f"{path}: {violation['id']}: {node['target']}: {node['failureSummary']}"
        for violation in Axe().run(visitor.page).response["violations"]
        if violation["impact"] in SERIOUS
        for node in violation["nodes"]
    ]


def test_two_thousand_jobs_are_scrolled_to_the_first_and_found_by_name(api: ServedApi, visit: Visit) -> None:
    visitor = signed_in(visit, api)
    page = visitor.page
    visitor.open("/jobs")
    expect(visitor.row("edt-2000")).to_be_visible()
    page.get_by_label("Search").fill("edt-1234")
    expect(visitor.row("edt-1234")).to_be_visible()
    expect(visitor.row("edt-2000")).to_have_count(0)
    assert "edt-1234" in page.url


def test_the_page_of_a_job_whose_files_were_removed_says_so_and_offers_no_download(
    tmp_path: Path, visit: Visit
) -> None:
    with served(tmp_path) as api:
        job, sentence = job_without_files(api)
        visitor = visit(api.url)
        visitor.log_in("ana", PASSWORD)
        for path in ("", "/logs"):
            visitor.open(f"/jobs/{job}{path}")
            expect(visitor.page.get_by_text(f"{sentence[0].upper()}{sentence[1:]}.")).to_be_visible()
            expect(visitor.page.get_by_role("button", name="Download")).to_have_count(0)


def test_a_job_is_reached_and_its_stop_confirmed_or_not_by_keyboard_alone(api: ServedApi, visit: Visit) -> None:
    visitor = visit(api.url)
    page = visitor.page
    visitor.open("/login")
    page.get_by_label("Name").focus()
    page.keyboard.type("admin")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("table", name="Jobs").or_(page.get_by_role("grid", name="Jobs"))).to_be_visible()
    running = page.get_by_role("row").filter(has_text="Running").first.get_by_role("link").first
    name = running.inner_text()
    tab_to(visitor, running_is_focused(name))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    tab_to(visitor, "document.activeElement?.textContent?.trim() === 'Stop'")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.evaluate("document.activeElement?.textContent?.trim()") == "Stop"  # where one was before


def running_is_focused(name: str) -> str:
    return f"document.activeElement?.textContent?.trim().startsWith('{name}')"


def tab_to(visitor: Visitor, reached: str, most: int = 80) -> None:
    for _ in range(most):
        if visitor.page.evaluate(reached):
            return
        visitor.page.keyboard.press("Tab")
    raise AssertionError(f"{most} times Tab did not reach it")


def test_the_theme_follows_the_system_until_it_is_chosen_and_is_remembered(api: ServedApi, visit: Visit) -> None:
    visitor = signed_in(visit, api, dark=True)
    page = visitor.page
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_label(re.compile("^Theme")).first.click()
    page.get_by_role("menuitemradio", name="Light").click()
    page.wait_for_function("was => getComputedStyle(document.body).backgroundColor !== was", arg=dark)
    page.reload()
    expect(page.get_by_role("navigation")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
