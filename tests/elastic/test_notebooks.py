"""A notebook where there is no platform: the same training on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from jupyter_client.manager import start_new_kernel

from support import notebooks
from support.notebooks import CLASSES, notebook_of
from support.nursery import RUNNERS, TESTS
from support.waiting import until

pytestmark = [notebooks.forgiving, pytest.mark.extended, pytest.mark.timeout(300)]
DIGEST = """
import hashlib

print("digest:", hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest())
"""


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    """Of a kernel on a machine that knows no platform."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("EDT_")}
    return {
        **own,
        "PYTHONPATH": f"{TESTS}:{RUNNERS}",
        "EDT_CPU_SLOTS": "2",
        "EDT_DEVICES": "cpu",
        "GLOO_SOCKET_IFNAME": "lo",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }


def test_without_a_platform_the_example_trains_here_and_ends_with_the_bits_of_a_script(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    example = notebooks.example()
    example.cells += notebook_of(DIGEST).cells
    script = tmp_path / "script/main.py"
    script.parent.mkdir()
    script.write_text(notebooks.script_of(example))
    plain = subprocess.run(
        [sys.executable, script], cwd=script.parent, env=environ, capture_output=True, text=True, check=True
    )
    shown = notebooks.run(example, tmp_path, environ)

    assert "Training on this machine: no platform is known here." in shown.text
    assert "Job notebook-1 finishes with state FINISHED." in shown.text
    assert re.search(r"-END TRAINING: completed \d+ iterations in [\d.]+ seconds\.-", shown.text)
    assert re.search(r"epoch 3/3 · step 69/69 · .* · \d workers?", shown.text)
    (found,) = re.findall(r"digest: (\w+)", shown.text)
    assert found == re.findall(r"digest: (\w+)", plain.stdout)[-1]
    assert float(re.findall(r"after: ([\d.]+)", shown.text)[0]) > 0.9
    assert len(shown.figures) == 1
    assert "Save model:  downloads/notebook-1.zip" in shown.text
    assert (tmp_path / "downloads/notebook-1.zip").stat().st_size > 0


def test_a_failure_is_the_cells_own_and_the_next_training_goes_on_with_the_trained_weights(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    (tmp_path / "helpers.py").write_text("class Scale:\n    factor = 3\n")
    failing = (
        "def broken():\n    raise LookupError('no such table')\n\n"
        "FabricModel(net, broken, functional.cross_entropy, torch.optim.SGD(net.parameters(), 0.1)).train(1, 8, 2)"
    )
    twice = """
import helpers
from pyedt.callbacks import Callback

def right():
    return (net(inputs).argmax(1) == data.tensors[1]).double().mean().item()

class Says(Callback):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def on_epoch_end(self, epoch, save_model=False):
        assert self.scale.factor == 3

edt_model = FabricModel(
    net, lambda: (data, data), functional.cross_entropy, torch.optim.SGD(net.parameters(), 0.1),
    user_callback=Says(helpers.Scale()),
)
shares = [right()]
for _ in range(2):
    edt_model.train(8, 8, 1)
    shares.append(right())
print("better:", shares[0] < shares[1] <= shares[2], edt_model.job)
"""
    shown = notebooks.run(notebook_of(CLASSES, failing, twice), tmp_path, environ, may_fail=True)
    assert shown.errors == ["JobFailed: notebook-1: LookupError: no such table"]
    assert "better: True notebook-3" in shown.text


def test_a_training_ends_with_its_kernel(tmp_path: Path, environ: Mapping[str, str]) -> None:
    slow = (
        "import os, time\n\n"
        "class Slow(torch.utils.data.Dataset):\n"
        "    def __len__(self):\n        return 64\n\n"
        "    def __getitem__(self, index):\n"
        "        open(f'pids/{os.getpid()}', 'w').close()\n        time.sleep(0.02)\n        return data[index]\n\n"
        "os.mkdir('pids')\n"
        "FabricModel(net, lambda: (Slow(), None), functional.cross_entropy, torch.optim.SGD(net.parameters(), 0.1))"
        ".train(1000, 8, 2)"
    )
    manager, client = start_new_kernel(env=dict(environ), cwd=str(tmp_path))
    try:
        client.execute(CLASSES + slow)
        until(lambda: (tmp_path / "pids").is_dir() and any((tmp_path / "pids").iterdir()), 120, "an engine trains")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    time.sleep(0.1)
    pids = [int(path.name) for path in (tmp_path / "pids").iterdir()]
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 30, "the engines are gone")
