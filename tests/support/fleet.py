"""A training of many engines without a process: the coordinator, and engines that do at once what they are told.

Nothing happens by chance here (``simulation`` does that, with few engines). Messages are read in the order in which
they were sent, each is written as the line that a channel would send, and all are counted. After each change and each
regroup, every engine must know the members that the coordinator knows.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from edt_contract.encoding import dump_line
from edt_runner.coordinator.coordinator import Coordinator
from edt_runner.coordinator.lifecycle import SETTLE_SECONDS
from edt_runner.coordinator.members import DRIVER, OWN_SUPERVISOR, SUPERVISORS, Phase
from edt_runner.protocol.channel import decode
from edt_runner.protocol.data import (
    CatchUp,
    ComparisonReason,
    EngineState,
    EngineStatus,
    RegroupStatus,
    ReplicaChecksums,
    ReplicaHistory,
)
from edt_runner.protocol.differences import HeldMemberships, sends_members
from edt_runner.protocol.engine_messages import (
    ApplyRegroupPlan,
    ChecksumsTaken,
    CommitGeneration,
    EngineConnected,
    ExitEngine,
    GenerationSettled,
    GroupBuilt,
    GroupLost,
    JoinAgain,
    JoinRequest,
    PrepareGeneration,
    ReceiveStateFromDriver,
    ReceiveStateFromMembers,
    Regrouped,
    StartRegroup,
    StateReceived,
    SurvivorStatus,
    Switching,
)
from edt_runner.protocol.messages import (
    BeginTraining,
    DiscardEngine,
    EngineExpected,
    EngineGone,
    EngineStuck,
    LeaveEngines,
    Message,
    Resized,
)
from edt_runner.splits import cover, even_split
from support.talk import DEFINITION, FACTS, SHAPE

ENGINES_OF_A_NODE = 8
TENSORS = 10
"""Checksums that an engine sends in a comparison. A real model has more; this does not depend on the engines."""
COMPUTING = {"framework": "torch 2.13", "device": "a GPU of some name", "threads": 8, "capability": "AVX512"}
FIRST_NAME = 1_000_000
"""Allocation ids of an installation that is not new."""


@dataclass
class Counts:
    """What went over the connections between the coordinator and the engines and supervisors, and the time that the
    coordinator's process took for it: deciding, writing and reading lines. Seconds of processor time."""

    messages: int = 0
    volume: int = 0
    """Bytes."""
    largest: int = 0
    """Bytes of the largest message."""
    decide: float = 0.0
    encode: float = 0.0
    decode: float = 0.0

    @property
    def seconds(self) -> float:
        return self.decide + self.encode + self.decode

    def add(self, line: bytes, number: int = 1) -> None:
        self.messages += number
        self.volume += number * len(line)
        self.largest = max(self.largest, len(line))


@dataclass
class Member:
    """One engine."""

    name: str
    held: HeldMemberships = field(init=False)
    generation: int = 0
    members: tuple[str, ...] = ()
    prepared: dict[int, PrepareGeneration] = field(default_factory=dict)
    resized: Resized | None = None
    """What it will say of the change when it is over."""
    regroup: int = 0
    summed: bool = True
    """Whether it has summed its micro-batches of the coming step."""
    behind: bool = False
    """Whether it has not committed the last step."""

    def __post_init__(self) -> None:
        self.held = HeldMemberships(self.name)

    def enter(self, generation: int, members: tuple[str, ...]) -> None:
        self.generation, self.members = generation, members


