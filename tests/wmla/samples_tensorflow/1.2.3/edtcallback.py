"""A user's logger in the form of WMLA 1.2 to 2.3: loss, accuracy in percent, batches of all workers."""

from callbacks import LoggerCallback
from elog import ELog
from emetrics import EMetrics


class EDTLoggerCallback(LoggerCallback):
    def __init__(self):
        self.steps = 0

    def log_train_metrics(self, loss, acc, completed_batch, worker=0):
        self.steps += 1
        values = {"loss": float(loss), "accuracy": acc / 100.0}
        with EMetrics.open() as metrics:
            metrics.record(EMetrics.TRAIN_GROUP, completed_batch, values)
        with ELog.open() as log:
            fields = ("Global steps", self.steps), ("Iteration", completed_batch)
            log.line("Train", *fields, ("Loss", values["loss"]), ("Accuracy", values["accuracy"]))

    def log_test_metrics(self, loss, acc, completed_batch, worker=0):
        with EMetrics.open() as metrics:
            metrics.record(EMetrics.TEST_GROUP, completed_batch, {"loss": float(loss), "accuracy": acc / 100.0})
        with ELog.open() as log:
            log.line("Test", ("Loss", float(loss)), ("Accuracy", acc / 100.0))
