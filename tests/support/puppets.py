"""Nodes played against the scheduler's use cases: an ideal agent and its supervisors, without any process.

A ``Puppet`` fetches what its node should run and reports what supervisors would. It is level-triggered like the
real ones: what it does follows from the newest list and from what it has done already.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edt_contract.attempt import Assignment
from edt_contract.reports import ExitKind, Report, ReportKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.home.fence_files import lowest
from edt_scheduler.model.jobs import JobSpec
from edt_scheduler.model.nodes import SlotSpec
from edt_scheduler.operations import agents, execs, fleet
from edt_scheduler.platform import Platform
from edt_scheduler.store import nodes
from edt_scheduler.views import JobView, UserView

Key = tuple[str, int]


class Clock:
    """A clock that only moves when told."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Puppet:
    """One node. ``join`` registers it; ``obey`` brings it up to what it is wished."""

    platform: Platform
    name: str = "n1"
    slots: int = 4
    engines: int = 4
    """E that every script tells."""
    boot: str = "boot-1"
    launcher: str = "process"
    alone: bool = False
    """Engines of other nodes cannot reach its own."""
    offers: tuple[SlotSpec, ...] = ()
    """Its slots, if they are no CPU stand-ins."""
    running: dict[Key, dict[int, str]] = field(default_factory=dict)
    """Attempt to its engines: allocation to slot."""
    reported: list[Report] = field(default_factory=list, repr=False)
    """Everything it ever reported, as its spool would hold it."""
    joins_at: int = 5
    """The step at which its engines join."""
    obedient: bool = True
    """False: engines that are asked to leave take their time."""
    cut: bool = False
    """True: a partition. It goes on, and what it tells waits in its spool, until ``heal``."""
    hosting: set[Key] = field(default_factory=set)
    """Attempts whose coordinator and driver run here."""
    peers: list[Puppet] = field(default_factory=list)
    """All nodes of the stage: who hosts an attempt knows which engines it has elsewhere."""

    def join(self) -> Puppet:
        fleet.register_node(
            self.platform,
            name=self.name,
            host="127.0.0.1",
            cores=8,
            boot_id=self.boot,
            incarnation="1",
            slots=self.offers or [SlotSpec(str(number)) for number in range(self.slots)],
            launcher=self.launcher,
            alone=self.alone,
        )
        return self

    def fetch(self, woken_by: str = "timer") -> dict[Key, Assignment]:
        if self.cut:
            return {}
        listed = agents.assignments(self.platform, self.name, woken_by=woken_by).assignments
        return {(item.spec.job, item.spec.fence): item for item in listed}

    def report(self, key: Key, what: ReportKind, /, **body: Any) -> None:
        """Report one thing with the next number."""
        seq = 1 + sum((report.job, report.fence) == key for report in self.reported)
        report = Report(key[0], key[1], self.name, seq, what, self.platform.clock(), body)
        self.reported.append(report)
        if not self.cut:
            agents.record_reports(self.platform, self.name, [report])

    def heal(self) -> None:
        """The partition is over: what waited is told."""
        self.cut = False
        agents.record_reports(self.platform, self.name, self.reported)

    def look_at_fences(self) -> None:
        """What every supervisor does once a second, whoever can be reached."""
        for key in list(self.running):
            if lowest(self.platform.settings.checkpoint_directory(key[0])) > key[1]:
                self.bury(key)

    def obey(self, woken_by: str = "timer") -> dict[Key, Assignment]:
        """Fetch, start what is new, let go what is asked back, and report it."""
        listed = self.fetch(woken_by)
        for key, item in listed.items():
            if key not in self.running:
                self._begin(key, item)
            if item.spec.gang is None:
                self._host(key, item)
            if self.obedient:
                for allocation in item.desired.leaving:
                    self.gone(key, allocation, ExitKind.LEFT)
            if item.desired.stop:
                self.end(key, ExitKind.STOPPED)
            elif not item.desired.slots and self.obedient and not self._is_needed(key):
                self.end(key, ExitKind.LEFT)
            else:
                self._start(key, item)
        return listed

    def _begin(self, key: Key, item: Assignment) -> None:
        self.running[key] = {}
        if not item.desired.stop and item.desired.slots:
            self.report(key, ReportKind.ATTEMPT_STARTED, pid=1)
            if item.spec.gang is not None:
                first = 2000 + 100 * self.peers.index(self)
                ports = list(range(first, first + 1 + len(item.desired.slots)))
                self.report(key, ReportKind.PORTS_RESERVED, ports=ports)

    def _host(self, key: Key, item: Assignment) -> None:
        """Host from the first desired that says so until another address is told."""
        if item.desired.coordinator is not None:
            self.hosting.discard(key)
        elif key not in self.hosting and not item.desired.stop and item.desired.slots:
            self.hosting.add(key)
            self.report(key, ReportKind.COORDINATOR_AT, address=f"{self.name}:1")
            self.report(key, ReportKind.ENGINES_KNOWN, engines=self.engines, steps_total=100, epochs=2)

    def _is_needed(self, key: Key) -> bool:
        """It hosts for engines elsewhere, and nobody else has told that he does."""
        return key in self.hosting and any(peer.running.get(key) for peer in self.peers if peer is not self)

    def _start(self, key: Key, item: Assignment) -> None:
        gang = item.spec.gang is not None
        if gang and not item.desired.ports:
            return  # other nodes of the gang are not ready
        gone = {each.body["allocation"] for each in self.reported if each.kind is ReportKind.ENGINE_GONE}
        for desired in item.desired.slots:
            if desired.allocation not in self.running[key] and desired.allocation not in gone:
                self.running[key][desired.allocation] = desired.slot
                self.report(key, ReportKind.ENGINE_STARTED, allocation=desired.allocation, slot=desired.slot, pid=2)
                if gang:
                    continue
                self.report(
                    key, ReportKind.ENGINE_JOINED, allocation=desired.allocation, generation=2, step=self.joins_at
                )
                self.report(key, ReportKind.ENGINE_COUNTED, allocation=desired.allocation, step=6)

    def gone(self, key: Key, allocation: int, kind: ExitKind, **body: Any) -> None:
        """The process of one engine was seen gone."""
        slot = self.running[key].pop(allocation, "?")
        self.report(key, ReportKind.ENGINE_GONE, allocation=allocation, slot=slot, kind=kind, **body)

    def end(self, key: Key, kind: ExitKind, **body: Any) -> None:
        """Its supervisor ends: its engines go, and it says its last word, for the whole attempt if it hosts it."""
        for allocation in list(self.running[key]):
            self.gone(key, allocation, kind)
        gang = any(each.kind is ReportKind.PORTS_RESERVED for each in self.reported if (each.job, each.fence) == key)
        whole = kind is not ExitKind.FINISHED if gang else key in self.hosting
        self.report(key, ReportKind.ATTEMPT_ENDED, **{"kind": kind, "whole": whole, **body})
        self._forget(key)

    def bury(self, key: Key) -> None:
        """Its supervisor was killed, its engines died with it, and the agent says what it no longer can."""
        for allocation in list(self.running[key]):
            self.gone(key, allocation, ExitKind.LOST)
        self.report(key, ReportKind.ATTEMPT_ENDED, kind=ExitKind.LOST, message="its supervisor was killed")
        self._forget(key)

    def reboot(self) -> None:
        """The machine starts anew: nothing of before runs, and nobody can say more of it."""
        self.boot += "'"
        self.cut = False
        self.running.clear()
        self.hosting.clear()
        self.join()

    def _forget(self, key: Key) -> None:
        del self.running[key]
        self.hosting.discard(key)


