"""WMLA's file of metrics, ``evaluation-metrics.txt``: one JSON object a line. ``emetrics`` and the driver's log use it.

A line of it, without the line break:

    {"meta": {"training_id": "edt-7", "time": 1614896710223, "rindex": 1}, "grouplabel": "test",
     "etimes": {"iteration": {"type": 2, "value": "1"}, "time_stamp": {"value": "2021-03-04T17:25:10.223"}},
     "values": {"loss": {"type": 3, "value": "0.1"}}}

Every value is written as text. Its type is 2 for a whole number and 3 for another number; a text has no type.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from edt_contract.durable import write_whole

FILE_NAME = "evaluation-metrics.txt"
TEST_GROUP, TRAIN_GROUP = "test", "train"
HISTORY_NAME = "val_dict_list.json"
_WHOLE, _NUMBER = 2, 3


def folder() -> Path:
    """Return the folder of the log: ``$LOG_DIR``, or ``$JOB_STATE_DIR/logs``, or else the current folder."""
    if log_dir := os.environ.get("LOG_DIR"):
        return Path(log_dir)
    if state_dir := os.environ.get("JOB_STATE_DIR"):
        return Path(state_dir) / "logs"
    return Path.cwd()


def line(
    group: str,
    step: Any,
    values: Mapping[str, Any],
    *,
    subid: str | None = None,
    clock: Callable[[], float] = time.time,
) -> str:
    """Make one line of the file, with its line break.

    Args:
        group: what the values were computed from, such as ``TEST_GROUP`` or ``TRAIN_GROUP``.
        step: iteration, step or epoch at which they were computed.
        values: name -> number or text. A tensor or an array of one element counts as a number.
        subid: name of the trial of a hyperparameter search; None: the variable SUBID, if it is set.
        clock: returns wall-clock seconds since the epoch.
    """
    now = clock()
    meta: dict[str, Any] = {"training_id": os.environ.get("TRAINING_ID", ""), "time": int(now * 1000), "rindex": 1}
    if subid := subid or os.environ.get("SUBID"):
        meta["subid"] = str(subid)
    stamp = datetime.fromtimestamp(now).isoformat(timespec="milliseconds")  # noqa: DTZ006 - local time, as WMLA's
    return (
        json.dumps(
            {
                "meta": meta,
                "grouplabel": group,
                "etimes": {"iteration": _typed(step), "time_stamp": _typed(stamp)},
                "values": {name: _typed(value) for name, value in values.items()},
            }
        )
        + "\n"
    )


def write_history(result_dir: Path, entries: Sequence[tuple[Any, Mapping[str, Any]]]) -> None:
    """Write ``val_dict_list.json``, which a hyperparameter search reads: ``[{"steps": 1, "loss": 0.1}, ...]``. A value
    that is None or not finite becomes null.

    Args:
        result_dir: the folder that the file is written to.
        entries: (step, values) of each evaluation, in order.
    """
    rows = [
        {"steps": plain(step), **{name: _finite(value) for name, value in values.items()}} for step, values in entries
    ]
    write_whole(result_dir / HISTORY_NAME, json.dumps(rows), durable=False)


def plain(value: Any) -> int | float | str:
    """Return a value as Python's own number or text. A tensor or an array of one element is a number."""
    if not isinstance(value, Real | str) and callable(getattr(value, "item", None)):
        value = value.item()
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else str(value)


def _finite(value: Any) -> int | float | str | None:
    found = None if value is None else plain(value)
    return None if isinstance(found, float) and not math.isfinite(found) else found


def _typed(value: Any) -> dict[str, Any]:
    found = plain(value)
    if isinstance(found, str):
        return {"value": found}
    return {"type": _WHOLE if isinstance(found, int) else _NUMBER, "value": str(found)}
