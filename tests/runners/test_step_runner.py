"""What an engine reports of itself, while it works on a step and to a coordinator that is new."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from edt_contract.reports import ExitKind
from edt_runner import context
from edt_runner.comm.plane import DataPlane
from edt_runner.comm.tree_reduction import HOST, Sink
from edt_runner.context import Activity, ActivityKind
from edt_runner.engine.link import EngineLink
from edt_runner.engine.step_runner import EngineParts, StepRunner
from edt_runner.protocol.data import CatchUp, EngineState, EngineStatus, RegroupPlan, ReplicaHistory
from edt_runner.protocol.engine_messages import (
    ApplyRegroupPlan,
    EngineConnected,
    ExitEngine,
    GroupBuilt,
    JoinAgain,
    JoinRequest,
    PrepareGeneration,
    ReceiveStateFromDriver,
    ReplicasChanged,
    StartRegroup,
)
from edt_runner.schedule import Schedule, StepKind
from support.one_engine import Coordinator, one_engine
from support.waiting import until


@pytest.mark.parametrize(("offset", "computes"), [(0, ActivityKind.COMPUTING), (5, ActivityKind.VALIDATING)])
def test_a_batch_is_loaded_before_its_micro_batch_is_computed(
    monkeypatch: pytest.MonkeyPatch, offset: int, computes: ActivityKind
) -> None:
    """Whoever hangs is told by what it does; the time that a micro-batch may take is measured, not limited at once."""
    page = context.StatusPage()
    monkeypatch.setattr(context, "page", page)
    seen: list[tuple[str, ActivityKind, float]] = []

    def look(what: str) -> None:
        found = page.read()
        assert (found.offset, found.index) == (offset, 1)
        seen.append((what, found.kind, found.longest))

    adapter = SimpleNamespace(
        vector_device=HOST,
        width=2,
        values=dict,
        stream=lambda *given: look("computed"),
        evaluate=lambda *given: look("computed"),
    )
    schedule = Schedule(train_samples=80, test_samples=20, batch_size=4, validation_freq=1, micro_batches=4, epochs=2)
    parts = SimpleNamespace(
        training=SimpleNamespace(schedule=schedule, seed=7),
        adapter=adapter,
        link=SimpleNamespace(check=lambda: None),
        loader=SimpleNamespace(next=lambda: look("loaded")),
        recorder=SimpleNamespace(hold=lambda *given: None),
    )
    work = StepRunner(cast(EngineParts, parts))
    work.offset = offset
    where = schedule.at(offset)
    assert where.kind is (StepKind.VALIDATE if computes is ActivityKind.VALIDATING else StepKind.TRAIN)
    work._compute(where, 1, Sink(torch.zeros(2), adds=False))
    assert seen == [("loaded", ActivityKind.LOADING, 0.0), ("computed", computes, 0.0)]


def test_a_batch_that_is_loaded_while_a_gpu_computes_blames_no_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one before is computed, so whoever loads for too long, or dies of it, does not die of that one."""
    page = context.StatusPage()
    monkeypatch.setattr(context, "page", page)
    seen: list[Activity] = []
    adapter = SimpleNamespace(
        width=2, values=dict, stream=lambda *given: None, placed=None, vector_device=SimpleNamespace(type="cuda")
    )
    parts = SimpleNamespace(
        training=SimpleNamespace(
            schedule=Schedule(
                train_samples=80, test_samples=20, batch_size=4, validation_freq=1, micro_batches=4, epochs=2
            ),
            seed=7,
        ),
        adapter=adapter,
        link=SimpleNamespace(check=lambda: None),
        loader=SimpleNamespace(next=lambda: None, prepare=lambda place: seen.append(page.read())),
        recorder=SimpleNamespace(hold=lambda *given: None),
    )
    work = StepRunner(cast(EngineParts, parts))
    steps = [parts.training.schedule.at(offset) for offset in range(5)]
    for work.offset, step in enumerate(steps):
        work._compute(step, 1, Sink(torch.zeros(2), adds=False))
    assert [(each.kind, each.micro_batch) for each in seen] == [(ActivityKind.LOADING, None)] * len(seen)
    assert len(seen) == sum(not step.ends_epoch for step in steps)


