"""A real Chromium in front of a platform, and a person's moves in it. Needs Debian's ``chromium`` or EDT_CHROMIUM."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from support.credentials import PASSWORD

_QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PATIENCE_MS = 30_000
"""So long may a page need on a machine that does other things besides."""


def chromium() -> str | None:
    """Path of the browser; None: there is none on this machine."""
    return os.environ.get("EDT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def launched() -> Iterator[Browser]:
    """A headless browser without any state."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(_QUIET))
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """One person at one window of the dashboard. Complaints of the page (errors, CSP) are kept in ``complaints``."""

    def __init__(self, browser: Browser, url: str, *, dark: bool = False, size: tuple[int, int] = (1440, 900)) -> None:
        self.url = url
        self._context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light"
        )
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda line: self.complaints.append(line.text) if _is_wrong(line.text) else None)

    def close(self) -> None:
        self._context.close()

    def open(self, path: str) -> None:
        """A path below ``/ui``."""
        self.page.goto(f"{self.url}/ui{path}")

    def log_in(self, name: str = "admin", password: str = PASSWORD) -> None:
        self.open("/login")
        self.page.get_by_label("Name").fill(name)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Log in").click()
        expect(self.page.get_by_role("link", name="Jobs")).to_be_visible()

    def go(self, page: str) -> None:
        """By the link of the navigation."""
        self.page.get_by_role("navigation").get_by_role("link", name=page).click()

    def row(self, job: str) -> Locator:
        """A job's row in the table of jobs."""
        return self.page.get_by_role("row", name=re.compile(rf"^{job}\b"))

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)


def _is_wrong(text: str) -> bool:
    return "Content Security Policy" in text or "Uncaught" in text
