"""A user's main: convolution, batch normalization, dropout, Adam; a data set that leaves an uneven last step."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

from edt_runner.lr_scaling.rules import AdaScale
from fabric_model import FabricModel
from support.gate import Gate

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=237)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--loaders", type=int, default=0)
parser.add_argument("--reduction", default="exact")
parser.add_argument("--recovery", type=float, default=10.0)
parser.add_argument("--scaling", default="fixed")
parser.add_argument("--rule")
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--classes", type=int, default=5, help="outputs of the last layer")
parser.add_argument("--own-step", action="store_true", help="compute micro-batches by functions of WMLA's form")
parser.add_argument("--require-exact", action="store_true")
parser.add_argument("--audit", type=int, help="training steps from one audit to the next")
options = parser.parse_args()
if options.rule == "adascale":
    options.rule = AdaScale(base="micro_batch")  # its gain is above 1 in every step


class Noisy(Dataset):
    """Augments with the global generators: the same whatever process loads it."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(1)
        self.images = torch.randn(count, 1, 8, 8, generator=generator)
        self.targets = torch.randint(0, 5, (count,), generator=generator)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index] + 0.1 * torch.randn(1, 8, 8), self.targets[index]


def own_step(model, data, eva, train_loader, fn_args):
    inputs, targets = data
    model.get_optimizer().zero_grad()
    outputs = model(inputs)
    loss = model.get_loss_function()(outputs, targets)
    loss.backward()
    return eva(outputs, targets), loss


def own_test(model, test_iter, fn_args):
    return sum(model.get_loss_function()(model(inputs), targets).item() for inputs, targets in test_iter)


net = nn.Sequential(
    nn.Conv2d(1, 6, 3, padding=1),
    nn.BatchNorm2d(6),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Dropout(0.25),
    nn.Linear(96, options.classes),
)
FabricModel(
    net,
    lambda: (Noisy(options.samples), Noisy(37)),
    F.cross_entropy,
    torch.optim.Adam(net.parameters(), options.lr),
    worker_logger_callback=Gate.from_environment(),
    fn_step_train=own_step if options.own_step else None,
    fn_test=own_test if options.own_step else None,
).train(
    options.epochs,
    options.batch,
    options.workers,
    options.loaders,
    reduction=options.reduction,
    recovery_interval=options.recovery,
    batch_scaling=options.scaling,
    lr_rule=options.rule,
    require_exact=options.require_exact,
    audit_interval=options.audit,
)
print("the code behind train() runs once")
