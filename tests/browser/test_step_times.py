"""Where a step's time goes, on a job's page: a bar for each engine, its efficiency, and who is slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from support.browser import Visitor
from support.puppets import Puppet
from support.served_api import ServedApi, served
from support.step_times import QUICK, SLOW, Training

pytestmark = [pytest.mark.chromium, pytest.mark.extended]
TITLE = "Where a step's time goes"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    with served(tmp_path_factory.mktemp("home")) as api:
        yield api


def serious(visitor: Visitor) -> list[str]:
    found = Axe().run(visitor.page).response["violations"]
    return [each["id"] for each in found if each["impact"] in {"serious", "critical"}]


def test_the_page_shows_each_engine_and_says_which_one_is_slow_as_reports_come(
    api: ServedApi, visit: Callable[..., Visitor]
) -> None:
    training = Training(api, Puppet(api.platform, name="n1", slots=2).join())
    first, second = training.engines
    ana = visit(api.url)
    ana.log_in("ana")
    ana.open(f"/jobs/{training.job.exec_id}")
    expect(ana.page.get_by_role("heading", name="States")).to_be_visible()
    panel = ana.page.get_by_role("region", name=TITLE)
    expect(panel).to_have_count(0)

    training.report(QUICK, SLOW)
    bars = panel.get_by_role("list", name=TITLE).get_by_role("listitem")
    expect(bars).to_have_text([f"Engine {first} n1, slot 065 %", f"Engine {second} n1, slot 191 %"])
    expect(panel.get_by_text("78 %", exact=True)).to_be_visible()
    expect(panel.get_by_text(f"The other engine waits 19.2 ms a step for engine {second}.")).to_be_visible()
    expect(bars.first.get_by_role("img")).to_have_attribute(
        "aria-label",
        "Forward 20 ms, Backward 25 ms, Data 1 ms, "
        "Gradient copies 2 ms, Reduce 0.5 ms, Apply 1 ms, Other 0.5 ms, Wait 19.2 ms",
    )
    widths = bars.first.locator("i").evaluate_all("all => all.map(each => each.getBoundingClientRect().width)")
    assert widths[1] / widths[0] == pytest.approx(25 / 20, rel=0.01)
    assert sum(widths) == pytest.approx(bars.first.get_by_role("img").evaluate("bar => bar.clientWidth"), abs=1)

    training.report(QUICK, SLOW, windows=8)
    expect(panel.get_by_text(f"Engine {second} on node n1, slot 1 is 40 % slower than the other one")).to_be_visible()
    expect(panel.get_by_text("The other engine waits")).to_have_count(0)
    found = serious(ana)
    panel.get_by_role("button", name=f"Show as table: {TITLE}").click()
    rows = panel.get_by_role("table", name=TITLE).get_by_role("row")
    expect(rows).to_have_count(3)
    expect(rows.last.get_by_role("cell")).to_have_text(
        ["2", "69.2 ms", "28 ms", "35.2 ms", "1 ms", "3 ms", "0.5 ms", "1 ms", "0.5 ms", "0 ms", "91 %"]
    )
    assert found + serious(ana) == []


def test_a_narrow_window_has_room_for_the_bars(api: ServedApi, visit: Callable[..., Visitor]) -> None:
    training = Training(api, Puppet(api.platform, name="n2", slots=2).join())
    training.report(QUICK, SLOW, windows=8)
    ana = visit(api.url, size=(390, 844))
    ana.log_in("ana")
    ana.open(f"/jobs/{training.job.exec_id}")
    bar = ana.page.get_by_role("region", name=TITLE).get_by_role("img").first
    expect(bar).to_be_visible()
    box = bar.bounding_box()
    assert box is not None and box["width"] > 250
    assert ana.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
