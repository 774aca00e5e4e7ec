"""What Slurm says of a job: its states and reasons, as Slurm writes them, and in words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edt_contract.pools import PoolState

FORMAT = "%F|%K|%T|%u|%j|%r"
"""What squeue is asked for: the array's number, the index in it, state, user, name, reason. A reason may have any
characters, so it comes last."""

_PENDING = {
    "PENDING": "",
    "CONFIGURING": "its machine is started",
    "POWER_UP_NODE": "its machine is started",
    "REQUEUED": "it waits to be started again",
    "REQUEUE_FED": "it waits to be started again",
    "REQUEUE_HOLD": "it is held, and starts again when an administrator releases it",
    "SPECIAL_EXIT": "it is held, and starts again when an administrator releases it",
    "RESV_DEL_HOLD": "it is held, because its reservation is gone",
}
_ENDED = {
    "BOOT_FAIL": "its machine did not start",
    "CANCELLED": "it was cancelled",
    "COMPLETED": "",
    "DEADLINE": "its deadline was over",
    "FAILED": "its script failed",
    "LAUNCH_FAILED": "Slurm could not start it",
    "NODE_FAIL": "its machine failed",
    "OUT_OF_MEMORY": "it used more memory than its job may",
    "PREEMPTED": "a job that goes first took its place",
    "RECONFIG_FAIL": "its machine could not be set up",
    "REVOKED": "another cluster runs it",
    "TIMEOUT": "its time limit was over",
}
_REASONS = {
    "BadConstraints": "no machine has what it asks for",
    "BeginTime": "it was started before, and Slurm waits a while before it starts a job again",
    "BurstBufferResources": "it waits for burst buffers",
    "Cleaning": "what it left on its last machine is still being removed",
    "Dependency": "it waits for another job",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its QOS is not valid",
    "JobArrayTaskLimit": "its array may not run more at once",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "its user holds it",
    "Licenses": "it waits for licenses",
    "NodeDown": "a machine that it needs is down",
    "None": "Slurm has not looked at it yet",
    "PartitionConfig": "it asks for more than its partition has",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition takes no jobs now",
    "PartitionNodeLimit": "its partition has too few machines of this kind",
    "PartitionTimeLimit": "its time limit is above its partition's",
    "Priority": "other jobs come first",
    "Prolog": "its machine is being prepared",
    "ReqNodeNotAvail": "machines that it needs are down or reserved",
    "Reservation": "its reservation has not begun",
    "Resources": "it waits for a machine to become free",
}


@dataclass(frozen=True)
class Task:
    """One job of an array, as Slurm sees it."""

    name: str
    array: str
    """The array's number."""
    index: int
    state: str
    reason: str = ""
    user: str = ""

    @property
    def pool_state(self) -> PoolState:
        """What it is to the platform. A state that is not known counts as running: then nobody asks for another."""
        if self.state in _PENDING:
            return PoolState.PENDING
        return PoolState.ENDED if self.state in _ENDED else PoolState.RUNNING

    @property
    def words(self) -> str:
        """Slurm's own reason, and what it means."""
        if self.state == "PENDING":
            return _joined(self.reason, _reason(self.reason))
        known = _PENDING.get(self.state) or _ENDED.get(self.state, "")
        if self.pool_state == PoolState.ENDED:
            return _joined(self.state, known) if known else ""
        return _joined(self.state, known) if self.pool_state == PoolState.PENDING else ""

    @property
    def oom(self) -> bool:
        return self.state == "OUT_OF_MEMORY"


def read_squeue(text: str) -> list[Task]:
    """The tasks of arrays in the output of squeue with FORMAT. Other jobs, and lines of another shape, are left out."""
    found = []
    for line in text.splitlines():
        parts = line.split("|", 5)
        if len(parts) == 6:
            array, index, state, user, name, reason = (part.strip() for part in parts)
            found += [Task(name, array, number, state, _clean(reason), user) for number in _indices(index)]
    return found


def read_jobs(jobs: Sequence[Mapping[str, Any]]) -> list[Task]:
    """The same of slurmrestd's answer. Newer versions write a list of states, and a number with ``set``."""
    found = []
    for job in jobs:
        states = job.get("job_state")
        names = [states] if isinstance(states, str) else [str(each) for each in states or ()]
        state = next((each for each in names if each not in {"COMPLETING", "REQUEUED"}), names[0] if names else "")
        if "COMPLETING" in names and state != "PENDING":
            state = "COMPLETING"
        index = _number(job.get("array_task_id"))
        array = _number(job.get("array_job_id"))
        text = str(index) if index is not None else str(job.get("array_task_string") or "")
        reason = str(job.get("state_reason") or "")
        user, name = str(job.get("user_name") or ""), str(job.get("name") or "")
        found += [Task(name, str(array), number, state, _clean(reason), user) for number in _indices(text) if array]
    return found


def _indices(text: str) -> Iterator[int]:
    """Indices in an array, as Slurm writes them: ``3``, ``0-4``, ``0-8:4``, ``1,5-6%2``."""
    for part in text.partition("%")[0].strip("[]").split(","):
        if match := re.fullmatch(r"(\d+)(?:-(\d+))?(?::(\d+))?", part.strip()):
            first = int(match[1])
            yield from range(first, int(match[2] or first) + 1, int(match[3] or 1))


def _number(given: Any) -> int | None:
    if isinstance(given, dict):
        given = given.get("number") if given.get("set") else None
    return given if isinstance(given, int) else None


def _clean(reason: str) -> str:
    """squeue puts reasons into brackets where it shows them in place of machines."""
    return reason.strip("()").partition(",")[0].strip() if reason.startswith("(") else reason.strip()


def _reason(reason: str) -> str:
    name = reason.partition(",")[0]
    if name in _REASONS:
        return _REASONS[name]
    if "Limit" in name or name.startswith(("QOSMax", "QOSGrp", "QOSMin", "Assoc")):
        whose = "the QOS" if name.startswith("QOS") else "the account or user" if name.startswith("Assoc") else "Slurm"
        return f"a limit of {whose} is reached"
    return ""


def _joined(name: str, words: str) -> str:
    return f"{name}: {words}" if words else name
