"""What a step frees, the next one has without asking the kernel."""

from __future__ import annotations

import subprocess
import sys

_FAULTS = """
import resource, torch
from edt_contract.processes import keep_freed_memory
if {environ} is not None:
    keep_freed_memory({environ})
torch.set_num_threads(1)
def step():
    return len([torch.ones(12 << 20) for _ in range(3)])  # 48 MiB each: by itself glibc always maps them anew
for _ in range(12):  # until all have found their places
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

OF_A_STEP = 3 * (48 << 20) // 4096


def faults(environ: dict[str, str] | None) -> int:
    words = [sys.executable, "-c", _FAULTS.format(environ=environ)]
    return int(subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout)


def test_a_step_finds_the_memory_of_the_one_before() -> None:
    assert faults({}) < OF_A_STEP / 20
    assert faults(None) > OF_A_STEP / 2


def test_a_user_who_wants_it_given_back_is_heard() -> None:
    asked = {"MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_MMAP_THRESHOLD_": "131072"}
    assert faults(asked) > OF_A_STEP / 2
