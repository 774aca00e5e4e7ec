"""What a callback remembers comes into its twin in another process, or is refused by the attribute's name."""

from __future__ import annotations

import datetime
import enum
import itertools
import json
import logging
import random
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from callbacks import Callback
from edt_runner.callbacks.hooks import Memory
from edt_runner.errors import StateMismatch, UsageError


class Mood(enum.Enum):
    CALM = 1
    HASTY = 2


class Meter:
    def __init__(self) -> None:
        self.total, self.of = 0.0, [1]


class Slotted:
    __slots__ = ("value",)


class Own:
    """A user's callback: anything goes into ``content``."""

    def __init__(self, content: Any = None) -> None:
        self.content = content
        self.params = {"not": "its own"}


def process() -> tuple[nn.Linear, torch.optim.Optimizer, list[Any]]:
    """What a process has of the model: other objects in each, in the same order."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return model, optimizer, [model, optimizer, *model.parameters()]


def memory_of(owner: Any, known: list[Any] | None = None) -> Memory:
    memory = Memory(owner, "Own", known or [], but_not=["params"])
    memory.freeze()
    return memory


def carried(here: Memory, there: Memory) -> None:
    """By way of JSON and bare tensors, as it travels."""
    record, tensors = here.export()
    there.restore(json.loads(json.dumps(record)), {name: tensor.clone() for name, tensor in tensors.items()})


def twin_of(value: Any, before: Any = None) -> Any:
    """``value`` as it comes into another process's callback, which has ``before`` in its place."""
    here, there = Own(before), Own(before)
    ours, theirs = memory_of(here), memory_of(there)
    here.content = value
    carried(ours, theirs)
    assert there.params == {"not": "its own"}
    return there.content


PLAIN = [
    None,
    True,
    7,
    1 << 80,
    0.1,
    float("inf"),
    "text",
    b"\x00\xff",
    2 - 1j,
    np.float32(0.1),
    np.int64(-3),
    Path("/data/x"),
    datetime.datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - as users write it
    datetime.date(2026, 1, 2),
    Mood.HASTY,
    [1, [2.5, (3, "x")]],
    (),
    {1, 2},
    frozenset({"a"}),
    deque([1, 2], maxlen=2),
    {"a": 1, 2: "b", (3, None): [4]},
    OrderedDict(b=1, a=2),
    Counter("aab"),
    logging.getLogger,
    Meter,
]


def named(value: Any) -> str:
    """Without the address that the repr of a function has."""
    return str(getattr(value, "__name__", repr(value)))


@pytest.mark.parametrize("value", PLAIN, ids=named)
def test_plain_data_travels_as_it_is(value: Any) -> None:
    twin = twin_of(value)
    assert twin == value
    assert type(twin) is type(value)


def test_a_number_that_is_none_travels() -> None:
    assert np.isnan(twin_of(float("nan")))


def test_a_mapping_with_a_default_keeps_it() -> None:
    twin = twin_of(defaultdict(list, {"a": [1]}))
    twin["b"].append(2)
    assert twin == {"a": [1], "b": [2]}


@pytest.mark.parametrize(
    "array",
    [np.arange(6.0).reshape(2, 3).T, np.array(3, np.int8), np.array([], bool), np.array(["ab", "c"])],
    ids=["turned", "scalar", "empty", "strings"],
)
def test_arrays_travel_to_the_bit(array: np.ndarray[Any, Any]) -> None:
    twin = twin_of({"best": [array]})["best"][0]
    assert twin.dtype == array.dtype and twin.shape == array.shape and (twin == array).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_tensors_travel_to_the_bit(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[0, 1], [1, 0]]).to(dtype).T
    twin = twin_of([tensor])[0]
    assert twin.dtype == dtype and torch.equal(twin, tensor)


def test_what_two_names_share_is_shared_by_the_twin() -> None:
    shared = [1]
    twin = twin_of({"a": shared, "b": [shared]})
    twin["a"].append(2)
    assert twin["b"] == [[1, 2]]


def test_a_part_of_the_model_is_the_same_part_of_the_twins_model() -> None:
    here, there = Own(), Own()
    model, _, known = process()
    twin_model, twin_optimizer, twin_known = process()
    ours, theirs = memory_of(here, known), memory_of(there, twin_known)
    here.content = {"layer": model, "rates": {model.weight: 0.5}, "optimizer": known[1]}
    carried(ours, theirs)
    assert there.content["layer"] is twin_model and there.content["optimizer"] is twin_optimizer
    assert list(there.content["rates"]) == [twin_model.weight]


def test_a_scheduler_goes_on_where_its_twin_is() -> None:
    callbacks = []
    for _ in range(2):
        _, optimizer, known = process()
        own = Own(torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3], 0.1))
        callbacks.append((own, memory_of(own, known)))
    (here, ours), (there, theirs) = callbacks
    for _ in range(2):
        here.content.optimizer.step()
        here.content.step()
    carried(ours, theirs)
    assert there.content.state_dict() == here.content.state_dict()
    assert there.content is not here.content


def test_objects_of_the_scripts_own_classes_travel_by_their_attributes() -> None:
    here, there = Own([Meter()]), Own([Meter()])
    ours, theirs, first = memory_of(here), memory_of(there), there.content[0]
    here.content[0].total = 2.5
    here.content.append(Meter())  # and made, where the twin has none
    carried(ours, theirs)
    assert there.content[0] is first and first.total == 2.5
    assert type(there.content[1]) is Meter and there.content[1].of == [1]


