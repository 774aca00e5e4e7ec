"""The sizes that a job has had: from what its platform remembers to the widths of a replay.

``edt emulate --job`` writes the file (``--save-history`` keeps it):

    {"job": {…},                     as ``GET /api/v1/jobs/edt-12`` gives it
     "micro_batches_a_step": 1,      what the log's lines say an update counts: 1 where the batch followed the engines
     "updates": [[0, 1], [24, 2]],   from the log: steps before the first update of each width, and that width
     "resizes": […]}                 as ``GET /api/v1/jobs/edt-12/resizes`` gives them

The log has a line for every update, so where the batch followed the engines its replay has the same bits. A job whose
batch was fixed had one width all the time; then, and where there is nothing but the answer of ``/resizes``, the widths
are what the resizes say: the replay shows what would have been, had the batch followed the engines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edt_runner.errors import UsageError

_TAKES = "the JSON that `edt emulate --job … --save-history` or GET …/resizes gives"


@dataclass(frozen=True)
class History:
    """Sizes of one job.

    Args:
        job: its id.
        changes: (steps of training before, engines from there on), the first at 0.
        unit: micro-batches of one step; None: as many as the script's own.
        inexact: why a replay has other bits than the job; empty: it has the same.
        seed, threads: of the job; None: not known.
        digest: of what it had trained; None: it is not finished, or not known.
    """

    job: str
    changes: tuple[tuple[int, int], ...]
    unit: int | None
    inexact: str = ""
    seed: int | None = None
    threads: int | None = None
    digest: str | None = None

    def micro_batches(self, own_unit: int) -> tuple[tuple[int, int], ...]:
        """(micro-batches of training before, width from there on); ``own_unit``: of a step of the script's."""
        unit = self.unit or own_unit
        return tuple((step * unit, width) for step, width in self.changes)


def read(path: Path) -> History:
    """Read a file.

    Raises:
        UsageError: it is no history.
        OSError: it cannot be read.
    """
    try:
        return history(json.loads(path.read_text(encoding="utf-8")))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{path}: got no history ({error}), takes {_TAKES}") from None


def history(data: Any) -> History:
    """The history in what a file holds. Raises UsageError where none is."""
    if isinstance(data, list):
        data = {"resizes": data}
    elif "items" in data:
        data = {"resizes": data["items"]}
    job, resizes = data.get("job") or {}, data.get("resizes") or []
    unit, updates = data.get("micro_batches_a_step"), data.get("updates") or []
    known = History(
        str(job.get("id") or next((each["exec_id"] for each in resizes), "a job")),
        (),
        unit,
        seed=job.get("seed"),
        threads=job.get("threads"),
        digest=job.get("digest"),
    )
    if unit == 1 and updates:
        changes = [(int(step), int(width)) for step, width in updates]
        missing, changes[0] = changes[0][0], (0, changes[0][1])
        return replace(known, changes=tuple(changes), inexact=_doubt(job, missing))
    found = tuple(of_resizes(resizes, unit))
    if not found:
        raise UsageError(f"history: got none in which a size is given, takes {_TAKES}")
    fixed = "its batch was fixed; this is what would have been, had the batch followed the engines"
    return replace(known, changes=found, inexact=fixed if unit else "the job's log is not in it")


def of_resizes(resizes: Sequence[Mapping[str, Any]], unit: int | None) -> list[tuple[int, int]]:
    """(steps before, engines from there on) of the rows of ``/resizes``. A joining engine takes part in no more than
    the reduction of the step at which it comes, so that the larger size counts from the step after it."""
    sized = [each for each in resizes if each.get("step") is not None and each.get("workers")]
    found: list[tuple[int, int]] = []
    for each in sorted(sized, key=lambda row: (row["fence"], row["generation"] or 0, row["number"])):
        step, workers = int(each["step"]), int(each["workers"])
        before = found[-1][1] if found else int(each["from_slots"])
        if not found and step:
            found.append((0, max(1, before)))
        if step and workers > before:
            step += 1 if unit is None or unit > 1 else before
        found = [*(change for change in found if change[0] < step), (step, workers)]
    return found


def _doubt(job: Mapping[str, Any], missing: int) -> str:
    exactness = job.get("exactness") or {}
    if exactness.get("verdict") == "not-exact":
        return str(exactness.get("reason"))
    if missing:
        return f"its log begins after {missing} micro-batches"
    attempts = job.get("attempts") or 1
    return f"it was started {attempts} times, and of steps that were trained again the log tells one" * (attempts > 1)
