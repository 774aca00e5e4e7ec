"""NVML over plain data: the calls of ``pynvml`` that the agent uses, answered from a file.

``install(path)`` puts them into the imported ``pynvml``. Errors and constants stay pynvml's own. The file is read at
every call, so that a test can change the machine while an agent looks at it::

    {"driver": true,
     "boards": [{"uuid": "GPU-a", "name": "NVIDIA H200", "memory": 1000, "used": 10, "capability": [9, 0],
                 "busy": 75, "milliwatts": 250000, "degrees": 61, "ecc": 0, "processes": {"17": "/usr/bin/game"},
                 "lost": false,
                 "mig": [{"uuid": "MIG-a", "profile": "1g.18gb", "memory": 100, "used": 1, "processes": {}}]}]}

``mig`` null or missing: the board is not in MIG mode. A number that is missing is one that the board does not tell.
"""

# ruff: noqa: N802 - NVML's own names

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

MOST_PARTS = 7


@dataclass(frozen=True)
class Handle:
    """What NVML names a device by: a board, or a part of it."""

    board: int
    part: int | None = None


class Nvml:
    """The library, for the machine that a file describes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened = 0

    def nvmlInit(self) -> None:
        if not self._read().get("driver", True):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        self._opened += 1

    def nvmlShutdown(self) -> None:
        self._machine()
        self._opened -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self._machine()["boards"])

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle:
        self._device(Handle(index))
        return Handle(index)

    def nvmlDeviceGetHandleByUUID(self, uuid: str | bytes) -> Handle:
        text = uuid.decode() if isinstance(uuid, bytes) else uuid
        for index, board in enumerate(self._machine()["boards"]):
            handles = [Handle(index), *(Handle(index, part) for part in range(len(board.get("mig") or ())))]
            for handle in handles:
                data = board if handle.part is None else board["mig"][handle.part]
                if data["uuid"] == text:
                    self._device(handle)
                    return handle
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetUUID(self, handle: Handle) -> str:
        return str(self._device(handle)["uuid"])

    def nvmlDeviceGetName(self, handle: Handle) -> str:
        device, board = self._device(handle), self._device(Handle(handle.board))
        return f"{board['name']} MIG {device['profile']}" if handle.part is not None else str(board["name"])

    def nvmlDeviceGetCudaComputeCapability(self, handle: Handle) -> tuple[int, int]:
        major, minor = self._told(handle, "capability")
        return major, minor

    def nvmlDeviceGetMemoryInfo(self, handle: Handle) -> SimpleNamespace:
        self._told(handle, "memory")
        device = self._device(handle)
        return SimpleNamespace(total=device["memory"], used=device["used"], free=device["memory"] - device["used"])

    def nvmlDeviceGetMigMode(self, handle: Handle) -> list[int]:
        mode = int(self._device(handle).get("mig") is not None)
        return [mode, mode]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Handle) -> int:
        self._device(handle)
        return MOST_PARTS

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Handle, index: int) -> Handle:
        if index >= len(self._device(handle).get("mig") or ()):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return Handle(handle.board, index)

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: Handle) -> Handle:
        self._device(handle)
        if handle.part is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return Handle(handle.board)

    def nvmlDeviceGetUtilizationRates(self, handle: Handle) -> SimpleNamespace:
        return SimpleNamespace(gpu=self._of_a_board(handle, "busy"), memory=0)

    def nvmlDeviceGetPowerUsage(self, handle: Handle) -> int:
        return int(self._of_a_board(handle, "milliwatts"))

    def nvmlDeviceGetTemperature(self, handle: Handle, sensor: int) -> int:
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return int(self._of_a_board(handle, "degrees"))

    def nvmlDeviceGetTotalEccErrors(self, handle: Handle, error: int, counter: int) -> int:
        assert (error, counter) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return int(self._of_a_board(handle, "ecc"))

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Handle) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=int(pid), usedGpuMemory=None) for pid in self._told(handle, "processes")]

    def nvmlSystemGetProcessName(self, pid: int) -> str:
        for board in self._machine()["boards"]:
            for device in (board, *(board.get("mig") or ())):
                name = device.get("processes", {}).get(str(pid))
                if name:
                    return str(name)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def _read(self) -> Mapping[str, Any]:
        machine: Mapping[str, Any] = json.loads(self._path.read_text())
        return machine

    def _machine(self) -> Mapping[str, Any]:
        if self._opened < 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        return self._read()

    def _device(self, handle: Handle) -> Mapping[str, Any]:
        board: Mapping[str, Any] = self._machine()["boards"][handle.board]
        if board.get("lost"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        part: Mapping[str, Any] = board if handle.part is None else board["mig"][handle.part]
        return part

    def _told(self, handle: Handle, name: str) -> Any:
        value = self._device(handle).get(name)
        if value is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return value

    def _of_a_board(self, handle: Handle, name: str) -> Any:
        if handle.part is not None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return self._told(handle, name)


def install(path: Path, replace: Callable[[object, str, object], None] = setattr) -> None:
    """Answer for NVML from now on. ``replace``: ``monkeypatch.setattr``, if it is to end."""
    library = Nvml(path)
    for name in dir(library):
        if name.startswith("nvml"):
            replace(pynvml, name, getattr(library, name))


def two_gpus() -> dict[str, Any]:
    """A GPU, and another in MIG mode with two devices."""
    board = {"name": "NVIDIA H200", "memory": 140 << 30, "used": 1 << 30, "capability": [9, 0], "ecc": 0}
    first = {"uuid": "GPU-aaaa", "busy": 75, "milliwatts": 250_500, "degrees": 61, "processes": {}}
    second = {"uuid": "GPU-bbbb", "busy": 0, "milliwatts": 90_000, "degrees": 40, "processes": {}}
    parts = [
        {"uuid": "MIG-b000", "profile": "1g.18gb", "memory": 16 << 30, "used": 1 << 20, "processes": {}},
        {"uuid": "MIG-b111", "profile": "3g.71gb", "memory": 70 << 30, "used": 2 << 20, "processes": {}},
    ]
    return {"boards": [{**board, **first}, {**board, **second, "mig": parts}]}