@dataclass
class Stage:
    """A platform with an admin, a clock that only moves when told, and the nodes that were put into it."""

    platform: Platform
    clock: Clock
    admin: UserView
    puppets: list[Puppet] = field(default_factory=list)

    def node(
        self,
        name: str = "n1",
        slots: int = 4,
        engines: int = 4,
        launcher: str = "process",
        *,
        alone: bool = False,
        offers: tuple[SlotSpec, ...] = (),
    ) -> Puppet:
        others = {"peers": self.puppets, "launcher": launcher, "alone": alone, "offers": offers}
        puppet = Puppet(self.platform, name, slots, engines, **others).join()
        self.puppets.append(puppet)
        return puppet

    def submit(self, workers: int = 4, owner: UserView | None = None, **changes: Any) -> str:
        """Submit a job; its exec id."""
        return self.submitted(workers, owner, **changes).exec_id

    def submitted(self, workers: int = 4, owner: UserView | None = None, **changes: Any) -> JobView:
        values = {"framework": "edtPyTorch", "model_main": "main.py", "args_verbatim": "--exec-start edtPyTorch"}
        values |= {"app_name": "ElasticPyTorchTrain", "num_worker": workers, **changes}
        return execs.submit(
            self.platform, owner=owner or self.admin, spec=JobSpec(**values), staged=stage_code(self.platform)
        )

    def job(self, exec_id: str) -> JobView:
        return execs.job(self.platform, exec_id, viewer=self.admin)

    def settle(self, until: Callable[[], bool] | None = None, rounds: int = 20) -> None:
        """Decide and obey in turn until nothing changes any more, or ``until`` holds."""
        for _ in range(rounds):
            if until is not None and until():
                return
            moved = look(self.platform)
            before = sum(len(puppet.reported) for puppet in self.puppets)
            for puppet in self.puppets:
                puppet.obey()
            if not moved and before == sum(len(puppet.reported) for puppet in self.puppets):
                return
        raise AssertionError(f"the platform did not come to rest within {rounds} rounds")

    def fence(self, exec_id: str) -> int:
        """What the job's fence file says."""
        return lowest(self.platform.settings.checkpoint_directory(exec_id))

    def silence(self, node: str) -> dict[int, int]:
        """What the leases' observer says of a node that was not heard from since now."""
        with self.platform.database.snapshot() as tx:
            row = nodes.get(tx, node)
        return {row.id: row.counter}

    def holding(self) -> dict[str, int]:
        """Job to the slots it holds."""
        held: dict[str, int] = {}
        for node in fleet.nodes(self.platform):
            for slot in node.slots:
                if slot.exec_id is not None:
                    held[slot.exec_id] = held.get(slot.exec_id, 0) + 1
        return held


def stage_code(platform: Platform, text: str = "print('hello')\n") -> Path:
    """An upload as the API leaves it: unpacked, below ``staged``."""
    staged = platform.settings.staged / f"upload-{uuid.uuid4().hex}"
    staged.mkdir()
    (staged / "main.py").write_text(text)
    return staged
