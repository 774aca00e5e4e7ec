"""What an object of a user's remembers, as plain JSON and tensors: out of one process, into its twin in another.
Room: runners; torch, whose tensors carry the arrays of both frameworks.

The twin was made by the same script, so only what has changed since needs to travel, and only as data: nothing is
pickled. Each attribute is one of

    data        None, numbers, strings, bytes, arrays, tensors, paths, times, members of enumerations, and lists,
                tuples, dicts, sets and deques of all that
    an object   with ``state_dict`` and ``load_state_dict`` (a scheduler, a module), with ``get_weights`` and
                ``set_weights`` (a Keras layer), or of a class of the script's own, attribute by attribute
    known       a part of the model or the optimizer, which travel by themselves
    furniture   anything else: a function, a logger, an open file. It stays, and so it must be what it was when the
                object was ``settled``; a module's own function or class may be replaced by another such

What cannot be told, or not be told soundly, is refused by the name of the attribute. Large arrays that the script made
before the training, and that no hook has changed, are not told: the twin has its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from edt_runner.user_callbacks.kinds import MISSING, is_of_the_script, tells_itself
from edt_runner.user_callbacks.reader import Reader
from edt_runner.user_callbacks.writer import Writer

_CHANGEABLE = (list, dict, set, deque, np.ndarray, torch.Tensor)


class Memory:
    """The memory of one object.

    Args:
        owner: the object; its own attributes are what it remembers, whatever its class.
        name: by which errors call it.
        known: parts of the model and the optimizer, in an order that is the same in every process.
        but_not: attributes that are not its own: what it was given by us.
    """

    def __init__(self, owner: Any, name: str, known: Sequence[Any], but_not: Sequence[str] = ()) -> None:
        self._owner, self._name, self._known, self._but_not = owner, name, known, frozenset(but_not)
        if not tells_itself(owner):
            _take_over(owner)
        self._settled: dict[str, Any] | None = None
        """What was furniture, and objects, by their place; None: anything may be yet."""
        self._brought = self._writer({}).large
        """Large arrays that the script itself has put there."""

    def settle(self) -> None:
        """From here on furniture must stay what it is."""
        self._settled = None
        self._settled = self._writer(self._brought).met

    def take(self) -> tuple[Any, dict[str, torch.Tensor]]:
        """What it remembers now, as JSON, and the tensors that belong to it, by reference.

        Raises:
            UsageError: naming what cannot be told.
        """
        writer = self._writer(self._brought)
        self._told_anew(writer.tensors)
        return writer.told, writer.tensors

    def give(self, told: Any, tensors: Mapping[str, torch.Tensor]) -> None:
        """Remember what a twin has told.

        Raises:
            StateMismatch: where this process's object is another one than it was told of.
        """
        self._told_anew(tensors)
        reader = Reader(self._name, self._known, tensors)
        if isinstance(told, dict):
            own = self._owner.state_dict()
            self._owner.load_state_dict(reader.read(told["itself"], own, "state_dict()"))
            return
        content = vars(self._owner)
        found = {attribute: reader.read(node, content.get(attribute, MISSING), attribute) for attribute, node in told}
        for attribute in set(content) - set(found) - self._but_not:
            del content[attribute]
        content.update(found)

    def _told_anew(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """What was changed once is told from then on, by all: a twin that is behind may have it as it was between."""
        self._brought = {place: digest for place, digest in self._brought.items() if place not in tensors}

    def _writer(self, brought: Mapping[str, str]) -> Writer:
        return Writer(self._name, self._known, self._settled, brought, self._content())

    def _content(self) -> Any:
        if tells_itself(self._owner):
            return self._owner
        return {name: value for name, value in vars(self._owner).items() if name not in self._but_not}


def _take_over(owner: Any) -> None:
    """What a hook may change in place though it stands in the script's class, ``losses = []``, becomes the object's."""
    for kind in filter(is_of_the_script, type(owner).__mro__):
        for name, value in vars(kind).items():
            if isinstance(value, _CHANGEABLE) and not name.startswith("__"):
                vars(owner).setdefault(name, value)