class Fleet:
    """A training that ``engines`` engines join at once, after the first.

    Args:
        engines: number of engines.
        micro_batches: of a step; there can be no more engines than that. 0: twice as many as engines.
    """

    def __init__(self, engines: int, micro_batches: int = 0) -> None:
        self.micro_batches = micro_batches or 2 * engines
        self.coordinator = Coordinator("10.0.0.1:29500")
        self.engines: dict[str, Member] = {}
        self.chance = random.Random(engines)
        self.offset = 0
        self.counts = Counts()
        self._now = 0.0
        self._up: deque[tuple[str, Message]] = deque()
        self._names = iter(range(FIRST_NAME, 10 * FIRST_NAME))
        schedule = {**SHAPE, "train_samples": 8 * self.micro_batches, "micro_batches": self.micro_batches}
        self._begin = BeginTraining(
            replace(DEFINITION, schedule=schedule, max_engines=self.micro_batches), ReplicaHistory()
        )
        self._do(lambda: self.coordinator.from_driver(self._begin, self._now))
        self.join(1)
        self.join(engines - 1)

    @property
    def names(self) -> tuple[str, ...]:
        return self.coordinator.members.current.members

    def measure(self, happen: Callable[[], object]) -> Counts:
        """Let something happen; returns what it took."""
        self.counts = Counts()
        happen()
        return self.counts

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────
    def join(self, number: int = 1) -> None:
        """So many engines join."""
        for _ in range(number):
            engine = Member(str(next(self._names)))
            self.engines[engine.name] = engine
            self._from_supervisor(EngineExpected(engine.name))
            connected = EngineConnected(EngineStatus(EngineState.JOINING), COMPUTING)
            self._up += [(engine.name, connected), (engine.name, JoinRequest(FACTS, 0))]
        self._come_to_rest()

    def leave(self, number: int = 1) -> None:
        """So many engines leave."""
        self._from_supervisor(LeaveEngines(tuple(self.chance.sample(self.names, number))))
        self._come_to_rest()

    def die(self, number: int = 1, *, summed: float = 1.0, behind: float = 0.0) -> None:
        """So many engines die at once. Each other notices it by itself.

        Args:
            number: of engines.
            summed: share of the others that have summed their micro-batches of the step.
            behind: share of the others that have not committed the step before.
        """
        dead = self.chance.sample(self.names, number)
        for name in dead:
            del self.engines[name]
        for engine in self.engines.values():
            engine.summed = self.chance.random() < summed
            engine.behind = self.chance.random() < behind
            self._say(engine, GroupLost(engine.generation, engine.regroup))
        for name in dead:
            self._from_supervisor(EngineGone(name, None, "signal 9"))
        self._come_to_rest()

    def hang(self) -> None:
        """One engine is waited for so long that its supervisor says so. No process ends."""
        self._from_supervisor(EngineStuck(self.chance.choice(self.names)))
        self._come_to_rest()

    def take_over(self) -> None:
        """The coordinator dies, and another takes its place."""
        self.coordinator = Coordinator("10.0.0.1:29501", recovering=True, now=self._now)
        for name in self.engines:
            self._from_supervisor(EngineExpected(name))
        for engine in self.engines.values():
            told = sends_members(engine.members.index(engine.name))
            status = EngineStatus(
                EngineState.TRAINING,
                engine.generation,
                engine.members if told else (),
                announced=engine.generation,
                settled=engine.generation,
                regroup=engine.regroup,
            )
            connected = EngineConnected(status, COMPUTING, ReplicaHistory(), engine.held.holds(engine.generation))
            self._up.append((engine.name, connected))
        self._do(lambda: self.coordinator.from_driver(self._begin, self._now))
        self._come_to_rest()

    # ── how it goes on ────────────────────────────────────────────────────────────────────────────────────────
    def _come_to_rest(self) -> None:
        """Go on until nobody has anything to say and nothing is under way."""
        while self._up:
            name, message = self._up.popleft()
            line = dump_line(message)
            self.counts.add(line)
            begun = time.thread_time()
            decode(line)
            self.counts.decode += time.thread_time() - begun
            if name in self.engines and not isinstance(message, Resized):  # the server passes that on
                self._do(lambda name=name, message=message: self.coordinator.from_engine(name, message, self._now))  # type: ignore[misc]
            if not self._up:
                self._now += 2 * SETTLE_SECONDS
                self._do(lambda: self.coordinator.check_deadlines(self._now))
        members = self.coordinator.members
        assert members.phase is Phase.RUNNING, members.phase
        assert self.coordinator.change is None and not self.coordinator.regrouping
        assert set(self.names) == set(self.engines)
        assert all(engine.members == self.names for engine in self.engines.values())

    def _from_supervisor(self, message: Message) -> None:
        self.counts.add(dump_line(message))
        self._do(lambda: self.coordinator.from_supervisor(message, self._now))

    def _do(self, event: Callable[[], None]) -> None:
        """An event, and what the coordinator sends because of it, as its server sends it."""
        begun = time.thread_time()
        event()
        sends = self.coordinator.members.take_sends()
        self.counts.decide += time.thread_time() - begun
        lines: dict[int, bytes] = {}
        for send in sends:
            if id(send.message) not in lines:
                begun = time.thread_time()
                lines[id(send.message)] = dump_line(send.message)
                self.counts.encode += time.thread_time() - begun
            supervisors = -(-len(self.engines) // ENGINES_OF_A_NODE) if send.to == SUPERVISORS else 1
            if send.to != DRIVER:
                self.counts.add(lines[id(send.message)], supervisors)
            assert not isinstance(send.message, DiscardEngine), send
            if send.to not in (DRIVER, OWN_SUPERVISOR, SUPERVISORS) and send.to in self.engines:
                engine = self.engines[send.to]
                self._obey(engine, engine.held.read(send.message))

    def _say(self, engine: Member, message: Message) -> None:
        self._up.append((engine.name, message))

    def _obey(self, engine: Member, message: Message) -> None:
        match message:
            case ReceiveStateFromDriver(generation=number):
                engine.enter(number, (engine.name,))
                self._say(engine, StateReceived(number, 0))
            case PrepareGeneration(generation=number):
                engine.prepared[number] = message
                self._say(engine, GroupBuilt(number))
            case CommitGeneration(generation=number) if engine.generation:
                self._switch(engine, engine.prepared[number])
            case ReceiveStateFromMembers(generation=number):
                engine.enter(number, engine.prepared[number].members)
                self._say(engine, StateReceived(number, self.offset))
            case GenerationSettled(generation=number):
                self._settle(engine, number)
            case StartRegroup(regroup=number):
                engine.regroup = number
                self._say(engine, SurvivorStatus(number, self._status(engine), f"10.0.7.{len(engine.name)}:41234"))
            case ApplyRegroupPlan(plan=plan):
                assert len(plan.split) == len(plan.members)
                assert (plan.catch_up is CatchUp.NOTHING) or engine.name in (*plan.behind, *plan.sources)
                assert not engine.behind or engine.name in plan.behind
                engine.enter(message.generation, plan.members)
                allocations = tuple(map(int, message.lost))
                engine.resized = Resized(message.generation, self.offset, len(plan.members), 0.1, lost=allocations)
                self._say(engine, Regrouped(message.regroup))
            case JoinAgain(regroup=number):
                engine.enter(0, ())
                self._say(engine, JoinRequest(FACTS, number))
            case ExitEngine():
                del self.engines[engine.name]
                self._from_supervisor(EngineGone(engine.name))

    def _switch(self, engine: Member, change: PrepareGeneration) -> None:
        self._say(engine, Switching(change.generation, self.offset))
        members = self.coordinator.change.new.names if self.coordinator.change else frozenset()
        if engine.name in members:
            left = tuple(int(name) for name in engine.members if name not in members)
            joined = tuple(map(int, change.joining))
            size = len(change.members)
            engine.resized = Resized(change.generation, self.offset, size, 0.1, joined=joined, left=left)
            engine.enter(change.generation, change.members)

    def _status(self, engine: Member) -> RegroupStatus:
        spans: tuple[tuple[int, int], ...] = ()
        if engine.summed and not engine.behind:
            part = even_split(self.micro_batches, len(engine.members))[engine.members.index(engine.name)]
            spans = cover((0, self.micro_batches), part)
        offset = self.offset - engine.behind
        return RegroupStatus(offset, not engine.behind, spans, micro_batches=self.micro_batches)

    def _settle(self, engine: Member, generation: int) -> None:
        """The first step in a new membership is committed: its pause is told, and replicas are compared."""
        leads = engine.name == engine.members[0]
        self.offset += leads
        engine.summed, engine.behind, engine.prepared = True, False, {}
        if engine.resized is not None:
            self._say(engine, engine.resized)
            engine.resized = None
        checksums = ReplicaChecksums(("0123456789abcdef",) * TENSORS, ("weight",) * TENSORS if leads else ())
        members = engine.members if leads else ()
        reason = ComparisonReason.JOIN
        self._say(
            engine,
            ChecksumsTaken(generation, members, self.offset, self.offset, reason, checksums, 0.1, 0.1),
        )
