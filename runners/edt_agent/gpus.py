"""Room: runners, agent. What NVML says of the node's GPUs. Asks the NVIDIA driver, never sets anything."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GpuUse:
    """One GPU at one moment. None: the driver does not say."""

    utilisation: float
    """Share of the last moments in which a kernel ran, 0 to 1."""
    memory_bytes: int | None
    memory_total_bytes: int | None
    power_watts: float | None
    temperature_c: float | None


class Gpus:
    """The GPUs of these slots, by UUID. The driver is opened at the first look and kept open, since that takes long."""

    def __init__(self, uuids: Mapping[str, str]) -> None:
        self._uuids = uuids
        self._open = False

    def measure(self) -> dict[str, GpuUse]:
        """By slot; a GPU that does not answer is left out."""
        if not self._uuids:
            return {}
        import pynvml

        try:
            if not self._open:
                pynvml.nvmlInit()
                self._open = True
        except pynvml.NVMLError as error:
            log.debug("NVML does not open: %s", error)
            return {}
        found: dict[str, GpuUse] = {}
        for slot, uuid in self._uuids.items():
            try:
                found[slot] = _measure(pynvml, uuid)
            except pynvml.NVMLError as error:  # a part of a GPU (MIG) knows no rate, a broken one nothing
                log.debug("GPU %s does not answer: %s", uuid, error)
        if not found:
            self._close(pynvml)  # the driver may have been loaded anew
        return found

    def _close(self, pynvml: Any) -> None:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
        self._open = False


def _measure(pynvml: Any, uuid: str) -> GpuUse:
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())

    def asked(question: Callable[[], Any]) -> Any:
        """What not every GPU can tell."""
        try:
            return question()
        except pynvml.NVMLError:
            return None

    rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    milliwatts = asked(lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
    degrees = asked(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
    return GpuUse(
        utilisation=min(1.0, rates.gpu / 100),
        memory_bytes=int(memory.used),
        memory_total_bytes=int(memory.total),
        power_watts=milliwatts / 1000 if milliwatts is not None else None,
        temperature_c=float(degrees) if degrees is not None else None,
    )
