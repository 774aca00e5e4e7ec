"""WMLA's surface: its names, flat, scalars only where its notebooks make a table of them. Room: api."""

from __future__ import annotations

import enum

from edt_api.schemas.base import Shown


class ExecState(enum.StrEnum):
    """The six states that clients are shown; a notebook's poller goes on in the first three."""

    SUBMITTED = "SUBMITTED"  # durable; no scheduler has looked at it yet
    PENDING = "PENDING_CRD_SCHEDULER"  # waits for slots
    RUNNING = "RUNNING"  # an attempt has started
    FINISHED = "FINISHED"  # the script came to its end
    KILLED = "KILLED"  # stopped on its user's word
    ERROR = "ERROR"  # the script failed

    @property
    def over(self) -> bool:
        """Nothing of the job runs any more, nor ever will."""
        return self in {ExecState.FINISHED, ExecState.KILLED, ExecState.ERROR}


class Exec(Shown):
    """One job as WMLA's clients read it: what three generations of them look at, scalars only."""

    id: str
    args: str
    """As they came, ``--msd-env`` values masked."""
    submissionId: str  # noqa: N815 - WMLA's names, here and below
    creator: str
    state: ExecState
    appId: str  # noqa: N815
    schedulerUrl: str  # noqa: N815
    modelFileOwnerName: str  # noqa: N815
    workDir: str  # noqa: N815
    appName: str  # noqa: N815
    createTime: str  # noqa: N815
    """``2026-11-21T12:00:00Z``"""
    elastic: bool
    nameSpace: str  # noqa: N815
    numWorker: int  # noqa: N815
    framework: str
    userName: str  # noqa: N815
    sigName: str  # noqa: N815
    sigId: str  # noqa: N815
    masterURL: str  # noqa: N815
    executionUserName: str  # noqa: N815


class Framework(Shown):
    """One entry of ``GET /execs/frameworks``, as WMLA 2.x gives it."""

    name: str
    description: str
    desc: list[str]
    deployMode: str  # noqa: N815
    hasTask0: str  # noqa: N815
    execMode: str  # noqa: N815
    appName: str  # noqa: N815
    numWorkers: int  # noqa: N815
    maxWorkers: int  # noqa: N815
    workerMemory: str  # noqa: N815
    frameworkCmdGenerator: str  # noqa: N815
    backend: str
    prebuiltModelMain: str  # noqa: N815
    prebuiltModelDir: str  # noqa: N815
    frameworkVersion: str  # noqa: N815
    exports: dict[str, str]
    numPs: int  # noqa: N815
    distributeStrategy: str  # noqa: N815


class Logon(Shown):
    """Answer of ``GET /auth/v1/logon``."""

    accessToken: str  # noqa: N815
    """To be shown as ``Authorization: Bearer`` or ``X-Auth-Token``; all tokens are equally long."""
    username: str
    role: str
    """``Admin`` or ``User``, as WMLA writes them."""
    expiresIn: int  # noqa: N815
    """Seconds for which the token holds."""


class Message(Shown):
    """A sentence."""

    message: str
