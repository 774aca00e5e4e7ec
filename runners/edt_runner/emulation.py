"""EDT_EMULATE: a training on this machine under sizes that somebody else has had. Room: runners; reads one file.

The variable names a JSON file that ``edt emulate`` has written (``emulate``):

    {"widths": [[0, 4], [120, 2]],   position -> micro-batches of an update from there on; null: the reference batch's
     "lr_rule": "linear",            null: none; absent: whatever the script asked for
     "record": "…/record.jsonl",     absent: nothing is recorded
     "threads": 2}                   of one micro-batch; absent: cores / slots

A local run's ``train()`` then lets the batch follow these widths and the learning rate that rule, whatever the script
asked for. Driver and engines read the same file.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from edt_runner.errors import UsageError
from edt_runner.scaling.rules import Rule, by_name

VARIABLE = "EDT_EMULATE"


@dataclass(frozen=True)
class Emulation:
    """What the file says.

    Args:
        widths: (position, micro-batches an update) in ascending order, the first at position 0; None: as many as the
            reference batch has, throughout.
        lr_rule: what ``rule_named`` knows, or None.
        keeps_rule: the rule is the script's own, whatever ``lr_rule`` says.
        record: file that every step is noted in.
        threads: of one micro-batch; on CPUs the last bits of a result depend on it.
    """

    widths: tuple[tuple[int, int], ...] | None
    lr_rule: str | None = None
    keeps_rule: bool = False
    record: Path | None = None
    threads: int | None = None

    def changes(self, reference: int, batch_size: int) -> tuple[tuple[int, int], ...]:
        """The widths of a training whose learning rate was chosen for ``reference`` samples an update."""
        return self.widths if self.widths is not None else ((0, max(1, reference // batch_size)),)

    def rule(self, own: Rule | None) -> Rule | None:
        """The one to train by; ``own``: the script's."""
        return own if self.keeps_rule else None if self.lr_rule is None else rule_named(self.lr_rule)

    def to_json_object(self) -> dict[str, Any]:
        found: dict[str, Any] = {"widths": None if self.widths is None else [list(pair) for pair in self.widths]}
        if not self.keeps_rule:
            found["lr_rule"] = self.lr_rule
        if self.record is not None:
            found["record"] = str(self.record)
        if self.threads is not None:
            found["threads"] = self.threads
        return found

    @classmethod
    def from_json_object(cls, data: Mapping[str, Any]) -> Emulation:
        """Raises UsageError where the widths are none."""
        given, rule, threads = data.get("widths"), data.get("lr_rule"), data.get("threads")
        widths = None if given is None else tuple((position, width) for position, width in given)
        if rule is not None and not isinstance(rule, str):
            raise UsageError(f"lr_rule: got {rule!r}, takes a name")
        if widths is not None:
            if odd := [number for pair in widths for number in pair if type(number) is not int]:
                raise UsageError(f"widths: got {odd[0]!r}, takes pairs of whole numbers")
            places = [position for position, _ in widths]
            if places[:1] != [0] or any(later <= earlier for earlier, later in itertools.pairwise(places)):
                raise UsageError(f"widths: got positions {places[:6]}, takes ascending ones, the first 0")
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
    """A rule by its name, and behind a colon what it is made with: ``linear-warmup:epochs=2``.

    Raises UsageError where there is none of the name, or it is not made with that.
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
    """The one that this process is part of; None: none. Raises UsageError where the file cannot be read."""
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
