"""Who is there, and what is to be said to whom: the coordinator's memory. Room: runners; pure.

Shared by ``changes`` (planned ones), ``rounds`` (after a crash), ``recovery`` (a coordinator that is not the first)
and ``membership``, which decides between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edt_runner.generations import Generation, Phase, Send


class Roster:
    """Engines by what is known of them. A name that is ``released`` has been told to go and counts for nothing."""

    def __init__(self) -> None:
        self.phase = Phase.WAITING
        self.definition: Mapping[str, Any] | None = None
        self.driver_there = False
        """The driver has said ``begin`` and has not gone since."""
        self.current = Generation(0, ())
        self.expected: set[str] = set()
        """Forked, not gone."""
        self.connected: set[str] = set()
        self.ready: dict[str, Mapping[str, Any]] = {}
        """Wait to be let in."""
        self.leaving: set[str] = set()
        self.released: set[str] = set()
        self.holders: set[str] = set()
        """Have the state: members, newcomers that have received it, leavers that are not released."""
        self.addresses: dict[str, list[str]] = {}
        """``host:port`` at which each engine's data plane is connected to."""
        self.computing: dict[str, Mapping[str, Any]] = {}
        """What each engine computes with, by name (``edt_runner.computing``)."""
        self.sent_back: dict[str, int] = {}
        """The round in which an engine was told to ask anew."""
        self.doors: dict[str, str] = {}
        """Where each engine can be knocked at, to see whether it can be reached."""
        self.number = 0
        """Of the newest generation."""
        self.round = 0
        """Of the newest round."""
        self._sends: list[Send] = []

    def next_generation(self) -> int:
        self.number += 1
        return self.number

    def next_round(self) -> int:
        self.round += 1
        return self.round

    @property
    def over(self) -> bool:
        """Nothing that happens to an engine matters any more."""
        return self.phase in (Phase.DONE, Phase.SUSPENDED, Phase.FAILED)

    @property
    def all_addresses(self) -> list[str]:
        return sorted({address for addresses in self.addresses.values() for address in addresses})

    # ── effects ───────────────────────────────────────────────────────────────────────────────────────────────
    def send(self, to: str, kind: str, **fields: Any) -> None:
        self._sends.append(Send(to, {**fields, "kind": kind}))

    def report(self, kind: str, **body: Any) -> None:
        self.send("leader", "report", report=kind, body=body)

    def report_joined(self, name: str, generation: int, step: int | None) -> None:
        self.report("engine-joined", allocation=int(name), generation=generation, step=step)

    def take(self) -> list[Send]:
        """Effects since the last call, in order."""
        sends, self._sends = self._sends, []
        return sends

    def release(self, name: str) -> None:
        """It may go, at its own pace."""
        self.released.add(name)
        self.holders.discard(name)
        if name in self.connected:
            self.send(name, "exit")

    def dismiss(self, name: str) -> None:
        """An engine that nobody counts on goes at once, whatever its script is doing."""
        self.release(name)
        self.send("supervisors", "discard", engine=name)

    def send_back(self, name: str, round_: int) -> None:
        """It has not got the state and will not get it from those it waits for: it asks anew."""
        self.ready.pop(name, None)
        self.sent_back[name] = round_
        self.send(name, "rejoin", round=round_, addresses=self.all_addresses)

    def lose(self, why: str) -> None:
        """Nobody is left who has the state: the attempt is over, the next one goes on from the last checkpoint."""
        if not self.over:
            self.phase = Phase.FAILED
            self.send("supervisors", "lost", why=why)

    def forget(self, name: str) -> None:
        """Its process is gone."""
        for group in (self.expected, self.connected, self.holders):
            group.discard(name)
        self.ready.pop(name, None)
        self.addresses.pop(name, None)
        self.computing.pop(name, None)
