"""What an engine says of itself while it works on a tick."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edt_runner.engine import position
from edt_runner.engine.position import Doing
from edt_runner.engine.schedule import Schedule, TickKind
from edt_runner.engine.seat import Hands, Settings
from edt_runner.engine.work import Work


@pytest.mark.parametrize(("tick", "computes"), [(0, Doing.COMPUTING), (5, Doing.VALIDATING)])
def test_a_batch_is_loaded_before_its_micro_batch_is_computed(
    monkeypatch: pytest.MonkeyPatch, tick: int, computes: Doing
) -> None:
    """Whoever hangs is told by what it does; the time that a micro-batch may take is measured, not limited at once."""
    board = position.Board()
    monkeypatch.setattr(position, "board", board)
    seen: list[tuple[str, Doing, float]] = []

    def look(what: str) -> None:
        found = board.read()
        assert (found.tick, found.worker) == (tick, 1)
        seen.append((what, found.doing, found.longest))

    adapter = SimpleNamespace(
        save_for_user=None,
        width=2,
        micro_batch=lambda *given: look("computed"),
        evaluate=lambda *given: look("computed"),
    )
    hands = SimpleNamespace(
        adapter=adapter,
        link=SimpleNamespace(check=lambda: None),
        loader=SimpleNamespace(next=lambda: look("loaded")),
        recorder=SimpleNamespace(hold=lambda *given: None),
    )
    schedule = Schedule(train_samples=80, test_samples=20, batch_size=4, validation_freq=1, logical_workers=4, epochs=2)
    work = Work(cast(Settings, SimpleNamespace(schedule=schedule, seed=7, model_dir=Path())), cast(Hands, hands))
    work.tick = tick
    where = schedule.at(tick)
    assert where.kind is (TickKind.VALIDATE if computes is Doing.VALIDATING else TickKind.TRAIN)
    work._fill(where, 1, cast(Any, None))
    assert seen == [("loaded", Doing.LOADING, 0.0), ("computed", computes, 0.0)]
