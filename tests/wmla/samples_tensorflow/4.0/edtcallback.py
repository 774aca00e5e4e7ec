"""A user's logger with the methods of WMLA 4.0: a dict of metrics."""

from callbacks import LoggerCallback
from elog import ELog
from emetrics import EMetrics


class EDTLoggerCallback(LoggerCallback):
    def __init__(self):
        self.steps = 0

    def log_train_metrics(self, metrics, completed_batch, epoch, worker=0):
        self.steps += 1
        with EMetrics.open() as em:
            em.record(EMetrics.TRAIN_GROUP, completed_batch, metrics)
        with ELog.open() as log:
            fields = ("Global steps", self.steps), ("Iteration", completed_batch)
            log.line("Train", *fields, ("Loss", metrics["loss"]), ("Accuracy", metrics["accuracy"]))

    def log_test_metrics(self, metrics, completed_batch, epoch):
        with ELog.open() as log:
            log.line("Test", ("Loss", metrics["loss"]), ("Accuracy", metrics["accuracy"]))
