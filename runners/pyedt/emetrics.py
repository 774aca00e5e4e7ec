"""WMLA's writer of metrics, which scripts import by the name ``emetrics``.

with EMetrics.open() as metrics:
    metrics.record(EMetrics.TEST_GROUP, 1, {"loss": 0.7, "accuracy": 0.6})
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from edt_runner import evaluation_metrics

__all__ = ["EMetrics"]


class EMetrics:
    """Appends metrics to ``evaluation-metrics.txt`` in ``$LOG_DIR``, or else in ``$JOB_STATE_DIR/logs`` or the current
    folder. ``EMetrics.open()`` makes one. Several processes may append to one file.

    Args:
        subid: name of the trial of a hyperparameter search, or None.
        file: the file, open for appending.
    """

    TEST_GROUP = evaluation_metrics.TEST_GROUP
    TRAIN_GROUP = evaluation_metrics.TRAIN_GROUP

    def __init__(self, subid: str | None, file: TextIO) -> None:
        self._subid, self._file = subid, file
        self._tests: list[tuple[Any, Mapping[str, Any]]] = []

    @staticmethod
    def open(subid: str | None = None) -> EMetrics:
        """Open the file, and make its folder if there is none.

        Args:
            subid: name of the trial of a hyperparameter search; the file then lies in a folder of this name. None: the
                variable SUBID, if it is set, only stands in the lines.
        """
        folder = evaluation_metrics.folder() / (subid or "")
        folder.mkdir(parents=True, exist_ok=True)
        return EMetrics(subid, (folder / evaluation_metrics.FILE_NAME).open("a", encoding="utf-8"))

    def record(self, group: str, step: Any, values: Mapping[str, Any]) -> None:
        """Append one line.

        Args:
            group: ``EMetrics.TEST_GROUP``, ``EMetrics.TRAIN_GROUP`` or another name.
            step: iteration, step or epoch of the values.
            values: name -> number or text.

        Raises:
            ValueError: the file was closed.
        """
        self._file.write(evaluation_metrics.line(group, step, values, subid=self._subid))
        self._file.flush()
        if group == self.TEST_GROUP and self._subid:
            self._tests.append((step, dict(values)))

    def close(self) -> None:
        """Close the file. With a ``subid``, also write all values of the test group to ``val_dict_list.json`` in
        ``$RESULT_DIR``, which a hyperparameter search reads."""
        if self._file.closed:
            return
        self._file.close()
        if self._subid:
            evaluation_metrics.write_history(Path(os.environ.get("RESULT_DIR") or Path.cwd()), self._tests)

    def __enter__(self) -> EMetrics:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
