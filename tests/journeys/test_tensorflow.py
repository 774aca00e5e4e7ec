"""A Keras training through the whole platform, beside one in PyTorch."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from support.journey import platform_in, submit
from support.running_platform import EXECS


@pytest.mark.tensorflow
@pytest.mark.timeout(300)  # TensorFlow is imported three times, and a machine may be busy
def test_a_keras_training_makes_room_for_one_in_pytorch_and_its_model_can_be_fetched(
    undisturbed: Callable[..., str], tmp_path: Path
) -> None:
    expected = undisturbed(3, "tensorflow")
    with platform_in(tmp_path, slots=2, EDT_WARM="tensorflow") as platform:
        keras = submit(platform, "keras", "--numWorker 2", "--epochs 3", "tensorflow")
        keras.until_slots(2, seconds=120)
        torch = submit(platform, "torch", "--numWorker 1", "--epochs 1")
        keras.until_slots(1)
        torch.finish()
        keras.until_slots(2)
        end = keras.finish()
        assert (end["framework"], end["attempts"]) == ("edtTensorflow", 1)
        assert end["exactness"]["verdict"] != "not-exact", end["exactness"]["reason"]
        assert end["digest"] == expected
        assert [resize["to_slots"] for resize in platform.resizes(keras.id)][:4] == [1, 2, 1, 2]

        answer = platform.api.get(f"{EXECS}/{keras.id}/result")
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            held = archive.namelist()
            model = zipfile.ZipFile(io.BytesIO(archive.read("train/model_epoch_final.keras")))
        assert "model.weights.h5" in model.namelist()
        assert "train/model_epoch_final/saved_model.pb" in held
