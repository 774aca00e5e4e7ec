"""Measures how busy the node's slots are, and sends it to the API.

Of CPU slots it is the share of their cores that engines used, from the file that supervisors write (``USAGE_FILE``); of
GPUs it is what NVML says. A sample that cannot be sent is dropped, since the next one is newer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edt_agent import safe_files
from edt_agent.api import Api
from edt_agent.attempt import Attempt
from edt_agent.errors import ApiRefused, ApiUnreachable
from edt_agent.settings import AgentSettings
from edt_agent.slots import Slot, cores
from edt_agent.supervisor_records import Key
from edt_contract.attempt import USAGE_FILE

log = logging.getLogger(__name__)

STALE_SECONDS = 20.0
"""A file that is older says nothing about now."""
_MOST_BYTES = 1 << 18
_LARGEST = 1 << 62
"""The API takes no larger number."""

Engine = tuple[Key, str]
"""An attempt, and the allocation of one of its engines."""


@dataclass(frozen=True)
class Reading:
    """What an engine, with all that it started, had used by ``time`` (the machine's monotonic seconds)."""

    time: float
    cpu_seconds: float
    rss_bytes: int


@dataclass(frozen=True)
class Sample:
    """How busy a slot was, as the API takes it. None: it is not known."""

    slot: str
    utilisation: float
    """Share of its cores that were used, or of the last sampling period in which its GPU ran a kernel, 0 to 1."""
    memory_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    temperature_c: float | None = None


def cpu_samples(
    slots: Sequence[str],
    before: Mapping[Engine, Reading],
    now: Mapping[Engine, Reading],
    cores_per_slot: float,
    held: Mapping[Engine, str],
) -> list[Sample]:
    """How busy CPU slots were between two readings. A slot without an engine is idle; a slot whose engine is new or was
    not measured again is left out.

    Args:
        slots: the CPU slots.
        before, now: the two readings.
        cores_per_slot: cores of the node / its slots.
        held: the slot of each engine, from the supervisors' reports.
    """
    samples = []
    for slot in slots:
        engines = [engine for engine, holds in held.items() if holds == slot]
        measured = [each for each in engines if each in before and each in now and now[each].time > before[each].time]
        if len(measured) < len(engines):
            continue
        used = sum(_cores_used(before[engine], now[engine]) for engine in measured)
        memory = sum(now[engine].rss_bytes for engine in measured)
        samples.append(Sample(slot, round(min(1.0, max(0.0, used / cores_per_slot)), 4), memory))
    return samples


def _cores_used(before: Reading, now: Reading) -> float:
    return (now.cpu_seconds - before.cpu_seconds) / (now.time - before.time)


def readings(key: Key, text: str, now: float) -> dict[Engine, Reading]:
    """The readings in a supervisor's file; none where it is too old or cannot be read."""
    try:
        data = json.loads(text)
        when = float(data["time"])
        if not now - STALE_SECONDS <= when <= now + 1.0:
            return {}
        found = {
            (key, str(name)): Reading(when, float(each["cpu_seconds"]), int(each["rss_bytes"]))
            for name, each in data["engines"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}
    return {engine: reading for engine, reading in found.items() if _is_possible(reading)}


def _is_possible(reading: Reading) -> bool:
    return math.isfinite(reading.cpu_seconds) and 0 <= reading.rss_bytes < _LARGEST


def read_usage_file(spool: Path) -> str | None:
    """The text of a supervisor's file; None: there is none, or the job's processes have put a link or a pipe there."""
    data = safe_files.read(spool / USAGE_FILE, _MOST_BYTES)
    return data.decode(errors="replace") if data is not None else None


class Gpus:
    """The GPUs of these slots. NVML is initialised at the first measurement and kept open, because that takes long.

    Args:
        uuids: UUID of each slot's GPU.
    """

    def __init__(self, uuids: Mapping[str, str]) -> None:
        self._uuids = uuids
        self._open = False

    def measure(self) -> list[Sample]:
        """The use of each slot's GPU; one that does not answer is left out."""
        if not self._uuids:
            return []
        import pynvml

        try:
            if not self._open:
                pynvml.nvmlInit()
                self._open = True
        except pynvml.NVMLError as error:
            log.debug("NVML does not open: %s", error)
            return []
        found: list[Sample] = []
        for slot, uuid in self._uuids.items():
            try:
                found.append(_measure(pynvml, slot, uuid))
            except pynvml.NVMLError as error:  # a part of a GPU (MIG) has no utilisation, a broken one nothing
                log.debug("GPU %s does not answer: %s", uuid, error)
        if not found:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
            self._open = False  # the driver may have been reloaded
        return found


def _measure(pynvml: Any, slot: str, uuid: str) -> Sample:
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())

    def asked(question: Callable[[], Any]) -> Any:
        """A value that not every GPU has."""
        try:
            return question()
        except pynvml.NVMLError:
            return None

    rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    milliwatts = asked(lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
    degrees = asked(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
    return Sample(
        slot,
        utilisation=min(1.0, rates.gpu / 100),
        memory_bytes=int(memory.used),
        memory_total_bytes=int(memory.total),
        power_watts=milliwatts / 1000 if milliwatts is not None else None,
        temperature_c=float(degrees) if degrees is not None else None,
    )


class UsageReports:
    """Measures and sends, in ``run``."""

    def __init__(
        self, settings: AgentSettings, api: Api, slots: Sequence[Slot], attempts: Mapping[Key, Attempt]
    ) -> None:
        self._seconds = settings.usage_seconds
        self._api = api
        self._attempts = attempts
        self._cpu = [slot.slot for slot in slots if slot.device == "cpu"]
        self._gpus = Gpus({slot.slot: slot.device for slot in slots if slot.device != "cpu"})
        self._cores_per_slot = cores() / max(1, len(slots))
        self._before: dict[Engine, Reading] = {}
        self._delivered = True

    async def run(self) -> None:
        """Measure and send, for ever."""
        while True:
            await asyncio.sleep(self._seconds)
            try:
                await self._send(await asyncio.to_thread(self._measure, self._spools(), self._held()))
            except Exception:
                log.exception("usage of the slots cannot be measured")  # no reason for an agent to end

    def _spools(self) -> dict[Key, Path]:
        return {key: attempt.spool.path.parent for key, attempt in self._attempts.items() if attempt.lives}

    def _held(self) -> dict[Engine, str]:
        return {
            (key, str(allocation)): slot
            for key, attempt in self._attempts.items()
            if attempt.lives
            for allocation, slot in attempt.spool.facts.open_engines.items()
        }

    def _measure(self, spools: Mapping[Key, Path], held: Mapping[Engine, str]) -> list[Sample]:
        before, self._before, now = self._before, {}, time.monotonic()
        for key, folder in spools.items():
            self._before |= readings(key, read_usage_file(folder) or "", now)
        return cpu_samples(self._cpu, before, self._before, self._cores_per_slot, held) + self._gpus.measure()

    async def _send(self, samples: Sequence[Sample]) -> None:
        if not samples:
            return
        known = [{name: value for name, value in asdict(each).items() if value is not None} for each in samples]
        try:
            await self._api.usage(known)
        except (ApiUnreachable, ApiRefused) as error:
            if self._delivered:
                log.info("usage of the slots is not sent for now: %s", error)
            self._delivered = False
        else:
            self._delivered = True
