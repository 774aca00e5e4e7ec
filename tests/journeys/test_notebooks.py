"""A person in a notebook: their model trains as a job of the platform, and is theirs again with the trained weights."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from jupyter_client.manager import start_new_kernel

from support import notebooks
from support.credentials import PASSWORD
from support.journey import platform_in, visit
from support.notebooks import CLASSES, notebook_of
from support.running_platform import Platform

pytestmark = [notebooks.forgiving, pytest.mark.timeout(300)]
PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def shared_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    folder = tmp_path_factory.mktemp("platform")
    with platform_in(folder, EDT_UPLOAD_BYTES="2000000") as platform:
        logged_in = platform.cli("login", "--password-stdin", stdin=f"{PASSWORD}\n")
        assert logged_in.returncode == 0, logged_in.stderr
        yield platform


@pytest.fixture
def platform(shared_platform: Platform) -> Iterator[Platform]:
    with visit(shared_platform) as platform:
        yield platform


def environ_of(platform: Platform) -> Mapping[str, str]:
    """Of a kernel whose user has logged in with `edt login`."""
    own = {name: value for name, value in platform.environ.items() if name != "EDT_ADMIN_PASSWORD"}
    return {**own, "EDT_HOME": str(platform.home)}


def token_of(platform: Platform) -> str:
    found = re.search(r'"token": "([^"]+)"', (platform.folder / "config/edt/login.json").read_text())
    assert found is not None
    return found[1]


def known(platform: Platform, shown: notebooks.Shown) -> list[str]:
    """Ids of the jobs that a notebook has submitted."""
    ids = re.findall(r"Job (edt-\d+) is submitted", shown.text)
    for job in ids:
        platform.checker.acknowledge(job)
        platform.jobs.append(job)
    return ids


def test_the_example_trains_on_the_platform_and_ends_with_the_bits_of_the_same_lines_in_a_script(
    platform: Platform, tmp_path: Path
) -> None:
    example = notebooks.example()
    (tmp_path / "main.py").write_text(notebooks.script_of(example))
    script = platform.submit(tmp_path / "main.py", "--numWorker 4 --msd-env EDT_SEED=0")
    shown = notebooks.run(example, tmp_path, environ_of(platform))
    (job,) = known(platform, shown)

    assert f"Training on the platform {platform.url} (of your login)." in shown.text
    assert f"Job {job} finishes with state FINISHED." in shown.text
    before, after = (float(found) for found in re.findall(r"(?:before|after): ([\d.]+)", shown.text))
    assert before < 0.5
    assert after > 0.9
    (figure,) = shown.figures
    assert figure.startswith(PNG)

    archive = tmp_path / f"downloads/{job}.zip"
    assert f"Save model:  downloads/{job}.zip" in shown.text
    assert archive.stat().st_size > 0

    mine, its = platform.job(job), platform.wait(script, "FINISHED")
    assert mine["digest"] == its["digest"]
    assert mine["num_worker"] == 4

    token = token_of(platform)
    assert token not in shown.whole
    sent = [path for path in (platform.home / "jobs" / job / "_submitted_code").rglob("*") if path.is_file()]
    assert {path.name for path in sent} == {"main.py", "notebook.json", "training.pkl"}
    assert not [path for path in sent if token.encode() in path.read_bytes()]


@pytest.mark.extended
def test_a_cell_whose_job_fails_raises_its_message_and_the_last_lines_of_its_log(
    platform: Platform, tmp_path: Path
) -> None:
    failing = (
        "def broken():\n    raise LookupError('no such table')\n\n"
        "FabricModel(net, broken, functional.cross_entropy, torch.optim.SGD(net.parameters(), 0.1)).train(1, 8, 2)"
    )
    too_large = (
        "large = torch.randn(1_000_000)\n"
        "FabricModel(net, lambda: (data, large), functional.cross_entropy, torch.optim.SGD(net.parameters(), 0.1))"
        ".train(1, 8, 2)"
    )
    given_away = (
        "import json, os\n"
        "token = json.load(open(os.environ['XDG_CONFIG_HOME'] + '/edt/login.json'))['token']\n"
        "FabricModel(net, lambda: (data, token), functional.cross_entropy, torch.optim.SGD(net.parameters(), 0.1))"
        ".train(1, 8, 2)"
    )
    shown = notebooks.run(
        notebook_of(CLASSES, failing, too_large, given_away), tmp_path, environ_of(platform), may_fail=True
    )
    (job,) = known(platform, shown)
    failed, refused, secret = shown.errors
    assert failed.startswith(f"JobFailed: {job}: LookupError: no such table\n--- the last lines of its log ---\n")
    assert "in broken" in failed
    assert f"Job {job} finishes with state ERROR." in shown.text
    assert refused.startswith("NoPlatform: the body is larger than 2000000 bytes. The notebook sends ")
    assert secret.startswith("UsageError: the training: your token of the platform is in a variable that it uses")
    assert platform.job(job)["state"] == "ERROR"


@pytest.mark.extended
def test_workers_of_a_hardware_spec_count_before_the_other_arguments_and_memory_is_noted(
    platform: Platform, tmp_path: Path
) -> None:
    train = (
        "edt_model.train(1, 8, 3, worker_memory='16G', driver_memory='1G', hardware_spec={'nodes': {'num_nodes': 2}})",
        "edt_model.train(1, 8, worker_num=1, worker_device_num=2)",
    )
    shown = notebooks.run(notebook_of(CLASSES, *train), tmp_path, environ_of(platform))
    first, second = (platform.job(job) for job in known(platform, shown))
    assert (first["max_workers"], second["max_workers"]) == (2, 2)
    without_effect = {option["name"] for option in first["options"] if not option["effect"]}
    assert {"--workerMemory", "--driverMemory"} <= without_effect
    assert "worker_memory: no effect" in platform.errors(first["id"])


@pytest.mark.extended
def test_the_stop_button_stops_the_job(platform: Platform, tmp_path: Path) -> None:
    slow = (
        "import time\n\n"
        "class Slow(torch.utils.data.Dataset):\n"
        "    def __len__(self):\n        return 64\n\n"
        "    def __getitem__(self, index):\n        time.sleep(0.05)\n        return data[index]\n\n"
        "FabricModel(net, lambda: (Slow(), None), functional.cross_entropy, torch.optim.SGD(net.parameters(), 0.1))"
        ".train(1000, 8, 2)"
    )
    manager, client = start_new_kernel(env=dict(environ_of(platform)), cwd=str(tmp_path))
    try:
        client.execute(CLASSES + slow)
        text, errors, deadline = "", [], time.monotonic() + 150
        while not errors and time.monotonic() < deadline:
            message = client.get_iopub_msg(timeout=60)
            content = message["content"]
            if message["msg_type"] == "error":
                errors.append(content["ename"])
            elif message["msg_type"] == "stream":
                text += content["text"]
            elif "step" in content.get("data", {}).get("text/plain", "") and "Stopping" not in text:
                manager.interrupt_kernel()
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    found = re.search(r"Stopping job (edt-\d+)\.", text)
    assert found is not None, text
    platform.checker.acknowledge(found[1])
    assert f"Job {found[1]} finishes with state KILLED." in text
    assert errors == ["KeyboardInterrupt"]
    assert platform.job(found[1])["state"] == "KILLED"


@pytest.mark.extended
@pytest.mark.tensorflow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_keras_model_with_a_layer_of_the_notebook_predicts_as_the_file_that_its_job_has_saved(
    platform: Platform, tmp_path: Path, package: str
) -> None:
    define = f"""
