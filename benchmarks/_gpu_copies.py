"""What one engine copies between host and GPU in some steps, by torch's profiler."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

COPIES = "copies.json"
TO_DEVICE, TO_HOST = "HtoD", "DtoH"
_FIRST, _STEPS = 20, 10
"""Steps before the profile, and in it."""


@dataclass(frozen=True)
class Copies:
    """Copies of one direction in all profiled steps together, in bytes."""

    batches: int
    gradients: int
    others: int
    number: int
    largest: int
    """Bytes of the largest single copy."""


@dataclass(frozen=True)
class Found:
    """What one training copied."""

    steps: int
    least_gradients: int
    """A copy of at least so many bytes that is no batch counts as gradients."""
    copies: Mapping[str, Copies]
    """By direction."""


def sort(memcpys: Iterable[tuple[str, int]], batches: Sequence[int], least_gradients: int) -> dict[str, Copies]:
    """Sort copies by what they carry.

    Args:
        memcpys: each copy's name, as the profiler has it ("Memcpy HtoD (Pinned -> Device)"), and its bytes.
        batches: bytes of the parts of a batch.
        least_gradients: a copy of at least so many bytes that is no batch counts as gradients.

    Returns:
        The copies of each direction.
    """
    every = list(memcpys)
    found = {}
    for direction in (TO_DEVICE, TO_HOST):
        sizes = [size for name, size in every if direction in name]
        of_batches = [size for size in sizes if direction == TO_DEVICE and size in batches]
        gradients = [size for size in sizes if size >= least_gradients]
        if direction == TO_DEVICE:
            gradients = [size for size in gradients if size not in batches]
        others = sum(sizes) - sum(of_batches) - sum(gradients)
        found[direction] = Copies(sum(of_batches), sum(gradients), others, len(sizes), max(sizes, default=0))
    return found


def read(folder: Path) -> Found | None:
    """What an engine has written into a folder; None: nothing yet.

    Raises:
        RuntimeError: the engine could not profile its steps; the message says why.
    """
    path = folder / COPIES
    if not path.exists():
        return None
    told = json.loads(path.read_text())
    if "error" in told:
        raise RuntimeError(f"the profiler did not run: {told['error']}")
    return Found(
        told["steps"], told["least_gradients"], {name: Copies(**each) for name, each in told["copies"].items()}
    )


class Profile:
    """Profiles an engine's steps from the twentieth on, and writes what they copied.

    Args:
        folder: where it is written.
        samples: a sample, whose parts are tensors.
        batch: samples of a batch.
        model: has the parameters whose gradients are meant.
    """

    def __init__(self, folder: Path, samples: Sequence[Sequence[Tensor]], batch: int, model: nn.Module) -> None:
        from edt_runner.comm.buckets import FIRST_BYTES

        self._folder = folder
        self._batches = [part.numel() * part.element_size() * batch for sample in samples for part in sample]
        gradients = sum(each.numel() * each.element_size() for each in model.parameters())
        self._least = min(FIRST_BYTES, gradients)
        self._profiler: Any = None

    def step(self, number: int) -> None:
        """Step ``number`` (from 1 on) is done."""
        try:
            if number == _FIRST:
                self._start()
            elif number == _FIRST + _STEPS:
                self._write(self._stop())
        except Exception as error:  # the training shall not end by this
            self._write({"error": f"{type(error).__name__}: {error}"})

    def _start(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        on_gpu = torch.cuda.is_available()
        if on_gpu:
            torch.cuda.synchronize()
        self._profiler = profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU])
        self._profiler.start()

    def _stop(self) -> dict[str, Any]:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._profiler.stop()
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "trace.json"
            self._profiler.export_chrome_trace(str(path))
            trace = json.loads(path.read_text(errors="replace"))
        events = [event for event in trace["traceEvents"] if event.get("cat") == "gpu_memcpy"]
        memcpys = [(str(event["name"]), int(event["args"]["bytes"])) for event in events]
        found = Found(_STEPS, self._least, sort(memcpys, self._batches, self._least))
        return asdict(found)

    def _write(self, told: Mapping[str, Any]) -> None:
        draft = self._folder / f".{COPIES}"
        draft.write_text(json.dumps(told))
        draft.rename(self._folder / COPIES)
