"""Slots are GPUs or CPU stand-ins: what a node says of them, and which jobs get them."""

from __future__ import annotations

import pytest

from edt_scheduler.errors import NodeInvalid
from edt_scheduler.model.nodes import SlotSpec
from edt_scheduler.model.states import JobState
from edt_scheduler.operations import agents, fleet
from edt_scheduler.views import ForeignProcess, SlotUse
from support.puppets import Stage

GPU = SlotSpec("0", "GPU-aaaa", "NVIDIA H200", "NVIDIA H200", 150 << 30, "9.0")
MIG = SlotSpec("1:0", "MIG-bbbb", "NVIDIA H200 MIG 1g.18gb", "NVIDIA H200", 16 << 30, "9.0", "1g.18gb")


def test_a_job_that_asks_for_a_gpu_waits_until_there_is_one_and_says_so(stage: Stage) -> None:
    stage.node("n1", slots=4)
    job, other = stage.submit(device="gpu"), stage.submit()
    stage.settle()
    assert (stage.job(job).state, stage.job(other).state) == (JobState.PENDING, JobState.RUNNING)
    waiting = stage.job(job).waiting
    assert waiting is not None
    assert waiting.reason == "no node with a GPU takes work, and it asks for GPUs (--workerDeviceType gpu)"
    stage.node("n2", offers=(GPU, MIG))
    stage.settle()
    assert stage.job(job).state is JobState.RUNNING
    held = {slot.exec_id for slot in fleet.node(stage.platform, "n2").slots}
    assert held == {job}, "with E known it grows on the other GPU, and on no CPU"


def test_a_job_that_asks_for_cpus_gets_no_gpu(stage: Stage) -> None:
    stage.node("n1", offers=(GPU,))
    job = stage.submit(device="cpu")
    stage.settle()
    waiting = stage.job(job).waiting
    assert waiting is not None
    assert "it asks for CPUs" in waiting.reason
    stage.node("n2", slots=1)
    stage.settle()
    assert [slot.exec_id for slot in fleet.node(stage.platform, "n2").slots] == [job]
    assert [slot.exec_id for slot in fleet.node(stage.platform, "n1").slots] == [None]


def test_what_a_node_says_of_its_gpus_is_shown_and_follows_its_newest_registration(stage: Stage) -> None:
    stage.node("n1", offers=(GPU, MIG))
    whole, part = fleet.node(stage.platform, "n1").slots
    assert (whole.model, whole.memory_total_bytes, whole.compute_capability) == ("NVIDIA H200", 150 << 30, "9.0")
    assert (part.device, part.mig_profile, part.memory_total_bytes) == ("MIG-bbbb", "1g.18gb", 16 << 30)
    stage.node("n1", slots=1)
    (slot,) = fleet.node(stage.platform, "n1").slots
    assert (slot.device, slot.model, slot.memory_total_bytes, slot.compute_capability) == ("cpu", None, None, None)


def test_a_node_offers_one_kind(stage: Stage) -> None:
    with pytest.raises(NodeInvalid, match="GPUs or CPU stand-ins, not both"):
        stage.node("n1", offers=(GPU, SlotSpec("1")))


def test_errors_foreign_processes_and_a_gpu_that_does_not_answer_are_shown_with_the_slot(stage: Stage) -> None:
    stage.node("n1", offers=(GPU, MIG))
    foreign = (ForeignProcess(7, "game"), ForeignProcess(9, "miner"))
    used = SlotUse("0", 0.5, 1, 2, 3.0, 4.0, 5, None, foreign)
    lost = SlotUse("1:0", problem="NVML says 'GPU is lost'")
    agents.record_usage(stage.platform, "n1", [used, lost])
    whole, part = fleet.node(stage.platform, "n1").slots
    assert (whole.use, whole.problem) == (used, None)
    assert (part.use, part.problem) == (SlotUse("1:0"), "NVML says 'GPU is lost'")
    now = stage.clock.now
    series = fleet.usage(stage.platform, "n1", since=now - 1, until=now + 1, points=1)
    assert [each.utilisation for each in series["1:0"]] == [None]


def test_on_a_gpu_that_does_not_answer_nothing_starts_until_it_does(stage: Stage) -> None:
    stage.node("n1", offers=(GPU, MIG))
    well = SlotUse("0", 0.0)
    agents.record_usage(stage.platform, "n1", [well, SlotUse("1:0", problem="lost")])
    job = stage.submit(device="gpu")
    stage.settle()
    assert [slot.exec_id for slot in fleet.node(stage.platform, "n1").slots] == [job, None]
    stage.clock.pass_(15)
    agents.record_usage(stage.platform, "n1", [well, SlotUse("1:0")])
    stage.settle()
    assert [slot.exec_id for slot in fleet.node(stage.platform, "n1").slots] == [job, job]


def test_where_no_gpu_answers_a_job_waits_and_an_agent_that_starts_again_begins_anew(stage: Stage) -> None:
    stage.node("n1", offers=(GPU,))
    agents.record_usage(stage.platform, "n1", [SlotUse("0", problem="lost")])
    job = stage.submit()
    stage.settle()
    waiting = stage.job(job).waiting
    assert waiting is not None
    assert waiting.reason == "no node takes work"
    stage.node("n1", offers=(GPU,))
    stage.settle()
    assert stage.job(job).state is JobState.RUNNING


def test_an_engine_has_the_threads_that_the_nodes_of_its_kind_have_for_each_slot(stage: Stage) -> None:
    stage.node("n1", slots=8)  # 8 cores
    stage.node("n2", offers=(GPU, MIG))
    assert [stage.submitted(device=device).threads for device in ("gpu", "cpu", None)] == [4, 1, 1]
