"""What `edt nodes` says of GPUs."""

from __future__ import annotations

from edt_api.schemas.cluster import ForeignProcess, Node, Slot
from edt_cli.cluster import devices, troubles


def slot(name: str, device: str, **facts: object) -> Slot:
    held = {"exec_id": None, "busy": False, "leaving": False}
    return Slot.model_validate({"slot": name, "device": device, "label": "", **held, **facts})


def node(*slots: Slot) -> Node:
    return Node(name="n1", host="h", cores=2, health="up", registered_at=0, seen_at=0, slots=list(slots))


H200 = {"model": "NVIDIA H200", "memory_total_bytes": 150_000_000_000}


def test_devices_are_counted_by_model_memory_and_profile() -> None:
    part = slot("2:0", "MIG-c", **H200 | {"mig_profile": "1g.18gb", "memory_total_bytes": 17_000_000_000})
    found = devices(node(slot("0", "GPU-a", **H200), slot("1", "GPU-b", **H200), part))
    assert found.startswith("2 NVIDIA H200 (")
    assert ", 1 NVIDIA H200 MIG 1g.18gb (" in found
    assert devices(node(slot("0", "cpu"), slot("1", "cpu"))) == "2 CPU"
    assert devices(node(slot("0", "GPU-a", label="NVIDIA A100"))) == "1 NVIDIA A100", "an agent of before"


def test_what_is_wrong_with_a_gpu_is_a_sentence() -> None:
    others = [ForeignProcess(pid=7, name="game"), ForeignProcess(pid=8, name="")]
    bad = slot("0", "GPU-a", ecc_errors=1, foreign_processes=others)
    lost = slot("1:0", "MIG-b", problem="NVML says 'GPU is lost'")
    assert troubles(node(slot("2", "GPU-c", **H200))) == []
    assert troubles(node(bad, lost)) == [
        "GPU 0 had 1 error in its memory that could not be corrected",
        "GPU 0 is also used by game (7), a process (8), of no job",
        "GPU 1:0 does not answer: NVML says 'GPU is lost'",
    ]
