"""The dashboard in a real browser, before a real platform."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser

from support.browser import Visitor, launched


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of one file of tests: while it is open this process has a running event loop, and others may want their own."""
    with launched() as browser:
        yield browser


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visitor]]:
    """Opens windows: ``visit(platform.url)``. At the end none may have complained."""
    visitors: list[Visitor] = []

    def opened(url: str, **how: object) -> Visitor:
        visitors.append(Visitor(browser, url, **how))  # type: ignore[arg-type]
        return visitors[-1]

    yield opened
    complaints = [complaint for visitor in visitors for complaint in visitor.complaints]
    for visitor in visitors:
        visitor.close()
    assert complaints == []
