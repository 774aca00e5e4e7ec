"""A training without a process: the coordinator's mind, and engines that do what ``engine.loop`` and ``link`` do.

Every line between two of them is a queue that is read when chance says so, every engine takes its next move when chance
says so, and a group works only while all of its members do. What is computed is only counted: a reduction fails at
once unless each micro-batch of its step is in it exactly once.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from edt_runner.engine import shares
from edt_runner.generations import Phase
from edt_runner.membership import Membership
from support.talk import DEFINITION, FACTS, SHAPE

Message = dict[str, Any]
_MOST_MOVES = 50_000
"""So many moves are enough for every one of these trainings to come to its end."""
_IDLE_SECONDS = 0.5
"""How far the clock is put forward where nobody has anything to do."""
_MOST_IDLE_SECONDS = 120.0
"""Longer than anybody waits for anybody."""


@dataclass
class Pending:
    """A generation that was published."""

    members: tuple[str, ...]
    stayers: tuple[str, ...]
    newcomers: tuple[str, ...]
    told: bool = False
    """This engine has built its group, and said so."""


class Broken(Exception):
    """The data plane broke off, as PeerLost says it."""


@dataclass
class Engine:
    """One engine: what the coordinator has told it, where it stands, what it has computed of the coming step."""

    name: str
    stage: str = "joining"
    """joining, receiving, training, waiting, regrouping, catching up, gone."""
    up: deque[Message] = field(default_factory=deque)
    down: deque[Message] = field(default_factory=deque)
    inbox: deque[Message] = field(default_factory=deque)
    """What is for the main thread."""
    # the line
    pending: dict[int, Pending] = field(default_factory=dict)
    current: int = 0
    seen: int = 0
    announced: int = 0
    woken: int = 0
    answered: int = 0
    asked: int = 0
    # the training
    generation: int = 0
    members: tuple[str, ...] = ()
    step: int = 0
    holds: bool = False
    sums: set[int] = field(default_factory=set)
    runs: dict[str, tuple[int, ...]] | None = None
    """Who works on what at the coming step; None: shared alike."""
    sending: tuple[str, ...] = ()
    """Newcomers that must have the weights before this engine applies anything."""
    contributed: bool = False
    switch_to: int = 0
    word: Message = field(default_factory=dict)
    """The one that it acts upon."""
    doing: str = "joining"
    """As it tells a coordinator that is new."""
    ending: Message = field(default_factory=dict)
    cut: bool = False
    """Its connections to the others break, and nobody has died."""

    @property
    def alive(self) -> bool:
        return self.stage != "gone"

    @property
    def called(self) -> bool:
        return self.woken > self.answered

    def tell(self, kind: str, **fields: Any) -> None:
        self.up.append({"kind": kind, **fields})

    def ask(self) -> None:
        self.stage, self.generation, self.members = "joining", 0, ()
        self.answered = max(self.answered, self.woken)
        self.asked = self.woken
        self.sums, self.contributed, self.sending = set(), False, ()
        self.doing = "joining"
        self.tell("ready", facts=FACTS, addresses=[f"here:{9000 + int(self.name)}"], round=self.woken)

    def withdraw(self, number: int, promised: bool = False) -> None:
        if number > self.current:
            self.pending.pop(number, None)
            self.seen = self.current
            if promised:
                self.announced = self.current

    def sit(self, number: int, members: tuple[str, ...]) -> None:
        self.current, self.seen = number, max(self.seen, number)
        self.pending = {key: value for key, value in self.pending.items() if key > number}
        self.generation, self.members, self.stage, self.doing = number, members, "training", "training"
        self.runs, self.sending, self.contributed, self.switch_to = None, (), False, 0

    def introduce(self) -> None:
        """Take up the line to a coordinator that is new: what was on the way to or from the other is lost, and what it
        had published, unless this engine has promised it."""
        self.up.clear()
        self.down.clear()
        for number in [number for number in self.pending if number > self.announced]:
            self.withdraw(number)
        known = {"announced": self.announced, "settled": 0, "round": self.woken}
        generation = {"generation": self.generation, "members": list(self.members), "step": self.step}
        self.tell("standing", **generation, doing=self.doing, **known, **self.ending)
        if self.doing == "joining":
            self.tell("ready", facts=FACTS, addresses=[f"here:{9000 + int(self.name)}"], round=self.asked)

    def hear(self, message: Message) -> None:
        """What its line's own thread does at once."""
        number = int(message.get("generation", 0))
        match message["kind"]:
            case "prepare":
                parts = (tuple(message[part]) for part in ("members", "stayers", "newcomers"))
                self.pending[number] = Pending(*parts)
                if self.name not in self.pending[number].members:
                    self.pending[number].told = True
                    self.tell("built", generation=number)
            case "commit":
                if number in self.pending:
                    self.seen = number
            case "retract":
                promised = self.announced < number
                if promised:
                    self.withdraw(number)
                self.tell("retracted", generation=number, promised=promised)
            case "cancel":
                self.withdraw(number)
            case "wake" | "rejoin":
                if message["round"] <= self.woken and message["kind"] == "wake":
                    return
                self.woken = max(self.woken, message["round"])
                for number in list(self.pending):
                    self.withdraw(number, promised=True)
                self.inbox.append(message)
            case "settled" | "definition":
                pass
            case _:
                self.inbox.append(message)


