"""A conversation with the coordinator's mind, without a coordinator: what engines would say, and what they hear."""

from __future__ import annotations

from typing import Any

from edt_runner.membership import Membership

SHAPE = {
    "train_samples": 80,
    "test_samples": 0,
    "batch_size": 4,
    "validation_freq": 1,
    "logical_workers": 4,
    "epochs": 2,
}
DEFINITION = {"schedule": SHAPE, "steps_total": 10, "seed": 7, "exact": True, "facts": {"training samples": 9}}
NEW = {"generation": 0, "members": [], "doing": "joining", "announced": 0, "round": 0}
"""How an engine introduces itself that has nothing."""
FACTS = {"training samples": 9}


class Talk:
    """A membership and what it said, by recipient."""

    def __init__(self, workers: int = 4) -> None:
        self.mind = Membership()
        self.now = 0.0
        schedule = {**SHAPE, "logical_workers": workers}
        self.definition = {**DEFINITION, "schedule": schedule}

    def said(self, to: str | None = None) -> list[dict[str, Any]]:
        return [dict(send.message) for send in self.mind.take() if to is None or send.to == to]

    def kinds(self, to: str) -> list[str]:
        return [message["kind"] for message in self.said(to)]

    def come(self, *names: str) -> None:
        for name in names:
            self.mind.expect(name)
            self.mind.connect(name, NEW, self.now)
            self.mind.ready(name, FACTS, [f"here:{9000 + int(name)}"], self.now, self.mind.round)

    def start(self, *names: str) -> Talk:
        """A running training of these engines."""
        self.mind.begin(self.definition, self.now)
        self.come(names[0])
        self.mind.received(names[0], self.mind.current.number, 0, self.now)
        if names[1:]:
            self.come(*names[1:])
            while self.mind.change:
                self.switch()
        assert self.mind.current.members == names
        self.said()
        return self

    def build(self) -> int:
        change = self.mind.change
        assert change is not None
        for name in change.everybody:
            self.mind.built(name, change.new.number, self.now)
        return change.new.number

    def switch(self) -> None:
        change = self.mind.change
        assert change is not None
        number = self.build()
        for name in change.old.members:
            self.mind.switching(name, number, 5, self.now)
        for name in change.newcomers:
            self.mind.received(name, number, 5, self.now)

    def stand(self, name: str, tick: int, *, holds: bool = True, spans: Any = (), ended: bool = False) -> None:
        """Engine ``name`` answers the newest round."""
        standing = {"tick": tick, "holds": holds, "ended": ended, "spans": spans}
        standing |= {"addresses": ["here:9000"], "door": "here:1", "workers": 4}
        self.mind.stands(name, self.mind.round, standing, self.now)

    def reform(self, *names: str, tick: int = 5) -> None:
        """These come through the round under way."""
        for name in names:
            self.stand(name, tick)
        for name in names:
            self.mind.reformed(name, self.mind.round, self.now)
