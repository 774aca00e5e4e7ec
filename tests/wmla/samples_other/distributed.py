"""Several processes with PyTorch, in the shape of WMLA's samples: gradients are averaged by hand, ranks by env://."""

import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
import torch.nn.functional as F
from torch import optim

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--dist-backend", type=str, default="gloo")
args = parser.parse_args()

world_size = int(os.environ["WORLD_SIZE"])
rank = int(os.environ["RANK"])
print("init", os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) > 0, "rank", rank, "of", world_size)
dist.init_process_group(args.dist_backend, init_method="env://", rank=rank, world_size=world_size)
torch.manual_seed(1)

data = np.load(os.path.join(os.environ["DATA_DIR"], "digits.npz"))
x = torch.from_numpy(data["train_x"])[rank::world_size]
y = torch.from_numpy(data["train_y"])[rank::world_size]
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(1, args.epochs + 1):
    for begin in range(0, len(x), 32):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[begin : begin + 32]), y[begin : begin + 32])
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world_size
        optimizer.step()
    print("Rank ", rank, ", epoch ", epoch, ": ", loss.item())
total = sum(parameter.sum().item() for parameter in model.parameters())
print("weights: {:.6f}".format(total))
if rank == 0:
    torch.save(model.state_dict(), os.environ["RESULT_DIR"] + "/model/digits.pt")
