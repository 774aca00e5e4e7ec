"""The timeline's chart: painted, zoomed and moved by keys and wheel, with an address for each view of it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, expect

from support.browser import Visitor
from support.credentials import PASSWORD
from support.seeded import Past, seed
from support.served_api import ServedApi, served

Visit = Callable[..., Visitor]
PAST = Past(jobs=40, nodes=2, slots=4, spells=2, hours=2, running=2, waiting=1, points=10, usage_minutes=2)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    with served(tmp_path_factory.mktemp("home")) as api:
        seed(api.platform.database, time.time(), PAST)
        yield api


@pytest.fixture
def looker(api: ServedApi, visit: Visit) -> Visitor:
    visitor = visit(api.url)
    credentials = {"name": "admin", "password": PASSWORD}
    assert visitor.page.request.post(f"{api.url}/api/v1/session", data=credentials, headers={"Origin": api.url}).ok
    return visitor


def chart(looker: Visitor, address: str) -> Locator:
    looker.open(address)
    found = looker.page.get_by_role("application", name="Slots over time")
    expect(found).to_be_visible()
    expect(looker.page.get_by_role("list", name="Jobs in the chart")).to_be_visible()
    return found


def test_keys_zoom_move_and_follow_and_the_address_says_so(looker: Visitor) -> None:
    page = looker.page
    chart(looker, "/timeline").focus()
    follow = page.get_by_role("button", name="Follow now")
    expect(follow).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("+")
    page.wait_for_url(re.compile(r"span=2520$"))
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(re.compile(r"from=\d+&to=\d+"))
    expect(follow).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("Home")
    page.wait_for_url(re.compile(r"span=2520$"))
    expect(follow).to_have_attribute("aria-pressed", "true")


def test_the_wheel_zooms_about_the_pointer(looker: Visitor) -> None:
    page = looker.page
    now = int(time.time())
    box = chart(looker, f"/timeline?from={now - 3600}&to={now}").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 100)
    page.mouse.wheel(0, -240)
    page.wait_for_url(re.compile(r"to=\d+$"))
    page.wait_for_function("before => new URLSearchParams(location.search).get('from') > before", arg=str(now - 3600))
    shown = {name: int(value) for name, value in re.findall(r"(from|to)=(\d+)", page.url)}
    assert shown["to"] - shown["from"] < 3000, "closer"
    assert now - shown["to"] < 60, "what is under the pointer stays there"


def test_an_address_brings_back_its_view(looker: Visitor) -> None:
    page = looker.page
    chart(looker, "/timeline?span=6h&node=node-01&q=ana&table=1")
    expect(page.get_by_role("button", name="6 h")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("Node", exact=True)).to_have_value("node-01")
    rows = page.locator('table[aria-label="Allocations"] tr[data-node]')
    expect(rows.first).to_be_visible()
    titles = page.locator('table[aria-label="Allocations"] thead th').all_inner_texts()
    column = [title.lower() for title in titles].index("owner")
    shown = rows.evaluate_all("(rows, at) => rows.map(row => [row.dataset.node, row.cells[at].textContent])", column)
    assert {tuple(each) for each in shown} == {("node-01", "ana")}


def test_bars_have_the_hue_of_their_job_say_more_under_the_pointer_and_lead_to_it(looker: Visitor) -> None:
    page = looker.page
    box = chart(looker, "/timeline?span=6h").bounding_box()
    assert box is not None
    card = page.get_by_text("Click to open the job")
    for y in range(60, int(box["height"]), 12):
        page.mouse.move(box["x"] + box["width"] * 0.85, box["y"] + y)
        page.evaluate(A_FRAME_LATER)  # the card comes with the next one, and that of the bar before goes
        if card.is_visible():
            break
    job = card.locator("xpath=..").locator("strong").inner_text()
    assert page.evaluate(PIXELS, int(job.removeprefix("edt-"))) > 50
    page.mouse.down()
    page.mouse.up()
    expect(page.get_by_role("heading", level=1)).to_contain_text(job)


A_FRAME_LATER = """() => new Promise(done => {
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));
})"""
PIXELS = """number => {
    const hue = getComputedStyle(document.documentElement).getPropertyValue(`--job-${number % 12}`).trim();
    const canvas = document.querySelector('[role=application] + canvas');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const [r, g, b] = [1, 3, 5].map(at => parseInt(hue.slice(at, at + 2), 16));
    let count = 0;
    for (let at = 0; at < data.length; at += 4) count += data[at] === r && data[at + 1] === g && data[at + 2] === b;
    return count;
}"""
"""How much of the canvas has the hue of a job."""
