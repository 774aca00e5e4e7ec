"""What NVML tells of this node's GPUs: which there are, and how each of them is at this moment.

NVML is the NVIDIA driver's library for watching GPUs. It does not initialise CUDA: a process that has done so cannot
fork engines. A GPU in MIG mode is divided into MIG devices, and each of these counts as a GPU here. This module imports
only pynvml and the standard library.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

import pynvml

log = logging.getLogger(__name__)

T = TypeVar("T")

_NO_DRIVER = frozenset({pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED})
_ADVICE: Mapping[int, str] = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "it has fallen off the bus; reset it, or restart the machine",
    pynvml.NVML_ERROR_RESET_REQUIRED: "it must be reset before it can be used again",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the driver was updated; restart the machine",
    pynvml.NVML_ERROR_NO_PERMISSION: "the agent's user may not use /dev/nvidia*",
    pynvml.NVML_ERROR_IRQ_ISSUE: "its interrupts do not arrive; see the kernel's log",
    pynvml.NVML_ERROR_INSUFFICIENT_POWER: "its external power cables are not attached",
}
"""What a person can do about an error, by NVML's number."""
_NO_ANSWER = frozenset(
    {
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        pynvml.NVML_ERROR_UNINITIALIZED,
    }
)
"""Errors after which a GPU answers no question. After any other, it may answer another question."""


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a MIG device of a GPU in MIG mode."""

    index: str
    """NVML's number, ``1``. Of a MIG device the GPU's number and its own, ``1:0``, as the NVIDIA runtime names it."""
    uuid: str
    """What CUDA_VISIBLE_DEVICES takes."""
    model: str
    """The GPU's name, such as ``NVIDIA H200``."""
    memory_total_bytes: int | None = None
    """All of its memory; None: unknown."""
    compute_capability: str | None = None
    """Such as ``9.0``; None: unknown."""
    mig_profile: str | None = None
    """Such as ``1g.10gb``; None: it is no MIG device."""
    board: str = ""
    """UUID of the GPU of which it is a part; its own if it is no MIG device."""

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"{self.model} MIG {self.mig_profile}" if self.mig_profile is not None else self.model


@dataclass(frozen=True)
class Condition:
    """How a GPU is at one moment. None in a field means that NVML does not tell it of this GPU.

    Power, temperature and ECC errors of a MIG device are those of the whole GPU.
    """

    utilisation: float | None = None
    """From 0 to 1: share of NVML's last sampling period in which a kernel ran. None for a MIG device."""
    memory_bytes: int | None = None
    """Memory in use."""
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    temperature_c: float | None = None
    ecc_errors: int | None = None
    """Errors in memory that could not be corrected, since the driver was loaded."""
    processes: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    """Processes that compute on it, pid to the name that NVML has; "": it has none. In a container NVML may list no
    process, or pids of the machine outside."""
    problem: str | None = None
    """Why it does not answer, in words; None: it does."""


def sentence(error: pynvml.NVMLError) -> str:
    """What NVML's error means, in words."""
    advice = _ADVICE.get(error.value)
    return f"NVML says {str(error)!r}" + (f": {advice}" if advice else "")


def find() -> tuple[Gpu, ...]:
    """All GPUs that NVML shows, MIG devices in place of a GPU in MIG mode. Empty if the machine has no NVIDIA driver.

    A GPU that does not answer is left out. The log says which, and why.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value in _NO_DRIVER:
            log.debug("no NVIDIA driver: %s", sentence(error))
        else:
            log.warning("the GPUs of this machine cannot be used: %s", sentence(error))
        return ()
    try:
        found: list[Gpu] = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                found += _at(index)
            except pynvml.NVMLError as error:
                log.warning("GPU %d is not offered: %s", index, sentence(error))
        return tuple(found)
    except pynvml.NVMLError as error:
        log.warning("the GPUs of this machine cannot be counted: %s", sentence(error))
        return ()
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def visible(found: tuple[Gpu, ...], words: str | None) -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES names, in its order.

    A word is an index, or the beginning of a UUID. As in CUDA, the first word that names nothing, or something again,
    ends the list. The index or the UUID of a GPU in MIG mode names all of its MIG devices; CUDA, whose processes can
    use only one of them, would take the first.

    Args:
        found: all GPUs.
        words: the variable's value; None: it is not set, and all are visible.
    """
    if words is None:
        return found
    chosen: list[Gpu] = []
    for word in (part.strip() for part in words.split(",")):
        named = _named(found, word) if word else []
        if not named or any(gpu in chosen for gpu in named):
            break
        chosen += named
    return tuple(chosen)


def _named(found: tuple[Gpu, ...], word: str) -> list[Gpu]:
    by_index = [gpu for gpu in found if word in {gpu.index, gpu.index.partition(":")[0]}]
    if by_index:
        return by_index
    one = [gpu for gpu in found if gpu.uuid.startswith(word)]
    if one:
        return one if len(one) == 1 else []
    boards = {gpu.board for gpu in found if gpu.board.startswith(word)}
    return [gpu for gpu in found if gpu.board in boards] if len(boards) == 1 else []


