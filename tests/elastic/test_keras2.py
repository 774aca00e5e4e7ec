"""A script of Keras 2's time: what it is told on Keras 3, and its training where it asked for Keras 2."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edt_runner.launch.supervisor_client import spawn
from support.nursery import RUNNERS, TESTS
from support.training import Elastic, spec_for

OLD = """
import numpy as np
from keras.layers import Dense, Dropout, Flatten
from keras.models import Sequential
from keras.optimizers import SGD
from keras.preprocessing.image import ImageDataGenerator
from keras.utils import to_categorical
from fabric_model import FabricModel
from support.gate import Gate

def get_dataset():
    images = np.random.RandomState(1).rand(48, 8, 8, 1)
    labels = to_categorical(np.arange(48) % 3, 3)
    generator = ImageDataGenerator(horizontal_flip=True, width_shift_range=0.1)
    return generator.flow(images, labels, batch_size=6), generator.flow(images[:8], labels[:8], batch_size=3)

model = Sequential()
model.add(Flatten(input_shape=(8, 8, 1)))
model.add(Dense(8, activation="relu"))
model.add(Dropout(0.2))
model.add(Dense(3, activation="softmax"))
FabricModel(
    model, get_dataset, loss_function="categorical_crossentropy", optimizer=SGD(lr=0.1, momentum=0.9),
    worker_logger_callback=Gate.from_environment(),
).train(4, 4, 4)
print(type(model).__module__, round(float(model.optimizer.lr), 4))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "old.py"
    path.write_text(OLD)
    return path


@pytest.mark.tensorflow
def test_on_keras_3_the_jobs_error_says_what_would_help(attempt: Callable[..., Elastic], script: Path) -> None:
    with attempt(script, framework="tensorflow") as training:
        training.hold([1])
        end = training.finish()
    assert end["kind"] == "script-error"
    assert end["message"].startswith("ImportError: cannot import name 'ImageDataGenerator'")
    assert end["message"].endswith("submitted with --msd-env TF_USE_LEGACY_KERAS=1")
    assert "TF_USE_LEGACY_KERAS=1." in (training.log_dir / "driver.err").read_text()


@pytest.mark.extended
@pytest.mark.tensorflow
@pytest.mark.timeout(300)  # two supervisors, their drivers and engines start from nothing
def test_with_keras_2_it_trains_and_ends_with_the_same_bits_on_any_engines(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{TESTS}:{RUNNERS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    environ = {"TF_USE_LEGACY_KERAS": "1"}
    plans = {"alone": [[1]], "resized": [[1], [1, 2], [2]]}
    specs = [spec_for(tmp_path / name, script, framework="tensorflow", environ=environ) for name in plans]
    digests = []
    with contextlib.ExitStack() as stack:
        trainings = [stack.enter_context(Elastic(spec, spawn)) for spec in specs]  # both import at a time
        for training, plan in zip(trainings, plans.values(), strict=True):
            for engines in plan:
                training.settle(engines, 120)
            end = training.finish(120)
            assert (end["kind"], end["message"]) == ("finished", "")
            digests.append(end["digest"])
            first, *_, last = (training.log_dir / "driver.out").read_text().splitlines()
            assert first == "Using tensorflow backend."
            assert last == "tf_keras.src.engine.sequential 0.1", "lr counts"
    assert digests[0] == digests[1] is not None
