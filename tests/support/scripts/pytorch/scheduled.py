"""A user's main whose learning rate follows a number that only a hook of the optimizer knows: the hook begins to count
anew in an engine that joins. After the warm-up the rate no longer depends on where it began."""

import argparse
import itertools
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from edt_runner import context
from support.gate import Gate

parser = argparse.ArgumentParser()
parser.add_argument("--loop", default="fabric")
parser.add_argument("--samples", type=int, default=64)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--warm-up", type=int, default=10)
parser.add_argument("--recovery", type=float, default=10.0)
parser.add_argument("--fault-once", type=int, default=0, help="a step after which a second engine's weights are hurt")
parser.add_argument("--interval", type=int)
parser.add_argument("--threads", type=int, default=0, help="of every engine but the first")
parser.add_argument("--on-mismatch", default="mark")
parser.add_argument("--require-exact", action="store_true")
options = parser.parse_args()

net = nn.Linear(4, 3)
role = context.current()
steps = itertools.count(1)
joined = role is not None and role.role == "engine" and role.name != "1"
if joined and options.threads:
    torch.set_num_threads(options.threads)


def hurt(optimizer, *_):
    """As a flipped bit would, once in a training."""
    step, mark = next(steps), Path("hurt")
    if joined and options.fault_once and step >= options.fault_once and not mark.exists():
        mark.touch()
        with torch.no_grad():
            net.weight.view(-1)[5] += 1


generator = torch.Generator().manual_seed(1)
data = TensorDataset(
    torch.randn(options.samples, 4, generator=generator),
    torch.randint(0, 3, (options.samples,), generator=generator),
)
comparing = {
    "compare_interval": options.interval,
    "on_mismatch": options.on_mismatch,
    "require_exact": options.require_exact,
}
if os.environ.get("TEST_OLD"):
    comparing = {}


def attach(optimizer):
    if options.warm_up:
        counted = itertools.count(1)

        def warm(*_):
            (group,) = optimizer.param_groups
            group["lr"] = 0.1 * min(1.0, (next(counted) + 1) / options.warm_up)

        optimizer.param_groups[0]["lr"] = 0.1 / options.warm_up
        optimizer.register_step_post_hook(warm)
    optimizer.register_step_post_hook(hurt)


if options.loop == "own":
    import runai.elastic.torch

    runai.elastic.torch.init(16, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    attach(optimizer)
    loader = runai.elastic.torch.loader(
        data,
        net,
        optimizer,
        options.epochs,
        recovery_interval=options.recovery,
        worker_logger_callback=Gate.from_environment(),
        **comparing,
    )
    for inputs, targets in loader:
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), targets).backward()
        optimizer.step()
else:
    from fabric_model import FabricModel

    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    attach(optimizer)
    FabricModel(
        net,
        lambda: (data, None),
        F.cross_entropy,
        optimizer,
        worker_logger_callback=Gate.from_environment(),
    ).train(options.epochs, 4, 4, recovery_interval=options.recovery, **comparing)
