"""The GPUs of the machine itself, through the driver's own NVML. Needs pynvml, pytest and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pynvml
import pytest

from edt_agent import gpus
from edt_agent.gpu_processes import Ours, foreign
from edt_contract.frameworks import supervisor_environ

FORKING = """
import os
from pathlib import Path
from edt_runner import frameworks

frameworks.by_name("pytorch").warm()
import torch

opened = [os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
print("parent", torch.cuda.is_initialized(), any(name.startswith("/dev/nvidia") for name in opened), flush=True)
print("sees", torch.cuda.is_available(), torch.cuda.is_initialized(), flush=True)
if os.fork() == 0:
    print("child", float(torch.ones(3, device="cuda").sum()), flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.cuda
def test_the_real_gpus_of_this_machine_answer() -> None:
    pynvml.nvmlInit()
    boards = pynvml.nvmlDeviceGetCount()
    pynvml.nvmlShutdown()
    found = gpus.find()
    assert len({gpu.board for gpu in found}) == boards > 0
    for gpu in found:
        assert gpu.uuid.startswith(("GPU-", "MIG-"))
        assert "NVIDIA" in gpu.model.upper()
        assert gpu.memory_total_bytes is not None and gpu.memory_total_bytes > 1 << 30
        assert gpu.compute_capability is not None and float(gpu.compute_capability) >= 3
        assert (gpu.mig_profile is not None) == (":" in gpu.index)
    watch = gpus.Watch(tuple(gpu.uuid for gpu in found))
    for uuid, now in watch.conditions().items():
        assert now.problem is None, uuid
        assert now.memory_bytes is not None and now.memory_total_bytes is not None
        assert 0 <= now.memory_bytes <= now.memory_total_bytes
        assert now.utilisation is None or 0 <= now.utilisation <= 1
        assert now.temperature_c is None or 0 < now.temperature_c < 120
        assert now.power_watts is None or now.power_watts > 0
        assert now.ecc_errors is None or now.ecc_errors >= 0
        assert all(each.pid in now.processes for each in foreign(now.processes, Ours({os.getpid()})))
    chosen = gpus.visible(found, found[0].uuid)
    assert chosen == found[:1]


@pytest.mark.cuda
def test_a_process_that_has_loaded_torch_and_looked_for_gpus_still_forks_children_that_use_them() -> None:
    environ = os.environ | supervisor_environ("pytorch")
    done = subprocess.run([sys.executable, "-c", FORKING], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["parent False False", "sees True False", "child 3.0"], done.stderr
