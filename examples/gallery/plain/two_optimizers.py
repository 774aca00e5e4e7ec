"""Two optimizers: a small generative adversarial network that learns to draw points of a ring."""

import math
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH, NOISE = 30, 64, 4


def datasets():
    """Points at a distance of 2 from the middle, and none to validate with."""
    generator = torch.Generator().manual_seed(0)
    angles = 2 * math.pi * torch.rand(1024, generator=generator)
    points = 2 * torch.stack([angles.cos(), angles.sin()], 1)
    return TensorDataset(points + 0.05 * torch.randn(1024, 2, generator=generator)), None


def layers(*widths):
    parts = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.LeakyReLU(0.2))]
    return nn.Sequential(*parts[:-1])


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator, self.critic = layers(NOISE, 48, 48, 2), layers(2, 48, 48, 1)


def losses(model, points):
    """Of the critic, and of the generator, for points of the ring."""
    drawn = model.generator(torch.randn(len(points), NOISE))
    critic = (
        functional.softplus(-model.critic(points)).mean() + functional.softplus(model.critic(drawn.detach())).mean()
    )
    return critic, functional.softplus(-model.critic(drawn)).mean()


def distance(model):
    """How far a drawn point is from the ring, on average."""
    with torch.no_grad():
        return (model.generator(torch.randn(2000, NOISE)).norm(dim=1) - 2).abs().mean().item()


def main():
    torch.manual_seed(0)
    model = Pair()
    print(f"distance {distance(model):.3f} before")
    optimizers = [
        torch.optim.Adam(model.critic.parameters(), 4e-3, betas=(0.5, 0.99)),
        torch.optim.Adam(model.generator.parameters(), 2e-3, betas=(0.5, 0.99)),
    ]
    train_set, _ = datasets()
    for _ in range(EPOCHS):
        for (points,) in DataLoader(train_set, BATCH, shuffle=True):
            for each in optimizers:
                each.zero_grad()
            critic, generator = losses(model, points)
            critic.backward(retain_graph=True, inputs=list(model.critic.parameters()))
            generator.backward(inputs=list(model.generator.parameters()))
            for each in optimizers:
                each.step()
    print(f"distance {distance(model):.3f}")


if __name__ == "__main__":
    main()
