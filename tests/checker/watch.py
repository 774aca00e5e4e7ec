"""The checker as an object that is polled, and a thread that polls it.

Rules with a time limit are judged by this process's own monotonic clock: from when a thing was first seen, and not
while there is no quiet (``disturbed``) or the database does not answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from checker import history, rows, samples
from checker.checkpoints import Shelf
from checker.database import Picture, Unreachable, read
from checker.home_files import Register, Reports, there
from checker.living import Census
from checker.machine import processes
from checker.violation import Invariant, Unsound, Violation


@dataclass(frozen=True)
class Expected:
    """What the test knows of a training."""

    samples: int | None = None
    epochs: int | None = None


@dataclass
class Sightings:
    """For how long each thing has been seen, quiet since."""

    clock: Callable[[], float]
    quiet_since: float = 0.0
    _first: dict[object, float] = field(default_factory=dict)

    def age(self, key: object) -> float:
        now = self.clock()
        return now - max(self._first.setdefault(key, now), self.quiet_since)

    def forget_but(self, keys: set[object]) -> None:
        self._first = {key: at for key, at in self._first.items() if key in keys}


class Checker:
    """``poll`` it often; ``violations`` is what it has found. One thread at a time polls, any may tell it things."""

    def __init__(self, home: Path, tag: str, url: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._home, self._tag = home, tag
        self._url = url or f"sqlite:///{home / 'edt.db'}"
        self._sightings = Sightings(clock)
        self._shelf, self._memory = Shelf(), history.Memory()
        self._reports = Reports(home)
        self._census = Census(Register(home), self._reports)
        self._acknowledged: dict[str, str] = {}
        self._seen_running: set[str] = set()
        self._expected: dict[str, Expected] = {}
        self._records: dict[str, Path] = {}
        self._audited: dict[str, list[samples.Audit]] = {}
        self._excused: set[Invariant] = set()
        self._found: dict[tuple[Invariant, object], Violation] = {}
        self.pending: list[Violation] = []
        """What is not wrong yet, and would be if it stayed: by the last poll."""
        self.polls = 0
        """How often the database answered."""

    @property
    def violations(self) -> list[Violation]:
        return list(self._found.values())

    @property
    def audits(self) -> dict[str, list[samples.Audit]]:
        """The epochs of every finished job that kept a record."""
        return dict(self._audited)

    # ── what a test tells ─────────────────────────────────────────────────────────────────────────────────────
    def acknowledge(self, job: str, mark: str = "") -> None:
        """A submit was answered with this id. ``mark``: its name, where no other submit had it."""
        self._acknowledged[job] = mark

    def saw(self, job: str, state: str) -> None:
        """A user was shown this state."""
        if state == "RUNNING":
            self._seen_running.add(job)

    def expect(self, job: str, samples: int | None = None, epochs: int | None = None) -> None:
        """So many samples in each of so many epochs, if it finishes."""
        self._expected[job] = Expected(samples, epochs)

    def keeps(self, job: str, record: Path) -> None:
        """Its engines write into this folder which samples they have tried and committed."""
        self._records[job] = record

    def disturbed(self) -> None:
        """Something was killed just now: no limit runs on what was seen before."""
        self._sightings.quiet_since = self._sightings.clock()

    def excuse(self, invariant: Invariant) -> None:
        """This test breaks that one itself."""
        self._excused.add(invariant)

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────
    def poll(self) -> bool:
        """Look once; False: the database could not be asked."""
        # What only grows is read first, so that nothing younger than the picture can look wrong in it.
        promised, seen = dict(self._acknowledged), set(self._seen_running)
        checkpoints = {job.name: self._shelf.newest(job) for job in there(self._home, "jobs/edt-*")}
        try:
            picture = read(self._url)
        except Unreachable:
            self.disturbed()
            return False
        self._reports.read()
        living = processes(self._tag)
        found = [
            *rows.judge(picture, self._reports),
            *history.replay(picture),
            *self._memory.compare(picture),
            *self._census.judge(picture, living),
            *_checkpoints(picture, checkpoints),
            *_promises(picture, self._still_there(promised), seen),
            *self._samples(picture),
        ]
        self._judge([each for each in found if each.invariant not in self._excused])
        self.polls += 1
        return True

    def settle(self, seconds: float = 70.0) -> None:
        """Poll until nothing is left that time would make wrong, or until it has."""
        deadline = time.monotonic() + seconds
        while (not self.poll() or self.pending) and time.monotonic() < deadline:
            time.sleep(0.05)

    def assert_sound(self) -> None:
        """Raises Unsound with every violation found so far."""
        if self.violations:
            raise Unsound("\n".join(map(str, self.violations)))

    def _still_there(self, promised: Mapping[str, str]) -> dict[str, str]:
        """The promises whose jobs were not deleted, and gone whole a while afterwards."""
        purged = {f"edt-{job}" for job in self._memory.purged}
        return {job: mark for job, mark in promised.items() if job not in purged}

    def _judge(self, found: list[Violation]) -> None:
        self.pending = []
        for each in found:
            key = each.invariant, each.key
            if self._sightings.age(key) >= each.after:
                self._found.setdefault(key, each)
            elif key not in self._found:
                self.pending.append(each)
        self._sightings.forget_but({(each.invariant, each.key) for each in found})

    def _samples(self, picture: Picture) -> Iterator[Violation]:
        for number, row in picture.jobs.items():
            job = f"edt-{number}"
            folder = self._records.get(job)
            if row["state"] != "FINISHED" or not folder:
                continue
            if job not in self._audited:
                expected = self._expected.get(job, Expected())
                try:
                    audits = samples.audit(folder, expected.samples, expected.epochs or row["epochs"])
                except samples.Unreadable as error:
                    yield Violation(Invariant.SAMPLES, (job, "unreadable"), f"{job}: {error}")
                    continue
                self._audited[job] = audits
            for audit in self._audited[job]:
                if audit.lost or audit.repeated:
                    yield Violation(Invariant.SAMPLES, (job, audit.epoch), f"{job}, {audit}")
            if not any(folder.glob("samples-*.jsonl")):
                yield Violation(Invariant.SAMPLES, (job, "none"), f"{job} is finished and its record is empty")


def _checkpoints(picture: Picture, newest: dict[str, tuple[Path, str | None, int] | None]) -> Iterator[Violation]:
    for job, found in newest.items():
        row = picture.jobs.get(int(job.rpartition("-")[2]))
        if found is None or row is None:
            continue
        if row["deleted_at"] is not None or row["results_removed_at"] is not None:  # its folder goes, piece by piece
            continue
        path, wrong, fence = found
        if wrong is not None:
            yield Violation(Invariant.I14, path, f"{path.name} of {job}: {wrong}")
        elif fence > row["fence"]:
            yield Violation(
                Invariant.I14, path, f"{path.name} of {job} is of fence {fence}, the job's is {row['fence']}"
            )


def _promises(picture: Picture, acknowledged: Mapping[str, str], seen: Collection[str]) -> Iterator[Violation]:
    for job, mark in acknowledged.items():
        number = int(job.rpartition("-")[2])
        if number not in picture.jobs:
            yield Violation(Invariant.I3, job, f"{job} was acknowledged and is not there")
        bearers = [row["id"] for row in picture["jobs"] if mark and row["app_name"] == mark]
        if mark and bearers != [number]:
            yield Violation(Invariant.I3, (job, "mark"), f"{job} was submitted once and is {bearers}")
    for job in seen:
        row = picture.jobs.get(int(job.rpartition("-")[2]))
        if row is not None and not rows.has_started(picture, row):
            yield Violation(Invariant.I15, (job, "seen"), f"{job} was shown as RUNNING and has never started")


class Watch:
    """``with Watch(checker):`` polls it each second in a thread of its own."""

    def __init__(self, checker: Checker, seconds: float = 1.0) -> None:
        self.checker, self._seconds = checker, seconds
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checker", daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop polling. Raises what the thread died of, if it did: a checker that is gone says nothing."""
        with ExitStack() as stack:
            stack.callback(self._thread.join, 30)
            self._closing.set()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _run(self) -> None:
        try:
            while not self._closing.wait(self._seconds):
                self.checker.poll()
        except BaseException as error:
            self._error = error
