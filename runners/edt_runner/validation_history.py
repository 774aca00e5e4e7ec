"""``val_dict_list.json`` in the result folder: loss and metrics of every validation of a training, also over a resume.

A hyperparameter search reads it: ``[{"steps": 938, "loss": 0.11, "accuracy": 0.97}, ...]``. "steps" counts training
steps.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edt_contract.durable import Outage
from edt_runner import evaluation_metrics


class ValidationHistory:
    """The file, which is replaced after each validation. If another program has changed it, it belongs to that program:
    some scripts write a file of this name themselves.

    Args:
        result_dir: folder of the file.
    """

    def __init__(self, result_dir: str) -> None:
        self._folder = Path(result_dir)
        self._path = self._folder / evaluation_metrics.HISTORY_NAME
        self._entries: list[dict[str, Any]] | None = None
        """What the file holds; None: it was not read yet."""
        self._text: str | None = None
        """The file's text when this process last wrote it; None: it has not written it."""
        self._ours = True
        self._outage = Outage(f"the file {self._path}", lambda news: print(f"edt: {news}", file=sys.stderr, flush=True))

    def begin_anew(self) -> None:
        """Forget the validations of another training, whose file may be in the folder."""
        self._entries = []

    def add(self, steps: int, values: Mapping[str, float]) -> None:
        """Add a validation. It replaces those of the same step and of later steps.

        Args:
            steps: training steps before the validation.
            values: loss and metrics, by name.
        """
        if self._text is not None and self._text != self._read():
            self._ours = False
        if not self._ours:
            return
        if self._entries is None:
            self._entries = _entries(self._read())
        self._entries = [entry for entry in self._entries if entry["steps"] < steps]
        self._entries.append({"steps": steps, **values})
        with self._outage.watching():
            evaluation_metrics.write_history(self._folder, [(entry["steps"], entry) for entry in self._entries])
            self._text = self._read()

    def _read(self) -> str | None:
        try:
            return self._path.read_text()
        except (OSError, UnicodeDecodeError):
            return None


def _entries(text: str | None) -> list[dict[str, Any]]:
    """Return the entries of a file with this text that an earlier process wrote."""
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return []
    rows = found if isinstance(found, list) else []
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("steps"), int)]
