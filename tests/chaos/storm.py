"""One storm over one platform, and the quiet after it, in which everything must come to its end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from chaos.choices import Blow, Choice, Kind, choices
from chaos.counts import Counts
from chaos.trainings import Fate, Script, Size, Training, endless
from chaos.victims import hit, of, pick
from checker.machine import Process
from checker.violation import Invariant
from support.credentials import PASSWORD
from support.journey import platform_in
from support.postgres import Postgres
from support.running_platform import Platform

HTTP_SECONDS = 5.0
RETRY_SECONDS = 0.5
DRAIN_SECONDS = 5.0
LEASE_SECONDS = 8.0
FREEZE_SECONDS = (2.0, 14.0)


@dataclass(frozen=True)
class Plan:
    """What a storm is told."""

    seed: int
    seconds: float
    quiet_seconds: float
    """So long may jobs take to their end once nobody is killed any more."""
    size: Size
    scripts: list[Script]
    least: int = 0
    """So many blows fall at the least, and so many looks are taken, however slow the machine is."""
    jobs: int = 3
    slots: int = 2
    """Of each node."""
    others: tuple[str, ...] = ("second", "third")
    """Nodes beside the one of `edt up`."""
    without: Collection[Kind] = ()


class Storm:
    """``run`` once; answers with the counts."""

    def __init__(self, plan: Plan, platform: Platform, database: str, postgres: Postgres | None) -> None:
        self._plan, self._platform, self._postgres = plan, platform, postgres
        self.counts = Counts(database, plan.seed)
        self._choices = choices(plan.seed)
        self._source = endless(platform, plan.scripts, plan.size)
        self._trainings: list[Training] = []
        self._drained: dict[str, float] = {}
        """Node to when it shall take work again."""
        self._frozen: list[tuple[float, Process]] = []
        """Who stands still, and until when."""
        self._later: list[_Errand] = []
        self._client = httpx.Client(base_url=platform.url, auth=("admin", PASSWORD), timeout=HTTP_SECONDS)
        self._reported_at = 0.0

    def run(self, report: Callable[[str], None]) -> Counts:
        """Storm, quiet, judgement. ``say`` hears a line about how it goes, each second."""
        plan, platform = self._plan, self._platform
        platform.asserts = False  # what is wrong is counted
        with platform:
            for name in plan.others:
                platform.add_node(name, plan.slots)
            end = time.monotonic() + plan.seconds
            coming = next(self._choices)
            due = time.monotonic() + coming.pause
            while (now := time.monotonic()) < end or self._owes():
                if now >= due:
                    self._strike(coming)
                    coming = next(self._choices)
                    due = time.monotonic() + coming.pause
                self._keep(self._plan.jobs)
                self._report(report, f"storm, {end - now:.0f} s left")
            self._calm(report)
        self._client.close()
        self._judge()
        return self.counts

    def _owes(self) -> bool:
        return min(self.counts.blows.total(), self._platform.checker.polls) < self._plan.least

    # ── the storm ─────────────────────────────────────────────────────────────────────────────────────────────
    def _strike(self, choice: Choice) -> None:
        for blow in choice.blows:
            if blow.kind not in self._plan.without and self._deal(blow):
                self.counts.blows[blow.kind] += 1
                self._platform.checker.disturbed()

    def _deal(self, blow: Blow) -> bool:
        """False: there was nobody to hit."""
        going = [each for each in self._trainings if each.fate is Fate.GOING]
        match blow.kind:
            case Kind.DATABASE:
                if self._postgres is None or self._postgres.pid is None:
                    return False
                (self._postgres.kill if blow.aim < 0.5 else self._postgres.stop)()
                return True
            case Kind.DRAIN:
                return self._drain(blow.aim)
            case Kind.STOP:
                victim = pick(going, blow.aim)
                if victim is None:
                    return False
                victim.stop_asked = True
                self._later.append(_Errand("POST", f"/platform/rest/deeplearning/v1/execs/{victim.id}/stop"))
                return True
            case Kind.AGAIN:
                training = pick(going, blow.aim)
                return training is not None and self._send(training)
            case Kind.FREEZE:
                process = pick(of(blow.kind, self._platform), blow.aim)
                if process is None or not hit(process, signal.SIGSTOP):
                    return False
                shortest, longest = FREEZE_SECONDS
                seconds = shortest + (longest - shortest) * (blow.aim * 1000 % 1)
                self._frozen.append((time.monotonic() + seconds, process))
                return True
            case kind:
                process = pick(of(kind, self._platform), blow.aim)
                number = signal.SIGSTOP if kind is Kind.ENGINE_STOP else signal.SIGKILL
                return process is not None and hit(process, number)

    def _drain(self, aim: float) -> bool:
        """A node but the last that takes work."""
        names = ["", *self._plan.others]
        open_ = [name for name in names if name not in self._drained]
        name = pick(open_, aim)
        if name is None or len(open_) < 2:
            return False
        self._drained[name] = time.monotonic() + DRAIN_SECONDS
        self._later.append(_Errand("POST", f"/api/v1/nodes/{name or self._first_node()}/drain"))
        return True

    def _first_node(self) -> str:
        """The node of `edt up`, which is named after the machine."""
        papers = {path.name for path in (self._platform.home / "agent").iterdir()}
        return sorted(papers - set(self._plan.others))[0]

    # ── what goes on all the time ─────────────────────────────────────────────────────────────────────────────
    def _keep(self, jobs: int) -> None:
        """Start again what died, send what is due, look at the jobs; then rest for a moment."""
        began = time.monotonic()
        if self._postgres is not None and self._postgres.pid is None:
            self._postgres.start()
        if self._platform.revive():
            self._platform.checker.disturbed()
        self._thaw(began)
        for name in [name for name, at in self._drained.items() if at <= began]:
            self._uncordon(name)
        while self._later and self._run(self._later[0]):  # in their order: no drain after its uncordon
            self._later.pop(0)
        if sum(each.fate in {Fate.UNSENT, Fate.GOING} for each in self._trainings) < jobs:
            self._trainings.append(next(self._source))
        for training in self._trainings:
            if training.fate is Fate.UNSENT:
                self._send(training)
            elif training.fate is Fate.GOING:
                self._look(training)
        time.sleep(max(0.02, 0.1 - (time.monotonic() - began)))

    def _thaw(self, now: float) -> None:
        due = [process for at, process in self._frozen if at <= now]
        self._frozen = [(at, process) for at, process in self._frozen if at > now]
        for process in due:
            if hit(process, signal.SIGCONT):
                self._platform.checker.disturbed()

    def _uncordon(self, name: str) -> None:
        del self._drained[name]
        self._later.append(_Errand("POST", f"/api/v1/nodes/{name or self._first_node()}/uncordon"))

    def _send(self, training: Training) -> bool:
        try:
            return training.send(self._client)
        except httpx.TransportError:
            return False

    def _look(self, training: Training) -> None:
        try:
            answer = self._client.get(f"/api/v1/jobs/{training.id}")
        except httpx.TransportError:
            return
        if answer.status_code == 404:
            self.counts.wrong.append(f"{training.id} was acknowledged and is unknown now")
            training.fate = Fate.WRONG
        elif answer.is_success:
            training.judge(answer.json())

    def _run(self, errand: _Errand) -> bool:
        """True: it was answered."""
        if time.monotonic() < errand.due:
            return False
        try:
            answer = self._client.request(errand.method, errand.path)
        except httpx.TransportError:
            answer = None
        if answer is not None and (answer.is_success or 400 <= answer.status_code < 500):
            return True
        errand.due = time.monotonic() + RETRY_SECONDS
        return False

    def _report(self, report: Callable[[str], None], where: str) -> None:
        if (now := time.monotonic()) > self._reported_at + 1:
            self._reported_at = now
            fates = [each.fate for each in self._trainings]
            going = f"{fates.count(Fate.GOING)} jobs going, {fates.count(Fate.FINISHED)} finished"
            wrong = len(self._platform.checker.violations) + fates.count(Fate.WRONG)
            report(f"{self.counts.database}: {where}, {self.counts.blows.total()} blows, {going}, {wrong} wrong")

    # ── the quiet ─────────────────────────────────────────────────────────────────────────────────────────────
    def _calm(self, report: Callable[[str], None]) -> None:
        for name in list(self._drained):
            self._uncordon(name)
        self._thaw(float("inf"))
        limit = time.monotonic() + self._plan.quiet_seconds
        while time.monotonic() < limit and (self._later or self._open()):
            self._keep(0)
            self._report(report, f"quiet, {self._open()} jobs to come to their end")

    def _open(self) -> int:
        return sum(each.fate in {Fate.UNSENT, Fate.GOING} for each in self._trainings)

    def _judge(self) -> None:
        counts, checker = self.counts, self._platform.checker
        counts.submitted = sum(bool(each.id) for each in self._trainings)
        counts.finished = sum(each.fate is Fate.FINISHED for each in self._trainings)
        counts.stopped = sum(each.fate is Fate.KILLED for each in self._trainings)
        counts.attempts = sum(each.attempts for each in self._trainings)
        for training in self._trainings:
            if training.fate is Fate.GOING:
                counts.lost += 1
                counts.wrong.append(f"{training.id} ({training.script.name}) did not come to its end")
            elif training.fate is Fate.WRONG:
                counts.lost += 1
                counts.wrong.append(training.wrong)
            elif training.fate is Fate.UNSENT:
                counts.wrong.append("a submit was never answered")
        for audit in (audit for audits in checker.audits.values() for audit in audits):
            counts.samples_lost += len(audit.lost)
            counts.samples_repeated += len(audit.repeated)
        for violation in checker.violations:
            counts.violations[violation.invariant] += 1
            counts.twice += violation.invariant in {Invariant.I3, Invariant.I4}
            counts.wrong.append(str(violation))
        counts.polls = checker.polls


@dataclass
class _Errand:
    """A request that is sent until it is answered."""

    method: str
    path: str
    due: float = field(default=0.0)


def storm(plan: Plan, folder: Path, database: str, report: Callable[[str], None]) -> Counts:
    """One storm in a platform of its own."""
    environ = {"EDT_LEASE_SECONDS": str(LEASE_SECONDS)}
    if database == "sqlite":
        platform = platform_in(folder, plan.slots, **environ)
        return Storm(plan, platform, database, None).run(report)
    with Postgres() as server:
        platform = platform_in(folder, plan.slots, EDT_DATABASE_URL=server.create("edt"), **environ)
        return Storm(plan, platform, database, server).run(report)
