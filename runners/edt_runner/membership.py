"""Who is in the training, and when that changes. Pure; room: runners. Effects: ``coordinator``.

A membership is a numbered generation: the engines in rank order. A change passes through:

* building: all concerned build the new group in the background and acknowledge; training never waits for it;
* committed: members announce the number inside their reductions; they switch at the tick after the first
  reduction in which *all* announced it (the minimum is taken locally, so all switch at the same tick);
* settled: everybody has switched and newcomers have the weights. Leavers may go, the next change may begin.

Until somebody has seen all announcements a change can be taken back: a member that has not announced promises
never to (``retract``). One promise is enough, since the switch needs all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edt_runner.generations import Change, Generation, Phase, Send, Step

BUILD_SECONDS = 10.0
"""A generation not acknowledged by all within this time is cancelled."""
SUCCESSOR_SECONDS = 15.0
"""How long the last engines that shall leave wait for one that is on its way; half of the least grace."""
RETRY_SECONDS = 1.0
"""Pause before the next try after a cancelled change."""


class Membership:
    """The coordinator's mind. Events come in by methods, effects go out by ``take()``; ``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self.phase = Phase.WAITING
        self.definition: Mapping[str, Any] | None = None
        self.current = Generation(0, ())
        self.change: Change | None = None
        self._expected: set[str] = set()  # forked, not gone
        self._connected: set[str] = set()
        self._ready: dict[str, Mapping[str, Any]] = {}
        self._leaving: set[str] = set()
        self._released: set[str] = set()
        self._finished: dict[str, Mapping[str, Any]] = {}
        self._failure: Mapping[str, Any] | None = None
        self._number = 0
        self._not_before = 0.0
        self._waiting_since: float | None = None
        """Since when the last engines wait for one that shall carry on."""
        self._sends: list[Send] = []

    # ── events from supervisors ───────────────────────────────────────────────────────────────────────────────
    def expect(self, name: str) -> None:
        """A supervisor has forked engine ``name``."""
        self._expected.add(name)

    def leave(self, names: Sequence[str], now: float) -> None:
        """Engines ``names`` shall leave at the next boundary."""
        self._leaving.update(names)
        for name in set(names) - self._bound():
            self._ready.pop(name, None)
            self._dismiss(name)
        self._proceed(now)

    def gone(self, name: str, now: float) -> None:
        """The process of engine ``name`` was seen gone."""
        self._expected.discard(name)
        self._connected.discard(name)
        self._ready.pop(name, None)
        if name not in self._released and name in self._bound():
            if self.change and name in self.change.newcomers and self._take_back(name, now):
                return
            self._lose(name)
        self._leaving.discard(name)
        if self.phase is Phase.DONE and not self._expected:
            self._send("driver", "released")
        self._proceed(now)

    def idle(self) -> None:
        """A supervisor has nothing left to do. Without any engine the attempt is over for now."""
        if not self._expected and not self.current.members and self.phase in (Phase.WAITING, Phase.STARTING):
            self._suspend(None)

    def disconnect(self, name: str) -> None:
        """The line to engine ``name`` has ended; its supervisor will say what became of it."""
        self._connected.discard(name)

    def raised(self, name: str, message: str, traceback: str) -> None:
        """User code raised in engine ``name``. The driver shows it once it is in train().

        Of a newcomer to a running training it is that engine's own trouble (a GPU in use, a stale copy of the
        data): it goes, and the training goes on without it.
        """
        if self.phase is Phase.RUNNING and name not in self._bound():
            self._ready.pop(name, None)
            self._send("driver", "note", text=f"engine {name} did not join: {message}")
            self._dismiss(name)
        elif self._failure is None and self.phase not in (Phase.DONE, Phase.SUSPENDED):
            self._failure = {"engine": name, "message": message, "traceback": traceback}
            self._tell_failure()

    # ── events from the driver ────────────────────────────────────────────────────────────────────────────────
    def begin(self, definition: Mapping[str, Any], now: float) -> None:
        """The driver has reached train(). ``definition``: schedule, seed, reduction, facts, tick."""
        self.definition = definition
        schedule = definition["schedule"]
        self._report(
            "engines-known",
            engines=schedule["logical_workers"],
            steps_total=definition["steps_total"],
            epochs=schedule["epochs"],
        )
        self._tell_failure()
        for name in self._connected:
            self._send(name, "definition", **definition)
        for name in list(self._ready):
            self._check_facts(name)
        self._proceed(now)

    def driver_received(self) -> None:
        """The driver has the trained weights: engines may go."""
        self.phase = Phase.DONE
        for name in self._expected:
            if name in self._connected:
                self._release(name)
            else:
                self._dismiss(name)
        if not self._expected:
            self._send("driver", "released")

    # ── events from engines ───────────────────────────────────────────────────────────────────────────────────
    def connect(self, name: str) -> None:
        self._connected.add(name)
        self._expected.add(name)
        if self.definition is not None:
            self._send(name, "definition", **self.definition)
        if name in self._leaving or self.phase in (Phase.ENDING, Phase.DONE, Phase.SUSPENDED):
            self._release(name)

    def ready(self, name: str, facts: Mapping[str, Any], now: float) -> None:
        """Engine ``name`` asks to be let in. ``facts``: lengths of its data sets and a probe of a sample."""
        if name in self._released:
            return
        self._ready[name] = facts
        if self.definition is not None:
            self._check_facts(name)
        self._proceed(now)

    def built(self, name: str, number: int, now: float) -> None:
        change = self.change
        if change is None or change.new.number != number or change.step is not Step.BUILDING:
            return
        change.built.add(name)
        if change.built >= set(change.everybody):
            change.step = Step.COMMITTED
            for engine in change.everybody:
                self._send(engine, "commit", generation=number)
        self._proceed(now)

    def build_failed(self, name: str, number: int, now: float) -> None:
        if self.change and self.change.new.number == number and self.change.step is Step.BUILDING:
            self._cancel(now)

    def switching(self, name: str, number: int, tick: int, now: float) -> None:
        """Member ``name`` has left the old group: it works by generation ``number`` from ``tick`` on."""
        change = self.change
        if change is None or change.new.number != number:
            return
        if change.tick is None:
            change.tick = tick
            for newcomer in change.newcomers:
                self._send(newcomer, "switched", generation=number, tick=tick)
        change.switched.add(name)
        self._settle(now)

    def received(self, name: str, step: int, now: float) -> None:
        """Newcomer ``name`` has the weights."""
        self._report("engine-joined", allocation=int(name), generation=self._generation_of(name), step=step)
        if self.phase is Phase.STARTING and name in self.current.members:
            self.phase = Phase.RUNNING
        elif self.change:
            self.change.received.add(name)
            self._settle(now)
        self._proceed(now)

    def retracted(self, name: str, number: int, promised: bool, now: float) -> None:
        """Answer of a member to ``retract``: it never announced generation ``number``, and never will."""
        change = self.change
        if change is None or change.new.number != number or change.step is not Step.RETRACTING:
            return
        change.retracting.discard(name)
        if promised:
            self._cancel(now)
        elif not change.retracting:
            change.step = Step.COMMITTED  # all have announced: the switch is certain, and the weights with it
            for engine in change.complaining:
                if engine in self._expected:
                    self._send(engine, "pull-answer", cancelled=False)
                else:
                    self._lose(engine)

    def pull_failed(self, name: str, now: float) -> None:
        """Newcomer ``name`` has waited long enough for the weights and wants to be let out of its change."""
        if self.change and name in self.change.newcomers and self.change.tick is None:
            self._take_back(name, now)
        elif self.change and name in self.change.newcomers:
            self._send(name, "pull-answer", cancelled=False)
        else:
            self._ready.pop(name, None)
            self._send(name, "pull-answer", cancelled=True)

    def finished(self, name: str, number: int, body: Mapping[str, Any], now: float) -> None:
        """Engine ``name`` has committed the last tick, as a member of generation ``number``."""
        if self.change and self.change.new.number == number:
            self.change.switched.update(self.change.old.members)
            self.change.received.update(self.change.newcomers)
            self._settle(now)
        elif self.change:
            self._drop_change()
        if self.phase is Phase.RUNNING:
            self.phase = Phase.ENDING
            for other in self._expected - set(self.current.members):
                self._dismiss(other)
        self._finished[name] = body
        if set(self._finished) >= set(self.current.members) and self.phase is Phase.ENDING:
            first = self.current.members[0]
            self._send(
                "leader",
                "trained",
                digest=self._finished[first]["digest"],
                step=self._finished[first]["step"],
            )
            self._send(first, "handover", key="result", rank=0, size=2)
            self._send("driver", "handover", key="result", rank=1, size=2, **self._finished[first])

    # ── time and effects ──────────────────────────────────────────────────────────────────────────────────────
    def tick(self, now: float) -> None:
        """Call now and then: deadlines."""
        if self.change and self.change.step is Step.BUILDING and now > self.change.deadline:
            self._cancel(now)
        self._proceed(now)

    def take(self) -> list[Send]:
        """Effects since the last call, in order."""
        sends, self._sends = self._sends, []
        return sends

    # ── decisions ─────────────────────────────────────────────────────────────────────────────────────────────
    def _proceed(self, now: float) -> None:
        if self.definition is None or self.change is not None or self._failure is not None:
            return
        if self.phase is Phase.WAITING:
            self._start()
        elif self.phase is Phase.RUNNING and now >= self._not_before:
            target = self._target()
            if target is not None:
                self._waiting_since = None
            elif self._waiting_since is None:
                self._waiting_since = now
            elif now - self._waiting_since > SUCCESSOR_SECONDS:
                target = ()
            if target is not None and target != self.current.members:
                self._propose(target, now)

    def _start(self) -> None:
        first = next(iter(self._ready), None)
        if first is None:
            return
        self.phase = Phase.STARTING
        self._ready.pop(first)
        self._number += 1
        self.current = Generation(self._number, (first,))
        self._send("driver", "handover", key="start", rank=0, size=2)
        self._send(first, "handover", key="start", rank=1, size=2, generation=self._number)

    def _target(self) -> tuple[str, ...] | None:
        """The membership to aim at; None: wait, since somebody is on the way who can carry on."""
        assert self.definition is not None
        cap = int(self.definition["schedule"]["logical_workers"])
        staying = tuple(name for name in self.current.members if name not in self._leaving)
        waiting = tuple(name for name in self._ready if name not in self._leaving)
        if not staying:
            if waiting:  # somebody must hand the weights over: first they come, then the others go
                return self.current.members + waiting[:cap]
            coming = self._expected - set(self.current.members) - self._leaving - self._released
            return None if coming else ()
        return staying + waiting[: max(0, cap - len(staying))]

    def _propose(self, members: tuple[str, ...], now: float) -> None:
        self._number += 1
        change = Change(Generation(self._number, members), self.current, now + BUILD_SECONDS)
        self.change = change
        for newcomer in change.newcomers:
            self._ready.pop(newcomer, None)
        for engine in change.everybody:
            self._send(
                engine,
                "prepare",
                generation=self._number,
                members=list(members),
                stayers=list(change.stayers),
                newcomers=list(change.newcomers),
            )

    def _settle(self, now: float) -> None:
        change = self.change
        if change is None or not change.switched >= set(change.old.members):
            return
        for leaver in change.leavers:
            if leaver not in self._released:
                self._release(leaver)
        if not change.received >= set(change.newcomers):
            return
        self.current, self.change = change.new, None
        for engine in change.new.members:
            self._send(engine, "settled", generation=change.new.number)
        if not change.new.members:
            self._suspend(change.tick)
        self._proceed(now)

    def _take_back(self, name: str, now: float) -> bool:
        """Try to undo the change that newcomer ``name`` is part of; False: too late, all have switched."""
        change = self.change
        assert change is not None
        change.complaining.add(name)
        if change.step is Step.BUILDING:
            self._cancel(now)
            return True
        if change.tick is not None:
            return False
        if change.step is Step.COMMITTED:
            change.step = Step.RETRACTING
            change.retracting = set(change.old.members)
            for member in change.old.members:
                self._send(member, "retract", generation=change.new.number)
        return True

    def _cancel(self, now: float) -> None:
        change = self.change
        assert change is not None
        self._drop_change()
        if not change.complaining:  # it was not built in time: let things calm down
            self._not_before = now + RETRY_SECONDS
        for newcomer in change.newcomers:
            if newcomer in self._leaving:
                self._dismiss(newcomer)
            elif newcomer in change.complaining:
                self._send(newcomer, "pull-answer", cancelled=True)
            elif newcomer in self._connected:
                self._ready[newcomer] = {}

    def _drop_change(self) -> None:
        change, self.change = self.change, None
        if change:
            for engine in change.everybody:
                self._send(engine, "cancel", generation=change.new.number)

    def _check_facts(self, name: str) -> None:
        assert self.definition is not None
        expected, got = self.definition["facts"], self._ready.get(name) or self.definition["facts"]
        for fact, value in expected.items():
            if got.get(fact) != value:
                self.raised(
                    name,
                    f"DatasetMismatch: {fact}: {value} in the driver, {got.get(fact)} in an engine. "
                    "datasets_function() must give every process the same data; it runs under the job's seed.",
                    "",
                )
                return

    def _lose(self, name: str) -> None:
        if self.phase not in (Phase.DONE, Phase.SUSPENDED, Phase.FAILED):
            self.phase = Phase.FAILED
            self._send("supervisors", "lost", engine=name)

    def _suspend(self, tick: int | None) -> None:
        self.phase = Phase.SUSPENDED
        self._send("driver", "suspended", tick=tick)
        self._send("supervisors", "suspended", tick=tick)

    def _tell_failure(self) -> None:
        if self._failure is not None and self.definition is not None and self.phase is not Phase.FAILED:
            self.phase = Phase.FAILED
            self._send("driver", "failed", **self._failure)
            self._send("leader", "failed", **self._failure)

    def _bound(self) -> set[str]:
        """Engines that others count on."""
        return set(self.current.members) | (set(self.change.everybody) if self.change else set())

    def _generation_of(self, name: str) -> int:
        return self.change.new.number if self.change and name in self.change.newcomers else self.current.number

    def _dismiss(self, name: str) -> None:
        """An engine that nobody counts on goes at once, whatever its script is doing."""
        self._release(name)
        self._send("supervisors", "discard", engine=name)

    def _release(self, name: str) -> None:
        self._released.add(name)
        if name in self._connected:
            self._send(name, "exit")

    def _report(self, kind: str, **body: Any) -> None:
        self._send("leader", "report", report=kind, body=body)

    def _send(self, to: str, kind: str, **fields: Any) -> None:
        self._sends.append(Send(to, {**fields, "kind": kind}))
