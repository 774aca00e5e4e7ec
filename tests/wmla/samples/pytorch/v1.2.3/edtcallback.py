import os
import sys

sys.path.insert(0, os.path.join(os.environ["FABRIC_HOME"], "libs", "fabric.zip"))

from elog import ELog

from callbacks import LoggerCallback
from emetrics import EMetrics


class EDTLoggerCallback(LoggerCallback):
    def __init__(self):
        self.steps = 0

    def log_train_metrics(self, loss, acc, completed_batch, worker=0):
        self.steps += 1
        with EMetrics.open() as metrics:
            metrics.record(EMetrics.TEST_GROUP, completed_batch, {"loss": loss, "accuracy": acc / 100.0})
        with ELog.open() as log:
            log.recordTrain("Train", completed_batch, self.steps, loss, acc / 100.0, worker)

    def log_test_metrics(self, loss, acc, completed_batch, worker=0):
        with ELog.open() as log:
            log.recordTest("Test", loss, acc / 100.0, worker)
