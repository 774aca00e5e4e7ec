"""The shape of the notebooks for WMLA 1.2.5 and 2.x: functions of its own for a step and a test, a callback, ONNX."""

import os

import numpy as np
import torch
import torch.nn.functional as F
from edtcallback import EDTLoggerCallback
from torch import nn, optim
from torch.utils.data import TensorDataset

from callbacks import Callback
from fabric_model import FabricModel


def get_max_worker():
    import argparse

    parser = argparse.ArgumentParser(description="EDT example")
    parser.add_argument("--numWorker", type=int, default="16")
    parser.add_argument("--gpuPerWorker", type=int, default="1")
    args, _ = parser.parse_known_args()
    print("args.numWorker: ", args.numWorker, "args.gpuPerWorker: ", args.gpuPerWorker)
    return args.numWorker * args.gpuPerWorker


BATCH_SIZE_PER_DEVICE = 16
NUM_EPOCHS = 3
MAX_NUM_WORKERS = get_max_worker()
DATA_DIR = os.getenv("DATA_DIR")
print("DATA_DIR: " + DATA_DIR)


class LRScheduleCallback(Callback):
    def __init__(self, step_size, gamma):
        super().__init__()
        self.step_size = step_size
        self.gamma = gamma

    def on_epoch_begin(self, epoch):
        if epoch != 0 and epoch % self.step_size == 0:
            for group in self.params["optimizer"].param_groups:
                group["lr"] *= self.gamma
        print(f"epoch={epoch} of {self.params['epochs']}, lr={self.params['optimizer'].param_groups[0]['lr']}")


def getDatasets():
    sets = np.load(os.path.join(DATA_DIR, "digits.npz"))
    return tuple(
        TensorDataset(torch.from_numpy(sets[f"{part}_x"]), torch.from_numpy(sets[f"{part}_y"]))
        for part in ("train", "test")
    )


def custom_train(model, data, eva, train_loader, fn_args):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs, labels = data
    inputs, labels = inputs.to(device), labels.to(device)
    opt = model.get_optimizer()
    opt.zero_grad()
    outputs = model(inputs)
    cri = model.get_loss_function()
    loss = cri(outputs, labels)
    loss.backward()
    acc = eva(outputs, labels)
    return acc, loss


def custom_test(model, test_iter, fn_args):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cri = model.get_loss_function()
    valid_loss = 0.0
    counter = 0
    for inputs, labels in test_iter:
        output = model(inputs.to(device))
        valid_loss += cri(output, labels.to(device)).item()
        counter += 1
    return valid_loss / counter


def main(model_type):
    print("==> Building model.." + str(model_type))
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    edt_m = FabricModel(
        model,
        getDatasets,
        F.cross_entropy,
        optimizer,
        enable_onnx=True,
        fn_step_train=custom_train,
        fn_test=custom_test,
        user_callback=[LRScheduleCallback(2, 0.1)],
        driver_logger=EDTLoggerCallback(),
    )
    print("==> epochs:" + str(NUM_EPOCHS) + ", engines_number:" + str(MAX_NUM_WORKERS))
    edt_m.train(
        NUM_EPOCHS,
        BATCH_SIZE_PER_DEVICE,
        MAX_NUM_WORKERS,
        num_dataloader_threads=2,
        validation_freq=2,
        checkpoint_freq=0,
    )
    print("trained to the end")


if __name__ == "__main__":
    main("resnet50")
