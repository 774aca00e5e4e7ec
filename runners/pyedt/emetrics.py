"""WMLA's writer of metrics, which scripts import by the name ``emetrics``.

with EMetrics.open() as metrics:
    metrics.record(EMetrics.TEST_GROUP, 1, {"loss": 0.7, "accuracy": 0.6})
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any

from edt_contract.durable import News, Outage
from edt_runner import evaluation_metrics

__all__ = ["EMetrics"]

_HELD_BYTES = 4 << 20
"""Bytes of lines (some ten thousand lines) that wait in memory if the disk is full. Further lines are lost."""


class EMetrics:
    """Appends metrics to ``evaluation-metrics.txt`` in ``$LOG_DIR``, or else in ``$JOB_STATE_DIR/logs`` or the current
    folder. ``EMetrics.open()`` makes one. Several processes may append to one file.

    Lines that a full disk does not take wait in memory for the next ``record`` or ``close``, and the training goes on.

    Args:
        subid: name of the trial of a hyperparameter search, or None.
        path: the file.
    """

    TEST_GROUP = evaluation_metrics.TEST_GROUP
    TRAIN_GROUP = evaluation_metrics.TRAIN_GROUP

    def __init__(self, subid: str | None, path: Path) -> None:
        self._subid, self._path = subid, path
        self._file: FileIO | None = None
        self._closed = False
        self._held = bytearray()
        """Bytes that are not in the file yet."""
        self._tests: list[tuple[Any, Mapping[str, Any]]] = []
        self._outage = Outage(f"the file {path}", _tell)
        self._write()

    @staticmethod
    def open(subid: str | None = None) -> EMetrics:
        """Open the file, and make its folder if there is none.

        Args:
            subid: name of the trial of a hyperparameter search; the file then lies in a folder of this name. None: the
                variable SUBID, if it is set, only stands in the lines.
        """
        return EMetrics(subid, evaluation_metrics.folder() / (subid or "") / evaluation_metrics.FILE_NAME)

    def record(self, group: str, step: Any, values: Mapping[str, Any]) -> None:
        """Append one line.

        Args:
            group: ``EMetrics.TEST_GROUP``, ``EMetrics.TRAIN_GROUP`` or another name.
            step: iteration, step or epoch of the values.
            values: name -> number or text.

        Raises:
            ValueError: the file was closed.
        """
        if self._closed:
            raise ValueError(f"the file {self._path} is closed")
        line = evaluation_metrics.line(group, step, values, subid=self._subid).encode()
        if len(self._held) + len(line) <= _HELD_BYTES:
            self._held += line
        self._write()
        if group == self.TEST_GROUP and self._subid:
            self._tests.append((step, dict(values)))

    def _write(self) -> None:
        with self._outage.watching():
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = FileIO(self._path, "a")
            while self._held:
                del self._held[: self._file.write(self._held)]

    def close(self) -> None:
        """Close the file. With a ``subid``, also write all values of the test group to ``val_dict_list.json`` in
        ``$RESULT_DIR``, which a hyperparameter search reads."""
        if self._closed:
            return
        self._closed = True
        self._write()
        if self._file is not None:
            self._file.close()
        if self._subid:
            with self._outage.watching():
                evaluation_metrics.write_history(Path(os.environ.get("RESULT_DIR") or Path.cwd()), self._tests)

    def __enter__(self) -> EMetrics:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _tell(news: News) -> None:
    sys.stderr.write(f"edt: {news}\n")
    sys.stderr.flush()
