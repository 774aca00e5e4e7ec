import os
import time

import torch
from elog import ELog

from callbacks import Callback, LoggerCallback
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


class EDTTrainCallback(Callback):
    def __init__(self, output_model_path):
        super().__init__()
        self.output_model_path = output_model_path
        self.start_time = time.time()

    def on_epoch_end(self, epoch, save_model=False):
        with ELog.open() as log:
            log.recordText("epoch %d of %d ended, save_model=%s" % (epoch, self.params["epochs"], save_model))
        if epoch == self.params["epochs"] - 1:
            minutes = (time.time() - self.start_time) / 60
            print("Train finished. Time cost: %.2f minutes" % minutes)
            if save_model:
                torch.save(self.model.state_dict(), os.path.join(self.output_model_path, "trained_model.pt"))
