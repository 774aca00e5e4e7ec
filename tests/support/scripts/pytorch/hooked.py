"""A user's main with callbacks: a rate that changes by the epoch, a scheduler, one that looks at the model itself."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

from callbacks import Callback
from fabric_model import FabricModel
from support.gate import Gate

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--without", default="")
parser.add_argument("--validation", type=int, default=1)
parser.add_argument("--writes", action="store_true")
parser.add_argument("--trouble", default="")
options = parser.parse_args()

generator = torch.Generator().manual_seed(1)
inputs, targets = torch.randn(44, 6, generator=generator), torch.randint(0, 3, (44,), generator=generator)
held_out = (torch.randn(30, 6, generator=generator), torch.randint(0, 3, (30,), generator=generator))


class EveryOther(Callback):
    """As in IBM's notebook: the rate is multiplied, so a hook that ran twice or never would show."""

    def on_epoch_begin(self, epoch):
        if epoch and epoch % 2 == 0:
            for group in self.params["optimizer"].param_groups:
                group["lr"] *= 0.5
        print(f"hook begin {epoch}", flush=True)
        if options.trouble == f"begin {epoch}":
            raise RuntimeError("there is a mistake in this hook")

    def on_epoch_end(self, epoch, save_model=False):
        last = epoch == self.params["epochs"] - 1
        print(f"hook end {epoch} saves {save_model} last {last}", flush=True)


class Scheduled(Callback):
    def __init__(self, momentum_too):
        self.momentum_too = momentum_too  # without the base class's __init__, as users write it

    def on_train_begin(self):
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.params["optimizer"], 3, 0.3)

    def on_epoch_end(self, epoch):
        self.scheduler.step()
        if self.momentum_too:
            self.params["optimizer"].param_groups[0]["momentum"] = 0.5 + 0.3 / (1 + self.scheduler.last_epoch)


class BestOfAll(Callback):
    """Remembers the best weights by its own measure, goes back to them now and then, and draws random numbers."""

    def __init__(self):
        super().__init__()
        self.best, self.weights, self.losses = float("inf"), None, []

    def on_epoch_end(self, epoch, save_model=False):
        self.model.eval()
        with torch.no_grad():
            loss = F.cross_entropy(self.model(held_out[0]), held_out[1]).item()
        self.losses.append(loss)
        if loss < self.best:
            self.best = loss
            self.weights = {name: value.clone() for name, value in self.model.state_dict().items()}
        elif epoch % 2:
            self.model.load_state_dict(self.weights)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(1e-3 * len(self.losses) * torch.randn_like(parameter))


class Writing(torch.optim.SGD):
    """Writes into the gradients, as some optimizers do."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(1.0)
        return super().step(closure)


net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))
callbacks = [EveryOther(), Scheduled(momentum_too=True), BestOfAll()]
FabricModel(
    net,
    lambda: (torch.utils.data.TensorDataset(inputs, targets), torch.utils.data.TensorDataset(*held_out)),
    F.cross_entropy,
    (Writing if options.writes else torch.optim.SGD)(net.parameters(), 0.2, momentum=0.8),
    worker_logger_callback=Gate.from_environment(),
    user_callback=[callback for callback in callbacks if type(callback).__name__ not in options.without.split(",")],
).train(options.epochs, 4, 4, validation_freq=options.validation, checkpoint_freq=2)
