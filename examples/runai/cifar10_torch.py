"""Gradient accumulation with all that goes with it: a GradScaler, a scheduler, clipping, a checkpoint between updates.

python examples/runai/cifar10_torch.py              images of CIFAR-10's shape, made here

It trains half an epoch, stores everything, and goes on in another optimizer, in the middle of an update.
"""

from __future__ import annotations

import argparse
import io
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import runai.ga.torch.optim

CLASSES = 10


def images(count: int, seed: int) -> TensorDataset:
    """3 x 32 x 32; each class has a colour and a stripe of its own, in noise."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(CLASSES, (count,), generator=generator)
    made = torch.randn(count, 3, 32, 32, generator=generator) * 0.5
    for image, target in zip(made, targets.tolist(), strict=True):
        image[target % 3, :, 3 * target : 3 * target + 3] += 1
    return TensorDataset(made, targets)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 2 * 2, CLASSES),
    )


class Training:
    """A model and what trains it; ``steps`` micro-batches make one update."""

    def __init__(self, steps: int, device: torch.device) -> None:
        self.device = device
        self.model = network().to(device)
        inner = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.optimizer = runai.ga.torch.optim.Optimizer(inner, steps)
        self.optimizer.register_step_pre_hook(self._clip)  # before updates, of the whole batch's gradient
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.8)
        self.scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")

    def micro_batch(self, inputs: Tensor, targets: Tensor) -> None:
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, enabled=self.device.type == "cuda"):
            loss = functional.cross_entropy(self.model(inputs.to(self.device)), targets.to(self.device))
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer, samples=len(inputs))
        self.scaler.update()

    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler, "scaler": self.scaler}

    def _clip(self, *_: object) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)


def stored_and_loaded(training: Training, steps: int) -> Training:
    """A new training that goes on where ``training`` is, also within an update."""
    file = io.BytesIO()
    torch.save({name: part.state_dict() for name, part in training.parts().items()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    other = Training(steps, training.device)
    for name, part in other.parts().items():
        part.load_state_dict(state[name])
    return other


def main() -> None:
    """Train and print the accuracy on images that were not trained on."""
    parser = argparse.ArgumentParser(description="Train with gradient accumulation.")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16, help="samples of a micro-batch")
    parser.add_argument("--steps", type=int, default=4, help="micro-batches of an update")
    options = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    training = Training(options.steps, device)
    loader = DataLoader(images(1000, seed=1), batch_size=options.batch_size, shuffle=True)
    for epoch in range(options.epochs):
        for number, (inputs, targets) in enumerate(loader):
            if epoch == 0 and number == len(loader) // 2 + 1:
                training = stored_and_loaded(training, options.steps)
                print(f"goes on from a checkpoint after {training.optimizer.runai.step} micro-batches")
            training.micro_batch(inputs, targets)
        training.optimizer.flush()  # 63 micro-batches are 15 updates and three quarters of one
        training.scheduler.step()
        inputs, targets = images(500, seed=2).tensors
        with torch.no_grad():
            right = (training.model(inputs.to(device)).argmax(1).cpu() == targets).float().mean()
        print(f"epoch {epoch + 1}: {training.optimizer.runai.step // options.steps} updates, accuracy {right:.3f}")


if __name__ == "__main__":
    main()
