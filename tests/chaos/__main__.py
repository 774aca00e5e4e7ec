"""``make chaos``: storms as long as told, a line about how it goes, and one line of counts at the end.

A third of the time goes to engines that are killed in every phase of their work (``phases``), a third to a storm over
the whole platform on each database.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from pathlib import Path

from chaos import phases
from chaos.choices import Kind
from chaos.counts import Counts
from chaos.storm import Plan, storm
from chaos.trainings import Size, scripts
from support.nursery import Nursery

QUIET_SECONDS = 180.0
_QUIET_LINE_SECONDS = 15.0


class Voice:
    """One line that changes where somebody looks on; a line now and then in a log."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._began = self._last = time.monotonic()

    def __call__(self, line: str) -> None:
        now = time.monotonic()
        if self._live:
            sys.stderr.write(f"\r\x1b[2K[{now - self._began:4.0f} s] {line}")
        elif now > self._last + _QUIET_LINE_SECONDS:
            self._last = now
            sys.stderr.write(f"[{now - self._began:4.0f} s] {line}\n")
        sys.stderr.flush()

    def end(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[2K")


def main() -> int:
    seconds = float(os.environ.get("CHAOS_SECONDS") or 600)
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1 << 31))
    asked = os.environ.get("CHAOS_DATABASE") or "both"
    parts = {"both": ["phases", "sqlite", "postgresql"], "none": ["phases"]}.get(asked, [asked])
    if not set(parts) <= {"phases", "sqlite", "postgresql"}:
        print(f"CHAOS_DATABASE: {asked!r}; it is both, sqlite, postgresql, or none for phases alone", file=sys.stderr)
        return 2
    without = tuple(Kind(word) for word in (os.environ.get("CHAOS_WITHOUT") or "").split(",") if word)
    print(f"CHAOS_SEED={seed} replays these choices", flush=True)
    voice, share = Voice(), seconds / len(parts)
    results: list[Counts | phases.Counts] = []
    if "phases" in parts:
        results.append(phases.run(share, seed, voice))
        voice.end()
    if set(parts) - {"phases"}:
        results += _storms([part for part in parts if part != "phases"], share, seed, without, voice)
    for found in results:
        for sentence in found.wrong:
            print(f"WRONG: {sentence}")
    for found in results:
        print(found)
    print(_in_one_line(results))
    return 0 if all(found.sound for found in results) else 1


def _storms(databases: list[str], seconds: float, seed: int, without: tuple[Kind, ...], voice: Voice) -> list[Counts]:
    size, all_counts = Size(epochs=24, pace=0.06), []
    folder = Path(tempfile.mkdtemp(prefix="edt-chaos-"))
    nursery = Nursery()
    try:
        those = scripts(nursery, folder / "undisturbed", size)
    finally:
        nursery.close()
    plan = Plan(seed, seconds, QUIET_SECONDS, size, those, without=without)
    for database in databases:
        place = folder / database
        place.mkdir()
        all_counts.append(storm(plan, place, database, voice))
        voice.end()
    if not all(counts.sound for counts in all_counts):
        print(f"what was left is in {folder}")
    return all_counts


def _in_one_line(results: list[Counts | phases.Counts]) -> str:
    storms = [found for found in results if isinstance(found, Counts)]
    kills = sum(found.kills.total() if isinstance(found, phases.Counts) else found.blows.total() for found in results)
    jobs = f"{sum(found.lost for found in storms)} jobs lost, {sum(found.twice for found in storms)} run twice"
    lost, repeated = sum(found.samples_lost for found in results), sum(found.samples_repeated for found in results)
    wrong = sum(len(found.wrong) for found in results)
    return f"{kills} kills: {jobs}, {lost} samples lost, {repeated} repeated, {wrong} wrong"


if __name__ == "__main__":
    sys.exit(main())
