"""A user's loop with everything at its natural place. After it, ``$TEST_SEEN/after`` has what the driver then knows.

--with: what the loop has
    scaled     a GradScaler whose scale is too large at first, and again later
    steps      a schedule by the step, in the body
    hook       a schedule that a hook of the optimizer moves
    clip       clip_grad_norm_ and clip_grad_value_
    two        two optimizers, the second with a schedule by the epoch
    average    an average of the weights
    validated  a validation, early stopping and the best epoch
"""

import argparse
import hashlib
import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import Dataset

import openedt
from support.gate import Gate

parser = argparse.ArgumentParser()
parser.add_argument("--with", dest="wishes", default="", type=lambda text: set(filter(None, text.split(","))))
parser.add_argument("--trouble", choices=["noise", "leader"], help="add noise to gradients; let one engine do more")
parser.add_argument("--samples", type=int, default=149)
parser.add_argument("--epochs", type=int, default=2)
options = parser.parse_args()
known = {"scaled", "steps", "hook", "clip", "two", "average", "validated"}
assert options.wishes <= known, options.wishes - known
wants = options.wishes.__contains__


class Images(Dataset):
    """{"image", "class"}, augmented with the global generators."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.images = torch.randn(count, 1, 8, 8, generator=generator)
        self.classes = torch.randint(0, 5, (count,), generator=generator)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return {"image": self.images[index] + 0.1 * torch.randn(1, 8, 8), "class": self.classes[index]}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.25)
        )
        self.head = nn.Linear(96, 5)

    def forward(self, images):
        return self.head(self.body(images))


def validated(model, batch):
    outputs = model(batch["image"])
    loss = F.cross_entropy(outputs, batch["class"])
    return {"loss": loss, "accuracy": (outputs.argmax(1) == batch["class"]).double().mean()}


model = Net()
if wants("two"):
    optimizers = [
        torch.optim.SGD(model.body.parameters(), lr=0.05, momentum=0.9),
        torch.optim.AdamW(model.head.parameters(), lr=1e-2),
    ]
    by_epoch = lr_scheduler.ExponentialLR(optimizers[1], 0.5)
else:
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2)]
by_step = lr_scheduler.OneCycleLR(optimizers[0], 0.05, total_steps=100)
if wants("hook"):
    optimizers[0].register_step_post_hook(lambda *ignored: by_step.step())
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=4, enabled=wants("scaled"))
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.7)) if wants("average") else None
asked = {}
if wants("validated"):
    asked = {
        "validation": Images(41, 2),
        "validation_step": validated,
        "early_stopping": 5,
        "keep_best": "val_accuracy",
    }
loader = openedt.loader(
    Images(options.samples, 1),
    model,
    optimizers,
    epochs=options.epochs,
    batch_size=18,
    device_batch_size=5,
    metrics=["accuracy"],
    worker_logger_callback=Gate.from_environment(),
    **asked,
)
for batch in loader:
    for optimizer in optimizers:
        optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=wants("scaled")):
        outputs = model(batch["image"])
        loss = 4 * F.cross_entropy(outputs, batch["class"])
    scaler.scale(loss).backward()
    if wants("clip"):
        for optimizer in optimizers:
            scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        clip_grad_value_(model.head.parameters(), 0.1)
    if options.trouble == "noise" and loader.step == 3:
        for parameter in model.parameters():
            parameter.grad.add_(torch.randn_like(parameter))
    if options.trouble == "leader" and loader.leads:
        by_step.step()
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    if wants("steps"):
        by_step.step()
    if wants("two") and loader.ends_epoch:
        by_epoch.step()
    if average is not None:
        average.update_parameters(model)
    loader.report(loss, accuracy=(outputs.argmax(1) == batch["class"]).double().mean())

modules = [model] if average is None else [model, average]
digest = hashlib.sha256()
for module in modules:
    for tensor in module.state_dict().values():
        digest.update(tensor.numpy().tobytes())
Path(os.environ["TEST_SEEN"], "after").write_text(
    f"{digest.hexdigest()}\n{loader.epoch} {loader.step}\n{sorted(loader.metrics.items())}\n"
    f"{by_step.last_epoch} {scaler.state_dict()}\n"
)
