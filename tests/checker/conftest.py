"""A good home to plant bugs into: jobs that ran, run and were stopped, with their papers, records and checkpoints."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from checker.violation import Invariant
from checker.watch import Checker
from edt_contract.encoding import to_json_object
from edt_contract.reports import ExitKind, ReportKind
from edt_migrations import migrate
from edt_scheduler.model.states import Role
from edt_scheduler.notify.notifier import Notifier
from edt_scheduler.operations import accounts, execs
from edt_scheduler.platform import Platform
from edt_scheduler.settings import Settings
from edt_scheduler.store.database import Database
from support.puppets import Clock, Puppet, Stage
from support.waiting import until

EPOCHS, SAMPLES = 2, 8


@pytest.fixture(scope="session")
def good_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """edt-1 has finished, edt-2 runs as its second attempt beside edt-4, edt-3 was stopped, edt-5 to 7 wait."""
    home = tmp_path_factory.mktemp("good") / "home"
    with staged(home, f"sqlite:///{home / 'edt.db'}") as stage:
        node = _play(stage)
    _write_papers(home, node)
    return home


@contextlib.contextmanager
def staged(home: Path, url: str) -> Iterator[Stage]:
    """A new platform on this database, closed at the end."""
    settings = Settings(home=home, database_url=url, broker_url="")
    for folder in (settings.jobs, settings.staged, home / "run"):
        folder.mkdir(parents=True, exist_ok=True)
    migrate(url)
    database, clock = Database(url), Clock(time.time() - 100)
    platform = Platform(database, Notifier(database, clock=clock), settings, clock)
    yield Stage(platform, clock, accounts.add_user(platform, "admin", "hash", Role.ADMIN))
    platform.notifier.relay()
    platform.close()
    database.close()


def _play(stage: Stage) -> Puppet:
    node = stage.node("n1", slots=2, engines=2)
    first = stage.submit(2, app_name="first of all")
    stage.settle()
    node.report((first, 1), ReportKind.ENGINES_KNOWN, engines=2, steps_total=4, epochs=EPOCHS)
    node.end((first, 1), ExitKind.FINISHED)
    stage.settle()
    second = stage.submit(2)
    stage.settle()
    node.end((second, 1), ExitKind.LOST, message="its supervisor died")
    stage.clock.pass_(5)
    stage.settle()
    assert (second, 2) in node.running
    third = stage.submit(1)
    execs.stop(stage.platform, third, viewer=stage.admin)
    stage.settle()
    for _ in range(4):
        stage.submit(1)
    stage.settle()
    return node


def _write_papers(home: Path, node: Puppet) -> None:
    for report in node.reported:
        spool = home / "jobs" / report.job / "spool" / f"{report.fence}-{report.node}"
        spool.mkdir(parents=True, exist_ok=True)
        with (spool / "reports.jsonl").open("a") as file:
            file.write(json.dumps(to_json_object(report)) + "\n")
    for offset in (3, 7):
        place = home / "jobs/edt-2/checkpoint" / f"at-{offset:010d}"
        place.mkdir(parents=True)
        (place / "state.safetensors").write_bytes(b"state %d" % offset)
        digest = hashlib.sha256(b"state %d" % offset).hexdigest()
        files = {"state.safetensors": {"sha256": digest, "bytes": 7}}
        (place / "manifest.json").write_text(json.dumps({"fence": 1, "offset": offset, "files": files}))
    record = home / "RECORD"
    record.mkdir()
    for engine in (1, 2):
        lines: list[Any] = []
        for step in range(4):  # two micro-batches of two samples a step
            start = (step % 2) * 4 + (engine - 1) * 2
            lines += [["try", step // 2, step, 0, engine - 1, [start, start + 1]], ["commit", step, 0]]
        (record / f"samples-1-{engine}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@dataclass
class Now:
    """A clock that only moves when told."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Planted:
    """A copy of the good home, what is done to it, and the checker that looks at it."""

    home: Path
    clock: Now
    checker: Checker
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def sql(self, *statements: str) -> None:
        """Change the database behind the back of its own rules."""
        with contextlib.closing(sqlite3.connect(self.home / "edt.db")) as connection:
            rules = connection.execute(
                "SELECT type, name FROM sqlite_master WHERE type = 'trigger' OR (type = 'index' AND sql IS NOT NULL)"
            ).fetchall()
            for kind, name in rules:
                connection.execute(f"DROP {kind} {name}")
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    def live(self, name: str, life: str = "", node: str = "n1", **marks: str) -> subprocess.Popen[bytes]:
        """A living process of this name, marked as ours are."""
        place = self.home / "bin" / name
        place.parent.mkdir(exist_ok=True)
        if not place.exists():
            place.symlink_to(shutil.which("sleep") or "/bin/sleep")
        environ = {"EDT_TAG": str(self.home), "EDT_NODE": node, **({"EDT_LIFE": life} if life else {}), **marks}
        process = subprocess.Popen([str(place), "600"], env=environ)
        self.processes.append(process)
        bears(process.pid, f"EDT_TAG={self.home}")
        return process

    def ledger(self, life: str, job: str, fence: int) -> None:
        """What an agent writes down before a supervisor gets its spec."""
        folder = self.home / "agent/n1/attempts"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{job}.{fence}.json").write_text(json.dumps({"job": job, "fence": fence, "life": life}))

    def found(self, seconds: float = 0.0) -> set[Invariant]:
        """What is found wrong, now and ``seconds`` later."""
        self.checker.poll()
        if seconds:
            early = {each.invariant for each in self.checker.violations}
            assert not early, "it was said before its time"
            self.clock.seconds += seconds
            self.checker.poll()
        return {each.invariant for each in self.checker.violations}


def bears(pid: int, mark: str) -> None:
    """Wait until a process that was started a moment ago shows its own environment: the kernel says that it runs some
    milliseconds before it has one."""
    environ = Path(f"/proc/{pid}/environ")
    until(lambda: mark.encode() in environ.read_bytes().split(b"\0"), 10, f"{pid} bears {mark}")


@pytest.fixture
def planted(good_home: Path, tmp_path: Path) -> Iterator[Planted]:
    home = tmp_path / "home"
    shutil.copytree(good_home, home)
    clock = Now()
    planted = Planted(home, clock, Checker(home, str(home), clock=clock))
    planted.checker.keeps("edt-1", home / "RECORD")
    yield planted
    for process in planted.processes:
        process.kill()
        process.wait()
