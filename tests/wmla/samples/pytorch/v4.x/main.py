"""The shape of the notebooks for WMLA 4.x: pyedt, resources given to train(), the trained model packed at the end."""

import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import TensorDataset

from pyedt.fabric_model import FabricModel


def getDatasets():
    sets = np.load(os.path.join(os.environ["DATA_DIR"], "digits.npz"))
    return tuple(
        TensorDataset(torch.from_numpy(sets[f"{part}_x"]), torch.from_numpy(sets[f"{part}_y"]))
        for part in ("train", "test")
    )


model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
edt_m = FabricModel(model, getDatasets, F.cross_entropy, optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
edt_m.train(2, 16, 4, worker_memory="16G", driver_memory="1G")
edt_m.download(out_dir=os.path.join(os.environ["RESULT_DIR"], "packed"))
