"""A language model over characters: tied weights, AdamW with two groups, one cycle by the step, clipping, a mean over
tokens. The text is that of Python's own help; its lines have different lengths.

The change: ``FabricModel(…).train(…)`` in place of the loop, which is told that the loss is a mean over tokens. So the
gradient of a step is that of its whole batch, on any number of engines. Clipping acts on that gradient.
"""

from pydoc_data.topics import topics

import torch
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.utils.data import TensorDataset

from fabric_model import FabricModel

EPOCHS, MICRO_BATCH, ENGINES, RATE = 2, 16, 4, 1e-2
LENGTH, WIDTH, SIGNS = 48, 64, 128
NONE = -100
"""Where a row has no further character to predict."""


def datasets():
    """Lines of ASCII characters: (all but the last character, all but the first)."""
    lines = [line.strip() for topic in sorted(topics)[:6] for line in topics[topic].splitlines()]
    rows = [[min(ord(sign), SIGNS - 1) for sign in line[: LENGTH + 1]] for line in lines if len(line) > 8]
    inputs = torch.tensor([row[:-1] + [0] * (LENGTH + 1 - len(row)) for row in rows])
    targets = torch.tensor([row[1:] + [NONE] * (LENGTH + 1 - len(row)) for row in rows])
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    held_out = len(rows) // 10
    return (
        TensorDataset(inputs[order[held_out:]], targets[order[held_out:]]),
        TensorDataset(inputs[order[:held_out]], targets[order[:held_out]]),
    )


class Language(nn.Module):
    """The embedding is also the output layer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(SIGNS, WIDTH)
        self.memory = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, SIGNS)
        self.head.weight = self.embedding.weight

    def forward(self, signs):
        return self.head(self.memory(self.embedding(signs))[0])


def groups(model):
    """Matrices decay, vectors do not."""
    parameters = list(model.parameters())
    return [
        {"params": [each for each in parameters if each.dim() > 1], "weight_decay": 0.01},
        {"params": [each for each in parameters if each.dim() == 1], "weight_decay": 0.0},
    ]


def token_loss(outputs, targets):
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=NONE)


def main():
    torch.manual_seed(0)
    model = Language()
    optimizer = torch.optim.AdamW(groups(model), lr=RATE)
    train_set, held_out = datasets()
    steps = EPOCHS * -(-len(train_set) // (MICRO_BATCH * ENGINES))
    cycle = lr_scheduler.OneCycleLR(optimizer, 2 * RATE, total_steps=steps)
    FabricModel(model, datasets, token_loss, optimizer, loss_reduction="token").train(
        EPOCHS, MICRO_BATCH, ENGINES, lr_scheduler=cycle, lr_scheduler_interval="step", clip_grad_norm=1.0
    )
    inputs, targets = held_out.tensors
    with torch.no_grad():
        print(f"held-out loss {token_loss(model(inputs), targets):.3f}")


if __name__ == "__main__":
    main()