def _at(index: int) -> list[Gpu]:
    """The GPU of this number, or its MIG devices."""
    board = pynvml.nvmlDeviceGetHandleByIndex(index)
    uuid, model = pynvml.nvmlDeviceGetUUID(board), pynvml.nvmlDeviceGetName(board)
    capability = _asked(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(board))
    known = ".".join(map(str, capability)) if capability is not None else None
    mode = _asked(lambda: pynvml.nvmlDeviceGetMigMode(board))
    if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return [Gpu(str(index), uuid, model, _memory(board), known, None, uuid)]
    parts = [
        Gpu(
            f"{index}:{place}",
            pynvml.nvmlDeviceGetUUID(part),
            model,
            _memory(part),
            known,
            _profile(part),
            uuid,
        )
        for place, part in _parts(board)
    ]
    if not parts:
        log.warning("GPU %d is not offered: it is in MIG mode and has no MIG device; make some, or end MIG mode", index)
    return parts


def _parts(board: Any) -> Iterator[tuple[int, Any]]:
    """The MIG devices of a GPU, with their numbers."""
    for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(board)):
        try:
            yield place, pynvml.nvmlDeviceGetMigDeviceHandleByIndex(board, place)
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_NOT_FOUND:  # no MIG device has this number
                raise


def _profile(part: Any) -> str:
    """The profile of a MIG device: the end of its name, ``NVIDIA H200 MIG 1g.18gb``."""
    return str(pynvml.nvmlDeviceGetName(part)).rpartition("MIG ")[2]


def _memory(device: Any) -> int | None:
    memory = _asked(lambda: pynvml.nvmlDeviceGetMemoryInfo(device))
    return int(memory.total) if memory is not None else None


def _asked(question: Callable[[], T]) -> T | None:
    """The answer to a question; None: this GPU has none.

    Raises:
        pynvml.NVMLError: the GPU does not answer at all.
    """
    try:
        return question()
    except pynvml.NVMLError as error:
        if error.value in _NO_ANSWER:
            raise
        return None


class Watch:
    """Tells how GPUs are. NVML is opened at the first question and stays open, because opening takes long.

    Args:
        uuids: UUIDs of the GPUs and MIG devices.
    """

    def __init__(self, uuids: tuple[str, ...]) -> None:
        self._uuids = uuids
        self._open = False
        self._problems: dict[str, str] = {}

    def conditions(self) -> dict[str, Condition]:
        """How each GPU is now, by UUID. A GPU that does not answer has a ``problem``, and the log says so once."""
        if not self._uuids:
            return {}
        try:
            if not self._open:
                pynvml.nvmlInit()
                self._open = True
        except pynvml.NVMLError as error:
            found = {uuid: Condition(problem=sentence(error)) for uuid in self._uuids}
        else:
            found = {uuid: self._condition(uuid) for uuid in self._uuids}
            if all(condition.problem is not None for condition in found.values()):
                self._close()  # the driver may have been reloaded
        self._log(found)
        return found

    def _condition(self, uuid: str) -> Condition:
        try:
            return _condition(pynvml.nvmlDeviceGetHandleByUUID(uuid))
        except pynvml.NVMLError as error:
            return Condition(problem=sentence(error))

    def _close(self) -> None:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
        self._open = False

    def _log(self, found: Mapping[str, Condition]) -> None:
        for uuid, condition in found.items():
            before = self._problems.pop(uuid, None)
            if condition.problem is not None:
                self._problems[uuid] = condition.problem
                if condition.problem != before:
                    log.warning("GPU %s does not answer: %s", uuid, condition.problem)
            elif before is not None:
                log.info("GPU %s answers again", uuid)


def _condition(device: Any) -> Condition:
    """How a GPU or a MIG device is now. Raises NVMLError if it does not answer."""
    whole = _asked(lambda: pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device))  # None: it is no MIG device
    board = whole if whole is not None else device
    memory = _asked(lambda: pynvml.nvmlDeviceGetMemoryInfo(device))  # none where it shares the processor's memory
    rates = _asked(lambda: pynvml.nvmlDeviceGetUtilizationRates(device)) if whole is None else None
    milliwatts = _asked(lambda: pynvml.nvmlDeviceGetPowerUsage(board))
    degrees = _asked(lambda: pynvml.nvmlDeviceGetTemperature(board, pynvml.NVML_TEMPERATURE_GPU))
    errors = _asked(
        lambda: pynvml.nvmlDeviceGetTotalEccErrors(
            board, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        )
    )
    computing = _asked(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(device)) or []
    return Condition(
        utilisation=min(1.0, rates.gpu / 100) if rates is not None else None,
        memory_bytes=int(memory.used) if memory is not None else None,
        memory_total_bytes=int(memory.total) if memory is not None else None,
        power_watts=milliwatts / 1000 if milliwatts is not None else None,
        temperature_c=float(degrees) if degrees is not None else None,
        ecc_errors=int(errors) if errors is not None else None,
        processes={int(each.pid): _name(each.pid) for each in computing},
    )


def _name(pid: int) -> str:
    return str(_asked(lambda: pynvml.nvmlSystemGetProcessName(pid)) or "")
