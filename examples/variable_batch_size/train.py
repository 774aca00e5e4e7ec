"""Images of 28 x 28, trained with a batch size that changes by a trace.

python examples/variable_batch_size/train.py
torchrun --nproc-per-node 3 examples/variable_batch_size/train.py --rule adascale
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import variable_batch_size as vbs

HERE = Path(__file__).resolve().parent
HELD_OUT = 360
"""Images of 1797 that are only looked at in the end of an epoch."""
RULES = {
    "constant": vbs.ConstantOptimizer,
    "linear": vbs.LinearRuleOptimizer,
    "root": vbs.RootRuleOptimizer,
    "linear-warmup": vbs.LinearWarmupRuleOptimizer,
    "legw": vbs.LegwOptimizer,
    "linear-momentum": vbs.LinearRuleMomentumOptimizer,
    "adascale": vbs.AdaScaleOptimizer,
}


class Network(nn.Module):
    """Two convolutions with batch statistics and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(), nn.BatchNorm2d(10)),
            *(nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(), nn.BatchNorm2d(20)),
        )
        self.classes = nn.Sequential(nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10))

    def forward(self, images: Tensor) -> Tensor:
        return functional.log_softmax(self.classes(self.features(images)), dim=1)


def datasets() -> tuple[TensorDataset, TensorDataset]:
    """scikit-learn's digits, enlarged to MNIST's size: training and held-out images."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(1797))
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)[order] / 16
    images = functional.interpolate(images, size=28, mode="bilinear", align_corners=False)
    images = (images - images.mean()) / images.std()
    targets = torch.tensor(digits.target)[order]
    return (
        TensorDataset(images[:-HELD_OUT], targets[:-HELD_OUT]),
        TensorDataset(images[-HELD_OUT:], targets[-HELD_OUT:]),
    )


def accuracy(model: nn.Module, held_out: TensorDataset, device: torch.device) -> float:
    """Percent of the held-out images that are recognised."""
    images, targets = (tensor.to(device) for tensor in held_out.tensors)
    model.eval()
    with torch.no_grad():
        return 100 * float((model(images).argmax(dim=1) == targets).double().mean())


def train(options: argparse.Namespace) -> float:
    """Train along the trace; the best accuracy of an epoch's end."""
    cuda = torch.cuda.is_available()
    several = "WORLD_SIZE" in os.environ
    if several:
        dist.init_process_group("nccl" if cuda else "gloo")
    rank = dist.get_rank() if several else 0
    device = torch.device("cuda", rank % torch.cuda.device_count()) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)

    torch.manual_seed(1)  # all processes begin with the same weights
    model = Network().to(device)
    train_set, held_out = datasets()
    sampler = vbs.CustomSampler(train_set, options.trace, minibatch_size=options.minibatch_size, at_end="cycle")
    loader = DataLoader(train_set, batch_sampler=sampler)
    inner = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=options.momentum)
    optimizer = RULES[options.rule](
        inner, sampler, ref_batchsize=options.ref_batchsize, log_steps=options.log_steps, model=model
    )
    best = 0.0
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        optimizer.set_epoch(epoch)
        model.train()
        for images, targets in loader:
            functional.nll_loss(model(images.to(device)), targets.to(device)).backward()
            optimizer.step()
        found = accuracy(model, held_out, device)
        best = max(best, found)
        if rank == 0:
            noise = optimizer.noise_scale
            print(
                f"epoch {epoch}: {len(sampler.get_epochtrace(epoch))} updates, noise scale {noise:.0f} samples, ",
                end="",
            )
            print(f"{found:.1f} % of {HELD_OUT} held-out images recognised")
    if several:
        dist.destroy_process_group()
    return best


def main() -> None:
    """Exit status 21: fewer held-out images were recognised than --target-accuracy says."""
    parser = argparse.ArgumentParser(description="Train a small network with a batch size that changes.")
    parser.add_argument("--trace", default=str(HERE / "trace.csv"), help="CSV with a column batchsize")
    parser.add_argument("--rule", default="linear", choices=sorted(RULES))
    parser.add_argument("--minibatch-size", type=int, default=32)
    parser.add_argument("--ref-batchsize", type=int, default=128, help="the batch that the learning rate is for")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.5)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--log-steps", type=int, default=5)
    parser.add_argument("--target-accuracy", type=float, default=95.0)
    options = parser.parse_args()
    best = train(options)
    if best < options.target_accuracy:
        print(f"{best:.1f} % is below the target of {options.target_accuracy} %")
        sys.exit(21)


if __name__ == "__main__":
    main()
