"""EDT_EMULATE: repeats a training on this machine with the batch sizes of another training.

The variable names a JSON file that ``edt emulate`` has written (``emulate``):

    {"widths": [[0, 4], [120, 2]],   offset -> micro-batches of an update from there on; null: the reference batch's
     "lr_rule": "linear",            null: none; absent: the script's own rule
     "record": "…/record.jsonl",     null: nothing is recorded
     "threads": 2}                   threads of one micro-batch; null: cores / slots

In a local run, ``train()`` then takes its batch sizes from these widths and its learning rates from that rule, instead
of the script's. An offset counts the micro-batches of the training so far, since the batch follows the widths. Driver
and engines read the same file.

The driver's process records the training line by line, and ``edt emulate`` reads the record while it grows. The record
holds the training's shape, every update, every validation, and the digest of the final state.

    {"begin": {"schedule": {…}, "batch_size": 16, "reference": 64, "per_engine": false}}
    {"phase": "train", "step": 4, "epoch": 1, "metrics": {"loss": 2.31, "batch": 64, "learning_rate": 0.1, …}}
    {"phase": "validate", "step": 90, "epoch": 1, "metrics": {"loss": 0.4, "accuracy": 0.9}}
    {"end": {"digest": "…"}}
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, cast

from edt_runner.errors import UsageError
from edt_runner.lr_scaling.rules import Rule, by_name
from edt_runner.protocol.data import MetricItem
from edt_runner.schedule import Schedule, StepKind

VARIABLE = "EDT_EMULATE"


@dataclass(frozen=True)
class Emulation:
    """The contents of the file that EDT_EMULATE names.

    Args:
        widths: (offset, micro-batches per update) in ascending order, the first at offset 0; None: always as many as
            the reference batch has.
        lr_rule: a name that ``rule_named`` knows, or None.
        keeps_rule: the script's own rule is used, whatever ``lr_rule`` is.
        record: the file that every step is recorded in; None: nothing is recorded.
        threads: threads of one micro-batch; on CPUs the last bits of a result depend on this number.
    """

    widths: tuple[tuple[int, int], ...] | None
    lr_rule: str | None = None
    keeps_rule: bool = False
    record: Path | None = None
    threads: int | None = None

    def changes(self, reference: int, batch_size: int) -> tuple[tuple[int, int], ...]:
        """The widths of a training.

        Args:
            reference: samples per update that the learning rate was chosen for.
            batch_size: samples of a micro-batch.

        Returns:
            (offset, micro-batches per update), in ascending order.
        """
        return self.widths if self.widths is not None else ((0, max(1, reference // batch_size)),)

    def rule(self, own: Rule | None) -> Rule | None:
        """The rule to train with, or None.

        Args:
            own: the script's rule.

        Raises:
            UsageError: there is no rule named ``lr_rule``, or its arguments are wrong.
        """
        return own if self.keeps_rule else None if self.lr_rule is None else rule_named(self.lr_rule)

    def to_json_object(self) -> dict[str, Any]:
        rule = {} if self.keeps_rule else {"lr_rule": self.lr_rule}
        record = None if self.record is None else str(self.record)
        return {"widths": self.widths, **rule, "record": record, "threads": self.threads}

    @classmethod
    def from_json_object(cls, data: Mapping[str, Any]) -> Emulation:
        """The inverse of ``to_json_object``.

        Raises:
            UsageError: the widths are no ascending pairs of whole numbers, or the rule is no name.
        """
        given, rule, threads = data.get("widths"), data.get("lr_rule"), data.get("threads")
        widths = None if given is None else tuple((offset, width) for offset, width in given)
        if rule is not None and not isinstance(rule, str):
            raise UsageError(f"lr_rule: got {rule!r}, takes a name")
        if widths is not None:
            if odd := [number for pair in widths for number in pair if type(number) is not int]:
                raise UsageError(f"widths: got {odd[0]!r}, takes pairs of whole numbers")
            offsets = [offset for offset, _ in widths]
            if offsets[:1] != [0] or any(later <= earlier for earlier, later in itertools.pairwise(offsets)):
                raise UsageError(f"widths: got offsets {offsets[:6]}, takes ascending ones, the first 0")
            if least := [width for _, width in widths if width < 1]:
                raise UsageError(f"widths: got {least[0]}, takes whole numbers of micro-batches, at least 1")
        record = data.get("record")
        return cls(
            widths,
            rule,
            "lr_rule" not in data,
            Path(record) if record else None,
            int(threads) if threads else None,
        )


def rule_named(text: str) -> Rule:
    """Make a rule by its name, which may be followed by a colon and arguments: ``linear-warmup:epochs=2``.

    Raises:
        UsageError: there is no rule of that name, or it does not take these arguments.
    """
    name, colon, rest = text.partition(":")
    rule = by_name(name)
    if not colon:
        return rule
    given = dict(part.partition("=")[::2] for part in rest.split(","))
    if unknown := [key for key in given if key not in rule.parameters]:
        raise UsageError(f"rule {name}: got {unknown[0]!r}, takes {', '.join(rule.parameters) or 'nothing'}")
    return cast(Rule, cast(Any, type(rule))(**{key: _plain(value) for key, value in given.items()}))


def current() -> Emulation | None:
    """The emulation that this process is part of, or None.

    Raises:
        UsageError: the file that EDT_EMULATE names cannot be read.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    try:
        return Emulation.from_json_object(json.loads(Path(path).read_text()))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{VARIABLE}: got {path}, takes a file that `edt emulate` has written: {error}") from None


