"""The loop of ``plain.py``, which now goes on while engines join, leave or crash, with the same bits.

python examples/own_loop/elastic.py                      one process, this machine's device
EDT_CPU_SLOTS=3 python examples/own_loop/elastic.py      three engines; on a machine with GPUs, one a GPU
edt submit examples/own_loop/elastic.py --max-workers 3  on a platform: as many as there are, at any moment
"""

import hashlib

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import TensorDataset

import openedt

EPOCHS, BATCH, HELD_OUT = 5, 96, 360
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def datasets():
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)[order] / 16
    classes = torch.tensor(digits.target)[order]
    return TensorDataset(images[:-HELD_OUT], classes[:-HELD_OUT]), TensorDataset(
        images[-HELD_OUT:], classes[-HELD_OUT:]
    )


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(16 * 4 * 4, 10),
    )


def validation_step(model, batch):
    images, classes = (part.to(DEVICE) for part in batch)
    outputs = model(images)
    right = (outputs.argmax(1) == classes).double().mean()
    return {"loss": functional.cross_entropy(outputs, classes), "accuracy": right}


def main():
    torch.manual_seed(0)
    train_set, held_out = datasets()
    model = network().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = EPOCHS * -(-len(train_set) // BATCH)
    scheduler = lr_scheduler.OneCycleLR(optimizer, 2e-2, total_steps=steps)
    scaler = torch.amp.GradScaler(DEVICE)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)

    loader = openedt.loader(
        train_set,
        model,
        optimizer,
        epochs=EPOCHS,
        batch_size=BATCH,
        device_batch_size=32,
        seed=0,
        validation=held_out,
        validation_step=validation_step,
    )
    for batch in loader:
        images, classes = (part.to(DEVICE) for part in batch)
        optimizer.zero_grad()
        with torch.autocast(DEVICE, dtype=torch.float16):
            loss = functional.cross_entropy(model(images), classes)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        average.update_parameters(model)
    print(f"{loader.step} updates: accuracy {loader.metrics['val_accuracy']:.4f}")

    average.to(DEVICE).eval()
    with torch.no_grad():
        found = validation_step(average, held_out.tensors)
    print(f"held-out accuracy of the average: {found['accuracy']:.4f}")
    weights = b"".join(tensor.cpu().numpy().tobytes() for tensor in average.state_dict().values())
    print(f"weights {hashlib.sha256(weights).hexdigest()[:16]}")


if __name__ == "__main__":
    main()
