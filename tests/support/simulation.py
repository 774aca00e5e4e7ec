"""A training without a process: the coordinator, and engines that do what ``engine`` and ``link`` do.

Every connection between two of them is a queue that is read when chance says so, every engine takes its next move when
chance says so, and a group works only while all of its members do. What is computed is only counted: a reduction fails
at once unless each micro-batch of its step is in it exactly once.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from edt_runner.coordinator.coordinator import Coordinator
from edt_runner.coordinator.members import DRIVER, SUPERVISORS, Phase
from edt_runner.protocol.data import CatchUp, EngineResult, EngineState, EngineStatus, RegroupStatus, ReplicaHistory
from edt_runner.protocol.differences import HeldMemberships, sends_members
from edt_runner.protocol.engine_messages import (
    ApplyRegroupPlan,
    CancelGeneration,
    CommitGeneration,
    EngineConnected,
    ExitEngine,
    GenerationSettled,
    GroupBuilt,
    GroupLost,
    JoinAgain,
    JoinCancelled,
    PrepareGeneration,
    PullFailed,
    ReceiveStateFromDriver,
    ReceiveStateFromMembers,
    Regrouped,
    RetractAnswer,
    RetractGeneration,
    SendStateToDriver,
    StartRegroup,
    StateReceived,
    SurvivorStatus,
    Switching,
    TrainingDefined,
    TrainingFinished,
)
from edt_runner.protocol.messages import (
    BeginTraining,
    DiscardEngine,
    DriverReleased,
    EngineExpected,
    EngineGone,
    EngineStuck,
    LeaveEngines,
    Message,
    ReceiveStateFromEngine,
    ScriptFailed,
    SendStateToEngine,
    StateLost,
    TrainedStateReceived,
    TrainingSuspended,
)
from edt_runner.splits import even_split
from support.talk import DEFINITION, SHAPE, join_request

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
    surviving: tuple[str, ...]
    joining: tuple[str, ...]
    built: bool = False
    """This engine has built its group, and said so."""


def _number_of(message: Message) -> int:
    """The generation of which an engine first hears by this message; 0: the message is no such one."""
    match message:
        case PrepareGeneration() | ApplyRegroupPlan() | ReceiveStateFromDriver():
            return message.generation
    return 0


class Broken(Exception):
    """A group broke, as PeerLost says it."""


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
    word: Any = None
    """The message that it acts upon."""
    state: EngineState = EngineState.JOINING
    """As it tells a coordinator that is new."""
    ending: dict[str, Any] = field(default_factory=dict)
    """More of what it tells."""
    cut: bool = False
    """Its connections to the others break, and nobody has died."""
    known: int = 0
    """The highest generation that a coordinator has told it."""
    held: HeldMemberships = field(init=False)

    def __post_init__(self) -> None:
        self.held = HeldMemberships(self.name)

    @property
    def alive(self) -> bool:
        return self.stage != "gone"

    @property
    def called(self) -> bool:
        return self.woken > self.answered

    @property
    def sent_back(self) -> bool:
        """It was told to ask to join again, and has not come to it."""
        return any(isinstance(message, JoinAgain) for message in (*self.down, *self.inbox))

    def send(self, message: Message) -> None:
        self.up.append(message)

    def ask(self) -> None:
        self.stage, self.generation, self.members = "joining", 0, ()
        self.answered = max(self.answered, self.woken)
        self.asked = self.woken
        self.sums, self.contributed, self.sending = set(), False, ()
        self.state = EngineState.JOINING
        self.send(join_request(self.woken))

    def withdraw(self, number: int, promised: bool = False) -> None:
        if number > self.current:
            self.pending.pop(number, None)
            self.seen = self.current
            if promised:
                self.announced = self.current

    def sit(self, number: int, members: tuple[str, ...]) -> None:
        self.current, self.seen = number, max(self.seen, number)
        self.pending = {key: value for key, value in self.pending.items() if key > number}
        self.generation, self.members, self.stage, self.state = number, members, "training", EngineState.TRAINING
        self.runs, self.sending, self.contributed, self.switch_to = None, (), False, 0

    def introduce(self) -> None:
        """Take up the line to a coordinator that is new: what was on the way to or from the other is lost, and what it
        had published, unless this engine has promised it."""
        self.up.clear()
        self.down.clear()
        for number in [number for number in self.pending if number > self.announced]:
            self.withdraw(number)
        state = EngineState.REGROUPING if self.called and self.generation else self.state
        told = bool(self.members) and sends_members(self.members.index(self.name))
        status = EngineStatus(
            state,
            self.generation,
            self.members if told else (),
            announced=self.announced,
            known=self.known,
            regroup=self.woken,
            step=self.step,
            **self.ending,
        )
        self.send(EngineConnected(status, holds=self.held.holds(self.generation)))
        if self.state is EngineState.JOINING:
            self.send(join_request(self.asked))

    def receive(self, message: Message) -> None:
        """What its connection's own thread does at once."""
        message = self.held.read(message)
        self.known = max(self.known, _number_of(message))
        match message:
            case PrepareGeneration(number, members, joining):
                self.pending[number] = Pending(members, message.surviving, joining)
                if self.name not in members:
                    self.pending[number].built = True
                    self.send(GroupBuilt(number))
            case CommitGeneration(number):
                if number in self.pending:
                    self.seen = number
            case RetractGeneration(number):
                promised = self.announced < number
                if promised:
                    self.withdraw(number)
                self.send(RetractAnswer(number, promised))
            case CancelGeneration(number):
                self.withdraw(number)
            case StartRegroup(regroup) | JoinAgain(regroup):
                if regroup <= self.woken and isinstance(message, StartRegroup):
                    return
                self.woken = max(self.woken, regroup)
                for number in list(self.pending):
                    self.withdraw(number, promised=True)
                self.inbox.append(message)
            case GenerationSettled() | TrainingDefined():
                pass
            case _:
                self.inbox.append(message)