def _plain(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


# ── the record ────────────────────────────────────────────────────────────────────────────────────────────────────
Observe = Callable[[MetricItem, Mapping[str, float]], None]
"""A function that is called with an item of metrics, and with the item's metrics as numbers."""


class Recorder:
    """Writes a record.

    Args:
        path: the file; None: nothing is written.
        shape: the contents of ``begin``.
    """

    def __init__(self, path: Path | None, shape: Mapping[str, Any]) -> None:
        self._file: TextIO | None = path.open("w", buffering=1) if path is not None else None
        self._write({"begin": dict(shape)})

    def beside(self, observe: Observe) -> Observe:
        """Return a function that records an item of metrics and then calls ``observe`` with it."""

        def both(item: MetricItem, metrics: Mapping[str, float]) -> None:
            finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
            self._write({"phase": item.phase, "step": item.step, "epoch": item.epoch, "metrics": finite})
            observe(item, metrics)

        return both

    def end(self, digest: str) -> None:
        """Record the end of the training, with the digest of its final state."""
        self._write({"end": {"digest": digest}})
        if self._file is not None:
            self._file.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")


@dataclass(frozen=True)
class Point:
    """An update or a validation. ``step`` is the number of micro-batches trained so far. A metric that is no number is
    NaN."""

    step: int
    epoch: int
    metrics: Mapping[str, float]


@dataclass
class Record:
    """A record, as far as it has been read."""

    shape: Mapping[str, Any] | None = None
    updates: list[Point] = field(default_factory=list)
    validations: list[Point] = field(default_factory=list)
    digest: str | None = None

    @property
    def schedule(self) -> Schedule:
        """The schedule. Call this only when the shape has been read."""
        assert self.shape is not None
        return Schedule.from_json_object(self.shape["schedule"])

    def take(self, line: str) -> None:
        """Add one whole line."""
        data = json.loads(line)
        if "begin" in data:
            self.shape = data["begin"]
        elif "end" in data:
            self.digest = data["end"]["digest"]
        else:
            metrics = {name: math.nan if value is None else float(value) for name, value in data["metrics"].items()}
            point = Point(data["step"], data["epoch"], metrics)
            (self.updates if data["phase"] == StepKind.TRAIN.value else self.validations).append(point)


class Reader:
    """Reads a record while it grows. The file need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self.record = Record()

    def read(self) -> Record:
        """Read the lines that were added since the last call. A line that is only partly written is left for later."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return self.record
        for line in whole.splitlines():
            self.record.take(line.decode())
        self._offset += len(whole) + len(newline)
        return self.record
