"""What ``prove_gpu`` trains: two small networks for digests, two large ones for times, and their data from memory.

Every op of them has a deterministic form on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

Sample = tuple[Tensor, Tensor]
CLASSES = 10
_STORED = 1 << 12
"""Different samples in memory; they come again and again."""


class Images(Dataset[Sample]):
    """Pictures as uint8, as image files hold them. The network makes floats of them, so that few bytes are copied."""

    def __init__(self, samples: int, side: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self._images = torch.randint(256, (_STORED, 3, side, side), dtype=torch.uint8, generator=generator)
        self._labels = torch.randint(CLASSES, (_STORED,), generator=generator)
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> Sample:
        return self._images[index % _STORED], self._labels[index % _STORED]


class Text(Dataset[Sample]):
    """Sequences of random words. The target of each word is the next one."""

    def __init__(self, samples: int, words: int, length: int) -> None:
        self._words = torch.randint(words, (_STORED + length,), generator=torch.Generator().manual_seed(1))
        self._samples, self._length = samples, length

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> Sample:
        start = index % _STORED
        return self._words[start : start + self._length], self._words[start + 1 : start + self._length + 1]


class Numbers(nn.Module):
    """Scales uint8 pictures to floats between -1 and 1."""

    def forward(self, images: Tensor) -> Tensor:
        return images.float().div(127.5).sub(1)


class Residual(nn.Module):
    """The block that ResNet-18 is made of."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outer),
            nn.ReLU(),
            nn.Conv2d(outer, outer, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outer),
        )
        same = stride == 1 and inner == outer
        self.skip = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))
        )

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.path(inputs) + self.skip(inputs)
        return functional.relu(found)


class Mean(nn.Module):
    """Mean over height and width."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean((2, 3))


def resnet(width: int) -> nn.Module:
    """ResNet-18 for pictures of 32 x 32; with a width of 64 it has 11.2 million parameters."""
    layers: list[nn.Module] = [Numbers(), nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inner = width
    for number in range(4):
        outer = width << number
        layers += [Residual(inner, outer, 1 if number == 0 else 2), Residual(outer, outer, 1)]
        inner = outer
    return nn.Sequential(*layers, Mean(), nn.Linear(inner, CLASSES))


class Block(nn.Module):
    """A transformer block: causal self-attention, then two linear layers for each word."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projection, self.answer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        projected = self.projection(self.before(hidden)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        attended: Tensor = self.dropout(self.answer(found.transpose(1, 2).reshape(batch, length, width)))
        computed: Tensor = self.dropout(self.layers(self.between(hidden + attended)))
        return hidden + attended + computed


class Gpt(nn.Module):
    """A transformer that predicts words."""

    def __init__(self, words: int, length: int, width: int, heads: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        logits: Tensor = self.head(self.last(self.blocks(self.words(words) + self.places.weight)))
        return logits


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy over all words or pictures. (In two dimensions it has no deterministic form on a GPU.)"""
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


@dataclass(frozen=True)
class Task:
    """A network with its data and its optimizer."""

    title: str
    batch: int
    """Samples of a micro-batch."""
    network: Callable[[], nn.Module]
    data: Callable[[int], Dataset[Sample]]
    """Of a number of samples, a data set."""
    adam: bool

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        if self.adam:
            return torch.optim.AdamW(model.parameters(), 1e-4)
        return torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)


def _convolutions() -> nn.Module:
    return nn.Sequential(
        Numbers(),
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 8 * 8, CLASSES),
    )


SMALL = ("convolutions", "attention")
"""Trained for their digests."""
TASKS = {
    "convolutions": Task(
        "convolutions, batch norm, dropout", 8, _convolutions, lambda samples: Images(samples, 16), adam=False
    ),
    "attention": Task(
        "attention, dropout", 8, lambda: Gpt(128, 32, 64, 4, 2, 0.1), lambda samples: Text(samples, 128, 32), adam=True
    ),
    "resnet": Task("ResNet-18", 512, lambda: resnet(64), lambda samples: Images(samples, 32), adam=False),
    "gpt": Task(
        "transformer",
        16,
        lambda: Gpt(8192, 256, 640, 10, 8, 0.0),
        lambda samples: Text(samples, 8192, 256),
        adam=True,
    ),
    "resnet-cpu": Task("small ResNet-18", 16, lambda: resnet(8), lambda samples: Images(samples, 32), adam=False),
    "gpt-cpu": Task(
        "small transformer",
        4,
        lambda: Gpt(512, 64, 128, 4, 2, 0.0),
        lambda samples: Text(samples, 512, 64),
        adam=True,
    ),
}