class Simulation:
    """One training of ``steps`` steps, each of ``workers`` micro-batches. ``seed`` decides everything."""

    def __init__(self, seed: int, workers: int = 4, steps: int = 40) -> None:
        self.chance = random.Random(seed)
        self.workers, self.steps = workers, steps
        self.mind = Membership()
        self.now = 0.0
        self.engines: dict[str, Engine] = {}
        self.wanted: set[str] = set()
        self.supervisor: deque[tuple[str, Any]] = deque()
        """What supervisors have to say, in order."""
        self.driver: Message | None = None
        """The meeting that the driver was sent to."""
        self.buried: set[str] = set()
        self.killed: set[str] = set()
        self.over = ""
        """How the attempt ended: finished, left, lost."""
        self.applied = Counter[int]()
        """How many engines have applied each step."""
        self._sent: dict[tuple[int, int], dict[str, tuple[tuple[int, ...], int]]] = {}
        """(generation, step) to what each member has sent: its micro-batches, and the generation that it announces."""
        self._newest = 0
        self.definition = {**DEFINITION, "schedule": {**SHAPE, "logical_workers": workers}, "steps_total": steps}
        self.mind.begin(self.definition, self.now)

    # ── what befalls it ───────────────────────────────────────────────────────────────────────────────────────
    def wish(self, stay: Iterable[str], new: int) -> None:
        """These shall stay, so many shall come, all others leave."""
        stay = set(stay)
        leave = sorted(self.wanted - stay)
        self.wanted &= stay
        for _ in range(new):
            self._newest += 1
            name = str(self._newest)
            self.wanted.add(name)
            self.supervisor.append(("expect", name))
            engine = self.engines[name] = Engine(name)
            engine.tell("standing", generation=0, members=[], doing="joining", announced=0, settled=0, round=0)
            engine.ask()
        if leave:
            self.supervisor.append(("leave", leave))

    def restart(self) -> None:
        """The coordinator dies, and another takes its place; driver and supervisors take up the line again, too."""
        self.mind = Membership(recovering=True, now=self.now)
        self.driver = None
        self.buried = {name for name, engine in self.engines.items() if not engine.alive}
        living = [name for name, engine in self.engines.items() if engine.alive]
        self.supervisor.clear()
        self.supervisor.extend(("expect", name) for name in living)
        if leave := [name for name in living if name not in self.wanted]:
            self.supervisor.append(("leave", leave))
        for name in living:
            self.engines[name].introduce()
        self._then(lambda: self.mind.begin(self.definition, self.now))

    def disturb(self) -> None:
        """A connection breaks without a death, or a newcomer is tired of waiting."""
        living = sorted(self.living())
        if not living:
            return
        engine = self.engines[self.chance.choice(living)]
        if engine.stage == "training" and len(engine.members) > 1:
            engine.cut = True
        elif engine.stage == "joining" and self.mind.phase is Phase.RUNNING:
            engine.tell("pull-failed")

    def kill(self, name: str) -> None:
        self.killed.add(name)
        self.wanted.discard(name)
        self._die(name)

    def living(self) -> set[str]:
        return {name for name, engine in self.engines.items() if engine.alive}

    def calm(self) -> bool:
        """All who shall train do, nobody else is there, and nothing is under way."""
        if self.over:
            return True
        fit = set(self.wanted)
        members = set(self.mind.current.members)
        full = len(members) == min(len(fit), self.workers) and members <= fit
        return (
            full
            and not self.supervisor
            and self.living() == fit
            and self.mind.change is None
            and not self.mind.re_forming
        )

    # ── how it goes on ────────────────────────────────────────────────────────────────────────────────────────
    def run(self, until: Callable[[], bool], moves: int = _MOST_MOVES) -> None:
        """Move at random. Raises AssertionError where somebody waits for ever."""
        idle = 0.0
        for _ in range(moves):
            if until():
                return
            possible = self._possible()
            if possible and (self.chance.random() < 0.995 or idle > _MOST_IDLE_SECONDS):
                self.chance.choice(possible)()
                idle = 0.0
            else:
                assert possible or idle < _MOST_IDLE_SECONDS, f"nobody moves any more: {self}"
                idle += 0.0 if possible else _IDLE_SECONDS
                self.now += _IDLE_SECONDS
                self._then(lambda: self.mind.tick(self.now))
        raise AssertionError(f"it does not come to an end: {self}")

    def some(self, moves: int) -> None:
        """So many moves, or fewer where there is nothing to do but to wait."""
        for _ in range(moves):
            possible = self._possible()
            if not possible:
                self.now += _IDLE_SECONDS
                self._then(lambda: self.mind.tick(self.now))
            else:
                self.chance.choice(possible)()

    def __str__(self) -> str:
        engines = ", ".join(
            f"{e.name} {e.stage} at {e.step} in {e.generation}{' called' if e.called else ''}"
            for e in self.engines.values()
            if e.alive
        )
        mind = self.mind
        return f"{mind.phase} {mind.current} {mind.change} round {mind.round} re-forming {mind.re_forming}; {engines}"

    def _possible(self) -> list[Callable[[], None]]:
        """All moves that somebody can make now."""
        moves: list[Callable[[], None]] = []
        if self.supervisor:
            moves.append(self._hear_supervisor)
        for engine in self.engines.values():
            if engine.up:
                moves.append(lambda engine=engine: self._hear(engine))  # type: ignore[misc]
            if not engine.alive:
                continue
            if engine.down:
                moves.append(lambda engine=engine: engine.hear(engine.down.popleft()))  # type: ignore[misc]
            moves += [
                lambda engine=engine, number=number: self._build(engine, number)  # type: ignore[misc]
                for number in engine.pending
                if self._can_build(engine, number)
            ]
            if self._can_move(engine):
                moves.append(lambda engine=engine: self._move(engine))  # type: ignore[misc]
        return moves

    # ── the coordinator ───────────────────────────────────────────────────────────────────────────────────────
    def _then(self, event: Callable[[], None]) -> None:
        """An event, and what the coordinator sends because of it."""
        event()
        for send in self.mind.take():
            message = dict(send.message)
            if send.to in self.engines:
                if send.to not in self.buried:
                    self.engines[send.to].down.append(message)
            elif send.to == "driver":
                self._driver_hears(message)
            elif send.to == "supervisors":
                self._supervisors_hear(message)

    def _driver_hears(self, message: Message) -> None:
        if message["kind"] == "handover":
            self.driver = message
        elif message["kind"] == "failed":
            raise AssertionError(f"taken for the script's failure: {message}")
        elif message["kind"] == "released":
            self.over = "finished"

    def _supervisors_hear(self, message: Message) -> None:
        match message["kind"]:
            case "discard":
                self._die(message["engine"])
            case "suspended":
                self.over = "left"
            case "lost":
                known = [each for each in self.engines.values() if each.alive and not each.up]
                able = [each.name for each in known if each.members and each.doing != "aside"]
                assert not able, f"{able} have the weights and are given up: {self}"
                self.over = "lost"

    def _hear_supervisor(self) -> None:
        kind, what = self.supervisor.popleft()
        if kind == "gone":
            self.buried.add(what)
            self.engines[what].down.clear()
            self._then(lambda: self.mind.gone(what, self.now))
        elif kind == "expect":
            self._then(lambda: self.mind.expect(what))
        else:
            self._then(lambda: self.mind.leave(what, self.now))

    def _hear(self, engine: Engine) -> None:
        message, name, mind, now = engine.up.popleft(), engine.name, self.mind, self.now
        if name in self.buried:
            return
        number = int(message.get("generation", 0))
        match message["kind"]:
            case "standing":
                self._then(lambda: mind.connect(name, message, now))
            case "ready":
                self._then(lambda: mind.ready(name, message["facts"], message["addresses"], now, message["round"]))
            case "built":
                self._then(lambda: mind.built(name, number, now))
            case "switching":
                self._then(lambda: mind.switching(name, number, message["tick"], now))
            case "received":
                self._then(lambda: mind.received(name, number, message["step"], now))
            case "retracted":
                self._then(lambda: mind.retracted(name, number, message["promised"], now))
            case "pull-failed":
                self._then(lambda: mind.pull_failed(name, now))
            case "finished":
                self._then(lambda: mind.finished(name, number, message["body"], now))
            case "trouble":
                self._then(lambda: mind.trouble(name, number, message["round"], [], now))
            case "standing-at":
                self._then(lambda: mind.stands(name, message["round"], message, now))
            case "reformed":
                self._then(lambda: mind.reformed(name, message["round"], now))

    def _die(self, name: str) -> None:
        engine = self.engines[name]
        if engine.alive:
            engine.stage = "gone"
            self.supervisor.append(("gone", name))

    # ── groups ────────────────────────────────────────────────────────────────────────────────────────────────
    def _can_build(self, engine: Engine, number: int) -> bool:
        """A group is built when all who belong to it do."""
        pending = engine.pending[number]
        return not pending.told and all(
            self.engines[other].alive
            and (number in self.engines[other].pending or self.engines[other].current == number)
            for other in pending.members
        )

    def _build(self, engine: Engine, number: int) -> None:
        engine.pending[number].told = True
        engine.tell("built", generation=number)

    def _sent_of(self, engine: Engine) -> dict[str, tuple[tuple[int, ...], int]]:
        return self._sent.setdefault((engine.generation, engine.step), {})

    # ── an engine's main thread ───────────────────────────────────────────────────────────────────────────────
    def _can_move(self, engine: Engine) -> bool:
        if (engine.called or engine.cut) and engine.stage not in ("joining", "waiting"):
            return True
        match engine.stage:
            case "joining" | "waiting":
                return bool(engine.inbox)
            case "receiving":
                return self._weights_come(engine)
            case "regrouping":
                return all(self._has_reached(other, engine.word) for other in engine.word["members"])
            case "catching up":
                return self._has_caught_up(engine)
        if not engine.contributed:
            unfed = [name for name in engine.sending if self.engines[name].current < engine.generation]
            return not self._is_computed(engine) or not unfed
        sent = self._sent_of(engine)
        return len(sent) == len(engine.members) or any(not self.engines[name].alive for name in engine.members)

    def _move(self, engine: Engine) -> None:
        try:
            match engine.stage:
                case "joining":
                    self._join(engine, engine.inbox.popleft())
                case "waiting":
                    self._obey(engine, engine.inbox.popleft())
                case "receiving":
                    self._receive(engine)
                case "regrouping":
                    self._check(engine)
                    engine.stage = "catching up"
                case "catching up":
                    self._catch_up(engine)
                case "training":
                    self._train(engine)
        except Broken:
            if not engine.members:
                engine.ask()
                return
            engine.doing = "reforming"
            if not engine.called:
                engine.tell("trouble", generation=engine.generation, round=engine.woken)
            engine.stage = "waiting"

    def _check(self, engine: Engine) -> None:
        if engine.called or engine.cut:
            engine.cut = False
            raise Broken

    def _join(self, engine: Engine, message: Message) -> None:
        engine.word = message
        match message["kind"]:
            case "handover":
                self._check(engine)
                self.driver = None
                engine.step = 0
                engine.sit(message["generation"], (engine.name,))
                engine.tell("received", generation=message["generation"], step=0)
            case "switched":
                if message["generation"] not in engine.pending:
                    raise Broken
                engine.stage = "receiving"
            case "pull-answer" if message["cancelled"]:
                engine.ask()
            case "rejoin" if message["round"] > engine.asked:
                engine.ask()
            case "exit":
                self._die(engine.name)

    def _weights_come(self, engine: Engine) -> bool:
        number = engine.word["generation"]
        if number not in engine.pending:
            return True
        donors = [self.engines[name] for name in engine.pending[number].stayers]
        return all(donor.alive and donor.generation == number for donor in donors)

    def _receive(self, engine: Engine) -> None:
        self._check(engine)
        number = engine.word["generation"]
        if number not in engine.pending:
            raise Broken
        pending = engine.pending[number]
        donors = [self.engines[name] for name in pending.stayers]
        assert len({donor.step for donor in donors}) == 1, f"donors of {engine.name} are at different steps: {self}"
        engine.step, engine.holds, engine.sums = donors[0].step, False, set()
        engine.sit(number, pending.members)
        engine.tell("received", generation=number, step=engine.step)
        engine.runs = self._runs_of(pending.members, pending.stayers)

    def _runs_of(self, members: tuple[str, ...], working: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
        parts = dict(zip(working, shares.logical_map(self.workers, len(working)), strict=True))
        return {name: tuple(parts.get(name, ())) for name in members}

    def _own(self, engine: Engine) -> tuple[int, ...]:
        return (engine.runs or self._runs_of(engine.members, engine.members))[engine.name]

    def _is_computed(self, engine: Engine) -> bool:
        return engine.step < self.steps and not engine.switch_to and engine.sums >= set(self._own(engine))

    def _train(self, engine: Engine) -> None:
        """One move: a switch, a micro-batch, what is sent, or what comes of it."""
        if engine.contributed:
            self._reduce(engine)
        elif engine.step >= self.steps:
            body = {"digest": "the bits", "step": engine.step} if engine.members[0] == engine.name else {}
            engine.tell("finished", generation=engine.generation, body=body)
            engine.stage, engine.doing, engine.ending = "waiting", "ended", {"body": body}
        elif engine.switch_to > engine.generation:
            self._switch(engine, engine.switch_to)
        else:
            engine.switch_to = 0
            self._check(engine)
            left = set(self._own(engine)) - engine.sums
            if left:
                engine.sums.add(min(left))
            else:
                engine.sending = ()
                engine.announced = max(engine.announced, engine.seen)
                self._sent_of(engine)[engine.name] = self._own(engine), engine.seen
                engine.contributed = True

    def _switch(self, engine: Engine, number: int) -> None:
        if number not in engine.pending:
            raise Broken
        pending = engine.pending[number]
        engine.tell("switching", generation=number, tick=engine.step)
        if engine.name not in pending.members:
            engine.stage, engine.switch_to, engine.doing = "waiting", 0, "aside"
            engine.ending = {"next": number}
            return
        engine.sit(number, pending.members)
        engine.sending = pending.newcomers
        engine.runs = self._runs_of(pending.members, pending.stayers)

    def _reduce(self, engine: Engine) -> None:
        sent = self._sent_of(engine)
        complete = len(sent) == len(engine.members)
        if not complete or ((engine.called or engine.cut) and self.chance.random() < 0.5):
            engine.cut = False
            raise Broken
        found = Counter(worker for run, _ in sent.values() for worker in run)
        assert found == Counter(range(self.workers)), f"step {engine.step} was made of {dict(found)}: {self}"
        announced = {number for _, number in sent.values()}
        self._commit(engine)
        engine.runs, engine.contributed = None, False
        engine.switch_to = announced.pop() if len(announced) == 1 else 0

    def _commit(self, engine: Engine) -> None:
        self.applied[engine.step] += 1
        engine.step += 1
        engine.holds, engine.sums = True, set()

    # ── after a loss ──────────────────────────────────────────────────────────────────────────────────────────
    def _obey(self, engine: Engine, message: Message) -> None:
        match message["kind"]:
            case "wake":
                engine.answered = max(engine.answered, message["round"])
                engine.contributed, engine.switch_to, engine.doing, engine.ending = False, 0, "reforming", {}
                engine.tell(
                    "standing-at",
                    round=message["round"],
                    tick=engine.step,
                    holds=engine.holds,
                    ended=engine.step >= self.steps,
                    workers=self.workers,
                    spans=[[worker, worker + 1] for worker in sorted(engine.sums)],
                    addresses=["here:9000"],
                    door="here:1",
                )
            case "reform" if message["round"] == engine.woken:
                engine.word, engine.stage = message, "regrouping"
            case "rejoin":
                engine.ask()
            case "handover":
                if self.driver is not None and self.driver["key"] == message["key"]:
                    self.driver = None
                    self._then(self.mind.driver_received)
            case "exit":
                self._die(engine.name)

    def _has_reached(self, name: str, word: Message) -> bool:
        """Whether engine ``name`` is there to build the group of this round, or has built it."""
        other = self.engines[name]
        there = other.stage in ("regrouping", "catching up") and other.word["round"] == word["round"]
        return other.alive and (there or other.generation == word["generation"])

    def _has_caught_up(self, engine: Engine) -> bool:
        word, name = engine.word, engine.name
        if name in word["behind"]:
            donors = [self.engines[donor] for donor in word["donors"]]
            return all(donor.alive and donor.stage == "catching up" and donor.word is not None for donor in donors)
        return name not in word["donors"] or all(
            self.engines[other].alive and self.engines[other].step >= word["tick"] for other in word["behind"]
        )

    def _catch_up(self, engine: Engine) -> None:
        word, name = engine.word, engine.name
        self._check(engine)
        if name in word["behind"]:
            if word["by"] == "vector":
                assert engine.step + 1 == word["tick"], f"{name} is more than a step behind: {self}"
                self._commit(engine)
            else:
                engine.step, engine.holds, engine.sums = word["tick"], False, set()
        assert engine.step == word["tick"]
        engine.sit(word["generation"], tuple(word["members"]))
        engine.runs = {member: tuple(run) for member, run in zip(word["members"], word["runs"], strict=True)}
        engine.sums &= set(self._own(engine))
        engine.tell("reformed", round=word["round"])
