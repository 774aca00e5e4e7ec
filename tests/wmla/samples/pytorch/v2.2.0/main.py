"""The shape of a script for WMLA 2.2.0: strict arguments, the platform's emetrics, three positional arguments."""

import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from edtcallback import EDTLoggerCallback
from torch import nn, optim
from torch.utils.data import TensorDataset

from fabric_model import FabricModel

data_dir = os.environ.get("DATA_DIR", "/tmp")
result_dir = os.environ.get("RESULT_DIR", "/tmp")
print("data_dir=%s, result_dir=%s" % (data_dir, result_dir))
MAX_NUM_WORKERS = 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=3)
        self.fc1 = nn.Linear(36, 16)
        self.fc2 = nn.Linear(16, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.dropout(F.relu(self.fc1(x.view(x.size(0), -1))), p=0.5, training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


def get_datasets():
    sets = np.load(os.path.join(data_dir, "digits.npz"))
    return tuple(
        TensorDataset(torch.from_numpy(sets[f"{part}_x"]), torch.from_numpy(sets[f"{part}_y"]))
        for part in ("train", "test")
    )


def main():
    parser = argparse.ArgumentParser(description="EDT example")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    edt_m = FabricModel(model, get_datasets, F.nll_loss, optimizer, driver_logger=EDTLoggerCallback())
    edt_m.train(args.epochs, args.batch_size, MAX_NUM_WORKERS)
    torch.save(model.state_dict(), os.path.join(result_dir, "model", "mine.pt"))
    print("trained to the end")


if __name__ == "__main__":
    main()
