"""A user's own log file, beside the platform's: lines in LOG_DIR/stdout."""

import os
import time
from datetime import datetime


class ELog:
    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.file.close()

    @staticmethod
    def open():
        return ELog(open(os.path.join(os.environ["LOG_DIR"], "stdout"), "a"))

    def recordText(self, text):
        stamp = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        self.file.write(f"[{stamp}] {text}\n")
        self.file.flush()

    def recordTrain(self, title, iteration, global_steps, loss, accuracy, worker):
        fields = [
            f"Timestamp: {int(time.time() * 1000)}",
            f"Global steps: {global_steps}",
            f"Iteration: {iteration}",
            f"Loss: {float(loss):.5f}",
            f"Accuracy: {float(accuracy)}",
        ]
        self.recordText(",\t".join([title, *fields]))

    def recordTest(self, title, loss, accuracy, worker):
        now = int(time.time() * 1000)
        self.recordText(f"{title},\tTimestamp: {now},\tLoss: {float(loss):.5f},\tAccuracy: {float(accuracy)}")
