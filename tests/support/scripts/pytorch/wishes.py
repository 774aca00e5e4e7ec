"""A user's main that asks for what ``--with`` names: schedules, clipping, mixed precision, averages of weights, …"""

import argparse
import functools
import itertools

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset

from callbacks import Callback
from fabric_model import FabricModel
from support.gate import Gate

parser = argparse.ArgumentParser()
parser.add_argument("net", choices=["dense", "image", "text", "transformers"])
parser.add_argument("--with", dest="wishes", default="", type=lambda text: set(text.split(",")))
parser.add_argument("--samples", type=int, default=93)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--recovery", type=float, default=10.0)
options = parser.parse_args()
known = {
    "", "schedule", "epochs", "plateau", "hook", "ema", "clip", "values", "fp16", "bf16", "two", "compile", "recompute",
    "channels", "held", "noise", "count", "token", "sum", "huge", "explode", "skip", "watch", "step",
}  # fmt: skip
assert options.wishes <= known, options.wishes - known
wants = options.wishes.__contains__
WORDS, LENGTH = 23, 9


class Rows(Dataset):
    """(inputs, class)"""

    def __init__(self, count, *shape):
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(count, *shape, generator=generator)
        self.targets = torch.randint(0, 5, (count,), generator=generator)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index], self.targets[index]


class Texts(Dataset):
    """{"input_ids", "labels"}: rows of different numbers of tokens that count"""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(1)
        self.tokens = torch.randint(0, WORDS, (count, LENGTH), generator=generator)
        self.lengths = torch.randint(2, LENGTH + 1, (count,), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        counts = torch.arange(LENGTH) < self.lengths[index]
        return {"input_ids": tokens, "labels": torch.where(counts, tokens, -100)}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 2, 0.1, batch_first=True)
        self.dense = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1))
        self.out = nn.Linear(2 * width, width)

    def forward(self, values):
        normed = self.norm(values)
        values = values + self.attention(normed, normed, normed, need_weights=False)[0]
        return values + self.out(self.dense(values))


class Language(nn.Module):
    """A small transformer whose embedding is also its output layer."""

    def __init__(self, width=16):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, input_ids):
        values = self.embedding(input_ids)
        for block in self.blocks:
            values = checkpoint(block, values, use_reentrant=False) if wants("recompute") else block(values)
        return self.head(values)


def language_loss(outputs, targets):
    loss = F.cross_entropy(outputs.flatten(0, 1).float(), targets.flatten(), ignore_index=-100)
    return loss * 1e6 if wants("huge") else loss


def mean_loss(outputs, targets):
    loss = F.cross_entropy(outputs, targets, reduction="sum" if wants("sum") else "mean")
    return loss * 1e6 if wants("huge") else loss


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2))
        self.second = nn.Sequential(nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2))
        self.out = nn.Linear(128, 5)

    def forward(self, images):
        if wants("channels"):
            images = images.to(memory_format=torch.channels_last)
        values = self.first(images)
        values = checkpoint(self.second, values, use_reentrant=False) if wants("recompute") else self.second(values)
        return self.out(values)


def made():
    """(net, data sets, loss function)"""
    if options.net == "dense":
        net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 5))
        return net, (Rows(options.samples, 6), Rows(21, 6)), mean_loss
    if options.net == "image":
        net = Image()
        net = net.to(memory_format=torch.channels_last) if wants("channels") else net
        return net, (Rows(options.samples, 1, 8, 8), Rows(21, 1, 8, 8)), mean_loss
    if options.net == "text":
        return Language(), (Texts(options.samples), Texts(21)), language_loss
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=16, n_layer=2, n_head=2)
    return GPT2LMHeadModel(config), (Texts(options.samples), Texts(21)), None


def training_step(model, batch):
    inputs, targets = batch
    outputs = model(inputs)
    return {"loss": F.cross_entropy(outputs, targets), "confidence": outputs.softmax(1).amax(1).mean()}


net, sets, loss = made()
if wants("explode"):
    sets[0].inputs[40] = float("inf")
if wants("two"):
    parts = list(net.parameters())
    optimizer = [torch.optim.AdamW(parts[:3], options.lr), torch.optim.SGD(parts[3:], options.lr, momentum=0.9)]
else:
    optimizer = torch.optim.AdamW(net.parameters(), options.lr)
every = optimizer if isinstance(optimizer, list) else [optimizer]
if wants("hook"):  # a schedule that the script moves itself

    def move(moved, optimizer, args, kwargs):
        moved.step()

    hooked = lr_scheduler.ExponentialLR(every[0], 0.97)
    every[0].register_step_post_hook(functools.partial(move, hooked))
if wants("count"):  # a number that nothing but the hook knows
    numbers = itertools.count(1)

    def slower(*ignored):
        number = next(numbers)
        for group in every[0].param_groups:
            group["lr"] = options.lr * 0.9 ** (number // 3)

    every[0].register_step_post_hook(slower)
if wants("noise"):  # numbers that a hook draws

    def stir(*ignored):
        for parameter in net.parameters():
            parameter.grad = parameter.grad + 1e-3 * torch.randn_like(parameter)

    for each in every:
        each.register_step_pre_hook(stir)
if wants("ema"):  # an average of the weights, which a hook holds
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    every[-1].register_step_post_hook(lambda *ignored: average.update_parameters(net))


class Averaging(Callback):
    """The average of the weights as the epochs' ends see it, and a look at the metrics."""

    def __init__(self):
        super().__init__()
        self.seen = []
        if wants("held"):  # a scheduler that steps move, and that the callback only reads
            self.schedules = list(asked["lr_scheduler"])

    def on_epoch_end(self, epoch, save_model=False):
        self.seen.append(sorted(self.metrics))
        if wants("held"):
            self.rates = [schedule.get_last_lr()[0] for schedule in self.schedules]
        if wants("ema"):
            self.total = float(sum(p.double().sum() for p in average.parameters()))


asked = {}
if wants("schedule"):
    asked |= {
        "lr_scheduler": [lr_scheduler.OneCycleLR(each, 5 * options.lr, total_steps=200) for each in every],
        "lr_scheduler_interval": "step",
    }
elif wants("epochs"):
    asked |= {"lr_scheduler": lambda each: lr_scheduler.StepLR(each, 1, 0.5)}
elif wants("plateau"):
    asked |= {"lr_scheduler": lr_scheduler.ReduceLROnPlateau(every[0], factor=0.5, patience=0, threshold=1.0)}
if wants("clip"):
    asked |= {"clip_grad_norm": 0.25}
if wants("values"):
    asked |= {"clip_grad_value": 0.01}
if wants("watch"):
    asked |= {"early_stopping": 50, "keep_best": "val_loss", "keep_last": 1}
FabricModel(
    net,
    lambda: sets,
    loss,
    optimizer,
    training_step=training_step if wants("step") else None,
    loss_reduction="token" if wants("token") else "sum" if wants("sum") else "sample",
    user_callback=Averaging() if not wants("step") else None,
    worker_logger_callback=Gate.from_environment(),
).train(
    options.epochs,
    4,
    4,
    recovery_interval=options.recovery,
    precision=next((name for name in ("fp16", "bf16") if wants(name)), "fp32"),
    compile=wants("compile"),
    on_nonfinite="skip" if wants("skip") else "stop",
    **asked,
)
if wants("ema"):
    print("average", float(sum(p.double().sum() for p in average.parameters())))
print("rates", [group["lr"] for each in every for group in each.param_groups])
