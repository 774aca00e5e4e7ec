"""The pictures of the README, taken of a real platform: ``PYTHONPATH=tests python -m browser.pictures docs/pictures``.

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
from support.journey import platform_in
from support.nursery import TESTS
from support.running_platform import EXECS, Platform
from support.waiting import until

DIGITS = TESTS.parent / "examples" / "digits" / "main.py"
SIZE = (1440, 900)
LOW = {"timeline": 640}
"""Pages that leave the lower part empty with so few slots."""


def main(folder: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as home,
        platform_in(Path(home), 4, EDT_NAME="alpha") as platform,
        launched() as browser,
    ):
        job = play(platform)
        for dark in (False, True):
            take(browser, platform, job, folder, dark)
        for each in platform.api.get("/api/v1/jobs").json()["items"]:
            platform.api.post(f"{EXECS}/{each['id']}/stop")


def play(platform: Platform) -> str:
    """What the pictures show; answers the job to look at."""
    platform.add_node("beta", 4)
    options = "--epochs 3000 --engines 8"
    first = platform.submit(DIGITS, "--numWorker 8 --appName resnet", options)
    until(lambda: platform.job(first)["workers"] == 8, 60, "the first has all")
    time.sleep(20)
    second = platform.submit(DIGITS, "--numWorker 4 --appName bert-tiny", options)
    until(lambda: platform.job(second)["workers"] == 4, 60, "the second has its half")
    time.sleep(25)
    platform.checker.disturbed()
    os.kill(min(cast(platform, first).engines), signal.SIGKILL)
    time.sleep(20)
    third = platform.submit(DIGITS, "--numWorker 2 --appName digits", options)
    until(lambda: platform.job(third)["workers"] == 2, 60, "the third has two")
    time.sleep(20)
    platform.api.post(f"{EXECS}/{second}/stop")
    platform.wait(second, "KILLED")
    time.sleep(25)
    return first


def take(browser: Browser, platform: Platform, job: str, folder: Path, dark: bool) -> None:
    visitor = Visitor(browser, platform.url, dark=dark, size=SIZE)
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
