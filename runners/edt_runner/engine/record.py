"""The sample record: which samples each committed step was made of. Files only.

Off unless EDT_SAMPLE_RECORD names a folder. Each engine appends JSON lines to ``samples-<fence>-<engine>.jsonl``:

    ["try", epoch, step, generation, index, [samples]]   one for each of its micro-batches, before the reduction begins
    ["commit", step, generation]                         after it has committed the step
    ["commit", step, generation, width]                  the same where the batch follows the engines
    ["commit-void", step, generation]                    all went back to a checkpoint: what any engine had committed
                                                         from this step on, in an earlier generation or attempt, is void

A step that is reduced again, because an engine died in it, has another, higher generation. Where the batch follows the
engines, steps count micro-batches and a line's is the first of ``width``. ``examples/demo/edt_demo/sample_record.py``
reads it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edt_contract.durable import PatientLog

_HELD_BYTES = 16 << 20


class Recorder:
    """Holds the micro-batches of the step being computed and writes down what becomes of them."""

    def __init__(self, folder: str | None, fence: int, name: str) -> None:
        self._held: dict[int, tuple[int, int, npt.NDArray[np.int64]]] = {}
        self._log: PatientLog | None = None
        if folder:
            path = Path(folder) / f"samples-{fence}-{name}.jsonl"
            self._log = PatientLog(path, most=_HELD_BYTES, mode=0o666)
            self._log.write(b"")

    def hold(self, epoch: int, step: int, index: int, samples: npt.NDArray[np.int64]) -> None:
        """A micro-batch of the step being computed; replaces an earlier one of the same index."""
        if self._log is not None:
            self._held[index] = (epoch, step, samples)

    def keep(self, indices: Collection[int]) -> None:
        """Forget all other micro-batches."""
        self._held = {index: held for index, held in self._held.items() if index in indices}

    def trying(self, step: int, generation: int) -> None:
        """The step is about to be reduced in this generation: write down its micro-batches."""
        if self._held:
            self._write(
                ["try", epoch, step, generation, index, samples.tolist()]
                for index, (epoch, of, samples) in sorted(self._held.items())
                if of == step
            )

    def commit(self, step: int, generation: int, width: int | None = None) -> None:
        """The training step is committed as it was reduced in this generation. ``width``: of a step whose
        micro-batches are as many as there are engines."""
        if self._log is not None:
            self._held.clear()
            self._write([["commit", step, generation] if width is None else ["commit", step, generation, width]])

    def go_back(self, step: int, generation: int) -> None:
        """All engines go back to a checkpoint after which ``step`` is the next, and go on in ``generation``."""
        if self._log is not None:
            self._held.clear()
            self._write([["commit-void", step, generation]])

    def _write(self, lines: Iterable[list[Any]]) -> None:
        """Write in one call: what the kernel has taken outlives this process. What a full disk does not take is kept;
        if that becomes too much the record ends and shows a gap, and the training goes on."""
        if self._log is None:
            return
        self._log.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        if self._log.lost:
            print(f"the sample record ends here: {self._log.error}", file=sys.stderr, flush=True)
            self._log = None
            self._held.clear()
