"""What is told of resizes: each once it is measured, by every engine; the coordinator passes each on once."""

from __future__ import annotations

from typing import cast

from edt_runner.engine.link import EngineLink
from edt_runner.engine.telemetry import PauseTimer
from edt_runner.protocol.messages import Message, Resized

LONG_ENOUGH = 11
"""Steps after which a pause is known."""


class Sent:
    """An engine's connection, which keeps what is sent on it."""

    def __init__(self) -> None:
        self.generations: list[int] = []
        self.pauses: list[float | None] = []

    def send(self, message: Message) -> None:
        assert isinstance(message, Resized)
        self.generations.append(message.generation)
        self.pauses.append(message.pause_seconds)


def resized(generation: int) -> Resized:
    return Resized(generation, step=0, workers=2, pause_seconds=None)


class Measuring:
    """An engine that takes a step every tenth of a second, the first after a resize half a second."""

    def __init__(self) -> None:
        self.sent, self._time = Sent(), 0.0
        self.timer = PauseTimer(cast(EngineLink, self.sent), clock=lambda: self._time)
        self.step()

    def step(self, seconds: float = 0.1) -> None:
        self._time += seconds
        self.timer.committed()

    def resize(self, generation: int, steps: int) -> None:
        self.timer.begin(resized(generation))
        for each in range(steps):
            self.step(0.1 if each else 0.5)


def test_a_pause_is_told_once_it_is_known() -> None:
    engine = Measuring()
    engine.resize(2, LONG_ENOUGH - 1)
    assert engine.sent.generations == []
    engine.step()
    assert engine.sent.generations == [2] and round(engine.sent.pauses[0] or 0, 6) == 0.4
    engine.resize(3, 2 * LONG_ENOUGH)
    assert engine.sent.generations == [2, 3]


def test_what_is_known_is_told_when_the_next_change_begins() -> None:
    """The first engine may have died over it: any engine tells."""
    engine = Measuring()
    engine.resize(2, LONG_ENOUGH - 3)
    engine.timer.begin(resized(3))
    assert engine.sent.generations == [2] and round(engine.sent.pauses[0] or 0, 6) == 0.4


def test_a_validation_is_no_pause() -> None:
    engine = Measuring()
    engine.timer.begin(resized(2))
    for _ in range(LONG_ENOUGH):
        engine.step()
        engine.timer.interrupted()
        engine.step(5.0)
    assert [round(pause or 0, 6) for pause in engine.sent.pauses] == [0.0]


def test_at_the_end_is_told_what_is_known() -> None:
    engine = Measuring()
    engine.resize(2, 2)
    engine.timer.finish()
    assert engine.sent.generations == [2] and engine.sent.pauses == [None]
