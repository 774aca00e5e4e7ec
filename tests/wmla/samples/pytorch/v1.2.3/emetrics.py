"""A user's own writer of metrics, which hides the platform's."""

import os

from callbacks import LoggerCallback


class EMetrics:
    TEST_GROUP = "test"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.file.close()

    @staticmethod
    def open():
        metrics = EMetrics()
        metrics.file = open(os.path.join(os.environ["LOG_DIR"], "my-metrics.txt"), "a")
        return metrics

    def record(self, group, step, values):
        self.file.write(f"{group} {step} {sorted(values)} {LoggerCallback.mine}\n")
