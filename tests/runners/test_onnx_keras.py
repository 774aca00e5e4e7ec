"""A trained Keras model, of either version, as ONNX file, which onnxruntime runs here for other numbers of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edt_runner import context
from edt_runner.frameworks import onnx_export
from fabric_model import FabricModel

keras: Any = pytest.importorskip("keras")
keras2: Any = pytest.importorskip("tf_keras")
tf: Any = pytest.importorskip("tensorflow")
onnxruntime: Any = pytest.importorskip("onnxruntime")
pytest.importorskip("tf2onnx")
pytestmark = pytest.mark.tensorflow
both_versions = pytest.mark.parametrize(
    "version", [keras, pytest.param(keras2, marks=pytest.mark.extended)], ids=["keras", "tf_keras"]
)
Rows = Any


@pytest.fixture(autouse=True)
def no_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "remark", "")


def numbers(*shape: int) -> Rows:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def exported(folder: Path, net: Any, train: Any, loss: Any = "mse") -> Path:
    """Write the model as after a training. Returns the path of the file."""
    trainable = FabricModel(net, lambda: (train, None), loss, "sgd")._trainable
    samples = trainable.samples(train, None, 0, None)
    trainable.adapter(samples, on_device=False)  # builds the model, as in every training
    onnx_export.write("save_to_onnx", trainable, samples, folder)
    return folder / "model.onnx"


def run(path: Path, **inputs: Rows) -> dict[str, Rows]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def close(found: Rows, expected: Any) -> bool:
    return np.allclose(found, np.asarray(expected), rtol=1e-4, atol=1e-6)


@both_versions
def test_a_functional_model_is_written_in_inference_mode_and_stays_as_it_was(
    version: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = version.layers
    image = version.Input((8, 8, 1), name="image")
    hidden = layers.BatchNormalization()(layers.Conv2D(4, 3)(image))
    hidden = layers.Dropout(0.5)(layers.Flatten()(layers.MaxPooling2D()(layers.ReLU()(hidden))))
    net = version.Model(image, layers.Dense(3, activation="softmax")(hidden))
    norm = next(layer for layer in net.layers if isinstance(layer, layers.BatchNormalization))
    norm.set_weights([weight + 0.5 for weight in norm.get_weights()])  # other averages than a batch's own
    before = net.get_weights()
    train = numbers(10, 8, 8, 1), np.arange(10) % 3
    path = exported(tmp_path, net, train, "sparse_categorical_crossentropy")
    assert all(map(np.array_equal, net.get_weights(), before))
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    images = numbers(7, 8, 8, 1)
    assert close(run(path, input=images)["output"], net(images, training=False))
    printed = capsys.readouterr()
    begun, done = printed.err.splitlines()
    assert not printed.out and begun == "edt: model.onnx is being written."
    assert "input [batch, 8, 8, 1] -> output [batch, 3]" in done
    assert not context.remark


@both_versions
def test_a_subclassed_model_keeps_the_names_of_its_inputs_and_outputs(version: Any, tmp_path: Path) -> None:
    layers = version.layers

    class Written(version.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.dense = layers.Embedding(20, 4), layers.Dense(2)
            self.drop = layers.Dropout(0.5)

        def call(self, inputs: Any, training: bool = False) -> Any:
            hidden = tf.reduce_mean(self.words(inputs["words"]), 1)
            scores = self.dense(self.drop(hidden, training=training))
            return {"scores": scores, "moved": scores + inputs["more"]}

    net = Written()
    words = np.random.default_rng(0).integers(0, 20, (9, 5), dtype=np.int32)
    x, y = {"words": words, "more": numbers(9, 2)}, {"scores": numbers(9, 2), "moved": numbers(9, 2)}
    path = exported(tmp_path, net, (x, y), {"scores": "mse", "moved": "mse"})
    rows = {"words": words[:4], "more": numbers(4, 2)}
    expected = net(rows, training=False)
    found = run(path, **rows)
    assert close(found["scores"], expected["scores"]) and close(found["moved"], expected["moved"])


class Inverse(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(4)

    def call(self, x: Any) -> Any:
        return tf.linalg.inv(self.dense(x))


class ByValue(Inverse):
    def call(self, x: Any) -> Any:
        scores = self.dense(x)
        rounds = tf.cast(tf.reduce_sum(tf.abs(scores)), tf.int32)
        return tf.while_loop(lambda done, _: done < rounds, lambda done, y: (done + 1, y * 1.5), (0, scores))[1]


class InPython(Inverse):
    def call(self, x: Any) -> Any:
        found = tf.numpy_function(lambda rows: rows * 2, [self.dense(x)], tf.float32)
        found.set_shape([None, 4, 4])
        return self.dense(found)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Inverse, "ONNX has no counterpart of TensorFlow's MatrixInverse"),
        (InPython, "ONNX has no counterpart of TensorFlow's PyFunc"),
    ],
)
def test_what_cannot_be_written_leaves_no_file_and_a_sentence_that_says_why(
    kind: Any, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.onnx").write_text("of an earlier training")
    exported(tmp_path, kind(), (numbers(9, 4, 4), numbers(9, 4, 4)))
    assert not list(tmp_path.iterdir())
    assert context.remark == f"save_to_onnx: model.onnx is not written, because {why}"
    assert capsys.readouterr().err.splitlines()[1:] == [f"edt: {context.remark}. The model's other files are complete."]


@pytest.mark.extended
def test_a_loop_over_values_of_tensors_is_written(tmp_path: Path) -> None:
    net = ByValue()
    path = exported(tmp_path, net, (numbers(9, 4, 4), numbers(9, 4, 4)))
    rows = numbers(5, 4, 4)
    assert close(run(path, input=rows)["output"], net(rows))


@pytest.mark.extended
@both_versions
def test_a_model_that_computes_with_16_bits_may_differ_by_their_precision(version: Any, tmp_path: Path) -> None:
    policy = (version.mixed_precision.DTypePolicy if version is keras else version.mixed_precision.Policy)(
        "mixed_float16"
    )
    layers = version.layers
    net = version.Sequential(
        [
            version.layers.InputLayer(**{"shape" if version is keras else "input_shape": (64,)}),
            *(layers.Dense(64, activation="relu", dtype=policy) for _ in range(4)),
            layers.Dense(3, dtype="float32"),
        ]
    )
    path = exported(tmp_path, net, (numbers(9, 64), numbers(9, 3)))
    rows = numbers(5, 64)
    assert np.allclose(run(path, input=rows)["output"], net(rows), rtol=0.05, atol=1e-3)
