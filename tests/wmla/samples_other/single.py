"""One process with PyTorch, in the shape of WMLA's samples: strict options, RESULT_DIR/model is there."""

from __future__ import print_function
import argparse
import os

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch import optim

parser = argparse.ArgumentParser(description="digits")
parser.add_argument("--batch-size", type=int, default=64, metavar="N")
parser.add_argument("--epochs", type=int, default=3, metavar="N")
parser.add_argument("--lr", type=float, default=0.05, metavar="LR")
parser.add_argument("--no-cuda", type=lambda word: word.lower() == "true", default=False)
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()
torch.manual_seed(1)

print("options:", vars(args))
print("devices:", os.environ["CUDA_VISIBLE_DEVICES"] or "none", "threads:", os.environ["OMP_NUM_THREADS"])
data = np.load(os.path.join(os.environ["DATA_DIR"], "digits.npz"))
x, y = torch.from_numpy(data["train_x"]), torch.from_numpy(data["train_y"])

model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
for epoch in range(1, args.epochs + 1):
    for begin in range(0, len(x), args.batch_size):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[begin : begin + args.batch_size]), y[begin : begin + args.batch_size])
        loss.backward()
        optimizer.step()
    print("Train Epoch: {} \tLoss: {:.6f}".format(epoch, loss.item()))
torch.save(model.state_dict(), os.path.join(os.environ["RESULT_DIR"], "model", "digits.pt"))
