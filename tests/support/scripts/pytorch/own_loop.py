"""A user's main with a loop of its own: batch normalization, dropout, Adam, a schedule of learning rates; a data set
that leaves an uneven last step, and a global batch that is no whole number of micro-batches."""

import argparse
import hashlib
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

import runai.elastic.torch
import runai.ga.torch
from edt_runner import context
from support.gate import Gate

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=237)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--global-batch", type=int, default=18)
parser.add_argument("--most", type=int, default=5)
parser.add_argument("--loaders", type=int, default=0)
parser.add_argument("--trouble", default="")
options = parser.parse_args()


class Noisy(Dataset):
    """Augments with the global generators: the same whatever process loads it."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(1)
        self.images = torch.randn(count, 1, 8, 8, generator=generator)
        self.targets = torch.randint(0, 5, (count,), generator=generator)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        if options.trouble == "sample" and index == 100:
            raise OSError("sample 100 cannot be read")
        return self.images[index] + 0.1 * torch.randn(1, 8, 8), self.targets[index]


def note(file, *values):
    with Path(os.environ["TEST_SEEN"], file).open("a") as seen:
        seen.write(" ".join(map(str, values)) + "\n")


model = nn.Sequential(
    nn.Conv2d(1, 6, 3, padding=1),
    nn.BatchNorm2d(6),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Dropout(0.25),
    nn.Linear(96, 5),
)
elastic = runai.elastic
elastic.torch.init(options.global_batch, options.most)
optimizer = runai.ga.torch.optim.Adam(elastic.steps, model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.8)
loader = elastic.torch.loader(
    Noisy(options.samples),
    model,
    optimizer,
    options.epochs,
    num_workers=options.loaders,
    metrics=["accuracy"],
    lr_scheduler=scheduler,
    lr_scheduler_interval="step",
    worker_logger_callback=Gate.from_environment(),
)
engine = context.current().name if context.current() else "-"


def shown(batches):
    """As a progress bar does it."""
    yield from batches


def train():
    for inputs, targets in shown(loader):
        note("body", engine, loader.epoch, loader.step, elastic.gpus, elastic.steps, elastic.batch_size, len(inputs))
        if elastic.master:
            note("master", engine, loader.step)
        if loader.step == 3:
            if options.trouble in ("raise", "caught"):
                raise RuntimeError("the body has a bad day")
            if options.trouble == "break":
                break
            if options.trouble == "rate":
                optimizer.param_groups[0]["lr"] = 0.1
        outputs = model(inputs)
        loss = F.cross_entropy(outputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loader.report(loss, accuracy=(outputs.argmax(1) == targets).double().mean())


try:
    train()
except RuntimeError:
    if options.trouble != "caught":
        raise

weights = [tensor.numpy().tobytes() for tensor in model.state_dict().values()]
note(
    "after",
    hashlib.sha256(b"".join(weights)).hexdigest(),
    loader.epoch,
    loader.step,
    optimizer.param_groups[0]["lr"],
    scheduler.last_epoch,
)