class Simulation:
    """One training of ``steps`` steps, each of ``workers`` micro-batches. ``seed`` decides everything."""

    def __init__(self, seed: int, workers: int = 4, steps: int = 40) -> None:
        self.chance = random.Random(seed)
        self.workers, self.steps = workers, steps
        self.coordinator = Coordinator()
        self.now = 0.0
        self.engines: dict[str, Engine] = {}
        self.wanted: set[str] = set()
        self.supervisor: deque[Message] = deque()
        """What supervisors have to say, in order."""
        self.driver: SendStateToEngine | ReceiveStateFromEngine | None = None
        """The transfer that the driver was sent to."""
        self.buried: set[str] = set()
        self.killed: set[str] = set()
        self.over = ""
        """How the attempt ended: finished, left, lost."""
        self.applied = Counter[int]()
        """How many engines have applied each step."""
        self._sent: dict[tuple[int, int], dict[str, tuple[tuple[int, ...], int]]] = {}
        """(generation, step) to what each member has sent: its micro-batches, and the generation that it announces."""
        self._newest = 0
        self._given: set[int] = set()
        """The generations that this coordinator has told engines."""
        self._interrupted = False
        """A coordinator has begun a regroup without a death."""
        schedule = {**SHAPE, "micro_batches": workers}
        self.definition = replace(DEFINITION, schedule=schedule, max_engines=workers, steps_total=steps)
        self.coordinator.begin(BeginTraining(self.definition, ReplicaHistory()), self.now)

    # ── what happens to it ───────────────────────────────────────────────────────────────────────────────────────
    def set_desired(self, stay: Iterable[str], new: int) -> None:
        """These shall stay, so many shall come, all others leave."""
        stay = set(stay)
        leave = sorted(self.wanted - stay)
        self.wanted &= stay
        for _ in range(new):
            self._newest += 1
            name = str(self._newest)
            self.wanted.add(name)
            self.supervisor.append(EngineExpected(name))
            engine = self.engines[name] = Engine(name)
            engine.send(EngineConnected(EngineStatus(EngineState.JOINING)))
            engine.ask()
        if leave:
            self.supervisor.append(LeaveEngines(tuple(leave)))

    def restart(self) -> None:
        """The coordinator dies, and another takes its place; driver and supervisors connect again, too."""
        self.coordinator = Coordinator(recovering=True, now=self.now)
        self._given = set()
        self.driver = None
        self.buried = {name for name, engine in self.engines.items() if not engine.alive}
        living = [name for name, engine in self.engines.items() if engine.alive]
        self.supervisor.clear()
        self.supervisor.extend(EngineExpected(name) for name in living)
        if leave := [name for name in living if name not in self.wanted]:
            self.supervisor.append(LeaveEngines(tuple(leave)))
        for name in living:
            self.engines[name].introduce()
        begin = BeginTraining(self.definition, ReplicaHistory())
        self._then(lambda: self.coordinator.begin(begin, self.now))

    def disturb(self) -> None:
        """A connection breaks without a death, or a joining engine is tired of waiting."""
        living = sorted(self.living())
        if not living:
            return
        engine = self.engines[self.chance.choice(living)]
        if engine.stage == "training" and len(engine.members) > 1:
            engine.cut = True
        elif engine.stage == "joining" and self.coordinator.members.phase is Phase.RUNNING:
            engine.send(PullFailed())

    def interrupt(self) -> None:
        """The coordinator has a reason of its own to begin a regroup, though no engine has died: a supervisor says that
        an engine waits for too long, or the connection between an engine and the coordinator breaks."""
        living = sorted(self.living())
        if not living:
            return
        self._interrupted = True
        name = self.chance.choice(living)
        if self.chance.random() < 0.5:
            self._then(lambda: self.coordinator.from_supervisor(EngineStuck(name), self.now))
        else:
            self._then(lambda: self.coordinator.engine_disconnected(name))
            self.engines[name].introduce()

    def kill(self, name: str) -> None:
        self.killed.add(name)
        self.wanted.discard(name)
        self._die(name)

    def trains(self) -> bool:
        """An engine has the weights, and the driver has not got them from it."""
        members = self.coordinator.members
        return not members.over and any(engine.alive and engine.generation for engine in self.engines.values())

    def living(self) -> set[str]:
        return {name for name, engine in self.engines.items() if engine.alive}

    def calm(self) -> bool:
        """All who shall train do, nobody else is there, and nothing is under way."""
        if self.over:
            return True
        fit = set(self.wanted)
        members = set(self.coordinator.members.current.members)
        full = len(members) == min(len(fit), self.workers) and members <= fit
        return (
            full
            and not self.supervisor
            and self.living() == fit
            and self.coordinator.change is None
            and not self.coordinator.regrouping
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
                self._then(lambda: self.coordinator.check_deadlines(self.now))
        raise AssertionError(f"it does not come to an end: {self}")

    def some(self, moves: int) -> None:
        """So many moves, or fewer where there is nothing to do but to wait."""
        for _ in range(moves):
            possible = self._possible()
            if not possible:
                self.now += _IDLE_SECONDS
                self._then(lambda: self.coordinator.check_deadlines(self.now))
            else:
                self.chance.choice(possible)()

    def __str__(self) -> str:
        engines = ", ".join(
            f"{e.name} {e.stage} at {e.step} in {e.generation}{' called' if e.called else ''}"
            for e in self.engines.values()
            if e.alive
        )
        c, members = self.coordinator, self.coordinator.members
        now = f"{members.phase} {members.current} {c.change} regroup {members.newest_regroup}"
        return f"{now} under way {c.regrouping}; {engines}"

    def _possible(self) -> list[Callable[[], None]]:
        """All moves that somebody can make now."""
        moves: list[Callable[[], None]] = []
        if self.supervisor:
            moves.append(self._receive_from_supervisor)
        for engine in self.engines.values():
            if engine.up:
                moves.append(lambda engine=engine: self._receive_from_engine(engine))  # type: ignore[misc]
            if not engine.alive:
                continue
            if engine.down:
                moves.append(lambda engine=engine: engine.receive(engine.down.popleft()))  # type: ignore[misc]
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
        for send in self.coordinator.members.take_sends():
            self._check_number(_number_of(send.message))
            if send.to in self.engines:
                if send.to not in self.buried:
                    self.engines[send.to].down.append(send.message)
            elif send.to == DRIVER:
                self._send_to_driver(send.message)
            elif send.to == SUPERVISORS:
                self._send_to_supervisors(send.message)

    def _check_number(self, generation: int) -> None:
        """No engine that this coordinator has heard knows the number of a new generation from the one before."""
        if generation and generation not in self._given:
            heard = map(self.engines.__getitem__, self.coordinator.members.connected)
            know = [engine.name for engine in heard if engine.alive and engine.known >= generation]
            assert not know, f"generation {generation} is given to {know} a second time: {self}"
            self._given.add(generation)

    def _send_to_driver(self, message: Message) -> None:
        match message:
            case SendStateToEngine() | ReceiveStateFromEngine():
                self.driver = message
            case ScriptFailed():
                raise AssertionError(f"taken for the script's failure: {message}")
            case DriverReleased():
                self.over = "finished"

    def _send_to_supervisors(self, message: Message) -> None:
        match message:
            case DiscardEngine(engine):
                self._die(engine)
            case TrainingSuspended():
                self.over = "left"
            case StateLost():
                known = [each for each in self.engines.values() if each.alive and not each.up]
                able = [each.name for each in known if each.members and each.state is not EngineState.SWITCHED_OUT]
                if self._interrupted:
                    # Known, and left as it is: a regroup without a death sends a joining engine back that has just
                    # received the state, and then all others die that have it. The next attempt has a checkpoint.
                    able = [name for name in able if not self.engines[name].sent_back]
                assert not able, f"{able} have the weights and are given up: {self}"
                self.over = "lost"

    def _receive_from_supervisor(self) -> None:
        message = self.supervisor.popleft()
        if isinstance(message, EngineGone):
            self.buried.add(message.engine)
            self.engines[message.engine].down.clear()
        self._then(lambda: self.coordinator.from_supervisor(message, self.now))

    def _receive_from_engine(self, engine: Engine) -> None:
        message = engine.up.popleft()
        if engine.name not in self.buried:
            self._then(lambda: self.coordinator.from_engine(engine.name, message, self.now))

    def _die(self, name: str) -> None:
        engine = self.engines[name]
        if engine.alive:
            engine.stage = "gone"
            self.supervisor.append(EngineGone(name))

    # ── groups ────────────────────────────────────────────────────────────────────────────────────────────────
    def _can_build(self, engine: Engine, number: int) -> bool:
        """A group is built when all who belong to it do."""
        pending = engine.pending[number]
        return not pending.built and all(
            self.engines[other].alive
            and (number in self.engines[other].pending or self.engines[other].current == number)
            for other in pending.members
        )

    def _build(self, engine: Engine, number: int) -> None:
        engine.pending[number].built = True
        engine.send(GroupBuilt(number))

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
                return all(self._has_reached(other, engine.word) for other in engine.word.plan.members)
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
            engine.state = EngineState.REGROUPING
            if not engine.called:
                engine.send(GroupLost(engine.generation, engine.woken))
            engine.stage = "waiting"

    def _check(self, engine: Engine) -> None:
        if engine.called or engine.cut:
            engine.cut = False
            raise Broken

    def _join(self, engine: Engine, message: Message) -> None:
        engine.word = message
        match message:
            case ReceiveStateFromDriver(generation=generation):
                self._check(engine)
                self.driver = None
                engine.step = 0
                engine.sit(generation, (engine.name,))
                engine.send(StateReceived(generation, 0))
            case ReceiveStateFromMembers(generation):
                if generation not in engine.pending:
                    raise Broken
                engine.stage = "receiving"
            case JoinCancelled():
                engine.ask()
            case StartRegroup(regroup) | JoinAgain(regroup) if regroup > engine.asked:
                engine.ask()
            case ExitEngine():
                self._die(engine.name)

    def _weights_come(self, engine: Engine) -> bool:
        number = engine.word.generation
        if number not in engine.pending:
            return True
        sources = [self.engines[name] for name in engine.pending[number].surviving]
        return all(source.alive and source.generation == number for source in sources)

    def _receive(self, engine: Engine) -> None:
        self._check(engine)
        number = engine.word.generation
        if number not in engine.pending:
            raise Broken
        pending = engine.pending[number]
        sources = [self.engines[name] for name in pending.surviving]
        assert len({source.step for source in sources}) == 1, f"sources of {engine.name} are at different steps: {self}"
        engine.step, engine.holds, engine.sums = sources[0].step, False, set()
        engine.sit(number, pending.members)
        engine.send(StateReceived(number, engine.step))
        engine.runs = self._runs_of(pending.members, pending.surviving)

    def _runs_of(self, members: tuple[str, ...], working: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
        parts = dict(zip(working, even_split(self.workers, len(working)), strict=True))
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
            first = engine.members[0] == engine.name
            result = EngineResult(digest="the bits", step=engine.step) if first else EngineResult()
            engine.send(TrainingFinished(engine.generation, result))
            engine.stage, engine.state, engine.ending = "waiting", EngineState.ENDED, {"result": result}
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
        engine.send(Switching(number, engine.step))
        if engine.name not in pending.members:
            engine.stage, engine.switch_to, engine.state = "waiting", 0, EngineState.SWITCHED_OUT
            engine.ending = {"next_generation": number}
            return
        engine.sit(number, pending.members)
        engine.sending = pending.joining
        engine.runs = self._runs_of(pending.members, pending.surviving)

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
        match message:
            case StartRegroup(regroup):
                engine.answered = max(engine.answered, regroup)
                engine.contributed, engine.switch_to, engine.ending = False, 0, {}
                engine.state = EngineState.REGROUPING
                status = RegroupStatus(
                    engine.step,
                    engine.holds,
                    tuple((index, index + 1) for index in sorted(engine.sums)),
                    ended=engine.step >= self.steps,
                    micro_batches=self.workers,
                )
                engine.send(SurvivorStatus(regroup, status, "here:1"))
            case ApplyRegroupPlan(regroup) if regroup == engine.woken:
                engine.word, engine.stage = message, "regrouping"
            case JoinAgain():
                engine.ask()
            case SendStateToDriver(key):
                if self.driver is not None and self.driver.key == key:
                    self.driver = None
                    self._then(lambda: self.coordinator.from_driver(TrainedStateReceived(), self.now))
            case ExitEngine():
                self._die(engine.name)

    def _has_reached(self, name: str, word: ApplyRegroupPlan) -> bool:
        """Whether engine ``name`` is there to build the group of this regroup, or has built it."""
        other = self.engines[name]
        there = other.stage in ("regrouping", "catching up") and other.word.regroup == word.regroup
        return other.alive and (there or other.generation == word.generation)

    def _has_caught_up(self, engine: Engine) -> bool:
        plan, name = engine.word.plan, engine.name
        if name in plan.behind:
            sources = [self.engines[source] for source in plan.sources]
            return all(source.alive and source.stage == "catching up" for source in sources)
        return name not in plan.sources or all(
            self.engines[other].alive and self.engines[other].step >= plan.offset for other in plan.behind
        )

    def _catch_up(self, engine: Engine) -> None:
        word, name = engine.word, engine.name
        plan = word.plan
        self._check(engine)
        if name in plan.behind:
            if plan.catch_up is CatchUp.REDUCED:
                assert engine.step + 1 == plan.offset, f"{name} is more than a step behind: {self}"
                self._commit(engine)
            else:
                engine.step, engine.holds, engine.sums = plan.offset, False, set()
        assert engine.step == plan.offset
        engine.sit(word.generation, plan.members)
        engine.runs = dict(zip(plan.members, plan.split, strict=True))
        engine.sums &= set(self._own(engine))
        engine.send(Regrouped(word.regroup))
