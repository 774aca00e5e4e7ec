"""NVIDIA GPUs that this process may use. Room: runners; no framework, and no nvidia-smi."""

from __future__ import annotations

from runai.elastic import _devices


def count() -> int:
    """Those that CUDA_VISIBLE_DEVICES leaves; 0 without a driver."""
    return _devices.visible()


def available() -> bool:
    return count() > 0
