"""What counts as a data set: an object with an index, a DataLoader over one, or a finite stream that is read once.

Engines load samples by number, so that each sample counts once an epoch whatever the engines do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, Subset, SubsetRandomSampler

from edt_runner.errors import UsageError

MOST_BYTES = 1 << 30
"""The most memory that a stream may take when it is read."""
_AS_MAP = (
    "rows = [row for row in dataset]           # or of a file, if they do not fit into memory\n"
    "    class Rows(torch.utils.data.Dataset): ...  # with __len__ and __getitem__(index), if samples are loaded late\n"
    "    return rows, test                         # a plain list of samples will do"
)


@dataclass(frozen=True)
class MapStyle:
    """A data set with an index, and what a DataLoader around it has said.

    Args:
        dataset: an object with ``__getitem__`` and ``__len__``.
        collate: the loader's function that makes a batch of samples; None: the default.
        in_order: whether the loader keeps the order of the data set.
        notes: sentences for the user.
    """

    dataset: Any
    collate: Callable[[list[Any]], Any] | None = None
    in_order: bool = False
    notes: tuple[str, ...] = ()


def map_style(name: str, given: Any) -> MapStyle:
    """Make a data set with an index of what the user gave.

    Args:
        name: "train" or "test", for messages.
        given: a data set or a DataLoader.

    Raises:
        UsageError: no index can be made of it; the message says which lines make one.
    """
    if isinstance(given, DataLoader):
        return _of_loader(name, given)
    if isinstance(given, IterableDataset) or not _has_index(given):
        if isinstance(given, Iterable) and _length(given) is not None:
            return _read(name, given)
        kind = type(given).__name__
        why = "a stream without a length" if isinstance(given, Iterable) else "no data set: it has no __getitem__"
        raise UsageError(
            f"datasets_function: the {name} data set is a {kind}, {why}; takes a map-style data set, with __getitem__ "
            f"and __len__, because engines load samples by number. These lines make one:\n    {_AS_MAP}"
        )
    if _length(given) is None:
        raise UsageError(
            f"datasets_function: the {name} data set is a {type(given).__name__} without __len__; takes a map-style "
            "data set, with __getitem__ and __len__"
        )
    return MapStyle(given)


def _of_loader(name: str, loader: DataLoader[Any]) -> MapStyle:
    """The data set of a DataLoader, with the loader's function for batches. Its batches are the platform's instead."""
    if loader.batch_size is None and loader.batch_sampler is None:
        raise UsageError(
            f"datasets_function: the {name} DataLoader has batch_size=None, so its data set gives whole batches; takes "
            "a data set of samples, of which the platform makes batches of train()'s batch_size"
        )
    sampler = loader.sampler
    inner = map_style(name, loader.dataset)
    dataset, in_order = inner.dataset, True
    if isinstance(loader.dataset, IterableDataset):
        pass
    elif loader.batch_sampler is not None and type(loader.batch_sampler) is not torch.utils.data.BatchSampler:
        raise _refused(name, type(loader.batch_sampler).__name__)
    elif isinstance(sampler, SubsetRandomSampler):
        dataset, in_order = Subset(dataset, list(sampler.indices)), False
    elif isinstance(sampler, RandomSampler) and not sampler.replacement and sampler.num_samples == len(dataset):
        in_order = False
    elif not isinstance(sampler, SequentialSampler):
        raise _refused(name, type(sampler).__name__)
    default = torch.utils.data.default_collate
    collate = loader.collate_fn if loader.batch_size is not None and loader.collate_fn is not default else None
    note = (
        f"{name}: of the DataLoader, the data set, the order and collate_fn are used; batch_size and workers are those "
        "of train()." + (" Its drop_last has no effect: no sample is left out." if loader.drop_last else "")
    )
    return MapStyle(dataset, collate, in_order, (*inner.notes, note))


def _refused(name: str, sampler: str) -> UsageError:
    return UsageError(
        f"datasets_function: the {name} DataLoader draws its samples by a {sampler}, which engines cannot share; takes "
        "shuffle=True or False, or a SubsetRandomSampler. A data set whose __getitem__ chooses by its index can draw "
        "them instead:\n"
        "    class Drawn(torch.utils.data.Dataset):    # __len__ as it is\n"
        "        def __getitem__(self, index):         # seeded for each sample and epoch\n"
        "            return dataset[torch.multinomial(weights, 1).item()]"
    )


def _read(name: str, stream: Iterable[Any]) -> MapStyle:
    """Read a stream that has a length into memory, once.

    Raises:
        UsageError: it is too large for that.
    """
    rows, size = [], 0
    for row in stream:
        rows.append(row)
        size += _bytes_of(row)
        if size > MOST_BYTES:
            raise UsageError(
                f"datasets_function: the {name} data set is a stream of more than {MOST_BYTES >> 20} MiB, which was "
                f"read up to row {len(rows):,}; takes a map-style data set. These lines make one:\n    {_AS_MAP}"
            )
    note = (
        f"{name}: the {type(stream).__name__} was read once, {len(rows):,} rows of {size / (1 << 20):.1f} MiB, because "
        "engines load samples by number."
    )
    return MapStyle(rows, None, False, (note,))


def _bytes_of(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.nbytes
    if isinstance(value, dict):
        return sum(map(_bytes_of, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_bytes_of, value))
    return int(getattr(value, "nbytes", 0)) or sys.getsizeof(value)


def _has_index(given: Any) -> bool:
    return hasattr(given, "__getitem__") and (isinstance(given, Sequence) or not isinstance(given, str | bytes))


def _length(given: Any) -> int | None:
    try:
        return len(given)
    except (TypeError, NotImplementedError):
        return None