import numpy as np
import {package} as keras
from pyedt.fabric_model import FabricModel

inputs = np.random.default_rng(1).normal(size=(64, 4)).astype("float32")
data = inputs, (inputs.sum(1) > 0).astype("int64")


class Twice(keras.layers.Layer):
    def __init__(self, units, **more):
        super().__init__(**more)
        self.units = units

    def build(self, shape):
        self.kernel = self.add_weight(name="kernel", shape=(shape[-1], self.units))

    def call(self, inputs):
        return 2 * inputs @ self.kernel

    def get_config(self):
        return {{**super().get_config(), "units": self.units}}


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.last = Twice(8), keras.layers.Dense(2)

    def call(self, inputs):
        return self.last(self.first(inputs))

    def get_config(self):
        return {{}}


def loss(targets, outputs):
    return keras.losses.sparse_categorical_crossentropy(targets, outputs, from_logits=True)


built, unbuilt = keras.Sequential([keras.Input((4,)), Twice(8), keras.layers.Dense(2)]), Net()
"""
    train = """
import zipfile
for model in (built, unbuilt):
    edt_model = FabricModel(model, lambda: (data, None), loss, keras.optimizers.Adam(0.05))
    edt_model.train(4, 8, 2)
    zipfile.ZipFile(edt_model.download("got")).extractall("got")
    saved = keras.models.load_model(
        "got/train/model_epoch_final.keras", custom_objects={"Twice": Twice, "Net": Net, "loss": loss}
    )
    outputs = model.predict(inputs, verbose=0)
    print("same:", np.array_equal(outputs, saved.predict(inputs, verbose=0)))
    print("right:", (outputs.argmax(1) == data[1]).mean() > 0.7)
"""
    environ = {
        **environ_of(platform),
        "TF_USE_LEGACY_KERAS": str(int(package == "tf_keras")),
        "KERAS_BACKEND": "tensorflow",
    }
    shown = notebooks.run(notebook_of(define, train), tmp_path, environ)
    assert len(known(platform, shown)) == 2
    assert re.findall(r"(?:same|right): (\w+)", shown.text) == ["True"] * 4
