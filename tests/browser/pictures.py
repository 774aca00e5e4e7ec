"""The pictures of the README, taken of a real house: ``PYTHONPATH=tests python -m browser.pictures docs/pictures``.

Three jobs share the eight slots of two nodes, an engine is killed, a job is stopped; then a browser looks at it.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, expect

from support.browser import Visitor, launched
from support.cast import cast
from support.house import EXECS, House
from support.journey import house_in
from support.nursery import TESTS
from support.waiting import until

DIGITS = TESTS.parent / "examples" / "digits" / "main.py"
SIZE = (1440, 900)
LOW = {"timeline": 640}
"""Pages that leave the lower part empty with so few slots."""


def main(folder: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as home,
        house_in(Path(home), 4, EDT_NAME="alpha") as house,
        launched() as browser,
    ):
        job = play(house)
        for dark in (False, True):
            take(browser, house, job, folder, dark)
        for each in house.api.get("/api/v1/jobs").json()["items"]:
            house.api.post(f"{EXECS}/{each['id']}/stop")


def play(house: House) -> str:
    """What the pictures show; answers the job to look at."""
    house.add_node("beta", 4)
    options = "--epochs 3000 --engines 8"
    first = house.submit(DIGITS, "--numWorker 8 --appName resnet", options)
    until(lambda: house.job(first)["workers"] == 8, 60, "the first has all")
    time.sleep(20)
    second = house.submit(DIGITS, "--numWorker 4 --appName bert-tiny", options)
    until(lambda: house.job(second)["workers"] == 4, 60, "the second has its half")
    time.sleep(25)
    house.checker.disturbed()
    os.kill(min(cast(house, first).engines), signal.SIGKILL)
    time.sleep(20)
    third = house.submit(DIGITS, "--numWorker 2 --appName digits", options)
    until(lambda: house.job(third)["workers"] == 2, 60, "the third has two")
    time.sleep(20)
    house.api.post(f"{EXECS}/{second}/stop")
    house.wait(second, "KILLED")
    time.sleep(25)
    return first


def take(browser: Browser, house: House, job: str, folder: Path, dark: bool) -> None:
    visitor = Visitor(browser, house.url, dark=dark, size=SIZE)
    visitor.log_in()
    theme = "dark" if dark else "light"
    pages = {"timeline": "/timeline?span=5m", "job": f"/jobs/{job}/elasticity", "jobs": "/jobs", "nodes": "/nodes"}
    for name, path in pages.items():
        visitor.page.set_viewport_size({"width": SIZE[0], "height": LOW.get(name, SIZE[1])})
        visitor.open(path)
        expect(visitor.page.get_by_role("heading", level=1)).to_be_visible()
        time.sleep(2)
        visitor.page.screenshot(path=folder / f"{name}-{theme}.png")
    visitor.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
