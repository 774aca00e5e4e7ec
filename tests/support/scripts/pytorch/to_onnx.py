"""A user's main that wants an ONNX file. With ``--by-value`` its model cannot be written as one."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from fabric_model import FabricModel

parser = argparse.ArgumentParser()
parser.add_argument("--by-value", action="store_true")
options = parser.parse_args()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.norm, self.out = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, rows):
        hidden = F.dropout(self.norm(self.hidden(rows)), 0.2, self.training)
        if options.by_value and hidden.sum() > 0:
            hidden = -hidden
        return self.out(hidden)


generator = torch.Generator().manual_seed(1)
train = TensorDataset(torch.randn(40, 6, generator=generator), torch.randint(0, 3, (40,), generator=generator))
net = Net()
FabricModel(
    net, lambda: (train, None), F.cross_entropy, torch.optim.Adam(net.parameters(), 0.05), save_to_onnx=True
).train(2, 5, 4)
net.eval()
with torch.no_grad():
    torch.save(net(train.tensors[0]), "outputs.pth")
print("the code behind train() runs once")
