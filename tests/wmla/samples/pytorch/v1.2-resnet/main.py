"""The shape of a script that WMLA 1.2's pages ran: four constructor arguments, parameters from pth_parameter_mgr."""

import argparse
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from fabric_model import FabricModel

engines_number = 4
train_data_dir = test_data_dir = "/tmp"


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        return F.relu(x + self.norm(self.conv(x)))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.block, self.last = nn.Conv2d(1, 8, 3, padding=1), Block(8), nn.Linear(8, 10)

    def forward(self, x):
        return self.last(self.block(self.first(x)).mean(dim=(2, 3)))


def getDatasets():
    train, test = (np.load(os.path.join(place, "digits.npz")) for place in (train_data_dir, test_data_dir))
    return (
        TensorDataset(torch.from_numpy(train["train_x"]), torch.from_numpy(train["train_y"])),
        TensorDataset(torch.from_numpy(test["test_x"]), torch.from_numpy(test["test_y"])),
    )


def main(model_type, pretrained=False):
    global train_data_dir, test_data_dir  # noqa: PLW0603
    parser = argparse.ArgumentParser(description="ResNet example")
    parser.add_argument("--train_dir", type=str, default="")
    parser.add_argument("--weights", type=str, default="")
    args, unknown = parser.parse_known_args()
    print("train dir: %s, unknown: %s" % (args.train_dir, unknown))
    sys.path.insert(0, args.train_dir + "/../")
    import pth_parameter_mgr

    train_data_dir = pth_parameter_mgr.getTrainData(False)
    test_data_dir = pth_parameter_mgr.getTestData(False)
    torch.manual_seed(1)
    print("==> Building model.." + str(model_type))
    model = ResNet()
    optimizer = pth_parameter_mgr.getOptimizer(model)
    edt_m = FabricModel(model, getDatasets, F.cross_entropy, optimizer)
    edt_m.train(pth_parameter_mgr.getEpoch(), pth_parameter_mgr.getTrainBatchSize(), engines_number)
    print("trained to the end")


if __name__ == "__main__":
    main("resnet")
