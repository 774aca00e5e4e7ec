"""Gangs on the pages: what one is and holds, the log of each of its processes, and how one is submitted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from edt_scheduler.decide.reconcile import look
from support.browser import Visitor
from support.puppets import Puppet
from support.served_api import ServedApi, served

pytestmark = pytest.mark.chromium
GANG = "--exec-start distPyTorch --model-main main.py"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    """Ana's jobs on four slots: ``edt-1`` is a gang of three processes that run, ``edt-2`` one that waits for four."""
    with served(tmp_path_factory.mktemp("home")) as api:
        node = Puppet(api.platform, name="n1", slots=4).join()
        node.peers = [node]
        runs = api.submit(args=f"{GANG} --numWorker 3 --maxRestarts 2")
        for _ in range(3):
            look(api.platform)
            node.obey()
        for rank in range(3):
            (runs.log_dir / f"rank-{rank}.out").write_text(f"this is rank {rank}\n")
        (runs.log_dir / "rank-2.err").write_text("rank 2 warned\n")
        api.submit(args=f"{GANG} --numWorker 4")
        look(api.platform)
        yield api


@pytest.fixture
def ana(api: ServedApi, visit: Callable[..., Visitor]) -> Visitor:
    visitor = visit(api.url)
    visitor.log_in("ana")
    return visitor


def serious(visitor: Visitor) -> list[str]:
    found = Axe().run(visitor.page).response["violations"]
    return [each["id"] for each in found if each["impact"] in {"serious", "critical"}]


def test_its_page_shows_its_processes_and_the_log_of_each(ana: Visitor) -> None:
    page = ana.page
    ana.open("/jobs")
    expect(ana.row("edt-1")).to_contain_text("gang")
    ana.row("edt-1").get_by_role("link", name="edt-1").click()
    expect(page.get_by_text("its 3 processes started together and keep their slots")).to_be_visible()
    expect(page.get_by_text("0 of 2", exact=True)).to_be_visible()
    expect(page.get_by_role("tab", name="Elasticity")).to_have_count(0)
    found = serious(ana)
    page.get_by_role("tab", name="Processes").click()
    expect(page.get_by_role("table", name="Processes").get_by_role("row")).to_have_count(4)
    found += serious(ana)
    page.get_by_role("link", name="Log of rank 1").click()
    expect(page.get_by_text("this is rank 1")).to_be_visible()
    page.get_by_role("combobox", name="Rank").select_option("2")
    expect(page.get_by_text("this is rank 2")).to_be_visible()
    page.get_by_role("radiogroup", name="Log of the rank").get_by_text("Errors", exact=True).click()
    expect(page.get_by_text("rank 2 warned")).to_be_visible()
    assert found + serious(ana) == []


def test_a_narrow_list_of_jobs_marks_gangs_beside_ids_of_any_length(
    api: ServedApi, visit: Callable[..., Visitor]
) -> None:
    visitor = visit(api.url, size=(390, 844))
    visitor.log_in("ana")
    row = visitor.row("edt-1")
    row.get_by_role("link", name="edt-1").evaluate("link => { link.textContent = 'edt-123456'; }")
    ends = "mark => [mark, mark.closest('th')].map(each => each.getBoundingClientRect().right)"
    mark, cell = row.get_by_text("gang", exact=True).evaluate(ends)
    assert mark <= cell


def test_another_rank_is_chosen_by_keys_which_keep_the_focus_and_the_wrapping(ana: Visitor) -> None:
    page = ana.page
    ana.open("/jobs/edt-1/logs")
    expect(page.get_by_text("this is rank 0")).to_be_visible()
    page.get_by_role("switch", name="Wrap").focus()
    page.keyboard.press("Space")
    ranks = page.get_by_role("combobox", name="Rank")
    ranks.focus()
    for rank in (1, 2):
        page.keyboard.press("ArrowDown")
        expect(page.get_by_text(f"this is rank {rank}")).to_be_visible()
        expect(ranks).to_be_focused()
    expect(page.get_by_role("switch", name="Wrap")).to_be_checked()


def test_one_that_waits_says_how_many_slots_it_needs_at_once(ana: Visitor) -> None:
    ana.open("/jobs/edt-2")
    expect(ana.page.get_by_text(re.compile(r"needs 4 at once · \d free now"))).to_be_visible()


def test_the_timeline_and_the_nodes_mark_its_slots(ana: Visitor) -> None:
    ana.open("/timeline?table=1")
    expect(ana.page.get_by_role("list", name="Jobs in the chart").get_by_text("gang")).to_be_visible()
    expect(ana.page.get_by_role("table", name="Allocations").get_by_role("cell", name="gang")).to_have_count(3)
    ana.open("/nodes")
    expect(ana.page.locator("li[data-kind='gang']")).to_have_count(3)


def test_the_catalogue_shows_the_lines_of_a_command_apart(ana: Visitor, api: ServedApi) -> None:
    entry = {"name": "two-lines", "command": ["sh", "-c", "echo one\necho two", "{main}"]}
    api.client("admin").post("/api/v1/frameworks", json=entry).raise_for_status()
    ana.open("/frameworks")
    command = ana.page.locator("tr[data-framework='two-lines'] code")
    expect(command).to_be_visible()
    assert command.inner_text().splitlines() == ["sh -c 'echo one", "echo two' {main}"]


def test_a_command_is_submitted_for_a_framework_of_the_catalogue(ana: Visitor, api: ServedApi) -> None:
    page = ana.page
    ana.open("/submit")
    expect(page.get_by_label("Most workers")).to_be_visible()
    page.get_by_label("Framework", exact=True).select_option("distPyTorch")
    page.get_by_role("textbox", name="Command").fill("torchrun --nproc_per_node=1 train.py")
    page.get_by_label("Workers", exact=True).fill("2")
    expect(page.get_by_text("It needs 2 slots at once.")).to_be_visible()
    assert serious(ana) == []
    ana.button("Submit job").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("edt-3")
    found = api.client("ana").get("/api/v1/jobs/edt-3").json()
    assert (found["framework"], found["processes"], found["max_workers"]) == ("distPyTorch", 2, 2)
    assert found["args"].endswith("--user-cmd -- torchrun --nproc_per_node=1 train.py")
