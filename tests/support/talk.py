"""A conversation with the coordinator's state machine: what engines would send, and what they are sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from edt_runner.coordinator.coordinator import Coordinator
from edt_runner.protocol.data import (
    EngineResult,
    EngineState,
    EngineStatus,
    RegroupStatus,
    ReplicaHistory,
    TrainingDefinition,
)
from edt_runner.protocol.differences import HeldMemberships
from edt_runner.protocol.engine_messages import (
    EngineConnected,
    GroupBuilt,
    GroupLost,
    JoinRequest,
    SurvivorStatus,
    Switching,
)
from edt_runner.protocol.messages import BeginTraining, EngineExpected, Message

_M = TypeVar("_M", bound=Message)

SHAPE = {
    "train_samples": 80,
    "test_samples": 0,
    "batch_size": 4,
    "validation_freq": 1,
    "micro_batches": 4,
    "epochs": 2,
}
FACTS = {"training samples": 9}
DEFINITION = TrainingDefinition(SHAPE, steps_total=10, seed=7, max_engines=4, facts=FACTS)
NEW = EngineConnected(EngineStatus(EngineState.JOINING))
"""How an engine introduces itself that has no state."""
RESULT = EngineResult(digest="d", step=10)
"""Of the first engine."""


def status(generation: int, *members: str, state: EngineState = EngineState.TRAINING, **more: Any) -> EngineConnected:
    """How an engine introduces itself that works in this generation. ``more``: fields of ``EngineStatus``."""
    fields = {"announced": generation, "regroup": 3, **more}
    return EngineConnected(EngineStatus(state, generation, members, **fields))


def join_request(regroup: int = 0) -> JoinRequest:
    return JoinRequest(FACTS, regroup)


class Talk:
    """A coordinator and what it has sent, by receiver."""

    def __init__(self, micro_batches: int = 4) -> None:
        self.coordinator = Coordinator()
        self.now = 0.0
        self._held: dict[str, HeldMemberships] = {}
        schedule = {**SHAPE, "micro_batches": micro_batches}
        self.definition = replace(DEFINITION, schedule=schedule, max_engines=micro_batches)

    def sent(self, to: str | None = None) -> list[Message]:
        """What it has sent since the last call, to all or to one, with memberships as the engines read them."""
        sends = self.coordinator.members.take_sends()
        read = [self._read(send.to, send.message) for send in sends]
        return [message for send, message in zip(sends, read, strict=True) if to is None or send.to == to]

    def _read(self, to: str, message: Message) -> Message:
        return self._held.setdefault(to, HeldMemberships(to)).read(message) if to.isdigit() else message

    def kinds(self, to: str) -> list[type[Message]]:
        return [type(message) for message in self.sent(to)]

    def only(self, to: str, kind: type[_M]) -> _M:
        """The only message of this type that was sent there."""
        (message,) = [message for message in self.sent(to) if isinstance(message, kind)]
        return message

    def begin(self, history: ReplicaHistory | None = None, resumed_at: int | None = None, **definition: Any) -> None:
        """The driver has reached train()."""
        definition_now = replace(self.definition, **definition)
        self.coordinator.begin(BeginTraining(definition_now, history or ReplicaHistory(), resumed_at), self.now)

    def expect(self, *names: str) -> None:
        for name in names:
            self.coordinator.from_supervisor(EngineExpected(name), self.now)

    def come(self, *names: str) -> None:
        for name in names:
            self.expect(name)
            self.coordinator.engine_connected(name, NEW, self.now)
            self.coordinator.join_request(name, join_request(self.coordinator.members.newest_regroup), self.now)

    def start(self, *names: str) -> Talk:
        """A running training of these engines."""
        self.begin()
        self.come(names[0])
        self.coordinator.state_received(names[0], self.coordinator.members.current.number, 0, self.now)
        if names[1:]:
            self.come(*names[1:])
            while self.coordinator.change:
                self.switch()
        assert self.coordinator.members.current.members == names
        self.sent()
        return self

    def built(self, name: str, generation: int) -> None:
        self.coordinator.from_engine(name, GroupBuilt(generation), self.now)

    def switching(self, name: str, generation: int, offset: int) -> None:
        self.coordinator.from_engine(name, Switching(generation, offset), self.now)

    def build(self) -> int:
        change = self.coordinator.change
        assert change is not None
        for name in change.everybody:
            self.built(name, change.new.number)
        return change.new.number

    def switch(self) -> None:
        change = self.coordinator.change
        assert change is not None
        generation = self.build()
        for name in change.old.members:
            self.switching(name, generation, 5)
        for name in change.joining:
            self.coordinator.state_received(name, generation, 5, self.now)

    def finished(self, name: str, result: EngineResult = RESULT, *, generation: int = 0) -> None:
        """Engine ``name`` has committed the last step."""
        number = generation or self.coordinator.members.current.number
        self.coordinator.training_finished(name, number, result, self.now)

    def group_lost(
        self,
        name: str,
        regroup: int = 0,
        unreachable: Sequence[str] = (),
        now: float = 0,
        *,
        generation: int = 0,
        built: bool = False,
    ) -> None:
        number = generation or self.coordinator.members.current.number
        message = GroupLost(number, regroup, tuple(unreachable), built=built)
        self.coordinator.group_lost(name, message, now)

    def stand(self, name: str, offset: int, *, holds: bool = True, spans: Any = (), ended: bool = False) -> None:
        """Engine ``name`` answers the newest regroup."""
        summed = tuple((low, high) for low, high in spans)
        where = RegroupStatus(offset, holds, summed, ended, micro_batches=4)
        message = SurvivorStatus(self.coordinator.members.newest_regroup, where, "here:1")
        self.coordinator.survivor_status(name, message)

    def regroup(self, *names: str, offset: int = 5) -> None:
        """These come through the regroup under way."""
        for name in names:
            self.stand(name, offset)
        for name in names:
            self.coordinator.regrouped(name, self.coordinator.members.newest_regroup, self.now)