def test_what_ends_the_guarantee_is_in_a_checkpoint_at_the_next_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An attempt that goes on from an older one would know nothing of it. What was known at the join is written with
    the others."""
    forced: list[bool] = []
    histories: list[ReplicaHistory] = []
    plane = DataPlane("127.0.0.1", torch.float32, "lo")
    with one_engine(monkeypatch, tmp_path, plane) as (engine, link, coordinator):
        work = engine._steps
        cast(Any, work)._parts.snapshots.begin = lambda *given, force: forced.append(force)
        for number, ended in enumerate(("", "replicas: they differ", "replicas: they differ")):
            histories.append(ReplicaHistory(ended=ended, compared=number))
            coordinator.send(ReplicasChanged(histories[-1]))
            until(lambda: link.history == histories[-1])
            work._write_files(work._schedule.at(1))
    assert forced == [False, True, False]


def test_an_engine_tells_a_coordinator_that_is_new_what_it_knows_of_the_replicas(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    history = ReplicaHistory(compared=3, ended="replicas: they differ")
    with one_engine(monkeypatch, tmp_path, DataPlane("127.0.0.1", torch.float32, "lo")) as (_, link, coordinator):
        coordinator.send(ReplicasChanged(history))
        until(lambda: link.history is not None)
        link._introduce()
        assert coordinator.receive(EngineConnected).history is None
        assert coordinator.receive(EngineConnected).history == history


def introduction(link: EngineLink, coordinator: Coordinator) -> EngineStatus:
    """How the engine introduces itself to a coordinator that is new."""
    link._introduce()
    return coordinator.receive(EngineConnected).status


@pytest.mark.parametrize("state", [EngineState.TRAINING, EngineState.SWITCHED_OUT, EngineState.ENDED])
@pytest.mark.parametrize("call", [StartRegroup, JoinAgain])
def test_an_engine_that_is_called_to_a_regroup_says_so_to_a_coordinator_that_is_new(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: type[StartRegroup | JoinAgain], state: EngineState
) -> None:
    """Its main thread may compute for long before it comes to that regroup, of which only the other one knew."""
    with one_engine(monkeypatch, tmp_path, DataPlane("127.0.0.1", torch.float32, "lo")) as (_, link, coordinator):
        coordinator.receive(EngineConnected)
        link.set_status(EngineStatus(state, 7, ("1", "2")))
        assert introduction(link, coordinator).state is state
        coordinator.send(call(4))
        until(lambda: link.regroup_started)
        called = introduction(link, coordinator)
        assert (called.state, called.generation, called.regroup) == (EngineState.REGROUPING, 7, 4)
        link.acknowledge_regroup(4)


def test_an_engine_without_the_state_that_is_called_to_a_regroup_joins_as_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It answers with another request, so that it is neither waited for nor shut off for good."""
    with (
        one_engine(monkeypatch, tmp_path, DataPlane("127.0.0.1", torch.float32, "lo")) as (engine, link, coordinator),
        ThreadPoolExecutor(1) as pool,
    ):
        joining = pool.submit(engine._join)
        coordinator.receive(JoinRequest)
        coordinator.send(StartRegroup(4))
        try:
            assert coordinator.receive(JoinRequest).regroup == 4
            assert not link.regroup_started
            assert introduction(link, coordinator).state is EngineState.JOINING
        finally:
            coordinator.send(ExitEngine())
        assert joining.result(20) is ExitKind.FINISHED


def test_an_engine_tells_a_coordinator_that_is_new_the_highest_generation_that_it_was_ever_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with one_engine(monkeypatch, tmp_path, DataPlane("127.0.0.1", torch.float32, "lo")) as (_, link, coordinator):
        coordinator.receive(EngineConnected)
        coordinator.send(ReceiveStateFromDriver("start/3", 3))
        coordinator.send(PrepareGeneration(9, ("2",), ()))
        coordinator.receive(GroupBuilt)
        assert introduction(link, coordinator).known == 9
        plan = RegroupPlan(("1",), 0, (), (), CatchUp.NOTHING, ((),), 0)
        coordinator.send(ApplyRegroupPlan(5, 11, plan))
        until(lambda: link.wait(0.1) == ApplyRegroupPlan(5, 11, plan))
        assert introduction(link, coordinator).known == 11
