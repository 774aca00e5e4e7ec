"""Room: runners, agent. How busy the node's slots are: what engines used of their slot's cores, what NVML says of GPUs.

Reads what supervisors write into their spools (``USAGE_FILE``), asks the NVIDIA driver, tells the API. A sample that
cannot be told is dropped: the next one says more.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edt_agent.api import Api
from edt_agent.attempt import Attempt
from edt_agent.errors import ApiRefused, ApiUnreachable
from edt_agent.gpus import Gpus
from edt_agent.ledger import Key
from edt_agent.settings import AgentSettings
from edt_agent.slots import Slot, cores
from edt_runner.contract import USAGE_FILE

log = logging.getLogger(__name__)

STALE_SECONDS = 20.0
"""A supervisor that has not written for so long says nothing of now."""
_MOST_BYTES = 1 << 18
_LARGEST = 1 << 62
"""The API takes no larger number."""

Engine = tuple[Key, str]
"""An attempt, and the allocation of one of its engines."""


@dataclass(frozen=True)
class Reading:
    """What an engine and its helpers had used by a time of the machine's monotonic clock."""

    slot: str
    time: float
    cpu_seconds: float
    rss_bytes: int


@dataclass(frozen=True)
class Sample:
    """How busy a slot was, as the API takes it."""

    slot: str
    utilisation: float
    memory_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    temperature_c: float | None = None


def cpu_samples(
    slots: Sequence[str],
    before: Mapping[Engine, Reading],
    now: Mapping[Engine, Reading],
    cores_per_slot: float,
    held: Mapping[Engine, str] | None = None,
) -> list[Sample]:
    """How busy CPU slots were between two looks. A slot that nobody holds is idle; of one whose engine is new or has
    not been measured again nothing is said. ``held``: who holds which slot, where that is known better than by what
    the engines' side says of itself."""
    holders = held if held is not None else {engine: reading.slot for engine, reading in now.items()}
    samples = []
    for slot in slots:
        engines = [engine for engine, holds in holders.items() if holds == slot]
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
    """What a supervisor wrote; none where that is too old, or cannot be read."""
    try:
        data = json.loads(text)
        when = float(data["time"])
        if not now - STALE_SECONDS <= when <= now + 1.0:
            return {}
        found = {
            (key, str(name)): Reading(str(each["slot"]), when, float(each["cpu_seconds"]), int(each["rss_bytes"]))
            for name, each in data["engines"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}
    return {engine: reading for engine, reading in found.items() if _is_possible(reading)}


def _is_possible(reading: Reading) -> bool:
    return math.isfinite(reading.cpu_seconds) and 0 <= reading.rss_bytes < _LARGEST


def written(spool: Path) -> str | None:
    """What a supervisor wrote. The job's own processes may have put a link, a pipe or anything there: None."""
    try:
        descriptor = os.open(spool / USAGE_FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None  # it has not written yet
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        data = os.read(descriptor, _MOST_BYTES + 1) if regular else b""
    finally:
        os.close(descriptor)
    if not regular:
        return None
    return data.decode(errors="replace") if len(data) <= _MOST_BYTES else None


class Usage:
    """``go_on`` runs for ever."""

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
        self._told = True

    async def go_on(self) -> None:
        """Measure and tell, again and again."""
        while True:
            await asyncio.sleep(self._seconds)
            try:
                await self._tell(await asyncio.to_thread(self._measure, self._spools(), self._held()))
            except Exception:
                log.exception("how busy the slots are cannot be measured")  # no reason for an agent to end

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
        before, self._before = self._before, _read(spools)
        gpus = [Sample(slot, **asdict(use)) for slot, use in self._gpus.measure().items()]
        return cpu_samples(self._cpu, before, self._before, self._cores_per_slot, held) + gpus

    async def _tell(self, samples: Sequence[Sample]) -> None:
        if not samples:
            return
        try:
            await self._api.usage([_message(sample) for sample in samples])
        except (ApiUnreachable, ApiRefused) as error:
            if self._told:
                log.info("how busy the slots are is not told for now: %s", error)
            self._told = False
        else:
            self._told = True


def _read(spools: Mapping[Key, Path]) -> dict[Engine, Reading]:
    found: dict[Engine, Reading] = {}
    now = time.monotonic()
    for key, folder in spools.items():
        found |= readings(key, written(folder) or "", now)
    return found


def _message(sample: Sample) -> dict[str, Any]:
    return {name: value for name, value in asdict(sample).items() if value is not None}
