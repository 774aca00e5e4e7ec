"""What a join and a killed engine cost a training on GPUs: by the times of its committed steps."""

from __future__ import annotations

import itertools
import statistics
import time

from _gpu_attempts import Attempt, Place
from _gpu_page import Page
from _resize_notes import Reader

MOST_JOIN, MOST_KILL, MOST_BACK = 1.0, 1.0, 5.0
"""Steps; seconds; seconds."""
STEPS_AFTER = 10
"""The window of an event reaches to this step in the new size."""
ROUNDS = 4
_STEADY_SECONDS = 1.5
_BACK_SECONDS = 20.0


class Watched:
    """An attempt, and the times of its steps."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self._reader = Reader(attempt.folder)

    def steady(self, engines: int) -> float:
        """Let it train for a while; seconds of a step with so many engines."""
        since = time.monotonic()
        self._wait_for_steps(since, engines, STEPS_AFTER)
        time.sleep(max(0.0, since + _STEADY_SECONDS - time.monotonic()))
        self._reader.read()
        return statistics.median(self._intervals(since, time.monotonic()))

    def come_to(self, since: float, engines: int) -> float:
        """Wait for the tenth step in a new size. Returns the longest interval since a time."""
        last = self._wait_for_steps(since, engines, STEPS_AFTER)
        return max(self._intervals(since, last))

    def next_step(self, since: float, engines: int) -> float:
        """Seconds to the next step that so many engines commit."""
        return self._wait_for_steps(since, engines, 1) - since

    def wait_for_change(self, number: int) -> float:
        """Wait until engines have said so often that reductions are collective. Returns when."""
        self.attempt.wait_for_changes(number, _BACK_SECONDS)
        return time.monotonic()

    def _wait_for_steps(self, since: float, engines: int, number: int) -> float:
        """Returns when the last of so many steps was committed."""
        found: list[float] = []

        def came() -> bool:
            self._reader.read()
            commits = self._reader.commits()
            found[:] = [each.time for each in commits if each.time > since and each.workers == engines]
            return len(found) >= number

        self.attempt.wait(came, f"{number} steps of {engines} engines")
        return found[number - 1]

    def _intervals(self, since: float, until: float) -> list[float]:
        """Between the commits from the last one before a time on."""
        times = [each.time for each in self._reader.commits() if each.time <= until]
        first = max((number for number, moment in enumerate(times) if moment <= since), default=0)
        return [later - earlier for earlier, later in itertools.pairwise(times[first:])]


def run(page: Page, place: Place, network: str, *, faster: str, engines: int, seconds: float, judged: bool) -> None:
    """Let an engine join and be killed, again and again, over the fastest network that there is.

    Args:
        page: gets the rows.
        place: where it runs.
        network: what is trained.
        faster: what collective reductions go over; "": that is not possible.
        engines: how many there are while the joined one is there.
        seconds: after so many no further round begins.
        judged: whether the targets hold here.
    """
    over, fewer = faster or "gloo", engines - 1
    deadline = time.monotonic() + seconds
    steps: dict[int, list[float]] = {fewer: [], engines: []}
    joins: list[float] = []
    kills: list[float] = []
    back: list[float] = []
    words = ("noted", network, engines)
    with Attempt(place, "pauses", words, engines, collectives=bool(faster)) as attempt:
        watched = Watched(attempt)
        attempt.hold(range(1, engines))
        newest = fewer
        steps[fewer].append(watched.steady(fewer))
        while len(joins) < ROUNDS and (not joins or time.monotonic() < deadline):
            changes, newest = attempt.changes_over(), newest + 1
            longest = watched.come_to(attempt.hold([*attempt.engines, newest]), engines)
            if faster:
                watched.wait_for_change(changes + engines)
            steps[engines].append(watched.steady(engines))
            steady = max(steps[fewer][-1], steps[engines][-1])
            joins.append((longest - steady) / steady)
            changes, victim = attempt.changes_over(), attempt.engines[0]
            moment = attempt.kill_engine(victim)
            kills.append(watched.next_step(moment, fewer))
            attempt.hold(each for each in attempt.engines if each != victim)
            if faster and fewer > 1:
                back.append(watched.wait_for_change(changes + fewer) - moment)
            steps[fewer].append(watched.steady(fewer))
    for number, times in steps.items():
        page.figure(f"steady step, W = {number}", over, "ms", [1e3 * each for each in times])
    page.figure("join: longest gap less a steady step", over, "steps", joins, MOST_JOIN if judged else None)
    page.figure("SIGKILL to the next committed step", over, "s", kills, MOST_KILL if judged else None)
    what = "SIGKILL to collective reductions again"
    if back:
        page.figure(what, over, "s", back, MOST_BACK if judged else None)
    elif faster:
        page.text(what, "not measured: two must be left, and three engines cannot share these GPUs")
