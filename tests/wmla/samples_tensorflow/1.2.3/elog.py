"""A user's own log beside WMLA's callbacks of 1.2: lines of key and value, a tab after each comma."""

from __future__ import annotations

import os
import time


class ELog:
    @classmethod
    def open(cls):
        return cls(os.path.join(os.environ["LOG_DIR"], "stdout"))

    def __init__(self, path):
        self._file = open(path, "a")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()

    def line(self, tag, *fields):
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        fields = (f"[{stamp}] {tag}", f"Timestamp: {int(now * 1000)}", *(f"{name}: {value}" for name, value in fields))
        self._file.write(",\t".join(fields) + "\n")
