"""What an engine says of itself while it works on a tick."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from edt_runner.dataplane import GlooPlane
from edt_runner.engine import position
from edt_runner.engine.position import Doing
from edt_runner.engine.schedule import Schedule, TickKind
from edt_runner.engine.seat import Hands, Settings
from edt_runner.engine.work import Work
from edt_runner.replicas import History
from support.one_engine import one_engine
from support.waiting import until


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


def test_what_ends_the_guarantee_is_in_a_checkpoint_at_the_next_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An attempt that goes on from an older one would know nothing of it. What was known at the join is written with
    the others."""
    forced: list[bool] = []
    told: list[dict[str, Any]] = []
    plane = GlooPlane("127.0.0.1", torch.float32, "lo")
    with one_engine(monkeypatch, tmp_path, plane) as (engine, link, coordinator):
        work = engine._work
        cast(Any, work)._hands.snapshots.begin = lambda *given, force: forced.append(force)
        for number, ended in enumerate(("", "replicas: they differ", "replicas: they differ")):
            told.append(History(ended=ended, compared=number).to_json_object())
            coordinator.say("replicas", history=told[-1], compare_from=0)
            until(lambda: link.history == told[-1])
            work._write_files(work._schedule.at(1))
    assert forced == [False, True, False]


def test_an_engine_tells_a_coordinator_that_is_new_what_it_knows_of_the_replicas(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = History(compared=3, ended="replicas: they differ").to_json_object()
    with one_engine(monkeypatch, tmp_path, GlooPlane("127.0.0.1", torch.float32, "lo")) as (_, link, coordinator):
        coordinator.say("replicas", history=told, compare_from=0)
        until(lambda: bool(link.history))
        link._introduce()
        assert coordinator.hears("standing")["history"] == {}
        assert coordinator.hears("standing")["history"] == told
