"""AlexNet, VGG16 and ResNet18, trained on made-up pictures: a job that needs no code and no data.

Each picture is its class's pattern with noise over it, made from the picture's number, so that every process makes the
same ones. One process trains alone. Several share each step's pictures and average their gradients.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

CLASSES, NOISE, PATTERN = 10, 0.5, 8


class MadeUpPictures(Dataset[tuple[torch.Tensor, int]]):
    """Square pictures in three colours, with their classes."""

    def __init__(self, size: int, length: int) -> None:
        self._length = length
        coarse = torch.rand(CLASSES, 3, PATTERN, PATTERN, generator=torch.Generator().manual_seed(0))
        self._patterns = functional.interpolate(coarse, size=(size, size))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        pattern = self._patterns[number % CLASSES]
        noise = torch.randn(pattern.shape, generator=torch.Generator().manual_seed(number))
        return pattern + NOISE * noise, number % CLASSES


def alexnet() -> nn.Module:
    """AlexNet for pictures of 32 pixels and more: its first layers shrink a picture less than the original's."""
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 5, stride=2, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()),
        *(nn.Dropout(), nn.Linear(256 * 4, 1024), nn.ReLU()),
        *(nn.Dropout(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, CLASSES)),
    )


def vgg16() -> nn.Module:
    """VGG16: five blocks of 3 x 3 convolutions, with batch normalization, so that it learns from few pictures."""
    layers: list[nn.Module] = []
    before = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            before = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, CLASSES)]
    return nn.Sequential(*layers)


class Block(nn.Module):
    """Two convolutions, past which the block's input goes straight to its output."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)),
        )
        same = stride == 1 and before == width
        shrink = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        self.past = nn.Identity() if same else shrink

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(pictures) + self.past(pictures))


def resnet18() -> nn.Module:
    """ResNet18 for small pictures: a 3 x 3 convolution first, and no pooling behind it."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    before = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(before, width, stride), Block(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))


MODELS: dict[str, Callable[[], nn.Module]] = {"AlexNet": alexnet, "VGG16": vgg16, "ResNet18": resnet18}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A prebuilt model on made-up pictures.")
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=20, help="pictures of a step, of each process")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--image-size", type=int, default=32, help="pixels of a picture's side, at least 32")
    parser.add_argument("--samples", type=int, default=200, help="pictures of an epoch")
    given, _ = parser.parse_known_args()
    if given.image_size < 32 or min(given.samples, given.batch_size) < 1:
        parser.error("--image-size takes 32 or more, --samples and --batch-size 1 or more")
    return given


def main() -> None:
    given = options()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if world > 1:
        distributed.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(0)
    net = MODELS[given.model]().to(device)
    trained = DistributedDataParallel(net) if world > 1 else net
    pictures = MadeUpPictures(given.image_size, given.samples)
    sampler: DistributedSampler[tuple[torch.Tensor, int]] = DistributedSampler(pictures, world, rank)
    loader = DataLoader(pictures, given.batch_size, sampler=sampler)
    optimizer = torch.optim.SGD(trained.parameters(), given.lr, given.momentum)
    for epoch in range(1, given.epochs + 1):
        sampler.set_epoch(epoch)
        trained.train()
        loss = torch.zeros(())
        for batch, kinds in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(trained(batch.to(device)), kinds.to(device))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if rank == 0:
            print(f"Epoch {epoch}/{given.epochs}, Loss: {loss.item():.5f}", flush=True)
    if rank == 0:
        folder = Path(os.environ["RESULT_DIR"], "model")
        folder.mkdir(exist_ok=True)
        torch.save(net.state_dict(), folder / f"{given.model}.pth")
        print(f"saved {folder / given.model}.pth", flush=True)
    if world > 1:
        del trained, net, optimizer
        gc.collect()  # a model that outlives its group can end the process by an abort
        distributed.barrier()
        distributed.destroy_process_group()


main()
