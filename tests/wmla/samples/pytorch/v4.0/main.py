"""The shape of a script after the documentation of WMLA 4.0 and later: loggers of dicts, metrics, a global batch."""

import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim

from callbacks import LoggerCallback
from emetrics import EMetrics
from fabric_model import FabricModel


class Digits(torch.utils.data.Dataset):
    def __init__(self, part):
        sets = np.load(os.path.join(os.environ["DATA_DIR"], "digits.npz"))
        self.x, self.y = sets[f"{part}_x"], sets[f"{part}_y"]

    def __getitem__(self, index):
        return torch.from_numpy(self.x[index]), int(self.y[index])

    def __len__(self):
        return len(self.x)


class DriverLogger(LoggerCallback):
    def on_train_begin(self):
        print("driver logger begins")

    def on_train_end(self):
        print("driver logger ends")

    def log_train_metrics(self, metrics, iteration, epoch, workers):
        with EMetrics.open() as em:
            em.record(EMetrics.TRAIN_GROUP, iteration, metrics)

    def log_test_metrics(self, metrics, iteration, epoch):
        with EMetrics.open() as em:
            em.record(EMetrics.TEST_GROUP, iteration, metrics)


class WorkerLogger(LoggerCallback):
    def log_train_metrics(self, metrics, iteration, epoch, workers):
        print(f"worker: step {iteration} of epoch {epoch}, {workers} workers, loss {float(metrics['loss']):.3f}")


def top3(outputs, targets):
    return (outputs.topk(3, dim=1).indices == targets.unsqueeze(1)).any(dim=1).double().mean()


def collate(samples):
    return torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])


model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
edt_model = FabricModel(
    model,
    lambda: (Digits("train"), Digits("test")),
    F.cross_entropy,
    optim.Adam(model.parameters(), lr=0.01),
    metrics=["accuracy", top3],
    worker_logger_callback=WorkerLogger(),
    driver_logger_callback=DriverLogger(),
    save_to_onnx=True,
    fn_batch_collate=collate,
)
edt_model.train(2, 16, num_dataloader_threads=1, validation_freq=1, checkpoint_freq=1, effective_batch_size=64)
print("trained to the end")