def test_a_resource_stays_where_it_is() -> None:
    functions = [lambda: 1, lambda: 2]
    here, there = Own([functions[0], logging.getLogger("here")]), Own([functions[1], logging.getLogger("there")])
    carried(memory_of(here), memory_of(there))
    assert there.content == [functions[1], logging.getLogger("there")]


def test_an_attribute_that_is_gone_goes_from_the_twin() -> None:
    here, there = Own(1), Own(1)
    ours, theirs = memory_of(here), memory_of(there)
    del here.content
    carried(ours, theirs)
    assert not hasattr(there, "content") and there.params == {"not": "its own"}


def test_a_callback_with_a_state_dict_says_its_state_itself() -> None:
    class Telling(Own):
        def state_dict(self) -> dict[str, Any]:
            return {"twice": self.content * 2}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.content = state["twice"]

    here, there = Telling(3), Telling(0)
    carried(memory_of(here), memory_of(there))
    assert there.content == 6


def test_large_data_of_the_script_travel_only_once_a_hook_has_changed_them() -> None:
    """Else a callback's validation set would be in every checkpoint."""
    for make in (lambda: np.zeros(1 << 18), lambda: torch.zeros(1 << 18)):
        here, there = Own({"x": make()}), Own({"x": make()})
        ours, theirs = memory_of(here), memory_of(there)
        assert ours.export()[1] == {}
        own = there.content["x"]
        carried(ours, theirs)
        assert there.content["x"] is own
        here.content["x"][3] = 1.0
        carried(ours, theirs)
        assert there.content["x"][3] == 1.0


def test_a_callback_of_the_script_may_have_others_in_it() -> None:
    class Inner(Callback):
        count = 0

    here, there = Own([Inner()]), Own([Inner()])
    ours, theirs = memory_of(here), memory_of(there)
    here.content[0].count = 3
    carried(ours, theirs)
    assert there.content[0].count == 3


class Subclassed(dict[str, int]):
    pass


class Handler(logging.Handler):
    pass


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda: 1, ["Own.content became another function", "made in a hook"]),
        (logging.getLogger("late"), ["Own.content became a logging.Logger", "on_train_begin"]),
        ([torch.optim.lr_scheduler.StepLR(process()[1], 1)], ["Own.content[0] became a torch", "on_train_begin"]),
        (random.Random(1), ["Own.content is a random generator", "the global one"]),
        (np.random.default_rng(1), ["Own.content is a random generator"]),
        ({"next": itertools.count()}, ["Own.content['next'] is an iterator", "keep the number"]),
        (Subclassed(a=1), ["Own.content is a", "Subclassed", "a plain one"]),
        (Slotted(), ["Slotted", "state_dict() and load_state_dict"]),
        (Handler(), ["Handler", "builds on a library's class"]),
        (np.array([object()]), ["an array of object"]),
        (torch.eye(2).to_sparse(), ["sparse", "dense"]),
    ],
    ids=lambda value: "" if isinstance(value, list) else type(value).__name__,
)
def test_what_cannot_travel_is_refused_by_name(value: Any, words: list[str]) -> None:
    own = Own()
    memory = memory_of(own)
    own.content = value
    with pytest.raises(UsageError) as caught:
        memory.export()
    assert all(word in str(caught.value) for word in ["user_callback: ", *words]), str(caught.value)


@pytest.mark.parametrize("view", [lambda w: w.detach(), lambda w: w[1], lambda w: w.detach().numpy()])
def test_a_view_of_the_models_memory_is_refused_since_a_twins_copy_would_not_move_with_it(view: Any) -> None:
    """The state_dict() of a model without a clone: remembered so, the best weights are the newest ones."""
    model, _, known = process()
    own = Own()
    memory = memory_of(own, known)
    own.content = {"best": view(model.weight)}
    with pytest.raises(UsageError, match=r"Own\.content\['best'\] is a view of the model's .*keep a copy"):
        memory.export()
    own.content = {"best": view(model.weight.clone())}
    memory.export()


def test_a_twin_that_was_made_otherwise_is_a_mismatch() -> None:
    here, there = Own([logging.getLogger("here")]), Own([])
    ours, theirs = memory_of(here), memory_of(there)
    record, tensors = ours.export()
    with pytest.raises(StateMismatch, match=r"Own\.content\[0\] is there in the training and not in this process"):
        theirs.restore(record, tensors)


def test_a_list_that_stands_in_the_class_is_remembered_too() -> None:
    class Careless(Callback):
        losses: list[float] = []  # noqa: RUF012 - as users write it

    class Twin(Callback):
        losses: list[float] = []  # noqa: RUF012 - of another process

    here, there = Careless(), Twin()
    ours, theirs = memory_of(here), memory_of(there)
    here.losses.append(0.5)
    carried(ours, theirs)
    assert there.losses == [0.5]


@pytest.mark.parametrize("make", [lambda: np.zeros(1 << 18), lambda: torch.zeros(1 << 19)])
def test_a_large_array_that_was_changed_and_changed_back_is_so_in_a_twin_that_had_it_between(make: Any) -> None:
    here, there, late = Own(make()), Own(make()), Own(make())
    ours, theirs, latest = memory_of(here), memory_of(there), memory_of(late)
    here.content[0] = 1
    carried(ours, theirs)
    assert there.content[0] == 1
    here.content[0] = 0
    carried(ours, theirs)
    carried(ours, latest)
    assert there.content[0] == 0
    assert list(ours.export()[1]) == list(theirs.export()[1]) == list(latest.export()[1])
