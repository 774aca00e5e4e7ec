"""Gangs beside elastic jobs, from submit to end, with nodes played against the real store."""

from __future__ import annotations

from typing import Any

import pytest

from edt_contract.gang import GangCommand, Processes, Rendezvous
from edt_contract.reports import ExitKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.home import fence_files
from edt_scheduler.model.states import JobState, ResizeCause
from edt_scheduler.operations import agents, execs, fleet, history
from edt_scheduler.plan.state import Blocking
from edt_scheduler.views import SlotUse, Waiting
from support.databases import sqlite_first
from support.puppets import Stage

database_url = sqlite_first()

COMMAND = GangCommand(("{python}", "{main}"), Processes.DEVICE, (Rendezvous.TORCH,))


def gang(stage: Stage, workers: int, devices: int = 1, image: str | None = None) -> str:
    return stage.submit(workers, framework="distPyTorch", gang=COMMAND, worker_device_num=devices, image=image)


def why(stage: Stage, job: str) -> Waiting:
    waiting = stage.job(job).waiting
    assert waiting is not None
    return waiting


def slots_of(stage: Stage, job: str) -> dict[str, list[str]]:
    """Node to the slots of it that a job holds."""
    return {
        node.name: held
        for node in fleet.nodes(stage.platform)
        if (held := [slot.slot for slot in node.slots if slot.exec_id == job])
    }


class TestStart:
    def test_a_gang_of_3_submitted_to_4_slots_that_elastic_jobs_hold_starts_whole(self, stage: Stage) -> None:
        node = stage.node(slots=4)
        elastic = stage.submit(workers=4)
        stage.settle()
        assert stage.holding() == {elastic: 4}
        whole = gang(stage, 3)
        look(stage.platform)
        waiting = why(stage, whole)
        assert (waiting.need, waiting.free, waiting.blocking) == (3, 0, Blocking.VACATING)
        assert waiting.reason == "needs 3 slots at once, 3 are being vacated"
        node.obedient = False
        key = (elastic, 1)
        for allocation in sorted(node.running[key])[-2:]:
            node.gone(key, allocation, ExitKind.LEFT)
        look(stage.platform)
        assert stage.holding() == {elastic: 2}, "its slots add up, and nobody takes them"
        assert why(stage, whole).reason == "needs 3 slots at once, 2 are free and 1 is being vacated"
        node.obedient = True
        stage.settle()
        assert stage.holding() == {elastic: 1, whole: 3}
        assert (stage.job(elastic).fence, stage.job(whole).state) == (1, JobState.RUNNING)
        node.end((whole, 1), ExitKind.FINISHED)
        stage.settle()
        assert stage.job(whole).state is JobState.FINISHED
        assert stage.holding() == {elastic: 4}
        start = history.resizes(stage.platform, whole, viewer=stage.admin)[0]
        assert (start.cause, start.from_slots, start.to_slots) == (ResizeCause.SUBMIT, 0, 3)

    def test_the_slots_of_a_worker_are_on_one_node_and_numbered_in_their_order(self, stage: Stage) -> None:
        for name in ("n1", "n2"):
            stage.node(name, slots=3)
        whole = gang(stage, workers=2, devices=2)
        stage.settle()
        assert slots_of(stage, whole) == {"n1": ["0", "1"], "n2": ["0", "1"]}
        for puppet in stage.puppets:
            (running,) = puppet.running.values()
            assert [running[allocation] for allocation in sorted(running)] == ["0", "1"]

    def test_a_gang_that_cannot_be_placed_leaves_elastic_jobs_as_they_are(self, stage: Stage) -> None:
        stage.node("n1", slots=2, alone=True)
        stage.node("n2", slots=2, alone=True)
        elastic = [stage.submit(workers=2) for _ in range(2)]
        stage.settle()
        whole = gang(stage, 3)
        stage.settle()
        assert stage.holding() == dict.fromkeys(elastic, 2)
        assert why(stage, whole).reason == (
            "needs 3 slots at once, the nodes have room for 2 of them even when nothing else runs"
        )
        larger = gang(stage, 9)
        stage.settle()
        assert why(stage, larger).reason == "needs 9 slots at once, the cluster has 4"

    def test_it_starts_on_all_slots_or_on_none(self, sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        """A GPU breaks when the gang's slots are chosen and not booked yet."""
        node = sqlite_stage.node(slots=3)
        whole = gang(sqlite_stage, 3)
        raise_to = fence_files.raise_to

        def broken(*args: Any) -> None:
            agents.record_usage(sqlite_stage.platform, node.name, [SlotUse("1", problem="it is off the bus")])
            raise_to(*args)

        with monkeypatch.context() as patched:
            patched.setattr(fence_files, "raise_to", broken)
            look(sqlite_stage.platform)
        assert (sqlite_stage.holding(), sqlite_stage.job(whole).fence) == ({}, 0)
        node.join()
        sqlite_stage.settle()
        assert sqlite_stage.holding() == {whole: 3}


class TestRunning:
    def test_elastic_jobs_that_come_later_and_earlier_take_nothing_from_it(self, stage: Stage) -> None:
        node = stage.node(slots=4)
        first = stage.submit(workers=1)
        stage.settle()
        whole = gang(stage, 3)
        stage.settle()
        later = [stage.submit(workers=4) for _ in range(3)]
        stage.settle()
        assert stage.holding() == {first: 1, whole: 3}
        assert [why(stage, job).blocking for job in later] == [Blocking.CAPACITY] * 3
        node.end((first, 1), ExitKind.FINISHED)
        stage.settle()
        assert stage.holding() == {later[0]: 1, whole: 3}

    def test_a_rank_that_has_finished_gives_its_slot_to_others_and_the_gang_gets_nothing_new(
        self, stage: Stage
    ) -> None:
        node = stage.node(slots=4)
        whole = gang(stage, 4)
        stage.settle()
        waiting = stage.submit(workers=4)
        stage.settle()
        key = (whole, 1)
        node.gone(key, min(node.running[key]), ExitKind.FINISHED)
        stage.settle()
        assert stage.holding() == {whole: 3, waiting: 1}
        node.end((waiting, 1), ExitKind.FINISHED)
        stage.settle()
        assert stage.holding() == {whole: 3}

    def test_draining_one_of_its_nodes_moves_all_of_it(self, stage: Stage) -> None:
        for name in ("n1", "n2", "n3"):
            stage.node(name, slots=2)
        whole = gang(stage, workers=2, devices=2)
        stage.settle()
        assert slots_of(stage, whole).keys() == {"n1", "n2"}
        fleet.drain(stage.platform, "n2")
        stage.settle()
        assert slots_of(stage, whole).keys() == {"n1", "n3"}
        found = history.resizes(stage.platform, whole, viewer=stage.admin)
        assert [(each.cause, each.from_slots, each.to_slots) for each in found] == [
            (ResizeCause.SUBMIT, 0, 4),
            (ResizeCause.DRAIN, 4, 0),
            (ResizeCause.RESTART, 0, 4),
        ]

    def test_stopping_a_gang_that_waits_gives_back_what_was_kept_for_it(self, stage: Stage) -> None:
        stage.node(slots=4)
        elastic = stage.submit(workers=4)
        stage.settle()
        whole = gang(stage, 3)
        look(stage.platform)
        execs.stop(stage.platform, whole, viewer=stage.admin)
        stage.settle()
        assert stage.job(whole).state is JobState.KILLED
        assert stage.holding() == {elastic: 4}
