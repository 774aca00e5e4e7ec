"""Whether a training's result is exact to the bit, as an adapter keeps account of it. Room: runners; pure."""

from __future__ import annotations


class Guarantee:
    """What ended it, and why; each told once."""

    def __init__(self) -> None:
        self._news: list[tuple[str, str]] = []
        self._told: set[str] = set()

    def end_guarantee(self, what: str, why: str) -> None:
        """The result is no longer exact because of ``what``; told once."""
        if what not in self._told:
            self._told.add(what)
            self._news.append((what, why))

    def take_warnings(self) -> list[tuple[str, str]]:
        """(what, why) of everything that ended it since the last call."""
        news, self._news = self._news, []
        return news
