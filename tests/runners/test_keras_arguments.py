"""What a Keras user gives to FabricModel: taken in every form that Keras takes, else named with what it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edt_runner.errors import UsageError
from edt_runner.frameworks.tensorflow.adapter import TensorFlowAdapter
from fabric_model import FabricModel

pytest.importorskip("tensorflow")


@pytest.fixture(params=["keras", "tf_keras"], scope="module")
def keras(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


def net(keras: Any) -> Any:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])


def good(keras: Any, **changes: Any) -> dict[str, Any]:
    return {
        "model": net(keras),
        "datasets_function": lambda: ([], []),
        "loss_function": "sparse_categorical_crossentropy",
        "optimizer": "adam",
        **changes,
    }


def names(model: FabricModel) -> set[str]:
    """Of what is told of a step."""
    probe = np.zeros((2, 4), np.float32), np.zeros(2, np.int64)
    trainable: Any = model._trainable
    adapter = TensorFlowAdapter(trainable.keras, trainable.model, probe)
    return set(adapter.values([1.0] * adapter.width))


WRONG: list[tuple[Any, list[str]]] = [
    (lambda k: {"model": k.Sequential}, ["model", "the class Sequential", "keras.Model"]),
    (lambda k: {"loss_function": None}, ["loss_function", "None", "name of a Keras loss"]),
    (lambda k: {"loss_function": "mze"}, ["loss_function", "'mze'", "name of a Keras loss"]),
    (lambda k: {"loss_function": k.losses.MeanSquaredError}, ["loss_function", "MeanSquaredError", "an instance"]),
    (lambda k: {"loss_function": {"a": "mse", "b": 3}}, ["loss_function['b']", "got 3"]),
    (lambda k: {"optimizer": "adan"}, ["optimizer", "'adan'", "'adam'"]),
    (lambda k: {"optimizer": k.optimizers.Adam}, ["optimizer", "the class Adam", "an instance"]),
    (lambda k: {"optimizer": 0.1}, ["optimizer", "got 0.1", "keras.optimizers.Optimizer"]),
    (lambda k: {"metrics": "accuracy"}, ["metrics", "'accuracy'", "a list or dict"]),
    (lambda k: {"metrics": ["acuracy"]}, ["metrics[0]", "'acuracy'", "name of a Keras metric"]),
    (lambda k: {"metrics": ["mae", k.metrics.AUC]}, ["metrics[1]", "the class AUC", "an instance"]),
    (lambda k: {"metrics": [3]}, ["metrics[0]", "got 3"]),
    (lambda k: {"keras_custom_objects": [3]}, ["keras_custom_objects", "list", "a dict"]),
    (lambda k: {"keras_custom_objects": {"mine": 3}}, ["keras_custom_objects['mine']", "got 3"]),
    (lambda k: {"fn_batch_collate": 1}, ["fn_batch_collate", "a function"]),
    (lambda k: {"fn_step_train": print}, ["fn_step_train", "takes None", "keras.Model", "train_step"]),
    (lambda k: {"fn_test": print}, ["fn_test", "takes None", "keras.Model", "test_step"]),
]


@pytest.mark.parametrize(("changes", "words"), WRONG)
def test_what_is_wrong_is_named(keras: Any, changes: Any, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        FabricModel(**good(keras, **changes(keras)))
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_an_optimizer_of_the_other_generation_is_refused(keras: Any) -> None:
    other = pytest.importorskip({"keras": "tf_keras", "tf_keras": "keras"}[keras.__name__])
    with pytest.raises(UsageError, match=f"takes a {keras.__name__}.optimizers.Optimizer"):
        FabricModel(**good(keras, optimizer=other.optimizers.Adam()))


@pytest.mark.parametrize("name", ["make_train_function", "make_test_function"])
def test_a_loop_of_the_users_own_is_refused_with_its_reason(keras: Any, name: str) -> None:
    own = type("Own", (keras.Sequential,), {name: lambda self, *given: None})
    with pytest.raises(UsageError, match=f"model: Own has a {name} of its own, which would not be called"):
        FabricModel(**good(keras, model=own([keras.Input((4,)), keras.layers.Dense(3)])))


def test_losses_optimizers_and_metrics_are_taken_in_every_form(keras: Any) -> None:
    def half(y_true: Any, y_pred: Any) -> Any:
        return 0.5 * keras.losses.sparse_categorical_crossentropy(y_true, y_pred)

    def first(y_true: Any, y_pred: Any) -> Any:
        return y_pred[:, 0]

    losses = ["sparse_categorical_crossentropy", keras.losses.SparseCategoricalCrossentropy(), half]
    optimizers = [
        "sgd",
        keras.optimizers.Adam(0.1),
        keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(1.0, 9)),
    ]
    metrics = [["acc", first], [keras.metrics.SparseCategoricalAccuracy(name="right"), first], [first]]
    found = [
        names(FabricModel(net(keras), lambda: ([], []), loss, optimizer, metric))
        for loss, optimizer, metric in zip(losses, optimizers, metrics, strict=True)
    ]
    assert found == [{"loss", "acc", "first"}, {"loss", "right", "first"}, {"loss", "first"}]


def test_without_metrics_accuracy_is_told_where_classes_are_scored(keras: Any) -> None:
    assert names(FabricModel(**good(keras))) == {"loss", "accuracy"}
    assert names(FabricModel(**good(keras, metrics=[]))) == {"loss"}
    loss = keras.losses.SparseCategoricalCrossentropy()
    assert names(FabricModel(**good(keras, loss_function=loss))) == {"loss", "accuracy"}
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    assert names(FabricModel(**good(keras, model=model, loss_function="mse"))) == {"loss"}


def test_custom_objects_can_be_named(keras: Any) -> None:
    def tripled(y_true: Any, y_pred: Any) -> Any:
        return 3 * keras.losses.sparse_categorical_crossentropy(y_true, y_pred)

    class Twice(keras.optimizers.SGD):  # type: ignore[name-defined,misc]
        pass

    objects = {"tripled": tripled, "Twice": Twice}
    taken = good(keras, loss_function="tripled", optimizer="Twice", metrics=["tripled"], keras_custom_objects=objects)
    model = FabricModel(**taken)
    assert isinstance(model.model.optimizer, Twice)
    assert names(model) == {"loss", "tripled"}
