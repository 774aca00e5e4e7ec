"""How soon a person can work with the dashboard: 2,000 jobs on 128 slots, beside the same pages of an empty platform.

  Jobs       from the request of the page to the first row that is there and can be clicked
  filter     from the last key in the search field to the row that was meant, alone
  Timeline   from the request of the page to a picture with bars in it
  zoom       from a press of + to the next picture
  day        the Timeline of all 20,000 allocations, as above

A real Chromium without a GPU, its cache empty at each run, before the real API on SQLite on the same two cores. On the
empty platform "there" is the sentence that says so. The past is made by tests/support/seeded.py: some 20,000
allocations in a day. Needs ``make dashboard`` and Debian's chromium.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests", "api", "scheduler", "runners", "migrations")]

import _report  # noqa: E402
import httpx  # noqa: E402
from playwright.sync_api import Browser  # noqa: E402

from edt_scheduler.platform import open_platform  # noqa: E402
from edt_scheduler.settings import Settings  # noqa: E402
from support.browser import Visitor, launched  # noqa: E402
from support.seeded import Past, seed  # noqa: E402

PASSWORD = "a password for benchmarks"  # noqa: S105
NEWEST, WANTED = "edt-2000", "edt-1234"
TARGET_SECONDS = 1.0
_ROW = f"document.querySelector('a[href$=\"/jobs/{NEWEST}\"]')"
_EMPTY = "[...document.querySelectorAll('code, pre')].some(each => each.textContent.includes('edt submit'))"
_BARS = """(() => {
  const canvas = document.querySelector('canvas'); if (!canvas || !canvas.width) return false;
  const image = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(image.data.buffer)).size > 30;
})()"""
_SINCE = """() => new Promise(done => {
  addEventListener('keydown', pressed =>
    requestAnimationFrame(() => setTimeout(() => done((performance.now() - pressed.timeStamp) / 1000))), {once: true});
})"""


@contextmanager
def platform(folder: Path, *, past: bool) -> Iterator[str]:
    """The API over a home of its own; its URL."""
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("EDT_")},
        "PYTHONPATH": ":".join(str(ROOT / room) for room in ("api", "scheduler", "runners", "migrations")),
        "EDT_HOME": str(folder),
        "EDT_PORT": str(port),
        "EDT_ADMIN_PASSWORD": PASSWORD,
    }
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([sys.executable, "-m", "edt_api"], env=environ, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(base_url=url, auth=("admin", PASSWORD), timeout=30) as api:
            while not _ready(api):
                time.sleep(0.1)
            for name in ("ana", "bob"):
                api.post("/api/v1/users", json={"name": name, "password": PASSWORD}).raise_for_status()
        if past:
            platform = open_platform(Settings(home=folder))
            seed(platform.database, time.time(), Past())
            platform.close()
        yield url
    finally:
        process.terminate()
        process.wait()


def _ready(api: httpx.Client) -> bool:
    try:
        return api.get("/readyz").is_success
    except httpx.HTTPError:
        return False


def visited(browser: Browser, url: str, past: bool) -> dict[str, float]:
    """Seconds of one visit with an empty cache, by case."""
    visitor = Visitor(browser, url)
    page = visitor.page
    try:
        page.request.post(
            f"{url}/api/v1/session", data={"name": "admin", "password": PASSWORD}, headers={"Origin": url}
        )
        found = {}
        visitor.open("/jobs")
        found["Jobs"] = page.evaluate(_when(_ROW if past else _EMPTY))
        if past:
            field = page.get_by_label("Search")
            field.fill(WANTED[:-1])
            began = time.perf_counter()
            field.press(WANTED[-1])
            page.wait_for_function(
                "([wanted, newest]) => document.querySelector(`a[href$='/jobs/${wanted}']`)"
                " && !document.querySelector(`a[href$='/jobs/${newest}']`)",
                arg=[WANTED, NEWEST],
            )
            found["filter"] = time.perf_counter() - began
        visitor.close()
        visitor = Visitor(browser, url)  # nothing of the first page is in its cache
        page = visitor.page
        page.request.post(
            f"{url}/api/v1/session", data={"name": "admin", "password": PASSWORD}, headers={"Origin": url}
        )
        visitor.open("/timeline")
        found["Timeline"] = page.evaluate(_when(_BARS if past else "document.querySelector('main h1')"))
        if past:
            page.locator("canvas").focus()
            pressed = page.evaluate_handle(f"({_SINCE})().then(seconds => window.pressed = seconds) && window")
            page.keyboard.press("+")
            page.wait_for_function("window.pressed !== undefined")
            found["zoom"] = pressed.evaluate("window => window.pressed")
            visitor.open("/timeline?span=1d")
            found["day"] = page.evaluate(_when(_BARS))
        return found
    finally:
        visitor.close()


def _when(ready: str) -> str:
    """A script that answers the seconds since the page was asked for, once ``ready`` holds and a frame was drawn."""
    return f"""async () => {{
      const frame = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
      while (!({ready})) await frame();
      await frame();
      return performance.now() / 1000;
    }}"""


def main() -> None:
    options = _report.arguments(__doc__).parse_args()
    times = 3 if options.quick else 10
    runs: dict[tuple[str, str], list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        launched() as browser,
        platform(Path(folder) / "past", past=True) as full,
        platform(Path(folder) / "empty", past=False) as empty,
    ):
        for number in range(times):
            for who, url, past in (("2,000 jobs, 128 slots", full, True), ("empty platform", empty, False)):
                for case, seconds in visited(browser, url, past).items():
                    runs.setdefault((case, who), []).append(seconds)
            print(f"run {number + 1} of {times}", file=sys.stderr)
    rows = [_report.row(case, who, "s", found) for (case, who), found in runs.items()]
    targets = [
        _report.Target(f"{row.case}, {row.who}", TARGET_SECONDS, row.value, "s", row.value <= TARGET_SECONDS)
        for row in rows
        if row.who != "empty platform" and row.case != "day"
    ]
    _report.finish("dashboard", rows, targets, options.json)


if __name__ == "__main__":
    main()
