"""Measures how busy the node's slots are, and sends the measurements to the API.

For a CPU slot the value is the share of its cores that engines used, from the files that supervisors write
(``USAGE_FILE``). For a GPU the values come from NVML (``gpus``). A sample that cannot be sent is dropped, because a
newer one follows soon.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from edt_agent import safe_files
from edt_agent.api import Api
from edt_agent.attempt import Attempt
from edt_agent.errors import ApiRefused, ApiUnreachable
from edt_agent.gpu_processes import ForeignProcess, Ours, foreign
from edt_agent.gpus import Condition, Watch
from edt_agent.settings import AgentSettings
from edt_agent.slots import Slot, cores
from edt_agent.supervisor_records import Key
from edt_contract.attempt import USAGE_FILE
from edt_contract.processes import TAG_VARIABLE

log = logging.getLogger(__name__)

STALE_SECONDS = 20.0
"""A supervisor's file that is older than this is ignored."""
_MOST_BYTES = 1 << 18
_LARGEST = 1 << 62
"""The API accepts no larger number."""

Engine = tuple[Key, str]
"""An attempt, and the allocation of one of its engines."""


@dataclass(frozen=True)
class Reading:
    """The resources that an engine and all processes that it has started had used at one time."""

    time: float
    """Seconds of the machine's monotonic clock."""
    cpu_seconds: float
    """Processor time since the engine's start."""
    rss_bytes: int
    """Memory in use at that time."""


@dataclass(frozen=True)
class Sample:
    """How busy a slot was, as the API accepts it. None in a field means unknown."""

    slot: str
    utilisation: float | None = None
    """From 0 to 1. For a CPU slot: share of its cores that were used. For a GPU: see ``gpus.Condition``, also for the
    fields below."""
    memory_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    temperature_c: float | None = None
    ecc_errors: int | None = None
    problem: str | None = None
    foreign_processes: tuple[ForeignProcess, ...] = ()
    """Processes on the GPU that belong to no job of this node."""


def cpu_samples(
    slots: Sequence[str],
    before: Mapping[Engine, Reading],
    now: Mapping[Engine, Reading],
    cores_per_slot: float,
    held: Mapping[Engine, str],
) -> list[Sample]:
    """How busy the CPU slots were between two readings. A slot without an engine is idle. A slot whose engine lacks one
    of the two readings is left out.

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


def spread(found: Mapping[Engine, Reading], processes: Iterable[Sequence[Engine]]) -> dict[Engine, Reading]:
    """The readings, with equal parts for the slots of one process.

    A process of a gang may hold several slots. Its supervisor measures it once, under one of its allocations.

    Args:
        found: the readings as the supervisors wrote them.
        processes: for each process the allocations that it holds.
    """
    parts = dict(found)
    for engines in processes:
        measured = [found[engine] for engine in engines if engine in found]
        if len(measured) == 1:
            [whole] = measured
            each = Reading(whole.time, whole.cpu_seconds / len(engines), whole.rss_bytes // len(engines))
            parts |= dict.fromkeys(engines, each)
    return parts


def _cores_used(before: Reading, now: Reading) -> float:
    return (now.cpu_seconds - before.cpu_seconds) / (now.time - before.time)


def readings(key: Key, text: str, now: float) -> dict[Engine, Reading]:
    """The readings in a supervisor's file. There are none if the file is too old or cannot be read.

    Args:
        key: the attempt.
        text: the text of the file.
        now: monotonic seconds.
    """
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
    """The text of a supervisor's usage file; None: there is no file, or it cannot be read. ``spool``: the supervisor's
    spool folder, in which the job's processes may have put a link or a pipe."""
    data = safe_files.read(spool / USAGE_FILE, _MOST_BYTES)
    return data.decode(errors="replace") if data is not None else None


def gpu_samples(devices: Mapping[str, str], found: Mapping[str, Condition], ours: Ours) -> list[Sample]:
    """How the GPUs are, by slot.

    Args:
        devices: UUID of each slot's GPU.
        found: how each GPU is, by UUID.
        ours: how processes of our own jobs are known.
    """
    samples = []
    for slot, uuid in devices.items():
        now = found[uuid]
        known = {name: getattr(now, name) for name in Condition.__dataclass_fields__ if name != "processes"}
        samples.append(Sample(slot, **known, foreign_processes=foreign(now.processes, ours)))
    return samples


class UsageReports:
    """Measures the slots and sends the samples to the API, in ``run``."""

    def __init__(
        self, settings: AgentSettings, api: Api, slots: Sequence[Slot], attempts: Mapping[Key, Attempt]
    ) -> None:
        self._seconds = settings.usage_seconds
        self._api = api
        self._attempts = attempts
        self._cpu = [slot.slot for slot in slots if slot.device == "cpu"]
        self._devices = {slot.slot: slot.device for slot in slots if slot.device != "cpu"}
        self._gpus = Watch(tuple(self._devices.values()))
        self._mark = f"{TAG_VARIABLE}={settings.tag}".encode()
        self._cores_per_slot = cores() / max(1, len(slots))
        self._before: dict[Engine, Reading] = {}
        self._delivered = True

    async def run(self) -> None:
        """Measure and send, for ever."""
        while True:
            await asyncio.sleep(self._seconds)
            try:
                known = self._spools(), self._held(), self._processes(), self._ours()
                await self._send(await asyncio.to_thread(self._measure, *known))
            except Exception:
                log.exception("usage of the slots cannot be measured")  # the agent continues without this

    def _spools(self) -> dict[Key, Path]:
        return {key: attempt.spool.path.parent for key, attempt in self._attempts.items() if attempt.lives}

    def _held(self) -> dict[Engine, str]:
        return {
            (key, str(allocation)): slot
            for key, attempt in self._attempts.items()
            if attempt.lives
            for allocation, slot in attempt.spool.facts.open_engines.items()
        }

    def _processes(self) -> list[list[Engine]]:
        found: dict[tuple[Key, int], list[Engine]] = {}
        for key, attempt in self._attempts.items():
            for allocation, pid in attempt.spool.facts.pids.items():
                found.setdefault((key, pid), []).append((key, str(allocation)))
        return list(found.values())

    def _ours(self) -> Ours:
        records = [attempt.record for attempt in self._attempts.values()]
        containers = frozenset(record.container for record in records if record.container)
        return Ours(frozenset(record.pid for record in records if record.pid), self._mark, containers)

    def _measure(
        self,
        spools: Mapping[Key, Path],
        held: Mapping[Engine, str],
        processes: Sequence[Sequence[Engine]],
        ours: Ours,
    ) -> list[Sample]:
        before, now = self._before, time.monotonic()
        found: dict[Engine, Reading] = {}
        for key, folder in spools.items():
            found |= readings(key, read_usage_file(folder) or "", now)
        self._before = spread(found, processes)
        on_cpu = cpu_samples(self._cpu, before, self._before, self._cores_per_slot, held)
        return on_cpu + gpu_samples(self._devices, self._gpus.conditions(), ours)

    async def _send(self, samples: Sequence[Sample]) -> None:
        if not samples:
            return
        known = [{name: value for name, value in asdict(each).items() if value not in (None, ())} for each in samples]
        try:
            await self._api.usage(known)
        except (ApiUnreachable, ApiRefused) as error:
            if self._delivered:
                log.info("usage of the slots is not sent for now: %s", error)
            self._delivered = False
        else:
            self._delivered = True
